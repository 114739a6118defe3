//! The state that the clients of a tree in one process share.

use crate::TreeOptions;
use crate::cache::Cache;
use crate::class::{CHUNK_BYTES, CHUNK_HEADER_BYTES, Cut, chunks_in};
use crate::layout::{BLOCK_HEADER_BYTES, Geometry};
use crate::memory::{Memory, NodeMemory};
use crate::word::Child;
use forebay_env::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// No reading epoch has begun.
const NO_EPOCH: u64 = u64::MAX;

/// An open tree. Each thread uses it through a [`TreeClient`](crate::TreeClient) of its own.
#[derive(Debug)]
pub struct Tree {
    pub(crate) memory: Memory,
    pub(crate) options: TreeOptions,
    cache: RwLock<Cache>,
    /// The root's child word as last read; 0 before the first read.
    root: AtomicU64,
    /// Its level.
    pub(crate) top: AtomicU64,
    next_node: AtomicU64,
    /// For each node, the reading epoch since which the cache has been filled.
    cache_epochs: Box<[AtomicU64]>,
    /// Clients of this process.
    clients: AtomicU64,
    name: String,
}

impl Tree {
    pub(crate) fn over(nodes: Vec<NodeMemory>, geometry: Geometry, name: &str, options: TreeOptions) -> Arc<Self> {
        let cache = RwLock::new(Cache::new(options.cache_bytes));
        let cut = Cut { geometry, batch_bytes: options.batch_bytes };
        let cache_epochs = nodes.iter().map(|_| AtomicU64::new(NO_EPOCH)).collect();
        Arc::new(Self {
            memory: Memory { nodes, cut },
            options,
            cache,
            root: AtomicU64::new(0),
            top: AtomicU64::new(0),
            next_node: AtomicU64::new(0),
            cache_epochs,
            clients: AtomicU64::new(0),
            name: name.into(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Most bytes of a key and its value together: what a block at any of the nodes holds, and what is read or written
    /// there at once.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        let most = |node: &NodeMemory| {
            let chunks = chunks_in(node.client.extent_bytes()).saturating_sub(1);
            let in_extent = (chunks * CHUNK_BYTES).saturating_sub(CHUNK_HEADER_BYTES);
            let at_once = node.client.link().capabilities().max_operation_bytes as u64;
            in_extent.min(at_once).saturating_sub(BLOCK_HEADER_BYTES as u64)
        };
        self.memory.nodes.iter().map(most).min().unwrap_or(0)
    }

    /// Bytes of memory that cached inner nodes take.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cache_read().bytes()
    }

    /// Forgets all inner nodes.
    pub fn clear_cache(&self) {
        self.cache_write().clear();
        self.root.store(0, Ordering::Relaxed);
    }

    /// Whether the cache is older than `limit` reading epochs of a node. If so, its age starts again.
    #[inline]
    pub(crate) fn is_cache_old(&self, node: usize, epoch: u64, limit: u64) -> bool {
        let Some(cache_epoch) = self.cache_epochs.get(node) else { return false };
        let since = cache_epoch.load(Ordering::Relaxed);
        if since <= epoch && epoch - since <= limit {
            return false;
        }
        // Content cached before the first epoch is known is no older than that epoch.
        cache_epoch.compare_exchange(since, epoch, Ordering::Relaxed, Ordering::Relaxed).is_ok() && since < epoch
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
            memory: Memory { nodes, cut: self.memory.cut },
            options: self.options.clone(),
            cache,
            root: copy(&self.root),
            top: copy(&self.top),
            next_node: copy(&self.next_node),
            cache_epochs: self.cache_epochs.iter().map(copy).collect(),
            // Its clients never count as the last: tests look at its stock after they have ended.
            clients: AtomicU64::new(1),
            name: self.name.clone(),
        })
    }

    pub(crate) fn add_client(&self) {
        self.clients.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one client less. Returns whether it was the last one.
    pub(crate) fn remove_client(&self) -> bool {
        self.clients.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The memory node for the next node of the tree.
    pub(crate) fn next_node(&self) -> usize {
        self.node_of_turn(self.next_node.fetch_add(1, Ordering::Relaxed))
    }

    /// The memory node for the tree node that will be made after `behind` others.
    pub(crate) fn upcoming_node(&self, behind: usize) -> usize {
        self.node_of_turn(self.next_node.load(Ordering::Relaxed) + behind as u64)
    }

    fn node_of_turn(&self, turn: u64) -> usize {
        (turn % self.memory.nodes.len().max(1) as u64) as usize
    }

    pub(crate) fn known_root(&self) -> Option<(Child, u8)> {
        let root = Child(self.root.load(Ordering::Relaxed));
        root.is_live().then(|| (root, self.top.load(Ordering::Relaxed) as u8))
    }

    /// Caches the root. A reader may see the level with another root, so the level is checked when a
    /// node is read.
    pub(crate) fn set_root(&self, root: Child, level: u8) {
        self.top.store(level.into(), Ordering::Relaxed);
        self.root.store(root.0, Ordering::Relaxed);
    }
}
