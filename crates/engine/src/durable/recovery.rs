//! Opening a shard of a named store: the new owner takes up what an earlier owner left.
//!
//! ```text
//!  look at all shards                         what a newer build wrote is refused (see `known`)
//!  acquire all shards: the next epoch each    the earlier owner, if it lives, is fenced
//!                                             then, for each shard:
//!  root ─► log ─► version                     checked: CRC32C, edits, the invariants of versions
//!  keys to the shard's memory                 what the version names is held, the rest is free
//!  tails of the tables, several at a time     the cached indexes
//!  parts of the log of writes                 what of them counts (see `replay`), and then of all shards (see `crossing`)
//!  a new manifest in the spare, a new root    from here on the shard is this process's
//!  outputs of jobs that no version names      freed
//! ```
//!
//! Nothing that the earlier owner may still write is trusted: its log is read once, and a new one is begun
//! (`docs/formats/manifest.md`). Of its memtables' contents, what reached the log is written again. Sequence numbers continue
//! after the largest one that the version covers.

use crate::durable::copies::{self, IfDamaged, NotHeld};
use crate::durable::crossing::{Reached, agree};
use crate::durable::manifest::{self, Left, Manifest};
use crate::durable::mark;
use crate::durable::replay::{self, Part, Replay};
use crate::durable::used::Used;
use crate::remote::members::{Members, Several, Standing};
use crate::remote::node_part::NodePart;
use crate::remote::owner::Owner;
use crate::remote::pipeline::{read_range, read_spot, read_while};
use crate::remote::segment::{Node, Remote, Segment, place_of};
use crate::remote::serving::Serving;
use crate::terms::{Error, Options, Result};
use crate::tree::table::Table;
use crate::tree::version::LiveVersion;
use bytes::Bytes;
use forebay_base::{ErrorKind, SegmentId, SequenceNumber};
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{run_all, spawn};
use forebay_fabric::{Endpoint, EndpointOptions, RemoteAddress};
use forebay_memory_client::{
    AllocatorOptions, ExtentId, ExtentRange, MemoryClient, ShardHandle, ShardKey, StoreHandle, SubAllocator,
};
use forebay_table::{
    CachedTable, LogPart, ManifestRoot, SegmentInfo, ShardIdentity, TableMetadata, Version, VersionEdit,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a shard may stay with an owner that has just died before it counts as in use.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of threads that read tails, or look at shards.
const MAX_READERS: usize = 8;

/// A recovered shard, open again.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) remote: Arc<Members>,
    pub(crate) version: LiveVersion,
    pub(crate) manifest: Manifest,
    pub(crate) log: LeftLog,
    left: Vec<LeftOver>,
}

impl Recovered {
    /// Notes that the shard belongs to this process, as far as anybody else can tell. What is not needed is freed from
    /// now on.
    pub(crate) fn take_charge(&mut self) {
        self.version.segments().for_each(|segment| segment.take_charge());
        for LeftOver { remote, segments, outputs, named_outputs } in self.left.drain(..) {
            segments.iter().for_each(|segment| segment.take_charge());
            if let Some(part) = remote.outputs() {
                free_orphans(part, &outputs, &named_outputs);
            }
        }
    }
}

/// What an earlier owner left at a member and the version does not name.
#[derive(Debug)]
struct LeftOver {
    remote: Arc<Remote>,
    segments: Vec<Arc<Segment>>,
    /// The outputs of jobs, and those that are named.
    outputs: BTreeSet<ExtentRange>,
    named_outputs: BTreeSet<ExtentRange>,
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

/// The records of a log that no table holds, in order, in several pieces. A batch may continue in the next piece.
pub(crate) type LeftRecords = Vec<Bytes>;

/// A shard that is to be recovered.
pub(crate) struct Wanted<'a> {
    /// Its members that can be reached.
    members: Vec<Reachable<'a>>,
    identity: ShardIdentity,
    /// Members that were lost after they may have been written to: they cannot be members again by this session.
    out: Vec<Arc<Remote>>,
}

/// A member of a shard that can be reached.
struct Reachable<'a> {
    number: usize,
    node: &'a Arc<Node>,
    owner: &'a Arc<Owner>,
}

impl<'a> Wanted<'a> {
    /// A shard with these members, each with its owner.
    pub(crate) fn new(members: Vec<(&'a Arc<Node>, &'a Arc<Owner>)>, identity: ShardIdentity) -> Self {
        let members = members.into_iter().enumerate();
        let members = members.map(|(number, (node, owner))| Reachable { number, node, owner }).collect();
        Self { members, identity, out: Vec::new() }
    }

    /// Whether a member at another node than this one can be reached.
    fn has_another_than(&self, node: &Arc<Node>) -> bool {
        self.members.iter().any(|member| !Arc::ptr_eq(member.node, node))
    }
}

/// Why shards were not recovered.
struct Failure {
    /// The member that failed, if one did.
    at: Option<Arc<Remote>>,
    error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { at: None, error }
    }
}

impl Failure {
    /// Makes an error the failure of this member.
    fn of(member: &Arc<Remote>) -> impl Fn(Error) -> Self + use<> {
        let member = Arc::clone(member);
        move |error| Self { at: Some(Arc::clone(&member)), error }
    }

    /// The member, if it is lost, as when its node hangs.
    fn lost(&self) -> Option<&Arc<Remote>> {
        self.at.as_ref().filter(|at| self.error.is_out_of_reach() || !at.memory_node().answers())
    }
}

/// Recovers all shards of a database. Those that have several members get what `several` says for the shard's number. A
/// batch that crosses shards counts in all of them or in none. A shard that was never used is empty. A member that has
/// lost something is left out.
///
/// A member that is lost meanwhile is also left out, of all shards that have another one, and then all begins anew.
/// What was done by then is what a process that ends there leaves: nothing but the same state at members that have
/// everything. So it is as if another process opened the database, without that node.
///
/// Nothing may be written to any shard before all are recovered. Nothing may be written to a shard before the register
/// names its members and [`Recovered::take_charge`] was then called.
///
/// # Errors
/// `Corrupt` when the stored data is damaged; `Full`; `Unavailable` and `TimedOut`, naming the node, when no member of a shard is left.
pub(crate) fn recover(
    mut shards: Vec<Wanted<'_>>,
    options: &Options,
    several: impl Fn(usize) -> Option<Several>,
) -> Result<Vec<Recovered>> {
    loop {
        let left = look(&mut shards, options)?;
        let found: Vec<Vec<_>> = left.iter().map(|left| left.remotes().cloned().collect()).collect();
        let ends = agree(&left.iter().map(LeftShard::reached).collect::<Vec<_>>());
        let taken = left.into_iter().zip(ends).enumerate().map(|(shard, (left, end))| {
            let taken = left.take_up(end, options, several(shard));
            taken.map_err(|failure| (shard, failure))
        });
        let (shard, failure) = match taken.collect() {
            Ok(recovered) => return Ok(recovered),
            Err(failed) => failed,
        };
        let Some(lost) = failure.lost() else { return Err(failure.error) };
        let node = lost.memory_node();
        if !shards.get(shard).is_some_and(|shard| shard.has_another_than(node)) {
            let at = format!("of shard {shard}, only {} has a copy that can be read", node.client().node());
            return Err(failure.error.during(&at));
        }
        let (error, node_name) = (&failure.error, node.client().node());
        tracing::warn!(node = %node_name, %error, "a memory node is left out: it was lost while its copies were read");
        for (shard, found) in shards.iter_mut().zip(found).filter(|(shard, _)| shard.has_another_than(node)) {
            shard.members.retain(|member| !Arc::ptr_eq(member.node, node));
            shard.out.extend(found.into_iter().filter(|remote| Arc::ptr_eq(remote.memory_node(), node)));
        }
    }
}

/// What earlier owners left of a shard, according to those of its members that can be reached. Nothing is changed yet.
struct LeftShard {
    /// The member whose log reaches furthest: each of them has everything that was acknowledged.
    source: Found,
    others: Vec<Found>,
    /// As in [`Wanted`].
    out: Vec<Arc<Remote>>,
}

/// Looks at what is left of shards, some of them side by side if there may be threads. Members that have lost something
/// are no longer members.
fn look(shards: &mut [Wanted<'_>], options: &Options) -> Result<Vec<LeftShard>> {
    let panicked = || Err(Error::panicked("looks at a shard"));
    let mut left = Vec::with_capacity(shards.len());
    for some in shards.chunks_mut(readers(options).max(1)) {
        for looked in run_all(some.iter_mut().collect(), |shard| look_at(shard, options)) {
            left.push(looked.unwrap_or_else(panicked)?);
        }
    }
    Ok(left)
}

fn look_at(shard: &mut Wanted<'_>, options: &Options) -> Result<LeftShard> {
    let serving = Arc::default();
    let mut found = Vec::with_capacity(shard.members.len());
    let mut failure: Option<Error> = None;
    let is_alone = shard.members.len() == 1;
    for member in std::mem::take(&mut shard.members) {
        let node = member.node.client().node();
        match Found::at(&member, &shard.identity, options, &serving) {
            Ok(at) => {
                found.push(at);
                shard.members.push(member);
            }
            Err(error) => {
                let error = error.during(&format!("reading what {node} holds"));
                if is_alone {
                    return Err(error);
                }
                tracing::warn!(%node, %error, "a copy is left out");
                member.owner.release();
                failure = Some(match failure {
                    Some(before) => error.and(&Error::to_string(&before)),
                    None => error,
                });
            }
        }
    }
    let Some(furthest) = found.iter().map(|found| found.replay.last).max() else {
        return Err(failure.unwrap_or_else(|| Error::invalid("a shard without members")));
    };
    let at = found.iter().position(|found| found.replay.last == furthest).unwrap_or(0);
    let source = found.remove(at);
    check_log(&source, shard.identity.shard, options)?;
    Ok(LeftShard { source, others: found, out: shard.out.clone() })
}

/// Makes sure that the log of the member that went furthest has what its parts say was shipped: no other member has more.
fn check_log(source: &Found, shard: u64, options: &Options) -> Result<()> {
    let Some((reached, marked)) = source.replay.lacks else { return Ok(()) };
    let node = source.remote.memory_node().client().node();
    let what = format!(
        "the log of shard {shard} at {node} is damaged behind number {}, and writes up to number {} were acknowledged",
        reached.0, marked.0
    );
    if options.accept_damaged_log {
        tracing::error!("{what}: they are lost");
        return Ok(());
    }
    Err(Error::corrupt(format!("{what}. To go on without what is missing, open it with accept_damaged_log")))
}

impl LeftShard {
    /// What the shard holds, in its tables and in its log.
    fn reached(&self) -> Reached {
        Reached { last: self.source.replay.last, marks: self.source.replay.marks.clone() }
    }

    fn remotes(&self) -> impl Iterator<Item = &Arc<Remote>> {
        std::iter::once(&self.source).chain(&self.others).map(|found| &found.remote)
    }

    /// Recovers the shard up to number `end`. The other members get what they lack. A member that cannot get it is left
    /// out.
    fn take_up(
        self,
        end: SequenceNumber,
        options: &Options,
        several: Option<Several>,
    ) -> std::result::Result<Recovered, Failure> {
        let Self { mut source, others, out } = self;
        if end < source.replay.last {
            source.replay = replay::replay(&source.parts, source.version.last_sequence(), end)?;
        }
        let (log, version) = source.counted()?;
        let of_source = Failure::of(&source.remote);
        let mut segments = HashMap::default();
        for (&id, entry) in version.segments() {
            segments.insert(id, held(&source.remote, id, &entry.info).map_err(&of_source)?);
        }
        let remote = Arc::clone(&source.remote);
        let remote = match several {
            None => Members::only(remote),
            Some(several) => Arc::new(Members::first(remote, several)),
        };
        out.into_iter().for_each(|out| remote.add(out, Standing::Out));
        let used = Used::by([&version]);
        let mut attached = Vec::with_capacity(others.len());
        for other in others {
            match other.attach(&segments, &log, &used) {
                Ok(()) => {
                    remote.add(Arc::clone(&other.remote), Standing::Active);
                    attached.push(other);
                }
                Err(NotHeld::Another(error)) => return Err(of_source(error)),
                Err(NotHeld::Itself(error)) => {
                    tracing::warn!(node = %other.remote.memory_node().client().node(), %error, "a copy is left out");
                    other.owner.release();
                    // What was written there may still arrive.
                    remote.add(other.remote, Standing::Out);
                }
            }
        }
        // What is damaged at one member may be whole at another.
        let tables = open_tables(&source.remote, &version, &Arc::new(segments.clone()), readers(options));
        let tables = tables.map_err(&of_source)?;
        let version = placed(&version, &segments, &remote)?;
        let mut logs = Vec::with_capacity(1 + attached.len());
        let mut left = Vec::with_capacity(1 + attached.len());
        for found in std::iter::once(source).chain(attached) {
            let of_this = Failure::of(&found.remote);
            logs.push(found.begin(&version).map_err(&of_this)?);
            left.push(found.left_over(&segments).map_err(&of_this)?);
        }
        let version = LiveVersion::restore(version, &tables, &segments)?;
        Ok(Recovered { remote, version, manifest: Manifest::new(logs), log, left })
    }
}

/// The version with the places that its segments have now.
fn placed(version: &Version, segments: &HashMap<SegmentId, Arc<Segment>>, members: &Members) -> Result<Version> {
    if !members.are_several() {
        return Ok(version.clone());
    }
    let mut edit = VersionEdit::default();
    for (&id, entry) in version.segments() {
        let Some(segment) = segments.get(&id) else { continue };
        let placements = segment.placements(|member| members.is_active(member));
        if placements != entry.info.placements {
            edit.moved_segments.push((id, SegmentInfo { placements, ..(*entry.info).clone() }));
        }
    }
    Ok(version.apply(&edit).map_err(forebay_table::Error::from)?)
}

/// Holds a segment that a version names.
fn held(remote: &Arc<Remote>, id: SegmentId, info: &SegmentInfo) -> Result<Arc<Segment>> {
    let segment = remote.hold(id, info).map_err(misplaced)?;
    segment.ok_or_else(|| Error::corrupt(format!("{id} does not lie in this memory node")))
}

/// What an earlier owner left of a shard at one member.
struct Found {
    owner: Arc<Owner>,
    remote: Arc<Remote>,
    root: Option<ManifestRoot>,
    version: Version,
    /// The outputs of jobs.
    outputs: BTreeSet<ExtentRange>,
    /// The parts of the log, with what they hold, and what counts of it.
    segments: Vec<Arc<Segment>>,
    parts: Vec<Part>,
    replay: Replay,
}

impl Found {
    fn at(
        &Reachable { number, node, owner }: &Reachable<'_>,
        identity: &ShardIdentity,
        options: &Options,
        serving: &Arc<Serving>,
    ) -> Result<Self> {
        let (shard, client) = (owner.shard(), Arc::clone(owner.store().client()));
        let id = shard.key().shard;
        let (version, root) = match owner.store().root(id)? {
            None => (Version::empty(identity.clone()), None),
            Some((_, root)) => {
                let root = ManifestRoot::decode(&root)?;
                let version = read_version(&client, shard.key(), &root, options)?;
                if version.identity() != identity {
                    return Err(Error::corrupt("the manifest is of another shard, or of another order of keys"));
                }
                (version, Some(root))
            }
        };
        let outputs: BTreeSet<ExtentRange> = owner.store().output_ranges(id)?.into_iter().collect();
        let mut live = Vec::new();
        for (segment, entry) in version.segments() {
            let range = place_of(&client, &entry.info);
            let range = range.ok_or_else(|| Error::corrupt(format!("{segment} does not lie in this memory node")))?;
            if !outputs.contains(&range) {
                live.push(range);
            }
        }
        live.extend(root.iter().filter_map(|root| Left::ranges(root, &client)).flatten());
        let allocator = SubAllocator::restore(owner.store(), shard, &live, AllocatorOptions::default());
        let allocator = allocator.map_err(|error| misplaced(error.into()))?;
        let remote = Arc::new(Remote::of_owner(node, Arc::clone(owner), allocator, &outputs, None, (number, serving)));
        let mut segments = Vec::new();
        let mut parts = Vec::new();
        for part in version.log_parts() {
            let id = part.segment;
            let info = version.segment(id).ok_or_else(|| Error::corrupt(format!("{id} of the log is not there")))?;
            let segment = held(&remote, id, info)?;
            let (base, flushed) = (segment.at(0)?, version.last_sequence());
            parts.push(read_part(&mut *remote.background()?, base, part, info.length, flushed)?);
            segments.push(segment);
        }
        let replay = replay::replay(&parts, version.last_sequence(), SequenceNumber::MAX)?;
        Ok(Self { owner: Arc::clone(owner), remote, root, version, outputs, segments, parts, replay })
    }

    /// What counts of the log of writes, and the version that says how far each of its parts counts.
    /// Takes the parts' bytes.
    fn counted(&mut self) -> Result<(LeftLog, Version)> {
        let mut parts = std::mem::take(&mut self.parts);
        let Replay { records, parts: counted, ended, last, .. } = &self.replay;
        let mut edit = VersionEdit {
            log_parts: counted.iter().map(|&(segment, last)| LogPart { segment, last: Some(last) }).collect(),
            ended_log_parts: ended.clone(),
            ..VersionEdit::default()
        };
        self.version.remove_unreferenced(&mut edit).map_err(forebay_table::Error::from)?;
        let next = self.version.apply(&edit).map_err(forebay_table::Error::from)?;
        let find = |id: &SegmentId| self.segments.iter().find(|segment| segment.id() == *id).cloned();
        let held = |(id, last): &(SegmentId, SequenceNumber)| Some((find(id)?, *last));
        let log = LeftLog {
            parts: counted.iter().filter_map(held).collect(),
            records: records
                .iter()
                .filter_map(|(part, range)| {
                    let read = Bytes::from(std::mem::take(&mut parts.get_mut(*part)?.bytes));
                    (range.end <= read.len()).then(|| read.slice(range.clone()))
                })
                .collect(),
            last: *last,
        };
        if log.last > self.version.last_sequence() {
            tracing::info!(from = self.version.last_sequence().0, to = log.last.0, "writing what the log holds again");
        }
        Ok((log, next))
    }

    /// Makes this member hold everything that another one does. What both versions name is the same at both, except the
    /// log: there the other member may have come further.
    fn attach(&self, segments: &HashMap<SegmentId, Arc<Segment>>, log: &LeftLog, used: &Used) -> Result<(), NotHeld> {
        let mut copied = Vec::new();
        for (&id, segment) in segments {
            let is_log = log.parts.iter().any(|(part, _)| part.id() == id);
            let copy = match self.version.segment(id) {
                Some(info) if !is_log => held(&self.remote, id, info).map_err(NotHeld::Itself)?,
                // What exists already is written once more: a reader after a crash finds it all the same.
                Some(info) if self.is_writable(info) => {
                    let copy = held(&self.remote, id, info).map_err(NotHeld::Itself)?;
                    copies::copy_into(segment, &copy, Some(&copy), used, IfDamaged::Copy)?;
                    copy
                }
                _ => {
                    let copy = copies::copy(segment, &self.remote, used, IfDamaged::Copy)?;
                    copy.abandon();
                    copied.push(Arc::clone(&copy));
                    copy
                }
            };
            segment.add_copy(copy);
        }
        self.remote.adopt(&copied).map_err(NotHeld::Itself)
    }

    /// Begins the manifest at the member.
    fn begin(&self, version: &Version) -> Result<manifest::Log> {
        let left = self.root.map(|root| Left::hold(root, &self.remote).map_err(misplaced)).transpose()?;
        manifest::Log::begin(&self.owner, &self.remote, version, left.as_ref())
    }

    fn is_writable(&self, info: &SegmentInfo) -> bool {
        self.remote.place_of(info).is_some_and(|range| self.remote.is_writable(range.extent.0))
    }

    /// What is stored here and the version does not name.
    fn left_over(self, named: &HashMap<SegmentId, Arc<Segment>>) -> Result<LeftOver> {
        let member = self.remote.member();
        let mut named_outputs = BTreeSet::new();
        let mut segments = Vec::new();
        for (&id, entry) in self.version.segments() {
            let Some(range) = self.remote.place_of(&entry.info) else { continue };
            let is_output = self.outputs.contains(&range);
            match named.get(&id).and_then(|segment| segment.at_member(member)) {
                Some(copy) if self.remote.place_of(copy.info()) == Some(range) => {
                    named_outputs.extend(is_output.then_some(range));
                }
                _ if is_output => {}
                _ => segments.push(held(&self.remote, id, &entry.info)?),
            }
        }
        Ok(LeftOver { remote: self.remote, segments, outputs: self.outputs, named_outputs })
    }
}

/// Acquires the shard by calling `acquire`. If its owner's process has just ended, waits a moment until the node
/// notices.
pub(crate) fn acquire_shard(
    store: &StoreHandle,
    options: &Options,
    acquire: impl Fn() -> std::result::Result<ShardHandle, forebay_memory_client::Error>,
) -> Result<ShardHandle> {
    let start = options.clock.now();
    loop {
        match acquire() {
            Err(error) if error.kind() == ErrorKind::Busy => {
                if u128::from(options.clock.now().saturating_sub(start)) >= PATIENCE.as_nanos() {
                    let message = format!(
                        "the database {:?} is open in another process: end that one first, or open it with takeover",
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

/// Reads the log that a root names. The reader need not own the shard.
pub(crate) fn read_version(
    client: &Arc<MemoryClient>,
    shard: ShardKey,
    root: &ManifestRoot,
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
    client.map_to_read(shard, &[extent]).map_err(|error| misplaced(error.into()))?;
    let bytes = read_range(&mut reader(client, options)?, client.resolve(extent, root.offset)?, root.length)?;
    Ok(Version::replay(root.edits(&bytes)?).map_err(forebay_table::Error::from)?)
}

/// Reads a part of a log, of `length` bytes from `base`, where tables hold all records up to `flushed`.
pub(crate) fn read_part(
    endpoint: &mut Endpoint,
    base: RemoteAddress,
    LogPart { segment, last }: LogPart,
    length: u64,
    flushed: SequenceNumber,
) -> Result<Part> {
    // Before the records: a copy that an earlier owner had begun may end meanwhile.
    let mark = read_range(endpoint, base.add(mark::place(length)), mark::BYTES.min(length))?;
    let mark = mark.first_chunk().map(|mark| u64::from_le_bytes(*mark));
    let mut part = Part::new(segment, last, mark.and_then(|mark| mark::decode(mark, segment, flushed)));
    read_while(endpoint, base, length, |bytes| part.add(bytes))?;
    Ok(part)
}

/// An endpoint that reads what is left at a node.
pub(crate) fn reader(client: &MemoryClient, options: &Options) -> Result<Endpoint> {
    let endpoint = EndpointOptions { clock: Arc::clone(&options.clock), ..EndpointOptions::background() };
    Ok(client.link().endpoint(EndpointOptions { timeout: options.fabric_timeout, ..endpoint })?)
}

/// The error for memory that a manifest names wrongly: the manifest is corrupt.
pub(crate) fn misplaced(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Invalid => Error::corrupt(format!("the manifest names memory that is not the shard's: {error}")),
        _ => error,
    }
}

/// How many threads read tails, or look at shards; none when there are no background threads.
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
        let thread = thread.map_err(|error| Error::no_thread(&error));
        let opened = thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(Error::panicked("opens tables"))));
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
    let read = |copy: &Segment| {
        let remote = if copy.is_stored() { &**remote } else { copy.remote() };
        let tail = read_spot(&mut *remote.background()?, &copy.own_spot(offset), length)?;
        let cached = CachedTable::parse(&tail)?;
        if !cached.properties().agrees_with(&table.properties) {
            return Err(Error::corrupt(format!("the image of {} is another table's", table.id)));
        }
        Ok(cached)
    };
    let mut cached = read(image);
    for other in image.copies().skip(1) {
        match &cached {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%error, table = %table.id, "a copy is damaged: another one is read");
                remote.serving().suspect();
                // If all are damaged, the first says what is wrong.
                cached = read(other).or(cached);
            }
            _ => break,
        }
    }
    Table::new(table.id, cached?, table.image, |id| segments.get(&id).cloned())
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
