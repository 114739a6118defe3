//! The tree's memory: superblocks, chunks, and what this process holds of it. See `docs/formats/tree.md`.
//!
//! Each node of the tree has a store of the tree's name with one shared shard. The first chunk of
//! its first extent is its superblock; the others are handed out by fetch-and-add on the cursor.
//! A chunk holds blocks of one class for ever. So a late fetch-and-add by a client that still uses a node that
//! is gone hits a control word.
//!
//! ```text
//! superblock   0  SUPERBLOCK | 8 child word of the root | 16 cursor: extent's index 32 | chunk 32
//!             24  round
//!           1024  shelves: stacks of free blocks, and chunks that are being cut up
//!           4096  extents, each its number + 1
//! chunk        0  class 32 | 0 32 | 8 session that took it
//!             64  blocks
//! ```
//!
//! A block that nobody can reach any more is *retired*: first its generation is wiped, if it has one; then it
//! waits until every session has ended the reads that it had begun before. A reader that began before the block
//! was retired is safe, because nobody uses the block again until the reader ends. A reader that began later
//! finds no generation there. It waits in remote memory: see [`stacks`](crate::stacks). A process keeps at most
//! a batch of free blocks of a class, and less than a batch of retired ones.

use crate::class::{Block, CHUNK_BYTES, Class, Cut, MOST_IN_BATCH};
use crate::layout::Geometry;
use crate::word::{Address, MAX_EXTENT};
use crate::{Error, TreeOptions};
use forebay_base::ErrorKind;
use forebay_env::Clock;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::RemoteAddress;
use forebay_memory_client::{ExtentId, MemoryClient, Purpose, ShardId, ShardKey, StoreHandle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// First word of a superblock: "fb-tree" and the version.
pub const SUPERBLOCK: u64 = u64::from_le_bytes(*b"fb-tree\x04");
/// Offset of the root's child word in the superblock of node 0.
pub const ROOT_OFFSET: u64 = 8;
/// Offset of the cursor.
pub const CURSOR_OFFSET: u64 = 16;
/// Offset of the list of extents.
pub const EXTENTS_OFFSET: u64 = 4096;
/// Most extents of a tree at a node.
pub const MAX_EXTENTS: u64 = (CHUNK_BYTES - EXTENTS_OFFSET) / 8;
/// How often, and how long, a lease waits for memory that is being cleaned.
const LEASE_ATTEMPTS: u32 = 2000;
const LEASE_PAUSE: Duration = Duration::from_millis(2);
/// Pause after the lease of an extent that a tree cannot address. It was returned, and nobody has it until it is clean.
const BEYOND_PAUSE: Duration = Duration::from_secs(1);
/// The shard of each store.
const SHARD: ShardId = ShardId(0);
/// Length of a store's configuration.
const CONFIG_BYTES: usize = 12;
const CONFIG_VERSION: u8 = 1;

/// Blocks of a class that only this process knows.
#[derive(Debug, Clone, Default)]
struct Stock {
    /// Blocks that may be used: at most a batch.
    free: Vec<Block>,
    /// Retired or surplus blocks. Handed over once they fill a batch.
    retired: Vec<Block>,
}

/// Blocks of a node that only this process knows.
#[derive(Debug, Clone, Default)]
struct Blocks {
    of: BTreeMap<Class, Stock>,
    /// Blocks retired while no memory was left for a list, each with the reading epoch that must pass, once that is
    /// known.
    held: Vec<(Option<u64>, Block)>,
    /// Bytes handed over, or taken in new chunks, since the readers were last asked for their progress.
    moved_bytes: u64,
}

impl Blocks {
    /// Adds blocks that may be used. Blocks beyond a batch become ones to hand over. Returns whether there are any.
    fn add(&mut self, blocks: impl IntoIterator<Item = Block>, cut: &Cut) -> bool {
        let mut is_much = false;
        for block in blocks {
            let in_batch = cut.in_batch(block.class);
            let Stock { free, retired } = self.of.entry(block.class).or_default();
            if free.len() < in_batch { free } else { &mut *retired }.push(block);
            is_much |= retired.len() >= in_batch;
        }
        is_much
    }
}

/// The tree's memory at a node.
#[derive(Debug)]
pub struct NodeMemory {
    pub client: Arc<MemoryClient>,
    pub store: StoreHandle,
    pub superblock: ExtentId,
    blocks: Mutex<Blocks>,
    /// Extents that this tree has mapped, one bit each.
    mapped: Box<[AtomicU64]>,
    /// Held while extents are leased.
    pub growing: Mutex<()>,
    /// Until then the node is not asked for extents, because it had only ones that a tree cannot address.
    beyond_until: AtomicU64,
    /// The answer that a test gives for the readers.
    #[cfg(feature = "planted")]
    answer: Mutex<Option<(u64, u64)>>,
}

/// The tree's memory.
#[derive(Debug)]
pub struct Memory {
    pub nodes: Vec<NodeMemory>,
    pub cut: Cut,
}

/// What all users of a tree agree on, as each store's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub geometry: Geometry,
    pub nodes: usize,
    /// The index of this node among the tree's nodes.
    pub node: usize,
    pub superblock: ExtentId,
}

impl Config {
    pub fn encode(&self) -> [u8; CONFIG_BYTES] {
        let Geometry { slots, most_buckets, fill_percent } = self.geometry;
        let [a, b, c, d] = self.superblock.0.to_le_bytes();
        let [nodes, node] = [self.nodes as u8, self.node as u8];
        [CONFIG_VERSION, slots as u8, most_buckets as u8, fill_percent as u8, nodes, node, 0, 0, a, b, c, d]
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let &[version, slots, most_buckets, fill, nodes, node, 0, 0, a, b, c, d] = bytes else {
            return Err(Error::Invalid("the store of this name is no tree".into()));
        };
        if version != CONFIG_VERSION {
            return Err(Error::Invalid(format!("the tree has version {version}, this program knows {CONFIG_VERSION}")));
        }
        let options = TreeOptions {
            slots: slots.into(),
            most_buckets: most_buckets.into(),
            fill_percent: fill.into(),
            ..TreeOptions::default()
        };
        let superblock = ExtentId(u32::from_le_bytes([a, b, c, d]));
        Ok(Self { geometry: options.geometry()?, nodes: nodes.into(), node: node.into(), superblock })
    }
}

/// Leases an extent, waiting for some that are being cleaned. `None` when the node has none that a tree can address.
pub fn lease(client: &MemoryClient, clock: &dyn Clock) -> Result<Option<ExtentId>, Error> {
    for _ in 0..LEASE_ATTEMPTS {
        match client.lease(1, Purpose::Flush) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                // The node may be waiting for this session's announcement.
                client.renew()?;
                clock.sleep(LEASE_PAUSE);
            }
            leased => {
                let full = forebay_memory_client::Error::Full;
                let extent = leased?.first().copied().ok_or_else(|| full("nothing was granted".into()))?;
                if extent.0 < MAX_EXTENT {
                    return Ok(Some(extent));
                }
                client.return_extents(&[extent])?;
                return Ok(None);
            }
        }
    }
    Err(forebay_memory_client::Error::Full("freed memory does not get clean: somebody still reads it".into()).into())
}

/// What a node says that has only extents which a tree cannot address.
pub fn beyond() -> Error {
    forebay_memory_client::Error::Full(format!("of a node's extents, a tree uses the first {MAX_EXTENT}")).into()
}

impl NodeMemory {
    pub fn new(client: Arc<MemoryClient>, store: StoreHandle, superblock: ExtentId) -> Self {
        Self {
            client,
            store,
            superblock,
            mapped: (0..MAX_EXTENT / 64).map(|_| AtomicU64::new(0)).collect(),
            blocks: Mutex::default(),
            growing: Mutex::default(),
            beyond_until: AtomicU64::default(),
            #[cfg(feature = "planted")]
            answer: Mutex::default(),
        }
    }

    fn shard(&self) -> ShardKey {
        ShardKey { store: self.store.id(), shard: SHARD }
    }

    /// The remote address of a byte of an extent; maps the extent at first use.
    #[inline]
    pub fn resolve(&self, extent: ExtentId, offset: u64) -> Result<RemoteAddress, Error> {
        let bit = 1 << (extent.0 % 64);
        let word = self.mapped.get(extent.0 as usize / 64).ok_or_else(|| Error::corrupt(format!("{extent}")))?;
        if word.load(Ordering::Relaxed) & bit == 0 {
            // The session may know a key of an earlier store, so it asks for a new one.
            self.client.map(self.shard(), &[extent])?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(self.client.resolve(extent, offset)?)
    }

    /// Leases an extent and shares it.
    pub fn lease(&self, clock: &dyn Clock) -> Result<ExtentId, Error> {
        if clock.now() < self.beyond_until.load(Ordering::Relaxed) {
            return Err(beyond());
        }
        let Some(extent) = lease(&self.client, clock)? else {
            self.beyond_until.store(clock.now() + BEYOND_PAUSE.as_nanos() as u64, Ordering::Relaxed);
            return Err(beyond());
        };
        self.share(extent)?;
        Ok(extent)
    }

    /// Shares a leased extent, or returns it.
    pub fn share(&self, extent: ExtentId) -> Result<(), Error> {
        self.store.share(SHARD, &[extent]).map_err(|error| {
            // The node takes back only what it has not shared.
            let _ = self.client.return_extents(&[extent]);
            error.into()
        })
    }

    /// Takes a block that is free here.
    pub fn take(&self, class: Class) -> Option<Block> {
        lock(&self.blocks).of.get_mut(&class)?.free.pop()
    }

    /// Adds blocks that this process may use. Returns whether some must be handed over.
    pub fn add(&self, blocks: impl IntoIterator<Item = Block>, cut: &Cut) -> bool {
        lock(&self.blocks).add(blocks, cut)
    }

    /// Gives back a block that nobody else ever knew. So its generation can be used: only epochs use up generations.
    pub fn give_back(&self, block: Block, cut: &Cut) {
        self.add([block], cut);
    }

    /// Retires a block that cannot be reached any more, and whose generation is wiped already.
    pub fn retire(&self, block: Block) {
        lock(&self.blocks).of.entry(block.class).or_default().retired.push(block.next());
    }

    /// Takes blocks to hand over, if there is a batch of a class. If `all`, fewer also suffice, except of lists, because
    /// handing over needs some.
    pub fn take_batch(&self, all: bool, cut: &Cut) -> Option<Vec<Block>> {
        let mut blocks = lock(&self.blocks);
        let least = |class: Class| if all && class != Class::List { 1 } else { cut.in_batch(class) };
        let (class, stock) = blocks.of.iter_mut().find(|(class, stock)| stock.retired.len() >= least(**class))?;
        let count = cut.in_batch(*class).min(stock.retired.len());
        let batch: Vec<Block> = stock.retired.drain(..count).collect();
        let bytes = class.bytes(&cut.geometry) * count as u64;
        blocks.moved_bytes += bytes;
        Some(batch)
    }

    /// Takes back blocks that could not be handed over.
    pub fn take_back(&self, batch: Vec<Block>) {
        if let Some(first) = batch.first() {
            lock(&self.blocks).of.entry(first.class).or_default().retired.extend(batch);
        }
    }

    /// Marks all usable blocks to be handed over, except lists, because handing over needs some.
    pub fn retire_free(&self) {
        for (_, stock) in lock(&self.blocks).of.iter_mut().filter(|(class, _)| **class != Class::List) {
            stock.retired.append(&mut stock.free);
        }
    }

    /// Takes lists, but leaves a usable one, which becomes the list of the taken ones.
    pub fn take_lists(&self) -> Option<Vec<Block>> {
        let mut blocks = lock(&self.blocks);
        let Stock { free, retired } = blocks.of.get_mut(&Class::List)?;
        retired.extend(free.drain(free.len().min(1)..));
        let count = retired.len().min(MOST_IN_BATCH);
        (count > 0).then(|| retired.drain(..count).collect())
    }

    /// Keeps blocks that cannot be handed over until nobody reads them any more.
    pub fn hold(&self, batch: Vec<Block>) {
        lock(&self.blocks).held.extend(batch.into_iter().map(|block| (None, block)));
    }

    /// Bytes that were handed over, or taken in new chunks, since [`NodeMemory::pass_readers`].
    pub fn moved_bytes(&self) -> u64 {
        lock(&self.blocks).moved_bytes
    }

    /// Counts bytes of a new chunk.
    pub fn count_moved(&self, bytes: u64) {
        lock(&self.blocks).moved_bytes += bytes;
    }

    fn ask_readers(&self) -> Result<(u64, u64), Error> {
        #[cfg(feature = "planted")]
        if let Some(answer) = *lock(&self.answer) {
            return Ok(answer);
        }
        Ok(self.client.pass_readers()?)
    }

    /// Asks the readers for their progress. Returns the reading epoch that ended, and the oldest in which anybody
    /// reads.
    pub fn pass_readers(&self) -> Result<(u64, u64), Error> {
        let mut held = std::mem::take(&mut lock(&self.blocks).held);
        let passed = self.ask_readers();
        let mut blocks = lock(&self.blocks);
        if let Ok((ended, oldest)) = passed {
            blocks.moved_bytes = 0;
            held.iter_mut().for_each(|(epoch, _)| *epoch = epoch.or(Some(ended)));
            let is_read = |epoch: Option<u64>| epoch.is_none_or(|epoch| epoch >= oldest);
            let free: Vec<Block> = held.iter().filter(|(epoch, _)| !is_read(*epoch)).map(|&(_, block)| block).collect();
            held.retain(|&(epoch, _)| is_read(epoch));
            // There may be more than a batch: they are used before they are handed over.
            free.into_iter().for_each(|block| blocks.of.entry(block.class).or_default().free.push(block));
        }
        blocks.held.extend(held);
        passed
    }
}

#[cfg(feature = "planted")]
impl NodeMemory {
    /// See [`Tree::fork`](crate::Tree::fork).
    pub fn fork(&self) -> Self {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self {
            client: Arc::clone(&self.client),
            store: self.store.clone(),
            superblock: self.superblock,
            blocks: Mutex::new(lock(&self.blocks).clone()),
            mapped: self.mapped.iter().map(copy).collect(),
            growing: Mutex::default(),
            beyond_until: AtomicU64::default(),
            answer: Mutex::new(*lock(&self.answer)),
        }
    }

    /// Makes the readers answer this from now on.
    pub fn answer_for_readers(&self, answer: (u64, u64)) {
        *lock(&self.answer) = Some(answer);
    }

    /// Takes blocks of a class, retired ones first.
    pub fn take_of(&self, class: Class, count: usize) -> Vec<Block> {
        let mut blocks = lock(&self.blocks);
        let Some(Stock { free, retired }) = blocks.of.get_mut(&class) else { return Vec::new() };
        let of = |stock: &mut Vec<Block>, count: usize| stock.drain(..count.min(stock.len())).collect::<Vec<_>>();
        let mut taken = of(retired, count);
        taken.extend(of(free, count - taken.len()));
        taken
    }

    /// The blocks that this process has here.
    pub fn stock(&self) -> Vec<crate::class::BlockName> {
        let blocks = lock(&self.blocks);
        let stocks = blocks.of.values().flat_map(|stock| stock.free.iter().chain(&stock.retired));
        stocks.chain(blocks.held.iter().map(|(_, block)| block)).map(|block| block.name()).collect()
    }
}

impl Memory {
    pub fn node(&self, node: usize) -> Result<&NodeMemory, Error> {
        self.nodes.get(node).ok_or_else(|| Error::corrupt(format!("an address at node {node} of {}", self.nodes.len())))
    }

    /// The remote address of `offset` bytes into what is at an address.
    #[inline]
    pub fn resolve(&self, at: Address, offset: usize) -> Result<RemoteAddress, Error> {
        self.node(at.node())?.resolve(at.extent(), at.offset() + offset as u64)
    }

    /// The remote address of a superblock's byte.
    pub fn superblock(&self, node: usize, offset: u64) -> Result<RemoteAddress, Error> {
        let memory = self.node(node)?;
        memory.resolve(memory.superblock, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_config() {
        let geometry = TreeOptions::default().geometry().unwrap();
        let config = Config { geometry, nodes: 2, node: 1, superblock: ExtentId(0x0102) };
        assert_eq!(config.encode(), [1, 15, 8, 67, 2, 1, 0, 0, 2, 1, 0, 0]);
        assert_eq!(Config::decode(&config.encode()), Ok(config));
        assert!(Config::decode(&[]).is_err() && Config::decode(&[2; 12]).is_err());
    }
}
