//! What a run of commands has read and written so far.
//!
//! Reads look here first and then into the store; writes stay here until [`Writes::commit`] writes all of them as one
//! batch. Keys that will be needed can be fetched together, in few round trips ([`Writes::fetch`]).
//!
//! The batch has the range deletions first, and then the last state of each key. Writes within a range before its
//! deletion are forgotten, so the remaining writes came later.
//!
//! Most runs look keys up and never scan. So the known keys are put in order only when a scan first needs the order,
//! which is kept from then on.
//!
//! Values that were only read are forgotten when they are many bytes, and read again when needed. Written values must
//! stay, so the executor ends a run in time ([`Writes::written_bytes`]). Keys are fetched in portions, and no more once
//! much is held. The store ends a portion when it has many bytes (`docs/decisions/0091`). How many keys it is asked for
//! depends on earlier portions, because it looks up all of them before it knows where the portion ends.

use crate::keyspace::building::{Begun, NewElements};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::Range;
pub use crate::records::direction::Direction;
use crate::records::store::Records;
use bytes::Bytes;
use forebay::Error;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Values that were only read are forgotten when they take more bytes than this.
const MAX_READ_BYTES: usize = 64 << 20;
/// A single change of at least this many bytes is written without a batch.
const LONG_BYTES: usize = 1 << 20;
/// What a key costs beside its bytes and those of its value.
const KEY_BYTES: usize = 64;
/// A portion of keys that are fetched together brings no more bytes than this, unless it is one value.
pub const PORTION_BYTES: usize = 4 << 20;
/// Most keys of a portion.
const MAX_PORTION: usize = 1 << 12;
/// Keys of the first portion, when nothing is known.
pub const FIRST_PORTION: usize = 16;
/// A portion is at most this many times as long as the one before.
const GROWTH: usize = 8;
/// Steps of a lookup in the store; going to the next key of a scan is one step.
const LOOK_UP_STEPS: u64 = 4;

/// Reads and writes of a run. See the module.
#[derive(Debug)]
pub struct Writes<'s> {
    store: &'s Records,
    known: KnownKeys,
    /// The keys of `known`.
    order: OnceCell<BTreeSet<Bytes>>,
    deleted: Vec<Range>,
    /// Collections that are completed by this run, and partly written.
    begun: Vec<Begun<'s>>,
    /// How many keys the next fetched portion has.
    portion: usize,
    fetched_bytes: usize,
    /// Bytes of `known` that were only read.
    read_bytes: usize,
    /// Bytes of `known` that will be written, and of `deleted`.
    written_bytes: usize,
    /// Steps that may still be taken. It is a `Cell`, because a scan takes steps and changes nothing else.
    steps_left: Cell<u64>,
}

/// What is known about a key of the engine.
#[derive(Debug)]
struct Known {
    value: Option<Bytes>,
    is_written: bool,
}

impl Known {
    /// Returns the memory cost, with a key of this length.
    fn bytes(&self, key_bytes: usize) -> usize {
        KEY_BYTES + key_bytes + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// What is known, by key.
#[allow(clippy::disallowed_types, reason = "its order depends on its history and the seed only")]
type KnownKeys = std::collections::HashMap<Bytes, Known, Seeded>;

/// Hashes keys, one piece each, with a seed that clients do not know, because clients choose a part of the keys.
#[derive(Debug, Clone, Copy)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Seeded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_usize(&mut self, _: usize) {
        // The length of what follows: the hash depends on it anyway.
    }
}

impl<'s> Writes<'s> {
    /// Begins with nothing known. Hashes of keys use this seed.
    #[must_use]
    pub const fn new(store: &'s Records, seed: u64) -> Self {
        let known = KnownKeys::with_hasher(Seeded(seed));
        Self {
            store,
            known,
            order: OnceCell::new(),
            deleted: Vec::new(),
            begun: Vec::new(),
            portion: FIRST_PORTION,
            fetched_bytes: 0,
            read_bytes: 0,
            written_bytes: 0,
            steps_left: Cell::new(u64::MAX),
        }
    }

    /// Allows this many steps from here on. A command that takes more fails with [`Failure::LONG`].
    pub fn allow(&self, steps: u64) {
        self.steps_left.set(steps);
    }

    /// Whether steps are bounded. Without a bound, more steps are left than could be taken.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.steps_left.get() < u64::MAX / 2
    }

    /// Takes steps. A caller that knows how many will come asks with [`Writes::expect_steps`] before.
    fn take_steps(&self, steps: u64) -> Outcome {
        self.expect_steps(steps)?;
        self.steps_left.set(self.steps_left.get().saturating_sub(steps));
        Ok(())
    }

    /// Fails when this many steps may not be taken.
    ///
    /// # Errors
    /// See above; it takes back all of the run.
    pub fn expect_steps(&self, steps: u64) -> Outcome {
        if steps > self.steps_left.get() { Err(Failure::LONG) } else { Ok(()) }
    }

    /// Takes the steps of removing a range of about this many keys: a lookup for each, if the store removes them one by
    /// one.
    ///
    /// # Errors
    /// As [`Writes::expect_steps`].
    pub fn take_removal(&self, keys: u64) -> Outcome {
        let is_free = self.store.likes_single_deletions() || !self.is_bounded();
        if is_free { Ok(()) } else { self.take_steps(keys.saturating_mul(LOOK_UP_STEPS)) }
    }

    /// Sets how many keys the next portion has.
    pub const fn set_portion(&mut self, portion: usize) {
        self.portion = portion;
    }

    /// Returns how many keys the next portion has, after what was fetched so far.
    #[must_use]
    pub const fn portion(&self) -> usize {
        self.portion
    }

    /// Makes room for this many more keys.
    pub fn expect(&mut self, keys: usize) {
        self.known.reserve(keys);
    }

    fn note(&mut self, key: Bytes, known: Known) {
        if let Some(order) = self.order.get_mut() {
            order.insert(key.clone());
        }
        let key_bytes = key.len();
        *self.bytes_of(known.is_written) += known.bytes(key_bytes);
        if let Some(former) = self.known.insert(key, known) {
            *self.bytes_of(former.is_written) -= former.bytes(key_bytes);
        }
    }

    const fn bytes_of(&mut self, is_written: bool) -> &mut usize {
        if is_written { &mut self.written_bytes } else { &mut self.read_bytes }
    }

    /// Forgets values that were only read, if they are many bytes.
    fn forget_much(&mut self) {
        if self.read_bytes > MAX_READ_BYTES {
            self.known.retain(|_, known| known.is_written);
            self.order.take();
            self.read_bytes = 0;
        }
    }

    /// Returns the known keys of a range, in order.
    fn within(&self, (from, to): &Range) -> impl DoubleEndedIterator<Item = &Bytes> {
        let order = self.order.get_or_init(|| self.known.keys().cloned().collect());
        order.range(from.clone()..to.clone())
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &'s Records {
        self.store
    }

    /// Bytes of the values that came from the store.
    #[must_use]
    pub const fn fetched_bytes(&self) -> usize {
        self.fetched_bytes
    }

    /// Returns how many bytes will be written, as they are in memory: more than their records take.
    #[must_use]
    pub const fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// Reads keys together, so that later reads find them here. Once much is held, the remaining keys are left to those
    /// reads.
    ///
    /// # Errors
    /// Those of the database.
    pub fn fetch(&mut self, keys: impl IntoIterator<Item = Bytes>) -> Outcome {
        let mut keys = keys.into_iter();
        let before = self.fetched_bytes;
        let mut missing = self.missing(&mut keys);
        if !missing.is_empty() {
            self.forget_much();
        }
        while !missing.is_empty() && self.fetched_bytes.saturating_sub(before) <= MAX_READ_BYTES {
            self.fetch_portion(&mut missing)?;
            if missing.is_empty() {
                missing = self.missing(&mut keys);
            }
        }
        Ok(())
    }

    /// Returns the next portion of unknown keys, each once.
    fn missing(&self, keys: &mut impl Iterator<Item = Bytes>) -> Vec<Bytes> {
        let mut missing: Vec<Bytes> = keys.filter(|key| !self.is_known(key)).take(self.portion).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Reads the first of some keys, as many as a portion holds, and takes them out.
    fn fetch_portion(&mut self, missing: &mut Vec<Bytes>) -> Outcome {
        let before = self.fetched_bytes;
        let asked = missing.get(..self.portion).unwrap_or(&missing[..]);
        let wanted = asked.len();
        self.expect_steps(wanted as u64 * LOOK_UP_STEPS)?;
        let values = match asked {
            [key] => vec![self.store.get(key)?],
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                self.store.multi_get(&keys, PORTION_BYTES)?
            }
        };
        let count = values.len();
        self.take_steps(count as u64 * LOOK_UP_STEPS)?;
        for (key, value) in missing.drain(..count).zip(values) {
            self.learn(key, value.map(Bytes::from));
        }
        // A few short values say little about others; long values say enough.
        let bytes = self.fetched_bytes.saturating_sub(before).max(1);
        if bytes > PORTION_BYTES || count < wanted || count >= self.portion {
            let most = count.saturating_mul(GROWTH).clamp(1, MAX_PORTION);
            self.portion = (count.saturating_mul(PORTION_BYTES) / bytes).clamp(1, most);
        }
        Ok(())
    }

    fn learn(&mut self, key: Bytes, value: Option<Bytes>) {
        self.fetched_bytes += value.as_ref().map_or(0, Bytes::len);
        self.note(key, Known { value, is_written: false });
    }

    /// Whether the run has read, written or removed a key.
    pub fn is_known(&self, key: &[u8]) -> bool {
        self.known.contains_key(key) || self.is_deleted(key)
    }

    fn is_deleted(&self, key: &[u8]) -> bool {
        self.deleted.iter().any(|(from, to)| &from[..] <= key && key < &to[..])
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn get(&mut self, key: &Bytes) -> Outcome<Option<Bytes>> {
        self.peek(key).map(|value| value.cloned())
    }

    /// As [`Writes::get`], without copying the value.
    ///
    /// # Errors
    /// Those of the database.
    pub fn peek(&mut self, key: &Bytes) -> Outcome<Option<&Bytes>> {
        if !self.known.contains_key(key) {
            if self.is_deleted(key) {
                return Ok(None);
            }
            self.take_steps(LOOK_UP_STEPS)?;
            self.forget_much();
            let value = self.store.get(key)?.map(Bytes::from);
            self.learn(key.clone(), value);
        }
        Ok(self.known.get(key).and_then(|known| known.value.as_ref()))
    }

    /// Passes the values of keys to `visit`, in order, without keeping them, to read much. A portion of them is held at a
    /// time.
    ///
    /// # Errors
    /// Those of the database and of `visit`.
    pub fn read_many(&self, keys: &[Bytes], mut visit: impl FnMut(Option<Bytes>) -> Outcome) -> Outcome {
        let missing: Vec<&[u8]> = keys.iter().filter(|key| !self.is_known(key)).map(|key| &key[..]).collect();
        self.take_steps(missing.len() as u64 * LOOK_UP_STEPS)?;
        let (mut left, mut portion) = (&missing[..], usize::MAX);
        let mut found = Vec::<Option<Vec<u8>>>::new().into_iter();
        for key in keys {
            let value = match self.known.get(key) {
                Some(known) => known.value.clone(),
                None if self.is_deleted(key) => None,
                None => {
                    if found.as_slice().is_empty() {
                        let asked = left.get(..portion).unwrap_or(left);
                        let values = self.store.multi_get(asked, PORTION_BYTES)?;
                        left = left.get(values.len()..).unwrap_or_default();
                        portion = values.len().saturating_mul(GROWTH);
                        found = values.into_iter();
                    }
                    found.next().flatten().map(Bytes::from)
                }
            };
            visit(value)?;
        }
        Ok(())
    }

    /// Sets a key.
    pub fn put(&mut self, key: Bytes, value: impl Into<Bytes>) {
        self.note(key, Known { value: Some(value.into()), is_written: true });
    }

    /// Adds the elements of a collection that this run completes.
    pub fn adopt(&mut self, elements: NewElements<'s>) {
        let (begun, rest) = elements.into_parts();
        self.begun.push(begun);
        rest.into_iter().for_each(|(key, value)| self.put(key, value));
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Bytes) {
        self.note(key, Known { value: None, is_written: true });
    }

    /// Removes all keys of a range.
    pub fn delete_range(&mut self, range: Range) {
        let (from, to) = &range;
        if from >= to {
            return;
        }
        let within: Vec<Bytes> = self.within(&range).cloned().collect();
        for key in within {
            if let Some(former) = self.known.remove(&key) {
                *self.bytes_of(former.is_written) -= former.bytes(key.len());
            }
            self.order.get_mut().into_iter().for_each(|order| _ = order.remove(&key));
        }
        self.written_bytes += KEY_BYTES + range.0.len() + range.1.len();
        self.deleted.push(range);
    }

    /// Passes the keys and values of a range to `visit`, in order, until it returns false.
    ///
    /// # Errors
    /// Those of the database and of `visit`.
    pub fn scan(
        &self,
        range: &Range,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> Outcome<bool>,
    ) -> Outcome {
        let (from, to) = range;
        if from >= to {
            return Ok(());
        }
        let mut stored = self.store.scan(from, to, direction)?;
        let written = self.within(range).filter_map(|key| Some((key, self.known.get(key)?)));
        let written = written.filter(|(_, known)| known.is_written);
        let mut written: Box<dyn Iterator<Item = (&Bytes, &Known)>> = match direction {
            Direction::Forward => Box::new(written),
            Direction::Backward => Box::new(written.rev()),
        };
        let mut next = written.next();
        loop {
            self.take_steps(1)?;
            let order = match (next, stored.valid()) {
                (None, false) => return Ok(()),
                (Some(_), false) => std::cmp::Ordering::Less,
                (None, true) => std::cmp::Ordering::Greater,
                (Some((key, _)), true) => match direction {
                    Direction::Forward => key[..].cmp(stored.key()),
                    Direction::Backward => stored.key().cmp(&key[..]),
                },
            };
            let goes_on = match (order, next) {
                (std::cmp::Ordering::Less | std::cmp::Ordering::Equal, Some((key, known))) => {
                    if order.is_eq() {
                        stored.step()?;
                    }
                    next = written.next();
                    match &known.value {
                        Some(value) => visit(key, value)?,
                        None => true,
                    }
                }
                _ => {
                    let goes_on = self.is_deleted(stored.key()) || visit(stored.key(), stored.value())?;
                    if goes_on {
                        stored.step()?;
                    }
                    goes_on
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.deleted.is_empty() && self.known.values().all(|known| !known.is_written)
    }

    /// Writes everything as one batch. Returns why the batch is not durable, if it is not: everybody sees the batch,
    /// and it may survive.
    ///
    /// # Errors
    /// Those of the database. Nothing was written then.
    pub fn commit(&mut self) -> Outcome<Option<Failure>> {
        if let Some((key, value)) = self.long_put() {
            let written = self.store.put(key, value);
            self.read_bytes += std::mem::take(&mut self.written_bytes);
            self.known.values_mut().for_each(|known| known.is_written = false);
            return doubt(written);
        }
        let mut batch = self.store.batch();
        self.read_bytes += std::mem::take(&mut self.written_bytes);
        for (from, to) in self.deleted.drain(..) {
            batch.delete_range(&from, &to);
        }
        for (key, known) in &mut self.known {
            if std::mem::take(&mut known.is_written) {
                match &known.value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
        }
        self.begun.iter().for_each(|begun| begun.add_to(&mut batch));
        if batch.is_empty() {
            return Ok(None);
        }
        let doubt = doubt(self.store.write(&batch))?;
        self.begun.drain(..).for_each(|mut begun| begun.end());
        Ok(doubt)
    }

    /// Returns the only change, if there is one and it sets a key to a long value: a batch would copy the value.
    fn long_put(&self) -> Option<(&Bytes, &Bytes)> {
        if self.written_bytes < LONG_BYTES || !self.deleted.is_empty() || !self.begun.is_empty() {
            return None;
        }
        let mut written = self.known.iter().filter(|(_, known)| known.is_written);
        let (key, known) = written.next()?;
        known.value.as_ref().filter(|_| written.next().is_none()).map(|value| (key, value))
    }
}

/// Why a write is not durable, if it is not.
fn doubt(written: Result<(), Error>) -> Outcome<Option<Failure>> {
    match written {
        Ok(()) => Ok(None),
        Err(error) if error.is_published() => Ok(Some(Failure::of_durability(&error))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::{on_each_engine, on_lsm};
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
        Get(u8),
        Fetch(Vec<u8>),
        Commit,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0u8..20;
        prop_oneof![
            (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            key().prop_map(Step::Delete),
            (key(), key()).prop_map(|(from, to)| Step::DeleteRange(from, to)),
            key().prop_map(Step::Get),
            prop::collection::vec(key(), 0..5).prop_map(Step::Fetch),
            Just(Step::Commit),
        ]
    }

    fn bytes(byte: u8) -> Bytes {
        Bytes::copy_from_slice(&[byte])
    }

    /// Checks the counts against what is held.
    fn check_counts(writes: &Writes<'_>) {
        let sum = |is_written| {
            let of_kind = writes.known.iter().filter(|(_, known)| known.is_written == is_written);
            of_kind.map(|(key, known)| known.bytes(key.len())).sum::<usize>()
        };
        let ranges: usize = writes.deleted.iter().map(|(from, to)| KEY_BYTES + from.len() + to.len()).sum();
        assert_eq!(writes.written_bytes, sum(true) + ranges);
        assert!(writes.read_bytes >= sum(false));
    }

    #[test]
    fn what_was_only_read_is_forgotten_when_it_is_much() {
        let store = on_lsm(256 << 20);
        let value = vec![7; 4 << 20];
        for key in 0..20 {
            store.put(&[key], &value).unwrap();
        }
        let mut writes = Writes::new(&store, 7);
        writes.put(bytes(0), bytes(1));
        for key in (0..20).chain(0..20) {
            let length = if key == 0 { 1 } else { value.len() };
            assert_eq!(writes.get(&bytes(key)).unwrap().unwrap().len(), length);
            assert!(writes.read_bytes <= MAX_READ_BYTES + value.len() + 100);
            check_counts(&writes);
        }
    }

    #[test]
    fn a_long_value_alone_needs_no_batch() {
        for store in &on_each_engine(256 << 20) {
            let long = Bytes::from(vec![7; LONG_BYTES]);
            let mut writes = Writes::new(store, 7);
            writes.get(&bytes(1)).unwrap();
            writes.put(bytes(0), long.clone());
            assert_eq!(writes.long_put(), Some((&bytes(0), &long)));
            assert_eq!(writes.commit().unwrap(), None);
            assert_eq!(store.get(&[0]).unwrap().as_deref(), Some(&long[..]));
            check_counts(&writes);
            assert!(writes.is_clean() && writes.long_put().is_none());
            // Other changes are written with it.
            let with: [fn(&mut Writes<'_>); 3] = [
                |writes| writes.put(bytes(2), bytes(2)),
                |writes| writes.delete(bytes(2)),
                |writes| writes.delete_range((bytes(2), bytes(3))),
            ];
            for change in with {
                let mut writes = Writes::new(store, 7);
                writes.put(bytes(0), long.clone());
                change(&mut writes);
                assert_eq!(writes.long_put(), None);
            }
        }
    }

    #[test]
    fn what_is_fetched_together_is_bounded() {
        let store = on_lsm(256 << 20);
        let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
        let value = vec![7; 1 << 20];
        (0..150).for_each(|number| store.put(&key(number), &value).unwrap());
        let mut writes = Writes::new(&store, 7);
        writes.put(key(0), bytes(1));
        writes.fetch((0..150).map(key)).unwrap();
        assert!(writes.fetched_bytes() > MAX_READ_BYTES);
        assert!(writes.read_bytes < MAX_READ_BYTES + 2 * PORTION_BYTES && writes.portion() == 4);
        check_counts(&writes);
        // Keys that were not fetched are found all the same, and what is held stays bounded.
        for number in 1..150 {
            assert_eq!(writes.peek(&key(number)).unwrap().unwrap().len(), value.len());
            assert!(writes.read_bytes < MAX_READ_BYTES + 2 * PORTION_BYTES);
        }
        // Short values come in few portions.
        let mut writes = Writes::new(&store, 7);
        writes.fetch((1000..2000).map(key)).unwrap();
        assert_eq!((writes.known.len(), writes.portion()), (1000, 16 * GROWTH * GROWTH));
    }

    /// Whatever number of keys it has.
    #[test]
    fn a_portion_ends_when_it_has_many_bytes() {
        for store in &on_each_engine(256 << 20) {
            let keys: Vec<Bytes> = (0..20).map(bytes).collect();
            let value = vec![7; 1 << 20];
            keys.iter().for_each(|key| store.put(key, &value).unwrap());
            let mut writes = Writes::new(store, 7);
            let mut missing = keys.clone();
            writes.set_portion(100);
            writes.fetch_portion(&mut missing).unwrap();
            assert!((3..=4).contains(&writes.known.len()) && writes.fetched_bytes() <= PORTION_BYTES);
            assert_eq!((missing.len() + writes.known.len(), writes.portion()), (20, 4));
            check_counts(&writes);
            writes.fetch(keys.iter().cloned()).unwrap();
            assert_eq!(writes.known.len(), 20);
            // Values that were written, and removed keys, are not read.
            let mut writes = Writes::new(store, 7);
            writes.put(bytes(3), bytes(1));
            writes.delete_range((bytes(5), bytes(8)));
            let mut found = Vec::new();
            let visit = |value: Option<Bytes>| {
                found.push(value.map_or(0, |value| value.len()));
                Ok(())
            };
            writes.read_many(&keys, visit).unwrap();
            let expected = (0..20).map(|key| match key {
                3 => 1,
                5..8 => 0,
                _ => value.len(),
            });
            assert!(found.into_iter().eq(expected));
        }
    }

    /// One short value says little about others, also where a long one has ended the portion.
    #[test]
    fn a_portion_is_at_most_eight_times_as_long_as_what_came() {
        let store = on_lsm(256 << 20);
        store.put(&bytes(0), b"short").unwrap();
        store.put(&bytes(1), &vec![7; PORTION_BYTES]).unwrap();
        let mut writes = Writes::new(&store, 7);
        writes.set_portion(16);
        writes.fetch_portion(&mut (0..16).map(bytes).collect()).unwrap();
        assert_eq!((writes.known.len(), writes.portion()), (1, GROWTH));
    }

    #[test]
    fn what_is_not_visited_is_not_read() {
        let store = on_lsm(256 << 20);
        let keys: Vec<Bytes> = (0..40).map(bytes).collect();
        let value = vec![7; 1 << 20];
        keys.iter().for_each(|key| store.put(key, &value).unwrap());
        let database = store.lsm().unwrap();
        database.flush().unwrap();
        let before = database.statistics().foreground.bytes_read;
        let (writes, mut left) = (Writes::new(&store, 7), 5);
        let visit = |_| {
            left -= 1;
            if left == 0 { Err(Failure::SYNTAX) } else { Ok(()) }
        };
        assert_eq!(writes.read_many(&keys, visit).unwrap_err(), Failure::SYNTAX);
        let took = database.statistics().foreground.bytes_read - before;
        assert!(took < 10 << 20, "{took} bytes");
    }

    fn check_steps(store: &Records, steps: Vec<Step>) {
        let mut model = std::collections::BTreeMap::new();
        let mut writes = Writes::new(store, 7);
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    model.insert(key, value);
                    writes.put(bytes(key), bytes(value));
                }
                Step::Delete(key) => {
                    model.remove(&key);
                    writes.delete(bytes(key));
                }
                Step::DeleteRange(from, to) => {
                    model.retain(|key, _| !(from..to).contains(key));
                    writes.delete_range((bytes(from), bytes(to)));
                }
                Step::Get(key) => {
                    assert_eq!(writes.get(&bytes(key)).unwrap(), model.get(&key).map(|&value| bytes(value)));
                }
                Step::Fetch(keys) => writes.fetch(keys.into_iter().map(bytes)).unwrap(),
                Step::Commit => assert_eq!(writes.commit().unwrap(), None),
            }
            check_counts(&writes);
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = Vec::new();
                writes
                    .scan(&(bytes(3), bytes(15)), direction, |key, value| {
                        found.push((key[0], value[0]));
                        Ok(true)
                    })
                    .unwrap();
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found, model.range(3..15).map(|(&k, &v)| (k, v)).collect::<Vec<_>>());
            }
        }
        writes.commit().unwrap();
        for key in 0..20 {
            assert_eq!(store.get(&[key]).unwrap(), model.get(&key).map(|&value| vec![value]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn reads_see_what_was_written_before_and_after_a_commit(steps in prop::collection::vec(step(), 1..60)) {
            on_each_engine(64 << 20).iter().for_each(|store| check_steps(store, steps.clone()));
        }
    }
}
