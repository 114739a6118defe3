//! Ids as clients write them.

use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::streams::StreamId;

const INVALID: Failure = Failure::text("ERR Invalid stream ID specified as stream command argument");
/// Ids are shorter than this, in bytes.
const MAX_BYTES: usize = 128;

/// A number as C reads it: with spaces and a sign in front, which wraps it around.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(number) = crate::text::number::integer(text) {
        return u64::try_from(number).ok();
    }
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// What an id of `XADD` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewId {
    /// The server chooses everything.
    Any,
    /// The server chooses the sequence.
    At(u64),
    /// The server chooses nothing.
    Exactly(StreamId),
}

/// The two parts of an id; the second one may be missing.
fn parts(text: &[u8]) -> Outcome<(u64, Option<&[u8]>)> {
    if text.len() >= MAX_BYTES {
        return Err(INVALID);
    }
    match text.iter().position(|&byte| byte == b'-') {
        Some(at) => {
            let (ms, sequence) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
            Ok((number(ms).ok_or(INVALID)?, Some(sequence)))
        }
        None => Ok((number(text).ok_or(INVALID)?, None)),
    }
}

/// Reads an id; `missing` replaces a missing sequence.
pub(super) fn exact(text: &[u8], missing: u64) -> Outcome<StreamId> {
    let (ms, sequence) = parts(text)?;
    let sequence = sequence.map_or(Some(missing), number).ok_or(INVALID)?;
    Ok(StreamId { ms, sequence })
}

/// As [`exact`]; `-` and `+` are the least and the greatest id.
pub(super) fn any(text: &[u8], missing: u64) -> Outcome<StreamId> {
    match text {
        b"-" => Ok(StreamId::LEAST),
        b"+" => Ok(StreamId::MOST),
        _ => exact(text, missing),
    }
}

/// An id of an entry to be added.
pub(super) fn new(text: &[u8]) -> Outcome<NewId> {
    if text == b"*" {
        return Ok(NewId::Any);
    }
    match parts(text)? {
        (ms, Some(b"*")) => Ok(NewId::At(ms)),
        _ => exact(text, 0).map(NewId::Exactly),
    }
}

/// Reads the first id of a range. After a parenthesis, the range begins after this id.
pub(super) fn first(text: &[u8]) -> Outcome<StreamId> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = exact(id, 0)?;
            id.next().ok_or(Failure::text("ERR invalid start ID for the interval"))
        }
        _ => any(text, 0),
    }
}

/// Reads the last id of a range. After a parenthesis, the range ends before this id.
pub(super) fn last(text: &[u8]) -> Outcome<StreamId> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = exact(id, u64::MAX)?;
            id.previous().ok_or(Failure::text("ERR invalid end ID for the interval"))
        }
        _ => any(text, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, sequence| Some(StreamId { ms, sequence });
        for (text, expected) in [
            ("5", id(5, 9)),
            ("5-3", id(5, 3)),
            ("18446744073709551615-18446744073709551615", Some(StreamId::MOST)),
            ("18446744073709551616", None),
            ("05-+3", id(5, 3)),
            ("-", Some(StreamId::LEAST)),
            ("+", Some(StreamId::MOST)),
            ("", None),
            ("x", None),
            ("5-", None),
            ("5-x", None),
            ("5-*", None),
            ("-5", None),
            ("5--5", None),
        ] {
            assert_eq!(any(text.as_bytes(), 9).ok(), expected, "{text}");
        }
        assert_eq!(new(b"*"), Ok(NewId::Any));
        assert_eq!(new(b"7-*"), Ok(NewId::At(7)));
        assert_eq!(new(b"7"), Ok(NewId::Exactly(StreamId { ms: 7, sequence: 0 })));
        assert!(new(b"-").is_err() && first(b"(-").is_err());
        assert_eq!(first(b"(5").ok(), id(5, 1));
        assert_eq!(last(b"(5-0").ok(), id(4, u64::MAX));
    }
}
