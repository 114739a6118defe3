//! How far a group has read: how many entries were added up to an id.
//!
//! A group counts what it reads. The count becomes unknown after the group was set to some id in the middle, or after a
//! deleted entry. At ids for which the count is known, the group knows it again.

use crate::keyspace::header::Stream;
use crate::keyspace::streams::{Group, StreamId};

/// Whether an entry at this id or later may have been deleted that is not before all others; `first` is the id of the
/// first entry.
pub(super) fn has_gap_from(stream: &Stream, first: StreamId, id: StreamId) -> bool {
    stream.entries > 0 && stream.deleted != StreamId::LEAST && first.max(id) <= stream.deleted
}

/// Returns how many entries were added up to an id, if that is known; `first` is the id of the first entry.
pub(super) fn added_up_to(stream: &Stream, first: StreamId, id: StreamId) -> Option<u64> {
    if stream.added == 0 {
        return Some(0);
    }
    if (stream.entries == 0 && id <= stream.last) || id == stream.last {
        return Some(stream.added);
    }
    if id > stream.last || (stream.deleted != StreamId::LEAST && stream.deleted >= first) {
        return None;
    }
    let before = stream.added.saturating_sub(stream.entries);
    match id.cmp(&first) {
        std::cmp::Ordering::Less => Some(before),
        std::cmp::Ordering::Equal => Some(before + 1),
        std::cmp::Ordering::Greater => None,
    }
}

/// Returns how many entries a group has not read, if that is known; `first` is the id of the first entry.
pub(super) fn lag(stream: &Stream, first: StreamId, group: &Group) -> Option<i64> {
    if stream.added == 0 {
        return Some(0);
    }
    let known = group.read.filter(|_| !has_gap_from(stream, first, group.last));
    let read = known.or_else(|| added_up_to(stream, first, group.last))?;
    // A client may have said that it has read more than there was.
    Some((stream.added as i64).wrapping_sub(read as i64))
}
