//! A log in files.
//!
//! ```text
//!  folder/
//!    00000000000000000007.log    a segment, preallocated: zeros after its last frame
//!    00000000000000000008.log    the next one; it begins when the one before is synced
//!    seal                        recovery has begun: nothing is acknowledged any more
//!    end-0.new                   what recovery keeps of the last segment, being written
//!    end                         the same, synced: the last segment, whatever else is there
//! ```
//!
//! A frame is written to the page cache when it is appended, so it survives the end of the process, and with the step that
//! covers it (`fdatasync`) a power failure. A sync that failed is never repeated: the kernel may have dropped what it could
//! not write. The log says `Closed` from then on, and its writer begins another one with what was not acknowledged.
//!
//! Recovery copies the whole frames of the last segment to a file of its own. So a tail that was cut stays cut, what is
//! read is on the disk (also if the sync of an earlier process failed), and a writer that still has the old file open
//! changes nothing. Of several processes that recover at the same time the first one decides where the log ends.
//!
//! Layout of the bytes: `docs/formats/log.md`.

use super::frame::{
    ALIGNMENT, Frame, FrameHeader, Position, SEGMENT_HEADER_BYTES, Scan, SegmentHeader, frame_bytes, padding,
};
use super::group::Group;
use super::reader::{Cut, LogReader, Part, Recovery, Source};
use super::writer::{Log, LogCounts, check_appended, check_payload};
use crate::disk::{Disk, DiskFile, list_if_there, make_folders, path_in, read_file, remove_if_there};
use crate::error::{Error, Result};
use crate::name::{ObjectName, number};
use crate::planted::{Bug, planted};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::io::IoSlice;
use std::sync::Arc;

/// A payload that is shorter is written as one piece with what stands before it. A longer one goes to the file from where it lies.
const COPIED_BYTES: usize = 16 << 10;
const SEAL: &str = "seal";
const LOG: &str = ".log";
const END: &str = "end";

/// How a log in files is laid out.
#[derive(Debug, Clone, Copy)]
pub struct FileLogOptions {
    /// A segment ends where the next frame would make it longer than this, in bytes.
    pub segment_bytes: u64,
    /// A segment's file grows by so many bytes at a time.
    pub reserve_bytes: u64,
}

impl Default for FileLogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, reserve_bytes: 8 << 20 }
    }
}

/// A log in files of a [`Disk`].
#[derive(Debug)]
pub struct FileLog {
    disk: Arc<dyn Disk>,
    folder: String,
    log: u64,
    options: FileLogOptions,
    writer: Mutex<Writer>,
    group: Group,
}

#[derive(Debug)]
struct Writer {
    active: Segment,
    /// Segments before, the oldest first: number, and where it ends.
    full: Vec<(u64, Position)>,
    end: Position,
    counts: LogCounts,
    /// Why the log is of no more use.
    broken: Option<Error>,
    scratch: Vec<u8>,
}

/// The segment that is written.
#[derive(Debug, Clone)]
struct Segment {
    file: Arc<dyn DiskFile>,
    number: u64,
    start: Position,
    reserved: u64,
}

impl Segment {
    /// Where in the file a position is.
    const fn offset(&self, position: Position) -> u64 {
        position.saturating_sub(self.start).saturating_add(SEGMENT_HEADER_BYTES as u64)
    }
}

impl FileLog {
    /// Begins a log in `folder`, in which there is none. `log` is a random number.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one; `Fenced` when its recovery has begun; `Full`, `AccessDenied`, `Io`.
    pub fn create(disk: Arc<dyn Disk>, folder: &ObjectName, log: u64, options: FileLogOptions) -> Result<Self> {
        let folder = folder.as_str().to_owned();
        make_folders(&*disk, &folder)?;
        let active = begin_segment(&*disk, &folder, SegmentHeader { is_seal: false, log, number: 1, start: 0 })?;
        refuse_sealed(&*disk, &folder)?;
        let writer = Writer {
            active,
            full: Vec::new(),
            end: 0,
            counts: LogCounts::default(),
            broken: None,
            scratch: Vec::new(),
        };
        Ok(Self { disk, folder, log, options, writer: Mutex::new(writer), group: Group::default() })
    }

    /// Makes what was appended durable; up to where.
    fn step(&self) -> Result<Position> {
        let (file, end) = {
            let writer = self.usable()?;
            (Arc::clone(&writer.active.file), writer.end)
        };
        // What is in segments before the active one was synced before that began.
        let synced = if planted(Bug::AcknowledgedBeforeSync) { Ok(()) } else { file.sync() };
        synced
            .and_then(|()| refuse_sealed(&*self.disk, &self.folder))
            .map(|()| end)
            .map_err(|error| self.break_off(error))
    }

    fn usable(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = lock(&self.writer);
        match &writer.broken {
            Some(error) => Err(error.clone()),
            None => Ok(writer),
        }
    }

    /// Nothing is appended or acknowledged any more.
    fn break_off(&self, error: Error) -> Error {
        lock(&self.writer).break_off(&self.folder, error)
    }

    /// Begins the next segment.
    fn rotate(&self, writer: &mut Writer) -> Result<()> {
        writer.active.file.sync().map_err(|error| writer.break_off(&self.folder, error))?;
        let number = writer.active.number.saturating_add(1);
        let header = SegmentHeader { is_seal: false, log: self.log, number, start: writer.end };
        let begin = || begin_segment(&*self.disk, &self.folder, header);
        let begun = begin().or_else(|error| match error.kind() {
            // This writer left it, when there was no room. Nobody else begins segments of its log.
            ErrorKind::AlreadyExists => {
                remove_if_there(&*self.disk, &segment_path(&self.folder, number))?;
                begin()
            }
            _ => Err(error),
        });
        let next = begun.map_err(|error| match error.kind() {
            // Nothing was lost, and it can be tried again.
            ErrorKind::Full => error,
            _ => writer.break_off(&self.folder, error),
        })?;
        writer.full.push((writer.active.number, writer.end));
        // Only a recovery reads it.
        writer.active.file.let_cool();
        writer.active = next;
        Ok(())
    }
}

impl Writer {
    fn break_off(&mut self, folder: &str, error: Error) -> Error {
        if planted(Bug::FailedSyncIsRetried) && error.kind() != ErrorKind::Fenced {
            return error;
        }
        let lasting = match error.kind() {
            ErrorKind::Fenced => error.clone(),
            _ => {
                let detail = format!(
                    "it failed before ({error}), and what was not durable then may be lost: begin another log with that"
                );
                Error::new(ErrorKind::Closed, "use", folder, detail)
            }
        };
        self.broken.get_or_insert(lasting);
        error
    }

    fn write(&mut self, header: FrameHeader, payload: &[u8], options: &FileLogOptions) -> Result<Position> {
        let offset = self.active.offset(self.end);
        let length = frame_bytes(payload.len()) as u64;
        let after = offset.saturating_add(length);
        if after > self.active.reserved {
            let reserved = after.next_multiple_of(options.reserve_bytes.max(1)).min(options.segment_bytes.max(after));
            self.active.file.reserve(reserved)?;
            self.active.reserved = reserved;
        }
        self.scratch.clear();
        if payload.len() < COPIED_BYTES {
            header.encode(payload, &mut self.scratch);
            self.active.file.write_at(offset, &self.scratch)?;
        } else {
            header.encode_before(payload, &mut self.scratch);
            let zeros = [0; ALIGNMENT];
            let zeros = zeros.get(..padding(payload)).unwrap_or_default();
            let mut parts = [&self.scratch, payload, zeros].map(IoSlice::new);
            self.active.file.write_parts_at(offset, &mut parts)?;
        }
        self.end = self.end.saturating_add(length);
        self.counts.frames += 1;
        self.counts.bytes += length;
        Ok(self.end)
    }
}

impl Log for FileLog {
    fn append(&self, stream: u32, mark: u64, payload: &[u8]) -> Result<Position> {
        check_payload(&self.folder, payload)?;
        let mut writer = self.usable()?;
        let after = writer.active.offset(writer.end).saturating_add(frame_bytes(payload.len()) as u64);
        if after > self.options.segment_bytes && writer.end > writer.active.start {
            self.rotate(&mut writer)?;
        }
        let durable = self.group.durable();
        let header = FrameHeader { log: self.log, position: writer.end, durable, mark, stream };
        writer.write(header, payload, &self.options).map_err(|error| match error.kind() {
            // The next frame is written over what was written of this one.
            ErrorKind::Full => error,
            _ => writer.break_off(&self.folder, error),
        })
    }

    fn sync(&self, position: Position) -> Result<()> {
        check_appended(&self.folder, position, self.end())?;
        self.group.reach(position, || self.step())
    }

    fn end(&self) -> Position {
        lock(&self.writer).end
    }

    fn durable(&self) -> Position {
        self.group.durable()
    }

    fn segments(&self) -> usize {
        lock(&self.writer).full.len() + 1
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.writer).broken.clone()
    }

    fn trim(&self, position: Position) -> Result<u64> {
        let old: Vec<u64> = {
            let writer = lock(&self.writer);
            writer.full.iter().take_while(|(_, end)| *end <= position).map(|(number, _)| *number).collect()
        };
        for number in &old {
            remove_if_there(&*self.disk, &segment_path(&self.folder, *number))?;
        }
        lock(&self.writer).full.retain(|(number, _)| !old.contains(number));
        Ok(old.len() as u64)
    }

    fn discard(&self) -> Result<()> {
        let closed = Error::new(ErrorKind::Closed, "use", self.folder.as_str(), "the log was discarded");
        lock(&self.writer).broken.get_or_insert(closed);
        delete(&*self.disk, &self.folder)
    }

    fn counts(&self) -> LogCounts {
        let (groups, waits) = self.group.counts();
        LogCounts { groups, waits, ..lock(&self.writer).counts }
    }
}

fn segment_path(folder: &str, number: u64) -> String {
    path_in(folder, &format!("{number:020}{LOG}"))
}

/// Creates a segment, which survives when this has returned.
fn begin_segment(disk: &dyn Disk, folder: &str, header: SegmentHeader) -> Result<Segment> {
    let path = segment_path(folder, header.number);
    let file = disk.create(&path)?;
    let begun = (|| {
        file.write_at(0, &header.encode())?;
        file.sync()?;
        if planted(Bug::FolderIsNotSynced) { Ok(()) } else { disk.sync_folder(folder) }
    })();
    if let Err(error) = begun {
        // So that it can be tried again where there was no room.
        remove_if_there(disk, &path)?;
        return Err(error);
    }
    Ok(Segment { file, number: header.number, start: header.start, reserved: SEGMENT_HEADER_BYTES as u64 })
}

fn refuse_sealed(disk: &dyn Disk, folder: &str) -> Result<()> {
    if planted(Bug::SealIsNotSeen) || !disk.exists(&path_in(folder, SEAL))? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Fenced, "sync", folder, "another writer has recovered the log: stop writing"))
}

/// Numbers of the segments, ascending.
fn segments(disk: &dyn Disk, folder: &str) -> Result<Vec<u64>> {
    let entries = list_if_there(disk, folder)?;
    Ok(entries.iter().filter_map(|entry| number(entry.name.strip_suffix(LOG)?)).collect())
}

/// Paths of a log's segments, ascending. What recovery wrote stands in for the last one.
pub(super) fn segment_files(disk: &dyn Disk, folder: &str) -> Result<Vec<String>> {
    let end = path_in(folder, END);
    let mut paths: Vec<_> = segments(disk, folder)?.into_iter().map(|number| segment_path(folder, number)).collect();
    if disk.exists(&end)? {
        paths.pop();
        paths.push(end);
    }
    Ok(paths)
}

/// Deletes a log but for its seal. Nobody reads it any more: what it had is elsewhere.
///
/// # Errors
/// Those of the disk. Call again.
pub(super) fn delete(disk: &dyn Disk, folder: &str) -> Result<()> {
    for entry in list_if_there(disk, folder)? {
        if entry.name != SEAL {
            remove_if_there(disk, &path_in(folder, &entry.name))?;
        }
    }
    Ok(())
}

/// Opens the log in `folder` to be read.
pub(super) fn open(disk: Arc<dyn Disk>, folder: &str, recovery: Recovery) -> Result<LogReader> {
    if recovery == Recovery::Seal {
        make_folders(&*disk, folder)?;
        match disk.create(&path_in(folder, SEAL)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => drop(created?),
        }
        disk.sync_folder(folder)?;
    }
    let (last, cut) = match recovery {
        Recovery::Look => look(&*disk, folder)?,
        Recovery::Seal => match last_segment(&*disk, folder)? {
            Last { scan, is_end: true, .. } => {
                // Another process may have given it its name a moment ago.
                disk.sync_folder(folder)?;
                (scan, None)
            }
            last => {
                let (scan, cut) = last.checked()?;
                // Of several that recover the log the first one says where it ends.
                if finish(&*disk, folder, &scan)? { (scan, cut) } else { (last_segment(&*disk, folder)?.scan, None) }
            }
        },
    };
    let mut parts = Vec::new();
    let mut next = last.header;
    let numbers = segments(&*disk, folder)?;
    // The longest row of segments up to the last one: those before a gap were trimmed, and came back.
    for number in numbers.into_iter().rev().skip_while(|number| *number >= last.header.number) {
        if number.checked_add(1) != Some(next.number) {
            break;
        }
        let path = segment_path(folder, number);
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        disk.open(&path, false)?.read_at(0, &mut bytes)?;
        let header = SegmentHeader::decode(&bytes).map_err(|cause| Error::decode(&path, &cause))?;
        let part = Part { number, start: header.start.min(next.start), end: next.start, object: path };
        part.check(&header, last.header.log)?;
        parts.push(part);
        next = header;
    }
    parts.reverse();
    Ok(LogReader::new(Source::Files(disk), parts, last, cut))
}

/// The last segment of a log whose writer may go on, and what would be cut of it.
///
/// A segment is not read at one moment. So a frame that was written meanwhile may be missing where a later one says that it was
/// durable. It is there when the segment is read again: damage is what is found twice.
fn look(disk: &dyn Disk, folder: &str) -> Result<(Scan, Option<Cut>)> {
    let mut found = None;
    loop {
        match last_segment(disk, folder).and_then(Last::checked) {
            Err(error) if error.kind() == ErrorKind::Corrupt && found.as_ref() != Some(&error.to_string()) => {
                found = Some(error.to_string());
            }
            last => return last,
        }
    }
}

/// The last segment of a log as it was found.
struct Last {
    scan: Scan,
    /// Whether recovery wrote it.
    is_end: bool,
    path: String,
    bytes: u64,
}

impl Last {
    /// The segment, and what is cut of it.
    fn checked(self) -> Result<(Scan, Option<Cut>)> {
        self.scan.check_tail(&self.path)?;
        let cut = self.scan.bad.as_ref().map(|cause| Cut {
            object: self.path.clone(),
            position: self.scan.end,
            bytes: self.bytes.saturating_sub(self.scan.end.saturating_sub(self.scan.header.start)),
            cause: cause.to_string(),
        });
        Ok((self.scan, cut))
    }
}

fn last_segment(disk: &dyn Disk, folder: &str) -> Result<Last> {
    let end = path_in(folder, END);
    if disk.exists(&end)? {
        // It was synced before it got its name.
        let last = found(disk, end.clone(), true)?.ok_or_else(|| Error::corrupt(end, "its header is damaged"))?;
        return if last.scan.bad.is_some() { Err(last.scan.damage(&last.path)) } else { Ok(last) };
    }
    // The last one may never have begun. Then the log ends in the one before, which was kept until it had.
    for number in segments(disk, folder)?.into_iter().rev().take(2) {
        if let Some(last) = found(disk, segment_path(folder, number), false)? {
            return Ok(last);
        }
    }
    Ok(Last::of_nothing(folder))
}

/// A segment that may be the last one; `None` when it never began.
///
/// # Errors
/// `Corrupt` when its header is damaged: frames are written when the header is synced.
fn found(disk: &dyn Disk, path: String, is_end: bool) -> Result<Option<Last>> {
    let bytes = read_file(disk, &path)?;
    let frames = bytes.get(SEGMENT_HEADER_BYTES..).unwrap_or_default();
    match Scan::new(&bytes) {
        Ok(scan) => Ok(Some(Last { scan, is_end, bytes: frames.len() as u64, path })),
        Err(_) if frames.iter().all(|byte| *byte == 0) => Ok(None),
        Err(cause) => Err(Error::decode(path, &cause)),
    }
}

impl Last {
    /// The last segment of a log that was never begun.
    fn of_nothing(folder: &str) -> Self {
        let header = SegmentHeader { is_seal: false, log: 0, number: 1, start: 0 };
        let scan = Scan { header, frames: Vec::new(), end: 0, bad: None, durable: 0 };
        Self { scan, is_end: false, path: segment_path(folder, 1), bytes: 0 }
    }
}

/// Writes what is kept of the last segment: from now on the log ends there. False when another process did so first.
fn finish(disk: &dyn Disk, folder: &str, scan: &Scan) -> Result<bool> {
    let mut bytes = scan.header.encode();
    for frame in &scan.frames {
        let Frame { position, stream, mark, payload } = frame;
        let header =
            FrameHeader { log: scan.header.log, position: *position, durable: 0, mark: *mark, stream: *stream };
        header.encode(payload, &mut bytes);
    }
    let (new, file) = create_new(disk, folder)?;
    file.write_at(0, &bytes)?;
    if !planted(Bug::RecoveredIsNotSynced) {
        file.sync()?;
    }
    let end = path_in(folder, END);
    let linked = if planted(Bug::RecoveryReplaces) { disk.rename(&new, &end) } else { disk.link(&new, &end) };
    let is_first = match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        linked => linked.map(|()| true)?,
    };
    disk.sync_folder(folder)?;
    remove_if_there(disk, &new)?;
    Ok(is_first)
}

/// A file for what is kept of the last segment, which no other process writes.
fn create_new(disk: &dyn Disk, folder: &str) -> Result<(String, Arc<dyn DiskFile>)> {
    let mut attempt = 0u64;
    loop {
        let path = path_in(folder, &format!("{END}-{attempt}.new"));
        match disk.create(&path) {
            // Left by a recovery that was interrupted, or one that is under way.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => attempt += 1,
            created => return created.map(|file| (path, file)),
        }
    }
}
