//! A tree: created, opened, dropped; what its clients share.

use crate::cache::Cache;
use crate::layout::{Geometry, InnerSlot, MAX_BUCKETS, MAX_SLOTS, MIN_BUCKETS, inner_image};
use crate::memory::{
    Block, CURSOR_OFFSET, Class, Config, EXTENTS_OFFSET, Memory, NodeMemory, ROOT_OFFSET, SHARD, SUPERBLOCK, lease,
};
use crate::verbs::Verbs;
use crate::word::{Child, MAX_NODES};
use crate::{Error, TreeClient};
use forebay_env::sync::RwLock;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{EndpointOptions, Traffic};
use forebay_memory_client::{ExtentId, MemoryClient};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How a tree is cut, and how this process uses it.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Slots of a leaf's bucket, 2 to 15; a get reads 8 bytes and 16 a slot. For new trees.
    pub slots: usize,
    /// Buckets of a leaf before it is split, 2 to 12. For new trees.
    pub most_buckets: usize,
    /// How full a new leaf is at most, 30 to 80 percent. For new trees.
    pub fill_percent: usize,
    /// Memory for inner nodes that this process remembers, bytes.
    pub cache_bytes: usize,
    /// How long a one-sided operation may take.
    pub timeout: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Default for TreeOptions {
    /// Gets of 248 bytes, some 25 bytes of remote memory and 0.35 of local memory for a key and value
    /// of 8 bytes.
    fn default() -> Self {
        Self {
            slots: 15,
            most_buckets: 8,
            fill_percent: 67,
            cache_bytes: 256 << 20,
            timeout: Duration::from_secs(10),
            clock: SystemClock::shared(),
        }
    }
}

impl TreeOptions {
    /// Gets of 152 bytes, for some more remote and local memory.
    #[must_use]
    pub fn small_reads() -> Self {
        Self { slots: 9, most_buckets: 12, fill_percent: 60, ..Self::default() }
    }

    /// How leaves are cut.
    pub(crate) fn geometry(&self) -> Result<Geometry, Error> {
        let &Self { slots, most_buckets, fill_percent, .. } = self;
        let wrong = |what: &str| Err(Error::Invalid(what.into()));
        if !(2..=MAX_SLOTS).contains(&slots) {
            return wrong("a bucket has 2 to 15 slots");
        }
        if !(MIN_BUCKETS..=MAX_BUCKETS - 3).contains(&most_buckets) {
            return wrong("a leaf has at most 2 to 12 buckets");
        }
        if !(30..=80).contains(&fill_percent) || slots * most_buckets * fill_percent < 200 {
            return wrong("a new leaf is filled 30 to 80 percent, and holds at least two keys");
        }
        Ok(Geometry { slots, most_buckets, fill_percent })
    }
}

/// No reading epoch has begun.
const NO_EPOCH: u64 = u64::MAX;

/// An open tree. Each thread uses it through a [`TreeClient`] of its own.
#[derive(Debug)]
pub struct Tree {
    pub(crate) memory: Memory,
    pub(crate) options: TreeOptions,
    cache: RwLock<Cache>,
    /// The root's child word as it was last read; 0 before.
    root: AtomicU64,
    /// Its level.
    pub(crate) top: AtomicU64,
    next_node: AtomicU64,
    /// The reading epoch at node 0 since which the cache remembers.
    cache_epoch: AtomicU64,
    name: String,
}

impl Tree {
    /// Creates a tree of this name on the nodes of `clients`, which announce their reads
    /// ([`ClientOptions::foreign_reads`](forebay_memory_client::ClientOptions::foreign_reads)), and opens it.
    ///
    /// # Errors
    /// Of kind `AlreadyExists` when a node has a store of this name, `Full` when it has no memory.
    pub fn create(clients: &[Arc<MemoryClient>], name: &str, options: TreeOptions) -> Result<Arc<Self>, Error> {
        let geometry = options.geometry()?;
        check_clients(clients)?;
        let mut nodes = Vec::new();
        for (node, client) in clients.iter().enumerate() {
            let superblock = lease(client, &*options.clock)?;
            let config = Config { geometry, nodes: clients.len(), node, superblock };
            let store = match client.create_store(name, &config.encode()) {
                Ok(store) => store,
                Err(error) => {
                    client.return_extents(&[superblock])?;
                    return Err(error.into());
                }
            };
            store.share(SHARD, &[superblock])?;
            nodes.push(NodeMemory::new(Arc::clone(client), store, superblock));
        }
        let tree = Self::over(nodes, geometry, name, options);
        tree.client()?.format()?;
        Ok(tree)
    }

    /// Opens the tree of this name. The clients come in the order in which it was created.
    ///
    /// # Errors
    /// Of kind `NotFound` when there is none.
    pub fn open(clients: &[Arc<MemoryClient>], name: &str, options: TreeOptions) -> Result<Arc<Self>, Error> {
        check_clients(clients)?;
        let mut nodes = Vec::new();
        let mut geometry = None;
        for (node, client) in clients.iter().enumerate() {
            let store = client.open_store(name)?;
            let config = Config::decode(store.config())?;
            if config.nodes != clients.len() || config.node != node {
                let (number, place) = (config.nodes, config.node + 1);
                return Err(Error::Invalid(format!("the tree has {number} nodes, and this one is number {place}")));
            }
            geometry = Some(config.geometry);
            nodes.push(NodeMemory::new(Arc::clone(client), store, config.superblock));
        }
        let geometry = geometry.ok_or_else(|| Error::Invalid("a tree without nodes".into()))?;
        let tree = Self::over(nodes, geometry, name, options);
        tree.client()?.check_format()?;
        Ok(tree)
    }

    /// Drops the tree: frees its memory at all nodes. Nobody may use it any more.
    ///
    /// # Errors
    /// [`Error`].
    pub fn drop_tree(self: Arc<Self>) -> Result<(), Error> {
        for node in &self.memory.nodes {
            node.client.drop_store(node.store.id())?;
        }
        Ok(())
    }

    fn over(nodes: Vec<NodeMemory>, geometry: Geometry, name: &str, options: TreeOptions) -> Arc<Self> {
        let cache = RwLock::new(Cache::new(options.cache_bytes));
        Arc::new(Self {
            memory: Memory { nodes, geometry },
            options,
            cache,
            root: AtomicU64::new(0),
            top: AtomicU64::new(0),
            next_node: AtomicU64::new(0),
            cache_epoch: AtomicU64::new(NO_EPOCH),
            name: name.into(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client for one thread.
    ///
    /// # Errors
    /// Of kind `Unavailable` when a node is gone.
    pub fn client(self: &Arc<Self>) -> Result<TreeClient, Error> {
        let endpoint = |node: &NodeMemory| {
            let options = EndpointOptions {
                traffic: Traffic::Foreground,
                timeout: self.options.timeout,
                clock: Arc::clone(&self.options.clock),
            };
            node.client.link().endpoint(options)
        };
        let endpoints = self.memory.nodes.iter().map(endpoint).collect::<Result<_, _>>()?;
        let readers = self.memory.nodes.iter().map(|node| node.client.reader()).collect();
        Ok(TreeClient::new(Arc::clone(self), Verbs::new(endpoints), readers))
    }

    /// Bytes of memory that remembered inner nodes take.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cache_read().bytes()
    }

    /// Forgets all inner nodes.
    pub fn clear_cache(&self) {
        self.cache_write().clear();
        self.root.store(0, Ordering::Relaxed);
    }

    /// Whether the cache has remembered for more than `limit` reading epochs; from now on it has not.
    #[inline]
    pub(crate) fn is_cache_old(&self, epoch: u64, limit: u64) -> bool {
        let since = self.cache_epoch.load(Ordering::Relaxed);
        if since <= epoch && epoch - since <= limit {
            return false;
        }
        // What is remembered before the first epoch is known is no older than that.
        self.cache_epoch.compare_exchange(since, epoch, Ordering::Relaxed, Ordering::Relaxed).is_ok() && since < epoch
    }

    pub(crate) fn cache_read(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cache_write(&self) -> RwLockWriteGuard<'_, Cache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For tests: another process with this one's session, free blocks and cache.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn fork(&self) -> Arc<Self> {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
        let cache = RwLock::new(self.cache_read().clone());
        let nodes = self.memory.nodes.iter().map(NodeMemory::fork).collect();
        Arc::new(Self {
            memory: Memory { nodes, geometry: self.memory.geometry },
            options: self.options.clone(),
            cache,
            root: copy(&self.root),
            top: copy(&self.top),
            next_node: copy(&self.next_node),
            cache_epoch: copy(&self.cache_epoch),
            name: self.name.clone(),
        })
    }

    /// The node that the next node of the tree goes to.
    pub(crate) fn next_node(&self) -> usize {
        (self.next_node.fetch_add(1, Ordering::Relaxed) % self.memory.nodes.len().max(1) as u64) as usize
    }

    pub(crate) fn known_root(&self) -> Option<(Child, u8)> {
        let root = Child(self.root.load(Ordering::Relaxed));
        root.is_live().then(|| (root, self.top.load(Ordering::Relaxed) as u8))
    }

    /// Remembers the root. The level may be seen with another root: it is checked when a node is read.
    pub(crate) fn set_root(&self, root: Child, level: u8) {
        self.top.store(level.into(), Ordering::Relaxed);
        self.root.store(root.0, Ordering::Relaxed);
    }
}

fn check_clients(clients: &[Arc<MemoryClient>]) -> Result<(), Error> {
    if clients.is_empty() || clients.len() > MAX_NODES {
        return Err(Error::Invalid(format!("a tree lives on 1 to {MAX_NODES} nodes, not {}", clients.len())));
    }
    for client in clients {
        if !client.reads_foreign() {
            return Err(Error::Invalid("a tree's sessions announce their reads: set foreign_reads".into()));
        }
        // From now on nothing is used again that this session may read.
        client.renew()?;
    }
    Ok(())
}

impl TreeClient {
    /// Writes the superblocks of a new tree, and its first nodes.
    fn format(&mut self) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        for (node, memory) in tree.memory.nodes.iter().enumerate() {
            let first = u64::from(memory.superblock.0) + 1;
            self.write_words(node, tree.memory.superblock(node, EXTENTS_OFFSET)?, &[first])?;
            self.write_words(node, tree.memory.superblock(node, CURSOR_OFFSET)?, &[1])?;
        }
        let geometry = &tree.memory.geometry;
        let leaf = self.allocate(0, Class::Leaf(MIN_BUCKETS))?;
        let image = geometry.leaf_image(MIN_BUCKETS, leaf.generation, 0, std::iter::empty());
        self.write_block(leaf.at, &image)?;
        let child = Child::new(leaf.at, MIN_BUCKETS, leaf.generation);
        let root: Block = self.allocate(0, Class::Inner)?;
        self.write_block(
            root.at,
            &inner_image(1, root.generation, Child::EMPTY, &[InnerSlot { prefix: 0, rest: 0, child }]),
        )?;
        let child = Child::new(root.at, 0, root.generation);
        self.write_words(0, tree.memory.superblock(0, ROOT_OFFSET)?, &[child.0])?;
        for node in 0..tree.memory.nodes.len() {
            self.write_words(node, tree.memory.superblock(node, 0)?, &[SUPERBLOCK])?;
        }
        Ok(())
    }

    fn check_format(&mut self) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        for node in 0..tree.memory.nodes.len() {
            if self.read_word(node, tree.memory.superblock(node, 0)?)? != SUPERBLOCK {
                return Err(Error::corrupt(format!("node {node} has no superblock of this version: drop the tree")));
            }
        }
        Ok(())
    }

    /// The extent with this index in the list of a node.
    pub(crate) fn listed_extent(&mut self, node: usize, index: u64) -> Result<Option<ExtentId>, Error> {
        let at = self.tree().memory.superblock(node, EXTENTS_OFFSET + index * 8)?;
        let word = self.read_word(node, at)?;
        Ok(u32::try_from(word).ok().and_then(|number| number.checked_sub(1)).map(ExtentId))
    }
}
