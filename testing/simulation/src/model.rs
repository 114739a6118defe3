//! The expected contents of a database: a sorted map that remembers its past, as far back as a reader may ask.
//!
//! Each write of the database is a moment. A key has its values with the moments at which they were set, so a snapshot
//! costs only its moment. A passing of time is also a moment: what has expired by then is gone from then on.

use forebay_base::KeyOrder;
use forebay_base::record::is_expired;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Number of earlier writes.
pub(crate) type Moment = u64;

type Values = Vec<Version>;

/// What a key has from a moment on.
#[derive(Debug, Clone)]
struct Version {
    since: Moment,
    value: Option<Vec<u8>>,
    /// When the value expires, if it is not replaced before.
    expiry_ms: Option<u64>,
    /// The value after the expiry: what the operands after the expired value make of no value.
    afterwards: Option<Vec<u8>>,
}

impl Version {
    const fn deleted(since: Moment) -> Self {
        Self { since, value: None, expiry_ms: None, afterwards: None }
    }

    fn at(&self, time_ms: u64) -> Option<&[u8]> {
        if is_expired(self.expiry_ms, time_ms) { self.afterwards.as_deref() } else { self.value.as_deref() }
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    keys: BTreeMap<Vec<u8>, Values>,
    now: Moment,
    oldest: Moment,
    /// Times by which keys expire, ascending, each with the moment from which it applies.
    times: Vec<(Moment, u64)>,
}

impl Model {
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Forgets the past before `oldest`, which is no longer asked for.
    pub(crate) fn forget_before(&mut self, oldest: Moment) {
        self.oldest = oldest;
        let passed = self.times.partition_point(|time| time.0 <= oldest).saturating_sub(1);
        self.times.drain(..passed);
    }

    /// Notes the time by which keys expire. Returns whether it is a new one, and so a moment.
    pub(crate) fn pass_time(&mut self, time_ms: u64) -> bool {
        let is_new = self.times.last().is_none_or(|time| time.1 < time_ms);
        if is_new {
            self.now += 1;
            self.times.push((self.now, time_ms));
        }
        is_new
    }

    fn time_at(&self, moment: Moment) -> u64 {
        let passed = self.times.partition_point(|time| time.0 <= moment);
        passed.checked_sub(1).and_then(|at| self.times.get(at)).map_or(0, |time| time.1)
    }

    /// Begins the next write.
    pub(crate) fn begin_write(&mut self) {
        self.now += 1;
    }

    /// Part of the write: sets the value of a key, until it expires.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expiry_ms: Option<u64>) {
        self.set(key, Version { since: self.now, value: Some(value.to_vec()), expiry_ms, afterwards: None });
    }

    /// Part of the write: applies an operand, which `apply` turns into a value.
    pub(crate) fn merge(&mut self, key: &[u8], apply: impl Fn(Option<&[u8]>) -> Vec<u8>) {
        let none = Version::deleted(0);
        let before = self.keys.get(key).and_then(|values| values.last()).unwrap_or(&none);
        let Version { value, expiry_ms, afterwards, .. } = before;
        let version = Version {
            since: self.now,
            value: Some(apply(value.as_deref())),
            expiry_ms: *expiry_ms,
            afterwards: expiry_ms.map(|_| apply(afterwards.as_deref())),
        };
        self.set(key, version);
    }

    /// Part of the write: deletes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.set(key, Version::deleted(self.now));
    }

    fn set(&mut self, key: &[u8], version: Version) {
        let oldest = self.oldest;
        let set = |values: &mut Values| {
            let past = values.partition_point(|version| version.since <= oldest).saturating_sub(1);
            values.drain(..past);
            values.push(version);
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
            if values.last().is_some_and(|version| version.value.is_some()) {
                values.push(Version::deleted(now));
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8], at: Moment) -> Option<&[u8]> {
        version_at(self.keys.get(key)?, at)?.at(self.time_at(at))
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
        let time_ms = self.time_at(at);
        Box::new(self.keys.range::<[u8], _>(range).filter_map(move |entry| entry_at(entry, at, time_ms)))
    }

    fn descending(&self, range: (Bound<&[u8]>, Bound<&[u8]>), at: Moment) -> Entries<'_> {
        let time_ms = self.time_at(at);
        Box::new(self.keys.range::<[u8], _>(range).rev().filter_map(move |entry| entry_at(entry, at, time_ms)))
    }

    /// The model as it is, without its past.
    pub(crate) fn present(&self) -> Self {
        self.cut(|_| self.now)
    }

    /// The model reduced, for each key, to the writes up to that key's own moment. It has no time yet: a process that opens the
    /// database begins at its clock, even if that is before the time of the last process. Then what had expired is there.
    pub(crate) fn cut(&self, moment_of: impl Fn(&[u8]) -> Moment) -> Self {
        let left = self.keys.iter().filter_map(|(key, values)| {
            let version = version_at(values, moment_of(key)).filter(|version| version.value.is_some())?;
            Some((key.clone(), vec![Version { since: 0, ..version.clone() }]))
        });
        Self { keys: left.collect(), ..Self::default() }
    }
}

/// Keys with values, in an order.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>;

fn version_at(values: &Values, at: Moment) -> Option<&Version> {
    values.iter().rev().find(|version| version.since <= at)
}

fn entry_at<'a>((key, values): (&'a Vec<u8>, &'a Values), at: Moment, time_ms: u64) -> Option<(&'a [u8], &'a [u8])> {
    Some((key, version_at(values, at)?.at(time_ms)?))
}

pub(crate) fn reverse(order: KeyOrder) -> KeyOrder {
    match order {
        KeyOrder::Bytewise => KeyOrder::ReverseBytewise,
        KeyOrder::ReverseBytewise => KeyOrder::Bytewise,
    }
}
