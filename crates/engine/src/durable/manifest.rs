//! The manifest: a shard's versions in remote memory, from which another process can continue (`ARCHITECTURE.md`, a
//! compute node is replaceable).
//!
//! ```text
//!  directory of the memory node          a segment of the shard
//!   root: where, how long, CRC32C ─────►  version | edit | edit | edit | free
//! ```
//!
//! A change counts only once the node has accepted the root that covers it:
//!
//! 1. Everything that the change adds is completely written, and the shard has adopted the memory.
//! 2. The edit is written after the others, one-sidedly.
//! 3. The root is set, with the owner's epoch.
//! 4. Only then is the version installed, and what it no longer names is freed.
//!
//! # The spare
//!
//! Next to the log is its *spare*, as long as the log may get. When the log is full, or when another process takes
//! over, a new log that begins with the whole version is written into the spare. Once the root has moved, the old log
//! is the spare. A version is never longer than the edits that led to it, so it fits. A database therefore opens, and
//! continues, without any further memory of the node. If little room would be left after the version, and there is
//! memory, both are replaced by longer ones.
//!
//! Layout of log and root: `docs/formats/manifest.md`.
//!
//! # When a step fails
//!
//! A failed write may still land. So a log is not appended to after a failed write, and a spare that was its target is
//! not used again. When the reply to a root is lost, nobody knows which of two versions counts. So everything that
//! either of them names is kept. The epoch is ended, which makes the outcome final, and the previous root is set again.
//! Then it is decided, and what only the other version names is freed.
//!
//! An earlier owner that does not release the memory of the log and the spare may still write there. Then both are only
//! read, and a new pair is written elsewhere as soon as there is memory.

use crate::durable::findings::{Damaged, Looked, Mend};
use crate::remote::members::Members;
use crate::remote::owner::Owner;
use crate::remote::pipeline::{Pipeline, read_range};
use crate::remote::segment::{Remote, Segment, place_of, range_of};
use crate::terms::planted::{Bug, when_planted};
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use crate::tree::version::{Change, LiveVersion};
use forebay_base::{ErrorKind, SegmentId, checksum_append};
use forebay_env::sync::{Mutex, lock};
use forebay_memory_client::{ExtentRange, MemoryClient, Purpose};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::{ManifestRoot, Placement, SegmentInfo, SegmentKind, Version, VersionEdit};
use std::sync::Arc;

/// Minimum bytes of a log.
const MIN_LOG_BYTES: u64 = 32 << 10;
/// A new log may get this many times longer than its first edit, if there is memory.
const GROWTH: u64 = 4;
/// A whole version may be longer than the edits that led to it by this many bytes, for numbers that have grown.
const SLACK_BYTES: u64 = 128;

/// The manifest of a shard, at each of its members. The lock is held while a change is recorded, so changes follow one
/// another.
#[derive(Debug)]
pub(crate) struct Manifest {
    logs: Mutex<Vec<Log>>,
}

/// The manifest at one member.
#[derive(Debug)]
pub(crate) struct Log {
    owner: Arc<Owner>,
    remote: Arc<Remote>,
    pair: Pair,
    length: u64,
    edits: u64,
    checksum: u32,
    /// Nothing can be appended, because a write failed.
    is_closed: bool,
    /// The next log must not be written into the spare.
    is_spare_unsound: bool,
    /// It is unknown whether the last root counts.
    is_unsettled: bool,
    /// Segments named only by a version that may or may not count.
    kept: Vec<Arc<Segment>>,
}

/// The memory of a log and of its spare, equally long.
#[derive(Debug, Clone)]
struct Pair {
    log: Arc<Segment>,
    spare: Arc<Segment>,
}

impl Pair {
    fn allocate(remote: &Arc<Remote>, capacity: u64) -> Result<Self> {
        // They are not segments of a version, so they have no numbers.
        let allocate = || remote.allocate(SegmentId(0), SegmentKind::TableImage, capacity, Purpose::Collection);
        Ok(Self { log: allocate()?, spare: allocate()? })
    }

    /// A pair of `wanted` bytes, or of less, but more than `least`: if memory is fragmented, pieces are shorter.
    fn allocate_most(remote: &Arc<Remote>, wanted: u64, least: u64) -> Result<Self> {
        let mut capacity = remote.longest_piece(wanted).max(least + 1).next_multiple_of(GRANULARITY_BYTES);
        loop {
            let shorter = capacity / 8 * 7 / GRANULARITY_BYTES * GRANULARITY_BYTES;
            match Self::allocate(remote, capacity) {
                Err(error) if error.kind() == ErrorKind::Full && shorter > least => capacity = shorter,
                allocated => return allocated,
            }
        }
    }

    fn swapped(&self) -> Self {
        Self { log: Arc::clone(&self.spare), spare: Arc::clone(&self.log) }
    }

    fn capacity(&self) -> u64 {
        self.log.info().length
    }

    fn segments(&self) -> [Arc<Segment>; 2] {
        [Arc::clone(&self.log), Arc::clone(&self.spare)]
    }

    fn abandon(&self) {
        self.log.abandon();
        self.spare.abandon();
    }
}

/// The log that an earlier owner left, with its spare.
#[derive(Debug)]
pub(crate) struct Left {
    root: ManifestRoot,
    pair: Pair,
    is_writable: bool,
}

impl Left {
    /// The memory of log and spare, according to the root. `None` if it does not fit into extents.
    pub(crate) fn ranges(root: &ManifestRoot, client: &MemoryClient) -> Option<[ExtentRange; 2]> {
        let range = |extent, offset| range_of(client, extent, offset, root.capacity);
        Some([range(root.extent, root.offset)?, range(root.spare_extent, root.spare_offset)?])
    }

    /// Holds both. They are not freed before this owner has set its own root.
    ///
    /// # Errors
    /// When no key to the memory can be had.
    pub(crate) fn hold(root: ManifestRoot, remote: &Arc<Remote>) -> Result<Self> {
        let hold = |extent, offset| {
            let place = Placement::Memory { node: root.node, incarnation: root.incarnation, extent, offset };
            let info = SegmentInfo::new(SegmentKind::TableImage, root.capacity, vec![place]);
            let held = remote.hold(SegmentId(0), &info)?;
            held.ok_or_else(|| Error::corrupt("the manifest does not lie in this memory node"))
        };
        let log = hold(root.extent, root.offset)?;
        let spare = hold(root.spare_extent, root.spare_offset)?;
        let is_writable = remote.is_writable(root.extent) && remote.is_writable(root.spare_extent);
        Ok(Self { root, pair: Pair { log, spare }, is_writable })
    }
}

impl Manifest {
    /// The manifest of these logs.
    pub(crate) fn new(logs: Vec<Log>) -> Self {
        Self { logs: Mutex::new(logs) }
    }

    /// Records, at all members, the change that leads to `after`. It counts when it is recorded at all members that are
    /// not left out. A member where it cannot be recorded, although another member has it, is left out.
    ///
    /// # Errors
    /// `Fenced` and `Full`: the change does not count. `Unavailable`, `TimedOut`: it may or may not count.
    pub(crate) fn record(&self, change: &Change, after: &LiveVersion, members: &Members) -> Result<()> {
        let mut logs = lock(&self.logs);
        let mut recorded = Vec::new();
        let mut failed = Vec::new();
        for (at, log) in logs.iter_mut().enumerate().filter(|(_, log)| members.is_active(log.remote.member())) {
            match log.record(change, after) {
                Ok(before) => recorded.push((at, before)),
                Err(error) => failed.push((log.remote.member(), error)),
            }
        }
        let left_out = match failed.first() {
            // Nothing was recorded anywhere: it is not the member's failure. Where memory is full it does not count,
            // but at another member it may.
            Some((_, first)) if recorded.is_empty() => {
                let other = failed.iter().find(|(_, error)| error.kind() != ErrorKind::Full);
                Err(other.map_or(first, |(_, error)| error).clone())
            }
            _ => failed.iter().try_for_each(|(member, error)| members.leave_out(*member, error)),
        };
        if left_out.is_err() {
            for (at, before) in recorded {
                if let Some(log) = logs.get_mut(at) {
                    log.withdraw(before, change);
                }
            }
        }
        // What a left-out member held holds nothing back any more.
        logs.retain(|log| members.is_written(log.remote.member()));
        left_out
    }

    /// Checks whether the members have what was written to their manifests, and begins damaged ones anew: they say what
    /// `version` does, which is the last that was recorded.
    ///
    /// # Errors
    /// Those of members that cannot be read or written.
    pub(crate) fn look(&self, version: &Version, tree: &Tree, mend: Mend, looked: &mut Looked) -> Result<()> {
        let members = &tree.remote;
        for log in lock(&self.logs).iter_mut().filter(|log| members.is_active(log.remote.member())) {
            looked.copies += 1;
            looked.bytes += log.length;
            if log.is_whole()? {
                continue;
            }
            let node = log.remote.memory_node().client().node();
            if mend == Mend::Repair {
                tracing::warn!(%node, "a damaged manifest is begun anew");
                log.begin_anew(version)?;
            }
            let (what, detail) = ("manifest".to_owned(), "its checksum does not match".to_owned());
            looked.add(Damaged { what, node, is_mended: mend == Mend::Repair, detail }, &tree.counters);
        }
        Ok(())
    }

    /// Adds the manifest at a member that joins.
    pub(crate) fn add(&self, log: Log) {
        lock(&self.logs).push(log);
    }

    /// Bytes that the manifest takes.
    #[cfg(test)]
    pub(crate) fn size_bytes(&self) -> u64 {
        lock(&self.logs).iter().map(|log| 2 * log.pair.capacity()).sum()
    }

    /// Leaves the manifest, and everything it may name, on the nodes: another owner continues from it.
    pub(crate) fn leave(&self) {
        for log in &*lock(&self.logs) {
            log.pair.abandon();
            log.kept.iter().for_each(|segment| segment.abandon());
        }
    }
}

impl Log {
    /// Begins a manifest with a version, either left by an earlier owner or empty. If one was left, needs no further
    /// memory of the node.
    ///
    /// # Errors
    /// `Full`, `Unavailable`, `Fenced`.
    pub(crate) fn begin(
        owner: &Arc<Owner>,
        remote: &Arc<Remote>,
        version: &Version,
        left: Option<&Left>,
    ) -> Result<Self> {
        let pair = left.filter(|left| left.is_writable).map(|left| &left.pair);
        let log = match (write_log(owner, remote, version, pair), left) {
            (Err(error), Some(left)) if error.kind() == ErrorKind::Full => Self::left(owner, remote, left),
            (written, _) => written?,
        };
        // If the reply is lost, the next owner finds one root or the other.
        owner.set_root(&log.root()?.encode()?).inspect_err(|_| log.pair.abandon())?;
        if let Some(left) = left {
            left.pair.segments().iter().for_each(|segment| segment.take_charge());
        }
        Ok(log)
    }

    /// Records the change that leads to `after`. Returns the manifest before.
    ///
    /// # Errors
    /// `Fenced` and `Full`: the change does not count. `Unavailable`, `TimedOut`: it may or may not count.
    fn record(&mut self, change: &Change, after: &LiveVersion) -> Result<Self> {
        self.remote.adopt(&change.segments)?;
        self.settle()?;
        let before = if self.is_closed { None } else { self.append(&change.edit)? };
        let before = match before {
            Some(before) => before,
            None => {
                let next = self.begin_next(&after.version)?;
                std::mem::replace(self, next)
            }
        };
        match self.set_root() {
            Ok(()) => Ok(before),
            Err(error) => {
                self.withdraw(before, change);
                Err(error.during("recording a version"))
            }
        }
    }

    /// Whether the manifest holds what was written to it.
    fn is_whole(&self) -> Result<bool> {
        let bytes = read_range(&mut *self.remote.background()?, self.pair.log.at(0)?, self.length)?;
        Ok(checksum_append(0, &bytes) == self.checksum)
    }

    /// Writes the whole manifest to other memory.
    ///
    /// # Errors
    /// As for recording a change: the manifest before may or may not count, and says the same.
    fn begin_anew(&mut self, version: &Version) -> Result<()> {
        self.settle()?;
        let next = self.begin_next(version)?;
        let before = std::mem::replace(self, next);
        self.set_root().inspect_err(|_| self.withdraw(before, &Change::default()))
    }

    /// Goes back to the manifest before a change, which may or may not have been recorded. The next change settles that:
    /// until then both manifests stay, and everything they name.
    fn withdraw(&mut self, before: Self, change: &Change) {
        let kept = change.segments.iter().cloned().chain(self.pair.segments()).collect();
        *self = Self { is_closed: true, is_unsettled: true, kept, ..before };
    }

    /// If it is unknown which root counts, makes the one known here count.
    fn settle(&mut self) -> Result<()> {
        if self.is_unsettled {
            self.remote.end_epoch()?;
            self.set_root()?;
            self.is_unsettled = false;
            self.kept.clear();
        }
        Ok(())
    }

    /// Writes the next log.
    fn begin_next(&mut self, version: &Version) -> Result<Self> {
        let pair = (!self.is_spare_unsound).then_some(&self.pair);
        write_log(&self.owner, &self.remote, version, pair).inspect_err(|_| {
            // A write to it may still land.
            self.is_spare_unsound |= self.pair.spare.is_abandoned();
        })
    }

    /// The log as an earlier owner left it; it is only read.
    fn left(owner: &Arc<Owner>, remote: &Arc<Remote>, left: &Left) -> Self {
        let ManifestRoot { length, edits, checksum, .. } = left.root;
        let (owner, remote, pair) = (Arc::clone(owner), Arc::clone(remote), left.pair.clone());
        let (is_closed, is_spare_unsound) = (true, !left.is_writable);
        let (is_unsettled, kept) = (false, Vec::new());
        Self { owner, remote, pair, length, edits, checksum, is_closed, is_spare_unsound, is_unsettled, kept }
    }

    /// Appends an edit, and returns the log without it. `None` when there is no room.
    fn append(&mut self, edit: &VersionEdit) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes)?;
        let length = self.length + bytes.len() as u64;
        if length + SLACK_BYTES > self.pair.capacity() {
            return Ok(None);
        }
        let before = Self {
            owner: Arc::clone(&self.owner),
            remote: Arc::clone(&self.remote),
            pair: self.pair.clone(),
            kept: Vec::new(),
            ..*self
        };
        self.length = length;
        self.edits += 1;
        self.checksum = checksum_append(self.checksum, &bytes);
        when_planted(Bug::RootBeforeEdit, || drop(self.set_root()));
        if let Err(error) = write(&self.remote, &self.pair.log, before.length, &bytes) {
            *self = Self { is_closed: true, kept: std::mem::take(&mut self.kept), ..before };
            return Err(error.during("writing a version edit"));
        }
        Ok(Some(before))
    }

    fn set_root(&self) -> Result<()> {
        self.owner.set_root(&self.root()?.encode()?)
    }

    fn root(&self) -> Result<ManifestRoot> {
        let client = self.remote.memory_node().client();
        let place = |segment: &Segment| {
            let place = place_of(client, segment.info());
            place.ok_or_else(|| Error::corrupt("the manifest is not in one piece of remote memory"))
        };
        let (log, spare, here) = (place(&self.pair.log)?, place(&self.pair.spare)?, client.node());
        Ok(ManifestRoot {
            node: here.node,
            incarnation: here.incarnation,
            extent: log.extent.0,
            offset: log.offset,
            capacity: self.pair.capacity(),
            length: self.length,
            edits: self.edits,
            checksum: self.checksum,
            spare_extent: spare.extent.0,
            spare_offset: spare.offset,
        })
    }
}

/// Writes a log that begins with `version`, in memory that the shard has adopted. Uses the spare of `pair` if that
/// leaves room for edits, or else, if there is memory, a longer pair.
fn write_log(owner: &Arc<Owner>, remote: &Arc<Remote>, version: &Version, pair: Option<&Pair>) -> Result<Log> {
    let mut edit = version.to_edit();
    edit.epoch = Some(owner.shard().epoch().0.max(version.epoch()));
    let mut bytes = Vec::new();
    edit.encode(&mut bytes)?;
    let length = bytes.len() as u64;
    let most = remote.extent_bytes();
    if length + SLACK_BYTES > most {
        let message = format!("a version of {length} bytes does not fit into an extent of {most} bytes");
        return Err(Error::new(ErrorKind::Full, message));
    }
    let wanted = (length * GROWTH).max(MIN_LOG_BYTES).next_multiple_of(GRANULARITY_BYTES).min(most);
    let reused = pair.filter(|pair| length + SLACK_BYTES <= pair.capacity());
    let pair = match reused {
        Some(pair) if pair.capacity() >= wanted / 2 => pair.swapped(),
        reused => {
            let least = reused.map_or(length + SLACK_BYTES, Pair::capacity);
            match (Pair::allocate_most(remote, wanted, least), reused) {
                (Err(error), Some(pair)) if error.kind() == ErrorKind::Full => pair.swapped(),
                (allocated, _) => allocated?,
            }
        }
    };
    write(remote, &pair.log, 0, &bytes)?;
    remote.adopt(&pair.segments())?;
    Ok(Log {
        owner: Arc::clone(owner),
        remote: Arc::clone(remote),
        pair,
        length,
        edits: 1,
        checksum: checksum_append(0, &bytes),
        is_closed: false,
        is_spare_unsound: false,
        is_unsettled: false,
        kept: Vec::new(),
    })
}

fn write(remote: &Arc<Remote>, segment: &Arc<Segment>, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut pipeline = Pipeline::new(remote.background()?);
    pipeline.write(segment, offset, bytes)?;
    pipeline.drain()
}
