//! Divides leased extents into allocations (dLSM V-A), so that most allocations and frees need no call.
//!
//! Extents are leased one by one when no free range fits an allocation. They are [given
//! back](SubAllocator::give_back_spare) when more than [`AllocatorOptions::spare_extents`] are empty. Freeing makes no
//! call, so it may happen anywhere, even while locks are held. Extents that the shard adopted are released, others are
//! returned. The owner keeps dividing an extent whether or not it is adopted. After a takeover, the next owner learns
//! from its version what an extent holds and [restores](SubAllocator::restore) the rest.
//!
//! An extent that is being leased or given back is not in the allocator, so nobody can allocate from it. The lock is
//! never held during a call.

use crate::client::Kept;
use crate::{Error, MemoryClient, ShardHandle, StoreHandle};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::{RemoteAddress, Rights};
use forebay_proto::ranges::RangeStatistics;
use forebay_proto::{ExtentId, ExtentRange, Purpose, RangeAllocator};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a new owner waits for the previous one to release memory.
const HELD_PATIENCE: Duration = Duration::from_secs(1);

/// Memory in a leased extent.
pub type Allocation = ExtentRange;

/// How an allocator behaves.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorOptions {
    /// Empty extents to keep. When there are more, all but half of this number go back.
    pub spare_extents: usize,
    /// How long an allocation waits for memory that is being zeroed.
    pub patience: Duration,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self { spare_extents: 2, patience: Duration::from_secs(2) }
    }
}

/// Statistics of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AllocatorStatistics {
    /// Extents and their fill.
    pub ranges: RangeStatistics,
    /// Extents that the shard adopted.
    pub adopted_extents: u64,
    /// Share of the free bytes that cannot be given back, because their extent holds allocations.
    pub fragmentation: f64,
}

#[derive(Debug)]
struct Extents {
    ranges: RangeAllocator,
    /// Extents that an earlier owner may still write to. Their contents are kept and can be freed, but nothing is
    /// allocated from them.
    held: RangeAllocator,
    adopted: BTreeSet<ExtentId>,
    /// The part of the free bytes known to be beyond the headroom.
    surplus_bytes: u64,
    /// Whether anything was freed since extents were last given back.
    freed: bool,
}

/// Allocates remote memory for one shard, or for a session without one.
#[derive(Debug)]
pub struct SubAllocator {
    client: Arc<MemoryClient>,
    shard: Option<Mutex<ShardHandle>>,
    options: AllocatorOptions,
    extents: Mutex<Extents>,
    /// Held while extents are leased, so that only one thread leases for a shortage.
    growing: Mutex<()>,
}

impl SubAllocator {
    /// An allocator without extents. With a shard, its extents can be adopted.
    #[must_use]
    pub fn new(client: Arc<MemoryClient>, shard: Option<ShardHandle>, options: AllocatorOptions) -> Self {
        let empty = || RangeAllocator::new(client.extent_bytes());
        let (ranges, held) = (empty(), empty());
        let extents = Mutex::new(Extents { ranges, held, adopted: BTreeSet::new(), surplus_bytes: 0, freed: false });
        let shard = shard.map(Mutex::new);
        Self { client, shard, options, extents, growing: Mutex::new(()) }
    }

    /// An allocator for a new owner, over the extents that the shard adopted in the past, of which `live` is in use.
    /// Empty extents go back. Outputs of jobs are not touched. Memory that an earlier owner does not release within a
    /// second is only read and freed, never allocated from.
    ///
    /// # Errors
    /// [`Error::Range`] when ranges in `live` overlap or do not belong to the shard.
    pub fn restore(
        store: &StoreHandle,
        shard: ShardHandle,
        live: &[Allocation],
        options: AllocatorOptions,
    ) -> Result<Self, Error> {
        let client = Arc::clone(shard.client());
        let known = store.extents(shard.key().shard)?;
        let held = map_for_new_owner(&shard, &known)?;
        let allocator = Self::new(client, Some(shard), options);
        {
            let mut extents = lock(&allocator.extents);
            for extent in known {
                let writable = allocator.client.rights(extent).is_some_and(|rights| rights.contain(Rights::WRITE));
                if held.contains(&extent) {
                    extents.held.add(extent)?;
                } else if writable {
                    extents.ranges.add(extent)?;
                } else {
                    continue;
                }
                extents.adopted.insert(extent);
            }
            for range in live {
                let length = extents.ranges.rounded(range.length).unwrap_or(range.length);
                let range = ExtentRange { length, ..*range };
                if extents.held.contains(range.extent) {
                    extents.held.reserve(range)?;
                } else if allocator.client.rights(range.extent) != Some(Rights::READ) {
                    extents.ranges.reserve(range)?;
                }
            }
        }
        allocator.give_back_spare()?;
        Ok(allocator)
    }

    /// Continues at a later epoch of its shard.
    pub fn follow(&self, next: &ShardHandle) {
        if let Some(shard) = &self.shard {
            *lock(shard) = next.clone();
        }
    }

    fn shard(&self) -> Option<ShardHandle> {
        Some(lock(self.shard.as_ref()?).clone())
    }

    /// Gives back empty extents that an earlier owner may still write to.
    fn release_held(&self) {
        let Some(shard) = self.shard() else { return };
        let empty: Vec<ExtentId> = {
            let mut extents = lock(&self.extents);
            let empty: Vec<ExtentId> = extents.held.empty_extents().collect();
            for extent in &empty {
                let _ = extents.held.remove(*extent);
                extents.adopted.remove(extent);
            }
            empty
        };
        if !empty.is_empty()
            && let Err(error) = shard.release_extents(&empty)
        {
            tracing::debug!(%error, "the next owner of the shard frees them");
        }
    }

    /// The session.
    #[must_use]
    pub fn client(&self) -> &Arc<MemoryClient> {
        &self.client
    }

    /// Allocates `length` bytes for new data, rounded up to 4 KiB.
    ///
    /// # Errors
    /// [`Error::Full`] when the node has no memory left; [`Error::TooLong`] beyond an extent.
    pub fn allocate(&self, length: u64) -> Result<Allocation, Error> {
        self.allocate_for(Purpose::Flush, length)
    }

    /// Allocates `length` bytes, rounded up to 4 KiB. Only garbage collection may use the headroom, both at the node
    /// and in extents leased for an earlier collection.
    ///
    /// # Errors
    /// As [`SubAllocator::allocate`].
    pub fn allocate_for(&self, purpose: Purpose, length: u64) -> Result<Allocation, Error> {
        let extent_bytes = self.client.extent_bytes();
        if length > extent_bytes {
            return Err(Error::TooLong { length, extent_bytes });
        }
        self.client.check()?;
        if let Some(range) = self.take(purpose, length) {
            return Ok(range);
        }
        let _growing = lock(&self.growing);
        if purpose == Purpose::Flush {
            self.ask_for_surplus()?;
        }
        loop {
            // The thread that grew before may have left enough.
            if let Some(range) = self.take(purpose, length) {
                return Ok(range);
            }
            let leased = self.lease_one(purpose)?;
            let mut extents = lock(&self.extents);
            for extent in leased {
                extents.ranges.add(extent)?;
            }
            // Memory that the node leases for flushes is beyond the headroom, which the node still has. A collection
            // may have taken from the headroom.
            extents.surplus_bytes = match purpose {
                Purpose::Flush => extents.ranges.statistics().free_bytes(),
                Purpose::Collection => 0,
            };
        }
    }

    /// Takes from the free memory here; for a flush, no more than the surplus.
    fn take(&self, purpose: Purpose, length: u64) -> Option<Allocation> {
        let mut extents = lock(&self.extents);
        let left = extents.surplus_bytes.checked_sub(extents.ranges.rounded(length)?);
        let left = if purpose == Purpose::Collection { left.unwrap_or(0) } else { left? };
        let range = extents.ranges.allocate(length)?;
        extents.surplus_bytes = left;
        Some(range)
    }

    /// Asks the node how much of the free memory here is beyond the headroom, if any is free here.
    fn ask_for_surplus(&self) -> Result<(), Error> {
        let free_bytes = lock(&self.extents).ranges.statistics().free_bytes();
        if free_bytes > 0 {
            let node = self.client.node_statistics()?;
            let at_node = node.free_extents.saturating_add(node.recycling_extents);
            let missing = node.headroom_extents.saturating_sub(at_node).saturating_mul(self.client.extent_bytes());
            lock(&self.extents).surplus_bytes = free_bytes.saturating_sub(missing);
        }
        Ok(())
    }

    /// Leases an extent; waits for one that is being zeroed.
    fn lease_one(&self, purpose: Purpose) -> Result<Vec<ExtentId>, Error> {
        match self.client.patiently(self.options.patience, || self.client.lease(1, purpose)) {
            Ok(leased) if leased.is_empty() => Err(Error::Full("the node granted nothing".into())),
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy) => {
                Err(Error::Full(error.to_string()))
            }
            result => result,
        }
    }

    /// Frees an allocation, without a call. Nobody may read it any more.
    ///
    /// # Errors
    /// [`Error::Range`] when it is not allocated.
    pub fn free(&self, allocation: Allocation) -> Result<(), Error> {
        self.free_all(&[allocation])
    }

    /// Frees several allocations.
    ///
    /// # Errors
    /// As [`SubAllocator::free`]; the allocations before the invalid one are freed.
    pub fn free_all(&self, allocations: &[Allocation]) -> Result<(), Error> {
        let mut extents = lock(&self.extents);
        for &allocation in allocations {
            if extents.held.contains(allocation.extent) {
                extents.held.free(allocation)?;
            } else {
                extents.ranges.free(allocation)?;
            }
            extents.freed = true;
        }
        Ok(())
    }

    /// Whether frees have left empty extents that should be given back.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        let extents = lock(&self.extents);
        let spare = extents.ranges.statistics().empty_extents > self.options.spare_extents as u64;
        extents.freed && (spare || extents.held.empty_extents().next().is_some())
    }

    /// Whether this allocator divides an extent.
    #[must_use]
    pub fn contains(&self, extent: ExtentId) -> bool {
        let extents = lock(&self.extents);
        extents.ranges.contains(extent) || extents.held.contains(extent)
    }

    /// Passes the extents of these allocations to the shard. Call this before the version that names them counts. Makes
    /// a call only for extents that are not adopted yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a shard; as [`ShardHandle::adopt`].
    pub fn adopt(&self, allocations: &[Allocation]) -> Result<(), Error> {
        let shard = self.shard().ok_or_else(|| Error::Invalid("an allocator without a shard".into()))?;
        let wanted: BTreeSet<ExtentId> = {
            let extents = lock(&self.extents);
            let ours = |extent: &ExtentId| extents.ranges.contains(*extent) && !extents.adopted.contains(extent);
            allocations.iter().map(|allocation| allocation.extent).filter(ours).collect()
        };
        let wanted: Vec<ExtentId> = wanted.into_iter().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        shard.adopt(&wanted)?;
        lock(&self.extents).adopted.extend(wanted);
        Ok(())
    }

    /// The remote address of the first byte of an allocation.
    ///
    /// # Errors
    /// As [`MemoryClient::resolve`].
    #[inline]
    pub fn resolve(&self, allocation: Allocation) -> Result<RemoteAddress, Error> {
        self.client.resolve(allocation.extent, allocation.offset)
    }

    /// Statistics.
    #[must_use]
    pub fn statistics(&self) -> AllocatorStatistics {
        let extents = lock(&self.extents);
        let mut ranges = extents.ranges.statistics();
        let fragmentation = ranges.fragmentation(extents.ranges.extent_bytes());
        ranges.allocated_bytes += extents.held.statistics().allocated_bytes;
        AllocatorStatistics { ranges, adopted_extents: extents.adopted.len() as u64, fragmentation }
    }

    /// Free leased bytes in pieces of at least `least` bytes, including the headroom's part.
    #[must_use]
    pub fn free_in_pieces(&self, least: u64) -> u64 {
        lock(&self.extents).ranges.free_in_pieces(least)
    }

    /// Bytes of the longest piece that could be allocated now for garbage collection, at most `wanted`.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn longest_piece(&self, wanted: u64) -> Result<u64, Error> {
        let own = lock(&self.extents).ranges.statistics().largest_free_bytes;
        if own >= wanted {
            return Ok(wanted);
        }
        let node = self.client.node_statistics()?;
        let has_another = node.free_extents.saturating_add(node.recycling_extents) > 0;
        Ok(wanted.min(if has_another { self.client.extent_bytes() } else { own }))
    }

    /// Gives back surplus empty extents, and empty extents that an earlier owner may still write to.
    ///
    /// # Errors
    /// As [`SubAllocator::give_back`].
    pub fn give_back_spare(&self) -> Result<(), Error> {
        lock(&self.extents).freed = false;
        self.release_held();
        let spare = self.options.spare_extents;
        let count = lock(&self.extents).ranges.statistics().empty_extents as usize;
        if count <= spare { Ok(()) } else { self.give_back(spare / 2) }
    }

    /// Gives empty extents back until `keep` are left.
    ///
    /// # Errors
    /// [`Error`]. Extents that the node refused stay here. Extents that the node may have taken, or may take when the
    /// call arrives, are not used again: they come back with the session, and adopted ones with the next owner of the
    /// shard.
    pub fn give_back(&self, keep: usize) -> Result<(), Error> {
        let (adopted, leased): (Vec<_>, Vec<_>) = {
            let mut extents = lock(&self.extents);
            let empty: Vec<ExtentId> = extents.ranges.empty_extents().skip(keep).collect();
            for &extent in &empty {
                extents.ranges.remove(extent)?;
            }
            empty.into_iter().partition(|extent| extents.adopted.remove(extent))
        };
        let returned = self.client.return_leased(&leased).or_else(|kept| self.put_back(kept, false));
        let released = match self.shard() {
            Some(shard) => shard.release_adopted(&adopted).or_else(|kept| self.put_back(kept, true)),
            None => Ok(()),
        };
        returned.and(released)
    }

    /// Takes back extents that were not given up. Returns why they were not.
    fn put_back(&self, kept: Kept, adopted: bool) -> Result<(), Error> {
        let mut extents = lock(&self.extents);
        for extent in kept.extents {
            extents.ranges.add(extent)?;
            if adopted {
                extents.adopted.insert(extent);
            }
        }
        Err(kept.cause)
    }
}

/// Gets keys to a shard's extents for its new owner. Returns the extents that an earlier owner has not released; for
/// those the keys only allow reading.
fn map_for_new_owner(shard: &ShardHandle, extents: &[ExtentId]) -> Result<BTreeSet<ExtentId>, Error> {
    let (client, key) = (shard.client(), shard.key());
    match client.map_for(key, extents, true, HELD_PATIENCE) {
        Err(error) if error.kind() == ErrorKind::Busy => {}
        result => return result.map(|()| BTreeSet::new()),
    }
    let mut held = BTreeSet::new();
    for extent in extents {
        match client.map_for(key, &[*extent], true, Duration::ZERO) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                client.map_to_read(key, &[*extent])?;
                held.insert(*extent);
            }
            result => result?,
        }
    }
    tracing::warn!(extents = held.len(), "an earlier owner has not let go of memory: it is only read");
    Ok(held)
}
