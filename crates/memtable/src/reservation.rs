//! Reservation: one fetch-and-add hands out bytes of the block and sequence numbers together. So numbers are dense and
//! bytes are bounded (dLSM IV, whose fixed range of numbers bounds neither).
//!
//! ```text
//!   63               39 38                                    0
//!  ┌───────────────────┬───────────────────────────────────────┐
//!  │ records reserved  │ bytes reserved / 8                    │
//!  └───────────────────┴───────────────────────────────────────┘
//! ```
//!
//! | before | before + mine | answer |
//! |---|---|---|
//! | ≤ capacity | ≤ capacity | [`Fits`](Outcome::Fits): the range is mine |
//! | ≤ capacity | > capacity | [`Crossed`](Outcome::Crossed): mine is the memtable's end; I install the next one |
//! | > capacity | | [`Full`](Outcome::Full): somebody crossed; I wait for the next one |
//!
//! # Invariants
//!
//! 1. The word only grows, so it passes the capacity once: exactly one caller gets `Crossed`.
//! 2. Ranges of `Fits` are disjoint and cover `0 … final bytes` and `1 … final count` without a gap: each starts where
//!    the previous one ended, and nothing fits after the crossing.
//! 3. Neither half overflows. Bytes: a caller adds only after it has seen the word within the capacity, so after the
//!    crossing each thread adds at most once, at most 1 GiB (and 8 B). 39 bits hold 4 TiB, so some 4,090 threads would
//!    have to be inside this function at once to reach the limit. Count: what fits is at most 256 MiB / 16 B = 2^24
//!    records, within 25 bits. Additions beyond the crossing may wrap at the top, where nobody looks at the count any
//!    more.
//! 4. A batch beyond [`MAX_CAPACITY_BYTES`] goes into a memtable made for it. That one takes a
//!    single reservation, of exactly its capacity, so invariant 3 holds for it too.
//!
//! The word is only a counter and publishes no data: all orderings are relaxed.

use crate::error::MemtableError;
use crate::planted::{Bug, planted};
use forebay_base::record::{ALIGNMENT, MIN_RECORD_BYTES};
use forebay_env::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Largest capacity of a memtable that takes more than one reservation.
pub const MAX_CAPACITY_BYTES: u64 = 256 << 20;
/// Largest reservation, in bytes.
pub const MAX_RESERVATION_BYTES: u64 = 1 << 30;
/// Largest reservation, in records.
pub const MAX_RESERVATION_COUNT: u64 = 1 << 24;

const BYTES_BITS: u32 = 39;
const UNIT: u64 = ALIGNMENT as u64;

const _: () = assert!(MAX_CAPACITY_BYTES / MIN_RECORD_BYTES as u64 <= MAX_RESERVATION_COUNT);
const _: () = assert!(MAX_RESERVATION_COUNT < 1 << (64 - BYTES_BITS));
const _: () = assert!(4090 * (MAX_RESERVATION_BYTES + UNIT) + MAX_RESERVATION_BYTES < UNIT << BYTES_BITS);

/// Number of records and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Records.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Extent {
    pub(crate) const fn to_word(self) -> u64 {
        (self.count << BYTES_BITS) | (self.bytes / UNIT)
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self { count: word >> BYTES_BITS, bytes: (word & ((1 << BYTES_BITS) - 1)) * UNIT }
    }
}

/// The outcome of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The caller owns the range that starts after these records and bytes.
    Fits(Extent),
    /// The caller, and no other, ends the memtable at these records and bytes.
    Crossed(Extent),
    /// The memtable has ended: wait for the next one.
    Full,
}

/// The counter of one memtable.
#[derive(Debug)]
pub struct Reservations {
    word: AtomicU64,
    capacity_bytes: u64,
}

impl Reservations {
    /// A counter for `capacity_bytes`.
    ///
    /// # Errors
    /// [`MemtableError::BadReservation`] beyond [`MAX_RESERVATION_BYTES`].
    pub fn new(capacity_bytes: u64) -> Result<Self, MemtableError> {
        if capacity_bytes > MAX_RESERVATION_BYTES {
            return Err(MemtableError::BadReservation { count: 1, bytes: capacity_bytes });
        }
        Ok(Self { word: AtomicU64::new(0), capacity_bytes })
    }

    /// Reserves `count` records of `bytes` bytes in total.
    ///
    /// # Errors
    /// [`MemtableError::BadReservation`], [`MemtableError::Oversize`]: nothing was reserved.
    #[inline]
    pub fn reserve(&self, count: u64, bytes: u64) -> Result<Outcome, MemtableError> {
        let possible = (1..=MAX_RESERVATION_COUNT).contains(&count)
            && bytes <= MAX_RESERVATION_BYTES
            && bytes.is_multiple_of(UNIT)
            && bytes / MIN_RECORD_BYTES as u64 >= count;
        if !possible {
            return Err(MemtableError::BadReservation { count, bytes });
        }
        if self.capacity_bytes > MAX_CAPACITY_BYTES && bytes != self.capacity_bytes && self.reserved().bytes == 0 {
            return Err(MemtableError::Oversize { capacity: self.capacity_bytes, bytes });
        }
        Ok(self.add(Extent { count, bytes }))
    }

    /// Ends the memtable although it has room left. `Crossed` if this call did it, otherwise `Full`.
    pub fn end(&self) -> Outcome {
        self.add(Extent { count: 0, bytes: self.capacity_bytes + UNIT })
    }

    /// The current reservations. Beyond the capacity, the value only shows that the memtable has ended.
    #[must_use]
    pub fn reserved(&self) -> Extent {
        Extent::from_word(self.word.load(Relaxed))
    }

    #[inline]
    fn add(&self, mine: Extent) -> Outcome {
        if self.reserved().bytes > self.capacity_bytes {
            return Outcome::Full;
        }
        let before = Extent::from_word(self.word.fetch_add(mine.to_word(), Relaxed));
        if before.bytes > self.capacity_bytes && !planted(Bug::EveryoneCrosses) {
            Outcome::Full
        } else if before.bytes + mine.bytes > self.capacity_bytes {
            Outcome::Crossed(before)
        } else {
            Outcome::Fits(before)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_both_halves() {
        let extent = Extent { count: MAX_RESERVATION_COUNT, bytes: MAX_RESERVATION_BYTES };
        assert_eq!(extent.to_word(), 0x8000_0000_0800_0000);
        assert_eq!(Extent::from_word(extent.to_word()), extent);
    }

    #[test]
    fn one_caller_crosses() {
        let reservations = Reservations::new(100 * 8).unwrap();
        let extent = |count, bytes| Extent { count, bytes };
        assert_eq!(reservations.reserve(2, 400), Ok(Outcome::Fits(extent(0, 0))));
        assert_eq!(reservations.reserve(1, 400), Ok(Outcome::Fits(extent(2, 400))));
        assert_eq!(reservations.reserve(1, 16), Ok(Outcome::Crossed(extent(3, 800))));
        assert_eq!(reservations.reserve(1, 16), Ok(Outcome::Full));
        assert_eq!(reservations.end(), Outcome::Full);
        assert_eq!(reservations.reserved().bytes, 816, "nothing is added after the end was seen");
    }

    #[test]
    fn an_end_with_room_left() {
        let reservations = Reservations::new(800).unwrap();
        assert_eq!(reservations.reserve(1, 24), Ok(Outcome::Fits(Extent::default())));
        assert_eq!(reservations.end(), Outcome::Crossed(Extent { count: 1, bytes: 24 }));
        assert_eq!(reservations.reserve(1, 24), Ok(Outcome::Full));
    }

    #[test]
    fn an_oversize_memtable_takes_one_batch() {
        let capacity = MAX_CAPACITY_BYTES + 64;
        let reservations = Reservations::new(capacity).unwrap();
        assert_eq!(reservations.reserve(1, 64), Err(MemtableError::Oversize { capacity, bytes: 64 }));
        assert_eq!(reservations.reserve(9, capacity), Ok(Outcome::Fits(Extent::default())));
        assert_eq!(reservations.reserve(1, 64), Ok(Outcome::Crossed(Extent { count: 9, bytes: capacity })));
        assert_eq!(reservations.reserve(1, 64), Ok(Outcome::Full));
    }

    #[test]
    fn impossible_reservations_are_refused() {
        let reservations = Reservations::new(800).unwrap();
        for (count, bytes) in [(0, 16), (1, 8), (1, 17), (2, 24), (1, MAX_RESERVATION_BYTES + 8), (u64::MAX, 1 << 20)] {
            assert_eq!(reservations.reserve(count, bytes), Err(MemtableError::BadReservation { count, bytes }));
        }
        assert!(Reservations::new(u64::MAX).is_err());
    }
}
