//! This database's share of a memory node's own part: the outputs of its jobs (dLSM V-A).
//!
//! Jobs and their outputs belong to an epoch of a shard. For that, a database without a name has a private store at
//! each memory node. Each shard has its own epoch, so a shard that ends its jobs ends no other shard's jobs.
//!
//! An output is *pending* from the job's end until [`NodePart::adopt`]. From then on it belongs to the shard until it
//! is freed. When the reply to an adoption is lost, this process does not know which of the two applies. Such an output
//! is freed only in the same epoch: the node frees pending outputs when the epoch ends, and may have given the memory
//! to another job by then. (If the output was adopted after all, it stays with the shard until the store is dropped.)
//! Frees are gathered and sent in batches (dLSM V-B). Dropping a segment sends nothing, because that may happen on a
//! reader's path.

use crate::remote::owner::Owner;
use crate::remote::private_store::PrivateStore;
use crate::terms::Result;
use forebay_env::sync::{Mutex, lock};
use forebay_memory_client::{Epoch, ExtentId, ExtentRange, ShardHandle, ShardId};
use forebay_proto::calls::MAX_RANGES;
use forebay_proto::{RangeAllocator, attempt};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the node may take to store a flush's data.
const STORE_PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(crate) struct NodePart {
    owner: Arc<Owner>,
    freed: Mutex<Vec<Freed>>,
    /// The outputs that are not freed, in their extents. What else the node has allocated is not known here.
    held: Mutex<RangeAllocator>,
    /// Number of requests made so far that have no number of their own.
    requests: AtomicU64,
}

/// An output that is no longer needed.
#[derive(Debug)]
struct Freed {
    range: ExtentRange,
    /// The only epoch in which it may be freed; `None` for any.
    epoch: Option<Epoch>,
}

impl NodePart {
    /// A private store's shard without outputs.
    ///
    /// # Errors
    /// `Unavailable` when the node is gone.
    pub(crate) fn open(store: &Arc<PrivateStore>, id: ShardId) -> Result<Self> {
        Ok(Self::new(Arc::new(Owner::of_private(store, id)?)))
    }

    /// A named store's shard, with the outputs that are in use.
    pub(crate) fn of_owner(owner: Arc<Owner>, outputs: &BTreeSet<ExtentRange>) -> Self {
        let part = Self::new(owner);
        part.hold(outputs);
        part
    }

    fn new(owner: Arc<Owner>) -> Self {
        let freed = Mutex::default();
        let held = Mutex::new(RangeAllocator::new(owner.store().client().extent_bytes()));
        Self { owner, freed, held, requests: AtomicU64::new(0) }
    }

    fn hold<'r>(&self, ranges: impl IntoIterator<Item = &'r ExtentRange>) {
        let mut held = lock(&self.held);
        for &range in ranges {
            if !held.contains(range.extent) {
                let _ = held.add(range.extent);
            }
            let range = rounded(&held, range);
            if let Err(error) = held.reserve(range) {
                tracing::debug!(%error, "an output lies where another one is");
            }
        }
    }

    /// The shard at its present epoch.
    pub(crate) fn shard(&self) -> ShardHandle {
        self.owner.shard()
    }

    /// Ends the epoch, and with it running jobs and outputs that are not adopted.
    ///
    /// # Errors
    /// `Fenced` when somebody took over; `Unavailable`.
    pub(crate) fn end_epoch(&self) -> Result<ShardHandle> {
        self.owner.advance()
    }

    /// Asks the node to bring ranges of the shard's memory in one piece.
    ///
    /// # Errors
    /// The node's errors, also those that only say that it does not do this now.
    pub(crate) fn gather(&self, ranges: &[ExtentRange]) -> Result<Vec<u8>> {
        Ok(self.shard().gather(self.next_request(), ranges)?)
    }

    /// Asks the node to search tables in memory of this session: arguments and result are those of this kind of search.
    ///
    /// # Errors
    /// The node's errors, also those that only say that it does not do this now.
    pub(crate) fn search(&self, kind: u16, arguments: Vec<u8>) -> Result<Vec<u8>> {
        Ok(self.shard().search(self.next_request(), kind, arguments)?)
    }

    /// Asks the node to store bytes as one of its outputs, and takes the output over.
    ///
    /// # Errors
    /// The node's errors; `Full` when no free piece is long enough.
    pub(crate) fn store(&self, shard: &ShardHandle, bytes: &[u8]) -> Result<ExtentRange> {
        let range = shard.store(self.next_request(), bytes, STORE_PATIENCE)?;
        self.adopt(shard, &[range])?;
        Ok(range)
    }

    /// Returns a number for a request that has none of its own.
    fn next_request(&self) -> u64 {
        attempt::of_request(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes over the outputs of a job of the shard's current epoch, and gets keys to them. If that fails, they are
    /// freed, provided the epoch lasts until then.
    pub(crate) fn adopt(&self, shard: &ShardHandle, ranges: &[ExtentRange]) -> Result<()> {
        self.hold(ranges);
        let extents: BTreeSet<ExtentId> = ranges.iter().map(|range| range.extent).collect();
        // An extent may have been emptied, zeroed and reused since. It then has another key.
        let extents: Vec<ExtentId> = extents.into_iter().collect();
        let adopted = shard.adopt_ranges(ranges).and_then(|()| shard.map(&extents));
        if adopted.is_err() {
            ranges.iter().for_each(|&range| self.add_freed(range, Some(shard.epoch())));
        }
        Ok(adopted?)
    }

    /// Takes over what an attempt at an offloaded job made, and gets keys to it. What the node refuses is not the shard's
    /// and is not freed here: another attempt may have the memory by now.
    pub(crate) fn adopt_attempt(&self, shard: &ShardHandle, ranges: &[ExtentRange]) -> Result<()> {
        self.hold(ranges);
        for (page, done) in ranges.chunks(MAX_RANGES).zip((0..).step_by(MAX_RANGES)) {
            if let Err(error) = shard.adopt_ranges(page) {
                let (adopted, others) = ranges.split_at(done);
                adopted.iter().for_each(|&range| self.free(range));
                others.iter().for_each(|&range| self.let_go(range));
                return Err(error.into());
            }
        }
        let extents: BTreeSet<ExtentId> = ranges.iter().map(|range| range.extent).collect();
        let mapped = shard.map(&extents.into_iter().collect::<Vec<_>>());
        if mapped.is_err() {
            ranges.iter().for_each(|&range| self.free(range));
        }
        Ok(mapped?)
    }

    /// Frees an output with the next batch. Nobody may read it any more.
    pub(crate) fn free(&self, range: ExtentRange) {
        self.add_freed(range, None);
    }

    fn add_freed(&self, range: ExtentRange, epoch: Option<Epoch>) {
        self.let_go(range);
        lock(&self.freed).push(Freed { range, epoch });
    }

    /// Stops counting an output.
    fn let_go(&self, range: ExtentRange) {
        let mut held = lock(&self.held);
        let range = rounded(&held, range);
        // An extent without outputs is the node's.
        if held.free(range).is_ok() {
            let _ = held.remove(range.extent);
        }
    }

    /// Bytes of outputs that are not freed.
    pub(crate) fn held_bytes(&self) -> u64 {
        lock(&self.held).statistics().allocated_bytes
    }

    /// Free bytes in the extents that hold outputs, in pieces of at least `least` bytes. Other shards' jobs cannot use
    /// them.
    pub(crate) fn free_bytes(&self, least: u64) -> u64 {
        lock(&self.held).free_in_pieces(least)
    }

    /// Whether frees wait to be sent.
    pub(crate) fn has_frees(&self) -> bool {
        !lock(&self.freed).is_empty()
    }

    /// Sends the gathered frees if there are at least `fewest`.
    pub(crate) fn send_frees(&self, fewest: usize) {
        let freed = {
            let mut freed = lock(&self.freed);
            if freed.len() < fewest {
                return;
            }
            std::mem::take(&mut *freed)
        };
        let shard = self.shard();
        let may_be_freed = |freed: &Freed| freed.epoch.is_none_or(|epoch| epoch == shard.epoch());
        let ranges: Vec<_> = freed.into_iter().filter(may_be_freed).map(|freed| freed.range).collect();
        for batch in ranges.chunks(MAX_RANGES) {
            if let Err(error) = shard.free_ranges(batch) {
                // The call may have been carried out, so it is not repeated. The store's end frees the rest.
                tracing::warn!(%error, ranges = batch.len(), "freeing outputs of jobs");
            }
        }
    }
}

/// The range that an output occupies.
fn rounded(held: &RangeAllocator, range: ExtentRange) -> ExtentRange {
    ExtentRange { length: held.rounded(range.length).unwrap_or(range.length), ..range }
}
