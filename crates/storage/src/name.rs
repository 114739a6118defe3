//! Names of objects.

use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use forebay_base::{checksum, envelope_checksum};
use std::fmt;

/// Longest name, in bytes: what S3 takes (1,024), less room for a store's prefix.
pub const MAX_NAME_BYTES: usize = 512;

/// A number in a name has this many digits, so names are ordered as their numbers are.
const DIGITS: usize = 20;

/// The name of an object: parts joined by `/`. A part consists of ASCII letters, digits, `-`, `_`, `=` and `.`, and does
/// not begin with a dot: such names mean the same on all back ends. Names that begin with a dot belong to the back ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    /// The object's identity in its blocks: no other object of the storage has the name.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let bytes = self.as_str().as_bytes();
        u64::from(envelope_checksum(bytes)) << 32 | u64::from(checksum(bytes))
    }

    /// The name `text`.
    ///
    /// # Errors
    /// `Invalid`, which says what a name may be.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.len() <= MAX_NAME_BYTES && text.split('/').all(is_part) {
            return Ok(Self(text));
        }
        let rule = format!(
            "a name has up to {MAX_NAME_BYTES} bytes: parts of letters, digits and `-_=.` that do not begin with a dot, \
             joined by `/`"
        );
        Err(Error::new(ErrorKind::Invalid, "naming", text, rule))
    }

    /// This name with `part` after it.
    ///
    /// # Errors
    /// `Invalid` as for [`ObjectName::new`].
    pub fn join(&self, part: &str) -> Result<Self> {
        Self::new(format!("{}/{part}", self.0))
    }

    /// This name with `number` after it, so that the order of names is that of numbers.
    ///
    /// # Errors
    /// `Invalid` when the name becomes too long.
    pub fn numbered(&self, number: u64) -> Result<Self> {
        self.join(&format!("{number:0DIGITS$}"))
    }

    /// The number that [`ObjectName::numbered`] put after `prefix`; `None` for any other name.
    #[must_use]
    pub fn number_after(&self, prefix: &Self) -> Option<u64> {
        number(self.after(prefix)?)
    }

    /// The text after `prefix/`.
    #[must_use]
    pub fn after(&self, prefix: &Self) -> Option<&str> {
        self.0.strip_prefix(prefix.as_str())?.strip_prefix('/')
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder of the name; empty for a name of one part.
    pub(crate) fn folder(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses `text` as a number with as many digits as numbers in names have.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_number = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn is_part(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte);
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_different_things_somewhere_are_refused() {
        for bad in ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/.tmp", "a b", "a\\b", "ä", "a\0", "a%20b"] {
            assert_eq!(ObjectName::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        assert!(ObjectName::new("x".repeat(MAX_NAME_BYTES + 1)).is_err());
        for good in ["a", "a/b/c", "0-9_A=z.x", "a.log"] {
            assert_eq!(ObjectName::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn numbers_are_read_back_in_order() {
        let prefix = ObjectName::new("commit").unwrap();
        let names = [0, 9, 10, u64::MAX].map(|number| prefix.numbered(number).unwrap());
        assert!(names.is_sorted());
        assert_eq!(names[3].number_after(&prefix), Some(u64::MAX));
        assert_eq!(names[1].as_str(), "commit/00000000000000000009");
        for other in
            ["commit/9", "commit/0000000000000000000x", "commit/99999999999999999999", "other/00000000000000000009"]
        {
            assert_eq!(ObjectName::new(other).unwrap().number_after(&prefix), None, "{other}");
        }
    }
}
