//! Commits: the only way in which a tree's version changes.
//!
//! ```text
//!   all that the change adds is written ──► version made ──► recorded ──► installed ──► what it replaced is freed
//! ```
//!
//! Commits follow one another. A database without a name records nothing, one with a name in the manifest on its memory
//! node, and one on storage in its commit register.
//!
//! A commit to storage that failed may count all the same. Then the version that it leads to is kept, and so is all that
//! either version names. The next commit insists on it first ([`Register::settle`]), and installs it; the change that came with
//! this next commit is refused, as it was made for the version before.

use crate::durable::copies;
use crate::durable::manifest::{self, Manifest};
use crate::durable::register::Register;
use crate::remote::objects::object_of;
use crate::terms::Result;
use crate::terms::planted::{Bug, when_planted};
use crate::tree::buffer::Buffer;
use crate::tree::shared::Tree;
use crate::tree::version::{Change, LiveVersion};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use forebay_table::{SegmentInfo, Version};
use std::sync::Arc;

/// Where versions are recorded.
#[derive(Debug)]
pub(crate) enum Record {
    /// Nowhere: the database has no name.
    Nowhere,
    /// On the memory nodes.
    Memory(Manifest),
    /// In storage, as those of this shard.
    Storage(Arc<Register>, usize),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Held while a version is made, recorded and installed.
    turn: Mutex<Option<Unsettled>>,
    record: Record,
}

/// What a commit that may count leads to.
#[derive(Debug)]
struct Unsettled {
    version: Arc<LiveVersion>,
    flushed: Vec<Arc<Buffer>>,
}

impl Commits {
    pub(crate) fn new(record: Record) -> Self {
        Self { turn: Mutex::default(), record }
    }

    /// Makes the version that results from `change`, records it if the database has a name, and installs it. Also drops
    /// the memtables `flushed` from the view. Everything that the change adds must be completely written.
    ///
    /// # Errors
    /// When the change does not fit the version or cannot be recorded. Then nothing has changed in this process. `Busy` when an
    /// earlier commit has turned out to count: the work is to be chosen again.
    pub(crate) fn commit(&self, tree: &Tree, mut change: Change, flushed: &[Arc<Buffer>]) -> Result<()> {
        copies::spread(tree, &mut change)?;
        let mut turn = lock(&self.turn);
        // To a member that has joined meanwhile.
        copies::spread(tree, &mut change)?;
        self.settle(tree, &mut turn)?;
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
            Record::Storage(register, shard) => {
                tree.remote.adopt(&change.segments)?;
                if let Err(error) = register.record(*shard, &change.edit, &version.version) {
                    if register.is_pending(*shard) {
                        *turn = Some(Unsettled { version, flushed: flushed.to_vec() });
                    } else if error.kind() == ErrorKind::Fenced {
                        // Whoever took over may have found the commit, and name what it names.
                        version.segments().for_each(|segment| segment.abandon());
                    }
                    return Err(error);
                }
            }
        }
        when_planted(Bug::FreeBeforeUnpinned, || free_replaced(&before, &version));
        tree.install(version, flushed);
        Ok(())
    }

    /// Has a node join as the member of this number, and names it in the register. Nothing is committed meanwhile: `copy_rest`
    /// has it hold what it lacks still, and `begin` begins the manifest there.
    ///
    /// # Errors
    /// Those of copying and of recording: the node has not joined. Those of the register: it may have.
    pub(crate) fn admit(
        &self,
        tree: &Tree,
        number: usize,
        copy_rest: impl FnOnce() -> Result<()>,
        begin: impl FnOnce(&Version) -> Result<manifest::Log>,
    ) -> Result<()> {
        let _turn = lock(&self.turn);
        let Record::Memory(manifest) = &self.record else { return Ok(()) };
        copy_rest()?;
        let before = Arc::clone(&tree.view.load().version);
        let mut change = Change::default();
        for segment in before.segments().filter(|segment| !segment.is_stored()) {
            let Some(entry) = before.version.segment(segment.id()) else { continue };
            let placements = segment.placements(|member| tree.remote.is_written(member));
            change.edit.moved_segments.push((segment.id(), SegmentInfo { placements, ..(**entry).clone() }));
        }
        let version = Arc::new(before.apply(&mut change)?);
        manifest.record(&change, &version, &tree.remote)?;
        tree.install(Arc::clone(&version), &[]);
        manifest.add(begin(&version.version)?);
        tree.remote.activate(number)
    }

    /// Has an earlier commit that failed count, if there is one.
    fn settle(&self, tree: &Tree, turn: &mut Option<Unsettled>) -> Result<()> {
        let Record::Storage(register, _) = &self.record else { return Ok(()) };
        if turn.is_none() {
            return Ok(());
        }
        register.settle()?;
        if let Some(Unsettled { version, flushed }) = turn.take() {
            tree.install(version, &flushed);
        }
        let detail = "an earlier commit, which seemed to fail, counts: what was to follow it is chosen again";
        Err(forebay_storage::Error::new(ErrorKind::Busy, "commit", "the commit register", detail).into())
    }

    /// Leaves everything that the last version of a named database names to its next owner.
    pub(crate) fn leave(&self, tree: &Tree) {
        if matches!(self.record, Record::Nowhere) {
            return;
        }
        tree.view.load().version.segments().for_each(|segment| segment.abandon());
        if let Some(unsettled) = &*lock(&self.turn) {
            unsettled.version.segments().for_each(|segment| segment.abandon());
        }
        if let Record::Memory(manifest) = &self.record {
            manifest.leave();
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
