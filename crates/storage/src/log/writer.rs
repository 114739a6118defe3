//! What a log's writer can do, wherever the log is kept.

use super::frame::{MAX_FRAME_BYTES, Position};
use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use std::fmt;

/// A log that is being written.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends a frame, and returns the position after it. The frame is not durable yet: in a file it survives the end of
    /// the process, in objects it survives nothing. Readers get `stream` and `mark` with it.
    ///
    /// # Errors
    /// `Invalid` for a payload above [`MAX_FRAME_BYTES`]; `Full`, after which the same call can be tried again; and those of
    /// [`Log::sync`]. The frame was not appended.
    fn append(&self, stream: u32, mark: u64, payload: &[u8]) -> Result<Position>;

    /// Returns when everything before `position` is durable.
    ///
    /// # Errors
    /// `Fenced` when the log was recovered by another writer; `Closed` when an earlier sync failed and what was not durable
    /// by then may be lost; `Invalid` for a position that was not appended; those of the storage. Nothing is known about
    /// frames that were not acknowledged.
    fn sync(&self, position: Position) -> Result<()>;

    /// Where the log ends: the position of the next frame.
    fn end(&self) -> Position;

    /// The position up to which it is known to be durable.
    fn durable(&self) -> Position;

    /// The number of its files or objects, which a recovery has to read.
    fn segments(&self) -> usize;

    /// Why nothing can be appended or acknowledged any more; `None` while the log is usable. After any other error the same
    /// call can be made again.
    fn failure(&self) -> Option<Error>;

    /// Deletes segments that end at or before `position`, the oldest first, except the last one. Returns how many.
    ///
    /// # Errors
    /// Those of the storage. The next call deletes what was left.
    fn trim(&self, position: Position) -> Result<u64>;

    /// Deletes the log. Its writer must have ended: no other thread appends.
    ///
    /// # Errors
    /// Those of the storage.
    fn discard(&self) -> Result<()>;

    /// Counts of what was done so far.
    fn counts(&self) -> LogCounts;
}

/// What a log did: monotonic counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Frames appended.
    pub frames: u64,
    /// Bytes of them, with headers.
    pub bytes: u64,
    /// Syncs or puts, including failed ones.
    pub groups: u64,
    /// Calls of [`Log::sync`] that waited for another thread's step.
    pub waits: u64,
}

pub(super) fn check_payload(log: &str, payload: &[u8]) -> Result<()> {
    if payload.len() <= MAX_FRAME_BYTES {
        return Ok(());
    }
    let detail = format!("a frame has at most {MAX_FRAME_BYTES} bytes of payload, not {}: cut it", payload.len());
    Err(Error::new(ErrorKind::Invalid, "append", log, detail))
}

pub(super) fn check_appended(log: &str, position: Position, end: Position) -> Result<()> {
    if position <= end {
        return Ok(());
    }
    let detail = format!("position {position} was not appended: the log ends at {end}");
    Err(Error::new(ErrorKind::Invalid, "sync", log, detail))
}
