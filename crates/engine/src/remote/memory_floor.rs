//! The second floor of the cache of blocks from storage: blocks as they are stored, in memory nodes.
//!
//! A ring of chunks, each a piece of remote memory. Blocks are written one after the other into the newest chunk. When
//! the number of chunks is at its limit, the oldest chunk's blocks are forgotten and the chunk is overwritten. A block
//! that is read from the older half of the ring is written again at its end, so what is read stays (first in, first
//! out, with reinsertion).
//!
//! ```text
//!   chunk 7 (oldest)         8                 9                10 (newest)
//!   ┌───┬─────┬───┬──┐  ┌──────┬───┬───┐  ┌────┬──────┬──┐  ┌───┬───┬───────┐
//!   │ a │  b  │ c │  │  │  d   │ e │ f │  │ g  │  h   │  │  │ i │ a │  ─▸   │
//!   └───┴─────┴───┴──┘  └──────┴───┴───┘  └────┴──────┴──┘  └───┴───┴───────┘
//!     └── a was read here, so it is written again ────────────────┘
//! ```
//!
//! Blocks that storage returns as fast as memory would are not kept: each would cost a write.
//!
//! The floor takes memory that nobody else needs. Chunks are added while more than a quarter of the database's share is
//! free. When memory gets short, each request to give memory back frees half of them. Only speed depends on the floor.
//! Only this process knows where a block is, and each block carries a checksum and says what it is. So memory that is
//! lost or overwritten by somebody else costs one request to the storage.
//!
//! Invariants: no lock is held during an operation of the fabric. A chunk is overwritten only when nobody reads it or
//! writes to it. A block is known only after it was written.

use crate::remote::pipeline::Pipeline;
use crate::remote::segment::{Node, Remote, Segment};
use crate::terms::{Options, Result};
use forebay_base::SegmentId;
use forebay_env::sync::{Mutex, lock};
use forebay_env::{HashMap, Nanos};
use forebay_memory_client::{Purpose, ShardId};
use forebay_storage::LowerFloor;
use forebay_table::SegmentKind;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum bytes of a chunk.
const MOST_CHUNK_BYTES: u64 = 4 << 20;
/// Minimum bytes of a chunk. What is longer than a chunk is not kept.
const LEAST_CHUNK_BYTES: u64 = 64 << 10;
/// Minimum number of chunks, if there is memory for them.
const LEAST_CHUNKS: u64 = 8;
/// Memory is taken only where more than one part in this many of the database's share is free.
const FREE_SHARE: u64 = 4;
/// How many times another chunk must be wanted before nodes that had no memory to spare are asked again.
const PATIENCE: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct MemoryFloor {
    /// The memory nodes, each with the memory that this session leases there.
    nodes: Vec<Arc<Remote>>,
    options: Options,
    chunk_bytes: u64,
    most_chunks: usize,
    ring: Mutex<Ring>,
    /// Held while a chunk is made, so that one thread makes it.
    growing: Mutex<()>,
    made: AtomicU64,
}

/// A block of an object, as the cache names them.
type BlockName = (u64, u32);

/// Where a block is.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The chunk's number.
    chunk: u64,
    offset: u64,
    length: u32,
}

#[derive(Debug)]
struct Chunk {
    segment: Arc<Segment>,
    used_bytes: u64,
    blocks: Vec<BlockName>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Oldest first.
    chunks: VecDeque<Chunk>,
    /// The number of the oldest chunk.
    oldest: u64,
    places: HashMap<BlockName, Place>,
    held_bytes: u64,
    /// Maximum number of chunks now.
    limit: usize,
    /// How many more times another chunk must be wanted before the limit is forgotten.
    patience: u32,
}

/// A part of one chunk that was found.
struct Found {
    segment: Arc<Segment>,
    offset: u64,
    /// Which bytes of the wanted range these are.
    bytes: Range<usize>,
}

/// A part of a chunk that is to be written.
struct Reserved {
    segment: Arc<Segment>,
    chunk: u64,
    offset: u64,
}

impl MemoryFloor {
    /// Returns a floor in the memory of these nodes, of at most `memory_cache_bytes`; `None` when that is too little to
    /// be of use.
    ///
    /// # Errors
    /// When a memory node is gone.
    pub(crate) fn new(nodes: &[Arc<Node>], options: &Options) -> Result<Option<Arc<Self>>> {
        let bytes = options.memory_cache_bytes;
        let nodes = nodes.iter().map(|node| Ok(Arc::new(Remote::new(node, None, ShardId(0))?)));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let Some(extent_bytes) = nodes.iter().map(|node| node.extent_bytes()).min() else { return Ok(None) };
        let chunk_bytes = (bytes / LEAST_CHUNKS).min(MOST_CHUNK_BYTES).min(extent_bytes);
        if chunk_bytes < LEAST_CHUNK_BYTES {
            return Ok(None);
        }
        let most_chunks = (bytes / chunk_bytes) as usize;
        let ring = Mutex::new(Ring { limit: most_chunks, ..Ring::default() });
        Ok(Some(Arc::new(Self {
            nodes,
            options: options.clone(),
            chunk_bytes,
            most_chunks,
            ring,
            growing: Mutex::default(),
            made: AtomicU64::new(0),
        })))
    }

    /// Reads what was found.
    fn read(found: &[Found], stored: &mut [u8]) -> Result<()> {
        for Found { segment, offset, bytes } in found {
            let Some(part) = stored.get_mut(bytes.clone()) else { continue };
            segment.remote().scan()?.read(segment.at(*offset)?, part)?;
        }
        Ok(())
    }

    /// Reserves `bytes` in the newest chunk. Makes a new chunk if it has no room.
    fn reserve(&self, bytes: u64) -> Option<Reserved> {
        if let Some(reserved) = lock(&self.ring).reserve(bytes, self.chunk_bytes) {
            return Some(reserved);
        }
        // A thread that comes while a chunk is made gets none.
        let _growing = self.growing.try_lock().ok()?;
        if let Some(reserved) = lock(&self.ring).reserve(bytes, self.chunk_bytes) {
            return Some(reserved);
        }
        let segment = self.next_chunk()?;
        let mut ring = lock(&self.ring);
        ring.chunks.push_back(Chunk { segment, used_bytes: 0, blocks: Vec::new() });
        ring.reserve(bytes, self.chunk_bytes)
    }

    /// Returns memory for a chunk: new memory, or the oldest chunk's.
    fn next_chunk(&self) -> Option<Arc<Segment>> {
        if lock(&self.ring).may_grow(self.most_chunks) {
            if let Some(segment) = self.allocate() {
                return Some(segment);
            }
            lock(&self.ring).deny();
        }
        // If the oldest chunk is still in use, it is freed after that.
        let oldest = lock(&self.ring).forget_oldest()?;
        if Arc::strong_count(&oldest) == 1 { Some(oldest) } else { self.allocate() }
    }

    /// Allocates new memory for a chunk, if some node has enough that nobody needs.
    fn allocate(&self) -> Option<Arc<Segment>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let first = (number % self.nodes.len() as u64) as usize;
        let (before, from) = self.nodes.split_at(first);
        from.iter().chain(before).find_map(|node| {
            if node.free_bytes(self.chunk_bytes) < self.chunk_bytes && !self.has_to_spare(node) {
                return None;
            }
            node.allocate(SegmentId(number), SegmentKind::Run, self.chunk_bytes, Purpose::Flush).ok()
        })
    }

    /// Whether enough of the database's share of a node is free to use a part of it for a cache.
    fn has_to_spare(&self, node: &Remote) -> bool {
        node.memory_node().tell_share(&self.options).is_ok_and(|credit| {
            let free = credit.free_extents.saturating_sub(credit.withheld_extents);
            free.saturating_mul(FREE_SHARE) > credit.share_extents
        })
    }

    fn write(reserved: &Reserved, stored: &[u8]) -> Result<()> {
        let mut pipeline = Pipeline::new(reserved.segment.remote().background()?);
        pipeline.write(&reserved.segment, reserved.offset, stored)?;
        pipeline.drain()
    }

    /// Writes blocks to the end of the ring.
    fn write_last(&self, object: u64, first: u32, lengths: &[u32], stored: &[u8]) {
        if stored.len() as u64 > self.chunk_bytes {
            return;
        }
        let Some(reserved) = self.reserve(stored.len() as u64) else { return };
        match Self::write(&reserved, stored) {
            Ok(()) => lock(&self.ring).enter(&reserved, object, first, lengths),
            Err(error) => {
                tracing::debug!(%error, "memory of the block cache is lost");
                drop(lock(&self.ring).clear());
            }
        }
    }
}

impl LowerFloor for MemoryFloor {
    fn bring(&self, object: u64, blocks: Range<u32>, bytes: usize) -> Option<Vec<u8>> {
        let (found, lengths, is_old) = lock(&self.ring).find(object, blocks.clone(), bytes)?;
        let mut stored = vec![0; bytes];
        if let Err(error) = Self::read(&found, &mut stored) {
            tracing::debug!(%error, "memory of the block cache is lost");
            drop(lock(&self.ring).clear());
            return None;
        }
        drop(found);
        if is_old {
            self.write_last(object, blocks.start, &lengths, &stored);
        }
        Some(stored)
    }

    fn keep(&self, object: u64, first: u32, lengths: &[u32], stored: &[u8], took: Nanos) {
        if u128::from(took) >= self.options.memory_cache_after.as_nanos() {
            self.write_last(object, first, lengths, stored);
        }
    }

    fn now(&self) -> Nanos {
        self.options.clock.now()
    }

    fn let_go(&self) {
        let half = lock(&self.ring).halve();
        if half.is_empty() {
            return;
        }
        drop(half);
        self.nodes.iter().for_each(|node| node.give_back());
    }

    fn held_bytes(&self) -> u64 {
        lock(&self.ring).held_bytes
    }
}

impl Ring {
    /// Returns where blocks of an object are, which have `bytes` bytes; their lengths; and whether one is in the older
    /// half.
    fn find(&self, object: u64, blocks: Range<u32>, bytes: usize) -> Option<(Vec<Found>, Vec<u32>, bool)> {
        let mut found: Vec<Found> = Vec::new();
        let mut lengths = Vec::with_capacity(blocks.len());
        let (mut at, mut is_old) = (0, false);
        for block in blocks {
            let place = self.places.get(&(object, block))?;
            let number = (place.chunk - self.oldest) as usize;
            let chunk = self.chunks.get(number)?;
            let end = at + place.length as usize;
            match found.last_mut() {
                Some(last)
                    if Arc::ptr_eq(&last.segment, &chunk.segment)
                        && last.offset + last.bytes.len() as u64 == place.offset =>
                {
                    last.bytes.end = end;
                }
                _ => found.push(Found { segment: Arc::clone(&chunk.segment), offset: place.offset, bytes: at..end }),
            }
            lengths.push(place.length);
            is_old |= number < self.chunks.len() / 2;
            at = end;
        }
        (at == bytes).then_some((found, lengths, is_old))
    }

    fn reserve(&mut self, bytes: u64, chunk_bytes: u64) -> Option<Reserved> {
        let chunk = self.oldest + (self.chunks.len() as u64).checked_sub(1)?;
        let newest = self.chunks.back_mut()?;
        let offset = newest.used_bytes;
        if bytes > chunk_bytes - offset {
            return None;
        }
        newest.used_bytes += bytes;
        Some(Reserved { segment: Arc::clone(&newest.segment), chunk, offset })
    }

    /// Enters blocks that were written, if their chunk still exists.
    fn enter(&mut self, reserved: &Reserved, object: u64, first: u32, lengths: &[u32]) {
        let Some(number) = reserved.chunk.checked_sub(self.oldest) else { return };
        let Some(chunk) = self.chunks.get_mut(number as usize) else { return };
        let mut offset = reserved.offset;
        for (block, &length) in (first..).zip(lengths) {
            let name = (object, block);
            chunk.blocks.push(name);
            let place = Place { chunk: reserved.chunk, offset, length };
            let before = self.places.insert(name, place).map_or(0, |before| u64::from(before.length));
            self.held_bytes = self.held_bytes + u64::from(length) - before;
            offset += u64::from(length);
        }
    }

    /// Whether there may be another chunk.
    fn may_grow(&mut self, most: usize) -> bool {
        if self.limit < most {
            self.patience = self.patience.saturating_sub(1);
            if self.patience == 0 {
                self.limit = most;
            }
        }
        self.chunks.len() < self.limit
    }

    /// Notes that there is no memory for more chunks for a while.
    fn deny(&mut self) {
        (self.limit, self.patience) = (self.chunks.len(), PATIENCE);
    }

    /// Forgets what is in the oldest chunk. Returns its memory.
    fn forget_oldest(&mut self) -> Option<Arc<Segment>> {
        let chunk = self.chunks.pop_front()?;
        for name in chunk.blocks {
            if self.places.get(&name).is_some_and(|place| place.chunk == self.oldest) {
                self.held_bytes -= self.places.remove(&name).map_or(0, |place| u64::from(place.length));
            }
        }
        self.oldest += 1;
        Some(chunk.segment)
    }

    /// Forgets the older half. Returns its memory.
    fn halve(&mut self) -> Vec<Arc<Segment>> {
        let half = (0..self.chunks.len().div_ceil(2)).filter_map(|_| self.forget_oldest()).collect();
        self.deny();
        half
    }

    /// Forgets everything. Returns the memory.
    fn clear(&mut self) -> Vec<Arc<Segment>> {
        (0..self.chunks.len()).filter_map(|_| self.forget_oldest()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::Traffic;
    use forebay_fabric::sim::{SimNetwork, SimOptions, Time};
    use forebay_memory_client::{ClientOptions, MemoryClient};
    use forebay_memory_node::{Handle, MemoryNode};
    use std::time::Duration;

    const CHUNK_BYTES: u64 = LEAST_CHUNK_BYTES;
    /// Four blocks fill a chunk.
    const BLOCK_BYTES: u32 = CHUNK_BYTES as u32 / 4;

    struct World {
        network: SimNetwork,
        _nodes: Vec<Handle>,
        floor: Arc<MemoryFloor>,
    }

    fn start(nodes: u32, chunks: u64) -> World {
        let network = SimNetwork::new(1, SimOptions { time: Time::Real, ..SimOptions::default() });
        let memory_cache_bytes = chunks * CHUNK_BYTES;
        let options = Options { fabric_timeout: Duration::from_millis(50), memory_cache_bytes, ..Options::default() };
        let (mut handles, mut of_engine) = (Vec::new(), Vec::new());
        for number in 1..=nodes {
            let node = forebay_memory_node::Options::with_memory(8 << 20);
            let node = forebay_memory_node::Options { extent_bytes: Some(256 << 10), ..node };
            handles.push(MemoryNode::start(Box::new(network.listen(number).unwrap()), node).unwrap());
            let link = network.connect(number).unwrap();
            let client = MemoryClient::connect(link, "floor", ClientOptions::default()).unwrap();
            of_engine.push(Node::new(number as usize - 1, client, &options, None));
        }
        let floor = MemoryFloor::new(&of_engine, &options).unwrap().unwrap();
        World { network, _nodes: handles, floor }
    }

    fn bytes(object: u64, block: u32) -> Vec<u8> {
        (0..BLOCK_BYTES).map(|at| (u64::from(at) * 31 + object * 7 + u64::from(block)) as u8).collect()
    }

    impl World {
        fn keep(&self, object: u64, blocks: Range<u32>) {
            let stored: Vec<u8> = blocks.clone().flat_map(|block| bytes(object, block)).collect();
            self.floor.keep(object, blocks.start, &vec![BLOCK_BYTES; blocks.len()], &stored, Nanos::MAX);
        }

        fn brings(&self, object: u64, blocks: Range<u32>) -> bool {
            let stored = self.floor.bring(object, blocks.clone(), BLOCK_BYTES as usize * blocks.len());
            let is_there = stored.is_some();
            assert!(
                stored.is_none_or(|stored| stored == blocks.flat_map(|block| bytes(object, block)).collect::<Vec<_>>())
            );
            is_there
        }
    }

    #[test]
    fn what_is_kept_comes_back_with_one_read() {
        let world = start(1, 8);
        world.keep(1, 0..2);
        world.keep(1, 2..3);
        world.keep(2, 2..3);
        let link = Arc::clone(world.floor.nodes[0].memory_node().link());
        let reads = || link.counts(Traffic::Foreground).reads;
        let before = reads();
        assert!(world.brings(1, 0..3) && world.brings(2, 2..3));
        assert_eq!(reads() - before, 2);
        // Blocks that are missing, even in part, or have another length, are not returned.
        assert!(!world.brings(1, 0..4) && !world.brings(3, 0..1) && !world.brings(2, 1..3));
        assert!(world.floor.bring(1, 0..1, 8).is_none());
        // What is longer than a chunk is not kept.
        let long = vec![0; CHUNK_BYTES as usize + 1];
        world.floor.keep(4, 0, &[CHUNK_BYTES as u32 + 1], &long, Nanos::MAX);
        assert_eq!(lock(&world.floor.ring).chunks.len(), 1);
        assert_eq!(world.floor.held_bytes(), 4 * u64::from(BLOCK_BYTES));
    }

    #[test]
    fn the_oldest_is_forgotten_unless_it_is_read() {
        let world = start(1, 8);
        (0..16).for_each(|block| world.keep(1, block..block + 1));
        // The ring is half full: the first chunk is in its older half.
        assert!(world.brings(1, 0..1));
        (16..35).for_each(|block| world.keep(1, block..block + 1));
        let ring = lock(&world.floor.ring);
        let mut kept: Vec<u32> = ring.places.keys().map(|name| name.1).collect();
        kept.sort_unstable();
        assert_eq!(kept, [0].into_iter().chain(4..35).collect::<Vec<_>>());
        assert_eq!(ring.chunks.len(), 8);
    }

    #[test]
    fn half_goes_when_memory_is_needed_and_comes_back_later() {
        let world = start(2, 8);
        (0..32).for_each(|block| world.keep(1, block..block + 1));
        assert_eq!(lock(&world.floor.ring).chunks.len(), 8);
        world.floor.let_go();
        assert_eq!(lock(&world.floor.ring).chunks.len(), 4);
        assert!(!world.brings(1, 0..1) && world.brings(1, 31..32));
        (0..3).for_each(|_| world.floor.let_go());
        assert_eq!(world.floor.held_bytes(), 0);
        assert!(lock(&world.floor.ring).chunks.is_empty());
        world.keep(1, 0..1);
        assert!(!world.brings(1, 0..1));
        (0..PATIENCE).for_each(|_| world.keep(1, 0..1));
        assert!(world.brings(1, 0..1));
    }

    #[test]
    fn it_does_not_take_the_last_quarter_of_a_node() {
        let world = start(1, 1000);
        (0..1000).for_each(|block| world.keep(1, block..block + 1));
        let client = Arc::clone(world.floor.nodes[0].memory_node().client());
        let free = client.node_statistics().unwrap().free_extents;
        // Out of 32, without the headroom and what is kept for jobs.
        assert!((4..=8).contains(&free), "{free}");
        assert!(world.brings(1, 999..1000));
    }

    #[test]
    fn a_node_that_is_lost_costs_what_it_kept() {
        let world = start(2, 8);
        (0..32).for_each(|block| world.keep(1, block..block + 1));
        world.network.partition(1);
        assert!((0..32).any(|block| !world.brings(1, block..block + 1)));
        assert_eq!(world.floor.held_bytes(), 0);
        (0..64).for_each(|block| world.keep(2, block..block + 1));
        assert!((0..64).any(|block| world.brings(2, block..block + 1)), "the other node serves");
    }

    #[test]
    fn threads_share_it() {
        let world = start(1, 8);
        std::thread::scope(|scope| {
            for object in 1..4 {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..200u32 {
                        let block = round % 20;
                        if !world.brings(object, block..block + 1) {
                            world.keep(object, block..block + 1);
                        }
                    }
                });
            }
        });
        let ring = lock(&world.floor.ring);
        assert_eq!(ring.held_bytes, ring.places.values().map(|place| u64::from(place.length)).sum::<u64>());
    }
}
