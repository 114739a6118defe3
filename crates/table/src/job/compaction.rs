//! Compaction: merges the indexes of tables, and, where asked, brings records back into key order.
//!
//! Inputs are streamed in pieces of [`JobLimits::read_bytes`](super::JobLimits::read_bytes); of an
//! output table the index is held, of its records one batch. A record is read only to be gathered.

use super::input::{Bounds, Io, TableStream};
use super::output::Output;
use super::retention::Retention;
use super::{Clustering, CompactionJob, CompactionResult, JobIo, Residents};
use crate::entry::RangeTombstone;
use crate::error::{Error, Result};
use crate::merge::{Direction, Merge, SortedStream};
use forebay_base::Kind;
use std::cell::RefCell;

/// Entries from one look at whether the job was cancelled to the next.
const CANCEL_INTERVAL: u64 = 4096;

/// Runs a compaction. Whoever takes a job from another process first checks that the segments that
/// it names exist with the lengths that it says: buffers are sized by them.
///
/// # Errors
/// [`Error::Invalid`] for bad arguments; [`Error::Cancelled`]; [`Error::OverBudget`]; what `io` gives; and
/// corruption of the inputs. What was allocated then stays for the caller to free.
pub fn run_compaction(job: &CompactionJob, io: &mut dyn JobIo) -> Result<CompactionResult> {
    job.validate()?;
    let io = RefCell::new(Io::new(io, job.limits.output_bytes));
    let bounds = Bounds { order: job.key_order(), lower: job.lower.as_deref(), upper: job.upper.as_deref() };
    let mut streams = Vec::with_capacity(job.inputs.len());
    let mut levels = Vec::with_capacity(job.inputs.len());
    let mut own = Vec::new();
    for input in &job.inputs {
        let (stream, tombstones) = TableStream::open(&io, &input.table, bounds, job.limits.read_bytes)?;
        streams.push(stream);
        levels.push(input.level);
        own.extend(tombstones);
    }
    let covering = job.tombstones.iter().chain(&own).cloned().collect();
    let mut retention =
        Retention::new(bounds.order, job.snapshots.clone(), job.is_bottommost, job.expire_before_ms, covering);
    let surviving: Vec<RangeTombstone> = own.into_iter().filter(|own| !retention.is_spent(own.tag)).collect();
    let mut output = Output::new(job, surviving);
    let mut merge = Merge::new(streams, bounds.order, Direction::Forward);
    merge_entries(job, &io, &levels, &mut merge, &mut retention, &mut output)?;
    drop(merge);
    output.finish(&mut io.borrow_mut())?;
    let dead = output.dead();
    let counters = io.borrow().counters;
    let Output { tables, segments, .. } = output;
    Ok(CompactionResult { identity: job.identity, tables, segments, dead, counters })
}

fn merge_entries(
    job: &CompactionJob,
    io: &RefCell<Io<'_>>,
    levels: &[u8],
    merge: &mut Merge<TableStream<'_, '_>>,
    retention: &mut Retention,
    output: &mut Output<'_>,
) -> Result<()> {
    while let Some((number, stream)) = merge.current() {
        let Some(entry) = stream.entry() else { break };
        let (segment, address) = stream.properties().locate(&entry)?;
        let mut io = io.borrow_mut();
        if io.counters.entries_in.is_multiple_of(CANCEL_INTERVAL) {
            io.check_cancelled()?;
        }
        io.counters.entries_in += 1;
        if matches!(entry.key.tag.kind(), Kind::Merge | Kind::RangeDelete) {
            let number = entry.key.tag.kind() as u64;
            return Err(Error::Unknown { what: "an index entry", feature: "kind", number });
        }
        let is_resident = segment.is_run && levels.get(number) == Some(&job.output_level);
        if !retention.keeps(&entry) {
            output.drop_entry(&entry, segment);
        } else if gathers(job.clustering, is_resident) {
            output.gather(&mut io, &entry, address)?;
        } else {
            output.keep(&mut io, &entry, segment)?;
        }
        drop(io);
        merge.advance()?;
    }
    Ok(())
}

const fn gathers(clustering: Clustering, is_resident: bool) -> bool {
    match clustering {
        Clustering::None => false,
        Clustering::Gather(Residents::Rewrite) => true,
        Clustering::Gather(Residents::Keep) => !is_resident,
    }
}
