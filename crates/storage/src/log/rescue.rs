//! Reads what is left of a damaged log: every segment on its own, and every whole frame of it, even after damage. Changes
//! nothing, and seals nothing. A segment that the log's writer trims meanwhile is passed over.

use super::file;
use super::frame::{Frame, Position, SEGMENT_HEADER_BYTES, Scan, SegmentHeader};
use crate::disk::{Disk, read_file};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::objects::{ObjectInfo, ObjectStorage};
use bytes::Bytes;
use forebay_base::ErrorKind;

/// What is left of a segment.
#[derive(Debug, Clone)]
pub struct Rescued {
    /// The file or object.
    pub object: String,
    /// Bytes of it.
    pub bytes: u64,
    /// The log's random number.
    pub log: u64,
    /// Where it begins in the log.
    pub start: Position,
    /// Whether it is the seal of a recovered log.
    pub is_seal: bool,
    /// Its whole frames.
    pub frames: Vec<Frame>,
    /// Whether bytes that are not a frame follow the last whole frame, or the last file has no room after it.
    pub ends_torn: bool,
    /// What is wrong with it. At the end of the last segment it may be a torn write that was never acknowledged.
    pub damage: Option<Error>,
}

/// Reads the segments of a log in files.
pub(crate) fn of_files(disk: &dyn Disk, folder: &str) -> Result<Vec<Rescued>> {
    let mut parts = Vec::new();
    for (path, ends_at) in file::segment_files(disk, folder)? {
        match read_file(disk, &path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !disk.exists(&path)? => {}
            bytes => parts.push(read(&path, cut(&bytes?, ends_at))?),
        }
    }
    if let Some(last) = parts.last_mut() {
        last.ends_torn |= last.offset_of_end() >= last.bytes;
    }
    Ok(parts)
}

/// The bytes of a segment up to its end, if the next one says where that is.
fn cut(bytes: &Bytes, ends_at: Option<Position>) -> Bytes {
    let length = ends_at.and_then(|end| {
        let before = end.checked_sub(SegmentHeader::decode(bytes).ok()?.start)?;
        usize::try_from(before).ok()?.checked_add(SEGMENT_HEADER_BYTES)
    });
    bytes.slice(..length.unwrap_or(bytes.len()).min(bytes.len()))
}

impl Rescued {
    /// The offset where its last whole frame ends.
    fn offset_of_end(&self) -> u64 {
        let end = self.frames.last().map_or(self.start, Frame::end);
        end.saturating_sub(self.start).saturating_add(SEGMENT_HEADER_BYTES as u64)
    }
}

/// Reads the segments of a log in objects.
pub(crate) fn of_objects(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Vec<Rescued>> {
    let mut parts = Vec::new();
    let listed = storage.list(Some(prefix))?;
    for ObjectInfo { name, .. } in listed.iter().filter(|object| object.name.number_after(prefix).is_some()) {
        match storage.get(name) {
            Err(error) if error.kind() == ErrorKind::NotFound && !is_listed(storage, prefix, name)? => {}
            bytes => parts.push(read(name.as_str(), bytes?)?),
        }
    }
    Ok(parts)
}

fn is_listed(storage: &dyn ObjectStorage, prefix: &ObjectName, name: &ObjectName) -> Result<bool> {
    Ok(storage.list(Some(prefix))?.iter().any(|object| object.name == *name))
}

fn read(object: &str, bytes: Bytes) -> Result<Rescued> {
    let mut rescued = Rescued {
        object: object.to_owned(),
        bytes: bytes.len() as u64,
        log: 0,
        start: 0,
        is_seal: false,
        frames: Vec::new(),
        ends_torn: false,
        damage: None,
    };
    match Scan::new(&bytes) {
        Ok(mut scan) => {
            (rescued.log, rescued.start, rescued.is_seal) = (scan.header.log, scan.header.start, scan.header.is_seal);
            if scan.bad.is_some() {
                rescued.damage = Some(scan.damage(object));
                scan.go_on(&bytes);
            }
            rescued.frames = scan.frames;
        }
        // A segment that never began.
        Err(_) if bytes.iter().all(|byte| *byte == 0) => {}
        Err(cause) => {
            rescued.damage = Some(Error::decode(object, &cause));
            // Nothing is known of another version.
            let scan = (cause.kind() != ErrorKind::Unsupported).then(|| Scan::without_header(&bytes)).flatten();
            if let Some(scan) = scan {
                (rescued.log, rescued.start, rescued.frames) = (scan.header.log, scan.header.start, scan.frames);
            }
        }
    }
    let rest = usize::try_from(rescued.offset_of_end()).ok().and_then(|end| bytes.get(end..));
    rescued.ends_torn = rest.is_some_and(|rest| rest.iter().any(|byte| *byte != 0));
    Ok(rescued)
}
