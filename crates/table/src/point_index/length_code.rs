//! Codes for the lengths of records: exact when short, rounded up when long.
//!
//! A code is a number with `m` mantissa bits. Lengths below `2^(m+1)` are their own codes. Above,
//! each doubling has `2^m` steps, and a length is rounded up to the next step, so a code exceeds
//! the length by at most `2^-m` of it. Codes grow with lengths. A table stores codes relative to
//! its smallest code, with the finest mantissa whose codes fit 8 bits, and never fewer than 5
//! mantissa bits (3.2 %). Records of one size take no bits at all and are exact.
//!
//! Purpose and golden test: `docs/formats/point-index.md`.

use super::bits::width;
use crate::entry::MAX_RECORD_BYTES;

/// Minimum number of mantissa bits: 1/32 is 3.2 %.
pub const MIN_MANTISSA_BITS: u32 = 5;
/// Maximum number of mantissa bits: every length of a record is exact.
pub const MAX_MANTISSA_BITS: u32 = 26;
/// Bits that a table may spend on a length merely to get a finer mantissa.
const PREFERRED_BITS: u32 = 8;

const _: () = assert!(MAX_RECORD_BYTES < 1 << (MAX_MANTISSA_BITS + 1));

/// The coding of lengths in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthCoding {
    mantissa_bits: u32,
    smallest_code: u32,
}

impl LengthCoding {
    /// The coding of these parameters; `None` if the mantissa is out of range.
    #[must_use]
    pub fn new(mantissa_bits: u32, smallest_code: u32) -> Option<Self> {
        (MIN_MANTISSA_BITS..=MAX_MANTISSA_BITS)
            .contains(&mantissa_bits)
            .then_some(Self { mantissa_bits, smallest_code })
    }

    /// The finest coding for lengths from `shortest` to `longest` bytes, and its number of bits.
    #[must_use]
    pub fn choose(shortest: u32, longest: u32) -> (Self, u32) {
        let at = |mantissa| {
            let smallest = code(shortest, mantissa);
            let bits = width((code(longest, mantissa) - smallest).into());
            (Self { mantissa_bits: mantissa, smallest_code: smallest }, bits)
        };
        (MIN_MANTISSA_BITS + 1..=MAX_MANTISSA_BITS)
            .rev()
            .map(at)
            .find(|(_, bits)| *bits <= PREFERRED_BITS)
            .unwrap_or_else(|| at(MIN_MANTISSA_BITS))
    }

    /// Mantissa bits of the codes.
    #[must_use]
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits
    }

    /// The table's smallest code.
    #[must_use]
    pub const fn smallest_code(self) -> u32 {
        self.smallest_code
    }

    /// The stored code for `length` bytes, which is at least the table's shortest.
    #[must_use]
    pub const fn encode(self, length: u32) -> u32 {
        code(length, self.mantissa_bits).saturating_sub(self.smallest_code)
    }

    /// The length in bytes of a stored code; `None` if it is not a code.
    #[inline]
    #[must_use]
    pub const fn decode(self, stored: u64) -> Option<u32> {
        let code = stored + self.smallest_code as u64;
        let exponent = (code >> self.mantissa_bits).saturating_sub(1);
        let mantissa = code - (exponent << self.mantissa_bits);
        if exponent > 31 {
            return None;
        }
        let length = mantissa << exponent;
        if length > u32::MAX as u64 { None } else { Some(length as u32) }
    }
}

/// The code of `length` with this many mantissa bits.
const fn code(length: u32, mantissa_bits: u32) -> u32 {
    let exponent = width(length as u64).saturating_sub(mantissa_bits + 1);
    let mantissa = (length as u64).div_ceil(1 << exponent);
    (((exponent as u64) << mantissa_bits) + mantissa) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_size_is_exact_and_free() {
        let (coding, bits) = LengthCoding::choose(435, 435);
        assert_eq!((bits, coding.decode(0)), (0, Some(435)));
    }

    #[test]
    fn golden_codes() {
        let coding = LengthCoding::new(5, 0).unwrap();
        let codes = [0, 63, 64, 65, 66, 127, 128, 435, 1 << 26].map(|length| coding.encode(length));
        assert_eq!(codes, [0, 63, 64, 65, 65, 96, 96, 151, 704]);
        let (_, bits) = LengthCoding::choose(16, MAX_RECORD_BYTES as u32);
        assert_eq!(bits, 10);
    }

    proptest! {
        #[test]
        fn lengths_are_rounded_up_a_little(a in 16..=MAX_RECORD_BYTES as u32, b in 16..=MAX_RECORD_BYTES as u32,
                                            c in 16..=MAX_RECORD_BYTES as u32) {
            let mut lengths = [a, b, c];
            lengths.sort_unstable();
            let [shortest, length, longest] = lengths;
            let (coding, bits) = LengthCoding::choose(shortest, longest);
            let stored = coding.encode(length);
            prop_assert!(u64::from(stored) < 1 << bits);
            let decoded = coding.decode(stored.into()).unwrap();
            prop_assert!(decoded >= length);
            prop_assert!(u64::from(decoded - length) * 32 <= u64::from(length), "{} for {}", decoded, length);
        }

        #[test]
        fn any_code_decodes_without_panic(mantissa in 5u32..=26, smallest: u32, stored in 0u64..1 << 57) {
            let _ = LengthCoding::new(mantissa, smallest).unwrap().decode(stored);
        }
    }
}
