//! Merging sorted streams: by scans over records, by compactions over index entries.
//!
//! A binary heap holds, for each stream that has an entry, the first eight bytes of its key and its
//! number, so most comparisons touch no key. Moving on costs one sift; nothing is allocated for an
//! entry. Streams with equal internal keys come in order of their numbers.

use forebay_base::{InternalKey, KeyOrder};
use std::cmp::Ordering;

/// A stream of entries in order of their internal keys, standing on one of them or at its end.
pub trait SortedStream {
    /// What can go wrong when it moves.
    type Error;

    /// The current entry's key; `None` at the end.
    fn key(&self) -> Option<InternalKey<'_>>;

    /// Goes to the next entry in the stream's direction.
    ///
    /// # Errors
    /// The stream's own; it then stands anywhere.
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

/// Which way a merge goes; all of its streams go the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest internal key to the largest.
    Forward,
    /// From the largest internal key to the smallest.
    Backward,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    prefix: u64,
    stream: usize,
}

/// A merge of streams; itself a stream.
#[derive(Debug)]
pub struct Merge<S> {
    streams: Vec<S>,
    heap: Vec<Node>,
    order: KeyOrder,
    direction: Direction,
}

impl<S: SortedStream> Merge<S> {
    /// Merges streams, each of which stands where it is to begin.
    #[must_use]
    pub fn new(streams: Vec<S>, order: KeyOrder, direction: Direction) -> Self {
        let heap = Vec::with_capacity(streams.len());
        let mut merge = Self { streams, heap, order, direction };
        merge.rebuild();
        merge
    }

    /// The stream that stands on the merge's current entry, and its number.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Option<(usize, &S)> {
        let top = self.heap.first()?;
        Some((top.stream, self.streams.get(top.stream)?))
    }

    /// Moves every stream with `seek` and goes on from there in `direction`.
    ///
    /// # Errors
    /// The first that `seek` gives; the merge is then at its end.
    pub fn reposition<E>(
        &mut self,
        direction: Direction,
        mut seek: impl FnMut(&mut S) -> Result<(), E>,
    ) -> Result<(), E> {
        self.heap.clear();
        for stream in &mut self.streams {
            seek(stream)?;
        }
        self.direction = direction;
        self.rebuild();
        Ok(())
    }

    /// Lets `work` move the stream that is the only one with an entry left; `None` when there are more
    /// or none. `work` leaves the stream on an entry or at its end.
    #[inline]
    pub fn with_only<T>(&mut self, work: impl FnOnce(&mut S) -> T) -> Option<T> {
        let [top] = self.heap.as_slice() else { return None };
        let stream = top.stream;
        let done = work(self.streams.get_mut(stream)?);
        self.heap.clear();
        if let Some(node) = self.node(stream) {
            self.heap.push(node);
        }
        Some(done)
    }

    /// Ends the merge and hands the streams back.
    #[must_use]
    pub fn into_streams(self) -> Vec<S> {
        self.streams
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        let nodes = (0..self.streams.len()).filter_map(|stream| self.node(stream));
        let nodes: Vec<_> = nodes.collect();
        self.heap.extend(nodes);
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    #[inline]
    fn node(&self, stream: usize) -> Option<Node> {
        let prefix = self.order.prefix(self.streams.get(stream)?.key()?.user_key);
        let prefix = if self.direction == Direction::Forward { prefix } else { !prefix };
        Some(Node { prefix, stream })
    }

    #[inline]
    fn is_before(&self, a: Node, b: Node) -> bool {
        if a.prefix != b.prefix {
            return a.prefix < b.prefix;
        }
        let (Some(left), Some(right)) = (self.streams[a.stream].key(), self.streams[b.stream].key()) else {
            return a.stream < b.stream;
        };
        let order = self.order.compare_internal(left, right);
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then(a.stream.cmp(&b.stream)) == Ordering::Less
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let smaller =
                if right < self.heap.len() && self.is_before(self.heap[right], self.heap[left]) { right } else { left };
            if !self.is_before(self.heap[smaller], self.heap[at]) {
                return;
            }
            self.heap.swap(at, smaller);
            at = smaller;
        }
    }
}

impl<S: SortedStream> SortedStream for Merge<S> {
    type Error = S::Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.current()?.1.key()
    }

    /// A failed merge is at its end.
    fn advance(&mut self) -> Result<(), S::Error> {
        let Some(top) = self.heap.first() else { return Ok(()) };
        let stream = top.stream;
        if let Err(error) = self.streams[stream].advance() {
            self.heap.clear();
            return Err(error);
        }
        match self.node(stream) {
            Some(node) => self.heap[0] = node,
            None => {
                self.heap.swap_remove(0);
            }
        }
        self.sift_down(0);
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

    proptest! {
        #[test]
        fn merges_like_a_sort(
            lists in prop::collection::vec(
                prop::collection::vec((prop::collection::vec(97u8..100, 0..12), 1u64..50), 0..20), 0..9),
            backward: bool, reverse: bool,
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            let compare = |a: &(Vec<u8>, u64), b: &(Vec<u8>, u64)| {
                let forward = order.compare_internal(key(a), key(b));
                if backward { forward.reverse() } else { forward }
            };
            let mut all = Vec::new();
            let streams = lists.into_iter().map(|mut entries| {
                entries.sort_by(compare);
                all.extend(entries.iter().cloned());
                List { entries, at: 0 }
            }).collect();
            all.sort_by(compare);
            let mut merge = Merge::new(streams, order, direction);
            for expected in &all {
                prop_assert_eq!(merge.key(), Some(key(expected)));
                merge.advance().unwrap();
            }
            prop_assert_eq!(merge.key(), None);
            merge.reposition(direction, |stream| { stream.at = 0; Ok::<_, Infallible>(()) }).unwrap();
            prop_assert_eq!(merge.key(), all.first().map(key));
        }
    }
}
