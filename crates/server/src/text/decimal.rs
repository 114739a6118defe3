//! Decimal numbers that are added without rounding, for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds in the processor's 80-bit format and shows 17 decimals, so that 1000.1 + 0.1 may show digits that nobody
//! wrote. Here the sum of numbers with up to 17 decimals is exact, however large they are. Numbers with more decimals
//! are rounded to 17 first. Numbers outside the range of the 80-bit format are not accepted here either.

use super::hexadecimal::{Hexadecimal, exponent};
use std::cmp::Ordering;

/// Decimals of the result.
const DECIMALS: usize = 17;
/// Longest text of a number, in bytes. Redis also refuses longer ones.
const MAX_BYTES: usize = 5 << 10;
/// Most digits of a number before its decimals: those of the largest of 80 bits.
const MAX_DIGITS: usize = 4933;
/// The first digits of that number.
const LARGEST: &[u8] = b"118973149535723176502";
/// For the smallest number that is still nearer to the least 80-bit number than to zero: the place of its first digit,
/// counted from the decimal point, and its first digits.
const LEAST: (i64, &[u8]) = (-4951, b"182259976594123730");
/// Bits of the mantissa of a number of 80 bits, its least exponent, and where its highest bit must be below.
const BITS: (u32, i64, i64) = (64, -16445, 16384);

/// A number in units of the last decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Digits from the lowest on; the last one is not 0.
    digits: Vec<u8>,
}

/// The value of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Number {
    /// A number.
    Finite(Decimal),
    /// `inf` and its like.
    Infinite,
}

impl Number {
    /// Reads a text; `None` when it is no number.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= MAX_BYTES {
            return None;
        }
        let (is_negative, text) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            (b'+', rest) => (false, rest),
            _ => (false, text),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
            return Some(Self::Infinite);
        }
        let digits = match Hexadecimal::parse(text) {
            Some(number) => digits_of_hexadecimal(number)?,
            None => digits_of_decimal(text)?,
        };
        Some(Self::Finite(Decimal { is_negative, digits }))
    }

    /// The sum as text without superfluous zeros; `None` when it is infinite.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<String> {
        let (Self::Finite(a), Self::Finite(b)) = (self, other) else { return None };
        let sum = a.plus(b);
        is_in_range(&sum.digits).then(|| sum.shown())
    }
}

impl Number {
    /// Returns the number of thousandths, rounded up; `None` when 64 bits do not hold it.
    #[must_use]
    pub fn thousandths_up(&self) -> Option<i64> {
        let Self::Finite(Decimal { is_negative, digits }) = self else { return None };
        let (parts, thousandths) = digits.split_at(digits.len().min(DECIMALS - 3));
        let number = thousandths
            .iter()
            .rev()
            .try_fold(0_i64, |number, digit| number.checked_mul(10)?.checked_add(i64::from(*digit)))?;
        let has_part = parts.iter().any(|digit| *digit > 0);
        if *is_negative { Some(-number) } else { number.checked_add(i64::from(has_part)) }
    }
}

/// The digits of a number that is written in decimals, without its sign.
fn digits_of_decimal(text: &[u8]) -> Option<Vec<u8>> {
    let mut parts = text.splitn(2, |byte| matches!(byte, b'e' | b'E'));
    let mantissa = parts.next()?;
    let exponent = parts.next().map_or(Some(0), exponent)?;
    let mut parts = mantissa.splitn(2, |byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    if (whole.is_empty() && fraction.is_empty()) || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let mut digits: Vec<u8> = fraction.iter().rev().chain(whole.iter().rev()).map(|digit| digit - b'0').collect();
    trim(&mut digits);
    if digits.is_empty() {
        return Some(digits);
    }
    // The place of the lowest digit, and of the first.
    let lowest = exponent.saturating_sub(fraction.len() as i64);
    let first = lowest.saturating_add(digits.len() as i64 - 1);
    let is_zero =
        first < LEAST.0 || (first == LEAST.0 && first_digits(&digits, LEAST.1.len()).lt(LEAST.1.iter().copied()));
    if is_zero || first >= MAX_DIGITS as i64 {
        return None;
    }
    // How many places to shift left, to count in units of the last decimal.
    let shift = lowest + DECIMALS as i64;
    if shift < -(digits.len() as i64) {
        digits.clear();
    } else if shift < 0 {
        let cut: Vec<u8> = digits.drain(..usize::try_from(-shift).ok()?).collect();
        if cut.last().is_some_and(|digit| *digit >= 5) {
            digits = sum_of(&digits, &[1]);
        }
    } else {
        digits.splice(..0, std::iter::repeat_n(0, usize::try_from(shift).ok()?));
    }
    is_in_range(&digits).then_some(digits)
}

/// The digits of the nearest number of 80 bits.
fn digits_of_hexadecimal(number: Hexadecimal) -> Option<Vec<u8>> {
    let (bits, least, end) = BITS;
    let (mantissa, exponent) = number.rounded(bits, least);
    if mantissa == 0 {
        return number.is_zero().then(Vec::new);
    }
    if exponent.saturating_add(i64::from(u64::BITS - mantissa.leading_zeros())) > end {
        return None;
    }
    let units = u128::from(mantissa) * 10_u128.pow(DECIMALS as u32);
    if exponent >= 0 {
        let mut digits = digits_of(units);
        (0..exponent).step_by(TWOS as usize).for_each(|done| times_twos(&mut digits, (exponent - done).min(TWOS)));
        return Some(digits);
    }
    let below = |places: i64| u32::try_from(places).ok().and_then(|places| units.checked_shr(places)).unwrap_or(0);
    Some(digits_of(below(-exponent) + (below(-exponent - 1) & 1)))
}

fn digits_of(mut number: u128) -> Vec<u8> {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push((number % 10) as u8);
        number /= 10;
    }
    digits
}

/// Most factors of two that are multiplied at once.
const TWOS: i64 = 16;

/// Multiplies by up to [`TWOS`] factors of two.
fn times_twos(digits: &mut Vec<u8>, factors: i64) {
    let mut carried = 0;
    for digit in digits.iter_mut() {
        let product = (u32::from(*digit) << factors) + carried;
        *digit = (product % 10) as u8;
        carried = product / 10;
    }
    digits.extend(digits_of(carried.into()));
}

/// Whether a number of this size fits into the range of 80 bits.
fn is_in_range(digits: &[u8]) -> bool {
    let most = MAX_DIGITS + DECIMALS;
    digits.len() < most || (digits.len() == most && first_digits(digits, LARGEST.len()).le(LARGEST.iter().copied()))
}

/// The first digits as text.
fn first_digits(digits: &[u8], count: usize) -> impl Iterator<Item = u8> {
    digits.iter().rev().take(count).map(|digit| digit + b'0')
}

impl Decimal {
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

/// Removes leading zeros, which count nothing.
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

/// Subtracts `less` from `more`, which is not the smaller one.
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

    fn sum(a: &[u8], b: &[u8]) -> Option<String> {
        Number::parse(a)?.plus(Number::parse(b)?)
    }

    #[test]
    fn thousandths_are_rounded_up() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1.5", Some(1500)),
            ("0.0001", Some(1)),
            ("0.001", Some(1)),
            ("0.0010000000001", Some(2)),
            ("-0.0019", Some(-1)),
            ("0x1p3", Some(8000)),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.8071", None),
            ("9223372036854775.808", None),
            ("1e400", None),
            ("-1e400", None),
            ("inf", None),
        ] {
            assert_eq!(Number::parse(text.as_bytes()).unwrap().thousandths_up(), expected, "{text}");
        }
    }

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
            ("1e-400", "1", Some("1")),
            ("2e-4951", "1", Some("1")),
            ("1e-4951", "1", None),
            ("1e-4952", "1", None),
            ("1e-99999", "1", None),
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
            ("1e308", "1e308", Some(&format!("2{}", "0".repeat(308)))),
            ("1e4932", "1", Some(&format!("1{}1", "0".repeat(4931)))),
            ("1e4932", "1e4932", None),
            ("1.2e4932", "1", None),
            ("1e4933", "1", None),
            ("1e99999999999999999999", "1", None),
            ("0xffffffffffffffffffffffff", "0", Some("79228162514264337593543950336")),
            ("-0x123456789abcdef01234", "0", Some("-85968058283706962419712")),
            ("0x1.8p3", "0x.4", Some("12.25")),
            ("0x1p-57", "0", Some("0.00000000000000001")),
            ("0x1p-200", "1", Some("1")),
            ("0x1p200", "0", Some("1606938044258990275541962092341162602522202993782792835301376")),
            ("0x1p16384", "0", None),
            ("0x1p-16446", "1", None),
            ("0x", "1", None),
            ("0x1p", "1", None),
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
