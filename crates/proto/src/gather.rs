//! Arguments of a gather job: the places of records that a scan wants, in the order of the scan.
//!
//! ```text
//!  arguments  1 version (1) │ for each range: 4 extent │ 8 offset │ 8 length
//!  result     the bytes of the ranges, one after another
//! ```
//!
//! At most [`MAX_RANGES`] ranges of [`MAX_BYTES`] bytes in all. See `docs/formats/gather.md`.

use crate::field::Field;
use crate::ids::ExtentRange;
use forebay_base::{DecodeError, Reader, Writer};

const VERSION: u8 = 1;
/// Maximum number of ranges of a gather.
pub const MAX_RANGES: usize = 1024;
/// Maximum number of bytes that a gather returns.
pub const MAX_BYTES: usize = 2 << 20;

/// The arguments for these ranges.
#[must_use]
pub fn encode(ranges: &[ExtentRange]) -> Vec<u8> {
    debug_assert!(ranges.len() <= MAX_RANGES, "whoever gathers more does it in several requests");
    let mut out = Vec::with_capacity(1 + ranges.len() * 20);
    out.put_u8(VERSION);
    ranges.iter().for_each(|range| range.put(&mut out));
    out
}

/// The ranges in the arguments.
///
/// # Errors
/// [`DecodeError`], also for more ranges or bytes than allowed.
pub fn decode(arguments: &[u8]) -> Result<Vec<ExtentRange>, DecodeError> {
    let mut reader = Reader::new(arguments);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::BadValue { what: "version of a gather", found: version.into() });
    }
    let mut ranges = Vec::new();
    while !reader.is_empty() {
        if ranges.len() == MAX_RANGES {
            return Err(DecodeError::BadValue { what: "number of ranges", found: MAX_RANGES as u64 + 1 });
        }
        ranges.push(ExtentRange::take(&mut reader)?);
    }
    match total_bytes(&ranges) {
        Some(total) if total <= MAX_BYTES => Ok(ranges),
        _ => Err(DecodeError::BadValue { what: "bytes of a gather", found: u64::MAX }),
    }
}

/// Total bytes of the ranges; `None` on overflow.
#[must_use]
pub fn total_bytes(ranges: &[ExtentRange]) -> Option<usize> {
    let total = ranges.iter().try_fold(0u64, |total, range| total.checked_add(range.length))?;
    usize::try_from(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ExtentId;
    use proptest::prelude::*;

    const RANGE: ExtentRange = ExtentRange { extent: ExtentId(0x0102), offset: 0x1000, length: 440 };

    #[test]
    fn golden_gather() {
        let bytes = encode(&[RANGE]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01020100000010000000000000b801000000000000");
        assert_eq!(decode(&bytes), Ok(vec![RANGE]));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        assert!(decode(&encode(&[RANGE; MAX_RANGES])).is_ok());
        let mut long = encode(&[RANGE; MAX_RANGES]);
        RANGE.put(&mut long);
        assert!(decode(&long).is_err());
        let huge = ExtentRange { length: u64::MAX, ..RANGE };
        assert!(decode(&encode(&[RANGE, huge])).is_err());
        assert!(decode(&[2]).is_err() && decode(&[]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
