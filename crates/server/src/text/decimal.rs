//! Decimal numbers that are added without rounding, for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds in the processor's 80-bit format and shows 17 decimals, so that 1000.1 + 0.1 may show digits that nobody
//! wrote. Here the sum of numbers with up to 17 decimals is exact. Numbers outside of what 128 bits hold are added as
//! `f64`.

use super::number;

/// Decimals of the result.
const DECIMALS: u32 = 17;

/// The sum as text without superfluous zeros; `None` when it is no number or too large.
#[must_use]
pub fn sum(a: &[u8], b: &[u8]) -> Option<String> {
    if let (Some(a), Some(b)) = (fixed(a), fixed(b)) {
        return a.checked_add(b).map(shown);
    }
    let sum = number::double(a)? + number::double(b)?;
    sum.is_finite().then(|| plain(sum))
}

/// Whether this is a number that [`sum`] can add.
#[must_use]
pub fn is_number(text: &[u8]) -> bool {
    fixed(text).is_some() || number::double(text).is_some()
}

/// The number times 10 to the power of [`DECIMALS`]; `None` when it is not one, has more decimals or is too large.
fn fixed(text: &[u8]) -> Option<i128> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let split = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match split {
        Some(at) => {
            let exponent = text.get(at + 1..)?;
            let exponent = exponent.strip_prefix(b"+").unwrap_or(exponent);
            (text.get(..at)?, std::str::from_utf8(exponent).ok()?.parse::<i32>().ok()?)
        }
        None => (text, 0),
    };
    let (mut value, mut shift, mut point, mut digits) = (0_i128, i64::from(DECIMALS) + i64::from(exponent), false, 0);
    for &byte in mantissa {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                value = value.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
                shift -= i64::from(point);
            }
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    if digits == 0 {
        return None;
    }
    while shift < 0 && value % 10 == 0 {
        value /= 10;
        shift += 1;
        if value == 0 {
            shift = 0;
        }
    }
    let factor = 10_i128.checked_pow(u32::try_from(shift).ok()?)?;
    let value = value.checked_mul(factor)?;
    Some(if negative { -value } else { value })
}

fn shown(value: i128) -> String {
    let unit = 10_u128.pow(DECIMALS);
    let (whole, rest) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
    let sign = if value < 0 { "-" } else { "" };
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{rest:017}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

/// A number without an exponent, with up to 17 decimals.
#[must_use]
pub fn plain(number: f64) -> String {
    if number == number.trunc() {
        return format!("{number:.0}");
    }
    let text = format!("{number:.17}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        for (a, b, expected) in [
            ("10.50", "0.1", Some("10.6")),
            ("0.1", "0.2", Some("0.3")),
            ("1000.1", "0.1", Some("1000.2")),
            ("5.0e3", "2.0e2", Some("5200")),
            ("-1", "0.5", Some("-0.5")),
            ("3", "-3", Some("0")),
            ("1e-17", "0", Some("0.00000000000000001")),
            ("1e300", "0", Some(&format!("{:.0}", 1e300))),
            ("0e-99999", "1", Some("1")),
            ("inf", "1", None),
            ("x", "1", None),
            ("", "1", None),
            (".", "1", None),
        ] {
            assert_eq!(sum(a.as_bytes(), b.as_bytes()).as_deref(), expected, "{a} {b}");
        }
    }
}
