//! Lines of JSON: one object each.
//!
//! ```text
//!  {"key":"a","value":"b"}
//!  {"key":"a","value_base64":"/w==","expiry_ms":1700000000000}
//! ```
//!
//! | field | is |
//! |---|---|
//! | `key` or `key_base64` | the key: as text where it is UTF-8, else in base64 (RFC 4648, section 4, padded) |
//! | `value` or `value_base64` | the value, the same |
//! | `expiry_ms` | until when, in milliseconds since 1970; absent for ever |
//!
//! The name of the field tells text from base64, so nothing is ambiguous. A reader also accepts base64 where text would
//! do. It refuses both fields, neither, and fields that it does not know.
//!
//! What the form is for, and which test pins it: `docs/formats/dump.md`.

use crate::entry::Entry;
use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiry_ms: Option<u64>,
}

/// Appends the line of an entry.
///
/// # Errors
/// None: an entry has a line.
pub fn encode(entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<()> {
    let (key, key_base64) = fields(&entry.key);
    let (value, value_base64) = fields(&entry.value);
    let line = Line { key, key_base64, value, value_base64, expiry_ms: entry.expiry_ms };
    serde_json::to_writer(&mut *out, &line).map_err(|cause| Error::invalid(cause.to_string()))?;
    out.push(b'\n');
    Ok(())
}

/// Bytes as text, or in base64.
fn fields(bytes: &[u8]) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes).into())),
    }
}

/// Decodes a line.
///
/// # Errors
/// `Invalid`, which says what is wrong with the line.
pub fn decode(line: &[u8]) -> Result<Entry<'_>> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|cause| {
        // The parser counts the lines of its input, which is one line.
        let (text, column) = (cause.to_string(), cause.column());
        let place = format!(" at line {} column {column}", cause.line());
        Error::invalid(format!("{}, at column {column}", text.strip_suffix(&place).unwrap_or(&text)))
    })?;
    let key = bytes("key", line.key, line.key_base64)?;
    let value = bytes("value", line.value, line.value_base64)?;
    Ok(Entry { key, value, expiry_ms: line.expiry_ms })
}

fn bytes<'a>(name: &str, text: Option<Cow<'a, str>>, base64: Option<Cow<'a, str>>) -> Result<Cow<'a, [u8]>> {
    match (text, base64) {
        (Some(Cow::Borrowed(text)), None) => Ok(text.as_bytes().into()),
        (Some(Cow::Owned(text)), None) => Ok(text.into_bytes().into()),
        (None, Some(base64)) => match STANDARD.decode(base64.as_bytes()) {
            Ok(bytes) => Ok(bytes.into()),
            Err(cause) => Err(Error::invalid(format!("{name}_base64: {cause}"))),
        },
        _ => Err(Error::invalid(format!("a line has either {name} or {name}_base64"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_lines() {
        for (entry, line) in [
            (Entry::of(b"key", "\u{e4}\"\n".as_bytes(), None), "{\"key\":\"key\",\"value\":\"\u{e4}\\\"\\n\"}\n"),
            (Entry::of(b"\xff", b"", Some(17)), "{\"key_base64\":\"/w==\",\"value\":\"\",\"expiry_ms\":17}\n"),
        ] {
            let mut out = Vec::new();
            encode(&entry, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), line);
            assert_eq!(decode(line.as_bytes()).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in [
            "",
            "{}",
            "[]",
            r#"{"key":"a"}"#,
            r#"{"key":"a","value":1}"#,
            r#"{"key":"a","key_base64":"YQ==","value":""}"#,
            r#"{"key":"a","value_base64":"?"}"#,
            r#"{"key":"a","value":"","other":1}"#,
            r#"{"key":"a","value":"","expiry_ms":-1}"#,
            r#"{"key":"a","value":""} x"#,
        ] {
            assert!(decode(line.as_bytes()).is_err(), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn all_entries_survive(key: Vec<u8>, value: Vec<u8>, text: String, expiry_ms: Option<u64>) {
            for (key, value) in [(&key[..], &value[..]), (text.as_bytes(), &value[..]), (&key[..], text.as_bytes())] {
                let entry = Entry { key: key.into(), value: value.into(), expiry_ms };
                let mut out = Vec::new();
                encode(&entry, &mut out).unwrap();
                prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
                prop_assert_eq!(decode(&out).unwrap(), entry);
            }
        }

        #[test]
        fn any_line_is_read_without_panic(line: Vec<u8>) {
            let _ = decode(&line);
        }
    }
}
