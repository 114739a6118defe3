//! What a source of a scan finds: where an entry's value is.

use crate::remote::spot::Spot;
use forebay_base::{LogicalAddress, RecordHeader, Tag};
use forebay_fabric::Slot;
use forebay_table::merge::Rival;
use std::ops::Range;
use std::sync::Arc;

/// At most this many entries of a batch come from one source that streams, so that what was verified is still in the
/// cache.
pub(crate) const MAX_STREAMED: usize = 64;

/// Whether a source that moves to this key still comes before its rival.
#[inline]
pub(crate) fn goes_on(rival: Option<Rival>, user_key: &[u8]) -> bool {
    rival.is_none_or(|rival| rival.is_behind(user_key))
}

/// The result of filling a batch from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The source advanced.
    Some,
    /// The source streamed, and no other source has an entry: the batch should have [`MAX_STREAMED`] entries.
    Streamed,
    /// The source passed all that is shown.
    End,
}

/// Where an entry's value is.
pub(crate) enum Location<'s> {
    /// Here.
    Local(&'s [u8]),
    /// In a record of a chunk that was streamed.
    Chunk { chunk: &'s Arc<Slot>, record: &'s RunRecord },
    /// In a record of remote memory or of storage.
    Remote {
        /// For error messages.
        logical: LogicalAddress,
        /// Where the record starts, to read it.
        spot: Spot,
        /// Length of the record, without padding.
        length: u32,
        /// Number and kind that the record must have.
        tag: Tag,
    },
}

/// Where a record's parts are in the bytes that it was streamed into.
#[derive(Debug, Clone)]
pub(crate) struct RunRecord {
    pub(crate) tag: Tag,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl RunRecord {
    /// Returns the expiry, which is before the key in the bytes that the record was streamed into.
    #[inline]
    pub(crate) fn expiry_ms(&self, bytes: &[u8]) -> Option<u64> {
        if !self.tag.has_expiry() {
            return None;
        }
        let before = bytes.get(..self.key.start)?;
        before.last_chunk().map(|expiry| u64::from_le_bytes(*expiry))
    }

    /// Returns the record of `header`, which begins at `start`.
    #[inline]
    pub(crate) fn new(header: &RecordHeader, start: usize) -> Self {
        let key = start + header.key_offset..start + header.key_offset + header.key_length;
        let value = key.end..key.end + header.value_length;
        Self { tag: header.tag, key, value }
    }
}
