//! A memory node becomes a member of a shard while service continues (`docs/decisions/0036`).
//!
//! ```text
//!   joins            it gets, from now on, the segments of each change, except new parts of the log
//!   segments         those that existed before, and the parts of the log that are full; then those that only readers need
//!   the log stands still for a moment:
//!     open part      and the spare ones
//!     commit         the version with the new places, at the members; at the new one a manifest with all of it
//!     register       names it: from here on it is one of the members that may be all that is left
//! ```
//!
//! A node that fails while it joins is left out, and cannot be a member any more in this life. When another node fails,
//! such as the one that is read, the joining node keeps what it has got, and the next attempt continues from there.
//! Before the last moment it gets nothing that is still written elsewhere, so what it has stays right.

use crate::durable::commit::Commits;
use crate::durable::copies::{self, Copied, IfDamaged, NotHeld};
use crate::durable::log::Log;
use crate::durable::manifest;
use crate::durable::recovery::free_orphans;
use crate::durable::regaining;
use crate::durable::used::Used;
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

/// Leaves out the members whose nodes are lost, even of a shard that nobody uses, and lets a node join if there are too
/// few and there is one. If all members are lost, regains those that have come back ([`regaining`]). Returns whether
/// there was one.
///
/// # Errors
/// Why the node has not joined, or has joined and may not be in the register. The next call continues with it, unless
/// the node itself failed.
pub(crate) fn mend(tree: &Tree, commits: &Commits, log: &Log) -> Result<bool> {
    if regaining::regain(tree, commits, log)? {
        return Ok(true);
    }
    tree.remote.leave_out_lost()?;
    tree.remote.name_joined()?;
    let begun = tree.remote.joining().and_then(Joining::begun);
    let member = match begun {
        Some(member) => member,
        None => match tree.remote.candidate(tree.options.copies()) {
            Some((node, store, number)) => Joining::begin(tree, &node, &store, number)?,
            None => return Ok(false),
        },
    };
    match member.join(tree, commits, log) {
        Ok(()) => {
            let node = member.remote.memory_node().client().node();
            tracing::info!(%node, shard = tree.remote.shard(), "a memory node has joined");
            Ok(true)
        }
        Err(NotHeld::Another(error)) => Err(error),
        Err(NotHeld::Itself(error)) => {
            if let Err(error) = tree.remote.leave_out(member.remote.member(), &error) {
                tracing::debug!(%error, "leaving out a memory node that did not join");
            }
            Err(error)
        }
    }
}

/// Becomes the owner of the shard at a node that joins. Somebody may own it there: an earlier owner, or a later one
/// whose member the node is, if this process was taken over without knowing it. The register knows, so it is asked
/// before anything is taken from anybody.
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

    /// The node of an attempt that ended because another node failed.
    fn begun(remote: &Arc<Remote>) -> Option<Self> {
        remote.owner().map(|owner| Self { owner: Arc::clone(owner), remote: Arc::clone(remote) })
    }

    /// Copies what the member lacks, and makes it one of those that have everything.
    fn join(&self, tree: &Tree, commits: &Commits, log: &Log) -> Result<(), NotHeld> {
        let number = self.remote.member();
        self.copy(tree, log)?;
        self.copy_read(tree)?;
        log.at_rest(|open| commits.admit(tree, number, || self.copy_rest(tree, open), |version| self.manifest(version)))
    }

    /// Copies what the version names and is no longer written.
    fn copy(&self, tree: &Tree, log: &Log) -> Result<(), NotHeld> {
        loop {
            let version = Arc::clone(&tree.view.load().version);
            // A part that the version names may be one that the log is about to write to.
            let closed = log.closed_parts();
            let parts = version.version.log_parts().map(|part| part.segment);
            let open: BTreeSet<_> = parts.filter(|part| !closed.contains(part)).collect();
            let used = Used::by([&version.version]);
            let lacks = |segment: &&Arc<_>| self.lacks(segment) && !open.contains(&segment.id());
            let Some(first) = version.segments().find(lacks) else { return Ok(()) };
            for segment in std::iter::once(first).chain(version.segments().filter(lacks)) {
                tree.check_open().map_err(NotHeld::Another)?;
                if self.lacks(segment) {
                    segment.add_copy(copies::copy(segment, &self.remote, &used, IfDamaged::Copy)?);
                }
            }
        }
    }

    /// Copies what iterators read of earlier versions, as far as there is room and the serving member has it.
    fn copy_read(&self, tree: &Tree) -> Result<(), NotHeld> {
        let version = Arc::clone(&tree.view.load().version);
        let used = Used::by(tree.versions_read().iter().map(|version| &version.version));
        let is_there = |segment: &Segment| segment.at_member(tree.remote.server()).is_some();
        let is_due = |segment: &Arc<Segment>| self.lacks(segment) && is_there(segment);
        for segment in tree.segments_read(&version).into_iter().filter(is_due) {
            tree.check_open().map_err(NotHeld::Another)?;
            let copy = match copies::copy(&segment, &self.remote, &used, IfDamaged::Copy) {
                // No acknowledged write needs it.
                Err(NotHeld::Itself(error)) if error.kind() == ErrorKind::Full => {
                    tracing::debug!(%error, "what iterators read lies at the other memory nodes only");
                    return Ok(());
                }
                copy => copy?,
            };
            self.remote.adopt(std::slice::from_ref(&copy)).map_err(NotHeld::Itself)?;
            segment.add_copy(copy);
        }
        Ok(())
    }

    fn lacks(&self, segment: &Segment) -> bool {
        !segment.is_stored() && segment.at_member(self.remote.member()).is_none()
    }

    /// Copies the rest, while nothing is written and nothing is committed. Each segment comes with its copy. The copies
    /// count once this member does, because only then are the segments written further.
    fn copy_rest(&self, tree: &Tree, open: &[SegmentId]) -> Result<Copied, NotHeld> {
        let version = Arc::clone(&tree.view.load().version);
        let (used, mut rest) = (Used::by([&version.version]), Vec::new());
        for segment in version.segments().filter(|segment| self.lacks(segment)) {
            let copy = match planted(Bug::JoinWithoutLog) && open.contains(&segment.id()) {
                true => copies::zeroed(segment, &self.remote)?,
                false => copies::copy(segment, &self.remote, &used, IfDamaged::Copy)?,
            };
            rest.push((Arc::clone(segment), copy));
        }
        let held: Vec<_> = version.segments().chain(rest.iter().map(|(_, copy)| copy)).cloned().collect();
        self.remote.adopt(&held).map_err(NotHeld::Itself)?;
        Ok(rest)
    }

    /// Begins the manifest at the node.
    ///
    /// # Errors
    /// As [`manifest::Log::begin`].
    fn manifest(&self, version: &Version) -> Result<manifest::Log> {
        manifest::Log::begin(&self.owner, &self.remote, version, None)
    }
}

#[cfg(test)]
mod tests;
