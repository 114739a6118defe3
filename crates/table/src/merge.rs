//! Merges sorted streams: records for scans, index entries for compactions.
//!
//! The merge is a **tournament** of losers: a binary tree whose leaves are the streams. Each inner node holds the
//! stream that lost there, and the overall winner is the merge's current stream. When the winner moves on, it plays
//! again along its path to the root: one comparison per round, without allocation.
//!
//! The first eight bytes of each stream's key are kept at hand, so most comparisons touch no key. If all keys are known
//! to share a prefix, the eight bytes after it are used. Streams with equal internal keys come in order of their
//! numbers; streams at their end come last.

use forebay_base::{InternalKey, KeyOrder};
use std::cmp::Ordering;

/// A stream of entries in order of their internal keys. It is at one of them or at its end.
pub trait SortedStream {
    /// The error of a failed move.
    type Error;

    /// The current entry's key; `None` at the end.
    fn key(&self) -> Option<InternalKey<'_>>;

    /// Goes to the next entry in the stream's direction.
    ///
    /// # Errors
    /// The stream's own errors; its position is then undefined.
    fn advance(&mut self) -> Result<(), Self::Error>;
}

impl<S: SortedStream + ?Sized> SortedStream for Box<S> {
    type Error = S::Error;

    fn key(&self) -> Option<InternalKey<'_>> {
        (**self).key()
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        (**self).advance()
    }
}

/// The direction of a merge and of all its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest internal key to the largest.
    Forward,
    /// From the largest internal key to the smallest.
    Backward,
}

/// The part of a key that decides most comparisons.
#[inline]
fn prefix(order: KeyOrder, direction: Direction, shared_bytes: usize, user_key: &[u8]) -> u64 {
    let prefix = order.prefix(user_key.get(shared_bytes..).unwrap_or_default());
    if direction == Direction::Forward { prefix } else { !prefix }
}

/// The stream that comes next after the merge's current one.
#[derive(Debug, Clone, Copy)]
pub struct Rival {
    prefix: u64,
    order: KeyOrder,
    direction: Direction,
    shared_bytes: usize,
}

impl Rival {
    /// Whether entries of this key certainly come before the rival's.
    #[inline]
    #[must_use]
    pub fn is_behind(&self, user_key: &[u8]) -> bool {
        prefix(self.order, self.direction, self.shared_bytes, user_key) < self.prefix
    }
}

/// A merge of streams; itself a stream.
#[derive(Debug)]
pub struct Merge<S> {
    streams: Vec<S>,
    /// For each stream, the part of its key that decides most comparisons.
    prefixes: Vec<u64>,
    /// The winner, then for each inner node, from the root down, the stream that lost there.
    losers: Vec<usize>,
    order: KeyOrder,
    direction: Direction,
    shared_bytes: usize,
    /// Number of streams that have an entry.
    left: usize,
    has_failed: bool,
}

impl<S: SortedStream> Merge<S> {
    /// Merges streams. Each must be at its first entry.
    #[must_use]
    pub fn new(streams: Vec<S>, order: KeyOrder, direction: Direction) -> Self {
        Self::with_shared_prefix(streams, order, direction, 0)
    }

    /// Merges streams of keys that all start with the same `shared_bytes` bytes.
    #[must_use]
    pub fn with_shared_prefix(streams: Vec<S>, order: KeyOrder, direction: Direction, shared_bytes: usize) -> Self {
        let (prefixes, losers) = (Vec::with_capacity(streams.len()), Vec::with_capacity(streams.len()));
        let mut merge = Self { streams, prefixes, losers, order, direction, shared_bytes, left: 0, has_failed: false };
        merge.rebuild();
        merge
    }

    /// The stream at the merge's current entry, and its number.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Option<(usize, &S)> {
        let winner = *self.losers.first()?;
        let stream = self.streams.get(winner)?;
        (!self.has_failed && stream.key().is_some()).then_some((winner, stream))
    }

    /// Moves every stream with `seek`, and continues in `direction`.
    ///
    /// # Errors
    /// The first error of `seek`; the merge is then at its end.
    pub fn reposition<E>(
        &mut self,
        direction: Direction,
        mut seek: impl FnMut(&mut S) -> Result<(), E>,
    ) -> Result<(), E> {
        self.has_failed = true;
        for stream in &mut self.streams {
            seek(stream)?;
        }
        self.has_failed = false;
        self.direction = direction;
        self.rebuild();
        Ok(())
    }

    /// Lets `work` move the stream of the merge's current entry by one or more entries, as long as they come before its
    /// rival. Without another stream that has an entry, there is no rival. `work` leaves the stream at an entry or at
    /// its end. `None` at the merge's end.
    ///
    /// # Errors
    /// The error of `work`; the merge is then at its end.
    #[inline]
    pub fn with_first<T>(
        &mut self,
        work: impl FnOnce(&mut S, Option<Rival>) -> Result<T, S::Error>,
    ) -> Result<Option<T>, S::Error> {
        if self.has_failed || self.left == 0 {
            return Ok(None);
        }
        let Some(&first) = self.losers.first() else { return Ok(None) };
        let rival = (self.left > 1).then(|| self.rival(first));
        let Some(stream) = self.streams.get_mut(first) else { return Ok(None) };
        let done = work(stream, rival).inspect_err(|_| self.has_failed = true)?;
        self.replay(first);
        Ok(Some(done))
    }

    /// The best of the streams that lost directly to the winner.
    #[inline]
    fn rival(&self, first: usize) -> Rival {
        let (mut prefix, mut node) = (u64::MAX, (first + self.streams.len()) / 2);
        while node > 0 {
            prefix = prefix.min(self.prefixes[self.losers[node]]);
            node /= 2;
        }
        Rival { prefix, order: self.order, direction: self.direction, shared_bytes: self.shared_bytes }
    }

    /// Plays the whole tournament.
    fn rebuild(&mut self) {
        let count = self.streams.len();
        self.left = self.streams.iter().filter(|stream| stream.key().is_some()).count();
        self.prefixes.clear();
        for stream in 0..count {
            let prefix = self.prefix(stream);
            self.prefixes.push(prefix);
        }
        self.losers.clear();
        self.losers.resize(count, 0);
        // The children of node `n` are `2n` and `2n + 1`; stream `i` is node `count + i`.
        let mut winners = vec![0; 2 * count];
        for (i, winner) in winners.iter_mut().skip(count).enumerate() {
            *winner = i;
        }
        for node in (1..count).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if self.is_before(right, left) { (right, left) } else { (left, right) };
            winners[node] = winner;
            self.losers[node] = loser;
        }
        if let (Some(first), Some(winner)) = (self.losers.first_mut(), winners.get(1)) {
            *first = *winner;
        }
    }

    /// For a stream at its end: after all others.
    #[inline]
    fn prefix(&self, stream: usize) -> u64 {
        let Some(key) = self.streams[stream].key() else { return u64::MAX };
        prefix(self.order, self.direction, self.shared_bytes, key.user_key)
    }

    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (left, right) = (self.prefixes[a], self.prefixes[b]);
        if left != right { left < right } else { self.is_key_before(a, b) }
    }

    fn is_key_before(&self, a: usize, b: usize) -> bool {
        let (left, right) = match (self.streams[a].key(), self.streams[b].key()) {
            (Some(left), Some(right)) => (left, right),
            (None, None) => return a < b,
            (left, _) => return left.is_some(),
        };
        let order = self.order.compare_internal(left, right);
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then(a.cmp(&b)) == Ordering::Less
    }

    /// Replays the rounds of the last winner, which has moved.
    #[inline]
    fn replay(&mut self, stream: usize) {
        self.prefixes[stream] = self.prefix(stream);
        if self.streams[stream].key().is_none() {
            self.left -= 1;
        }
        let (mut winner, mut node) = (stream, (stream + self.streams.len()) / 2);
        while node > 0 {
            let loser = self.losers[node];
            if self.is_before(loser, winner) {
                self.losers[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }
}

impl<S: SortedStream> SortedStream for Merge<S> {
    type Error = S::Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.current()?.1.key()
    }

    /// A failed merge is at its end.
    #[inline]
    fn advance(&mut self) -> Result<(), S::Error> {
        let Some((stream, _)) = self.current() else { return Ok(()) };
        if let Err(error) = self.streams[stream].advance() {
            self.has_failed = true;
            return Err(error);
        }
        self.replay(stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, SequenceNumber, Tag};
    use proptest::prelude::*;
    use std::convert::Infallible;

    struct List {
        entries: Vec<(Vec<u8>, u64)>,
        at: usize,
    }

    fn key(entry: &(Vec<u8>, u64)) -> InternalKey<'_> {
        InternalKey { user_key: &entry.0, tag: Tag::new(SequenceNumber(entry.1), Kind::Put, false) }
    }

    impl SortedStream for List {
        type Error = Infallible;
        fn key(&self) -> Option<InternalKey<'_>> {
            self.entries.get(self.at).map(key)
        }
        fn advance(&mut self) -> Result<(), Infallible> {
            self.at += 1;
            Ok(())
        }
    }

    fn shared(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    proptest! {
        #[test]
        fn merges_like_a_sort(
            lists in prop::collection::vec(
                prop::collection::vec((prop::collection::vec(97u8..100, 0..12), 1u64..50), 0..20), 0..9),
            backward: bool, reverse: bool, prefix in prop::collection::vec(97u8..100, 0..12),
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            let compare = |a: &(Vec<u8>, u64), b: &(Vec<u8>, u64)| {
                let forward = order.compare_internal(key(a), key(b));
                if backward { forward.reverse() } else { forward }
            };
            let mut all = Vec::new();
            let streams = lists.into_iter().map(|mut entries| {
                entries.iter_mut().for_each(|(key, _)| *key = [&prefix[..], &key[..]].concat());
                entries.sort_by(compare);
                all.extend(entries.iter().cloned());
                List { entries, at: 0 }
            }).collect();
            all.sort_by(compare);
            let shared_bytes = all.iter().map(|(key, _)| shared(&all[0].0, key)).min().unwrap_or(0);
            let mut merge = Merge::with_shared_prefix(streams, order, direction, shared_bytes);
            for expected in &all {
                prop_assert_eq!(merge.key(), Some(key(expected)));
                merge.advance().unwrap();
            }
            prop_assert_eq!(merge.key(), None);
            merge.reposition(direction, |stream| { stream.at = 0; Ok::<_, Infallible>(()) }).unwrap();
            prop_assert_eq!(merge.key(), all.first().map(key));
            // The same in stretches of one stream.
            let mut seen = Vec::new();
            let stretch = |list: &mut List, rival: Option<Rival>| {
                loop {
                    seen.push(list.entries[list.at].clone());
                    list.at += 1;
                    match (list.entries.get(list.at), rival) {
                        (Some(next), Some(rival)) if rival.is_behind(&next.0) => {}
                        (Some(_), None) => {}
                        _ => return Ok(()),
                    }
                }
            };
            let mut stretch = stretch;
            while merge.with_first(&mut stretch).unwrap().is_some() {}
            prop_assert_eq!(seen, all);
        }
    }
}
