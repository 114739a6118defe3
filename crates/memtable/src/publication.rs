//! Publication: writers finish in any order. The published number is the end of the contiguous prefix of finished
//! reservations. A snapshot is a published number, so it never sees half of a batch. A write returns once the published
//! number covers it, so a caller sees its own writes.
//!
//! A ring has a slot for each of the last N sequence numbers. A finished writer of the reservation `first … last`
//! stores `last` in slot `first mod N` (its mark). Then it, or any other thread, advances:
//!
//! ```text
//!   loop   p = published; m = slot[(p + 1) mod N]
//!          m <= p:  no mark yet (zero, or a mark of an earlier lap): stop
//!          m >  p:  the reservation p + 1 … m is finished: published: p -> m by compare-and-swap
//! ```
//!
//! A writer whose reservation is next leaves no mark: it moves the published number over its reservation itself, and
//! then advances over the marks that other writers left.
//!
//! | word | states | who writes |
//! |---|---|---|
//! | slot | mark of an earlier lap (≤ published) → mark (> published) → … | the one writer of the reservation that starts there |
//! | published | p → end of the reservation p + 1 … | its writer, or any thread that finds its mark, by compare-and-swap |
//!
//! # Invariants
//!
//! 1. A writer stores its mark only when `first <= published + N`. So every number that shares its slot in an earlier
//!    lap is published, and a mark that nobody has consumed is never overwritten. No slot holds a mark of a later lap
//!    that could be mistaken for the expected one: the slot of p + 1 can hold such a mark only when p + 1 is published
//!    already, and then the compare-and-swap from p fails.
//! 2. Nothing is lost. Each writer puts a sequentially consistent fence between storing its mark and looking for
//!    others'. Of the writers of a finished prefix, the one whose fence is last in the order of fences sees the marks
//!    of all of them and advances over them, unless others did. A writer that publishes its own reservation does so by
//!    a sequentially consistent compare-and-swap before a sequentially consistent load of the next mark. These replace
//!    the fence: either that load sees the next writer's mark, or that writer, after its fence, sees the published
//!    number.
//! 3. Work is linear: a compare-and-swap that succeeds consumes a reservation; one that fails means
//!    another succeeded.

use crate::padded::Padded;
use crate::planted::{Bug, planted};
use forebay_base::SequenceNumber;
use forebay_env::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};
use forebay_env::sync::relax;

/// The published number of a shard.
#[derive(Debug)]
pub struct Publication {
    published: Padded<AtomicU64>,
    slots: Box<[AtomicU64]>,
}

impl Publication {
    /// Number of slots that suits a shard: 256 KiB, so writers wait for others only when one is 32,768 sequence numbers
    /// behind.
    pub const DEFAULT_SLOTS: usize = 1 << 15;

    /// A shard whose numbers up to `published` are inserted. `slots` is rounded up to a power of two.
    #[must_use]
    pub fn new(published: SequenceNumber, slots: usize) -> Self {
        let slots = (0..slots.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        Self { published: Padded(AtomicU64::new(published.0)), slots }
    }

    /// The published number: every number up to it is inserted.
    #[inline]
    #[must_use]
    pub fn published(&self) -> SequenceNumber {
        // Pairs with the compare-and-swap in `advance`: a thread that sees a number sees the records that its writer
        // inserted.
        SequenceNumber(self.published.0.load(Acquire))
    }

    #[inline]
    fn slot(&self, sequence: u64) -> &AtomicU64 {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    /// Reports that the records of the reservation `first … last` are inserted. Waits only when the writer is a whole
    /// ring ahead of the slowest.
    #[inline]
    pub fn publish(&self, first: SequenceNumber, last: SequenceNumber) {
        // Release: pairs with `published`. No other thread can move the number from here, because there is no mark.
        if self.published.0.compare_exchange(first.0 - 1, last.0, SeqCst, Relaxed).is_ok() {
            // loom treats sequentially consistent accesses as weaker ones.
            #[cfg(loom)]
            if !planted(Bug::PublishWithoutFence) {
                fence(SeqCst);
            }
            return self.advance_from(last.0);
        }
        let mut round = 0;
        while first.0 > self.published().0 + self.slots.len() as u64 {
            relax(&mut round);
        }
        // Release: pairs with the acquiring load of the mark in `advance`.
        self.slot(first.0).store(last.0, Release);
        if planted(Bug::PublishMaximum) {
            self.published.0.fetch_max(last.0, AcqRel);
        }
        if !planted(Bug::PublishWithoutFence) {
            // Pairs with itself in every other writer (invariant 2).
            fence(SeqCst);
        }
        self.advance();
    }

    #[inline]
    fn advance(&self) {
        self.advance_from(self.published.0.load(Relaxed));
    }

    #[inline]
    fn advance_from(&self, mut published: u64) {
        loop {
            // Acquire: pairs with the mark's release, so that the release below passes on the records of the mark's
            // writer. Sequentially consistent: invariant 2.
            let mark = self.slot(published + 1).load(SeqCst);
            if mark <= published {
                return;
            }
            // Release: pairs with `published`. Older inserts need no acquire, because a compare-and-swap continues the
            // release sequences that it follows.
            published = match self.published.0.compare_exchange(published, mark, Release, Relaxed) {
                Ok(_) => mark,
                Err(newer) => newer,
            };
        }
    }

    /// Waits until `sequence` is published: spins briefly, then yields.
    #[inline]
    pub fn wait_published(&self, sequence: SequenceNumber) {
        let mut round = 0;
        while self.published() < sequence {
            relax(&mut round);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use forebay_env::Random;
    use std::sync::atomic::AtomicU64 as Plain;

    fn publish(publication: &Publication, first: u64, last: u64) -> u64 {
        publication.publish(SequenceNumber(first), SequenceNumber(last));
        publication.published().0
    }

    #[test]
    fn numbers_are_published_in_order() {
        let publication = Publication::new(SequenceNumber(10), 8);
        assert_eq!(publish(&publication, 12, 14), 10);
        assert_eq!(publish(&publication, 15, 15), 10);
        assert_eq!(publish(&publication, 11, 11), 15);
        // Many laps of single numbers and of batches longer than the ring.
        let mut last = 15;
        let mut random = Random::seeded(1);
        for _ in 0..if cfg!(miri) { 20 } else { 500 } {
            let first = last + 1;
            last += 1 + random.below(20);
            assert_eq!(publish(&publication, first, last), last);
        }
    }

    #[test]
    fn a_random_order_within_the_ring_is_sorted_out() {
        for seed in 0..if cfg!(miri) { 1 } else { 50 } {
            let mut random = Random::seeded(seed);
            let publication = Publication::new(SequenceNumber(0), 64);
            let mut start = 1;
            for _ in 0..20 {
                let mut ranges = Vec::new();
                let mut next = start;
                for _ in 0..12 {
                    let last = next + random.below(5);
                    ranges.push((next, last));
                    next = last + 1;
                }
                random.shuffle(&mut ranges);
                let mut finished = std::collections::BTreeMap::new();
                let mut expected = start - 1;
                for (first, last) in ranges {
                    finished.insert(first, last);
                    while let Some(last) = finished.get(&(expected + 1)) {
                        expected = *last;
                    }
                    assert_eq!(publish(&publication, first, last), expected, "seed {seed}");
                }
                start = next;
            }
        }
    }

    #[test]
    fn threads_publish_everything() {
        let rounds: u64 = if cfg!(miri) { 10 } else { 20_000 };
        let publication = Publication::new(SequenceNumber(0), 16);
        let next = Plain::new(1);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for i in 0..rounds {
                        let count = 1 + i % 3;
                        let first = next.fetch_add(count, Relaxed);
                        let last = SequenceNumber(first + count - 1);
                        publication.publish(SequenceNumber(first), last);
                        publication.wait_published(last);
                    }
                });
            }
        });
        assert_eq!(publication.published().0, next.load(Relaxed) - 1);
    }
}
