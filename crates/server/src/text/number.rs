//! Numbers as text, in the one form that Redis reads and writes.

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

/// A floating-point number: decimal or `inf`, never `nan`, no spaces.
#[must_use]
pub fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let first = text.bytes().next()?;
    if !matches!(first, b'0'..=b'9' | b'+' | b'-' | b'.' | b'i' | b'I') {
        return None;
    }
    if let Some(number) = hexadecimal(text) {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    let named = text.bytes().any(|byte| matches!(byte, b'i' | b'I'));
    // What overflows is refused, unless it was said.
    (!number.is_nan() && (named || number.is_finite())).then_some(number)
}

/// `0x1F`, with a sign: C's functions read it too.
fn hexadecimal(text: &str) -> Option<f64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"))?;
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))? as f64;
    Some(if negative { -number } else { number })
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

/// Without zeros at the end of the fraction.
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
            ("nan", None),
            ("1e400", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("abc", None),
        ] {
            assert_eq!(double(text.as_bytes()), number, "{text}");
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
