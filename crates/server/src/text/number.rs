//! Numbers as text, in the one form that Redis reads and writes.

use super::hexadecimal::Hexadecimal;

/// A signed integer of 64 bits in the shortest decimal form: no plus sign, no spaces, no leading zeros.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    match digits.first()? {
        b'0' => return (digits.len() == 1 && !negative).then_some(0),
        b'1'..=b'9' if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: i64 = 0;
    for digit in digits {
        let value = i64::from(digit.checked_sub(b'0').filter(|value| *value <= 9)?);
        number = number.checked_mul(10)?.checked_sub(value)?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// An unsigned integer of 64 bits, in the same form.
#[must_use]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] if text.iter().all(u8::is_ascii_digit) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Reads a floating-point number: decimal, hexadecimal or `inf`, never `nan`, no spaces. A number outside the range of
/// the format, too large or too near to zero, is refused.
#[must_use]
pub fn double(text: &[u8]) -> Option<f64> {
    let (number, is_in_range) = nearest(text)?;
    is_in_range.then_some(number)
}

/// Reads a floating-point number as C's function gives it to a caller that checks nothing else: up to a zero byte, with
/// spaces in front. An empty text is zero, and a number that is too large or too near to zero becomes infinite or zero.
#[must_use]
pub fn double_of_c(text: &[u8]) -> Option<f64> {
    of_c(text).map(|(number, _)| number)
}

/// The same for a caller that also refuses numbers that are too large or too near to zero.
#[must_use]
pub fn double_of_c_in_range(text: &[u8]) -> Option<f64> {
    of_c(text).filter(|(_, is_in_range)| *is_in_range).map(|(number, _)| number)
}

fn of_c(text: &[u8]) -> Option<(f64, bool)> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let spaces = text.iter().take_while(|&&byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    if text.is_empty() { Some((0.0, true)) } else { nearest(text.get(spaces..)?) }
}

/// Returns the number nearest to a text's value, which may be infinite or zero, and whether the value is in the range
/// of the format.
fn nearest(text: &[u8]) -> Option<(f64, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !matches!(unsigned.bytes().next()?, b'0'..=b'9' | b'.' | b'i' | b'I') {
        return None;
    }
    if let Some(exact) = Hexadecimal::parse(unsigned.as_bytes()) {
        let number = exact.nearest();
        let is_in_range = number.is_finite() && (number == 0.0) == exact.is_zero();
        return Some((if text.starts_with('-') { -number } else { number }, is_in_range));
    }
    let number: f64 = text.parse().ok()?;
    let is_named = matches!(unsigned.bytes().next()?, b'i' | b'I');
    let mut figures = unsigned.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_in_range = is_named || (number.is_finite() && (number != 0.0 || !figures.any(|byte| byte > b'0')));
    Some((number, is_in_range))
}

/// Appends the decimal form.
pub fn push_integer(bytes: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        if let Some(place) = digits.get_mut(at) {
            *place = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        bytes.push(b'-');
    }
    bytes.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// The decimal form.
#[must_use]
pub fn integer_text(number: i64) -> Vec<u8> {
    let mut text = Vec::with_capacity(20);
    push_integer(&mut text, number);
    text
}

/// A floating-point number with up to 17 significant digits, as C's `%.17g` shows it.
#[must_use]
pub fn double_text(number: f64) -> String {
    general_text(number, 17)
}

/// A floating-point number with up to this many significant digits, at least one, as C's `%.*g` shows it.
#[must_use]
pub fn general_text(number: f64, digits: usize) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if number.is_nan() {
        return "nan".into();
    }
    if digits == 17 && number == number.trunc() && number.abs() < 1e17 && !(number == 0.0 && number.is_sign_negative())
    {
        return format!("{number:.0}");
    }
    let places = digits.saturating_sub(1);
    let scientific = format!("{number:.places$e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    if (-4..most).contains(&exponent) {
        let decimals = usize::try_from(most - 1 - exponent).unwrap_or(0);
        let fixed = format!("{number:.decimals$}");
        return trimmed(&fixed).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Removes zeros at the end of the fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_have_one_form() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999999", None),
            ("+1", None),
            ("01", None),
            ("-0", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("1a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
        }
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"-1"), None);
    }

    #[test]
    fn doubles_are_shown_as_c_shows_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (1.7e308, "1.6999999999999999e+308"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }

    #[test]
    fn doubles_are_read_as_c_reads_them() {
        for (text, number) in [
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e3", Some(1000.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Inf", Some(f64::NEG_INFINITY)),
            ("+infinity", Some(f64::INFINITY)),
            ("0x10", Some(16.0)),
            ("-0x1.8p1", Some(-3.0)),
            ("0x123456789abcdef0123", Some(5_373_003_642_731_685_000_000.0)),
            ("5e-324", Some(5e-324)),
            ("0e-400", Some(0.0)),
            ("-0.00", Some(-0.0)),
            ("nan", None),
            ("-nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("-0.1e-999", None),
            ("0x1p1024", None),
            ("0x1p-2000", None),
            ("+-1", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("abc", None),
        ] {
            assert_eq!(double(text.as_bytes()), number, "{text}");
        }
        for (text, number, in_range) in [
            ("", Some(0.0), Some(0.0)),
            (" 1", Some(1.0), Some(1.0)),
            ("\t\x0b\r\n-2", Some(-2.0), Some(-2.0)),
            ("3\0x", Some(3.0), Some(3.0)),
            ("1e400", Some(f64::INFINITY), None),
            ("-1e-400", Some(0.0), None),
            ("inf", Some(f64::INFINITY), Some(f64::INFINITY)),
            (" ", None, None),
            ("1 ", None, None),
            ("nan", None, None),
        ] {
            assert_eq!(double_of_c(text.as_bytes()), number, "{text}");
            assert_eq!(double_of_c_in_range(text.as_bytes()), in_range, "{text}");
        }
    }

    proptest! {
        #[test]
        fn integers_survive(number: i64) {
            prop_assert_eq!(integer(&integer_text(number)), Some(number));
        }

        #[test]
        fn doubles_survive(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(double(double_text(number).as_bytes()), Some(number));
        }
    }
}
