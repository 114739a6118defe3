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
//! When the log is full, a new one that begins with the whole version is written elsewhere, and the
//! old one is freed when the root has moved.
//!
//! Layout of log and root: `docs/formats/manifest.md`.
//!
//! # When a step fails
//!
//! A failed write may still land, so a log is not appended to behind one: the next change begins a
//! new log. When the answer to a root is lost, nobody knows which of the two versions counts. So
//! what either names is kept, the epoch is ended, which makes the answer final, and the next change
//! begins a new log. It decides: what only the other version names is freed then.

use crate::owner::Owner;
use crate::pipeline::Pipeline;
use crate::segment::{Remote, Segment};
use crate::version::{Change, LiveVersion};
use crate::{Error, Result};
use forebay_base::{ErrorKind, SegmentId, checksum_append};
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_memory_client::Purpose;
use forebay_table::{ManifestRoot, Placement, SegmentKind, Version, VersionEdit};
use std::sync::Arc;

/// Fewest bytes of a log.
const MIN_LOG_BYTES: u64 = 64 << 10;
/// How many times longer than its first edit a new log may get.
const GROWTH: u64 = 4;

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
    segment: Arc<Segment>,
    length: u64,
    edits: u64,
    checksum: u32,
    /// Nothing can be appended: a write failed.
    is_closed: bool,
    /// Nobody knows whether the last root counts.
    is_unsettled: bool,
    /// Segments that only a version names which perhaps counts.
    kept: Vec<Arc<Segment>>,
}

impl Manifest {
    /// Begins a manifest with a version.
    ///
    /// # Errors
    /// `Full`, `Unavailable`, `Fenced`.
    pub(crate) fn begin(owner: &Arc<Owner>, remote: &Arc<Remote>, version: &Version) -> Result<Self> {
        let written = write_log(owner, remote, version)?;
        // If the answer is lost, the next owner finds one root or the other.
        owner.set_root(&written.root()?.encode()?).inspect_err(|_| written.segment.abandon())?;
        Ok(Self { log: Mutex::new(written) })
    }

    /// Waits for the changes before, and lets the caller record the next one.
    pub(crate) fn recorder(&self) -> Recorder<'_> {
        lock(&self.log)
    }

    /// Bytes that the manifest takes.
    #[cfg(test)]
    pub(crate) fn size_bytes(&self) -> u64 {
        lock(&self.log).segment.info().length
    }

    /// Leaves the manifest, and what it may name, in the node: another owner goes on from it.
    pub(crate) fn leave(&self) {
        let log = lock(&self.log);
        log.segment.abandon();
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
        if self.is_unsettled {
            self.remote.end_epoch()?;
            self.is_unsettled = false;
        }
        let before = if self.is_closed { None } else { self.append(&change.edit)? };
        let before = match before {
            Some(before) => before,
            None => {
                let next = write_log(&self.owner, &self.remote, &after.version)?;
                let mut before = std::mem::replace(self, next);
                self.kept = std::mem::take(&mut before.kept);
                before
            }
        };
        match self.owner.set_root(&self.root()?.encode()?) {
            Ok(()) => {
                self.kept.clear();
                Ok(())
            }
            Err(error) => {
                // The root may be this one or the one before: both logs stay, and what they name.
                let mut kept = std::mem::take(&mut self.kept);
                kept.extend(change.segments.iter().cloned());
                kept.push(Arc::clone(&self.segment));
                *self = Self { is_closed: true, is_unsettled: true, kept, ..before };
                Err(error.during("recording a version"))
            }
        }
    }

    /// Writes an edit behind the others, and returns the log without it. `None` when it has no room.
    fn append(&mut self, edit: &VersionEdit) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes)?;
        let length = self.length + bytes.len() as u64;
        if length > self.segment.info().length {
            return Ok(None);
        }
        if let Err(error) = write(&self.remote, &self.segment, self.length, &bytes) {
            self.is_closed = true;
            return Err(error.during("writing a version edit"));
        }
        let before = Self {
            owner: Arc::clone(&self.owner),
            remote: Arc::clone(&self.remote),
            segment: Arc::clone(&self.segment),
            kept: Vec::new(),
            ..*self
        };
        self.length = length;
        self.edits += 1;
        self.checksum = checksum_append(self.checksum, &bytes);
        Ok(Some(before))
    }

    fn root(&self) -> Result<ManifestRoot> {
        let info = self.segment.info();
        let [Placement::Memory { node, incarnation, extent, offset }] = *info.placements.as_slice() else {
            return Err(Error::corrupt("the manifest is not in one piece of remote memory"));
        };
        Ok(ManifestRoot {
            node,
            incarnation,
            extent,
            offset,
            capacity: info.length,
            length: self.length,
            edits: self.edits,
            checksum: self.checksum,
        })
    }
}

/// Writes a log that begins with `version`, in memory that the shard has adopted.
fn write_log(owner: &Arc<Owner>, remote: &Arc<Remote>, version: &Version) -> Result<Log> {
    let mut edit = version.to_edit();
    edit.epoch = Some(owner.shard().epoch().0.max(version.epoch()));
    let mut bytes = Vec::new();
    edit.encode(&mut bytes)?;
    let length = bytes.len() as u64;
    let most = remote.extent_bytes();
    if length > most {
        let message = format!("a version of {length} bytes does not fit into an extent of {most} bytes");
        return Err(Error::new(ErrorKind::Full, message));
    }
    let capacity = (length * GROWTH).max(MIN_LOG_BYTES).min(most);
    // The log is no segment of a version, so it has no number.
    let segment = remote.allocate(SegmentId(0), SegmentKind::TableImage, capacity, Purpose::Collection)?;
    write(remote, &segment, 0, &bytes)?;
    remote.adopt(std::slice::from_ref(&segment))?;
    Ok(Log {
        owner: Arc::clone(owner),
        remote: Arc::clone(remote),
        segment,
        length,
        edits: 1,
        checksum: checksum_append(0, &bytes),
        is_closed: false,
        is_unsettled: false,
        kept: Vec::new(),
    })
}

fn write(remote: &Arc<Remote>, segment: &Arc<Segment>, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut pipeline = Pipeline::new(remote.background()?);
    pipeline.write(segment, offset, bytes)?;
    pipeline.drain()
}
