//! Commits: the only way in which a tree's version changes.
//!
//! ```text
//!   all that the change adds is written ──► version made ──► recorded ──► installed ──► what it replaced is freed
//! ```
//!
//! Commits follow one another. A database without a name records nothing, one with a name in the manifest on its memory
//! node, and one on storage in its commit register.
//!
//! A database in storage whose log leads its tables records nothing here: storage gets a later version ([`Recorded`]).

use crate::durable::copies::{self, Copied, NotHeld};
use crate::durable::findings::{Looked, Mend};
use crate::durable::manifest::{self, Manifest};
use crate::durable::recorded::{Recorded, chosen_again};
use crate::remote::objects::object_of;
use crate::terms::planted::{Bug, when_planted};
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::{Tree, View};
use crate::tree::version::{Change, LiveVersion};
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_table::{SegmentInfo, Version};
use std::sync::Arc;

/// Where versions are recorded.
#[derive(Debug)]
pub(crate) enum Record {
    /// Nowhere: the database has no name.
    Nowhere,
    /// On the memory nodes.
    Memory(Manifest),
    /// In storage.
    Storage(Recorded),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Held while a version is made, recorded and installed.
    turn: Mutex<Turn>,
    record: Record,
}

#[derive(Debug, Default)]
struct Turn {
    /// The shard is closed: what it shows is not what it holds.
    is_over: bool,
}

impl Commits {
    pub(crate) fn new(record: Record) -> Self {
        Self { turn: Mutex::default(), record }
    }

    /// What storage has of the versions, if it lags behind.
    pub(crate) fn lagging(&self) -> Option<&Recorded> {
        match &self.record {
            Record::Storage(recorded) if recorded.lags() => Some(recorded),
            _ => None,
        }
    }

    /// Makes the version that results from `change`, records it if the database has a name, and installs it. Also drops
    /// the memtables `flushed` from the view. Everything that the change adds must be completely written.
    ///
    /// # Errors
    /// When the change does not fit the version or cannot be recorded. Then nothing has changed in this process. `Busy`
    /// when an earlier commit has turned out to count: the work must be chosen again. `Closed` once the shard was left.
    pub(crate) fn commit(&self, tree: &Tree, mut change: Change, flushed: &[Arc<Buffer>]) -> Result<()> {
        copies::spread(tree, &mut change)?;
        let _turn = self.begin()?;
        // Also to a member that has joined meanwhile.
        copies::spread(tree, &mut change)?;
        let (next_segment, next_table) = tree.numbers();
        (change.edit.next_segment, change.edit.next_table) = (Some(next_segment), Some(next_table));
        // Only commits change the version.
        let before = Arc::clone(&tree.view.load().version);
        let version = Arc::new(before.apply(&mut change)?);
        when_planted(Bug::FreeBeforeRecorded, || free_replaced(&before, &version));
        when_planted(Bug::DeleteBeforeRecorded, || delete_replaced(tree, &before, &version));
        match &self.record {
            Record::Nowhere => {}
            Record::Memory(manifest) => manifest.record(&change, &version, &tree.remote)?,
            Record::Storage(recorded) => {
                tree.remote.adopt(&change.segments)?;
                if !recorded.lags() {
                    recorded.lead(tree, &version, flushed)?;
                }
            }
        }
        when_planted(Bug::FreeBeforeUnpinned, || free_replaced(&before, &version));
        tree.install(version, flushed);
        Ok(())
    }

    /// Before work begins: if it is unknown whether an earlier commit counts, makes it count, and installs its version.
    /// `is_left` says whether a view still has what the work replaces.
    ///
    /// # Errors
    /// `Busy` when there was one, also if it was settled since the work was chosen: the work must be chosen again;
    /// `Closed`; those of the commit register.
    pub(crate) fn settle(&self, tree: &Tree, is_left: impl FnOnce(&View) -> bool) -> Result<()> {
        let recorded = match &self.record {
            Record::Storage(recorded) if !recorded.lags() => recorded,
            _ => return Ok(()),
        };
        if recorded.is_unsettled() {
            let _turn = self.begin()?;
            recorded.go_on(tree)?;
        }
        if is_left(&tree.view.load()) { Ok(()) } else { Err(chosen_again()) }
    }

    /// Lets a node join as the member of this number, and names it in the register. Nothing is committed meanwhile.
    /// `copy_rest` gives the copies that the node still lacks, each with its segment, and `begin` begins the manifest
    /// there.
    ///
    /// # Errors
    /// Those of copying and of recording: the node has not joined, and keeps what it had. Those of the register: the
    /// node has joined, and may not be named yet.
    pub(crate) fn admit(
        &self,
        tree: &Tree,
        number: usize,
        copy_rest: impl FnOnce() -> Result<Copied, NotHeld>,
        begin: impl FnOnce(&Version) -> Result<manifest::Log>,
    ) -> Result<(), NotHeld> {
        let _turn = self.begin().map_err(NotHeld::Another)?;
        let Record::Memory(manifest) = &self.record else { return Ok(()) };
        let rest = copy_rest()?;
        let before = Arc::clone(&tree.view.load().version);
        let mut change = Change::default();
        for segment in before.segments().filter(|segment| !segment.is_stored()) {
            let Some(entry) = before.version.segment(segment.id()) else { continue };
            let mut placements = segment.placements(|member| tree.remote.is_written(member));
            let copied = rest.iter().filter(|(of, _)| of.id() == segment.id());
            placements.extend(copied.flat_map(|(_, copy)| copy.info().placements.iter().cloned()));
            change.edit.moved_segments.push((segment.id(), SegmentInfo { placements, ..(**entry).clone() }));
        }
        let version = Arc::new(before.apply(&mut change).map_err(NotHeld::Another)?);
        manifest.record(&change, &version, &tree.remote).map_err(NotHeld::Another)?;
        rest.into_iter().for_each(|(segment, copy)| segment.add_copy(copy));
        tree.install(Arc::clone(&version), &[]);
        manifest.add(begin(&version.version).map_err(NotHeld::Itself)?);
        tree.remote.activate(number).map_err(NotHeld::Another)
    }

    /// Adds members that hold what the version names: `hold` gives their manifests. Nothing is committed meanwhile.
    /// Returns how many members were added.
    ///
    /// # Errors
    /// `Closed` once the shard was left.
    pub(crate) fn extend(&self, tree: &Tree, hold: impl FnOnce(&LiveVersion) -> Vec<manifest::Log>) -> Result<usize> {
        let _turn = self.begin()?;
        let Record::Memory(manifest) = &self.record else { return Ok(0) };
        let version = Arc::clone(&tree.view.load().version);
        let logs = hold(&version);
        let held = logs.len();
        logs.into_iter().for_each(|log| manifest.add(log));
        Ok(held)
    }

    /// Checks the manifests in memory. Nothing is committed meanwhile.
    ///
    /// # Errors
    /// `Closed` once the shard was left; those of members that cannot be read or written.
    pub(crate) fn look(&self, tree: &Tree, mend: Mend, looked: &mut Looked) -> Result<()> {
        let _turn = self.begin()?;
        let Record::Memory(manifest) = &self.record else { return Ok(()) };
        let version = Arc::clone(&tree.view.load().version);
        manifest.look(&version.version, tree, mend, looked)
    }

    fn begin(&self) -> Result<MutexGuard<'_, Turn>> {
        let turn = lock(&self.turn);
        if turn.is_over { Err(Error::closed()) } else { Ok(turn) }
    }

    /// Leaves everything that the last version of a named database names to its next owner. Nothing is committed any more.
    pub(crate) fn leave(&self, tree: &Tree) {
        let mut turn = lock(&self.turn);
        turn.is_over = true;
        match &self.record {
            Record::Nowhere => {}
            Record::Memory(manifest) => {
                tree.view.load().version.segments().for_each(|segment| segment.abandon());
                manifest.leave();
            }
            Record::Storage(recorded) => recorded.leave(),
        }
    }

    /// Bytes of the manifest of a named database.
    #[cfg(test)]
    pub(crate) fn manifest_bytes(&self) -> u64 {
        match &self.record {
            Record::Memory(manifest) => manifest.size_bytes(),
            _ => 0,
        }
    }
}

/// A planted bug: deletes the objects of what `after` no longer names.
#[cold]
fn delete_replaced(tree: &Tree, before: &LiveVersion, after: &LiveVersion) {
    let Some(objects) = tree.remote.objects() else { return };
    for (id, entry) in before.version.segments() {
        if let (None, Some(object)) = (after.segment(*id), object_of(&entry.info.placements)) {
            objects.discard(object);
        }
    }
    objects.delete_garbage();
}

/// A planted bug: frees what `after` no longer names, even while it is being read.
#[cold]
fn free_replaced(before: &LiveVersion, after: &LiveVersion) {
    before.segments().filter(|segment| after.segment(segment.id()).is_none()).for_each(|segment| {
        segment.free();
        segment.abandon();
    });
}
