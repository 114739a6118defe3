//! The expected contents of a database: a sorted map that remembers its past, as far back as a reader may ask.
//!
//! Each write of the database is a moment. A key has its values with the moments at which they were set, so a snapshot
//! costs nothing but its moment.

use forebay_base::KeyOrder;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Number of earlier writes.
pub(crate) type Moment = u64;

type Values = Vec<(Moment, Option<Vec<u8>>)>;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    keys: BTreeMap<Vec<u8>, Values>,
    now: Moment,
    oldest: Moment,
}

impl Model {
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Forgets the past before `oldest`, which nobody asks for.
    pub(crate) fn forget_before(&mut self, oldest: Moment) {
        self.oldest = oldest;
    }

    /// Begins the next write.
    pub(crate) fn begin_write(&mut self) {
        self.now += 1;
    }

    /// Part of the write: sets the value of a key, or deletes it.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let (now, oldest) = (self.now, self.oldest);
        let set = |values: &mut Values| {
            let past = values.partition_point(|(moment, _)| *moment <= oldest).saturating_sub(1);
            values.drain(..past);
            values.push((now, value.map(<[u8]>::to_vec)));
        };
        match self.keys.get_mut(key) {
            Some(values) => set(values),
            None => set(self.keys.entry(key.to_vec()).or_default()),
        }
    }

    /// Part of the write: deletes the keys from `from` (included) to `to` (excluded), in `order`.
    pub(crate) fn delete_range(&mut self, from: &[u8], to: &[u8], order: KeyOrder) {
        if from == to {
            return;
        }
        let (low, high) = match order {
            KeyOrder::Bytewise => (Bound::Included(from), Bound::Excluded(to)),
            KeyOrder::ReverseBytewise => (Bound::Excluded(to), Bound::Included(from)),
        };
        let now = self.now;
        for (_, values) in self.keys.range_mut::<[u8], _>((low, high)) {
            if values.last().is_some_and(|(_, value)| value.is_some()) {
                values.push((now, None));
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8], at: Moment) -> Option<&[u8]> {
        value_at(self.keys.get(key)?, at)
    }

    /// The entries from `start` on, in `order`, as of a moment.
    pub(crate) fn from<'a>(&'a self, start: &[u8], order: KeyOrder, at: Moment) -> Entries<'a> {
        match order {
            KeyOrder::Bytewise => self.ascending((Bound::Included(start), Bound::Unbounded), at),
            KeyOrder::ReverseBytewise => self.descending((Bound::Unbounded, Bound::Included(start)), at),
        }
    }

    /// The entries up to and including `start`, backwards, in `order`, as of a moment.
    pub(crate) fn back_from<'a>(&'a self, start: &[u8], order: KeyOrder, at: Moment) -> Entries<'a> {
        self.from(start, reverse(order), at)
    }

    /// The entries after `key`, in `order`, as of a moment.
    pub(crate) fn after<'a>(&'a self, key: &[u8], order: KeyOrder, at: Moment) -> Entries<'a> {
        match order {
            KeyOrder::Bytewise => self.ascending((Bound::Excluded(key), Bound::Unbounded), at),
            KeyOrder::ReverseBytewise => self.descending((Bound::Unbounded, Bound::Excluded(key)), at),
        }
    }

    /// All entries in `order`, as of a moment.
    pub(crate) fn entries(&self, order: KeyOrder, at: Moment) -> Entries<'_> {
        match order {
            KeyOrder::Bytewise => self.ascending((Bound::Unbounded, Bound::Unbounded), at),
            KeyOrder::ReverseBytewise => self.descending((Bound::Unbounded, Bound::Unbounded), at),
        }
    }

    fn ascending(&self, range: (Bound<&[u8]>, Bound<&[u8]>), at: Moment) -> Entries<'_> {
        Box::new(self.keys.range::<[u8], _>(range).filter_map(move |entry| entry_at(entry, at)))
    }

    fn descending(&self, range: (Bound<&[u8]>, Bound<&[u8]>), at: Moment) -> Entries<'_> {
        Box::new(self.keys.range::<[u8], _>(range).rev().filter_map(move |entry| entry_at(entry, at)))
    }

    /// The model reduced, for each key, to the writes up to that key's own moment.
    pub(crate) fn cut(&self, moment_of: impl Fn(&[u8]) -> Moment) -> Self {
        let left = self.keys.iter().filter_map(|(key, values)| {
            let value = value_at(values, moment_of(key))?;
            Some((key.clone(), vec![(0, Some(value.to_vec()))]))
        });
        Self { keys: left.collect(), now: 0, oldest: 0 }
    }
}

/// Keys with values, in an order.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>;

fn value_at(values: &Values, at: Moment) -> Option<&[u8]> {
    let newest = values.iter().rev().find(|(moment, _)| *moment <= at)?;
    newest.1.as_deref()
}

fn entry_at<'a>((key, values): (&'a Vec<u8>, &'a Values), at: Moment) -> Option<(&'a [u8], &'a [u8])> {
    Some((key, value_at(values, at)?))
}

pub(crate) fn reverse(order: KeyOrder) -> KeyOrder {
    match order {
        KeyOrder::Bytewise => KeyOrder::ReverseBytewise,
        KeyOrder::ReverseBytewise => KeyOrder::Bytewise,
    }
}
