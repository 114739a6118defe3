//! The records of an index.

use crate::error::IndexError;
use forebay_base::InternalKey;

/// Gives an index the keys of its records.
pub trait Records: Copy {
    /// The key of the record at `record` times 8 bytes.
    ///
    /// # Errors
    /// [`IndexError::BadRecord`].
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError>;
}
