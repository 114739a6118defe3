//! What storage has of a shard's versions, if they are kept in storage (`docs/decisions/0063`).
//!
//! ```text
//!   in memory     v1 ── v2 ── v3 ── v4 ── v5 ── v6      each flush, each compaction
//!   in storage    v1 ────────────────► v4               now and then
//!   in the log                           ▪▪▪▪▪▪▪▪▪▪     what v4 does not hold
//! ```
//!
//! Where the log leads the tables, it holds a table's records before the table is installed. So a version is installed
//! at once, and storage *lags* behind: it gets the version of some later moment, with copies of the segments that are
//! still named then. What came and went in between is never written to storage.
//!
//! Without such a log, storage has a version before it is installed. While it is unknown whether a commit counts, the
//! version before it stays installed. No work begins then ([`Recorded::go_on`]): it might do again what the commit has
//! done, and would not fit once another commit had settled that.
//!
//! # Invariants
//!
//! 1. What the version in storage names stays, in memory and in storage, until storage has another version: the next
//!    process that opens the database takes the segments of that version from memory, where they were.
//! 2. While it is unknown whether a commit counts, this holds for the versions before and after it.
//! 3. Versions in storage do not go back: each comes from the one before, or from one that may count.

use crate::durable::register::{NotRecorded, Register};
use crate::remote::objects::object_of;
use crate::remote::segment::Segment;
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::Tree;
use crate::tree::version::LiveVersion;
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_table::{Placement, SegmentInfo, Version, VersionEdit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, TryLockError};

/// See the module.
#[derive(Debug)]
pub(crate) struct Recorded {
    register: Arc<Register>,
    shard: usize,
    lags: bool,
    /// Held while storage gets a version.
    turn: Mutex<Turn>,
    /// Whether an unsettled commit was to lead. Its version is not installed.
    is_unsettled: AtomicBool,
    /// The version that storage has.
    version: Mutex<Arc<LiveVersion>>,
    /// Bytes of memtables that were flushed since.
    flushed_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Turn {
    /// What a commit that failed and may count leads to.
    unsettled: Option<Unsettled>,
    /// The shard is closed: what it shows is not what it holds.
    is_over: bool,
}

#[derive(Debug)]
struct Unsettled {
    version: Arc<LiveVersion>,
    flushed: Vec<Arc<Buffer>>,
}

impl Recorded {
    /// The versions of the shard with this number, of which storage has `version`. It `lags` if a log leads the tables.
    pub(crate) fn new(register: Arc<Register>, shard: usize, version: Arc<LiveVersion>, lags: bool) -> Self {
        let (turn, is_unsettled, version) = (Mutex::default(), AtomicBool::new(false), Mutex::new(version));
        Self { register, shard, lags, turn, is_unsettled, version, flushed_bytes: AtomicU64::new(0) }
    }

    pub(crate) const fn lags(&self) -> bool {
        self.lags
    }

    /// Notes that memtables of this many bytes were flushed, and the version with them is installed.
    pub(crate) fn flushed(&self, bytes: u64) {
        self.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of memtables that were flushed since storage got its version.
    pub(crate) fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the version in storage needs and the installed one does not.
    pub(crate) fn held_bytes(&self, installed: &Arc<LiveVersion>) -> u64 {
        let version = self.version();
        if Arc::ptr_eq(&version, installed) {
            return 0;
        }
        let is_held = |segment: &&Arc<Segment>| installed.segment(segment.id()).is_none();
        version.segments().filter(is_held).map(|segment| segment.allocated_bytes()).sum()
    }

    /// Whether storage is getting a version now.
    pub(crate) fn is_catching_up(&self) -> bool {
        matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn version(&self) -> Arc<LiveVersion> {
        Arc::clone(&lock(&self.version))
    }

    /// Brings a version to storage, before it is installed without the memtables `flushed`. Storage already keeps all
    /// of its segments.
    ///
    /// # Errors
    /// `Busy` when an earlier commit has turned out to count, which is installed then: the work must be chosen again.
    /// As [`Register::record`].
    pub(crate) fn lead(&self, tree: &Tree, version: &Arc<LiveVersion>, flushed: &[Arc<Buffer>]) -> Result<()> {
        let mut turn = self.begin()?;
        self.install_settled(&mut turn, tree)?;
        self.put(&mut turn, version, flushed)
    }

    /// Before work begins whose commit is to lead: makes sure that no commit is left that may count.
    ///
    /// # Errors
    /// As [`Recorded::lead`].
    pub(crate) fn go_on(&self, tree: &Tree) -> Result<()> {
        let mut turn = self.begin()?;
        self.install_settled(&mut turn, tree)
    }

    /// Whether it is unknown of a commit that was to lead if it counts. If not, its version is installed.
    pub(crate) fn is_unsettled(&self) -> bool {
        // Work that would do the same again is chosen after the work that failed has ended, under a lock.
        // Acquire: pairs with the release in `install_settled`.
        self.is_unsettled.load(Ordering::Acquire)
    }

    /// Makes a commit count that failed and may count, if there is one, and installs what it leads to.
    fn install_settled(&self, turn: &mut Turn, tree: &Tree) -> Result<()> {
        let Some(Unsettled { version, flushed }) = self.settle(turn)? else { return Ok(()) };
        tree.install(version, &flushed);
        self.is_unsettled.store(false, Ordering::Release);
        Err(chosen_again())
    }

    /// Brings the version that is installed now to storage, once `keep` has made copies of the segments that storage
    /// lacks.
    ///
    /// # Errors
    /// Those of `keep`; as [`Register::record`].
    pub(crate) fn catch_up(&self, tree: &Tree, keep: impl FnOnce(Vec<Arc<Segment>>) -> Result<()>) -> Result<()> {
        let mut turn = self.begin()?;
        self.settle(&mut turn)?;
        let flushed_bytes = self.flushed_bytes();
        let (before, version) = (self.version(), Arc::clone(&tree.view.load().version));
        if !Arc::ptr_eq(&before, &version) {
            let is_new = |segment: &&Arc<Segment>| before.segment(segment.id()).is_none();
            keep(version.segments().filter(is_new).cloned().collect())?;
            self.put(&mut turn, &version, &[])?;
        }
        self.flushed_bytes.fetch_sub(flushed_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn begin(&self) -> Result<MutexGuard<'_, Turn>> {
        let turn = lock(&self.turn);
        if turn.is_over { Err(Error::closed()) } else { Ok(turn) }
    }

    /// Makes a commit count that failed and may count, if there is one. Returns what it leads to.
    fn settle(&self, turn: &mut Turn) -> Result<Option<Unsettled>> {
        if turn.unsettled.is_some() {
            self.register.settle()?;
        }
        let settled = turn.unsettled.take();
        if let Some(Unsettled { version, .. }) = &settled {
            self.has(version);
        }
        Ok(settled)
    }

    fn put(&self, turn: &mut Turn, version: &Arc<LiveVersion>, flushed: &[Arc<Buffer>]) -> Result<()> {
        let recorded = self.register.record(self.shard, &with_objects(version)?);
        if let Err(NotRecorded { error, may_count }) = recorded {
            if may_count {
                turn.unsettled = Some(Unsettled { version: Arc::clone(version), flushed: flushed.to_vec() });
                self.is_unsettled.store(!self.lags, Ordering::Relaxed);
            } else if error.kind() == ErrorKind::Fenced {
                // A process that took over may have found the commit, and name what it names.
                version.segments().for_each(|segment| segment.abandon());
            }
            return Err(error);
        }
        self.has(version);
        Ok(())
    }

    /// Notes that storage has this version. What only the earlier one named is freed.
    fn has(&self, version: &Arc<LiveVersion>) {
        let before = std::mem::replace(&mut *lock(&self.version), Arc::clone(version));
        drop(before);
    }

    /// Leaves what storage names, or may name, to the next owner. Nothing is recorded any more.
    pub(crate) fn leave(&self) {
        let mut turn = lock(&self.turn);
        turn.is_over = true;
        self.version().segments().for_each(|segment| segment.abandon());
        if let Some(unsettled) = &turn.unsettled {
            unsettled.version.segments().for_each(|segment| segment.abandon());
        }
    }
}

/// The error for work that does not fit the version to which an earlier commit leads.
pub(crate) fn chosen_again() -> Error {
    let detail = "an earlier commit, which seemed to fail, counts: what was to follow it is chosen again";
    forebay_storage::Error::new(ErrorKind::Busy, "commit", "the commit register", detail).into()
}

/// The version with the objects that hold copies of its segments.
fn with_objects(version: &LiveVersion) -> Result<Version> {
    let mut edit = VersionEdit::default();
    for segment in version.segments() {
        if let Some(info) = version.version.segment(segment.id())
            && object_of(&info.placements).is_none()
            && let Some(object) = segment.object()
        {
            let mut kept = SegmentInfo::clone(info);
            kept.placements.push(Placement::Storage { object: object.to_owned() });
            edit.moved_segments.push((segment.id(), kept));
        }
    }
    Ok(version.version.apply(&edit).map_err(forebay_table::Error::from)?)
}
