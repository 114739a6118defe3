//! What a block cache, its threads and its objects share: the blocks that are held, and the requests for those that are
//! not.
//!
//! Crate `quick_cache` decides which blocks stay. Its policy (related to S3-FIFO) keeps what is read again when a scan
//! passes through. A block that is on its way is requested once: callers that want it meanwhile wait for the same request.
//!
//! Invariants:
//!
//! 1. A block is held before its request leaves `under_way` (unless the budget has no room for it). A caller that finds it
//!    in neither, under the lock of `under_way`, is the only one to request it.
//! 2. A request in `under_way` is wanted by somebody, or was begun: nobody waits for one that nobody will carry out. One
//!    that was claimed is done with an error if its thread panics.
//! 3. The lock of `under_way` is taken before a request's own. No lock is held during a request.
//! 4. Nobody waits for a caller that asks the floor below: how long that takes may depend on other work of the engine.

use super::fetch::{Decoded, Fetch, Object};
use super::floor::{LowerFloor, MOST_BLOCKS};
use crate::error::{Error, Result};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::sync::{Condvar, Mutex, lock};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// Approximate bytes that the cache needs for a block besides its content.
const ENTRY_BYTES: u64 = 64;
/// Fewest bytes of a part of the cache with a lock of its own.
const LEAST_SHARD_BYTES: u64 = 8 << 20;
/// Most parts of the cache with a lock of their own.
const MOST_SHARDS: u64 = 16;
/// Bytes of a block, for an estimate of how many there will be.
const TYPICAL_BLOCK_BYTES: u64 = 16 << 10;

/// Settings of a block cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCacheOptions {
    /// Most bytes of blocks that are held. With 0 nothing is held.
    pub capacity_bytes: u64,
    /// Threads that carry out requests ahead of need: how many requests are in flight besides those of callers.
    pub threads: usize,
    /// Most bytes of one request, unless a single block is longer. A longer range takes several requests.
    pub request_bytes: u64,
}

impl Default for BlockCacheOptions {
    fn default() -> Self {
        Self { capacity_bytes: 64 << 20, threads: 4, request_bytes: 4 << 20 }
    }
}

/// What a block cache has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCacheCounts {
    /// Blocks that were in the cache when they were wanted.
    pub hits: u64,
    /// Blocks that had to be requested.
    pub misses: u64,
    /// Blocks that were already on their way when they were wanted.
    pub joined: u64,
    /// Requested blocks that came from the floor below.
    pub below_hits: u64,
    /// Requested blocks that the floor below did not have.
    pub below_misses: u64,
    /// Requests to the storage for blocks.
    pub requests: u64,
    /// Bytes that they asked for, as stored.
    pub requested_bytes: u64,
    /// Requests for directories: one for each object that was opened, two for a long one.
    pub directory_requests: u64,
    /// Bytes that are held now.
    pub held_bytes: u64,
    /// Bytes that the floor below keeps now.
    pub below_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    object: u64,
    block: u32,
}

#[derive(Debug, Clone, Copy)]
struct ByBytes;

impl Weighter<BlockKey, Bytes> for ByBytes {
    fn weight(&self, _: &BlockKey, block: &Bytes) -> u64 {
        block.len() as u64 + ENTRY_BYTES
    }
}

/// The hasher has no random key, so that a simulation runs twice alike. No outsider chooses keys.
type Blocks = Cache<BlockKey, Bytes, ByBytes, FxBuildHasher>;

/// A block that is wanted.
#[derive(Debug)]
pub(super) enum Wanted {
    /// It is here.
    Here(Bytes),
    /// It is on its way.
    OnItsWay(Arc<Fetch>),
}

/// The blocks of a range. Most ranges are records, which are in one block or two.
pub(super) type AllWanted = SmallVec<[Wanted; 2]>;

type Found = SmallVec<[Option<Wanted>; 2]>;

/// What the cache, its threads and its objects share.
pub(super) struct Shared {
    blocks: Blocks,
    below: Option<Arc<dyn LowerFloor>>,
    under_way: Mutex<HashMap<BlockKey, Arc<Fetch>>>,
    queue: Mutex<Queue>,
    has_work: Condvar,
    options: BlockCacheOptions,
    next_object: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
    below_hits: AtomicU64,
    below_misses: AtomicU64,
    requests: AtomicU64,
    requested_bytes: AtomicU64,
    directory_requests: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Fetch>>,
    is_closed: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(options: BlockCacheOptions, below: Option<Arc<dyn LowerFloor>>) -> Result<Self> {
        let capacity = options.capacity_bytes;
        let shards = (capacity / LEAST_SHARD_BYTES).clamp(1, MOST_SHARDS);
        let layout = OptionsBuilder::new()
            .weight_capacity(capacity)
            .estimated_items_capacity((capacity / TYPICAL_BLOCK_BYTES).max(1) as usize)
            .shards(shards as usize)
            .build();
        let layout =
            layout.map_err(|error| Error::new(ErrorKind::Invalid, "make", "a block cache", error.to_string()))?;
        Ok(Self {
            blocks: Cache::with_options(layout, ByBytes, FxBuildHasher, DefaultLifecycle::default()),
            below,
            under_way: Mutex::default(),
            queue: Mutex::default(),
            has_work: Condvar::new(),
            options,
            next_object: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            below_hits: AtomicU64::new(0),
            below_misses: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            requested_bytes: AtomicU64::new(0),
            directory_requests: AtomicU64::new(0),
        })
    }

    pub(super) fn counts(&self) -> BlockCacheCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BlockCacheCounts {
            hits: get(&self.hits),
            misses: get(&self.misses),
            joined: get(&self.joined),
            below_hits: get(&self.below_hits),
            below_misses: get(&self.below_misses),
            requests: get(&self.requests),
            requested_bytes: get(&self.requested_bytes),
            directory_requests: get(&self.directory_requests),
            held_bytes: self.blocks.weight(),
            below_bytes: self.below.as_ref().map_or(0, |below| below.held_bytes()),
        }
    }

    /// Finds blocks of an object. Blocks that are neither here nor on their way are in the returned requests, which
    /// nobody has begun: the caller has to make them.
    #[inline]
    pub(super) fn find(&self, object: &Arc<Object>, blocks: Range<u32>) -> (AllWanted, Vec<Arc<Fetch>>) {
        let mut found: Found = blocks.clone().map(|block| self.held(object, block)).collect();
        let hits = found.iter().flatten().count();
        let new = if hits < found.len() { self.find_others(object, blocks, &mut found) } else { Vec::new() };
        add(&self.hits, hits as u64);
        (found.into_iter().flatten().collect(), new)
    }

    #[inline]
    fn held(&self, object: &Object, block: u32) -> Option<Wanted> {
        self.blocks.get(&BlockKey { object: object.id, block }).map(Wanted::Here)
    }

    /// Finds the blocks that were not here.
    #[cold]
    fn find_others(&self, object: &Arc<Object>, blocks: Range<u32>, found: &mut Found) -> Vec<Arc<Fetch>> {
        let key = |block| BlockKey { object: object.id, block };
        let mut under_way = lock(&self.under_way);
        let (mut hits, mut others) = (0, 0);
        for (block, found) in blocks.clone().zip(found.iter_mut()).filter(|(_, found)| found.is_none()) {
            // It may have arrived since.
            *found = under_way.get(&key(block)).map(joined).or_else(|| self.held(object, block));
            match found {
                Some(Wanted::Here(_)) => hits += 1,
                Some(Wanted::OnItsWay(_)) => others += 1,
                None => {}
            }
        }
        let missing = blocks.zip(&*found).filter(|(_, found)| found.is_none()).map(|(block, _)| block);
        let new = self.requests(object, missing);
        let mut missing = found.iter_mut().filter(|found| found.is_none());
        let mut misses = 0;
        for fetch in &new {
            for block in fetch.blocks.clone() {
                under_way.insert(key(block), Arc::clone(fetch));
                misses += 1;
                if let Some(found) = missing.next() {
                    *found = Some(joined(fetch));
                }
            }
        }
        drop(under_way);
        add(&self.hits, hits);
        add(&self.joined, others);
        add(&self.misses, misses);
        new
    }

    /// Makes requests for ascending blocks: one for adjacent blocks, as long as it is short enough.
    fn requests(&self, object: &Arc<Object>, blocks: impl Iterator<Item = u32>) -> Vec<Arc<Fetch>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for block in blocks {
            let end = object.directory.place_of(block).end;
            match runs.last_mut() {
                Some(run)
                    if run.end == block
                        && end - object.directory.place_of(run.start).start <= self.options.request_bytes =>
                {
                    run.end += 1;
                }
                _ => runs.push(block..block + 1),
            }
        }
        runs.into_iter().map(|run| Arc::new(Fetch::new(Arc::clone(object), run))).collect()
    }

    /// Makes the cache's threads carry out requests, if the cache has threads.
    pub(super) fn begin(&self, fetches: Vec<Arc<Fetch>>) {
        if self.options.threads > 0 && !fetches.is_empty() {
            lock(&self.queue).waiting.extend(fetches);
            self.has_work.notify_all();
        }
    }

    /// Waits for a wanted block, and returns it.
    pub(super) fn wait(&self, wanted: Wanted, block: u32) -> Result<Bytes> {
        match wanted {
            Wanted::Here(bytes) => Ok(bytes),
            Wanted::OnItsWay(fetch) => {
                self.carry_out(&fetch);
                fetch.wait(block)
            }
        }
    }

    /// Gives up a block that is no longer wanted.
    pub(super) fn give_up(&self, wanted: &Wanted) {
        let Wanted::OnItsWay(fetch) = wanted else { return };
        let mut under_way = lock(&self.under_way);
        if fetch.give_up() {
            forget(&mut under_way, fetch);
        }
    }

    /// Carries out a request, unless somebody else does.
    fn carry_out(&self, fetch: &Arc<Fetch>) {
        let below = self.below.as_deref().filter(|_| fetch.blocks.len() <= MOST_BLOCKS);
        // The request is not claimed yet, so only the thread that asks the floor waits for its answer.
        // Several threads may ask.
        let brought = below.filter(|_| fetch.is_waiting()).and_then(|below| read_below(below, fetch));
        if !fetch.claim() {
            return;
        }
        let mut claimed = Claimed { shared: self, fetch, read: None };
        if below.is_some() {
            let count = if brought.is_some() { &self.below_hits } else { &self.below_misses };
            add(count, fetch.blocks.len() as u64);
        }
        let now = || below.map_or(0, |below| below.now());
        let begun = now();
        let (read, stored) = match brought {
            Some(blocks) => (Ok(blocks), None),
            None => match self.read_storage(fetch) {
                Ok((blocks, stored)) => (Ok(blocks), Some(stored)),
                Err(error) => (Err(error), None),
            },
        };
        let took = now().saturating_sub(begun);
        if let Ok(blocks) = &read {
            for (block, bytes) in fetch.blocks.clone().zip(blocks) {
                if let Ok(bytes) = bytes {
                    self.blocks.insert(BlockKey { object: fetch.object.id, block }, bytes.clone());
                }
            }
        }
        let is_whole = read.as_ref().is_ok_and(|blocks| blocks.iter().all(Result::is_ok));
        claimed.read = Some(read);
        drop(claimed);
        if let (Some(below), Some(stored), true) = (below, stored, is_whole) {
            below.keep(fetch.object.id, fetch.blocks.start, &fetch.stored_lengths(), &stored, took);
        }
    }

    /// Reads the blocks of a request from the storage. Returns them decoded and in their stored form.
    fn read_storage(&self, fetch: &Fetch) -> Result<(Decoded, Bytes)> {
        add(&self.requests, 1);
        add(&self.requested_bytes, fetch.stored_bytes());
        let stored = fetch.read()?;
        Ok((fetch.decode(stored.clone()), stored))
    }

    pub(super) fn shrink_below(&self) {
        self.below.iter().for_each(|below| below.let_go());
    }

    /// A number that no other object of this cache has.
    pub(super) fn next_object(&self) -> u64 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn count_directory_request(&self) {
        add(&self.directory_requests, 1);
    }

    /// Ends the cache's threads.
    pub(super) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.has_work.notify_all();
    }

    /// The work of a thread of the cache, until the cache is closed.
    pub(super) fn work(&self) {
        let mut queue = lock(&self.queue);
        while !queue.is_closed {
            queue = match queue.waiting.pop_front() {
                Some(fetch) => {
                    drop(queue);
                    // Those who wait for it get an error. Without this thread, requests would wait in the queue for ever.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.carry_out(&fetch)));
                    drop(fetch);
                    lock(&self.queue)
                }
                None => self.has_work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// A request that was claimed. Those who wait for it get an answer, even if the thread that carries it out panics.
struct Claimed<'a> {
    shared: &'a Shared,
    fetch: &'a Arc<Fetch>,
    read: Option<Result<Decoded>>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let read = self.read.take().unwrap_or_else(|| {
            let detail = "the thread that read these blocks panicked, which is a bug: report it";
            Err(Error::new(ErrorKind::Io, "read", &self.fetch.object.name, detail))
        });
        forget(&mut lock(&self.shared.under_way), self.fetch);
        self.fetch.complete(read);
    }
}

/// Reads the blocks of a request from the floor below; `None` when it does not have all of them
/// undamaged.
fn read_below(below: &dyn LowerFloor, fetch: &Fetch) -> Option<Decoded> {
    let stored = below.bring(fetch.object.id, fetch.blocks.clone(), fetch.stored_bytes() as usize)?;
    // A damaged block counts as missing.
    Some(fetch.decode(Bytes::from(stored))).filter(|blocks| blocks.iter().all(Result::is_ok))
}

/// A wanted block of a request that is under way.
fn joined(fetch: &Arc<Fetch>) -> Wanted {
    fetch.want();
    Wanted::OnItsWay(Arc::clone(fetch))
}

/// Removes a request's blocks from those that are under way.
fn forget(under_way: &mut HashMap<BlockKey, Arc<Fetch>>, fetch: &Arc<Fetch>) {
    for block in fetch.blocks.clone() {
        under_way.remove(&BlockKey { object: fetch.object.id, block });
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
