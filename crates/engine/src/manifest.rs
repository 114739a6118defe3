//! The manifest: a shard's versions in remote memory, so that another process can go on from there
//! (`ARCHITECTURE.md`, a compute node is replaceable).
//!
//! ```text
//!  directory of the memory node          a segment of the shard
//!   root: where, how long, CRC32C ─────►  version | edit | edit | edit | free
//! ```
//!
//! A change counts when the node has taken the root that covers it, and not before:
//!
//! 1. What the change adds is completely written, and the shard has adopted the memory.
//! 2. The edit is written behind the others, one-sidedly.
//! 3. The root is set, with the owner's epoch.
//! 4. Only then the version is installed, and what it no longer names is freed.
//!
//! # The spare
//!
//! Beside the log lies its *spare*, as long as the log may get. When the log is full, or another process goes on
//! from it, a new log that begins with the whole version is written into the spare; when the root has moved, the
//! old log is the spare. A version is never longer than the edits that led to it, so it fits: a database opens,
//! and goes on, without any memory of the node. Both are replaced by longer ones, if there is memory, when little
//! room would be left behind the version.
//!
//! Layout of log and root: `docs/formats/manifest.md`.
//!
//! # When a step fails
//!
//! A failed write may still land, so a log is not appended to behind one, nor is the spare used again that one
//! went to. When the answer to a root is lost, nobody knows which of the two versions counts. So what either
//! names is kept, the epoch is ended, which makes the answer final, and the root before is set again. That
//! decides: what only the other version names is freed then.
//!
//! An earlier owner that does not let go of the memory where log and spare lie may still write there. Then both
//! are only read, and a new pair is written elsewhere, as soon as there is memory.

use crate::owner::Owner;
use crate::pipeline::Pipeline;
use crate::planted::{Bug, planted};
use crate::segment::{Remote, Segment, place_of, range_of};
use crate::version::{Change, LiveVersion};
use crate::{Error, Result};
use forebay_base::{ErrorKind, SegmentId, checksum_append};
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_memory_client::{ExtentRange, MemoryClient, Purpose};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::{ManifestRoot, Placement, SegmentInfo, SegmentKind, Version, VersionEdit};
use std::sync::Arc;

/// Fewest bytes of a log.
const MIN_LOG_BYTES: u64 = 32 << 10;
/// How many times longer than its first edit a new log may get, if there is memory.
const GROWTH: u64 = 4;
/// Bytes by which a whole version may be longer than the edits that led to it: numbers that have grown.
const SLACK_BYTES: u64 = 128;

/// See the module. The lock is held while a change is recorded: changes follow one another.
#[derive(Debug)]
pub(crate) struct Manifest {
    log: Mutex<Log>,
}

/// The right to record the next change.
pub(crate) type Recorder<'a> = MutexGuard<'a, Log>;

#[derive(Debug)]
pub(crate) struct Log {
    owner: Arc<Owner>,
    remote: Arc<Remote>,
    pair: Pair,
    length: u64,
    edits: u64,
    checksum: u32,
    /// Nothing can be appended: a write failed.
    is_closed: bool,
    /// The next log must not be written into the spare.
    is_spare_unsound: bool,
    /// Nobody knows whether the last root counts.
    is_unsettled: bool,
    /// Segments that only a version names which perhaps counts.
    kept: Vec<Arc<Segment>>,
}

/// A log's memory and its spare's, equally long.
#[derive(Debug, Clone)]
struct Pair {
    log: Arc<Segment>,
    spare: Arc<Segment>,
}

impl Pair {
    fn allocate(remote: &Arc<Remote>, capacity: u64) -> Result<Self> {
        // They are no segments of a version, so they have no numbers.
        let allocate = || remote.allocate(SegmentId(0), SegmentKind::TableImage, capacity, Purpose::Collection);
        Ok(Self { log: allocate()?, spare: allocate()? })
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
    /// The memory that log and spare take, as the root says: `None` where that does not fit into extents.
    pub(crate) fn ranges(root: &ManifestRoot, client: &MemoryClient) -> Option<[ExtentRange; 2]> {
        let range = |extent, offset| range_of(client, extent, offset, root.capacity);
        Some([range(root.extent, root.offset)?, range(root.spare_extent, root.spare_offset)?])
    }

    /// Holds both; they are not freed before this owner's own root is set.
    ///
    /// # Errors
    /// When there is no key to the memory.
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
    /// Begins a manifest with a version, which an earlier owner left or which is empty. Takes no memory of the
    /// node where one was left.
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
            (Err(error), Some(left)) if error.kind() == ErrorKind::Full => Log::left(owner, remote, left),
            (written, _) => written?,
        };
        // If the answer is lost, the next owner finds one root or the other.
        owner.set_root(&log.root()?.encode()?).inspect_err(|_| log.pair.abandon())?;
        if let Some(left) = left {
            left.pair.segments().iter().for_each(|segment| segment.take_charge());
        }
        Ok(Self { log: Mutex::new(log) })
    }

    /// Waits for the changes before, and lets the caller record the next one.
    pub(crate) fn recorder(&self) -> Recorder<'_> {
        lock(&self.log)
    }

    /// Bytes that the manifest takes.
    #[cfg(test)]
    pub(crate) fn size_bytes(&self) -> u64 {
        2 * lock(&self.log).pair.capacity()
    }

    /// Leaves the manifest, and what it may name, in the node: another owner goes on from it.
    pub(crate) fn leave(&self) {
        let log = lock(&self.log);
        log.pair.abandon();
        log.kept.iter().for_each(|segment| segment.abandon());
    }
}

impl Log {
    /// Records the change that leads to `after`.
    ///
    /// # Errors
    /// `Fenced` and `Full`: the change does not count. `Unavailable`, `TimedOut`: it may count.
    pub(crate) fn record(&mut self, change: &Change, after: &LiveVersion) -> Result<()> {
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
        self.owner.set_root(&self.root()?.encode()?).map_err(|error| {
            // The root may be this one or the one before: both logs stay, and what they name.
            let kept = change.segments.iter().cloned().chain(self.pair.segments()).collect();
            *self = Self { is_closed: true, is_unsettled: true, kept, ..before };
            error.during("recording a version")
        })
    }

    /// Has the root count that is known here, if nobody knows which one does.
    fn settle(&mut self) -> Result<()> {
        if self.is_unsettled {
            self.remote.end_epoch()?;
            self.owner.set_root(&self.root()?.encode()?)?;
            self.is_unsettled = false;
            self.kept.clear();
        }
        Ok(())
    }

    /// Writes the log that follows this one.
    fn begin_next(&mut self, version: &Version) -> Result<Self> {
        let pair = (!self.is_spare_unsound).then_some(&self.pair);
        write_log(&self.owner, &self.remote, version, pair).inspect_err(|_| {
            // A write to it may still land.
            self.is_spare_unsound |= self.pair.spare.is_abandoned();
        })
    }

    /// The log that an earlier owner left, as it stands: it is read, and no more.
    fn left(owner: &Arc<Owner>, remote: &Arc<Remote>, left: &Left) -> Self {
        let ManifestRoot { length, edits, checksum, .. } = left.root;
        let (owner, remote, pair) = (Arc::clone(owner), Arc::clone(remote), left.pair.clone());
        let (is_closed, is_spare_unsound) = (true, !left.is_writable);
        let (is_unsettled, kept) = (false, Vec::new());
        Self { owner, remote, pair, length, edits, checksum, is_closed, is_spare_unsound, is_unsettled, kept }
    }

    /// Writes an edit behind the others, and returns the log without it. `None` when it has no room.
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
        if planted(Bug::RootBeforeEdit) {
            self.owner.set_root(&self.root()?.encode()?)?;
        }
        if let Err(error) = write(&self.remote, &self.pair.log, before.length, &bytes) {
            *self = Self { is_closed: true, kept: std::mem::take(&mut self.kept), ..before };
            return Err(error.during("writing a version edit"));
        }
        Ok(Some(before))
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

/// Writes a log that begins with `version`, in memory that the shard has adopted: in the spare of `pair`, where
/// that leaves room for edits, or else, if there is memory, in a longer pair.
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
        reused => match (Pair::allocate(remote, wanted), reused) {
            (Err(error), Some(pair)) if error.kind() == ErrorKind::Full => pair.swapped(),
            (allocated, _) => allocated?,
        },
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
