//! Compaction: merges the indexes of tables and, on request, brings records back into key order.
//!
//! A flush that runs elsewhere is also a compaction: its input is records as they were written (see `records`), and its
//! output is one table of level 0.
//!
//! Inputs are streamed in pieces of [`JobLimits::read_bytes`](super::JobLimits::read_bytes), or less where they are many. The
//! job holds the index of an output table, and one batch of its records. It reads a record only to gather it, or to merge
//! operands (see `chain`).
//!
//! A job bounds what it holds as far as it can: pieces of inputs are shorter, runs and tables end earlier (see `output`).
//! Still, what it holds depends on its inputs: long keys and blocks, many inputs, many versions of a key, a merge within
//! level 0. So it tells its runner before it holds more ([`JobIo::hold`]), and a runner that works for strangers may refuse.

use super::chain::{Chain, End, Target};
use super::input::{Bounds, Input, Io, TableStream};
use super::output::Output;
use super::retention::{Link, Retention, Verdict};
use super::sources::Sources;
use super::{CompactionJob, CompactionResult, JobIo, records};
use crate::block::shared_bytes;
use crate::entry::RangeTombstone;
use crate::error::{Error, Result};
use crate::merge::{Direction, Merge, SortedStream};
use crate::operator::{MergeOperator, MergeOperators};
use forebay_base::{KeyOrder, Kind};
use std::cell::RefCell;
use std::sync::Arc;

/// Number of entries between two checks for cancellation.
const CANCEL_INTERVAL: u64 = 4096;

/// Runs a compaction with only the built-in merge operators.
///
/// # Errors
/// As [`run_compaction_with`].
pub fn run_compaction(job: &CompactionJob, io: &mut dyn JobIo) -> Result<CompactionResult> {
    run_compaction_with(job, &MergeOperators::default(), io)
}

/// Runs a compaction. A caller that gets a job from another process first checks that the segments that the job names exist
/// with the stated lengths, because buffer sizes depend on them.
///
/// # Errors
/// [`Error::Invalid`] for bad arguments; [`Error::UnknownOperator`], before anything is done; [`Error::Cancelled`];
/// [`Error::OverBudget`]; errors of `io`; corruption of the inputs. The caller must then free what was allocated.
pub fn run_compaction_with(
    job: &CompactionJob,
    operators: &MergeOperators,
    io: &mut dyn JobIo,
) -> Result<CompactionResult> {
    job.validate()?;
    let operator = match &job.merge_operator[..] {
        "" => None,
        name => Some(operators.get(name)?),
    };
    let io = RefCell::new(Io::new(io, job.limits.output_bytes));
    if !job.stretches.is_empty() {
        let (records, own) = records::open(&mut io.borrow_mut(), job)?;
        return merged(job, operator, &io, vec![records], own, 0);
    }
    let bounds = Bounds { order: job.key_order(), lower: job.lower.as_deref(), upper: job.upper.as_deref() };
    let mut streams = Vec::with_capacity(job.inputs.len());
    let mut own = Vec::new();
    for input in &job.inputs {
        let (stream, tombstones) =
            TableStream::open(&io, &input.table, bounds, job.limits.read_bytes, job.inputs.len())?;
        streams.push(stream);
        own.extend(tombstones);
    }
    merged(job, operator, &io, streams, own, shared_by_all(job))
}

/// Merges a job's inputs, which have these range deletions, and whose keys all share their first `shared_bytes` bytes.
fn merged<S: Input>(
    job: &CompactionJob,
    operator: Option<Arc<dyn MergeOperator>>,
    io: &RefCell<Io<'_>>,
    streams: Vec<S>,
    own: Vec<RangeTombstone>,
    shared_bytes: usize,
) -> Result<CompactionResult> {
    let order = job.key_order();
    let covering = job.tombstones.iter().chain(&own).cloned().collect();
    let mut retention = Retention::new(order, job.snapshots.clone(), job.is_bottommost, job.expire_before_ms, covering);
    let surviving: Vec<RangeTombstone> = own.into_iter().filter(|own| !retention.is_spent(own.tag)).collect();
    let mut target = Target { job, io, sources: Sources::new(job), output: Output::new(job, surviving) };
    let mut merge = Merge::with_shared_prefix(streams, order, Direction::Forward, shared_bytes);
    merge_entries(&mut merge, &mut retention, Chain::new(operator, &job.limits), &mut target)?;
    drop(merge);
    let Target { sources, mut output, .. } = target;
    output.finish(&mut io.borrow_mut())?;
    let counters = io.borrow().counters;
    let Output { tables, segments, checksums, .. } = output;
    Ok(CompactionResult { identity: job.identity, tables, segments, dead: sources.dead(), counters, checksums })
}

/// Bytes that all keys of the inputs start with, because the smallest and the largest do. If a table has other keys,
/// its bounds are wrong. The result is then out of order, and the output refuses it.
fn shared_by_all(job: &CompactionJob) -> usize {
    let order = job.key_order();
    let bounds = job.inputs.iter().map(|input| {
        let properties = &input.table.properties;
        (&properties.smallest.user_key[..], &properties.largest.user_key[..])
    });
    let smaller = |order: KeyOrder, a, b| if order.compare(a, b).is_lt() { a } else { b };
    let larger = |order: KeyOrder, a, b| if order.compare(a, b).is_lt() { b } else { a };
    let whole = bounds.reduce(|a, b| (smaller(order, a.0, b.0), larger(order, a.1, b.1)));
    whole.map_or(0, |(smallest, largest)| shared_bytes(smallest, largest))
}

fn merge_entries<S: Input>(
    merge: &mut Merge<S>,
    retention: &mut Retention,
    mut chain: Chain,
    target: &mut Target<'_, '_, '_>,
) -> Result<()> {
    let mut entries_in = 0u64;
    while let Some((number, stream)) = merge.current() {
        let Some(entry) = stream.entry() else { break };
        let address = stream.locate(&entry)?;
        if entries_in.is_multiple_of(CANCEL_INTERVAL) {
            target.io.borrow().check_cancelled()?;
        }
        entries_in += 1;
        if entry.key.tag.kind() == Kind::RangeDelete || entry.key.tag.kind().is_void() {
            let number = entry.key.tag.kind() as u64;
            return Err(Error::Unknown { what: "an index entry", feature: "kind", number });
        }
        let Verdict { is_kept, link } = retention.judge(&entry);
        match link {
            None | Some(Link::First) => chain.end(End::Open, retention, target)?,
            Some(Link::Further) if chain.is_full_for(&entry) => chain.end(End::Part, retention, target)?,
            Some(_) => {}
        }
        target.output.enter(number, &entry);
        match link {
            None if is_kept => target.put(number, &entry, address)?,
            None => target.drop(number, &entry)?,
            Some(link) => {
                chain.add(number, &entry, address);
                match link {
                    Link::First | Link::Further => {}
                    Link::Value => chain.end(End::Value, retention, target)?,
                    Link::Nothing => chain.end(End::Nothing { is_kept }, retention, target)?,
                }
            }
        }
        merge.advance()?;
    }
    chain.end(End::Open, retention, target)?;
    target.io.borrow_mut().counters.entries_in += entries_in;
    Ok(())
}
