//! A signed name: what it allows, and the requests that do it.

use crate::error::Result;
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// What a signed name allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permit {
    /// Reading the object, also by ranges.
    Read,
    /// Putting the object.
    Write,
}

/// A URL whose holder may do one thing to one object, for a limited time. The part that is shown in logs is not enough
/// for that.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedUrl(String);

impl SignedUrl {
    /// The secret `url`.
    #[must_use]
    pub const fn new(url: String) -> Self {
        Self(url)
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The secret, to be passed on.
    #[must_use]
    pub fn into_secret(self) -> String {
        self.0
    }
}

impl fmt::Debug for SignedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignedUrl")
    }
}

/// The requests that signed names allow. `object` is its name in errors.
pub(super) trait Requests: Send + Sync + fmt::Debug {
    /// Reads ranges, none of them empty, at the same time.
    fn read(&self, object: &str, url: &SignedUrl, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>>;

    /// Bytes of the object.
    fn size(&self, object: &str, url: &SignedUrl) -> Result<u64>;

    /// Puts the object.
    fn put(&self, object: &str, url: &SignedUrl, bytes: Bytes) -> Result<()>;
}
