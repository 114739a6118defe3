//! Logs: frames in order, made durable in groups.
//!
//! A log has one writer (any number of its threads). [`Log::append`] gives a frame its position; [`Log::sync`] returns when
//! everything up to a position is durable, and all waiting threads share one sync, or one put. A recovered log contains
//! everything that was acknowledged, everything before that, and nothing that was not appended.
//!
//! | kept in | by | one step of a group is | after an error of a step |
//! |---|---|---|---|
//! | files | [`FileLog`] | `fdatasync` of a preallocated file | the log is unusable: begin another one |
//! | objects | [`ObjectLog`] | a put of the next number, if absent | the next step puts the same bytes again |
//!
//! A segment (a file, an object) is deleted as a whole once all of it is trimmed.
//!
//! **Recovery seals.** A writer that takes over recovers the log of the previous writer, which may only be slow. So recovery
//! first makes sure that the previous writer acknowledges nothing any more, and then reads. In a folder a file `seal` does
//! that: a writer looks for it after each sync, so what it acknowledged was synced before the seal existed. In objects the
//! seal takes the next number. A seal stays when a log is deleted: otherwise a writer that slept meanwhile could begin the
//! log anew, and acknowledge what nobody will read. The writer itself can delete its log without a trace ([`Log::discard`]).
//!
//! **A torn tail is cut.** The last frames may be incomplete. Recovery keeps the longest prefix of whole frames and makes it
//! survive before it returns it. Damage to what was durable is an error that names the place. Module [`frame`] says how the
//! two are distinguished.

mod file;
pub mod frame;
mod group;
mod objects;
mod reader;
mod rescue;
mod source;
mod writer;

pub use file::{FileLog, FileLogOptions};
pub use frame::{Frame, MAX_FRAME_BYTES, Position};
pub use objects::{ObjectLog, ObjectLogOptions};
pub use reader::{Cut, LogReader, Recovery};
pub use rescue::Rescued;
pub use writer::{Log, LogCounts};

/// Most bytes that remain of a deleted log: its seal.
pub const SEAL_BYTES: u64 = frame::SEGMENT_HEADER_BYTES as u64;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::objects::ObjectStorage;
use forebay_base::ErrorKind;
use std::sync::Arc;

/// Opens a log for reading, in files where there is a disk.
pub(crate) fn open_log(
    objects: &Arc<dyn ObjectStorage>,
    disk: Option<&Arc<dyn Disk>>,
    name: &ObjectName,
    recovery: Recovery,
) -> Result<LogReader> {
    match disk {
        Some(disk) => file::open(Arc::clone(disk), name.as_str(), recovery),
        None => objects::open(Arc::clone(objects), name, recovery),
    }
}

/// Checks that this build knows the version of a log. Reads the headers of two segments: one writer made all but the
/// last, which a recovery may have made. Damage is found only when the log is opened.
pub(crate) fn check_log(
    objects: &Arc<dyn ObjectStorage>,
    disk: Option<&Arc<dyn Disk>>,
    name: &ObjectName,
) -> Result<()> {
    let mut segments = match disk {
        Some(disk) => file::segment_files(&**disk, name.as_str())?.into_iter().map(|(path, _)| path).collect(),
        None => objects::segments(&**objects, name)?,
    };
    let last = segments.pop();
    segments.truncate(1);
    for segment in segments.into_iter().chain(last) {
        let mut header = [0; frame::SEGMENT_HEADER_BYTES];
        let read = match disk {
            Some(disk) => disk.open(&segment, false).and_then(|file| file.read_at(0, &mut header)).map(drop),
            None => objects.open(&ObjectName::new(&segment)?).and_then(|object| object.read_at(0, &mut header)),
        };
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => continue,
            read => read?,
        }
        if let Err(cause) = frame::SegmentHeader::decode(&header)
            && cause.kind() == ErrorKind::Unsupported
        {
            return Err(Error::decode(segment, &cause));
        }
    }
    Ok(())
}

/// Reads what is left of a log, whatever has happened to it.
pub(crate) fn rescue_log(
    objects: &Arc<dyn ObjectStorage>,
    disk: Option<&Arc<dyn Disk>>,
    name: &ObjectName,
) -> Result<Vec<Rescued>> {
    match disk {
        Some(disk) => rescue::of_files(&**disk, name.as_str()),
        None => rescue::of_objects(&**objects, name),
    }
}

/// Deletes a recovered log, except its seal.
pub(crate) fn delete_log(
    storage: &Arc<dyn ObjectStorage>,
    disk: Option<&Arc<dyn Disk>>,
    name: &ObjectName,
) -> Result<()> {
    match disk {
        Some(disk) => file::delete(&**disk, name.as_str()),
        None => {
            let seal = objects::seal(&**storage, name)?;
            objects::delete(&**storage, name, Some(seal.number))
        }
    }
}

#[cfg(test)]
mod tests;
