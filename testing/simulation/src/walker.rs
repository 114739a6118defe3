//! An iterator that is held over many calls and moved back and forth. It shows its moment, whatever
//! is written, flushed and compacted meanwhile.

use crate::model::{Entries, Model, Moment, reverse};
use forebay_base::KeyOrder;
use forebay_engine::{DbIterator, Error};
use forebay_env::Random;

/// See the module.
pub(crate) struct Walker {
    iterator: DbIterator,
    moment: Moment,
    order: KeyOrder,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    /// The key that the iterator stands on.
    at: Option<Vec<u8>>,
}

impl Walker {
    /// An iterator over keys from a lower bound to an upper bound that begin with a prefix.
    pub(crate) fn new(
        iterator: DbIterator,
        moment: Moment,
        order: KeyOrder,
        [lower, upper, prefix]: [Option<Vec<u8>>; 3],
    ) -> Self {
        Self { iterator, moment, order, lower, upper, prefix, at: None }
    }

    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    /// Moves in any way, and checks the new position.
    pub(crate) fn step(&mut self, random: &mut Random, target: &[u8], model: &Model) -> Result<(), Error> {
        let (order, back) = (self.order, reverse(self.order));
        let way = random.below(if self.at.is_some() { 24 } else { 4 });
        let (going, entries) = match (way, &self.at) {
            (0, _) => {
                self.iterator.seek_to_first()?;
                (order, self.first(model))
            }
            (1, _) => {
                self.iterator.seek_to_last()?;
                (back, self.last(model))
            }
            (3, _) => {
                self.iterator.seek_for_prev(target)?;
                (back, model.back_from(target, order, self.moment))
            }
            (2, _) | (_, None) => {
                self.iterator.seek(target)?;
                (order, model.from(target, order, self.moment))
            }
            (4..16, Some(at)) => {
                self.iterator.next()?;
                (order, model.after(at, order, self.moment))
            }
            (_, Some(at)) => {
                self.iterator.prev()?;
                (back, model.after(at, back, self.moment))
            }
        };
        let expected = entries.take_while(|(key, _)| !self.is_past(key, going)).find(|(key, _)| self.shows(key));
        let found = self.iterator.valid().then(|| (self.iterator.key(), self.iterator.value()));
        assert_eq!(found, expected, "an iterator that went from {:?} by way {way}, target {target:?}", self.at);
        self.at = expected.map(|(key, _)| key.to_vec());
        Ok(())
    }

    /// Returns the entries that the iterator may show, from the first on.
    fn first<'m>(&self, model: &'m Model) -> Entries<'m> {
        match &self.lower {
            Some(lower) => model.from(lower, self.order, self.moment),
            None => model.entries(self.order, self.moment),
        }
    }

    /// Returns the entries that the iterator may show, backwards from the last.
    fn last<'m>(&self, model: &'m Model) -> Entries<'m> {
        match &self.upper {
            Some(upper) => model.back_from(upper, self.order, self.moment),
            None => model.entries(reverse(self.order), self.moment),
        }
    }

    /// Whether neither `key` nor any later key, in this order, is shown.
    fn is_past(&self, key: &[u8], going: KeyOrder) -> bool {
        let is_behind = |bound: &Vec<u8>| going.compare(bound, key).is_lt();
        let bound = if going == self.order { &self.upper } else { &self.lower };
        let prefix = self.prefix.as_ref();
        bound.as_ref().is_some_and(is_behind)
            || prefix.is_some_and(|prefix| !key.starts_with(prefix) && is_behind(prefix))
    }

    fn shows(&self, key: &[u8]) -> bool {
        self.lower.as_ref().is_none_or(|lower| self.order.compare(lower, key).is_le())
            && self.upper.as_ref().is_none_or(|upper| self.order.compare(key, upper).is_lt())
            && self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
    }
}
