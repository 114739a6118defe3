//! A process that has lost all its sessions regains a shard at the memory nodes that hold it (`docs/decisions/0036`).
//!
//! ```text
//!   no member is of use     this process stood still past its leases, or was cut off
//!   acquired                at nodes of its members that are in the same life, by their next sessions; from nobody who has it
//!   confirmed               by the register: nobody has claimed the database, so what is there is as this process left it
//!   held                    what the version names, where it is, while nothing is written and nothing is committed;
//!                           a new manifest begins with the version
//!   left out                the members as they were before
//! ```
//!
//! What the former sessions wrote has arrived or never will: the node took their keys back when they ended, or else it
//! gives the shard to nobody. Each member has all that was acknowledged, so any of them is enough. What an earlier
//! version names is also held where it is, as long as an iterator reads it.

use crate::durable::commit::Commits;
use crate::durable::log::Log;
use crate::durable::manifest::{self, Left};
use crate::durable::recovery::free_orphans;
use crate::remote::members::{Former, Standing};
use crate::remote::owner::Owner;
use crate::remote::segment::{Node, Remote, place_of};
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use crate::tree::version::LiveVersion;
use forebay_base::ErrorKind;
use forebay_memory_client::{AllocatorOptions, Epoch, ShardId, SubAllocator};
use forebay_table::ManifestRoot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A former member's node, where this process has the shard again.
struct Again {
    /// The number of the member that it was.
    member: usize,
    /// The last epoch of the shard there that belonged to this process.
    epoch: Epoch,
    node: Arc<Node>,
    owner: Arc<Owner>,
}

/// Regains the shard at the nodes of its members that are back, if all members are lost. Returns whether there was one.
///
/// # Errors
/// `Fenced` when another process took over; those of the register. The next call tries again.
pub(crate) fn regain(tree: &Tree, commits: &Commits, log: &Log) -> Result<bool> {
    let Some(_alone) = tree.remote.regaining() else { return Ok(false) };
    let id = ShardId(u32::try_from(tree.remote.shard()).map_err(|_| Error::invalid("too many shards"))?);
    let mut again = Vec::new();
    for Former { member, epoch, node, store } in tree.remote.formers() {
        match store.acquire_shard(id, false) {
            Ok(shard) => again.push(Again { member, epoch, node, owner: Arc::new(Owner::new(store, shard)) }),
            // A process that has the shard may own the database: the register tells.
            Err(error) => tracing::debug!(%error, "a memory node does not give the shard back yet"),
        }
    }
    if again.is_empty() {
        return Ok(false);
    }
    if let Err(error) = tree.remote.confirm() {
        again.iter().for_each(|again| again.owner.release());
        return Err(error);
    }
    let held = log.at_rest(|_| {
        commits.extend(tree, |version| again.iter().filter_map(|again| again.hold(tree, version)).collect())
    })?;
    tree.remote.leave_out_lost()?;
    if held > 0 {
        tracing::info!(
            shard = tree.remote.shard(),
            copies = held,
            "the sessions had ended, and nobody took the database over"
        );
    }
    Ok(held > 0)
}

impl Again {
    /// Adds the node as a member again. Returns its manifest; `None` if that failed, and then the shard there is
    /// released.
    fn hold(&self, tree: &Tree, version: &LiveVersion) -> Option<manifest::Log> {
        let held = self.try_hold(tree, version);
        let held = held.inspect_err(|error| {
            tracing::warn!(node = %self.node.client().node(), %error, "a copy is of no use any more");
            self.owner.release();
        });
        held.ok()
    }

    fn try_hold(&self, tree: &Tree, version: &LiveVersion) -> Result<manifest::Log> {
        let (store, shard, client) = (self.owner.store(), self.owner.shard(), self.node.client());
        let id = shard.key().shard;
        let lacks = || Error::corrupt("a memory node lacks what it held");
        let (epoch, root) = store.root(id)?.ok_or_else(lacks)?;
        if epoch > self.epoch {
            return Err(Error::new(ErrorKind::Fenced, "another process has changed the shard"));
        }
        let root = ManifestRoot::decode(&root)?;
        let outputs: BTreeSet<_> = store.output_ranges(id)?.into_iter().collect();
        let read = tree.segments_read(version);
        let mut segments: Vec<_> = version.segments().filter(|segment| !segment.is_stored()).collect();
        let mut infos = Vec::with_capacity(segments.len());
        let mut ranges = BTreeSet::new();
        for segment in &segments {
            let info = segment.at_member(self.member).ok_or_else(lacks)?.info();
            ranges.insert(place_of(client, info).ok_or_else(lacks)?);
            infos.push(info);
        }
        let extents: BTreeSet<_> = store.extents(id)?.into_iter().collect();
        for segment in &read {
            let Some(copy) = segment.at_member(self.member).filter(|copy| !copy.is_stored()) else { continue };
            let Some(range) = place_of(client, copy.info()).filter(|range| extents.contains(&range.extent)) else {
                continue;
            };
            ranges.insert(range);
            segments.push(segment);
            infos.push(copy.info());
        }
        let mut live: Vec<_> = ranges.difference(&outputs).copied().collect();
        live.extend(Left::ranges(&root, client).into_iter().flatten());
        let allocator = SubAllocator::restore(store, shard, &live, AllocatorOptions::default())?;
        let member = (tree.remote.next_number(), tree.remote.serving());
        let remote = Arc::new(Remote::of_owner(&self.node, Arc::clone(&self.owner), allocator, &outputs, None, member));
        let mut copies = Vec::with_capacity(segments.len());
        for (segment, info) in segments.iter().zip(infos) {
            copies.push(remote.hold(segment.id(), info)?.ok_or_else(lacks)?);
        }
        let left = Left::hold(root, &remote)?;
        let manifest = manifest::Log::begin(&self.owner, &remote, &version.version, Some(&left))?;
        for (segment, copy) in segments.into_iter().zip(copies) {
            copy.take_charge();
            segment.add_copy(copy);
        }
        if let Some(part) = remote.outputs() {
            free_orphans(part, &outputs, &ranges);
        }
        tree.remote.add(remote, Standing::Active);
        Ok(manifest)
    }
}
