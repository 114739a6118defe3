//! Scans.
//!
//! A scan reads whole leaves. One batch has as many leaves as the scan is likely to need. The next batch starts where
//! the last usable leaf ended. That is safe for two reasons. The bounds of neighbouring leaves come from one moment of
//! their parent, so one leaf ends where the next begins. And a leaf that is not frozen still has its range. A leaf that
//! was replaced meanwhile is found again through its parent, and only its range is read again. The leaf found may be
//! the union with a neighbour: keys that were passed already are left out.
//!
//! A scan is not a snapshot: each key's value is one that it had during the scan.

use crate::key::{Separator, prefix_of};
use crate::layout::{Bucket, block_length, decode_block};
use crate::planted::{Bug, planted};
use crate::word::{Address, Child, Value, ValueWord};
use crate::{Error, TreeClient};
use std::ops::Bound;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// What a scan covers.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// Lower bound.
    pub from: Bound<&'a [u8]>,
    /// Upper bound.
    pub to: Bound<&'a [u8]>,
    /// Whether to go from the upper bound down.
    pub backward: bool,
    /// Most entries.
    pub limit: usize,
}

impl<'a> Range<'a> {
    /// At most `limit` entries from a key on.
    #[must_use]
    pub fn starting_at(key: &'a [u8], limit: usize) -> Self {
        Self { from: Bound::Included(key), limit, ..Self::all() }
    }

    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded, backward: false, limit: usize::MAX }
    }

    fn contains(&self, key: &[u8]) -> bool {
        let above = match self.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let below = match self.to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        above && below
    }
}

/// Most leaves read in one batch.
const BATCH: usize = 64;
/// Bytes of values, except for one value, that are read together.
const RUN_BYTES: usize = 4 << 20;

/// Where a scan continues.
#[derive(Debug, Clone)]
enum Position {
    /// At the leaf that covers this key.
    At(Vec<u8>),
    /// Backwards, at the leaf that ends here; without a bound, at the last one.
    Below(Option<Vec<u8>>),
}

impl Position {
    /// Whether a key has not been passed.
    fn is_ahead(&self, backward: bool, key: &[u8]) -> bool {
        match self {
            Self::At(at) => backward || key >= &at[..],
            Self::Below(bound) => bound.as_ref().is_none_or(|bound| key < &bound[..]),
        }
    }
}

/// A leaf of a batch: its range, and what was read of it.
struct ReadLeaf {
    leaf: Child,
    low: Separator,
    high: Option<Separator>,
    bytes: Vec<u8>,
}

/// A key that was found, before its value is read.
struct Hit {
    key: Vec<u8>,
    value: ValueWord,
}

impl TreeClient {
    /// Returns the entries of a range, in order; backwards if the range says so.
    ///
    /// # Errors
    /// [`Error`].
    pub fn scan(&mut self, range: Range<'_>) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        self.scan_with(range, |key, value| entries.push((key.to_vec(), value.to_vec())))?;
        Ok(entries)
    }

    /// Calls `visit` with each entry of a range, in order. Returns how many there were.
    ///
    /// # Errors
    /// [`Error`].
    pub fn scan_with(&mut self, range: Range<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<usize, Error> {
        self.scan_while(range, |key, value| {
            visit(key, value);
            true
        })
    }

    /// Calls `visit` with each entry of a range, in order, until it returns false. Returns how many entries it got. A few
    /// long values are read at a time.
    ///
    /// # Errors
    /// [`Error`].
    pub fn scan_while(
        &mut self,
        range: Range<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<usize, Error> {
        let mut position = match (range.backward, range.from, range.to) {
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Some(Position::At(key.to_vec())),
            (false, Bound::Unbounded, _) => Some(Position::At(Vec::new())),
            (true, _, Bound::Included(key) | Bound::Excluded(key)) => Some(Position::At(key.to_vec())),
            (true, _, Bound::Unbounded) => Some(Position::Below(None)),
        };
        let (mut count, mut attempt) = (0, 0);
        while let Some(at) = position.take().filter(|_| count < range.limit) {
            // Each batch is a separate read, so a long scan does not keep memory from being freed.
            position = self.reading(|client| client.scan_batch(&range, at, (&mut count, &mut attempt), &mut visit))?;
        }
        Ok(count)
    }

    /// Counts all keys.
    ///
    /// # Errors
    /// [`Error`].
    pub fn count(&mut self) -> Result<u64, Error> {
        Ok(self.scan_with(Range::all(), |_, _| {})? as u64)
    }

    /// Scans a batch of leaves. Returns where to continue. Counts the attempts that have come no further.
    fn scan_batch(
        &mut self,
        range: &Range<'_>,
        at: Position,
        (count, attempt): (&mut usize, &mut u32),
        visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Position>, Error> {
        let wanted = range.limit - *count;
        let leaves = self.read_leaves(range, &at, wanted)?;
        let mut next = None;
        for ReadLeaf { leaf, low, high, mut bytes } in leaves {
            let is_whole = !leaf.is_merging() && self.is_leaf(&bytes, leaf) && self.is_thawed(&bytes, leaf);
            let mut is_frozen = false;
            if !is_whole && !planted(Bug::ScanStaleLeaf) {
                let key = low.to_vec();
                let before = match self.settle(&key, leaf, false) {
                    Err(error) if error.is_full() => Some(self.leaf_before_freezing(&key, leaf)?.ok_or(error)?),
                    settled => settled.map(|()| None)?,
                };
                match before {
                    Some(before) if before.high == high => (bytes, is_frozen) = (before.bytes, true),
                    _ if next.is_none() => {
                        Self::again(attempt)?;
                        return Ok(Some(at));
                    }
                    _ => {
                        // Other leaves may cover the rest of the range now.
                        return Ok(Some(match range.backward {
                            true => Position::Below(high.map(|high| high.to_vec())),
                            false => Position::At(key),
                        }));
                    }
                }
            }
            let mut hits = self.hits(range, leaf, &bytes, is_frozen)?;
            // The leaf may be a union with a neighbour that was scanned already, or with one that comes
            // next and is not known to be part of it yet.
            let is_its = |key: &[u8]| {
                let prefix = prefix_of(key);
                low.compare(prefix, key).is_le() && high.as_ref().is_none_or(|high| high.compare(prefix, key).is_gt())
            };
            hits.retain(|hit| at.is_ahead(range.backward, &hit.key) && is_its(&hit.key));
            if range.backward {
                hits.reverse();
            }
            hits.truncate(range.limit - *count);
            if !self.deliver(hits, count, visit)? || *count >= range.limit {
                return Ok(None);
            }
            *attempt = 0;
            next = Some(if range.backward {
                let is_last = low.is_lowest() || !range.contains_below(&low);
                if is_last { None } else { Some(Position::Below(Some(low.to_vec()))) }
            } else {
                high.filter(|high| range.contains_above(high)).map(|high| Position::At(high.to_vec()))
            });
        }
        Ok(next.flatten())
    }

    /// Reads the leaves from a position on that hold `wanted` keys, as far as their parent knows them.
    fn read_leaves(&mut self, range: &Range<'_>, at: &Position, wanted: usize) -> Result<Vec<ReadLeaf>, Error> {
        let geometry = self.tree().memory.cut.geometry;
        let missing = || Error::corrupt("a tree without a root");
        let (parent, first) = match at {
            Position::At(key) => {
                let parent = self.inner(key, 1, false)?.ok_or_else(missing)?;
                let first = parent.route(prefix_of(key), key);
                (parent, first)
            }
            Position::Below(bound) => self.last_below(bound.as_deref())?,
        };
        let mut leaves = Vec::new();
        let mut likely = 0;
        let mut index = Some(first);
        while let Some(place) = index.filter(|_| leaves.len() < BATCH) {
            let Some(leaf) = parent.child(place) else { break };
            // Half of the first leaf is likely to be out of the range.
            let share = leaf.buckets() * geometry.slots * geometry.fill_percent / 100;
            likely += if leaves.is_empty() { share / 2 } else { share };
            leaves.push((leaf, parent.separator(place), parent.upper(place)));
            let is_beyond = match range.backward {
                true => leaves.last().is_some_and(|(_, low, _)| !range.contains_below(low)),
                false => {
                    let high = leaves.last().and_then(|(.., high)| high.as_ref());
                    high.is_some_and(|high| !range.contains_above(high))
                }
            };
            if likely >= wanted || is_beyond {
                break;
            }
            index = if range.backward { place.checked_sub(1) } else { Some(place + 1) };
        }
        let pieces: Vec<(Address, usize)> =
            leaves.iter().map(|(leaf, ..)| (leaf.address(), geometry.leaf_bytes(leaf.buckets()))).collect();
        let read = self.read_all(&pieces)?;
        Ok(leaves.into_iter().zip(read).map(|((leaf, low, high), bytes)| ReadLeaf { leaf, low, high, bytes }).collect())
    }

    /// The parent of the leaf whose range ends at a bound, and the leaf's index there.
    fn last_below(
        &mut self,
        bound: Option<&[u8]>,
    ) -> Result<(std::sync::Arc<crate::cached_node::CachedNode>, usize), Error> {
        let missing = || Error::corrupt("a tree without a root");
        // Down from the root, always before the first separator that is not below the bound.
        let mut attempt = 0;
        'root: loop {
            let (_, top) = self.root(attempt > 0)?;
            let mut key = Vec::new();
            for level in (1..=top).rev() {
                let Some(node) = self.inner(&key, level, attempt > 0)? else {
                    Self::again(&mut attempt)?;
                    continue 'root;
                };
                // A node that was split since its parent was cached ends too early.
                let reaches = node
                    .high
                    .as_ref()
                    .is_none_or(|high| bound.is_some_and(|bound| high.compare(prefix_of(bound), bound).is_ge()));
                if !reaches {
                    Self::again(&mut attempt)?;
                    continue 'root;
                }
                let index = match bound {
                    None => node.len(),
                    Some(bound) => (0..node.len())
                        .position(|index| node.separator(index).compare(prefix_of(bound), bound).is_ge())
                        .unwrap_or(node.len()),
                };
                let Some(index) = index.checked_sub(1) else {
                    Self::again(&mut attempt)?;
                    continue 'root;
                };
                if level == 1 {
                    return Ok((node, index));
                }
                key = node.separator(index).to_vec();
            }
            return Err(missing());
        }
    }

    /// Whether no word of a leaf is frozen.
    pub(crate) fn is_thawed(&self, bytes: &[u8], leaf: Child) -> bool {
        let geometry = self.tree().memory.cut.geometry;
        (0..leaf.buckets())
            .filter_map(|bucket| bytes.get(geometry.bucket_offset(bucket)..)?.get(..geometry.bucket_bytes()))
            .flat_map(|bucket| Bucket::new(bucket).slots())
            .all(|(_, value)| !value.is_frozen())
    }

    /// The live keys of a leaf that are in a range, in order. If the leaf `is_frozen`, it may have been split, and records
    /// of its right half freed since.
    fn hits(&mut self, range: &Range<'_>, leaf: Child, bytes: &[u8], is_frozen: bool) -> Result<Vec<Hit>, Error> {
        let mut hits = Vec::new();
        let mut records = Vec::new();
        let live: Vec<(u64, ValueWord)> = self.live_in_place(bytes, leaf).collect();
        for (word, value) in live {
            match value.value() {
                Some(Value::Record(at)) => records.push((word, at)),
                _ => hits.push(Hit { key: word.to_be_bytes().to_vec(), value }),
            }
        }
        let keys = match is_frozen {
            true => self.read_keys_left(&records)?,
            false => self.read_keys(&records)?.into_iter().map(Some).collect(),
        };
        let places = records.into_iter().map(|(_, at)| ValueWord::record(at));
        hits.extend(keys.into_iter().zip(places).filter_map(|(key, value)| Some(Hit { key: key?, value })));
        hits.retain(|hit| range.contains(&hit.key));
        hits.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        // A long key that was deleted and inserted again while the leaf was read may be in two slots.
        hits.dedup_by(|a, b| a.key == b.key);
        Ok(hits)
    }

    /// The live slots of a leaf whose keys belong to their buckets: other slots have a key that is being
    /// written.
    pub(crate) fn live_in_place<'a>(
        &self,
        bytes: &'a [u8],
        leaf: Child,
    ) -> impl Iterator<Item = (u64, ValueWord)> + use<'a> {
        let geometry = self.tree().memory.cut.geometry;
        let bucket = move |bucket: usize| bytes.get(geometry.bucket_offset(bucket)..)?.get(..geometry.bucket_bytes());
        (0..leaf.buckets())
            .filter_map(move |index| Some((index, bucket(index)?)))
            .flat_map(|(index, bytes)| Bucket::new(bytes).slots().map(move |slot| (index, slot)))
            .filter(move |(index, (word, value))| value.is_live() && leaf.bucket_of(*word) == *index)
            .map(|(_, slot)| slot)
    }

    /// Reads the values that are not in their words, long ones a few at a time, and calls `visit` with all, until it
    /// returns false. Counts the calls. Returns what the last one returned.
    fn deliver(
        &mut self,
        hits: Vec<Hit>,
        count: &mut usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, Error> {
        let at = |hit: &Hit| match hit.value.value() {
            Some(Value::Block(at) | Value::Record(at)) => Some(at),
            _ => None,
        };
        let blocks: Vec<Address> = hits.iter().filter_map(at).collect();
        let mut read = self.read_first(&blocks)?;
        let (mut next, mut whole) = (0, 0);
        let mut value = Vec::new();
        for hit in hits {
            value.clear();
            let goes_on = if self.decode_small(hit.value, &mut value) {
                visit(&hit.key, &value)
            } else {
                if next == whole {
                    whole = self.read_run(&mut read, &blocks, next)?;
                }
                let block = read.get_mut(next).map(std::mem::take).unwrap_or_default();
                next += 1;
                visit(&hit.key, decode_block(&block)?.1)
            };
            *count += 1;
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the rest of some blocks whose first bytes were read, from one on. Returns where the next ones begin.
    fn read_run(&mut self, read: &mut [Vec<u8>], blocks: &[Address], from: usize) -> Result<usize, Error> {
        let (mut to, mut bytes) = (from, 0);
        while let Some(first) = read.get(to).filter(|_| bytes < RUN_BYTES) {
            bytes += block_length(first)?;
            to += 1;
        }
        if let (Some(read), Some(blocks)) = (read.get_mut(from..to), blocks.get(from..to)) {
            self.read_rest(read, blocks, block_length)?;
        }
        Ok(to)
    }
}

impl Range<'_> {
    /// Whether a leaf that begins at this separator may have keys of the range.
    fn contains_above(&self, low: &Separator) -> bool {
        match self.to {
            Bound::Included(to) => low.compare(prefix_of(to), to).is_le(),
            Bound::Excluded(to) => low.compare(prefix_of(to), to).is_lt(),
            Bound::Unbounded => true,
        }
    }

    /// Whether a leaf that ends at this separator may have keys of the range.
    fn contains_below(&self, high: &Separator) -> bool {
        match self.from {
            Bound::Included(from) | Bound::Excluded(from) => high.compare(prefix_of(from), from).is_gt(),
            Bound::Unbounded => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::tests::tree;

    #[test]
    fn a_scan_counts_its_attempts_at_a_leaf_that_stays_gone() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        client.put(b"the key!", b"value").unwrap();
        let leaf = client.leaf(&Key::new(b"the key!")).unwrap();
        let header = tree.memory.resolve(leaf.address(), 0).unwrap();
        client.write_words(0, header, &[0]).unwrap();
        let mut count = 0;
        let mut scan = |attempt: &mut u32| {
            let visit = &mut |_: &[u8], _: &[u8]| true;
            client.scan_batch(&Range::all(), Position::At(Vec::new()), (&mut count, attempt), visit)
        };
        let mut attempt = 0;
        for number in 1..=3 {
            assert!(matches!(scan(&mut attempt), Ok(Some(Position::At(_)))));
            assert_eq!(attempt, number);
        }
        // More than any call makes.
        attempt = 1_000_000;
        assert!(matches!(scan(&mut attempt), Err(Error::Contended(_))));
    }
}
