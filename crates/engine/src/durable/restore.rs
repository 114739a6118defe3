//! Opening a database in storage: the new owner takes up what the commits and the logs say. The memory nodes still hold
//! its segments, or are empty, or are other ones.
//!
//! ```text
//!  commits are read            which stores of memory nodes belong to the database; what a newer build wrote is refused (see
//!                              `known`)
//!  shards are acquired         on the memory nodes: an earlier owner loses its keys
//!  register is claimed         an earlier owner's next commit is fenced
//!  logs are sealed and read    its next sync is fenced; what counts of them (see `groups`)
//!                              then, for each shard:
//!    segments                  held where memory has them, else read from their objects; those of levels in storage
//!                              are opened there
//!    tails of the tables       the cached indexes
//!  one commit                  with all placements as they are now: from here on the database is this process's
//! ```
//!
//! A placement in memory counts if it belongs to the store that the commits name, and to the same life of the node.

use crate::durable::database::{Committed, Place};
use crate::durable::groups::Replay;
use crate::durable::keeping;
use crate::durable::recovery::{LeftRecords, free_orphans, misplaced, open_tables, readers};
use crate::durable::storage_log::LeftLog;
use crate::durable::unnamed;
use crate::remote::members::Members;
use crate::remote::objects::{Objects, is_stored, object_of};
use crate::remote::owner::Owner;
use crate::remote::segment::{Node, Remote, Segment, place_of};
use crate::terms::recovery::Recovery;
use crate::terms::{Error, Options, Result};
use crate::tree::version::LiveVersion;
use forebay_base::SegmentId;
use forebay_env::thread::run_all;
use forebay_env::{HashMap, HashSet};
use forebay_memory_client::{AllocatorOptions, ExtentRange, SubAllocator};
use forebay_storage::Recovery as LogRecovery;
use forebay_table::{LogName, SegmentInfo, StorageRoot, Version, VersionEdit};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of segments of a log that are read at the same time, and of bytes of them unless one has more.
const READ_AT_ONCE: usize = 16;
const READ_AT_ONCE_BYTES: u64 = 256 << 20;

/// A shard that is open again.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) remote: Arc<Members>,
    pub(crate) version: LiveVersion,
    /// All segments. They belong to this process once the database does.
    held: Vec<Arc<Segment>>,
    outputs: BTreeSet<ExtentRange>,
    named_outputs: BTreeSet<ExtentRange>,
}

impl Restored {
    /// Notes that the shard belongs to this process: what is not needed is freed from now on.
    pub(crate) fn take_charge(&self) {
        self.held.iter().for_each(|segment| segment.take_charge());
        if let Some(part) = self.remote.outputs() {
            free_orphans(part, &self.outputs, &self.named_outputs);
        }
    }
}

/// What the logs hold that tables do not: by shard, and which logs those are.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) replay: Replay,
    pub(crate) left: Vec<LeftLog>,
}

impl Logs {
    /// The records to be written again, by shard.
    pub(crate) fn take_records(&mut self) -> Vec<LeftRecords> {
        self.replay.shards.iter_mut().map(|shard| std::mem::take(&mut shard.records)).collect()
    }
}

/// Seals the logs of earlier owners, so that these no longer acknowledge anything, and reads them. This process must be
/// the owner.
///
/// Sealing a log in files cuts a torn end off for good. Whether the end of a log was durable, the next log shows, which
/// continues what was durable of the one before. So all logs but the last, which nobody writes any more, are sealed only
/// once all logs are read. Of the last one, only tables may show it (see [`Replay::check_end`]), so if its end is torn, it
/// is looked at before it is cut. Until then damage can be repaired where it is.
///
/// # Errors
/// `Corrupt`, naming the place, when something that was durable is damaged or missing; those of the storage.
pub(crate) fn read_logs(
    place: &Place,
    committed: &Committed,
    options: &Options,
    recovery: &mut Recovery,
) -> Result<Logs> {
    let mut replay = Replay::new(&committed.flushed());
    let mut left = Vec::with_capacity(committed.logs.len());
    let at_once = if options.background_threads == 0 { 1 } else { READ_AT_ONCE };
    let mut unsealed = Vec::new();
    for name in &committed.logs {
        let is_sealed_later = place.storage.has_log_files() && committed.logs.last() != Some(name);
        let how = if is_sealed_later { LogRecovery::Look } else { LogRecovery::SealUnlessTorn };
        let mut reader = place.open_log(*name, how)?;
        if !is_sealed_later && reader.cut().is_some() {
            look_at_end(place, *name, committed, &replay)?;
            reader = place.open_log(*name, LogRecovery::Seal)?;
        }
        let mut next = 0;
        while next < reader.segments() {
            let begin = reader.span(next).start;
            let fits = |segment: &usize| reader.span(*segment).end.saturating_sub(begin) <= READ_AT_ONCE_BYTES;
            let more = (next + 1..reader.segments()).take(at_once - 1).take_while(fits);
            let some: Vec<usize> = std::iter::once(next).chain(more).collect();
            next += some.len();
            let panicked = || Error::panicked("reads a log");
            let read = run_all(some.clone(), |segment| reader.segment(segment));
            for (segment, frames) in some.into_iter().zip(read) {
                replay.add_segment(reader.object(segment), frames.ok_or_else(panicked)??)?;
            }
        }
        replay.end_log(reader.cut());
        unsealed.extend(is_sealed_later.then(|| (*name, reader.end())));
        let numbers = replay.shards.iter().map(|shard| shard.last).collect();
        left.push(LeftLog { name: *name, numbers, may_hold_more: false });
    }
    unnamed::check_end(place, committed, &replay)?;
    for (name, end) in unsealed {
        let sealed = place.open_log(name, LogRecovery::Seal)?;
        if sealed.end() != end {
            let last = sealed.object(sealed.segments().saturating_sub(1));
            return Err(Error::corrupt(format!(
                "{last}: the log ends at position {}, and a moment ago it ended at {end}",
                sealed.end()
            )));
        }
    }
    recovery.cuts.clone_from(&replay.cuts);
    recovery.logs = left.len() as u64;
    (recovery.log_bytes, recovery.log_groups) = (replay.bytes, replay.groups);
    Ok(Logs { replay, left })
}

/// Reads the last log, as `replay` has read those before, and checks its end.
fn look_at_end(place: &Place, name: LogName, committed: &Committed, replay: &Replay) -> Result<()> {
    let lasts: Vec<_> = replay.shards.iter().map(|shard| shard.last).collect();
    let mut looked = Replay::new(&lasts);
    // If its records do not continue from there, these ends may be damaged.
    looked.cuts.clone_from(&replay.cuts);
    unnamed::read_log(place, name, &mut looked)?;
    unnamed::check_end(place, committed, &looked)
}

/// Restores shards, whose segments memory may have lost.
#[derive(Debug)]
pub(crate) struct Restorer<'a> {
    pub(crate) root: StorageRoot,
    /// Whether the stores of the memory nodes are those that the versions' placements are of.
    pub(crate) knows_memory: bool,
    pub(crate) options: &'a Options,
    pub(crate) recovery: &'a mut Recovery,
}

/// The segments of a version, and what of them memory still has.
#[derive(Debug, Default)]
struct Found {
    held: Vec<(SegmentId, Arc<SegmentInfo>)>,
    lost: Vec<(SegmentId, Arc<SegmentInfo>)>,
    /// Those that never had a place in memory.
    stored: Vec<(SegmentId, Arc<SegmentInfo>)>,
    /// The memory of the held ones: what this session divides, and outputs of jobs.
    live: Vec<ExtentRange>,
    named_outputs: BTreeSet<ExtentRange>,
}

impl Restorer<'_> {
    /// Restores a shard.
    ///
    /// # Errors
    /// `Corrupt`; `Unavailable`; those of the storage.
    pub(crate) fn shard(
        &mut self,
        node: &Arc<Node>,
        owner: &Arc<Owner>,
        version: &Version,
        objects: Objects,
    ) -> Result<Restored> {
        let id = owner.shard().key().shard;
        let outputs: BTreeSet<ExtentRange> = owner.store().output_ranges(id)?.into_iter().collect();
        let found = self.find(owner, version, &outputs)?;
        let allocator = SubAllocator::restore(owner.store(), owner.shard(), &found.live, AllocatorOptions::default());
        let allocator = allocator.map_err(|error| misplaced(error.into()))?;
        let names = version.segments().values().filter_map(|entry| object_of(&entry.info.placements));
        self.recovery.objects_swept += objects.sweep(&names.map(str::to_owned).collect::<HashSet<_>>())?;
        let objects = Some(Arc::new(objects));
        let member = (0, &Arc::default());
        let remote = Arc::new(Remote::of_owner(node, Arc::clone(owner), allocator, &outputs, objects, member));
        let mut segments = HashMap::default();
        self.recovery.segments_held += found.held.len() as u64;
        for (id, info) in found.held {
            let segment = remote.hold(id, &info).map_err(misplaced)?;
            let segment = segment.ok_or_else(|| Error::corrupt(format!("{id} does not lie in this memory node")))?;
            segments.insert(id, segment);
        }
        for segment in keeping::open(&remote, found.stored, self.options.background_threads > 0)? {
            segments.insert(segment.id(), segment);
        }
        let epoch = Some(self.root.epoch.max(version.epoch()));
        let mut edit = VersionEdit { epoch, ..VersionEdit::default() };
        let mut loaded = Vec::with_capacity(found.lost.len());
        for (segment, info) in keeping::load(&remote, found.lost, self.options.background_threads > 0)? {
            edit.moved_segments.push((segment.id(), info));
            segments.insert(segment.id(), Arc::clone(&segment));
            if !segment.is_stored() {
                self.recovery.segments_loaded += 1;
                self.recovery.bytes_loaded += segment.info().length;
                loaded.push(segment);
            }
        }
        let version = version.apply(&edit).map_err(forebay_table::Error::from)?;
        let segments = Arc::new(segments);
        let tables = open_tables(&remote, &version, &segments, readers(self.options))?;
        let version = LiveVersion::restore(version, &tables, &segments)?;
        remote.adopt(&loaded)?;
        owner.set_root(&self.root.encode()?)?;
        let held = segments.values().cloned().collect();
        let remote = Members::only(remote);
        Ok(Restored { remote, version, held, outputs, named_outputs: found.named_outputs })
    }

    /// Finds what memory still has.
    fn find(&self, owner: &Owner, version: &Version, outputs: &BTreeSet<ExtentRange>) -> Result<Found> {
        let (client, id) = (owner.store().client(), owner.shard().key().shard);
        let extents: BTreeSet<_> = owner.store().extents(id)?.into_iter().collect();
        let mut found = Found::default();
        for (segment, entry) in version.segments() {
            let entry = (*segment, Arc::clone(&entry.info));
            if is_stored(&entry.1) {
                found.stored.push(entry);
                continue;
            }
            let range = place_of(client, &entry.1).filter(|_| self.knows_memory);
            match range {
                Some(range) if outputs.contains(&range) => drop(found.named_outputs.insert(range)),
                Some(range) if extents.contains(&range.extent) => found.live.push(range),
                _ => {
                    found.lost.push(entry);
                    continue;
                }
            }
            found.held.push(entry);
        }
        Ok(found)
    }
}
