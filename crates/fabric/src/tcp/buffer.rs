//! A queue of bytes in one piece, whose memory is initialised once and used again.

use std::ops::Range;

/// Bytes between a front, where they are consumed, and a back, where they are appended.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// All of it is initialised, so a socket can receive into it.
    bytes: Vec<u8>,
    filled: Range<usize>,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.filled.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.filled = 0..0;
    }

    /// The bytes in the queue.
    #[inline]
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
    }

    /// The same, to be changed in place.
    #[inline]
    pub(super) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled.clone()]
    }

    /// Takes `count` bytes off the front, or all if there are fewer.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.filled.start += count.min(self.filled.len());
        if self.filled.is_empty() {
            self.clear();
        }
    }

    /// Room for `count` bytes at the back, filled with whatever was there; [`Buffer::commit`]
    /// makes them part of the queue.
    #[inline]
    pub(super) fn space(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.filled.end < count {
            self.make_room(count);
        }
        &mut self.bytes[self.filled.end..self.filled.end + count]
    }

    /// Appends the first `count` bytes of the room.
    #[inline]
    pub(super) fn commit(&mut self, count: usize) {
        self.filled.end = (self.filled.end + count).min(self.bytes.len());
    }

    /// Appends `bytes`.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Frees memory that a long message took, once the queue is empty.
    pub(super) fn trim(&mut self, most: usize) {
        if self.is_empty() && self.bytes.len() > most {
            self.bytes = Vec::new();
        }
    }

    #[cold]
    fn make_room(&mut self, count: usize) {
        self.bytes.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        let needed = self.filled.end + count;
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two().max(4096), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn behaves_as_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..if cfg!(miri) { 300 } else { 9000 }), 0..if cfg!(miri) { 12 } else { 60 })) {
            let mut buffer = Buffer::default();
            let mut model = VecDeque::new();
            for (i, (append, count)) in steps.into_iter().enumerate() {
                if append {
                    let bytes = vec![i as u8; count];
                    buffer.extend(&bytes);
                    model.extend(&bytes);
                } else {
                    buffer.consume(count);
                    model.drain(..count.min(model.len()));
                }
                prop_assert!(buffer.filled().iter().eq(model.iter()));
                prop_assert_eq!((buffer.len(), buffer.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
