//! Compaction at several members of a shard at once (Tebis 3.3, Build-Index; `docs/decisions/0040`).
//!
//! ```text
//!              ┌─ the job, on its copies of the inputs ──► member 0 ── outputs' checksums, tables, tails ─┐
//!  compute node┤                                                                                         ├─ the same? ─► install
//!              └─ the job, on its copies of the inputs ──► member 1 ── outputs' checksums, tables ────────┘
//! ```
//!
//! The outputs depend on the arguments alone, and addresses are logical, so all members make the same bytes. If they
//! differ, what most members made counts; of two, what the serving member made. A member that made something else is
//! left out. A member that did not run the job, for example because its own copies are damaged, gets the outputs like
//! any other change (`durable::copies`).

use crate::plan::replication::Effort;
use crate::remote::segment::Remote;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics;
use crate::terms::{Error, Replication};
use crate::work::compaction::{InputSegments, placed_at};
use crate::work::near_data::{Made, NotThere};
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::thread::run_all;
use forebay_table::job::{CompactionJob, CompactionResult, Replica};
use std::sync::Arc;

/// Maximum number of parts of a job: members may have different numbers of threads.
const PARTS: u8 = 4;

impl Shard {
    /// The members, beside `server`, that also run the job.
    pub(crate) fn builders(&self, server: &Arc<Remote>, job: &CompactionJob) -> Vec<Arc<Remote>> {
        let replication = self.tree.options.replication;
        if !self.tree.remote.are_several() || replication == Replication::SendIndex {
            return Vec::new();
        }
        let effort = Effort::of(job);
        let is_builder = |remote: &&Arc<Remote>| {
            let node = remote.memory_node();
            remote.member() != server.member() && node.runs_jobs() && effort.is_built(replication, node.busy())
        };
        self.tree.remote.active().filter(is_builder).cloned().collect()
    }

    /// Lets these members run a compaction. Returns what they made, with its segments held at each of them.
    pub(crate) fn compact_at_members(
        &self,
        server: &Arc<Remote>,
        others: Vec<Arc<Remote>>,
        inputs: &InputSegments,
        job: &mut CompactionJob,
    ) -> Result<Made, NotThere> {
        job.output_segments = self.tree.next_segments();
        let members: Vec<_> = std::iter::once(Arc::clone(server)).chain(others).collect();
        let run = |remote: &Arc<Remote>| {
            let part = remote.node_part().ok_or_else(|| Error::invalid("a member has no part for outputs"))?;
            let replica = Replica { parts: PARTS, has_tails: remote.member() == server.member() };
            let segments = placed_at(inputs, remote);
            let mut own = CompactionJob { replica: Some(replica), segments, ..job.clone() };
            self.run_near_data(remote, part, &mut own)
        };
        let ran: Vec<Option<Result<Made, NotThere>>> = match self.tree.options.background_threads {
            0 => members.iter().map(|remote| Some(run(remote))).collect(),
            _ => run_all(members.iter().collect(), run),
        };
        let mut made = Vec::new();
        let mut causes = Vec::new();
        for (remote, ran) in members.iter().zip(ran) {
            let panicked = || Err(Error::panicked("waited for a job").into());
            match ran.unwrap_or_else(panicked) {
                Ok((result, segments)) => made.push((remote, result, segments)),
                Err(cause) => causes.push((remote, cause)),
            }
        }
        let results: Vec<_> = made.iter().map(|(_, result, _)| result).collect();
        let Some(chosen) = chosen(&results) else {
            // The serving member is the first.
            let cause = causes.into_iter().next().map(|(_, cause)| cause);
            return Err(cause.unwrap_or_else(|| NotThere::Failed(Error::invalid("no member was to run a job"))));
        };
        self.suspect_damaged(causes);
        let (remote, mut result, segments) = made.swap_remove(chosen);
        for (other, its, copies) in made {
            if !result.is_same_as(&its) && !planted(Bug::UncomparedOutputs) {
                let (node, job) = (other.memory_node().client().node(), result.identity.job);
                let cause = Error::corrupt(format!(
                    "{node} made other bytes of job {job} than {}: its memory or processor may be damaged",
                    remote.memory_node().client().node()
                ));
                tracing::error!(%cause, "a copy is wrong");
                self.tree.remote.leave_out(other.member(), &cause)?;
                continue;
            }
            for (segment, copy) in segments.iter().zip(copies) {
                statistics::add(&self.tree.counters.rebuilt_bytes, copy.info().length);
                segment.add_copy(copy);
            }
        }
        self.read_tails(remote, &mut result, &segments)?;
        self.count_elsewhere(job, &self.tree.counters.near_data_compactions);
        Ok((result, segments))
    }

    /// Asks for a check of the copies at a member that found its own damaged. It gets what others made, like one that
    /// did not run the job.
    fn suspect_damaged(&self, causes: Vec<(&Arc<Remote>, NotThere)>) {
        for (remote, cause) in causes {
            let (NotThere::Failed(error) | NotThere::Refused(error)) = cause;
            let node = remote.memory_node().client().node();
            if error.kind() == ErrorKind::Corrupt {
                tracing::error!(%error, %node, "a copy is damaged");
                remote.serving().suspect();
            } else {
                tracing::debug!(%error, %node, "what a member did not make is sent");
            }
        }
    }
}

/// Which of the results counts: the first of those that agree with the most results.
fn chosen(results: &[&CompactionResult]) -> Option<usize> {
    let alike = |result: &CompactionResult| results.iter().filter(|other| other.is_same_as(result)).count();
    let most = results.iter().map(|result| alike(result)).max()?;
    results.iter().position(|result| alike(result) == most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::SegmentId;
    use forebay_table::job::{JobCounters, JobIdentity};
    use forebay_table::{SegmentInfo, SegmentKind};

    #[test]
    fn what_most_members_made_counts() {
        let result = |checksum| CompactionResult {
            identity: JobIdentity { store: 1, shard: 2, epoch: u64::from(checksum), job: 4, attempt: 1 },
            tables: Vec::new(),
            segments: vec![(SegmentId(1), SegmentInfo::new(SegmentKind::Run, 10, Vec::new()))],
            dead: Vec::new(),
            counters: JobCounters::default(),
            checksums: vec![checksum],
        };
        let chosen = |checksums: &[u32]| {
            let results: Vec<_> = checksums.iter().map(|checksum| result(*checksum)).collect();
            chosen(&results.iter().collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[7]), Some(0));
        assert_eq!(chosen(&[7, 8]), Some(0));
        assert_eq!(chosen(&[7, 8, 8]), Some(1));
        assert_eq!(chosen(&[8, 7, 8]), Some(0));
    }
}
