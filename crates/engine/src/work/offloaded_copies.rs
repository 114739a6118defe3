//! Copies of new segments in storage, made by an executor (O3-LSM 4.3): a flush's bytes go from the memory node to the
//! storage, and not over this node.
//!
//! A copy is the object with its segment's number, no matter who makes it. All attempts would write the same bytes, so
//! it does not matter which of them did. What counts is that all copies are in this node's storage before a commit
//! names them. This node checks that itself, whatever an executor says.

use crate::remote::objects::{Objects, need_of};
use crate::remote::segment::Segment;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::work::errand::Errand;
use crate::work::near_data::{NotThere, patience};
use crate::work::shard::Shard;
use forebay_proto::job_kind;
use forebay_table::job::CopyJob;
use std::sync::Arc;

impl Shard {
    /// Lets an executor put copies of these segments, which are in memory, into storage. False when none does.
    ///
    /// # Errors
    /// When the shard is closed, or the memory node is gone.
    pub(crate) fn keep_offloaded(&self, segments: &[Arc<Segment>]) -> Result<bool> {
        let remote = self.tree.remote.pinned();
        let (offloading, part) = (remote.memory_node().offloading(), remote.node_part());
        let (Some(offloading), Some(part), Some(objects)) = (offloading, part, remote.objects()) else {
            return Ok(false);
        };
        if segments.is_empty() {
            return Ok(true);
        }
        self.tree.check_open()?;
        // Whatever attempts leave goes with the segment.
        let names: Vec<_> = segments.iter().map(|segment| objects.name_of(segment.id())).collect::<Result<_>>()?;
        let patience = patience(segments.iter().map(|segment| segment.info()));
        segments.iter().zip(&names).for_each(|(segment, name)| segment.kept_as(name));
        let job = CopyJob { segments: segments.iter().map(|segment| (segment.id(), segment.info().clone())).collect() };
        let mut arguments = Vec::new();
        // All attempts put the same objects.
        let place = objects.place(true, &[], segments.iter().map(|segment| segment.id()), patience);
        place.encode(&mut arguments);
        job.encode(&mut arguments)?;
        let errand = Errand {
            kind: job_kind::COPY,
            job: self.tree.next_table().0,
            arguments,
            storage: need_of(&place),
            memory_bytes: job.segments.values().map(|info| info.length).sum(),
            storage_bytes: 0,
            patience,
            must_not_wait: false,
        };
        match self.offload(offloading, (remote, &part.shard()), &errand, |_| all_are_there(objects, &names)) {
            Ok(Some(())) => {}
            Ok(None) => return Ok(false),
            Err(NotThere::Refused(error)) => {
                tracing::debug!(%error, "copies in storage are made at the compute node");
                return Ok(false);
            }
            Err(NotThere::Failed(error)) => return Err(self.tree.check_open().err().unwrap_or(error)),
        }
        statistics::add(&self.tree.counters.offloaded_copies, names.len() as u64);
        Ok(true)
    }
}

/// Checks that all copies are in the database's storage.
fn all_are_there(objects: &Objects, names: &[String]) -> Result<()> {
    if planted(Bug::TrustCopies) {
        return Ok(());
    }
    for name in names {
        if !objects.is_there(name)? {
            tracing::warn!(object = name, "a worker's copy is not there: start workers with the database's storage");
            return Err(Error::corrupt(format!("an executor's copy {name} is not in this database's storage")));
        }
    }
    Ok(())
}
