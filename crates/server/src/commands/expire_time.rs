//! When keys expire, as commands say it.

use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::text::number;

/// The meaning of a number that gives a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Milliseconds of one unit.
    pub ms: i64,
    /// Whether the number counts from 1970, not from now.
    pub is_absolute: bool,
}

/// Seconds from now.
pub const EX: Unit = Unit { ms: 1000, is_absolute: false };
/// Milliseconds from now.
pub const PX: Unit = Unit { ms: 1, is_absolute: false };
/// Seconds since 1970.
pub const EXAT: Unit = Unit { ms: 1000, is_absolute: true };
/// Milliseconds since 1970.
pub const PXAT: Unit = Unit { ms: 1, is_absolute: true };

/// Units by the words of `SET` and `GETEX`.
pub const WORDS: [(&str, Unit); 4] = [("EX", EX), ("PX", PX), ("EXAT", EXAT), ("PXAT", PXAT)];

/// The error for a time that is not possible.
#[must_use]
pub fn invalid(command: &str) -> Failure {
    Failure::new(format!("ERR invalid expire time in '{command}' command"))
}

/// Returns a time in milliseconds since 1970, which may be before 1970.
///
/// # Errors
/// When it is no number or too large.
pub fn moment(cx: &Context<'_, '_>, text: &[u8], unit: Unit, command: &str) -> Outcome<i64> {
    let number = number::integer(text).ok_or(Failure::NOT_INTEGER)?;
    let ms = number.checked_mul(unit.ms).ok_or_else(|| invalid(command))?;
    if unit.is_absolute {
        return Ok(ms);
    }
    ms.checked_add_unsigned(cx.keys.now_ms()).ok_or_else(|| invalid(command))
}

/// As [`moment`], for a number that must be positive.
///
/// # Errors
/// See [`moment`]; when it is not positive.
pub fn positive(cx: &Context<'_, '_>, text: &[u8], unit: Unit, command: &str) -> Outcome<u64> {
    if number::integer(text).is_some_and(|number| number <= 0) {
        return Err(invalid(command));
    }
    Ok(stored(moment(cx, text, unit, command)?))
}

/// Returns a time as headers store it.
#[must_use]
pub fn stored(moment_ms: i64) -> u64 {
    u64::try_from(moment_ms).unwrap_or(0)
}
