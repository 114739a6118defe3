//! Segments that this process holds: remote memory that is freed when nothing names it any more.
//!
//! Tables, memtables being flushed and jobs hold a [`Segment`] by `Arc`; versions hold tables,
//! readers hold versions. So a segment lives exactly as long as some version, snapshot or iterator
//! needs it (dLSM V-B), and no list of pins has to be kept.

use crate::endpoints::{Endpoints, Pool, Pooled};
use crate::index_cache::IndexCache;
use crate::node_part::{NodePart, PrivateStore};
use crate::owner::Owner;
use crate::{CompactionPlace, Error, Options, Result};
use forebay_base::{ErrorKind, SegmentId};
use forebay_fabric::{EndpointOptions, Link, NodeIdentity, RemoteAddress, Rights, Traffic};
use forebay_memory_client::{
    Allocation, AllocatorOptions, ExtentId, ExtentRange, MemoryClient, Purpose, ShardId, SubAllocator,
};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A memory node, as all shards of this database use it whose segments lie there.
#[derive(Debug)]
pub(crate) struct Node {
    /// Which of the database's nodes it is.
    number: usize,
    client: Arc<MemoryClient>,
    /// Divides what this session leases for shards of databases without a name.
    allocator: Arc<SubAllocator>,
    /// Compactions run at the memory node.
    runs_jobs: bool,
    foreground: Endpoints,
    scans: Arc<Pool>,
    background: Arc<Pool>,
    /// What holds point indexes within a budget, if there is one.
    index_cache: Option<Arc<IndexCache>>,
    /// Records that lie apart and are gathered, from so many on.
    gather_from: Option<usize>,
    /// Shards of this database that have no room left.
    lacking: AtomicUsize,
}

/// A shard's part of the memory node that its segments lie in.
#[derive(Debug)]
pub(crate) struct Remote {
    node: Arc<Node>,
    /// The node's, or that of a shard of a named store.
    allocator: Arc<SubAllocator>,
    /// Where outputs of near-data jobs lie, if there are any.
    node_part: Option<NodePart>,
    /// The shard of a named store that adopts what versions name.
    owner: Option<Arc<Owner>>,
    /// This shard has no room left.
    lacks: AtomicBool,
}

/// Why the session of `client` ended, if its node says now that it did.
pub(crate) fn ended(client: &MemoryClient) -> Option<Error> {
    // A renewal that fails is told by the session if it ended; any other failure may pass.
    let _ = client.renew();
    client.check().err().map(Error::from)
}

impl Node {
    /// The memory node behind `client`.
    pub(crate) fn new(number: usize, client: Arc<MemoryClient>, options: &Options) -> Arc<Self> {
        let endpoint =
            |traffic| EndpointOptions { traffic, timeout: options.fabric_timeout, clock: Arc::clone(&options.clock) };
        Arc::new(Self {
            number,
            index_cache: options.cached_index_bytes.map(IndexCache::new),
            gather_from: options.gathering.threshold(&client.link().capabilities()),
            runs_jobs: options.compaction_place == CompactionPlace::MemoryNode && client.runs_jobs(),
            lacking: AtomicUsize::new(0),
            allocator: Arc::new(SubAllocator::new(Arc::clone(&client), None, AllocatorOptions::default())),
            foreground: Endpoints::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            scans: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            background: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Background)),
            client,
        })
    }

    pub(crate) fn client(&self) -> &Arc<MemoryClient> {
        &self.client
    }

    /// Which of the database's nodes it is.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Whether compactions run there.
    pub(crate) const fn runs_jobs(&self) -> bool {
        self.runs_jobs
    }

    pub(crate) fn link(&self) -> &Arc<dyn Link> {
        self.client.link()
    }

    /// What holds point indexes within a budget; `None` without a budget.
    pub(crate) fn index_cache(&self) -> Option<&Arc<IndexCache>> {
        self.index_cache.as_ref()
    }

    /// Bytes of segments of databases without a name.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocator.statistics().ranges.allocated_bytes
    }
}

impl Remote {
    /// The memory of a shard of a database without a name, whose jobs run for `store`, if they do.
    ///
    /// # Errors
    /// When the memory node is gone.
    pub(crate) fn new(node: &Arc<Node>, store: Option<&Arc<PrivateStore>>, shard: ShardId) -> Result<Self> {
        let node_part = store.map(|store| NodePart::open(store, shard)).transpose()?;
        Ok(Self {
            node: Arc::clone(node),
            allocator: Arc::clone(&node.allocator),
            node_part,
            owner: None,
            lacks: AtomicBool::default(),
        })
    }

    /// The memory of a shard of a named store.
    pub(crate) fn of_owner(
        node: &Arc<Node>,
        owner: Arc<Owner>,
        allocator: SubAllocator,
        outputs: &BTreeSet<ExtentRange>,
    ) -> Self {
        let node_part = NodePart::of_owner(Arc::clone(&owner), outputs);
        let allocator = Arc::new(allocator);
        Self {
            node: Arc::clone(node),
            allocator,
            node_part: Some(node_part),
            owner: Some(owner),
            lacks: AtomicBool::default(),
        }
    }

    /// The memory node, as all its shards use it.
    pub(crate) fn memory_node(&self) -> &Arc<Node> {
        &self.node
    }

    /// What holds point indexes within a budget; `None` without a budget.
    pub(crate) fn index_cache(&self) -> Option<&Arc<IndexCache>> {
        self.node.index_cache.as_ref()
    }

    /// Notes whether this shard has no room left.
    pub(crate) fn set_lacking(&self, lacks: bool) {
        match (self.lacks.swap(lacks, Ordering::Relaxed), lacks) {
            (false, true) => drop(self.node.lacking.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.node.lacking.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Whether another shard of this database has no room left at the node.
    pub(crate) fn do_others_lack(&self) -> bool {
        self.node.lacking.load(Ordering::Relaxed) > usize::from(self.lacks.load(Ordering::Relaxed))
    }

    /// Where outputs of near-data jobs lie; `None` when compactions run at this node.
    pub(crate) fn node_part(&self) -> Option<&NodePart> {
        self.node_part.as_ref().filter(|_| self.node.runs_jobs)
    }

    /// Passes segments to the shard of a named store, so that they outlive this session. Outputs of
    /// jobs are passed on when the job ends.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`.
    pub(crate) fn adopt(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        let of_session = |segment: &Arc<Segment>| match segment.origin {
            Origin::Session(allocation) => Some(allocation),
            Origin::NodePart(_) => None,
        };
        let allocations: Vec<_> = segments.iter().filter_map(of_session).collect();
        Ok(self.allocator.adopt(&allocations)?)
    }

    /// Ends the epoch, and with it the jobs that run and the outputs that are not adopted.
    ///
    /// # Errors
    /// `Fenced` when somebody took over; `Unavailable`.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        if let Some(part) = &self.node_part {
            self.allocator.follow(&part.end_epoch()?);
        }
        Ok(())
    }

    /// What a failure means: a refused epoch or key may be a successor's doing, or nobody's; and bytes
    /// that are not what they should be, or an extent that the node does not know as this shard's, may be another's by
    /// now.
    pub(crate) fn judged(&self, error: Error) -> Error {
        let stands = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid);
        if !stands && !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::AccessDenied) {
            return error;
        }
        if let Some(ended) = ended(&self.node.client) {
            return ended;
        }
        let Some(owner) = &self.owner else { return error };
        let checked = match owner.check() {
            Err(refused) if refused.kind() == ErrorKind::Fenced => self.end_epoch(),
            checked => checked,
        };
        match checked {
            Err(fenced) if fenced.kind() == ErrorKind::Fenced => fenced,
            _ if stands => error,
            // It is still this process's: the same may succeed now.
            _ => Error::new(ErrorKind::Unavailable, error.to_string()),
        }
    }

    /// Whether another process took over, as the node says.
    ///
    /// # Errors
    /// `Fenced` when one did.
    pub(crate) fn check_owner(&self) -> Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        match owner.check().map_err(|error| self.judged(error)) {
            Err(error) if error.kind() == ErrorKind::Fenced => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether so many records that lie apart are to be gathered.
    pub(crate) fn gathers(&self, records: usize) -> bool {
        self.node.gather_from.is_some_and(|fewest| records >= fewest)
    }

    /// Has the memory node bring `ranges` in one piece; `None` when it does not, whatever the cause.
    pub(crate) fn gather(&self, ranges: &[ExtentRange]) -> Option<Vec<u8>> {
        let gathered = self.node_part()?.gather(ranges);
        gathered.inspect_err(|error| tracing::debug!(%error, "reading one by one what was to be gathered")).ok()
    }

    /// Where outputs of jobs lie, also while compactions run at this node.
    pub(crate) fn outputs(&self) -> Option<&NodePart> {
        self.node_part.as_ref()
    }

    /// Whether memory of the shard may be written: an earlier owner has let go of it.
    pub(crate) fn is_writable(&self, extent: u32) -> bool {
        let rights = self.node.client.rights(ExtentId(extent));
        rights.is_some_and(|rights| rights.contain(Rights::WRITE))
    }

    /// Gives up the shard of a named store: another process may open it.
    pub(crate) fn release(&self) {
        if let Some(owner) = &self.owner {
            owner.release();
        }
    }

    /// Length of an extent, bytes: no segment is longer.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.node.client.extent_bytes()
    }

    /// Whether frees of outputs wait to be sent, or empty extents to be given back.
    pub(crate) fn has_frees(&self) -> bool {
        self.node_part.as_ref().is_some_and(NodePart::has_frees) || self.allocator.has_spare()
    }

    /// Sends frees of outputs, if at least `fewest` were gathered, and gives back the empty extents that
    /// are too many.
    pub(crate) fn send_frees(&self, fewest: usize) {
        if let Some(part) = &self.node_part {
            part.send_frees(fewest);
        }
        if self.allocator.has_spare()
            && let Err(error) = self.allocator.give_back_spare()
        {
            tracing::debug!(%error, "giving empty extents back");
        }
    }

    /// The endpoints of callers.
    pub(crate) fn foreground(&self) -> &Endpoints {
        &self.node.foreground
    }

    /// An endpoint for a background job.
    pub(crate) fn background(&self) -> Result<Pooled> {
        self.node.background.take()
    }

    /// An endpoint for an iterator.
    pub(crate) fn scan(&self) -> Result<Pooled> {
        self.node.scans.take()
    }

    /// Whether what failed may succeed over another endpoint: the node is still there.
    pub(crate) fn may_retry(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
            && self.node.client.check().is_ok()
            && self.node.link().is_alive()
    }

    /// Bytes of segments, but for those that the node counts for all its shards.
    pub(crate) fn own_bytes(&self) -> u64 {
        let outputs = self.node_part.as_ref().map_or(0, NodePart::held_bytes);
        let own = self.owner.as_ref().map_or(0, |_| self.allocator.statistics().ranges.allocated_bytes);
        outputs + own
    }

    /// Returns memory that holds nothing to the memory node.
    pub(crate) fn give_back(&self) {
        self.send_frees(1);
        if let Err(error) = self.allocator.give_back(0) {
            tracing::debug!(%error, "giving memory back");
        }
    }

    /// Free bytes of what this session leased that lie in pieces of at least `least` bytes.
    pub(crate) fn free_bytes(&self, least: u64) -> u64 {
        self.allocator.free_in_pieces(least)
    }

    /// Bytes of the longest segment that could be allocated now, at most `wanted`.
    pub(crate) fn longest_piece(&self, wanted: u64) -> u64 {
        self.allocator.longest_piece(wanted).unwrap_or(wanted)
    }

    /// Largest record that fits, in bytes.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.node.client.extent_bytes() / 2
    }

    /// Allocates a segment of at least one byte.
    ///
    /// # Errors
    /// `Full` when the memory node has no memory left; `Invalid` when the segment is larger than
    /// what the node hands out in one piece.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        id: SegmentId,
        kind: SegmentKind,
        length: u64,
        purpose: Purpose,
    ) -> Result<Arc<Segment>> {
        let allocation = self.allocator.allocate_for(purpose, length)?;
        let base = self.allocator.resolve(allocation)?;
        let info = self.info_of(kind, length, allocation);
        let origin = Origin::Session(allocation);
        let is_abandoned = AtomicBool::new(false);
        Ok(Arc::new(Segment { id, info, base, origin, is_abandoned, remote: Arc::clone(self) }))
    }

    /// What the version says of a segment that lies there in the present life of this node.
    pub(crate) fn info_of(&self, kind: SegmentKind, length: u64, range: ExtentRange) -> SegmentInfo {
        let NodeIdentity { node, incarnation } = self.node.client.node();
        let placement = Placement::Memory { node, incarnation, extent: range.extent.0, offset: range.offset };
        SegmentInfo::new(kind, length, vec![placement])
    }

    /// The range that a segment takes, if that is in one piece in the present life of this node.
    pub(crate) fn place_of(&self, info: &SegmentInfo) -> Option<ExtentRange> {
        place_of(&self.node.client, info)
    }

    /// Holds a segment that an earlier owner of the shard made; it is not freed before
    /// [`Segment::take_charge`]. `None` when it does not lie in one piece
    /// in this life of this node.
    ///
    /// # Errors
    /// When there is no key to its memory.
    pub(crate) fn hold(self: &Arc<Self>, id: SegmentId, info: &SegmentInfo) -> Result<Option<Arc<Segment>>> {
        let Some(range) = self.place_of(info) else { return Ok(None) };
        let base = self.node.client.resolve(range.extent, range.offset)?;
        let origin = match self.allocator.contains(range.extent) {
            true => Origin::Session(range),
            false => Origin::NodePart(range),
        };
        let is_abandoned = AtomicBool::new(true);
        Ok(Some(Arc::new(Segment { id, info: info.clone(), base, origin, is_abandoned, remote: Arc::clone(self) })))
    }

    /// Holds adopted outputs of a job, each with its range. When that fails, they are freed.
    pub(crate) fn hold_outputs(
        self: &Arc<Self>,
        part: &NodePart,
        outputs: &[(SegmentId, SegmentInfo)],
        ranges: &[ExtentRange],
    ) -> Result<Vec<Arc<Segment>>> {
        let resolve = |range: &ExtentRange| self.node.client.resolve(range.extent, range.offset);
        let bases: Result<Vec<_>, _> = ranges.iter().map(resolve).collect();
        if bases.is_err() {
            ranges.iter().for_each(|&range| part.free(range));
        }
        let held = outputs.iter().zip(ranges).zip(bases?).map(|(((id, info), &range), base)| {
            let origin = Origin::NodePart(range);
            let is_abandoned = AtomicBool::new(false);
            Arc::new(Segment { id: *id, info: info.clone(), base, origin, is_abandoned, remote: Arc::clone(self) })
        });
        Ok(held.collect())
    }
}

/// Who divides the memory that a segment lies in.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// This session, which leased it.
    Session(Allocation),
    /// The memory node: it is an output of a job.
    NodePart(ExtentRange),
}

/// A segment of remote memory, freed when dropped. That makes no call (the node hears of it from
/// [`Remote::send_frees`]): the last to name a segment may hold locks, or be a reader.
#[derive(Debug)]
pub(crate) struct Segment {
    id: SegmentId,
    info: SegmentInfo,
    base: RemoteAddress,
    origin: Origin,
    is_abandoned: AtomicBool,
    remote: Arc<Remote>,
}

impl Segment {
    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    /// The memory that the segment lies in.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Bytes that the segment takes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        match self.origin {
            Origin::Session(allocation) => allocation.length,
            Origin::NodePart(range) => range.length,
        }
    }

    /// The extent that it lies in.
    #[inline]
    pub(crate) fn extent(&self) -> ExtentId {
        match self.origin {
            Origin::Session(range) | Origin::NodePart(range) => range.extent,
        }
    }

    /// Where `offset` bytes into the segment is. The address counts from the extent's beginning, as its key does.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> RemoteAddress {
        self.base.add(offset)
    }

    /// How much of a read of `length` bytes at `offset` lies within the segment.
    #[inline]
    pub(crate) fn clip(&self, offset: u64, length: u64) -> usize {
        length.min(self.info.length.saturating_sub(offset)) as usize
    }

    /// Whether the memory stays when nothing names it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Keeps the memory from being used again: a write may still reach it, or another owner needs it.
    /// What no shard adopted goes back to the node with the session.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// From now on the segment is freed when nothing names it.
    pub(crate) fn take_charge(&self) {
        self.is_abandoned.store(false, Ordering::Relaxed);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.free();
    }
}

impl Segment {
    /// Frees the memory, unless it was abandoned.
    pub(crate) fn free(&self) {
        if self.is_abandoned() {
            return;
        }
        match (self.origin, &self.remote.node_part) {
            (Origin::Session(allocation), _) => {
                // On a session that ended the memory is the node's again already.
                if let Err(error) = self.remote.allocator.free(allocation) {
                    tracing::debug!(%error, segment = self.id.0, "freeing a segment");
                }
            }
            (Origin::NodePart(range), Some(part)) => part.free(range),
            (Origin::NodePart(_), None) => {}
        }
    }
}

/// The range that a segment takes, if that is in one piece in the present life of the client's node.
pub(crate) fn place_of(client: &MemoryClient, info: &SegmentInfo) -> Option<ExtentRange> {
    let here = client.node();
    match *info.placements.as_slice() {
        [Placement::Memory { node, incarnation, extent, offset }]
            if (node, incarnation) == (here.node, here.incarnation) =>
        {
            range_of(client, extent, offset, info.length)
        }
        _ => None,
    }
}

/// The range of an allocation of `length` bytes; `None` for one that no extent has room for.
pub(crate) fn range_of(client: &MemoryClient, extent: u32, offset: u64, length: u64) -> Option<ExtentRange> {
    let length = length.max(1).checked_next_multiple_of(GRANULARITY_BYTES)?;
    let end = offset.checked_add(length)?;
    (end <= client.extent_bytes()).then_some(ExtentRange { extent: ExtentId(extent), offset, length })
}
