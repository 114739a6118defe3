//! Decimal numbers that are added without rounding, for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds in the processor's 80-bit format and shows 17 decimals, so that 1000.1 + 0.1 may show digits that nobody
//! wrote. Here the sum of numbers with up to 17 decimals is exact, however large they are. What has more decimals is rounded to
//! 17 before.

use super::number;
use std::cmp::Ordering;

/// Decimals of the result.
const DECIMALS: usize = 17;
/// Longest text of a number, in bytes. Redis refuses longer ones, too.
const MAX_BYTES: usize = 5 << 10;
/// Most digits of a number before its decimals: more than the largest `f64` has.
const MAX_DIGITS: i64 = 400;

/// A number in units of the last decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    /// From the lowest one on; the last one is not 0.
    digits: Vec<u8>,
}

/// The sum as text without superfluous zeros; `None` when one is no number or infinite, or the sum is too large.
#[must_use]
pub fn sum(a: &[u8], b: &[u8]) -> Option<String> {
    let sum = read(a)?.plus(read(b)?).shown();
    number::double(sum.as_bytes()).map(|_| sum)
}

/// Whether this is a number that [`sum`] can add, or infinite.
#[must_use]
pub fn is_number(text: &[u8]) -> bool {
    text.len() < MAX_BYTES && number::double(text).is_some()
}

/// The number that a text is.
fn read(text: &[u8]) -> Option<Decimal> {
    let number = number::double(text).filter(|number| is_number(text) && number.is_finite())?;
    // What is not written in decimals is an integer.
    Decimal::parse(text).or_else(|| Decimal::parse(format!("{number:.0}").as_bytes()))
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Self> {
        let (is_negative, text) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            (b'+', rest) => (false, rest),
            _ => (false, text),
        };
        let mut parts = text.splitn(2, |byte| matches!(byte, b'e' | b'E'));
        let mantissa = parts.next()?;
        let exponent = parts.next().map_or(Some(0), exponent)?;
        let mut parts = mantissa.splitn(2, |byte| *byte == b'.');
        let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
        if !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return None;
        }
        let mut digits: Vec<u8> = fraction.iter().rev().chain(whole.iter().rev()).map(|digit| digit - b'0').collect();
        trim(&mut digits);
        // Places to the left, to count in units of the last decimal.
        let shift = exponent.saturating_add(DECIMALS as i64).saturating_sub(fraction.len() as i64);
        if digits.is_empty() || shift < -(digits.len() as i64) {
            digits.clear();
        } else if shift < 0 {
            let cut: Vec<u8> = digits.drain(..usize::try_from(-shift).ok()?).collect();
            if cut.last().is_some_and(|digit| *digit >= 5) {
                digits = sum_of(&digits, &[1]);
            }
        } else {
            let zeros = usize::try_from(shift).ok().filter(|_| shift <= MAX_DIGITS)?;
            digits.splice(..0, std::iter::repeat_n(0, zeros));
        }
        Some(Self { is_negative, digits })
    }

    fn plus(self, other: Self) -> Self {
        if self.is_negative == other.is_negative {
            return Self { digits: sum_of(&self.digits, &other.digits), ..self };
        }
        let by_size = |a: &[u8], b: &[u8]| a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()));
        let (more, less) = match by_size(&self.digits, &other.digits) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        Self { digits: difference_of(&more.digits, &less.digits), ..more }
    }

    fn shown(&self) -> String {
        let figure = |digit: &u8| char::from(b'0' + digit);
        let fraction = self.digits.get(..DECIMALS.min(self.digits.len())).unwrap_or_default();
        let whole: String = self.digits.iter().skip(DECIMALS).rev().map(figure).collect();
        let zeros = std::iter::repeat_n('0', DECIMALS - fraction.len());
        let fraction: String = zeros.chain(fraction.iter().rev().map(figure)).collect();
        let sign = if self.is_negative && !self.digits.is_empty() { "-" } else { "" };
        let whole = if whole.is_empty() { "0" } else { &whole };
        format!("{sign}{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// What follows an `e`. One that no `i64` holds is as far away as the farthest.
fn exponent(text: &[u8]) -> Option<i64> {
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

/// Takes zeros away that count nothing.
fn trim(digits: &mut Vec<u8>) {
    while digits.last() == Some(&0) {
        digits.pop();
    }
}

fn sum_of(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut digits = Vec::with_capacity(a.len().max(b.len()) + 1);
    let mut carried = 0;
    for place in 0..a.len().max(b.len()) {
        let sum = a.get(place).unwrap_or(&0) + b.get(place).unwrap_or(&0) + carried;
        digits.push(sum % 10);
        carried = sum / 10;
    }
    digits.push(carried);
    trim(&mut digits);
    digits
}

/// `more` is not the smaller one.
fn difference_of(more: &[u8], less: &[u8]) -> Vec<u8> {
    let mut digits = Vec::with_capacity(more.len());
    let mut borrowed = 0;
    for (place, digit) in more.iter().enumerate() {
        let taken = less.get(place).unwrap_or(&0) + borrowed;
        borrowed = u8::from(*digit < taken);
        digits.push(digit + 10 * borrowed - taken);
    }
    trim(&mut digits);
    digits
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
            ("1e300", "1", Some(&format!("1{}1", "0".repeat(299)))),
            ("0e-99999", "1", Some("1")),
            ("1e-99999", "1", Some("1")),
            ("1e-18", "0", Some("0")),
            ("5e-18", "0", Some("0.00000000000000001")),
            ("0.1234567890123456789", "0", Some("0.12345678901234568")),
            ("12345678901234567890123", "0", Some("12345678901234567890123")),
            ("123456789012345678901", "0.1", Some("123456789012345678901.1")),
            ("-100000000000000000000000", "0.5", Some("-99999999999999999999999.5")),
            ("99999999999999999999.99999999999999999", "1e-17", Some("100000000000000000000")),
            ("1e300", "-1e300", Some("0")),
            ("-0", "0", Some("0")),
            ("1.", "1", Some("2")),
            (".5", "1", Some("1.5")),
            ("0x10", "1", Some("17")),
            ("-0x10", "1", Some("-15")),
            ("1e308", "1e308", None),
            ("1e400", "1", None),
            ("1e", "1", None),
            ("1e1e1", "1", None),
            ("1.2.3", "1", None),
            (&"1".repeat(6000), "1", None),
            ("inf", "1", None),
            ("x", "1", None),
            ("", "1", None),
            (".", "1", None),
        ] {
            assert_eq!(sum(a.as_bytes(), b.as_bytes()).as_deref(), expected, "{a} {b}");
        }
    }
}
