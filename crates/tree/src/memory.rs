//! The tree's memory: superblocks, chunks, blocks of fixed sizes, and when a block is used again. See
//! `docs/formats/tree.md`.
//!
//! Each node of the tree has a store of the tree's name with one shared shard. The first chunk of
//! its first extent is its superblock; the others are handed out by fetch-and-add on the cursor.
//! A chunk holds blocks of one class for ever, so that a late fetch-and-add of a client that still
//! believes in a node that is gone finds a control word.
//!
//! ```text
//! superblock   0  SUPERBLOCK | 8 child word of the root | 16 cursor: extent's index 32 | chunk 32
//!           4096  extents, each its number + 1
//! chunk        0  class 32 | 0 32 | 8 session that took it
//!             64  blocks
//! ```
//!
//! A block that nobody can reach any more is *retired*: first its generation is wiped, if it has one,
//! then it waits until every session has ended the reads that it had begun before. So a reader either
//! began before the block was retired, and then nobody uses it again until the reader ends, or it
//! began after, and then finds no generation there.

use crate::key::SEEDS;
use crate::layout::{Geometry, INNER_BYTES, MAX_BUCKETS, rounded};
use crate::word::{Address, MAX_EXTENT, MAX_GENERATION, UNIT_BYTES};
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

/// Bytes of a chunk.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// First word of a superblock: "fb-tree" and the version.
pub const SUPERBLOCK: u64 = u64::from_le_bytes(*b"fb-tree\x02");
/// Offset of the root's child word in the superblock of node 0.
pub const ROOT_OFFSET: u64 = 8;
/// Offset of the cursor.
pub const CURSOR_OFFSET: u64 = 16;
/// Offset of the list of extents.
pub const EXTENTS_OFFSET: u64 = 4096;
/// Extents of a tree at a node at most.
pub const MAX_EXTENTS: u64 = (CHUNK_BYTES - EXTENTS_OFFSET) / 8;
/// How often, and how long, a lease waits for memory that is being cleaned.
const LEASE_ATTEMPTS: u32 = 2000;
const LEASE_PAUSE: Duration = Duration::from_millis(2);
const CHUNK_HEADER_BYTES: u64 = UNIT_BYTES;
/// The shard of each store.
pub const SHARD: ShardId = ShardId(0);
/// Length of a store's configuration.
const CONFIG_BYTES: usize = 12;
const CONFIG_VERSION: u8 = 1;

/// What blocks of a size are for. Blocks of a class never become another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A leaf of so many buckets.
    Leaf(usize),
    Inner,
    /// Value words of a leaf that is being replaced.
    Staging,
    /// A block of `64 << n` bytes.
    Block(u32),
    /// A block of so many whole chunks.
    Large(u64),
}

impl Class {
    const BLOCKS: u32 = 10;

    /// The class of a block of this length.
    pub fn of_block(bytes: usize) -> Self {
        let power = bytes.div_ceil(64).next_power_of_two().trailing_zeros();
        if power < Self::BLOCKS {
            Self::Block(power)
        } else {
            Self::Large((bytes as u64 + CHUNK_HEADER_BYTES).div_ceil(CHUNK_BYTES))
        }
    }

    pub fn bytes(self, geometry: &Geometry) -> u64 {
        match self {
            Self::Leaf(buckets) => rounded(geometry.leaf_bytes(buckets)) as u64,
            Self::Inner => rounded(INNER_BYTES) as u64,
            Self::Staging => rounded(MAX_BUCKETS * geometry.slots * 8) as u64,
            Self::Block(power) => 64 << power,
            Self::Large(chunks) => chunks * CHUNK_BYTES,
        }
    }

    /// Its number in a chunk's header.
    pub fn number(self) -> u64 {
        match self {
            Self::Leaf(buckets) => buckets as u64,
            Self::Inner => 32,
            Self::Staging => 33,
            Self::Block(power) => 64 + u64::from(power),
            Self::Large(chunks) => 128 + chunks,
        }
    }

    /// The class with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1..=15 => Self::Leaf(number as usize),
            32 => Self::Inner,
            33 => Self::Staging,
            64..74 => Self::Block(number as u32 - 64),
            129.. => Self::Large(number - 128),
            _ => return None,
        })
    }
}

/// A block, free or in use, and its generation if it is a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub class: Class,
    pub at: Address,
    pub generation: u32,
}

impl Block {
    /// The block with its next generation whose hash function is this one.
    pub fn seeded(self, seed: u32) -> Self {
        let later = std::iter::successors(Some(self.generation), |&generation| Some(next_generation(generation)));
        let seeded = later.take(2 * SEEDS as usize).find(|generation| generation % SEEDS == seed);
        Self { generation: seeded.unwrap_or(self.generation), ..self }
    }
}

/// The generation after this one.
pub const fn next_generation(generation: u32) -> u32 {
    if generation >= MAX_GENERATION { 1 } else { generation + 1 }
}

/// Blocks of a node that this process may use.
#[derive(Debug, Clone, Default)]
struct Blocks {
    free: BTreeMap<Class, Vec<Block>>,
    /// What is left of the last chunk of a class: next block, blocks left.
    begun: BTreeMap<Class, (Address, u64)>,
    /// Retired since the last new reading epoch.
    retired: Vec<Block>,
    retired_bytes: u64,
    /// Retired before: the reading epoch that must have passed.
    waiting: Vec<(u64, Block)>,
}

impl Blocks {
    fn take(&mut self, class: Class, geometry: &Geometry) -> Option<Block> {
        let free = self.free.get_mut(&class).and_then(Vec::pop);
        free.or_else(|| self.take_begun(class, geometry))
    }

    fn take_begun(&mut self, class: Class, geometry: &Geometry) -> Option<Block> {
        let (next, left) = self.begun.get_mut(&class).filter(|(_, left)| *left > 0)?;
        let block = Block { class, at: *next, generation: 1 };
        *next = Address::from_bits(next.bits() + class.bytes(geometry) / UNIT_BYTES);
        *left -= 1;
        Some(block)
    }

    fn add_chunk(&mut self, class: Class, at: Address, geometry: &Geometry) {
        let first = Address::from_bits(at.bits() + CHUNK_HEADER_BYTES / UNIT_BYTES);
        let count = match class {
            Class::Large(_) => 1,
            _ => (CHUNK_BYTES - CHUNK_HEADER_BYTES) / class.bytes(geometry),
        };
        // Two threads may have taken a chunk at once.
        let rest = std::iter::from_fn(|| self.take_begun(class, geometry)).collect::<Vec<_>>();
        self.free.entry(class).or_default().extend(rest);
        self.begun.insert(class, (first, count));
    }
}

/// The tree's memory at a node.
#[derive(Debug)]
pub struct NodeMemory {
    pub client: Arc<MemoryClient>,
    pub store: StoreHandle,
    pub superblock: ExtentId,
    blocks: Mutex<Blocks>,
    /// Extents that this tree has mapped, one a bit.
    mapped: Box<[AtomicU64]>,
    /// Held while extents are leased.
    pub growing: Mutex<()>,
}

/// The tree's memory.
#[derive(Debug)]
pub struct Memory {
    pub nodes: Vec<NodeMemory>,
    pub geometry: Geometry,
}

/// What all users of a tree agree on, as each store's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub geometry: Geometry,
    pub nodes: usize,
    /// Which of the nodes this is.
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

/// Leases an extent, waiting for some that are being cleaned.
pub fn lease(client: &MemoryClient, clock: &dyn Clock) -> Result<ExtentId, Error> {
    for _ in 0..LEASE_ATTEMPTS {
        match client.lease(1, Purpose::Flush) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                // What this session announces may be what the node waits for.
                client.renew()?;
                clock.sleep(LEASE_PAUSE);
            }
            leased => {
                let full = || forebay_memory_client::Error::Full("nothing was granted".into());
                return Ok(leased?.first().copied().ok_or_else(full)?);
            }
        }
    }
    Err(forebay_memory_client::Error::Full("freed memory does not get clean: somebody still reads it".into()).into())
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
            // The session may know a key of an earlier store: it is asked for anew.
            self.client.map(self.shard(), &[extent])?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(self.client.resolve(extent, offset)?)
    }

    /// Leases an extent and shares it.
    pub fn lease(&self, clock: &dyn Clock) -> Result<ExtentId, Error> {
        let extent = lease(&self.client, clock)?;
        self.store.share(SHARD, &[extent])?;
        Ok(extent)
    }

    /// A block that is free here.
    pub fn take(&self, class: Class, geometry: &Geometry) -> Option<Block> {
        lock(&self.blocks).take(class, geometry)
    }

    /// Takes in chunks that belong to this process now.
    pub fn add_chunks(&self, class: Class, at: Address, geometry: &Geometry) {
        lock(&self.blocks).add_chunk(class, at, geometry);
    }

    /// Gives back a block that nobody else ever knew.
    pub fn give_back(&self, block: Block) {
        let generation = next_generation(block.generation);
        lock(&self.blocks).free.entry(block.class).or_default().push(Block { generation, ..block });
    }

    /// Retires a block that cannot be reached any more. Its generation is wiped already.
    pub fn retire(&self, block: Block, geometry: &Geometry) {
        let bytes = block.class.bytes(geometry);
        let mut blocks = lock(&self.blocks);
        blocks.retired.push(block);
        blocks.retired_bytes += bytes;
    }

    /// Bytes that were retired since the last [`NodeMemory::reclaim`].
    pub fn retired_bytes(&self) -> u64 {
        lock(&self.blocks).retired_bytes
    }

    /// Lets the readers pass: makes free what nobody reads any more.
    pub fn reclaim(&self) -> Result<(), Error> {
        let retired = {
            let mut blocks = lock(&self.blocks);
            blocks.retired_bytes = 0;
            std::mem::take(&mut blocks.retired)
        };
        let passed = self.client.pass_readers();
        let mut blocks = lock(&self.blocks);
        let (ended, oldest) = match passed {
            Ok(passed) => passed,
            Err(error) => {
                blocks.retired.extend(retired);
                return Err(error.into());
            }
        };
        blocks.waiting.extend(retired.into_iter().map(|block| (ended, block)));
        let Blocks { waiting, free, .. } = &mut *blocks;
        waiting.retain(|&(epoch, block)| {
            let passed = epoch < oldest;
            if passed {
                let generation = next_generation(block.generation);
                free.entry(block.class).or_default().push(Block { generation, ..block });
            }
            !passed
        });
        Ok(())
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
        }
    }

    /// Adds what this process has here.
    pub fn count_stock(&self, geometry: &Geometry, stock: &mut crate::Stock) {
        let blocks = lock(&self.blocks);
        let waiting = blocks.waiting.iter().map(|(_, block)| block);
        let all = blocks.free.values().flatten().chain(&blocks.retired).chain(waiting);
        stock.blocks.extend(all.map(|block| (block.class.number(), block.at.bits())));
        let begun = blocks.begun.iter();
        stock.begun.extend(
            begun.map(|(class, &(next, left))| {
                ((class.number(), next.bits()), left, class.bytes(geometry) / UNIT_BYTES)
            }),
        );
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
    fn classes() {
        assert_eq!(Class::of_block(1), Class::Block(0));
        assert_eq!(Class::of_block(65), Class::Block(1));
        assert_eq!(Class::of_block(32 << 10), Class::Block(9));
        assert_eq!(Class::of_block((32 << 10) + 1), Class::Large(1));
        assert_eq!(Class::of_block(200_000), Class::Large(4));
        assert_eq!(Class::of_block(65_500), Class::Large(2));
        for number in 0..200 {
            assert!(Class::from_number(number).is_none_or(|class| class.number() == number));
        }
        assert_eq!(next_generation(MAX_GENERATION), 1);
        for generation in (1..20).chain(MAX_GENERATION - 20..=MAX_GENERATION) {
            for seed in 0..SEEDS {
                let block = Block { class: Class::Leaf(2), at: Address::default(), generation }.seeded(seed);
                let steps = (block.generation + MAX_GENERATION - generation) % MAX_GENERATION;
                assert!(block.generation > 0 && block.generation % SEEDS == seed && steps < 2 * SEEDS, "{block:?}");
            }
        }
    }

    #[test]
    fn chunks_that_two_threads_take_at_once_are_both_used() {
        let geometry = TreeOptions::default().geometry().unwrap();
        let mut blocks = Blocks::default();
        let (first, second) = (Address::from_bits(1 << 10), Address::from_bits(2 << 10));
        blocks.add_chunk(Class::Inner, first, &geometry);
        blocks.add_chunk(Class::Inner, second, &geometry);
        let count = 2 * (CHUNK_BYTES - CHUNK_HEADER_BYTES) / Class::Inner.bytes(&geometry);
        let mut found: Vec<_> =
            std::iter::from_fn(|| blocks.take(Class::Inner, &geometry)).map(|block| block.at).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len() as u64, count);
    }

    #[test]
    fn golden_config() {
        let geometry = TreeOptions::default().geometry().unwrap();
        let config = Config { geometry, nodes: 2, node: 1, superblock: ExtentId(0x0102) };
        assert_eq!(config.encode(), [1, 15, 8, 67, 2, 1, 0, 0, 2, 1, 0, 0]);
        assert_eq!(Config::decode(&config.encode()), Ok(config));
        assert!(Config::decode(&[]).is_err() && Config::decode(&[2; 12]).is_err());
    }
}
