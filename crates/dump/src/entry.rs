//! What a dump consists of.

use crate::error::{Error, Result};
use forebay_base::MAX_VALUE_BYTES;
use std::borrow::Cow;
use std::str::FromStr;

/// A key, its value, and when the value expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: Cow<'a, [u8]>,
    /// The value.
    pub value: Cow<'a, [u8]>,
    /// When the value expires, in milliseconds since 1970; `None` for never.
    pub expiry_ms: Option<u64>,
}

impl Entry<'_> {
    /// Refuses what no database takes, and keys longer than `max_key_bytes`.
    pub(crate) fn check(&self, max_key_bytes: usize) -> Result<()> {
        let fits = |what: &str, length: usize, most: usize| {
            if length <= most {
                return Ok(());
            }
            Err(Error::invalid(format!("a {what} of {length} bytes: it may have {most}")))
        };
        fits("key", self.key.len(), max_key_bytes)?;
        fits("value", self.value.len(), MAX_VALUE_BYTES).map_err(|error| error.at(self.key.escape_ascii()))
    }
}

#[cfg(test)]
impl Entry<'static> {
    /// An entry of a test.
    pub(crate) fn of(key: &'static [u8], value: &'static [u8], expiry_ms: Option<u64>) -> Self {
        Self { key: key.into(), value: value.into(), expiry_ms }
    }
}

/// The form of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines of text with tabs.
    Tsv,
    /// Lines of JSON.
    Json,
    /// Binary.
    Binary,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "tsv" => Ok(Self::Tsv),
            "json" | "jsonl" => Ok(Self::Json),
            "binary" => Ok(Self::Binary),
            _ => Err("a form of a dump is tsv, json or binary".to_owned()),
        }
    }
}
