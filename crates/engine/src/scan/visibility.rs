//! Which entries a scan shows.

use crate::terms::bounds::Bounds;
use crate::terms::time::Horizon;
use crate::tree::range_deletions::RangeDeletions;
use forebay_base::record::is_expired;
use forebay_base::{InternalKey, Kind};
use forebay_table::Direction;

/// Decides what a forward scan shows, entry by entry in order of internal keys: for each key, the newest entry that the
/// scan's number covers, if it sets a value that has not expired.
pub(crate) struct Visibility<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) deletions: &'a RangeDeletions,
    pub(crate) horizon: Horizon,
    /// The key that was decided on last: its further entries are older.
    pub(crate) passed: &'a mut Option<Vec<u8>>,
}

/// What to do with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the value of its key.
    Shown,
    /// It is an operand: the value also depends on older entries of the key.
    Merged,
    /// It is too new, deletes, or has expired. Older entries of the key follow, which it may hide.
    Hidden,
    /// It and all that follows are outside the bounds.
    Outside,
}

impl Visibility<'_> {
    /// Decides on an entry with this expiry.
    #[inline]
    pub(crate) fn decide(&mut self, key: InternalKey<'_>, expiry_ms: Option<u64>) -> Verdict {
        let verdict = self.decide_behind(None, key, expiry_ms);
        if verdict != Verdict::Outside && self.covers(key) {
            self.pass(key.user_key);
        }
        verdict
    }

    /// Decides on an entry that comes after those of the key `last`; `None` stands for the key that was passed. This
    /// does not pass the entry's key.
    #[inline]
    pub(crate) fn decide_behind(&self, last: Option<&[u8]>, key: InternalKey<'_>, expiry_ms: Option<u64>) -> Verdict {
        match last.or(self.passed.as_deref()) {
            Some(last) if is_same(last, key.user_key) => Verdict::Hidden,
            _ => self.decide_new(key, expiry_ms),
        }
    }

    /// Whether the scan's number covers an entry.
    #[inline]
    pub(crate) fn covers(&self, key: InternalKey<'_>) -> bool {
        key.tag.sequence() <= self.horizon.number
    }

    /// Decides on the first entry of a key.
    #[inline]
    fn decide_new(&self, key: InternalKey<'_>, expiry_ms: Option<u64>) -> Verdict {
        if self.bounds.is_left(Direction::Forward, key) {
            Verdict::Outside
        } else if self.covers(key) {
            judge(key, expiry_ms, self.deletions, self.horizon)
        } else {
            Verdict::Hidden
        }
    }

    /// Notes that an entry of `user_key` was decided on, one that the scan's number covers.
    #[inline]
    pub(crate) fn pass(&mut self, user_key: &[u8]) {
        let passed = self.passed.get_or_insert_default();
        passed.clear();
        passed.extend_from_slice(user_key);
    }
}

/// Whether two keys are the same. Keys that follow each other rarely are, and mostly differ in their first or last
/// bytes. So two words mostly settle it, where a full comparison takes a call.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last_chunk::<8>() == b.last_chunk() && a.first_chunk::<8>() == b.first_chunk() && a == b
}

/// Decides on the newest entry of a key that a scan covers.
#[inline]
pub(crate) fn judge(
    key: InternalKey<'_>,
    expiry_ms: Option<u64>,
    deletions: &RangeDeletions,
    horizon: Horizon,
) -> Verdict {
    let is_hidden =
        || deletions.newest_over(key.user_key, horizon.number).is_some_and(|hidden| hidden > key.tag.sequence());
    match key.tag.kind() {
        Kind::Put if !is_expired(expiry_ms, horizon.time_ms) && !is_hidden() => Verdict::Shown,
        Kind::Merge if !is_hidden() => Verdict::Merged,
        _ => Verdict::Hidden,
    }
}
