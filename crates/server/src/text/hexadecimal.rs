//! Numbers that C's functions read with `0x` in front: `0x1F`, `0x.8`, `0x1.8p-3`.

/// Digits are kept up to this many bits: further digits only say that there is more.
const KEPT_BITS: u32 = 120;

/// A number without its sign: `mantissa` times two to the power `exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hexadecimal {
    /// With more than [`KEPT_BITS`], the lowest bit also says whether anything but zeros was left out.
    mantissa: u128,
    exponent: i64,
}

impl Hexadecimal {
    /// Reads a number, without its sign, to its end.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        Self::behind_prefix(text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?)
    }

    /// Reads what follows `0x`, to its end.
    #[must_use]
    pub fn behind_prefix(rest: &[u8]) -> Option<Self> {
        let mut parts = rest.splitn(2, |byte| matches!(byte, b'p' | b'P'));
        let digits = parts.next()?;
        let exponent = parts.next().map_or(Some(0), exponent)?;
        let mut number = Self { mantissa: 0, exponent };
        let (mut has_digits, mut is_fraction, mut has_more) = (false, false, false);
        for &byte in digits {
            let Some(digit) = char::from(byte).to_digit(16) else {
                if byte != b'.' || is_fraction {
                    return None;
                }
                is_fraction = true;
                continue;
            };
            has_digits = true;
            if number.mantissa >> KEPT_BITS == 0 {
                number.mantissa = number.mantissa << 4 | u128::from(digit);
                number.exponent = number.exponent.saturating_sub(if is_fraction { 4 } else { 0 });
            } else {
                has_more |= digit != 0;
                number.exponent = number.exponent.saturating_add(if is_fraction { 0 } else { 4 });
            }
        }
        number.mantissa |= u128::from(has_more);
        has_digits.then_some(number)
    }

    /// Whether it is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Returns the nearest value with a mantissa of at most `bits` bits and an exponent not below `least`. Ties go to
    /// the even mantissa.
    #[must_use]
    pub fn rounded(self, bits: u32, least: i64) -> (u64, i64) {
        debug_assert!(bits <= u64::BITS, "a mantissa is a word");
        let length = i64::from(u128::BITS - self.mantissa.leading_zeros());
        let dropped = (length - i64::from(bits)).max(least.saturating_sub(self.exponent));
        if dropped <= 0 {
            return (self.mantissa as u64, self.exponent);
        }
        // The value is less than a half, because a mantissa has fewer bits.
        if dropped >= i64::from(u128::BITS) - 1 {
            return (0, least);
        }
        let (half, kept) = (1_u128 << (dropped - 1), self.mantissa >> dropped);
        let rest = self.mantissa & ((half << 1) - 1);
        let is_up = rest > half || (rest == half && kept & 1 == 1);
        let (kept, exponent) = (kept + u128::from(is_up), self.exponent.saturating_add(dropped));
        // Rounding up may have made it a bit longer: then its lowest bit is zero.
        if kept >> bits == 0 { (kept as u64, exponent) } else { ((kept >> 1) as u64, exponent.saturating_add(1)) }
    }

    /// Returns the nearest `f64`, which is infinite if the value is too large.
    #[must_use]
    pub fn nearest(self) -> f64 {
        let (mantissa, exponent) = self.rounded(f64::MANTISSA_DIGITS, -1074);
        let length = i64::from(u64::BITS - mantissa.leading_zeros());
        if mantissa == 0 {
            return 0.0;
        }
        if exponent.saturating_add(length) > 1024 {
            return f64::INFINITY;
        }
        // A power of two that is subnormal has one bit alone.
        let power = if exponent < -1022 { 1 << (exponent + 1074) } else { ((exponent + 1023) as u64) << 52 };
        mantissa as f64 * f64::from_bits(power)
    }
}

/// Reads an exponent after `e` or `p`. An exponent that no `i64` holds becomes the farthest that one holds.
#[must_use]
pub fn exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        digits.iter().fold(0_i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_nearest() {
        for (text, number) in [
            ("0x10", Some(16.0)),
            ("0XfF", Some(255.0)),
            ("0x.8", Some(0.5)),
            ("0x1.", Some(1.0)),
            ("0x1.8p3", Some(12.0)),
            ("0x1P-2", Some(0.25)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", Some(f64::INFINITY)),
            ("0x1p1024", Some(f64::INFINITY)),
            ("0x1p99999999999999999999", Some(f64::INFINITY)),
            ("0x1fffffffffffffff1p99999999999999999999", Some(f64::INFINITY)),
            ("0xffffffffffffffffffffffffffffffffffffp99999999999999999999", Some(f64::INFINITY)),
            ("0xffffffffffffffffffffffffffffffffffffp-99999999999999999999", Some(0.0)),
            ("0x0p99999999999999999999", Some(0.0)),
            ("0x1p-1074", Some(f64::from_bits(1))),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(f64::from_bits(1))),
            ("0x3p-1075", Some(f64::from_bits(2))),
            ("0x1p-99999999999999999999", Some(0.0)),
            ("0x20000000000001", Some(9_007_199_254_740_992.0)),
            ("0x20000000000001.0000000000000000000000000000001", Some(9_007_199_254_740_994.0)),
            ("0x20000000000003", Some(9_007_199_254_740_996.0)),
            ("0x3fffffffffffff", Some(18_014_398_509_481_984.0)),
            ("0x10000000000000000000000000000000000000000", Some(2f64.powi(160))),
            ("0x", None),
            ("0x.", None),
            ("0x1p", None),
            ("0x1.1.1", None),
            ("0x+1", None),
            ("0xg", None),
            ("1", None),
            ("", None),
        ] {
            assert_eq!(Hexadecimal::parse(text.as_bytes()).map(Hexadecimal::nearest), number, "{text}");
        }
    }
}
