//! One cut through all shards: the published numbers of several shards, read so that each batch that crosses shards is
//! covered by all of them or by none.
//!
//! ```text
//!   batch     gate shared ── reserve in each shard, in turn ── insert in each
//!             ── begun += 1 ── publish in each ── ended += 1
//!   reader    e = ended;  read the published numbers;  b = begun;  b = e: done
//!             else: gate exclusive; read the published numbers
//! ```
//!
//! Batches within one shard do not take part. A reader that meets no crossing batch takes no lock.
//!
//! # Invariants
//!
//! 1. A crossing batch is *in flight* from before its first record is published until its last one is. It is counted in
//!    `begun` before that time and in `ended` after it, so `ended <= begun`.
//! 2. A reader that finds `b = e` saw no batch in part. Every batch that had begun when `begun` was read had ended when
//!    `ended` was read. If a number shows a record of a batch, `begun` counted that batch (the publication releases,
//!    the reader acquires). So the batch had ended before any number was read, and all numbers cover it.
//! 3. The gate is taken before anything is reserved, and its holders wait for nobody who waits for the gate. They wait
//!    for local memory and for the publication of earlier numbers; a writer that reserved those either holds the gate
//!    already or never takes it.
//! 4. Crossing batches reserve one at a time, so all shards order them alike: if two batches write to the same shards,
//!    the same one is last in each of them. No record is copied meanwhile.
//! 5. Crossing batches publish in the order of the shards. So batches that wait for the ring of a shard never wait for
//!    each other.

use crate::terms::planted::{Bug, planted};
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, lock};
use std::sync::PoisonError;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    gate: RwLock<()>,
    turn: Mutex<()>,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Lets a crossing batch reserve and publish.
pub(crate) struct Crossing<'a> {
    cut: &'a Cut,
    _gate: RwLockReadGuard<'a, ()>,
}

/// The right to reserve numbers for a crossing batch.
pub(crate) type Turn<'a> = MutexGuard<'a, ()>;

impl Cut {
    /// Begins a crossing batch. Hold the result until the batch is published in all its shards, or has failed in one of
    /// them before it was published anywhere.
    pub(crate) fn cross(&self) -> Crossing<'_> {
        Crossing { cut: self, _gate: self.gate.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Runs `read`, which reads published numbers, so that no crossing batch shows in part. May run it twice, and then
    /// drops the first result.
    pub(crate) fn through<T>(&self, mut read: impl FnMut() -> T) -> T {
        self.try_through(&mut read).unwrap_or_else(|| {
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            read()
        })
    }

    /// Runs `read`; `None` when a crossing batch may show in part.
    fn try_through<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        // Acquire: everything that the ended batches have published is visible below (invariant 2).
        let ended = self.ended.load(Ordering::Acquire);
        let result = read();
        // Relaxed: `read` acquired the published numbers, and with them the counts of their batches.
        (self.begun.load(Ordering::Relaxed) == ended || planted(Bug::UncheckedCut)).then_some(result)
    }
}

impl Crossing<'_> {
    /// Waits for the batch's turn to reserve (invariant 4).
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        lock(&self.cut.turn)
    }

    /// Runs `publish`, which publishes the placed parts in the order of the shards and returns once the published
    /// numbers cover them.
    pub(crate) fn publish(self, publish: impl FnOnce()) {
        // Relaxed: each publication releases this increment (invariant 2).
        self.cut.begun.fetch_add(1, Ordering::Relaxed);
        publish();
        // Release: pairs with the acquire of `try_through`.
        self.cut.ended.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use forebay_base::SequenceNumber;
    use forebay_memtable::Publication;

    fn publication() -> Publication {
        Publication::new(SequenceNumber::ZERO, 8)
    }

    fn publish(publication: &Publication, number: u64) {
        publication.publish(SequenceNumber(number), SequenceNumber(number));
        publication.wait_published(SequenceNumber(number));
    }

    #[test]
    fn a_batch_in_flight_is_noticed() {
        let (cut, a, b) = (Cut::default(), publication(), publication());
        let read = || (a.published().0, b.published().0);
        assert_eq!(cut.try_through(read), Some((0, 0)));
        cut.cross().publish(|| {
            publish(&a, 1);
            assert_eq!(read(), (1, 0), "a reader that does not go through the cut sees half");
            assert_eq!(cut.try_through(read), None);
            publish(&b, 1);
        });
        assert_eq!(cut.try_through(read), Some((1, 1)));
        // A batch begins and ends while the reader reads, so the reader may have read before and after it.
        let torn = cut.try_through(|| {
            let first = a.published().0;
            cut.cross().publish(|| [&a, &b].into_iter().for_each(|publication| publish(publication, 2)));
            (first, b.published().0)
        });
        assert_eq!(torn, None);
    }

    #[test]
    fn no_reader_sees_half() {
        const BATCHES: u64 = 20_000;
        let (cut, a, b) = (Cut::default(), publication(), publication());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=BATCHES {
                    cut.cross().publish(|| [&a, &b].into_iter().for_each(|publication| publish(publication, number)));
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let (a, b) = cut.through(|| (a.published().0, b.published().0));
                        assert_eq!(a, b);
                        if a == BATCHES {
                            return;
                        }
                    }
                });
            }
        });
    }
}
