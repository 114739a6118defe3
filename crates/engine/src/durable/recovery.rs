//! Opening a shard of a named store: the new owner takes up what an earlier owner left.
//!
//! ```text
//!  acquire all shards: the next epoch each    the earlier owner, if it lives, is fenced
//!                                             then, for each shard:
//!  root ─► log ─► version                     checked: CRC32C, edits, the invariants of versions
//!  keys to the shard's memory                 what the version names is held, the rest is free
//!  tails of the tables, several at a time     the cached indexes
//!  parts of the log of writes                 what of them counts (see `replay`)
//!  a new manifest in the spare, a new root    from here on the shard is this process's
//!  outputs of jobs that no version names      freed
//! ```
//!
//! Nothing that the earlier owner may still write is trusted: its log is read once, and a new one is begun
//! (`docs/formats/manifest.md`). Of its memtables' contents, what reached the log is written again. Sequence numbers continue
//! after the largest one that the version covers.

use crate::durable::manifest::{Left, Manifest};
use crate::durable::replay::{self, Part, Replay};
use crate::remote::node_part::NodePart;
use crate::remote::owner::Owner;
use crate::remote::pipeline::{read_range, read_spot};
use crate::remote::segment::{Node, Remote, Segment, place_of};
use crate::terms::{Error, Options, Result};
use crate::tree::table::Table;
use crate::tree::version::LiveVersion;
use forebay_base::{ErrorKind, SegmentId, SequenceNumber};
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::spawn;
use forebay_fabric::EndpointOptions;
use forebay_memory_client::{
    AllocatorOptions, ExtentId, ExtentRange, MemoryClient, ShardHandle, ShardId, StoreHandle, SubAllocator,
};
use forebay_table::{CachedTable, LogPart, ManifestRoot, ShardIdentity, TableMetadata, Version, VersionEdit};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a shard may stay with an owner that has just died before it counts as in use.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of threads that read tails.
const MAX_READERS: usize = 8;

/// A recovered shard, open again.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) remote: Arc<Remote>,
    pub(crate) version: LiveVersion,
    pub(crate) manifest: Manifest,
    pub(crate) log: LeftLog,
}

/// The log of writes that an earlier owner left.
#[derive(Debug)]
pub(crate) struct LeftLog {
    /// Its parts that count, oldest first, each with its last number.
    pub(crate) parts: Vec<(Arc<Segment>, SequenceNumber)>,
    /// The last number that counts.
    pub(crate) last: SequenceNumber,
    pub(crate) records: LeftRecords,
}

/// The records of a log that no table holds, in order, in several pieces. A batch may go on in the next piece.
pub(crate) type LeftRecords = Vec<Vec<u8>>;

/// Becomes the owner of a shard of a store. All shards of a database are acquired before any of them is recovered. No
/// earlier owner can then change any of them, so everything that is read belongs to one moment.
///
/// # Errors
/// `Busy` when another process has it open and `takeover` is not set; `Unavailable`.
pub(crate) fn acquire(store: &StoreHandle, id: ShardId, options: &Options) -> Result<Arc<Owner>> {
    let shard = acquire_shard(store, id, options)?;
    Ok(Arc::new(Owner::new(store.clone(), shard)))
}

/// Recovers a shard; a shard that was never used is empty. Releases it on failure.
///
/// # Errors
/// `Corrupt` when the stored data is damaged; `Full`; `Unavailable`.
pub(crate) fn take_up(
    node: &Arc<Node>,
    owner: &Arc<Owner>,
    identity: ShardIdentity,
    options: &Options,
) -> Result<Recovered> {
    try_take_up(node, owner, identity, options).inspect_err(|_| owner.release())
}

fn try_take_up(node: &Arc<Node>, owner: &Arc<Owner>, identity: ShardIdentity, options: &Options) -> Result<Recovered> {
    let (shard, client) = (owner.shard(), Arc::clone(owner.store().client()));
    let id = shard.key().shard;
    let (version, root) = match owner.store().root(id)? {
        None => (Version::empty(identity), None),
        Some((_, root)) => {
            let root = ManifestRoot::decode(&root)?;
            (read_version(&client, &shard, &root, &identity, options)?, Some(root))
        }
    };
    let outputs: BTreeSet<ExtentRange> = owner.store().output_ranges(id)?.into_iter().collect();
    let mut live = Vec::new();
    let mut named_outputs = BTreeSet::new();
    for (segment, entry) in version.segments() {
        let range = place_of(&client, &entry.info);
        let range = range.ok_or_else(|| Error::corrupt(format!("{segment} does not lie in this memory node")))?;
        if outputs.contains(&range) {
            named_outputs.insert(range);
        } else {
            live.push(range);
        }
    }
    live.extend(root.iter().filter_map(|root| Left::ranges(root, &client)).flatten());
    let allocator = SubAllocator::restore(owner.store(), shard, &live, AllocatorOptions::default());
    let allocator = allocator.map_err(|error| misplaced(error.into()))?;
    let remote = Arc::new(Remote::of_owner(node, Arc::clone(owner), allocator, &outputs, None));
    let (log, version, ended) = open_log(&remote, version)?;
    let version = open_version(&remote, version, options)?;
    let left = root.map(|root| Left::hold(root, &remote).map_err(misplaced)).transpose()?;
    let manifest = Manifest::begin(owner, &remote, &version.version, left.as_ref())?;
    // The shard now belongs to this process.
    version.segments().for_each(|segment| segment.take_charge());
    ended.iter().for_each(|segment| segment.take_charge());
    if let Some(part) = remote.outputs() {
        free_orphans(part, &outputs, &named_outputs);
    }
    Ok(Recovered { remote, version, manifest, log })
}

/// Acquires the shard. If its owner's process has just ended, waits a moment until the node notices.
fn acquire_shard(store: &StoreHandle, id: ShardId, options: &Options) -> Result<ShardHandle> {
    let start = options.clock.now();
    loop {
        match store.acquire_shard(id, options.takeover) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                if u128::from(options.clock.now().saturating_sub(start)) >= PATIENCE.as_nanos() {
                    let message = format!(
                        "the database {:?} is open in another process: end that one, or take it over",
                        store.name()
                    );
                    return Err(Error::new(ErrorKind::Busy, message));
                }
                options.clock.sleep(PAUSE);
            }
            acquired => return Ok(acquired?),
        }
    }
}

/// Reads the log that a root names, and checks the resulting version.
fn read_version(
    client: &Arc<MemoryClient>,
    shard: &ShardHandle,
    root: &ManifestRoot,
    identity: &ShardIdentity,
    options: &Options,
) -> Result<Version> {
    let here = client.node();
    if (root.node, root.incarnation) != (here.node, here.incarnation) {
        return Err(Error::corrupt("the manifest is of another memory node, or of an earlier life of it"));
    }
    let extent = ExtentId(root.extent);
    if Left::ranges(root, client).is_none() {
        return Err(Error::corrupt(format!("the manifest does not fit into {extent}")));
    }
    client.map_to_read(shard.key(), &[extent]).map_err(|error| misplaced(error.into()))?;
    let endpoint = EndpointOptions { clock: Arc::clone(&options.clock), ..EndpointOptions::background() };
    let mut endpoint = client.link().endpoint(EndpointOptions { timeout: options.fabric_timeout, ..endpoint })?;
    let bytes = read_range(&mut endpoint, client.resolve(extent, root.offset)?, root.length)?;
    let version = Version::replay(root.edits(&bytes)?).map_err(forebay_table::Error::from)?;
    if version.identity() != identity {
        return Err(Error::corrupt("the manifest is of another shard, or of another order of keys"));
    }
    Ok(version)
}

/// The error for memory that a manifest names wrongly: the manifest is corrupt.
pub(crate) fn misplaced(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Invalid => Error::corrupt(format!("the manifest names memory that is not the shard's: {error}")),
        _ => error,
    }
}

/// Reads the log of writes. Returns it, the version that says how far each of its parts counts, and the segments of
/// parts that this version does not name any more.
fn open_log(remote: &Arc<Remote>, version: Version) -> Result<(LeftLog, Version, Vec<Arc<Segment>>)> {
    let mut segments = Vec::new();
    let mut parts = Vec::new();
    for LogPart { segment: id, last } in version.log_parts() {
        let info = version.segment(id).ok_or_else(|| Error::corrupt(format!("{id} of the log is not there")))?;
        let segment = remote.hold(id, info).map_err(misplaced)?;
        let segment = segment.ok_or_else(|| Error::corrupt(format!("{id} does not lie in this memory node")))?;
        let bytes = read_spot(&mut *remote.background()?, &segment.spot(0), info.length)?;
        segments.push(segment);
        parts.push(Part { segment: id, bytes, last });
    }
    let Replay { records, parts: counted, ended, last } = replay::replay(&parts, version.last_sequence())?;
    let mut edit = VersionEdit {
        log_parts: counted.iter().map(|&(segment, last)| LogPart { segment, last: Some(last) }).collect(),
        ended_log_parts: ended,
        ..VersionEdit::default()
    };
    version.remove_unreferenced(&mut edit).map_err(forebay_table::Error::from)?;
    let next = version.apply(&edit).map_err(forebay_table::Error::from)?;
    let find = |id: &SegmentId| segments.iter().find(|segment| segment.id() == *id).cloned();
    let held = |(id, last): &(SegmentId, SequenceNumber)| Some((find(id)?, *last));
    let log = LeftLog {
        parts: counted.iter().filter_map(held).collect(),
        records: records
            .into_iter()
            .filter_map(|(part, range)| Some(parts.get(part)?.bytes.get(range)?.to_vec()))
            .collect(),
        last,
    };
    if log.last > version.last_sequence() {
        tracing::info!(from = version.last_sequence().0, to = log.last.0, "writing what the log holds again");
    }
    Ok((log, next, edit.removed_segments.iter().filter_map(find).collect()))
}

/// Holds the segments that a version names, and reads the tables' cached indexes.
fn open_version(remote: &Arc<Remote>, version: Version, options: &Options) -> Result<LiveVersion> {
    let mut segments = HashMap::default();
    for (&id, entry) in version.segments() {
        let segment = remote.hold(id, &entry.info).map_err(misplaced)?;
        let segment = segment.ok_or_else(|| Error::corrupt(format!("{id} does not lie in this memory node")))?;
        segments.insert(id, segment);
    }
    let segments = Arc::new(segments);
    let tables = open_tables(remote, &version, &segments, readers(options))?;
    LiveVersion::restore(version, &tables, &segments)
}

/// How many threads read tails.
pub(crate) fn readers(options: &Options) -> usize {
    if options.background_threads == 0 { 0 } else { MAX_READERS }
}

type Segments = Arc<HashMap<SegmentId, Arc<Segment>>>;

/// Opens the tables of a version on several threads, or on this one if there are no background threads.
pub(crate) fn open_tables(
    remote: &Arc<Remote>,
    version: &Version,
    segments: &Segments,
    max_readers: usize,
) -> Result<Vec<Arc<Table>>> {
    let wanted: Vec<Arc<TableMetadata>> = version.levels().iter().flatten().cloned().collect();
    if max_readers == 0 {
        return wanted.iter().map(|table| open_table(remote, table, segments)).collect();
    }
    let readers = wanted.len().min(max_readers);
    let wanted = Arc::new(Mutex::new(wanted));
    let mut threads = Vec::new();
    for i in 0..readers {
        let (remote, segments, wanted) = (Arc::clone(remote), Arc::clone(segments), Arc::clone(&wanted));
        let read = move || {
            let mut tables = Vec::new();
            loop {
                let next = lock(&wanted).pop();
                let Some(table) = next else { return Ok(tables) };
                match open_table(&remote, &table, &segments) {
                    Ok(table) => tables.push(table),
                    Err(error) => {
                        lock(&wanted).clear();
                        return Err(error);
                    }
                }
            }
        };
        threads.push(spawn(format!("forebay-open-{i}"), read));
    }
    let mut tables = Vec::new();
    let mut result = Ok(());
    for thread in threads {
        let thread = thread.map_err(|error| Error::new(ErrorKind::Io, format!("starting a thread: {error}")));
        let opened = thread.and_then(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a thread that opens tables panicked")))
        });
        match opened {
            Ok(opened) => tables.extend(opened),
            Err(error) => result = Err(error),
        }
    }
    result.map(|()| tables)
}

fn open_table(remote: &Arc<Remote>, table: &TableMetadata, segments: &Segments) -> Result<Arc<Table>> {
    let opened = read_table(remote, table, segments);
    opened.map(Arc::new).map_err(|error| error.during(&format!("opening {}", table.id)))
}

fn read_table(remote: &Arc<Remote>, table: &TableMetadata, segments: &Segments) -> Result<Table> {
    let image = segments.get(&table.image.segment);
    let image = image.filter(|image| table.image.length <= image.info().length);
    let image = image.ok_or_else(|| Error::corrupt(format!("the image of {} is not there", table.id)))?;
    let offset = table.image.tail_offset;
    let length = table.image.length.saturating_sub(offset);
    let tail = read_spot(&mut *remote.background()?, &image.spot(offset), length)?;
    let cached = CachedTable::parse(&tail)?;
    if cached.properties() != &table.properties {
        return Err(Error::corrupt(format!("the image of {} is another table's", table.id)));
    }
    Table::new(table.id, cached, table.image, |id| segments.get(&id).cloned())
}

/// Frees adopted job outputs that no version names.
pub(crate) fn free_orphans(part: &NodePart, outputs: &BTreeSet<ExtentRange>, named: &BTreeSet<ExtentRange>) {
    let orphans: Vec<_> = outputs.difference(named).copied().collect();
    if !orphans.is_empty() {
        tracing::info!(ranges = orphans.len(), "freeing outputs of jobs that no version names");
    }
    orphans.into_iter().for_each(|range| part.free(range));
    part.send_frees(1);
}

#[cfg(test)]
mod tests;
