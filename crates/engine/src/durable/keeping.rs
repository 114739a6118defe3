//! Copies segments to storage, and back from there.
//!
//! A version in storage names a segment only once an object holds a copy of it: its second placement. Segments are read
//! back from remote memory, no matter who wrote them, and several are put at a time. A segment that memory has lost is
//! read from its object into new memory.

use crate::remote::objects::{Objects, object_of};
use crate::remote::pipeline::{Pipeline, read_range};
use crate::remote::segment::{Remote, Segment};
use crate::terms::planted::{Bug, planted};
use crate::terms::{Error, Result};
use crate::tree::shared::Tree;
use forebay_base::{ErrorKind, SegmentId};
use forebay_env::thread::run_all;
use forebay_memory_client::Purpose;
use forebay_table::{Placement, SegmentInfo};
use std::sync::Arc;

/// Maximum number of objects that one job writes, or an opening shard reads, at the same time.
const AT_ONCE: usize = 4;

/// Puts copies of these segments, which are in memory, into storage.
///
/// # Errors
/// Those of the storage and of the fabric. The same call can be made again.
pub(crate) fn keep(tree: &Tree, segments: Vec<Arc<Segment>>) -> Result<()> {
    let Some(objects) = tree.remote.objects() else { return Ok(()) };
    if planted(Bug::VersionBeforeObjects) {
        return Ok(());
    }
    let at_once = if tree.options.background_threads == 0 { 1 } else { AT_ONCE };
    in_groups(segments, at_once, |segment| put(&tree.remote, objects, &segment)).map(drop)
}

/// Writes the object of a segment.
fn put(remote: &Remote, objects: &Objects, segment: &Segment) -> Result<()> {
    // A put that fails may have made the object, which then goes with the segment.
    segment.kept_as(&objects.name_of(segment.id())?);
    let mut endpoint = remote.background()?;
    let read = |offset, length| read_range(&mut endpoint, segment.at(offset)?, length);
    objects.put(segment.id(), segment.info().length, read)
}

/// Opens segments that are in storage only.
///
/// # Errors
/// `Corrupt` when an object is missing or damaged; those of the storage.
pub(crate) fn open(
    remote: &Arc<Remote>,
    stored: Vec<(SegmentId, Arc<SegmentInfo>)>,
    has_threads: bool,
) -> Result<Vec<Arc<Segment>>> {
    let at_once = if has_threads { AT_ONCE } else { 1 };
    in_groups(stored, at_once, |(id, info)| remote.hold_stored(id, &info))
}

/// Brings segments that memory has lost back from storage. Each is held, with its present placements. What memory has
/// no room for, because the nodes are different or smaller, stays in storage alone.
///
/// # Errors
/// `Corrupt` when one is not in storage either; others.
pub(crate) fn load(
    remote: &Arc<Remote>,
    lost: Vec<(SegmentId, Arc<SegmentInfo>)>,
    has_threads: bool,
) -> Result<Vec<(Arc<Segment>, SegmentInfo)>> {
    let at_once = if has_threads { AT_ONCE } else { 1 };
    in_groups(lost, at_once, |(id, info)| {
        load_one(remote, id, &info).map_err(|error| error.during("loading a segment"))
    })
}

fn load_one(remote: &Arc<Remote>, id: SegmentId, info: &SegmentInfo) -> Result<(Arc<Segment>, SegmentInfo)> {
    let lost = || Error::corrupt(format!("{id} is neither in memory nor in storage"));
    let objects = remote.objects().ok_or_else(lost)?;
    let object = object_of(&info.placements).ok_or_else(lost)?;
    let in_storage = || Placement::Storage { object: object.to_owned() };
    let fits = info.length <= remote.extent_bytes();
    let segment = match fits.then(|| remote.allocate(id, info.kind, info.length, Purpose::Flush)) {
        Some(Ok(segment)) => segment,
        Some(Err(error)) if error.kind() != ErrorKind::Full => return Err(error),
        _ => {
            let stored = SegmentInfo { placements: vec![in_storage()], ..info.clone() };
            return Ok((remote.hold_stored(id, &stored)?, stored));
        }
    };
    let mut pipeline = Pipeline::new(remote.background()?);
    let read = objects.get(object, info.length, |offset, piece| pipeline.write(&segment, offset, piece));
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corrupt(format!("a version names {id}: {error}")),
        _ => error,
    })?;
    pipeline.drain()?;
    let mut placed = segment.info().clone();
    placed.record_format = info.record_format;
    placed.placements.push(in_storage());
    segment.kept_as(object);
    // The next process that opens the database needs both, if this process does not get far.
    segment.abandon();
    Ok((segment, placed))
}

/// Runs `work` on all items, `at_once` at a time, and returns what it made of them in order.
fn in_groups<I: Send, T: Send>(items: Vec<I>, at_once: usize, work: impl Fn(I) -> Result<T> + Sync) -> Result<Vec<T>> {
    if at_once <= 1 || items.len() <= 1 {
        return items.into_iter().map(work).collect();
    }
    // One row for each thread; item `i` is in row `i` modulo their number.
    let mut rows: Vec<Vec<I>> = Vec::new();
    rows.resize_with(at_once.min(items.len()), Vec::new);
    let count = rows.len();
    for (at, item) in items.into_iter().enumerate() {
        if let Some(row) = rows.get_mut(at % count) {
            row.push(item);
        }
    }
    let panicked = || Error::panicked("copies segments");
    let made = run_all(rows, |row| row.into_iter().map(&work).collect::<Result<Vec<T>>>());
    let mut rows = Vec::new();
    for row in made {
        rows.push(row.ok_or_else(panicked)??.into_iter());
    }
    let mut all = Vec::new();
    while let Some(row) = rows.get_mut(all.len() % count) {
        match row.next() {
            Some(made) => all.push(made),
            None => break,
        }
    }
    Ok(all)
}
