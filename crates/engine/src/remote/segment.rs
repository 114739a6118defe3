//! Segments that this process holds: remote memory that is freed when nothing names it any more.
//!
//! Tables, memtables being flushed and jobs hold a [`Segment`] by `Arc`; versions hold tables, and readers hold
//! versions. So a segment lives exactly as long as a version, snapshot or iterator needs it (dLSM V-B).

use crate::remote::endpoints::{Endpoints, Pool, Pooled};
use crate::remote::index_cache::IndexCache;
use crate::remote::node_part::NodePart;
use crate::remote::objects::{Objects, object_of};
use crate::remote::offloading::Offloading;
use crate::remote::owner::Owner;
use crate::remote::private_store::PrivateStore;
use crate::remote::searches::Searches;
use crate::remote::serving::Serving;
use crate::remote::spot::Spot;
pub(crate) use crate::remote::spot::{place_of, range_of};
use crate::remote::stored::StoredWriter;
use crate::terms::{CompactionPlace, Error, Options, Result};
use forebay_base::{ErrorKind, SegmentId};
use forebay_fabric::{EndpointOptions, Link, NodeIdentity, RemoteAddress, Rights, Traffic};
use forebay_memory_client::{
    Allocation, AllocatorOptions, Credit, ExtentId, ExtentRange, MemoryClient, Purpose, ShardId, SubAllocator,
};
use forebay_storage::BlockObject;
use forebay_table::job::SearchPlace;
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A memory node, shared by all shards of this database that have segments there.
#[derive(Debug)]
pub(crate) struct Node {
    /// The node's place among the database's nodes.
    number: usize,
    client: Arc<MemoryClient>,
    /// Divides the memory that this session leases, for shards of databases without a name.
    allocator: Arc<SubAllocator>,
    /// Whether compactions run at the memory node.
    runs_jobs: bool,
    /// Compactions of this process that run or wait there.
    compactions: AtomicU32,
    /// This database's dealings with the scheduler, if a scheduler places compactions.
    offloading: Option<Arc<Offloading>>,
    foreground: Endpoints,
    scans: Arc<Pool>,
    background: Arc<Pool>,
    /// The budget for point indexes, if there is one.
    index_cache: Option<Arc<IndexCache>>,
    /// Minimum number of records that are apart and are gathered.
    gather_from: Option<usize>,
    /// What is known of the lookups that the memory node does.
    searches: Searches,
}

/// A shard's part of a memory node that holds its segments, or copies of them.
#[derive(Debug)]
pub(crate) struct Remote {
    node: Arc<Node>,
    /// Which of the shard's members this is, in the order in which they joined.
    member: usize,
    /// Which member serves.
    serving: Arc<Serving>,
    /// The node's allocator, or that of a shard of a named store.
    allocator: Arc<SubAllocator>,
    /// The outputs of near-data jobs, if there are any.
    node_part: Option<NodePart>,
    /// The shard of a named store, which adopts the segments that versions name.
    owner: Option<Arc<Owner>>,
    /// The objects of a shard of a database on storage.
    objects: Option<Arc<Objects>>,
}

/// A compaction that is counted as running.
struct Running<'a>(&'a AtomicU32);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error with which the session of `client` ended, if its node now says that it did.
pub(crate) fn ended(client: &MemoryClient) -> Option<Error> {
    // If the session ended, a failed renewal records that in the session. Other failures may be transient.
    let _ = client.renew();
    client.check().err().map(Error::from)
}

impl Node {
    /// The memory node behind `client`.
    pub(crate) fn new(
        number: usize,
        client: Arc<MemoryClient>,
        options: &Options,
        offloading: Option<Arc<Offloading>>,
    ) -> Arc<Self> {
        let endpoint =
            |traffic| EndpointOptions { traffic, timeout: options.fabric_timeout, clock: Arc::clone(&options.clock) };
        let node = Arc::new(Self {
            number,
            index_cache: options.budget_for_indexes().map(IndexCache::new),
            gather_from: options.gathering.threshold(&client.link().capabilities()),
            searches: Searches::new(client.runs_jobs()),
            compactions: AtomicU32::new(0),
            runs_jobs: options.compaction_place != CompactionPlace::ComputeNode && client.runs_jobs(),
            offloading,
            allocator: Arc::new(SubAllocator::new(Arc::clone(&client), None, AllocatorOptions::default())),
            foreground: Endpoints::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            scans: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            background: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Background)),
            client,
        });
        // This way others leave something to this database before it asks. It tells the share again whenever it asks.
        if let Err(error) = node.tell_share(options) {
            tracing::debug!(%error, "telling the memory node the database's share");
        }
        node
    }

    /// Tells the node the database's share of its memory, and returns what it may take.
    ///
    /// # Errors
    /// When the memory node is gone.
    pub(crate) fn tell_share(&self, options: &Options) -> Result<Credit> {
        Ok(self.client.credit(options.name.as_deref().unwrap_or_default(), options.pool_share)?)
    }

    pub(crate) fn client(&self) -> &Arc<MemoryClient> {
        &self.client
    }

    /// The node's place among the database's nodes.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// This database's dealings with the scheduler, if a scheduler places compactions.
    pub(crate) const fn offloading(&self) -> Option<&Arc<Offloading>> {
        self.offloading.as_ref()
    }

    /// Whether jobs for this database leave outputs in the node's own part: its own, or those of executors.
    pub(crate) const fn has_part(&self) -> bool {
        self.runs_jobs || self.offloading.is_some()
    }

    /// Whether compactions run there.
    pub(crate) const fn runs_jobs(&self) -> bool {
        self.runs_jobs
    }

    /// Counts a compaction that runs there until the result is dropped.
    pub(crate) fn begin_compaction(&self) -> impl Drop {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Running(&self.compactions)
    }

    /// Jobs and calls that run or wait there, as far as is known.
    pub(crate) fn busy(&self) -> u32 {
        self.compactions.load(Ordering::Relaxed).saturating_add(self.searches.waiting())
    }

    pub(crate) fn link(&self) -> &Arc<dyn Link> {
        self.client.link()
    }

    /// Returns why the node is of no more use to this process: the session has ended, as when the node hung past its
    /// lease, or the link has.
    pub(crate) fn lost(&self) -> Option<Error> {
        let lost = |cause: String| Error::new(ErrorKind::Unavailable, cause);
        match self.client.check() {
            Err(ended) => Some(lost(ended.to_string())),
            Ok(()) if !self.link().is_alive() => Some(lost("the memory node is gone".to_owned())),
            Ok(()) => None,
        }
    }

    /// Whether the node answers a call of this session now, within a call's time limit. A live link says less: the link
    /// to a node that hangs is also up.
    pub(crate) fn answers(&self) -> bool {
        self.client.renew().is_ok()
    }

    /// The same within a part of that time, for a caller that has already waited for the node.
    pub(crate) fn answers_soon(&self) -> bool {
        self.client.answers_soon()
    }

    /// The budget for point indexes; `None` without one.
    pub(crate) fn index_cache(&self) -> Option<&Arc<IndexCache>> {
        self.index_cache.as_ref()
    }

    /// Bytes of segments of databases without a name.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocator.statistics().ranges.allocated_bytes
    }
}

impl Remote {
    /// The memory of a shard of a database without a name. Its jobs, if any, run for `store`.
    ///
    /// # Errors
    /// When the memory node is gone.
    pub(crate) fn new(node: &Arc<Node>, store: Option<&Arc<PrivateStore>>, shard: ShardId) -> Result<Self> {
        let node_part = store.map(|store| NodePart::open(store, shard)).transpose()?;
        Ok(Self {
            node: Arc::clone(node),
            member: 0,
            serving: Arc::default(),
            allocator: Arc::clone(&node.allocator),
            node_part,
            owner: None,
            objects: None,
        })
    }

    /// The memory of a shard of a named store, as this member of the shard.
    pub(crate) fn of_owner(
        node: &Arc<Node>,
        owner: Arc<Owner>,
        allocator: SubAllocator,
        outputs: &BTreeSet<ExtentRange>,
        objects: Option<Arc<Objects>>,
        (member, serving): (usize, &Arc<Serving>),
    ) -> Self {
        let node_part = NodePart::of_owner(Arc::clone(&owner), outputs);
        let allocator = Arc::new(allocator);
        Self {
            node: Arc::clone(node),
            member,
            serving: Arc::clone(serving),
            allocator,
            node_part: Some(node_part),
            owner: Some(owner),
            objects,
        }
    }

    /// Which of the shard's members this is.
    pub(crate) const fn member(&self) -> usize {
        self.member
    }

    /// Which member serves.
    pub(crate) const fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Whether this session reaches it.
    pub(crate) fn is_of(&self, client: &Arc<MemoryClient>) -> bool {
        Arc::ptr_eq(self.node.client(), client)
    }

    /// The memory node that this shard shares with others.
    pub(crate) fn memory_node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The budget for point indexes; `None` without one.
    pub(crate) fn index_cache(&self) -> Option<&Arc<IndexCache>> {
        self.node.index_cache.as_ref()
    }

    /// The shard's objects, if the database is on storage.
    pub(crate) fn objects(&self) -> Option<&Arc<Objects>> {
        self.objects.as_ref()
    }

    /// The owner of the shard of a named store.
    pub(crate) fn owner(&self) -> Option<&Arc<Owner>> {
        self.owner.as_ref()
    }

    /// Whether the database has a name, so that another process can take it over.
    pub(crate) fn is_named(&self) -> bool {
        self.owner.is_some()
    }

    /// The outputs of jobs elsewhere; `None` when compactions run at this node only.
    pub(crate) fn node_part(&self) -> Option<&NodePart> {
        self.node_part.as_ref().filter(|_| self.node.has_part())
    }

    /// Passes segments to the shard of a named store, so that they outlive this session. Job outputs are passed on when
    /// the job ends.
    ///
    /// A call that got no reply may arrive when this session uses the memory for another shard, or for none. So this
    /// ends the epoch, after which the node refuses the call, and makes another call: then both sides know whose the
    /// memory is. If that also fails, the memory is not used again.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`.
    pub(crate) fn adopt(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        let of_session = |segment: &&Arc<Segment>| match segment.at_member(self.member)?.place {
            Place::Memory { origin: Origin::Session(allocation), .. } => Some(allocation),
            _ => None,
        };
        let allocations: Vec<_> = segments.iter().filter_map(|segment| of_session(&segment)).collect();
        match self.allocator.adopt(&allocations) {
            Err(error) if !error.is_refusal() => {}
            known => return Ok(known?),
        }
        let adopted = self.end_epoch().and_then(|()| Ok(self.allocator.adopt(&allocations)?));
        adopted.inspect_err(|error| {
            tracing::debug!(%error, "memory that the shard may get later is not used again");
            let own = segments.iter().filter(|segment| of_session(segment).is_some());
            own.filter_map(|segment| segment.at_member(self.member)).for_each(Segment::abandon_here);
        })
    }

    /// Ends the epoch, and with it running jobs and outputs that are not adopted.
    ///
    /// # Errors
    /// `Fenced` when somebody took over; `Unavailable`.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        if let Some(part) = &self.node_part {
            self.allocator.follow(&part.end_epoch()?);
        }
        Ok(())
    }

    /// Returns what a failure means. A refused epoch or key may or may not be a successor's doing. Unexpected bytes, or
    /// an extent that the node does not know as this shard's, may belong to another owner by now.
    pub(crate) fn judged(&self, error: Error) -> Error {
        if error.is_of_storage() {
            // Storage has the last word.
            return match &self.objects {
                Some(objects) if error.kind() == ErrorKind::NotFound => objects.missing(&error),
                _ => error,
            };
        }
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
            // The shard still belongs to this process: the same call may succeed now.
            _ => Error::new(ErrorKind::Unavailable, error.to_string()),
        }
    }

    /// Asks the node whether another process took over.
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

    /// Whether this many records that are apart should be gathered.
    pub(crate) fn gathers(&self, records: usize) -> bool {
        self.node.gather_from.is_some_and(|fewest| records >= fewest)
    }

    /// Asks the memory node to bring `ranges` in one piece; `None` when it does not, whatever the cause.
    pub(crate) fn gather(&self, ranges: &[ExtentRange]) -> Option<Vec<u8>> {
        let gathered = self.node_part()?.gather(ranges);
        gathered.inspect_err(|error| tracing::debug!(%error, "reading one by one what was to be gathered")).ok()
    }

    /// Whether the memory node may be asked to look keys up for this shard.
    pub(crate) fn can_search(&self) -> bool {
        self.node_part.is_some() && self.node.searches.are_served()
    }

    /// How busy the memory node said that it is.
    pub(crate) fn searches(&self) -> &Searches {
        &self.node.searches
    }

    /// Asks the memory node to search tables of this session, by a job of this kind; `None` when it does not, whatever the
    /// cause.
    pub(crate) fn search(&self, kind: u16, arguments: Vec<u8>) -> Option<Vec<u8>> {
        let found = self.node_part.as_ref()?.search(kind, arguments);
        found.inspect_err(|error| self.node.searches.failed(error)).ok()
    }

    /// The outputs of jobs, even while compactions run at this node.
    pub(crate) fn outputs(&self) -> Option<&NodePart> {
        self.node_part.as_ref()
    }

    /// Whether memory of the shard may be written because an earlier owner has released it.
    pub(crate) fn is_writable(&self, extent: u32) -> bool {
        let rights = self.node.client.rights(ExtentId(extent));
        rights.is_some_and(|rights| rights.contain(Rights::WRITE))
    }

    /// Releases the shard of a named store, so that another process can open it.
    pub(crate) fn release(&self) {
        if let Some(owner) = &self.owner {
            owner.release();
        }
    }

    /// Length of an extent in bytes; no segment is longer.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.node.client.extent_bytes()
    }

    /// Whether frees of outputs wait to be sent, or empty extents wait to be given back.
    pub(crate) fn has_frees(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.has_garbage())
            || self.node_part.as_ref().is_some_and(NodePart::has_frees)
            || self.allocator.has_spare()
    }

    /// Sends the gathered frees of outputs if there are at least `fewest`, gives back surplus empty extents, and deletes
    /// objects that nothing needs.
    pub(crate) fn send_frees(&self, fewest: usize) {
        if let Some(objects) = &self.objects {
            objects.delete_garbage();
        }
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

    /// Whether the failed operation may succeed over another endpoint: the node is still there.
    pub(crate) fn may_retry(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
            && self.node.client.check().is_ok()
            && self.node.link().is_alive()
    }

    /// Bytes of segments, except those that the node counts for all its shards.
    pub(crate) fn own_bytes(&self) -> u64 {
        let outputs = self.node_part.as_ref().map_or(0, NodePart::held_bytes);
        let own = self.owner.as_ref().map_or(0, |_| self.allocator.statistics().ranges.allocated_bytes);
        outputs + own
    }

    /// Gives unused memory back to the memory node, and half of what only makes reads faster.
    pub(crate) fn give_back(&self) {
        if let Some(objects) = &self.objects {
            objects.cache().shrink_below();
        }
        self.send_frees(1);
        if let Err(error) = self.allocator.give_back(0) {
            tracing::debug!(%error, "giving memory back");
        }
    }

    /// Free bytes leased by this session in pieces of at least `least` bytes.
    pub(crate) fn free_bytes(&self, least: u64) -> u64 {
        self.allocator.free_in_pieces(least)
    }

    /// Length in bytes of the longest segment that could be allocated now, at most `wanted`.
    pub(crate) fn longest_piece(&self, wanted: u64) -> u64 {
        self.allocator.longest_piece(wanted).unwrap_or(wanted)
    }

    /// Bytes of the largest record that fits.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.node.client.extent_bytes() / 2
    }

    /// Allocates a segment of at least one byte.
    ///
    /// # Errors
    /// `Full` when the memory node has no memory left; `Invalid` when the segment is larger than the node's largest
    /// allocation.
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
        Ok(Arc::new(Segment::new(id, info, Place::Memory { base, origin: Origin::Session(allocation) }, self)))
    }

    /// Makes the memory node zero a segment that this session leased for the shard of a named store.
    ///
    /// A call that got no reply may arrive when the memory holds something else. So the epoch is ended, after which the node
    /// refuses the call. If that fails, the memory is not used again.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`.
    pub(crate) fn zero(&self, segment: &Segment) -> Result<()> {
        match (&self.owner, &segment.place) {
            (Some(owner), &Place::Memory { origin: Origin::Session(allocation), .. }) => {
                let zeroed = owner.shard().zero_range(allocation);
                if zeroed.as_ref().is_err_and(|error| !error.is_refusal())
                    && let Err(error) = self.end_epoch()
                {
                    tracing::debug!(%error, segment = segment.id.0, "memory that may be zeroed later is not used again");
                    segment.abandon();
                }
                Ok(zeroed?)
            }
            _ => Err(Error::invalid("only memory that a named database leased is zeroed")),
        }
    }

    /// Makes the memory node write bytes into a damaged copy there. This also works where a job put the copy, and this
    /// process has no key to write.
    ///
    /// A call that got no reply may arrive when the memory holds something else. So the epoch is ended, after which the node
    /// refuses the call. If that fails, the memory is not used again.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`; `Unsupported` at an older node.
    pub(crate) fn mend(&self, copy: &Segment, offset: u64, bytes: &[u8]) -> Result<()> {
        let Place::Memory { origin: Origin::Session(range) | Origin::NodePart(range), .. } = copy.place else {
            return Err(Error::invalid("an object in storage is written once"));
        };
        let owner = self.owner.as_ref().ok_or_else(|| Error::invalid("a database without a name has one copy"))?;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > copy.info.length) {
            return Err(Error::invalid(format!("{} ends before what is to be written to it", copy.id)));
        }
        let written = owner.shard().write_range(range.extent, range.offset.saturating_add(offset), bytes);
        if written.as_ref().is_err_and(|error| !error.is_refusal())
            && let Err(error) = self.end_epoch()
        {
            tracing::debug!(%error, segment = copy.id.0, "memory that may be written later is not used again");
            copy.abandon_here();
        }
        Ok(written?)
    }

    /// The version's description of a segment in this range, in the current life of the node.
    pub(crate) fn info_of(&self, kind: SegmentKind, length: u64, range: ExtentRange) -> SegmentInfo {
        let NodeIdentity { node, incarnation } = self.node.client.node();
        let placement = Placement::Memory { node, incarnation, extent: range.extent.0, offset: range.offset };
        SegmentInfo::new(kind, length, vec![placement])
    }

    /// The range that a segment occupies, if it is in one piece in the current life of the node.
    pub(crate) fn place_of(&self, info: &SegmentInfo) -> Option<ExtentRange> {
        place_of(&self.node.client, info)
    }

    /// Holds a segment of an earlier owner of the shard. It is not freed before [`Segment::take_charge`]. `None` when
    /// it is not in one piece in the current life of the node.
    ///
    /// # Errors
    /// When no key to its memory can be had.
    pub(crate) fn hold(self: &Arc<Self>, id: SegmentId, info: &SegmentInfo) -> Result<Option<Arc<Segment>>> {
        let Some(range) = self.place_of(info) else { return Ok(None) };
        let base = self.node.client.resolve(range.extent, range.offset)?;
        let origin = match self.allocator.contains(range.extent) {
            true => Origin::Session(range),
            false => Origin::NodePart(range),
        };
        // Each copy knows its own place only.
        let mut own = self.info_of(info.kind, info.length, range);
        own.record_format = info.record_format;
        own.placements.extend(info.placements.iter().filter(|of| matches!(of, Placement::Storage { .. })).cloned());
        let segment = Segment::new(id, own, Place::Memory { base, origin }, self);
        segment.abandon();
        if let Some(object) = object_of(&info.placements) {
            segment.kept_as(object);
        }
        Ok(Some(Arc::new(segment)))
    }

    /// Holds a segment in storage. Its object is not discarded before [`Segment::take_charge`].
    ///
    /// # Errors
    /// `Corrupt` when its object is missing or damaged; those of the storage.
    pub(crate) fn hold_stored(self: &Arc<Self>, id: SegmentId, info: &SegmentInfo) -> Result<Arc<Segment>> {
        let lost = || Error::corrupt(format!("{id} is neither in memory nor in storage"));
        let objects = self.objects().ok_or_else(lost)?;
        let name = object_of(&info.placements).ok_or_else(lost)?;
        let object = objects.open(name, info.length).map_err(|error| error.during(&format!("opening {id}")))?;
        let segment = Segment::new(id, info.clone(), Place::Storage(Arc::new(object)), self);
        segment.abandon();
        segment.kept_as(name);
        Ok(Arc::new(segment))
    }

    /// Begins a segment in storage.
    ///
    /// # Errors
    /// `Invalid` for a database without storage; those of the storage.
    pub(crate) fn create_stored(&self, id: SegmentId, kind: SegmentKind, length: u64) -> Result<StoredWriter> {
        let objects = self.objects().ok_or_else(|| Error::invalid("the database has no storage"))?;
        objects.create(id, kind, length)
    }

    /// Finishes the segment of a writer. It is in storage when this has returned.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn finish_stored(self: &Arc<Self>, writer: StoredWriter) -> Result<Arc<Segment>> {
        let objects = self.objects().ok_or_else(|| Error::invalid("the database has no storage"))?;
        let (id, info, object) = objects.finish(writer)?;
        let name = object_of(&info.placements).unwrap_or_default().to_owned();
        let segment = Segment::new(id, info, Place::Storage(Arc::new(object)), self);
        segment.kept_as(&name);
        Ok(Arc::new(segment))
    }

    /// Takes over a segment that an executor made in storage.
    ///
    /// # Errors
    /// `Corrupt` when it is not the object that it should be; those of the storage.
    pub(crate) fn take_stored(self: &Arc<Self>, id: SegmentId, info: &SegmentInfo) -> Result<Arc<Segment>> {
        let foreign = || Error::corrupt(format!("an executor's {id} is not where it should be"));
        let objects = self.objects().ok_or_else(foreign)?;
        let own = objects.name_of(id)?;
        let name = object_of(&info.placements).filter(|name| *name == own).ok_or_else(foreign)?;
        let object = objects.open(name, info.length)?;
        let segment = Segment::new(id, info.clone(), Place::Storage(Arc::new(object)), self);
        segment.kept_as(name);
        Ok(Arc::new(segment))
    }

    /// Holds adopted outputs of a job, each with its range. If that fails, frees them.
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
            let place = Place::Memory { base, origin: Origin::NodePart(range) };
            Arc::new(Segment::new(*id, info.clone(), place, self))
        });
        Ok(held.collect())
    }
}

/// Who divides the memory that holds a segment.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// This session, which leased the memory.
    Session(Allocation),
    /// The memory node: the segment is a job's output.
    NodePart(ExtentRange),
}

/// Where a segment is stored.
#[derive(Debug)]
enum Place {
    /// In remote memory, from `base` on.
    Memory { base: RemoteAddress, origin: Origin },
    /// In storage.
    Storage(Arc<BlockObject>),
}

/// A segment of remote memory or of storage. Dropping it frees the memory. The drop makes no call, because the last
/// holder may hold locks or be a reader; [`Remote::send_frees`] tells the node.
#[derive(Debug)]
pub(crate) struct Segment {
    id: SegmentId,
    info: SegmentInfo,
    place: Place,
    is_abandoned: AtomicBool,
    /// The object in storage that holds a copy.
    object: OnceLock<String>,
    remote: Arc<Remote>,
    /// A copy at another of the shard's members, which leads to the further copies.
    copy: OnceLock<Arc<Segment>>,
}

impl Segment {
    fn new(id: SegmentId, info: SegmentInfo, place: Place, remote: &Arc<Remote>) -> Self {
        let (is_abandoned, object, remote) = (AtomicBool::new(false), OnceLock::new(), Arc::clone(remote));
        Self { id, info, place, is_abandoned, object, remote, copy: OnceLock::new() }
    }

    /// The segment and its copies, each at another member.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |segment| segment.copy.get().map(|copy| &**copy))
    }

    /// The copy at a member; `None` when it has none.
    #[inline]
    pub(crate) fn at_member(&self, member: usize) -> Option<&Self> {
        self.copies().find(|copy| copy.remote.member == member)
    }

    /// Adds a copy at a member that has none. It lives as long as the segment.
    pub(crate) fn add_copy(&self, copy: Arc<Self>) {
        let mut copy = copy;
        let mut last = self;
        // Another thread may add one at the same time.
        while let Err(other) = last.copy.set(copy) {
            match last.copy.get() {
                Some(next) => (last, copy) = (next, other),
                None => return,
            }
        }
    }

    /// Returns the copy to read at a member; a segment in storage is the same for all members.
    ///
    /// # Errors
    /// [`Error::not_held`] when the member has none: it joined after the version that names the segment was replaced.
    #[inline]
    pub(crate) fn read_at(&self, member: usize) -> Result<&Self> {
        if member == self.remote.member || self.is_stored() { Ok(self) } else { self.other_at(member) }
    }

    fn other_at(&self, member: usize) -> Result<&Self> {
        self.at_member(member).ok_or_else(|| Error::not_held(self.id, format_args!("member {member}")))
    }

    /// The copy at the member that serves.
    #[inline]
    pub(crate) fn served(&self) -> &Self {
        let serving = self.remote.serving.get();
        if serving == self.remote.member { self } else { self.at_member(serving).unwrap_or(self) }
    }

    /// Where the segment is stored at these members.
    pub(crate) fn placements(&self, is_meant: impl Fn(usize) -> bool) -> Vec<Placement> {
        let meant = self.copies().filter(|copy| copy.is_stored() || is_meant(copy.remote.member));
        meant.flat_map(|copy| copy.info.placements.iter().cloned()).collect()
    }

    /// Notes that an object holds a copy, or may. The object is deleted when nothing names the segment any more.
    pub(crate) fn kept_as(&self, object: &str) {
        self.object.get_or_init(|| object.to_owned());
    }

    /// The object that holds a copy, or may.
    pub(crate) fn object(&self) -> Option<&str> {
        self.object.get().map(String::as_str)
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    /// The memory that holds the segment.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Bytes of memory that the segment takes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        match self.place {
            Place::Memory { origin: Origin::Session(range) | Origin::NodePart(range), .. } => range.length,
            Place::Storage(_) => 0,
        }
    }

    /// Whether the segment is in storage, and not in memory.
    pub(crate) const fn is_stored(&self) -> bool {
        matches!(self.place, Place::Storage(_))
    }

    /// Returns where background work, which is at the member that serves, reads what is `offset` bytes into the
    /// segment. An address counts from the start of the extent, as its key does.
    #[inline]
    pub(crate) fn spot(&self, offset: u64) -> Spot {
        self.served().own_spot(offset)
    }

    /// The same for a read at a member.
    ///
    /// # Errors
    /// As [`Segment::read_at`].
    #[inline]
    pub(crate) fn spot_at(&self, member: usize, offset: u64) -> Result<Spot> {
        Ok(self.read_at(member)?.own_spot(offset))
    }

    /// The same of this copy, whichever serves.
    #[inline]
    pub(crate) fn own_spot(&self, offset: u64) -> Spot {
        match &self.place {
            Place::Memory { base, origin: Origin::Session(range) | Origin::NodePart(range) } => {
                Spot::Memory { address: base.add(offset), extent: range.extent }
            }
            Place::Storage(object) => Spot::Storage { object: Arc::clone(object), offset },
        }
    }

    /// Where the segment begins in the memory of a member; `None` when it is not there.
    pub(crate) fn memory_place(&self, member: usize) -> Option<SearchPlace> {
        match self.spot_at(member, 0).ok()? {
            Spot::Memory { address, extent } => Some(SearchPlace { extent: extent.0, offset: address.offset }),
            Spot::Storage { .. } => None,
        }
    }

    /// The address `offset` bytes into a segment of memory: of this copy, whichever serves.
    ///
    /// # Errors
    /// `Invalid` for a segment in storage: that is written once, as a stream.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Result<RemoteAddress> {
        match &self.place {
            Place::Memory { base, .. } => Ok(base.add(offset)),
            Place::Storage(_) => Err(Error::invalid(format!("{} lies in storage, not in memory", self.id))),
        }
    }

    /// How many of `length` bytes from `offset` are within the segment.
    #[inline]
    pub(crate) fn clip(&self, offset: u64, length: u64) -> usize {
        length.min(self.info.length.saturating_sub(offset)) as usize
    }

    /// Whether the memory of this copy is kept when nothing names it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Keeps the memory of all copies from being reused: a write may still reach it, or another owner needs it. Memory
    /// that no shard adopted goes back to the node with the session.
    pub(crate) fn abandon(&self) {
        self.copies().for_each(Self::abandon_here);
    }

    /// The same for this copy alone.
    pub(crate) fn abandon_here(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// From now on, the segment is freed when nothing names it.
    pub(crate) fn take_charge(&self) {
        self.copies().for_each(|copy| copy.is_abandoned.store(false, Ordering::Relaxed));
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
        if let (Some(objects), Some(object)) = (&self.remote.objects, self.object.get()) {
            objects.discard(object);
        }
        let Place::Memory { origin, .. } = self.place else { return };
        match (origin, &self.remote.node_part) {
            (Origin::Session(allocation), _) => {
                // If the session ended, the node already has the memory back.
                if let Err(error) = self.remote.allocator.free(allocation) {
                    tracing::debug!(%error, segment = self.id.0, "freeing a segment");
                }
            }
            (Origin::NodePart(range), Some(part)) => part.free(range),
            (Origin::NodePart(_), None) => {}
        }
    }
}
