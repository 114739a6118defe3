//! A file system in memory that loses power, and fails where it is told to.
//!
//! Handles share the files. Each handle has its own count of operations (its *steps*), by which faults and its end are
//! planned. So a killed process is a handle that ends at a step, a process that hangs and wakes up is an older handle, and
//! [`SimDisk::lose_power`] replaces the files by one of the images that the contract of [`super`] allows.

use super::{Disk, DiskEntry, DiskFile, OPEN};
use crate::error::{Error, Result};
use crate::rot::{RottenRead, replace};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::sync::{Arc, Mutex, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// What goes wrong at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing is done, and an error is returned.
    Refused(ErrorKind),
    /// Like `Refused`, and the error says that what the operation needs could not be opened: the process has no file
    /// descriptor left.
    NotOpened(ErrorKind),
    /// Everything is done, but an error is returned.
    Reported(ErrorKind),
    /// Half of the bytes are written, and an error is returned. Like `Refused` where nothing is written.
    Half(ErrorKind),
    /// The sync of a file fails, and the bytes that it covered never become durable unless they are written again, because
    /// Linux marks pages clean after a failed write. Like `Refused` elsewhere: entries of folders are journalled.
    Lost,
    /// A sync succeeds but has done nothing: a device that lies. No code survives that; this fault exists to test the
    /// tests.
    Lie,
}

/// A handle on files in memory. Handles made by [`SimDisk::handle`] share the files.
#[derive(Debug, Clone)]
pub struct SimDisk {
    files: Arc<Mutex<Files>>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    steps: u64,
    ends_at: Option<u64>,
    faults: BTreeMap<u64, DiskFault>,
    interrupt: Option<(u64, Interrupt)>,
    syncs: u64,
    rotten_read: RottenRead,
}

impl Plan {
    fn has_ended(&self) -> bool {
        self.ends_at.is_some_and(|end| self.steps >= end)
    }
}

/// Code that runs elsewhere while a handle is at a step.
type Interrupt = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Files {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// Files that handles have locked, each with the handle's plan, which says whether the handle has ended.
    taken: BTreeMap<u64, Arc<Mutex<Plan>>>,
    /// Total bytes that files can have, in whole blocks.
    room: Option<u64>,
}

const ROOT: u64 = 0;
/// A file that is not empty takes whole blocks.
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Clone)]
enum Node {
    Folder { entries: Entries, durable: Entries, pending: Vec<EntryChange> },
    File { content: Vec<u8>, durable: Vec<u8>, pending: Vec<FileChange> },
}

type Entries = BTreeMap<String, u64>;

/// An entry's name, and the node that it leads to; none when it was removed.
type EntryChange = (String, Option<u64>);

#[derive(Debug, Clone)]
enum FileChange {
    Write(u64, Vec<u8>),
    Reserve(u64),
    Truncate(u64),
}

impl FileChange {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => {
                let start = *offset as usize;
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
            }
            Self::Reserve(length) => content.resize(content.len().max(*length as usize), 0),
            Self::Truncate(length) => content.truncate(*length as usize),
        }
    }

    /// Splits this change into those that a disk makes one by one.
    fn pieces(&self, piece_bytes: u64) -> Vec<Self> {
        let Self::Write(offset, bytes) = self else { return vec![self.clone()] };
        let mut pieces = Vec::new();
        let (mut at, mut rest) = (*offset, bytes.as_slice());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min((piece_bytes - at % piece_bytes) as usize));
            pieces.push(Self::Write(at, piece.to_vec()));
            (at, rest) = (at + piece.len() as u64, after);
        }
        pieces
    }
}

impl Node {
    fn folder() -> Self {
        Self::Folder { entries: Entries::new(), durable: Entries::new(), pending: Vec::new() }
    }

    /// Makes everything pending durable.
    fn sync(&mut self) {
        match self {
            Self::Folder { durable, pending, .. } => {
                pending.drain(..).for_each(|change| apply_entry(durable, &change));
            }
            Self::File { durable, pending, .. } => pending.drain(..).for_each(|change| change.apply(durable)),
        }
    }

    fn forget_pending(&mut self) {
        match self {
            Self::Folder { pending, .. } => pending.clear(),
            Self::File { pending, .. } => pending.clear(),
        }
    }

    /// Keeps what is left after a power failure.
    fn lose_power(&mut self, random: &mut Random) {
        match self {
            Self::Folder { entries, durable, pending } => {
                for change in survivors(std::mem::take(pending), random) {
                    apply_entry(durable, &change);
                }
                entries.clone_from(durable);
            }
            Self::File { content, durable, pending } => {
                let piece_bytes = [8, 512, 4096][random.below(3) as usize];
                let pieces = pending.drain(..).flat_map(|change| change.pieces(piece_bytes)).collect();
                for change in survivors(pieces, random) {
                    change.apply(durable);
                }
                content.clone_from(durable);
            }
        }
    }
}

fn apply_entry(entries: &mut Entries, (name, node): &EntryChange) {
    match node {
        Some(node) => entries.insert(name.clone(), *node),
        None => entries.remove(name),
    };
}

/// The `changes` that reached the disk: all, none, the first few, or any.
fn survivors<T>(mut changes: Vec<T>, random: &mut Random) -> Vec<T> {
    match random.below(5) {
        0 => changes.clear(),
        1 => {}
        2 | 3 => changes.truncate(random.below(changes.len() as u64 + 1) as usize),
        _ => changes.retain(|_| random.one_in(1, 2)),
    }
    changes
}

/// An operation, as faults distinguish it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    SyncOfFile,
    Other,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        let files = Files {
            nodes: BTreeMap::from([(ROOT, Node::folder())]),
            next: ROOT + 1,
            taken: BTreeMap::new(),
            room: None,
        };
        Self { files: Arc::new(Mutex::new(files)), plan: Arc::default() }
    }

    /// Another handle on the same files, with nothing planned.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { files: Arc::clone(&self.files), plan: Arc::default() }
    }

    /// A copy of the disk as it is, including what is not synced.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let files = lock(&self.files);
        let files = Files { nodes: files.nodes.clone(), next: files.next, taken: BTreeMap::new(), room: files.room };
        Self { files: Arc::new(Mutex::new(files)), plan: Arc::default() }
    }

    /// Makes this handle end before its operation number `step`, counted from zero: that one and all later ones fail and do
    /// nothing.
    pub fn end_at(&self, step: u64) {
        lock(&self.plan).ends_at = Some(step);
    }

    /// Makes this handle's operation number `step`, counted from zero, go wrong.
    pub fn fail_at(&self, step: u64, fault: DiskFault) {
        lock(&self.plan).faults.insert(step, fault);
    }

    /// Cancels all faults that were planned for this handle.
    pub fn mend(&self) {
        lock(&self.plan).faults.clear();
    }

    /// Calls `interrupt` before this handle's operation number `step`, as if the process had been stopped there.
    pub fn interrupt_at(&self, step: u64, interrupt: impl FnOnce() + Send + 'static) {
        lock(&self.plan).interrupt = Some((step, Box::new(interrupt)));
    }

    /// Leaves room for `bytes` more on the disk, for all handles; `None` for no limit. Files take whole blocks, and names
    /// take nothing.
    pub fn leave_room(&self, bytes: Option<u64>) {
        let mut files = lock(&self.files);
        files.room = bytes.map(|bytes| files.taken_bytes().saturating_add(bytes));
    }

    /// Operations of this handle so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        lock(&self.plan).steps
    }

    /// How many of those operations were syncs of files that took effect.
    #[must_use]
    pub fn file_syncs(&self) -> u64 {
        lock(&self.plan).syncs
    }

    /// Loses power: what was not synced survives in part, as `random` decides. Earlier handles on open files are useless.
    pub fn lose_power(&self, random: &mut Random) {
        let mut files = lock(&self.files);
        files.nodes.values_mut().for_each(|node| node.lose_power(random));
        files.taken.clear();
    }

    /// Changes one byte of a file, also on the disk: rot.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn flip(&self, path: &str, offset: u64, mask: u8) -> Result<()> {
        let mut files = lock(&self.files);
        let node = files.file(path)?;
        if let Some(Node::File { content, durable, .. }) = files.nodes.get_mut(&node) {
            for bytes in [content, durable] {
                bytes.get_mut(offset as usize).into_iter().for_each(|byte| *byte ^= mask);
            }
        }
        Ok(())
    }

    /// Replaces the bytes `from` of a file by `to`, for readers and on the disk, wherever `from` is there now: rot, or
    /// its end. A file that was removed counts, too, while a power failure may bring it back. Returns whether readers
    /// see the change.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rot(&self, path: &str, offset: u64, from: &[u8], to: &[u8]) -> Result<bool> {
        let mut files = lock(&self.files);
        let seen = files.file(path);
        let mut is_seen = false;
        for number in files.ever_at(path) {
            if let Some(Node::File { content, durable, .. }) = files.nodes.get_mut(&number) {
                replace(durable, offset as usize, from, to);
                is_seen |= replace(content, offset as usize, from, to) && seen.as_ref().ok() == Some(&number);
            }
        }
        seen.map(|_| is_seen)
    }

    /// Makes one read of this handle, after `reads` others, return a flipped bit. The disk does not change.
    pub fn rot_read(&self, reads: u64, bit: u64) {
        lock(&self.plan).rotten_read.plan(reads, bit);
    }

    /// Returns the files that this handle has read with such a bit.
    #[must_use]
    pub fn rotten_reads(&self) -> Vec<String> {
        lock(&self.plan).rotten_read.done()
    }

    /// Counts a step. Returns the fault that it meets, or an error when the handle has ended.
    fn step(&self, object: &str) -> Result<Option<DiskFault>> {
        let mut plan = lock(&self.plan);
        let step = plan.steps;
        plan.steps += 1;
        if let Some((_, interrupt)) = plan.interrupt.take_if(|(at, _)| *at == step) {
            drop(plan);
            interrupt();
            plan = lock(&self.plan);
        }
        if plan.ends_at.is_some_and(|end| step >= end) {
            return Err(Error::new(ErrorKind::Closed, "use", object, "the simulated process has ended"));
        }
        Ok(plan.faults.get(&step).copied())
    }

    /// Carries out one operation: `work`, unless a fault says otherwise; `partly` if the operation is done in part.
    fn operate<T>(
        &self,
        object: &str,
        kind: Step,
        partly: impl FnOnce(&mut Files) -> Result<()>,
        work: impl FnOnce(&mut Files) -> Result<T>,
    ) -> Result<T> {
        let fault = self.step(object)?;
        let injected = |kind| Error::new(kind, "use", object, "an injected fault");
        let mut files = lock(&self.files);
        match (fault, kind) {
            (None | Some(DiskFault::Lie), _) => work(&mut files),
            (Some(DiskFault::Reported(error)), _) => work(&mut files).and(Err(injected(error))),
            (Some(DiskFault::Half(error)), Step::Write) => partly(&mut files).and(Err(injected(error))),
            (Some(DiskFault::NotOpened(error)), _) => Err(Error::new(error, OPEN, object, "an injected fault")),
            (Some(DiskFault::Lost), Step::SyncOfFile) => partly(&mut files).and(Err(injected(ErrorKind::Io))),
            (Some(DiskFault::Refused(error) | DiskFault::Half(error)), _) => Err(injected(error)),
            (Some(DiskFault::Lost), _) => Err(injected(ErrorKind::Io)),
        }
    }

    fn simply<T>(&self, object: &str, work: impl FnOnce(&mut Files) -> Result<T>) -> Result<T> {
        self.operate(object, Step::Other, |_| Ok(()), work)
    }

    /// Syncs the node that `find` finds.
    fn sync_node(&self, object: &str, kind: Step, find: impl Fn(&Files) -> Result<u64>) -> Result<()> {
        let lies = {
            let plan = lock(&self.plan);
            plan.faults.get(&plan.steps) == Some(&DiskFault::Lie)
        };
        let forget = |files: &mut Files| {
            let node = find(files)?;
            files.nodes.get_mut(&node).into_iter().for_each(Node::forget_pending);
            Ok(())
        };
        self.operate(object, kind, forget, |files| {
            let node = find(files)?;
            if !lies {
                files.nodes.get_mut(&node).into_iter().for_each(Node::sync);
            }
            Ok(())
        })
    }
}

impl Files {
    fn find(&self, path: &str) -> Option<u64> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |node, part| match self.nodes.get(&node) {
            Some(Node::Folder { entries, .. }) => entries.get(part).copied(),
            _ => None,
        })
    }

    fn existing(&self, path: &str) -> Result<u64> {
        self.find(path).ok_or_else(|| Error::new(ErrorKind::NotFound, "look", path, "there is no such file or folder"))
    }

    fn file(&self, path: &str) -> Result<u64> {
        let node = self.existing(path)?;
        match self.nodes.get(&node) {
            Some(Node::File { .. }) => Ok(node),
            _ => Err(Error::new(ErrorKind::Invalid, "look", path, "it is a folder")),
        }
    }

    /// The nodes that a path leads to now, or may lead to after a power failure.
    fn ever_at(&self, path: &str) -> BTreeSet<u64> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.find(folder).and_then(|folder| self.nodes.get(&folder)) {
            Some(Node::Folder { entries, durable, pending }) => {
                let named = [entries, durable].into_iter().filter_map(|entries| entries.get(name).copied());
                let was_named = pending.iter().filter(|(of, _)| of == name).filter_map(|(_, node)| *node);
                named.chain(was_named).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Changes an entry of the folder that contains `path`.
    fn set(&mut self, path: &str, node: Option<u64>) -> Result<()> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder_node = self.existing(folder)?;
        let Some(Node::Folder { entries, pending, .. }) = self.nodes.get_mut(&folder_node) else {
            return Err(Error::new(ErrorKind::Invalid, "use", folder, "it is not a folder"));
        };
        let change = (name.to_owned(), node);
        apply_entry(entries, &change);
        pending.push(change);
        Ok(())
    }

    fn add(&mut self, path: &str, node: Node) -> Result<u64> {
        if self.find(path).is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "create", path, "the name is taken"));
        }
        let number = self.next;
        self.set(path, Some(number))?;
        self.next += 1;
        self.nodes.insert(number, node);
        Ok(number)
    }

    /// Bytes of the blocks of all files that have a name.
    fn taken_bytes(&self) -> u64 {
        let (mut folders, mut files) = (vec![ROOT], BTreeSet::new());
        while let Some(folder) = folders.pop() {
            let Some(Node::Folder { entries, .. }) = self.nodes.get(&folder) else { continue };
            for node in entries.values() {
                match self.nodes.get(node) {
                    Some(Node::Folder { .. }) => folders.push(*node),
                    _ => drop(files.insert(*node)),
                }
            }
        }
        let length = |node: &u64| match self.nodes.get(node) {
            Some(Node::File { content, .. }) => content.len() as u64,
            _ => 0,
        };
        files.iter().map(|node| length(node).next_multiple_of(BLOCK_BYTES)).sum()
    }

    /// Checks that there is room for a file to have `length` bytes.
    fn check_room(&self, node: u64, length: u64) -> Result<()> {
        let Some(Node::File { content, .. }) = self.nodes.get(&node) else { return Ok(()) };
        let [before, after] = [content.len() as u64, length].map(|length| length.next_multiple_of(BLOCK_BYTES));
        if self.room.is_some_and(|room| after > before && self.taken_bytes() + (after - before) > room) {
            return Err(Error::new(ErrorKind::Full, "write", node.to_string(), "the simulated disk is full"));
        }
        Ok(())
    }

    fn change(&mut self, node: u64, change: FileChange) -> Result<()> {
        match &change {
            FileChange::Write(offset, bytes) => self.check_room(node, offset + bytes.len() as u64)?,
            FileChange::Reserve(length) => self.check_room(node, *length)?,
            FileChange::Truncate(_) => {}
        }
        let Some(Node::File { content, pending, .. }) = self.nodes.get_mut(&node) else {
            return Err(Error::new(ErrorKind::Invalid, "write", node.to_string(), "it is not a file"));
        };
        change.apply(content);
        pending.push(change);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }

    fn create(&self, path: &str) -> Result<std::sync::Arc<dyn DiskFile>> {
        let file = Node::File { content: Vec::new(), durable: Vec::new(), pending: Vec::new() };
        let node = self.simply(path, |files| files.add(path, file))?;
        Ok(std::sync::Arc::new(SimFile::new(self, node, path)))
    }

    fn open(&self, path: &str, _writes: bool) -> Result<std::sync::Arc<dyn DiskFile>> {
        let node = self.simply(path, |files| files.file(path))?;
        Ok(std::sync::Arc::new(SimFile::new(self, node, path)))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        self.simply(path, |files| Ok(files.find(path).is_some()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.simply(to, |files| {
            let node = files.file(from)?;
            files.set(to, Some(node))?;
            files.set(from, None)
        })
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.simply(to, |files| {
            let node = files.file(from)?;
            match files.find(to) {
                Some(_) => Err(Error::new(ErrorKind::AlreadyExists, "link", to, "the name is taken")),
                None => files.set(to, Some(node)),
            }
        })
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.simply(path, |files| {
            files.file(path)?;
            files.set(path, None)
        })
    }

    fn make_folder(&self, path: &str) -> Result<()> {
        self.simply(path, |files| match files.find(path) {
            Some(_) => Ok(()),
            None => files.add(path, Node::folder()).map(|_| ()),
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<DiskEntry>> {
        self.simply(folder, |files| {
            let node = files.existing(folder)?;
            let Some(Node::Folder { entries, .. }) = files.nodes.get(&node) else {
                return Err(Error::new(ErrorKind::Invalid, "list", folder, "it is not a folder"));
            };
            let length_of = |node| match files.nodes.get(node) {
                Some(Node::File { content, .. }) => Some(content.len() as u64),
                _ => None,
            };
            let entry = |(name, node): (&String, _)| DiskEntry { name: name.clone(), length_bytes: length_of(node) };
            Ok(entries.iter().map(entry).collect())
        })
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        self.sync_node(folder, Step::Other, |files| files.existing(folder))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    node: u64,
    path: String,
    is_taken: AtomicBool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if self.is_taken.load(Ordering::Relaxed) {
            lock(&self.disk.files).taken.remove(&self.node);
        }
    }
}

impl SimFile {
    fn new(disk: &SimDisk, node: u64, path: &str) -> Self {
        Self { disk: disk.clone(), node, path: path.to_owned(), is_taken: AtomicBool::new(false) }
    }

    fn content<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.disk.simply(&self.path, |files| match files.nodes.get(&self.node) {
            Some(Node::File { content, .. }) => Ok(work(content)),
            _ => Err(Error::new(ErrorKind::Invalid, "read", &self.path, "it is not a file")),
        })
    }
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = |bytes: &[u8]| FileChange::Write(offset, bytes.to_vec());
        let half = write(bytes.get(..bytes.len() / 2).unwrap_or_default());
        let node = self.node;
        self.disk.operate(
            &self.path,
            Step::Write,
            |files| files.change(node, half),
            |files| files.change(node, write(bytes)),
        )
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let length = self.content(|content| {
            let rest = content.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(out.len());
            out[..length].copy_from_slice(&rest[..length]);
            length
        })?;
        lock(&self.disk.plan).rotten_read.pass(&self.path, &mut out[..length]);
        Ok(length)
    }

    fn length(&self) -> Result<u64> {
        self.content(|content| content.len() as u64)
    }

    fn reserve(&self, length_bytes: u64) -> Result<()> {
        self.disk.simply(&self.path, |files| files.change(self.node, FileChange::Reserve(length_bytes)))
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.disk.simply(&self.path, |files| files.change(self.node, FileChange::Truncate(length_bytes)))
    }

    /// Not a step of its own: it belongs to the step that opened the file.
    fn take(&self) -> Result<bool> {
        let mut files = lock(&self.disk.files);
        if files.taken.get(&self.node).is_some_and(|holder| !lock(holder).has_ended()) {
            return Ok(false);
        }
        files.taken.insert(self.node, Arc::clone(&self.disk.plan));
        self.is_taken.store(true, Ordering::Relaxed);
        Ok(true)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync_node(&self.path, Step::SyncOfFile, |_| Ok(self.node))?;
        lock(&self.disk.plan).syncs += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
        let file = disk.open(path, false).ok()?;
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        Some(bytes)
    }

    /// The contents of files `a` and `b` after power failures of many seeds.
    fn images(prepare: impl Fn(&SimDisk)) -> Vec<[Option<Vec<u8>>; 2]> {
        let mut images: Vec<_> = (0..400)
            .map(|seed| {
                let disk = SimDisk::new();
                prepare(&disk);
                disk.lose_power(&mut Random::seeded(seed));
                ["a", "b"].map(|path| content(&disk, path))
            })
            .collect();
        images.sort();
        images.dedup();
        images
    }

    #[test]
    fn what_is_synced_survives_and_the_rest_does_in_part() {
        let synced = images(|disk| {
            let file = disk.create("a").unwrap();
            file.write_at(0, b"12345678").unwrap();
            file.sync().unwrap();
            disk.sync_folder("").unwrap();
        });
        assert_eq!(synced, [[Some(b"12345678".to_vec()), None]]);
        let without_folder = images(|disk| disk.create("a").unwrap().sync().unwrap());
        assert_eq!(without_folder, [[None, None], [Some(Vec::new()), None]]);
        let half = images(|disk| {
            let file = disk.create("a").unwrap();
            disk.sync_folder("").unwrap();
            file.write_at(0, &[1; 16]).unwrap();
        });
        // Nothing, the first piece, the second without the first, all.
        let [zeros, ones] = [[0; 8], [1; 8]];
        let expected = [Vec::new(), [zeros, ones].concat(), ones.to_vec(), [ones; 2].concat()];
        assert_eq!(half, expected.map(|bytes| [Some(bytes), None]));
    }

    #[test]
    fn a_rename_may_show_both_names_or_neither() {
        let renamed = images(|disk| {
            disk.create("a").unwrap();
            disk.sync_folder("").unwrap();
            disk.rename("a", "b").unwrap();
        });
        let [none, some] = [None, Some(Vec::new())];
        let expected = [[&none, &none], [&none, &some], [&some, &none], [&some, &some]];
        assert_eq!(renamed, expected.map(|image| image.map(Clone::clone)));
    }

    #[test]
    fn what_a_failed_sync_lost_stays_lost() {
        let lost = images(|disk| {
            let file = disk.create("a").unwrap();
            disk.sync_folder("").unwrap();
            file.write_at(0, &[1; 8]).unwrap();
            disk.fail_at(disk.steps(), DiskFault::Lost);
            assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
            // The file can still be read, and the next sync succeeds, but the bytes are not durable.
            assert_eq!(content(disk, "a"), Some(vec![1; 8]));
            file.sync().unwrap();
        });
        assert_eq!(lost, [[Some(Vec::new()), None]]);
    }

    #[test]
    fn a_full_disk_takes_names_and_what_fits_into_blocks_that_are_there() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.write_at(0, b"1").unwrap();
        disk.leave_room(Some(0));
        file.write_at(0, &[1; 4096]).unwrap();
        assert_eq!(file.write_at(1, &[1; 4096]).unwrap_err().kind(), ErrorKind::Full);
        let other = disk.handle().create("b").unwrap();
        assert_eq!(other.reserve(1).unwrap_err().kind(), ErrorKind::Full);
        disk.remove("a").unwrap();
        other.reserve(4096).unwrap();
        assert_eq!(other.reserve(4097).unwrap_err().kind(), ErrorKind::Full);
        disk.leave_room(None);
        other.reserve(1 << 20).unwrap();
    }

    #[test]
    fn rot_stays_until_it_is_taken_back_and_a_rotten_read_is_rotten_once() {
        let disk = SimDisk::new();
        disk.create("a").unwrap().write_at(0, b"12345678").unwrap();
        assert!(disk.rot("a", 2, b"34", b"xy").unwrap());
        assert_eq!(content(&disk, "a"), Some(b"12xy5678".to_vec()));
        assert!(!disk.rot("a", 2, b"34", b"xy").unwrap() && !disk.rot("a", 7, b"89", b"xy").unwrap());
        assert!(disk.rot("a", 2, b"xy", b"34").unwrap());
        disk.rot_read(1, 9);
        let bytes = [(); 3].map(|()| content(&disk, "a").unwrap());
        assert_eq!(bytes, [b"12345678", b"10345678", b"12345678"]);
        assert_eq!(disk.rotten_reads(), ["a"]);
    }

    #[test]
    fn rot_is_taken_back_from_a_removed_file_that_may_come_back() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.write_at(0, b"12345678").unwrap();
        file.sync().unwrap();
        disk.sync_folder("").unwrap();
        assert!(disk.rot("a", 0, b"12", b"xy").unwrap());
        disk.remove("a").unwrap();
        assert_eq!(disk.rot("a", 0, b"xy", b"12").unwrap_err().kind(), ErrorKind::NotFound);
        let back = (0..100).find_map(|seed| {
            let disk = disk.duplicate();
            disk.lose_power(&mut Random::seeded(seed));
            content(&disk, "a")
        });
        assert_eq!(back, Some(b"12345678".to_vec()));
    }

    #[test]
    fn a_handle_ends_where_it_was_told_to_and_others_go_on() {
        let disk = SimDisk::new();
        disk.create("a").unwrap();
        let other = disk.handle();
        disk.end_at(1);
        assert_eq!(disk.create("b").unwrap_err().kind(), ErrorKind::Closed);
        assert!(other.exists("a").unwrap() && !other.exists("b").unwrap());
    }
}
