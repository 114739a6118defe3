//! What of a shard's memtables a log has still to get. Pure.
//!
//! ```text
//!   block of a memtable   [ records … ▸ shipped │ published │ reserved ]
//!                                      begin ───► end
//! ```

use crate::terms::Result;
use forebay_base::{SequenceNumber, record};

/// How far a shard's records were shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// All records up to this number were shipped, or are in tables.
    reached: SequenceNumber,
    /// The base of the memtable that was shipped last, and how many bytes of its block were.
    block: (SequenceNumber, u64),
}

impl Progress {
    /// A shard of which all records up to `reached` were shipped.
    pub(crate) const fn new(reached: SequenceNumber) -> Self {
        Self { reached, block: (SequenceNumber::ZERO, 0) }
    }

    pub(crate) const fn reached(&self) -> SequenceNumber {
        self.reached
    }

    /// How many of `bytes`, the records at the front of the block of the memtable based at `base`, need not be shipped.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are no records.
    pub(crate) fn begin(&self, base: SequenceNumber, bytes: &[u8]) -> Result<usize> {
        if self.block.0 == base && self.block.1 > 0 {
            return Ok((self.block.1 as usize).min(bytes.len()));
        }
        if base >= self.reached {
            return Ok(0);
        }
        for found in record::headers(bytes) {
            let (at, header) = found?;
            if header.tag.sequence() > self.reached {
                return Ok(at);
            }
        }
        Ok(bytes.len())
    }

    /// Notes that the first `end` bytes of the block of the memtable based at `base` were shipped.
    pub(crate) fn ship(&mut self, base: SequenceNumber, end: usize) {
        self.block = (base, end as u64);
    }

    /// Notes that nothing up to `number` is left to be shipped.
    pub(crate) fn reach(&mut self, number: SequenceNumber) {
        self.reached = self.reached.max(number);
    }
}

/// The longest run of whole records at the front of `bytes` that fits into `room`: its length, and its last number.
/// `None` when not even the first one fits.
///
/// # Errors
/// `Corrupt` when the bytes are no records.
pub(crate) fn whole_records(bytes: &[u8], room: u64) -> Result<Option<(u64, SequenceNumber)>> {
    let mut fits = None;
    for found in record::headers(bytes) {
        let (at, header) = found?;
        let end = at.saturating_add(header.padded_length()) as u64;
        if end > room {
            break;
        }
        fits = Some((end, header.tag.sequence()));
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, Record, Tag};

    const LENGTH: usize = 16;

    fn block(numbers: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            let tag = Tag::new(SequenceNumber(number), Kind::Put, false);
            Record { tag, expiry_ms: None, key: b"k", value: b"" }.encode(&mut bytes);
        }
        bytes
    }

    #[test]
    fn each_record_is_shipped_once() {
        let number = SequenceNumber;
        let mut progress = Progress::new(number(12));
        // The block begins with what an earlier owner's log holds.
        assert_eq!(progress.begin(number(10), &block(11..=15)).unwrap(), 2 * LENGTH);
        progress.ship(number(10), 5 * LENGTH);
        progress.reach(number(15));
        assert_eq!(progress.begin(number(10), &block(11..=15)).unwrap(), 5 * LENGTH);
        assert_eq!(progress.begin(number(10), &block(11..=17)).unwrap(), 5 * LENGTH);
        progress.ship(number(10), 7 * LENGTH);
        progress.reach(number(17));
        // The next memtable is new.
        assert_eq!(progress.begin(number(17), &block(18..=19)).unwrap(), 0);
        // And after some that were flushed unshipped.
        assert_eq!(progress.begin(number(30), &block(31..=32)).unwrap(), 0);
        assert_eq!(Progress::new(number(40)).begin(number(30), &block(31..=32)).unwrap(), 2 * LENGTH);
    }

    #[test]
    fn pieces_are_whole_records() {
        let bytes = block(1..=4);
        assert_eq!(whole_records(&bytes, 3 * LENGTH as u64 + 1).unwrap(), Some((48, SequenceNumber(3))));
        assert_eq!(whole_records(&bytes, 1000).unwrap(), Some((64, SequenceNumber(4))));
        assert_eq!(whole_records(&bytes, 15).unwrap(), None);
    }
}
