//! Where the objects of a job lie that reads or writes storage: what comes before its arguments.
//!
//! ```text
//!   0   4 "FBos"
//!   4   1 version (1)
//!   5   1 1 if the outputs go to storage
//!   6   1 compression of outputs: 0 none, 1 LZ4, 2 Zstandard
//!   7   1 level of Zstandard
//!   8   4 bytes of a block of outputs
//!  12   8 epoch that outputs are named by
//!  20   2 length of the prefix
//!  22   … prefix of the names of the shard's objects
//!   …   4 CRC32C of all that is before
//! ```
//!
//! An output is named by the epoch and by its segment's number, and each attempt has numbers of its own
//! ([`Attempt::numbers`]), so no attempt ever writes what another one has written. Purpose and golden test:
//! `docs/formats/offload-storage.md`.

use crate::job::Attempt;
use forebay_base::{DecodeError, Reader, Writer, checksum};
use std::ops::Range;

const MAGIC: &[u8; 4] = b"FBos";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 22;
const CHECKSUM_BYTES: usize = 4;
/// Longest prefix in bytes.
const MAX_PREFIX_BYTES: usize = 1024;
/// Parts into which the numbers of a job's outputs are divided, for its attempts.
const PARTS: u64 = 8;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlace {
    /// Prefix of the names of the shard's objects.
    pub prefix: String,
    /// The epoch that outputs are named by.
    pub epoch: u64,
    /// Whether outputs go to storage.
    pub has_outputs: bool,
    /// How outputs are compressed: 0 not at all, 1 LZ4, 2 Zstandard.
    pub compression: u8,
    /// Level of Zstandard.
    pub level: u8,
    /// Bytes of a block of outputs.
    pub block_bytes: u32,
}

impl StoredPlace {
    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, u8::from(self.has_outputs), self.compression, self.level]);
        out.put_u32(self.block_bytes);
        out.put_u64(self.epoch);
        let prefix = self.prefix.as_bytes();
        let prefix = prefix.get(..MAX_PREFIX_BYTES).unwrap_or(prefix);
        out.put_u16(prefix.len() as u16);
        out.extend_from_slice(prefix);
        let checksum = checksum(out.get(start..).unwrap_or_default());
        out.put_u32(checksum);
    }

    /// Decodes what `bytes` begin with. Returns it with its length.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let bad = |what, found: u64| DecodeError::BadValue { what, found };
        let mut reader = Reader::new(bytes);
        if reader.bytes(MAGIC.len())? != MAGIC {
            return Err(bad("magic of a place in storage", 0));
        }
        let (version, outputs) = (reader.u8()?, reader.u8()?);
        if version != VERSION || outputs > 1 {
            return Err(bad("version of a place in storage", u64::from(version) << 8 | u64::from(outputs)));
        }
        let (compression, level, block_bytes) = (reader.u8()?, reader.u8()?, reader.u32()?);
        let (epoch, length) = (reader.u64()?, usize::from(reader.u16()?));
        if length > MAX_PREFIX_BYTES {
            return Err(bad("length of a prefix", length as u64));
        }
        let prefix = std::str::from_utf8(reader.bytes(length)?).map_err(|_| bad("prefix of names", 0))?.to_owned();
        let expected = reader.u32()?;
        let covered = HEADER_BYTES + length;
        if checksum(bytes.get(..covered).unwrap_or_default()) != expected {
            return Err(bad("checksum of a place in storage", expected.into()));
        }
        let has_outputs = outputs == 1;
        Ok((Self { prefix, epoch, has_outputs, compression, level, block_bytes }, covered + CHECKSUM_BYTES))
    }
}

impl Attempt {
    /// The part of a job's numbers for outputs that is this attempt's.
    #[must_use]
    pub fn numbers(self, of_job: &Range<u64>) -> Range<u64> {
        let part_length = of_job.end.saturating_sub(of_job.start) / PARTS;
        let part = u64::from(self.term.0).wrapping_mul(3).wrapping_add(u64::from(self.number)) % PARTS;
        let start = of_job.start.saturating_add(part * part_length);
        start..start.saturating_add(part_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Term;
    use proptest::prelude::*;

    fn place() -> StoredPlace {
        StoredPlace { prefix: "db/s".into(), epoch: 5, has_outputs: true, compression: 2, level: 3, block_bytes: 16384 }
    }

    #[test]
    fn golden_place() {
        let mut bytes = Vec::new();
        place().encode(&mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (covered, sum) = hex.split_at(hex.len() - 8);
        assert_eq!(covered, "46426f730101020300400000050000000000000004006462".to_owned() + "2f73");
        assert_eq!(sum.len(), 8);
        assert_eq!(StoredPlace::decode(&bytes).unwrap(), (place(), bytes.len()));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(StoredPlace::decode(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn attempts_have_numbers_of_their_own() {
        let attempt = |term, number| Attempt { term: Term(term), number }.numbers(&(800..1600));
        assert_eq!((attempt(0, 1), attempt(0, 2), attempt(0, 3)), (900..1000, 1000..1100, 1100..1200));
        // Those of the next term as well.
        assert_eq!((attempt(1, 1), attempt(1, 3)), (1200..1300, 1400..1500));
        assert!(Attempt { term: Term(u32::MAX), number: u32::MAX }.numbers(&(0..0)).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_place_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((place, length)) = StoredPlace::decode(&bytes) {
                let mut again = Vec::new();
                place.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }
    }
}
