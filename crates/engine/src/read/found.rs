//! What a search for a key finds.

use crate::terms::time::ReadTime;
use forebay_base::{Kind, Record, SequenceNumber};

/// The newest record of a key up to a number, and the newest range deletion over the key that the search met on the
/// way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'r> {
    pub(crate) record: Option<Record<'r>>,
    pub(crate) hidden: Option<SequenceNumber>,
}

/// What is known of a key up to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyState {
    /// The number of the newest write that concerns the key: one of the key itself, or a range deletion over it. Zero
    /// if there is none.
    pub(crate) newest: SequenceNumber,
    /// Whether that write set a value.
    pub(crate) sets: bool,
    /// Whether that write was an operand: then the value also depends on older writes.
    pub(crate) merges: bool,
    pub(crate) expiry_ms: Option<u64>,
}

impl<'r> Found<'r> {
    pub(crate) const NOTHING: Self = Self { record: None, hidden: None };

    /// Returns the record if it gives its key a value. It does not if it is a deletion, has expired, is older than the
    /// range deletion, or [merges](Found::merges).
    #[inline]
    pub(crate) fn with_value(self, time: ReadTime<'_>) -> Option<Record<'r>> {
        let record = self.record?;
        if self.hidden.is_some_and(|hidden| hidden > record.tag.sequence()) || time.is_past(record.expiry_ms) {
            return None;
        }
        match record.tag.kind() {
            Kind::Put => Some(record),
            Kind::Delete | Kind::RangeDelete | Kind::Merge | Kind::Nothing | Kind::Crossing => None,
        }
    }

    /// Whether the record is an operand that is not hidden: then the key's value also depends on older records.
    #[inline]
    pub(crate) fn merges(&self) -> bool {
        self.record.is_some_and(|record| {
            record.tag.kind() == Kind::Merge && self.hidden.is_none_or(|hidden| hidden < record.tag.sequence())
        })
    }

    /// What is known of the key.
    pub(crate) fn state(self) -> KeyState {
        let hidden = self.hidden.unwrap_or(SequenceNumber::ZERO);
        match self.record {
            Some(record) if record.tag.sequence() > hidden => KeyState {
                newest: record.tag.sequence(),
                sets: matches!(record.tag.kind(), Kind::Put | Kind::Merge),
                merges: record.tag.kind() == Kind::Merge,
                expiry_ms: record.expiry_ms,
            },
            _ => KeyState { newest: hidden, sets: false, merges: false, expiry_ms: None },
        }
    }
}
