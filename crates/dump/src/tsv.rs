//! Lines of text with tabs.
//!
//! ```text
//!  key TAB value LF                 a key that stays
//!  key TAB value TAB expiry LF      one that expires: milliseconds since 1970, in decimal digits
//! ```
//!
//! In keys and values these bytes are escaped, so a tab always separates and a line feed always ends:
//!
//! | written | is |
//! |---|---|
//! | `\\` | a backslash |
//! | `\t`, `\n`, `\r` | tab, line feed, carriage return |
//! | `\xHH` | the byte HH: other control characters, and what is not UTF-8 |
//!
//! All other bytes stand for themselves. A reader takes `\xHH` for any byte, and also accepts lines that end in CR LF.
//!
//! What the form is for, and which test pins it: `docs/formats/dump.md`.

use crate::entry::Entry;
use crate::error::{Error, Result};
use std::borrow::Cow;

/// Appends the line of an entry.
pub fn encode(entry: &Entry<'_>, out: &mut Vec<u8>) {
    escape(&entry.key, out);
    out.push(b'\t');
    escape(&entry.value, out);
    if let Some(expiry_ms) = entry.expiry_ms {
        out.push(b'\t');
        out.extend_from_slice(expiry_ms.to_string().as_bytes());
    }
    out.push(b'\n');
}

/// Decodes a line without its end.
///
/// # Errors
/// `Invalid`, which says what a line must have.
pub fn decode(line: &[u8]) -> Result<Entry<'_>> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let (key, value, expiry) = (fields.next(), fields.next(), fields.next());
    let (Some(key), Some(value), None) = (key, value, fields.next()) else {
        return Err(Error::invalid("a line has a key, a tab and a value, and may have a tab and an expiry"));
    };
    let expiry_ms = expiry.map(|digits| {
        let number = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let invalid = || Error::invalid("an expiry is a number of milliseconds since 1970");
        number.and_then(|digits| digits.parse().ok()).ok_or_else(invalid)
    });
    Ok(Entry { key: unescape(key)?, value: unescape(value)?, expiry_ms: expiry_ms.transpose()? })
}

/// Appends bytes as they are written in a field.
pub fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        // Most bytes stand for themselves, and are copied together.
        let mut rest = chunk.valid().as_bytes();
        while let Some(plain) = rest.iter().position(|byte| matches!(byte, b'\\' | 0..=0x1f | 0x7f)) {
            let (before, after) = rest.split_at(plain);
            out.extend_from_slice(before);
            match after.first() {
                Some(b'\\') => out.extend_from_slice(b"\\\\"),
                Some(b'\t') => out.extend_from_slice(b"\\t"),
                Some(b'\n') => out.extend_from_slice(b"\\n"),
                Some(b'\r') => out.extend_from_slice(b"\\r"),
                Some(byte) => escape_byte(*byte, out),
                None => {}
            }
            rest = after.get(1..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
        chunk.invalid().iter().for_each(|byte| escape_byte(*byte, out));
    }
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
}

/// Returns the bytes that a field stands for.
///
/// # Errors
/// `Invalid` for a backslash that begins no escape.
pub fn unescape(field: &[u8]) -> Result<Cow<'_, [u8]>> {
    if !field.contains(&b'\\') {
        return Ok(Cow::Borrowed(field));
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (read, after) = match rest {
            [b'\\', after @ ..] => (b'\\', after),
            [b't', after @ ..] => (b'\t', after),
            [b'n', after @ ..] => (b'\n', after),
            [b'r', after @ ..] => (b'\r', after),
            [b'x', high, low, after @ ..] => {
                let digits = (char::from(*high).to_digit(16), char::from(*low).to_digit(16));
                let (Some(high), Some(low)) = digits else { return Err(begins_nothing()) };
                ((high << 4 | low) as u8, after)
            }
            _ => return Err(begins_nothing()),
        };
        bytes.push(read);
        rest = after;
    }
    Ok(Cow::Owned(bytes))
}

fn begins_nothing() -> Error {
    Error::invalid(r"after a backslash comes \, t, n, r, or x and two hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_lines() {
        for (entry, line) in [
            (Entry::of(b"key", "va\u{e4}ue".as_bytes(), None), "key\tva\u{e4}ue\n"),
            (Entry::of(b"", b"", Some(17)), "\t\t17\n"),
            (Entry::of(b"a\tb\\", b"\n\r\0\xff\x7f", None), "a\\tb\\\\\t\\n\\r\\x00\\xff\\x7f\n"),
        ] {
            let mut out = Vec::new();
            encode(&entry, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), line);
            assert_eq!(decode(line.trim_end_matches('\n').as_bytes()).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in
            ["", "key", "a\tb\tc", "a\tb\t1\t2", "a\tb\t-1", "a\tb\t+1", "a\tb\t", "a\\q\tb", "a\\x1\tb", "a\tb\\"]
        {
            assert!(decode(line.as_bytes()).is_err(), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn all_entries_survive(key: Vec<u8>, value: Vec<u8>, expiry_ms: Option<u64>) {
            let entry = Entry { key: key.into(), value: value.into(), expiry_ms };
            let mut out = Vec::new();
            encode(&entry, &mut out);
            prop_assert_eq!(out.pop(), Some(b'\n'));
            prop_assert!(!out.contains(&b'\n') && std::str::from_utf8(&out).is_ok());
            prop_assert_eq!(decode(&out).unwrap(), entry);
        }

        #[test]
        fn any_line_is_read_without_panic(line: Vec<u8>) {
            let _ = decode(&line);
        }
    }
}
