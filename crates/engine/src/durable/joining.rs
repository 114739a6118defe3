//! A memory node becomes a member of a shard while service goes on (`docs/decisions/0036`).
//!
//! ```text
//!   joins            it gets, from now on, the segments of each change, but for new parts of the log
//!   segments         those that were there before, and the parts of the log that are full
//!   the log stands still for a moment:
//!     open part      and the spare ones
//!     commit         the version with the new places, at the members; at the new one a manifest with all of it
//!     register       names it: from here on it is one of the members that may be all that is left
//! ```

use crate::durable::commit::Commits;
use crate::durable::copies;
use crate::durable::log::Log;
use crate::durable::manifest;
use crate::durable::recovery::free_orphans;
use crate::remote::members::Standing;
use crate::remote::owner::Owner;
use crate::remote::segment::{Node, Remote, Segment};
use crate::terms::planted::{Bug, planted};
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use forebay_base::{ErrorKind, SegmentId};
use forebay_memory_client::{AllocatorOptions, ShardHandle, ShardId, StoreHandle, SubAllocator};
use forebay_table::Version;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Has a node join the members of a shard, if there are too few and there is one. Returns whether there was.
///
/// # Errors
/// Why the node does not join, or has joined and may not be in the register.
pub(crate) fn mend(tree: &Tree, commits: &Commits, log: &Log) -> Result<bool> {
    let Some((node, store, number)) = tree.remote.candidate(tree.options.copies()) else { return Ok(false) };
    let member = Joining::begin(tree, &node, &store, number)?;
    let joined = member.join(tree, commits, log);
    if let Err(error) = &joined
        && let Err(error) = tree.remote.leave_out(number, error)
    {
        tracing::debug!(%error, "leaving out a memory node that did not join");
    }
    joined?;
    tracing::info!(node = %node.client().node(), shard = tree.remote.shard(), "a memory node has joined");
    Ok(true)
}

/// Becomes the owner of the shard at a node that joins. Somebody may have it there: an earlier owner, or a later one whose
/// member the node is, if this process was taken over and does not know it. The register knows, so it is asked before
/// anything is taken from anybody.
///
/// # Errors
/// `Fenced` when another process took over; those of the register; `Unavailable`.
fn acquire(tree: &Tree, store: &StoreHandle, id: ShardId) -> Result<ShardHandle> {
    match store.acquire_shard(id, false) {
        Err(error) if error.kind() == ErrorKind::Busy => {
            tree.remote.confirm()?;
            Ok(store.acquire_shard(id, true)?)
        }
        acquired => Ok(acquired?),
    }
}

/// A node that joins.
struct Joining {
    owner: Arc<Owner>,
    remote: Arc<Remote>,
}

impl Joining {
    fn begin(tree: &Tree, node: &Arc<Node>, store: &StoreHandle, number: usize) -> Result<Self> {
        let id = ShardId(u32::try_from(tree.remote.shard()).map_err(|_| Error::invalid("too many shards"))?);
        let owner = Arc::new(Owner::new(store.clone(), acquire(tree, store, id)?));
        let outputs: BTreeSet<_> = store.output_ranges(id)?.into_iter().collect();
        let allocator = SubAllocator::restore(store, owner.shard(), &[], AllocatorOptions::default())?;
        let member = (number, tree.remote.serving());
        let remote = Arc::new(Remote::of_owner(node, Arc::clone(&owner), allocator, &outputs, None, member));
        if let Some(part) = remote.outputs() {
            free_orphans(part, &outputs, &BTreeSet::new());
        }
        tree.remote.add(Arc::clone(&remote), Standing::Joining);
        Ok(Self { owner, remote })
    }

    /// Copies what the member lacks, and makes it one of those that have everything.
    fn join(&self, tree: &Tree, commits: &Commits, log: &Log) -> Result<()> {
        let number = self.remote.member();
        self.copy(tree, log)?;
        log.at_rest(|open| commits.admit(tree, number, || self.copy_rest(tree, open), |version| self.manifest(version)))
    }

    /// Copies what the version names and is not written any more.
    fn copy(&self, tree: &Tree, log: &Log) -> Result<()> {
        loop {
            let version = Arc::clone(&tree.view.load().version);
            // A part that the version names may be one that the log is just about to write to.
            let closed = log.closed_parts();
            let parts = version.version.log_parts().map(|part| part.segment);
            let open: BTreeSet<_> = parts.filter(|part| !closed.contains(part)).collect();
            let lacks = |segment: &&Arc<_>| self.lacks(segment) && !open.contains(&segment.id());
            let Some(first) = version.segments().find(lacks) else { return Ok(()) };
            for segment in std::iter::once(first).chain(version.segments().filter(lacks)) {
                tree.check_open()?;
                if self.lacks(segment) {
                    segment.add_copy(copies::copy(segment, &self.remote)?);
                }
            }
        }
    }

    fn lacks(&self, segment: &Segment) -> bool {
        !segment.is_stored() && segment.at_member(self.remote.member()).is_none()
    }

    /// Copies the rest, while nothing is written and nothing is committed.
    fn copy_rest(&self, tree: &Tree, open: &[SegmentId]) -> Result<()> {
        let version = Arc::clone(&tree.view.load().version);
        let segments: Vec<_> = version.segments().cloned().collect();
        for segment in segments.iter().filter(|segment| self.lacks(segment)) {
            let copy = match planted(Bug::JoinWithoutLog) && open.contains(&segment.id()) {
                true => copies::zeroed(segment, &self.remote)?,
                false => copies::copy(segment, &self.remote)?,
            };
            segment.add_copy(copy);
        }
        self.remote.adopt(&segments)
    }

    /// Begins the manifest there.
    ///
    /// # Errors
    /// As [`manifest::Log::begin`].
    fn manifest(&self, version: &Version) -> Result<manifest::Log> {
        manifest::Log::begin(&self.owner, &self.remote, version, None)
    }
}

#[cfg(test)]
mod tests;
