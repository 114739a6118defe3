//! Where ordered collections begin and end.
//!
//! The engine keeps deleted records for a while, and a scan passes over them one by one. A stream that is kept short,
//! or a sorted set that is a queue, has ever more of them before its first element, and each command would pass all of
//! them. So the server remembers a range of the engine's keys for a collection: the entries of a stream that was
//! trimmed, the scores of a sorted set from which members were removed, or the pending entries of a group or a consumer
//! once some were acknowledged. See `docs/decisions/0093`.
//!
//! Invariant: the store has no element outside of the range. A caller has the collection's key locked, so nobody else
//! adds elements meanwhile. Several runs that only read may learn at once, and each is right.
//!
//! - A range gets **narrower** when the run that has learnt it is written. Until then only this run uses what it has
//!   learnt, because it does not see what it has removed.
//! - A range gets **wider** at once when a run adds an element outside of it. If the run is not written, the range is
//!   wider than it need be.
//! - Entries of a stream come behind all that were ever added, unless `XSETID` sets the latest id back, so that has the
//!   range forgotten. Any range may be forgotten at any time.
//!
//! A new collection, also a copy, has a new id, so nothing is remembered of it.

use crate::keyspace::failure::Outcome;
use crate::keyspace::layout::{Range, after};
use crate::keyspace::writes::{Direction, Writes};
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Most collections that are remembered.
const MOST: usize = 1 << 16;
/// Longer bounds are shortened, so that all of them take at most some 25 megabytes.
const MOST_BOUND_BYTES: usize = 128;

/// What has a range: a collection by the id of its life, and 0; or a group or a consumer of a stream by the same id and
/// its own number, which copies of the stream keep.
pub type Part = (u64, u64);

/// What is remembered for all runs. See the module.
#[derive(Debug, Default)]
pub struct Fronts(Mutex<BTreeMap<Part, Range>>);

impl Fronts {
    fn of(&self, part: Part) -> Option<Range> {
        lock(&self.0).get(&part).cloned()
    }

    /// Notes a collection's range. When there are too many, all others are forgotten: those that are in use are soon
    /// known again, however old they are.
    fn learn(&self, part: Part, range: Range) {
        let mut fronts = lock(&self.0);
        if fronts.len() >= MOST && !fronts.contains_key(&part) {
            fronts.clear();
        }
        fronts.insert(part, range);
    }

    fn widen(&self, part: Part, key: &[u8]) {
        if let Some(range) = lock(&self.0).get_mut(&part) {
            widen(range, key);
        }
    }

    fn forget(&self, part: Part) {
        lock(&self.0).remove(&part);
    }
}

/// What a run knows: what is remembered, and what it has learnt itself. See the module.
#[derive(Debug)]
pub struct OwnFronts<'s> {
    all: &'s Fronts,
    /// What is in here counts, and not what is remembered. It is a `RefCell`, because a scan learns and changes nothing
    /// else.
    own: RefCell<BTreeMap<Part, Range>>,
}

impl<'s> OwnFronts<'s> {
    /// Begins with nothing learnt.
    #[must_use]
    pub const fn new(all: &'s Fronts) -> Self {
        Self { all, own: RefCell::new(BTreeMap::new()) }
    }

    fn of(&self, part: Part) -> Option<Range> {
        let own = self.own.borrow().get(&part).cloned();
        own.or_else(|| self.all.of(part))
    }

    /// Returns the part of a range in which a collection may have elements.
    #[must_use]
    pub fn narrowed(&self, part: Part, range: Range) -> Range {
        match self.of(part) {
            Some(front) => (range.0.max(front.0), range.1.min(front.1)),
            None => range,
        }
    }

    /// Records that all elements of a collection are in this range.
    pub fn set(&self, part: Part, range: Range) {
        self.own.borrow_mut().insert(part, short(&range));
    }

    /// Has scans of a collection learn from now on, because the run removes an element. All elements are in the range
    /// `whole`.
    pub fn remember(&self, part: Part, whole: impl FnOnce() -> Range) {
        self.own.borrow_mut().entry(part).or_insert_with(|| self.all.of(part).unwrap_or_else(whole));
    }

    /// Records that the run adds an element.
    pub fn widen(&self, part: Part, key: &[u8]) {
        self.all.widen(part, key);
        if let Some(range) = self.own.borrow_mut().get_mut(&part) {
            widen(range, key);
        }
    }

    /// Forgets a collection, because elements may come anywhere.
    pub fn forget(&self, part: Part) {
        self.own.borrow_mut().remove(&part);
        self.all.forget(part);
    }

    /// Passes the elements of a collection in a range to `visit`, as [`Writes::scan`] does. A scan from an end of a
    /// remembered collection learns where the first element is.
    ///
    /// # Errors
    /// Those of the database and of `visit`.
    pub fn scan(
        &self,
        writes: &Writes<'_>,
        part: Part,
        range: &Range,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> Outcome<bool>,
    ) -> Outcome {
        let Some(front) = self.of(part) else { return writes.scan(range, direction, visit) };
        let (from, to) = (range.0.clone().max(front.0.clone()), range.1.clone().min(front.1.clone()));
        if from >= to {
            return Ok(());
        }
        let (range, mut first) = ((from, to), None);
        writes.scan(&range, direction, |key, value| {
            first.get_or_insert_with(|| Bytes::copy_from_slice(key));
            visit(key, value)
        })?;
        let (from, to) = range;
        let learnt = match direction {
            Direction::Forward if from == front.0 => (first.unwrap_or(to), front.1.clone()),
            Direction::Backward if to == front.1 => (front.0.clone(), first.map_or(from, |last| after(&last))),
            _ => return Ok(()),
        };
        if short(&learnt) != front {
            self.set(part, learnt);
        }
        Ok(())
    }

    /// Has all runs know what this one has learnt. Its batch is written.
    pub fn end(&self) {
        self.own.take().into_iter().for_each(|(part, range)| self.all.learn(part, range));
    }
}

/// Makes a range contain a key.
fn widen((from, to): &mut Range, key: &[u8]) {
    if key < &from[..] {
        *from = at_or_before(key);
    }
    if key >= &to[..] {
        *to = at_or_after(&after(key));
    }
}

/// Returns a range with short bounds that has all keys of this one.
fn short((from, to): &Range) -> Range {
    (at_or_before(from), at_or_after(to))
}

/// Returns a short lower bound of all keys of which this is one.
fn at_or_before(bound: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bound.get(..MOST_BOUND_BYTES).unwrap_or(bound))
}

/// Returns a short upper bound of all keys of which this is one.
fn at_or_after(bound: &[u8]) -> Bytes {
    let mut short = bound.get(..MOST_BOUND_BYTES).unwrap_or(bound).to_vec();
    if short.len() < bound.len() {
        // The first key after all that begin like this. No key of an element begins with the largest byte.
        while short.last() == Some(&u8::MAX) {
            short.pop();
        }
        if let Some(last) = short.last_mut() {
            *last += 1;
        }
    }
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::on_each_engine;

    fn key(number: u8) -> Bytes {
        Bytes::copy_from_slice(&[number])
    }

    #[test]
    fn too_many_collections_are_forgotten_and_the_oldest_is_known_again() {
        let (fronts, range) = (Fronts::default(), (key(3), key(5)));
        (0..MOST as u64).for_each(|id| fronts.learn((id, 0), range.clone()));
        assert!([0, MOST as u64 - 1].iter().all(|&id| fronts.of((id, 0)).as_ref() == Some(&range)));
        // One that is known takes no room.
        fronts.learn((0, 0), range.clone());
        assert!(fronts.of((1, 0)).is_some());
        fronts.learn((MOST as u64, 0), range.clone());
        assert!([0, MOST as u64 - 1].iter().all(|&id| fronts.of((id, 0)).is_none()));
        fronts.learn((0, 0), range);
        assert!([0, MOST as u64].iter().all(|&id| fronts.of((id, 0)).is_some()));
        fronts.forget((0, 0));
        assert_eq!(fronts.of((0, 0)), None);
    }

    /// Whether a range has short bounds, and a key in it.
    fn is_short_and_has((from, to): &Range, key: &[u8]) -> bool {
        from.len().max(to.len()) <= MOST_BOUND_BYTES && &from[..] <= key && key < &to[..]
    }

    #[test]
    fn bounds_are_short_and_leave_nothing_out() {
        let fronts = Fronts::default();
        let own = OwnFronts::new(&fronts);
        for tail in [0, 7, u8::MAX] {
            for length in [MOST_BOUND_BYTES - 1, MOST_BOUND_BYTES, MOST_BOUND_BYTES + 1, 1000] {
                let long = [&[4, 4][..], &vec![tail; length - 2]].concat();
                own.set((1, 0), (Bytes::from(long.clone()), after(&long)));
                assert!(is_short_and_has(&own.of((1, 0)).unwrap(), &long), "{tail} {length}");
                own.end();
                assert!(is_short_and_has(&fronts.of((1, 0)).unwrap(), &long), "{tail} {length}");
                for bound in [3, 5] {
                    fronts.learn((1, 0), (key(bound), key(bound)));
                    fronts.widen((1, 0), &long);
                    assert!(is_short_and_has(&fronts.of((1, 0)).unwrap(), &long), "{tail} {length} {bound}");
                }
            }
        }
    }

    /// Counts what scans pass: each takes a step for an element, and for one that the run has removed.
    #[test]
    fn what_was_removed_at_an_end_is_passed_once() {
        on_each_engine(64 << 20).iter().for_each(|store| {
            (10..110).for_each(|number| store.put(&[number], b"").unwrap());
            let (fronts, whole) = (Fronts::default(), (key(10), key(200)));
            let (own, mut writes) = (OwnFronts::new(&fronts), Writes::new(store, 7));
            let take = |own: &OwnFronts<'_>, writes: &mut Writes<'_>, direction: Direction| {
                let mut found = None;
                own.scan(writes, (1, 0), &whole, direction, |key, _| {
                    found = Some(Bytes::copy_from_slice(key));
                    Ok(false)
                })
                .unwrap();
                let found = found.unwrap();
                writes.delete(found.clone());
                own.remember((1, 0), || whole.clone());
                found[0]
            };
            for number in 10..50 {
                writes.allow(2);
                assert_eq!(take(&own, &mut writes, Direction::Forward), number);
                writes.allow(2);
                assert_eq!(take(&own, &mut writes, Direction::Backward), 119 - number);
            }
            // Others learn it when the run is written.
            assert_eq!(fronts.of((1, 0)), None);
            writes.commit().unwrap();
            own.end();
            assert_eq!(fronts.of((1, 0)), Some((key(49), after(&[70]))));
            // What comes before or after is seen, also by a run that has learnt more.
            let (own, mut writes) = (OwnFronts::new(&fronts), Writes::new(store, 7));
            assert_eq!(take(&own, &mut writes, Direction::Forward), 50);
            for number in [20, 90] {
                own.widen((1, 0), &[number]);
                writes.put(key(number), Bytes::new());
            }
            assert_eq!(fronts.of((1, 0)), Some((key(20), after(&[90]))));
            assert_eq!(take(&own, &mut writes, Direction::Forward), 20);
            assert_eq!(take(&own, &mut writes, Direction::Backward), 90);
            assert_eq!(take(&own, &mut writes, Direction::Forward), 51);
            // A run that is not written has narrowed nothing.
            assert_eq!(fronts.of((1, 0)), Some((key(20), after(&[90]))));
        });
    }

    #[test]
    fn a_range_without_elements_is_learnt_as_such() {
        on_each_engine(64 << 20).iter().for_each(|store| {
            store.put(&[50], b"").unwrap();
            let (fronts, writes) = (Fronts::default(), Writes::new(store, 7));
            let own = OwnFronts::new(&fronts);
            let scan = |from, to, direction| {
                let mut found = Vec::new();
                own.scan(&writes, (1, 0), &(key(from), key(to)), direction, |key, _| {
                    found.push(key[0]);
                    Ok(true)
                })
                .unwrap();
                found
            };
            own.remember((1, 0), || (key(10), key(90)));
            for (from, to, direction, found, learnt) in [
                (0, 30, Direction::Forward, vec![], (30, 90)),
                (0, 20, Direction::Forward, vec![], (30, 90)),
                (40, 60, Direction::Forward, vec![50], (30, 90)),
                (70, 99, Direction::Backward, vec![], (30, 70)),
                (40, 99, Direction::Forward, vec![50], (30, 70)),
                (0, 99, Direction::Forward, vec![50], (50, 70)),
            ] {
                assert_eq!(scan(from, to, direction), found);
                assert_eq!(own.of((1, 0)), Some((key(learnt.0), key(learnt.1))));
            }
            assert_eq!(scan(0, 99, Direction::Backward), [50]);
            assert_eq!(own.of((1, 0)), Some((key(50), after(&[50]))));
        });
    }
}
