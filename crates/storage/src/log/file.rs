//! A log in files.
//!
//! ```text
//!  folder/
//!    00000000000000000006.log    a segment that is full: it ends after its last frame
//!    00000000000000000007.log    the last one, preallocated: zeros after its last frame
//!    seal                        recovery has begun: nothing is acknowledged any more
//!    end-0.new                   what recovery keeps of the end of the log, being written
//!    end                         the same, synced: the last segment, whatever else exists
//! ```
//!
//! A frame is written to the page cache when it is appended, so it survives the end of the process, and with the step that
//! covers it (`fdatasync`) a power failure. A failed sync is never repeated: the kernel may have dropped what it could not
//! write. The log returns `Closed` from then on, and its writer begins another log with what was not acknowledged.
//!
//! # What is missing is noticed
//!
//! The last segment always has room after its last frame. The room is synced before a frame is written there, and a
//! segment's first room is synced before anything relies on the segment. The next segment begins once the previous one is
//! synced. Only after it has begun durably is the previous one cut off after its last frame, and that cut is synced before
//! anything is written to the next segment. So a file whose frames reach its end was followed by another one, or has been
//! cut. If it is the last one, something that may have been durable is missing. What a power failure leaves of a segment
//! that was about to begin is not a segment yet, and the previous one still has its room.
//!
//! # Recovery
//!
//! Recovery copies to a file of its own the last whole frames: those that no later frame declares durable. So a tail that
//! was cut stays cut, what is read is on the disk (even if the sync of an earlier process failed), and a writer that still
//! has the old file open changes nothing. Earlier frames stay in their segment, and the file of recovery follows it: no
//! writer touches what was durable. So recovery takes as much room as was written since the last sync but one. Of several
//! processes that recover at the same time, the first one decides where the log ends.
//!
//! ```text
//!    00000000000000000007.log   [ frames that were durable )[ frames, a torn one, zeros
//!    end, segment 8                                         [ the same frames, room
//! ```
//!
//! Earlier builds copied all of the last segment, under its own number.
//!
//! Layout of the bytes: `docs/formats/log.md`.

use super::frame::{
    ALIGNMENT, Frame, FrameHeader, Position, SEGMENT_HEADER_BYTES, Scan, SegmentHeader, frame_bytes, padding,
};
use super::group::Group;
use super::reader::{Cut, LogReader, Part, Recovery};
use super::source::{self, LOG, Source};
use super::writer::{Log, LogCounts, check_appended, check_payload};
use crate::disk::{Disk, DiskFile, OPEN, list_if_there, make_folders, path_in, read_file, remove_if_there};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::planted::{Bug, planted};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::io::IoSlice;
use std::sync::Arc;

/// A shorter payload is written as one piece with what precedes it. A longer one goes to the file without a copy.
const COPIED_BYTES: usize = 16 << 10;
const SEAL: &str = "seal";
const END: &str = "end";

/// How a log in files is laid out.
#[derive(Debug, Clone, Copy)]
pub struct FileLogOptions {
    /// A segment ends where the next frame would make it longer than this, in bytes.
    pub segment_bytes: u64,
    /// A segment's file is at least this long, and its length is a multiple of this. Where it does not suffice, the length
    /// is doubled, which takes a sync.
    pub reserve_bytes: u64,
}

impl FileLogOptions {
    /// Length of a file with room after `end`.
    fn length_over(&self, end: u64) -> u64 {
        let least = end.saturating_add(ALIGNMENT as u64);
        least.next_multiple_of(self.reserve_bytes.max(1)).min(self.segment_bytes.max(least))
    }
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
    /// Earlier segments, the oldest first: number and end.
    full: Vec<(u64, Position)>,
    end: Position,
    counts: LogCounts,
    /// Why the log is unusable.
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
    /// The offset of a position in the file.
    const fn offset(&self, position: Position) -> u64 {
        position.saturating_sub(self.start).saturating_add(SEGMENT_HEADER_BYTES as u64)
    }
}

impl FileLog {
    /// Begins a log in `folder`, which must have none. `log` is a random number. When this has returned, the log survives.
    ///
    /// # Errors
    /// `AlreadyExists` when the folder has a log; `Fenced` when its recovery has begun; `Full`, `AccessDenied`, `Io`.
    pub fn create(disk: Arc<dyn Disk>, folder: &ObjectName, log: u64, options: FileLogOptions) -> Result<Self> {
        let folder = folder.as_str().to_owned();
        make_folders(&*disk, &folder)?;
        let header = SegmentHeader { is_seal: false, log, number: 1, start: 0 };
        let path = segment_path(&folder, header.number);
        let active = begin_segment(&*disk, &folder, disk.create(&path)?, header, &options)
            // So that the call can be tried again where there was no room.
            .map_err(|(error, _)| remove_if_there(&*disk, &path).err().unwrap_or(error))?;
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

    /// Makes what was appended durable. Returns up to where.
    fn step(&self) -> Result<Position> {
        let (file, end) = {
            let writer = self.usable()?;
            (Arc::clone(&writer.active.file), writer.end)
        };
        // Earlier segments were synced before the active one began.
        let synced = if planted(Bug::AcknowledgedBeforeSync) { Ok(()) } else { file.sync() };
        synced
            .and_then(|()| refuse_sealed(&*self.disk, &self.folder))
            // An append may have synced the file meanwhile, and failed. Then this sync says nothing about what that one
            // covered.
            .and_then(|()| self.usable().map(|_| end))
            .map_err(|error| self.break_off(error))
    }

    fn usable(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = lock(&self.writer);
        match writer.broken.clone().or_else(|| self.group.failure()) {
            Some(error) => Err(error),
            None => Ok(writer),
        }
    }

    /// Makes the log unusable: nothing is appended or acknowledged any more.
    fn break_off(&self, error: Error) -> Error {
        lock(&self.writer).break_off(&self.folder, error)
    }

    /// Begins the next segment.
    fn rotate(&self, writer: &mut Writer) -> Result<()> {
        writer.active.file.sync().map_err(|error| writer.break_off(&self.folder, error))?;
        let number = writer.active.number.saturating_add(1);
        let header = SegmentHeader { is_seal: false, log: self.log, number, start: writer.end };
        let path = segment_path(&self.folder, number);
        // If this fails, nothing was begun, and it can be tried again.
        let file = self.disk.create(&path).or_else(|error| match error.kind() {
            // This writer left the file, and it is empty. Nobody else begins segments of this log.
            ErrorKind::AlreadyExists => remove_if_there(&*self.disk, &path).and_then(|()| self.disk.create(&path)),
            _ => Err(error),
        })?;
        let next = match begin_segment(&*self.disk, &self.folder, file, header, &self.options) {
            Ok(next) => next,
            Err((error, lost_nothing)) => {
                // A power failure must not bring the file back: this segment may get more frames, and would seem to end
                // before them.
                let away = remove_if_there(&*self.disk, &path).and_then(|()| self.disk.sync_folder(&self.folder));
                let goes_on = lost_nothing && away.is_ok();
                return Err(if goes_on { error } else { writer.break_off(&self.folder, error) });
            }
        };
        // From now on the log does not end in the full segment.
        let full = Arc::clone(&writer.active.file);
        let closed = full.truncate(writer.active.offset(writer.end)).and_then(|()| full.sync());
        closed.map_err(|error| writer.break_off(&self.folder, error))?;
        writer.full.push((writer.active.number, writer.end));
        // Only a recovery reads the full segment.
        full.let_cool();
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

    /// Makes room in the active segment for a frame that ends at offset `after`, and for what follows.
    fn make_room(&mut self, folder: &str, after: u64, options: &FileLogOptions) -> Result<()> {
        if after < self.active.reserved {
            return Ok(());
        }
        let doubled = self.active.reserved.saturating_mul(2).min(options.segment_bytes);
        let reserved = reserve(&*self.active.file, doubled, after, options)?;
        // So a frame that reaches the end of its file is known to be cut off there, and not torn by a
        // power failure.
        if !planted(Bug::RoomIsNotSynced) {
            self.active.file.sync().map_err(|error| self.break_off(folder, error))?;
        }
        self.active.reserved = reserved;
        Ok(())
    }

    fn write(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Position> {
        let offset = self.active.offset(self.end);
        let length = frame_bytes(payload.len()) as u64;
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
        let after = writer.active.offset(writer.end).saturating_add(frame_bytes(payload.len()) as u64);
        let room = writer.make_room(&self.folder, after, &self.options);
        room.and_then(|()| writer.write(header, payload)).map_err(|error| match error.kind() {
            // The next frame overwrites what was written of this one.
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
        self.usable().err()
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

/// Begins a segment in a new file. When this has returned, the segment survives with its first room. An error comes with a
/// flag that says whether another file can be tried: true if no sync failed, except because there was no room, or
/// because the folder could not be opened to be synced.
fn begin_segment(
    disk: &dyn Disk,
    folder: &str,
    file: Arc<dyn DiskFile>,
    header: SegmentHeader,
    options: &FileLogOptions,
) -> std::result::Result<Segment, (Error, bool)> {
    file.go_first();
    let reserved = reserve(&*file, 0, SEGMENT_HEADER_BYTES as u64, options).map_err(|error| (error, true))?;
    file.write_at(0, &header.encode()).map_err(|error| (error, true))?;
    let synced = file.sync();
    let synced = if planted(Bug::FolderIsNotSynced) { synced } else { synced.and_then(|()| disk.sync_folder(folder)) };
    synced.map_err(|error| (error.clone(), error.kind() == ErrorKind::Full || error.is_of(OPEN)))?;
    Ok(Segment { file, number: header.number, start: header.start, reserved })
}

/// Gives a file room after `end`: `wanted` bytes in all if that is more than a step; on a nearly full disk, a step, or only
/// what is needed. Returns the file's length.
fn reserve(file: &dyn DiskFile, wanted: u64, end: u64, options: &FileLogOptions) -> Result<u64> {
    let (step, least) = (options.length_over(end), end.saturating_add(ALIGNMENT as u64));
    let reserve = |length| file.reserve(length).map(|()| length);
    let when_full = |error: Error, less| if error.kind() == ErrorKind::Full { reserve(less) } else { Err(error) };
    reserve(wanted.max(step)).or_else(|error| when_full(error, step)).or_else(|error| when_full(error, least))
}

fn refuse_sealed(disk: &dyn Disk, folder: &str) -> Result<()> {
    if planted(Bug::SealIsNotSeen) || !disk.exists(&path_in(folder, SEAL))? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Fenced, "sync", folder, "another writer has recovered the log: stop writing"))
}

/// Paths of a log's segments, ascending, each with its end if the file of recovery begins there. That file follows the
/// segments before it, and replaces the others.
pub(super) fn segment_files(disk: &dyn Disk, folder: &str) -> Result<Vec<(String, Option<Position>)>> {
    let end = path_in(folder, END);
    let mut numbers = source::files(disk, folder)?;
    let is_recovered = disk.exists(&end)?;
    let found = if is_recovered { SegmentHeader::decode(&header_bytes(disk, &end)?).ok() } else { None };
    if let Some(header) = &found {
        numbers.retain(|number| *number < header.number);
    }
    let path = |number| (segment_path(folder, number), None);
    let mut paths: Vec<_> = numbers.into_iter().map(path).collect();
    if let (Some((_, ends_at)), Some(header)) = (paths.last_mut(), found) {
        *ends_at = Some(header.start);
    }
    paths.extend(is_recovered.then_some((end, None)));
    Ok(paths)
}

fn header_bytes(disk: &dyn Disk, path: &str) -> Result<[u8; SEGMENT_HEADER_BYTES]> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    disk.open(path, false)?.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Deletes a log except its seal. Nobody reads the log any more: its contents are elsewhere. The last segment is deleted
/// last, once the others are durably gone. Without it, what a power failure brings back would look like a log that was cut
/// off.
///
/// # Errors
/// Those of the disk. Call again.
pub(super) fn delete(disk: &dyn Disk, folder: &str) -> Result<()> {
    let mut names: Vec<_> = list_if_there(disk, folder)?.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name != SEAL);
    // The names of segments order them.
    let is_end = |name: &String| name == END;
    let last = names.iter().position(is_end).or_else(|| names.iter().rposition(|name| name.ends_with(LOG)));
    let last = last.map(|last| names.remove(last));
    for name in &names {
        remove_if_there(disk, &path_in(folder, name))?;
    }
    let Some(last) = last else { return Ok(()) };
    // Trimmed segments must also be durably gone.
    disk.sync_folder(folder)?;
    remove_if_there(disk, &path_in(folder, &last))
}

/// Opens the log in `folder` for reading.
pub(super) fn open(disk: Arc<dyn Disk>, folder: &str, recovery: Recovery) -> Result<LogReader> {
    if recovery != Recovery::Look {
        make_folders(&*disk, folder)?;
        match disk.create(&path_in(folder, SEAL)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => drop(created?),
        }
        disk.sync_folder(folder)?;
    }
    let last = match last_segment(&*disk, folder)? {
        Ok(last) => last,
        Err(bad_begin) => return Ok(LogReader::of_nothing(Source::Files(disk, folder.to_owned()), bad_begin)),
    };
    let (object, last, cut) = match recovery {
        Recovery::Look => last.cut(),
        Recovery::SealUnlessTorn if last.scan.bad.is_some() => last.cut(),
        _ if last.is_end => {
            // Another process may have given the file its name a moment ago.
            disk.sync_folder(folder)?;
            last.cut()
        }
        // Of several processes that recover the log, the first one decides where it ends.
        _ if finish(&*disk, folder, &last.scan)? => last.cut(),
        _ => {
            let gone = |_| Error::corrupt(path_in(folder, END), "it was there a moment ago");
            last_segment(&*disk, folder)?.map_err(gone)?.cut()
        }
    };
    let mut parts = Vec::new();
    let mut next = last.header;
    let numbers = source::files(&*disk, folder)?;
    // The longest gapless run of segments up to the last one: those before a gap were trimmed, and came back.
    for number in numbers.into_iter().rev().skip_while(|number| *number >= last.header.number) {
        if number.checked_add(1) != Some(next.number) {
            break;
        }
        let path = segment_path(folder, number);
        let header = header_bytes(&*disk, &path);
        let is_missing = header.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        // Its writer may have trimmed it since, and what comes before it.
        if is_missing && !source::files(&*disk, folder)?.contains(&number) {
            break;
        }
        let header = SegmentHeader::decode(&header?).map_err(|cause| Error::decode(&path, &cause))?;
        let part = Part { number, start: header.start.min(next.start), end: next.start, object: path };
        part.check(&header, last.header.log)?;
        parts.push(part);
        next = header;
    }
    parts.reverse();
    Ok(LogReader::new(Source::Files(disk, folder.to_owned()), parts, Some((object, last)), cut))
}

/// A segment that may be the last one, or why it seems never to have begun.
type Begun<Cause> = std::result::Result<Last, Cause>;

/// The last segment of a log whose writer may continue. When the log seems never to have begun, what is wrong with the file
/// of its first segment, if there is one.
///
/// Folder and segment are not read at one moment. So a frame written meanwhile may seem to be missing although a later one
/// says that it was durable, and so may a segment that began meanwhile. A second read of both finds it: only what is found
/// twice is damage. The same holds for a torn end, as a read may return wrong bytes, and what is cut is lost. And it holds
/// for a log that seems never to have begun.
fn last_segment(disk: &dyn Disk, folder: &str) -> Result<Begun<Option<Error>>> {
    let mut found = None;
    loop {
        let last = look(disk, folder);
        let bad = match &last {
            Ok(Ok(Last { scan, .. })) => scan.bad.as_ref().map(|cause| format!("{} {cause}", scan.end)),
            Ok(Err(bad_begin)) => Some(bad_begin.as_ref().map_or_else(String::new, Error::to_string)),
            // What is not found may be trimmed, because the next segments have begun.
            Err(error) => matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound).then(|| error.to_string()),
        };
        if bad.is_none() || bad == found {
            return last;
        }
        found = bad;
    }
}

fn look(disk: &dyn Disk, folder: &str) -> Result<Begun<Option<Error>>> {
    let end = path_in(folder, END);
    if disk.exists(&end)? {
        // The file was synced before it got its name.
        let last = found(disk, &end, true)?.map_err(|cause| Error::corrupt(&end, cause))?;
        return if last.scan.bad.is_some() { Err(last.scan.damage(&end)) } else { last.checked().map(Ok) };
    }
    let mut numbers = source::files(disk, folder)?;
    let Some(newest) = numbers.pop() else { return Ok(Err(None)) };
    let path = segment_path(folder, newest);
    let cause = match found(disk, &path, false)? {
        Ok(last) => return last.checked().map(Ok),
        Err(cause) => cause,
    };
    if newest == 1 {
        return Ok(Err(Some(Error::corrupt(path, cause))));
    }
    // This segment seems never to have begun. Then the log ends in the previous one, which is kept, with its room, until the
    // next has begun.
    let before = segment_path(folder, newest - 1);
    match numbers.pop() {
        Some(number) if number == newest - 1 => match found(disk, &before, false)? {
            Ok(last) if last.is_cut_off() => {
                last.scan.check_tail(&before)?;
                Err(Error::corrupt(path, format!("{cause}; it had begun, as the segment before it is cut off")))
            }
            Ok(last) => last.checked().map(Ok),
            Err(cause) => Err(Error::corrupt(before, format!("{cause}; another segment was begun after it"))),
        },
        _ => Err(Error::corrupt(before, "it is missing, and what was begun after it is empty")),
    }
}

/// The last segment of a log, as found.
struct Last {
    scan: Scan,
    /// Whether recovery wrote it.
    is_end: bool,
    path: String,
    bytes: u64,
}

impl Last {
    /// Checks that anything missing at its end was never durable.
    fn checked(self) -> Result<Self> {
        self.scan.check_tail(&self.path)?;
        if self.is_cut_off() {
            let end = self.bytes.saturating_add(SEGMENT_HEADER_BYTES as u64);
            let detail = format!(
                "its frames reach the end of the file (byte {end}), which was cut off there, or the segment after it is missing"
            );
            return Err(Error::corrupt(self.path, detail));
        }
        Ok(self)
    }

    /// Whether it has no room after its frames: another segment has begun after it, or it was cut off.
    fn is_cut_off(&self) -> bool {
        self.scan.is_full && !planted(Bug::CutIsTorn)
    }

    /// Its name, the segment, and what is cut from it.
    fn cut(self) -> (String, Scan, Option<Cut>) {
        let cut = self.scan.bad.as_ref().map(|cause| Cut {
            object: self.path.clone(),
            position: self.scan.end,
            bytes: self.bytes.saturating_sub(self.scan.end.saturating_sub(self.scan.header.start)),
            cause: cause.to_string(),
        });
        (self.path, self.scan, cut)
    }
}

/// A segment that may be the last one, or why it seems never to have begun: it has no header, or no room.
///
/// # Errors
/// `Corrupt` when its header is damaged: frames are written only after the header is synced; `Unsupported` when a newer
/// build wrote it.
fn found(disk: &dyn Disk, path: &str, is_end: bool) -> Result<Begun<String>> {
    let bytes = read_file(disk, path)?;
    let frames = bytes.get(SEGMENT_HEADER_BYTES..).unwrap_or_default();
    match Scan::new(&bytes) {
        Ok(scan) if !frames.is_empty() => {
            Ok(Ok(Last { scan, is_end, bytes: frames.len() as u64, path: path.to_owned() }))
        }
        Err(cause) if cause.kind() == ErrorKind::Unsupported || frames.iter().any(|byte| *byte != 0) => {
            Err(Error::decode(path, &cause))
        }
        // Not synced.
        Ok(_) => Ok(Err("it ends after its header".to_owned())),
        Err(cause) => Ok(Err(cause.to_string())),
    }
}

/// Writes what is kept of the end of the log; `scan` is what is left of its last segment. From now on the log ends there.
/// False when another process did so first.
fn finish(disk: &dyn Disk, folder: &str, scan: &Scan) -> Result<bool> {
    let mut header = scan.header;
    // What a frame declares durable survives where it is, and its writer continues after it.
    if scan.durable > header.start {
        let none_left = || Error::corrupt(folder, "no number is left for another segment");
        header.number = header.number.checked_add(1).ok_or_else(none_left)?;
        header.start = scan.durable.min(scan.end);
    }
    let mut bytes = header.encode();
    for frame in scan.frames.iter().filter(|frame| frame.position >= header.start) {
        let Frame { position, stream, mark, payload } = frame;
        let header =
            FrameHeader { log: scan.header.log, position: *position, durable: 0, mark: *mark, stream: *stream };
        header.encode(payload, &mut bytes);
    }
    // Room, as every last segment has.
    bytes.resize(bytes.len() + ALIGNMENT, 0);
    let (new, file) = create_new(disk, folder)?;
    let written = file.write_at(0, &bytes);
    let synced = if planted(Bug::RecoveredIsNotSynced) { written } else { written.and_then(|()| file.sync()) };
    synced.map_err(|error| {
        // A failed file must take no room. If it stays nevertheless, it does no other harm.
        drop(remove_if_there(disk, &new));
        let detail =
            || format!("the end of a log is written anew before it goes on: make room for {} bytes", bytes.len());
        if error.kind() == ErrorKind::Full { Error::new(ErrorKind::Full, "write", &new, detail()) } else { error }
    })?;
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

/// Creates a file for what is kept of the end of the log, which no other process writes. Removes what interrupted recoveries
/// left.
fn create_new(disk: &dyn Disk, folder: &str) -> Result<(String, Arc<dyn DiskFile>)> {
    let mut attempt = 0u64;
    loop {
        let path = path_in(folder, &format!("{END}-{attempt}.new"));
        match disk.create(&path) {
            Ok(file) => match file.take() {
                // Another recovery took the file for an abandoned one, and removes it.
                Ok(false) => {}
                // Where files cannot be locked, abandoned ones stay.
                Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
                _ => return Ok((path, file)),
            },
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let taken = disk.open(&path, false).and_then(|file| Ok(file.take()?.then_some(file)));
                match taken {
                    Ok(Some(left)) => {
                        remove_if_there(disk, &path)?;
                        drop(left);
                        continue;
                    }
                    // The file of a recovery that is under way, or was a moment ago.
                    Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
    }
}
