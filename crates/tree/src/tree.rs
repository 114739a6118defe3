//! Creating, opening and dropping trees.

use crate::class::{Block, CHUNK_BYTES, Class};
use crate::layout::{InnerSlot, MIN_BUCKETS, inner_image};
use crate::memory::{CURSOR_OFFSET, Config, EXTENTS_OFFSET, NodeMemory, ROOT_OFFSET, SUPERBLOCK, beyond, lease};
use crate::verbs::Verbs;
use crate::word::{Child, MAX_NODES};
use crate::{Error, Tree, TreeClient, TreeOptions};
use forebay_base::ErrorKind;
use forebay_fabric::{EndpointOptions, Traffic};
use forebay_memory_client::{ExtentId, MemoryClient, StoreHandle};
use std::sync::Arc;

impl Tree {
    /// Creates a tree of this name on the nodes of `clients`, which announce their reads
    /// ([`ClientOptions::foreign_reads`](forebay_memory_client::ClientOptions::foreign_reads)), and opens it.
    ///
    /// # Errors
    /// Of kind `AlreadyExists` when a node has a store of this name, `Full` when it has no memory.
    pub fn create(clients: &[Arc<MemoryClient>], name: &str, options: TreeOptions) -> Result<Arc<Self>, Error> {
        options.geometry()?;
        check_clients(clients)?;
        let mut stores = Vec::new();
        let created = Self::create_stores(clients, name, options, &mut stores);
        if created.is_err() {
            // Frees the name again. A store that cannot be dropped is left to `destroy`.
            for (client, store) in clients.iter().zip(&stores) {
                let _ = client.drop_store(store.id());
            }
        }
        created
    }

    /// Creates a store at each node, and the tree in them. Adds the created stores to `stores`.
    fn create_stores(
        clients: &[Arc<MemoryClient>],
        name: &str,
        options: TreeOptions,
        stores: &mut Vec<StoreHandle>,
    ) -> Result<Arc<Self>, Error> {
        let geometry = options.geometry()?;
        let mut nodes = Vec::new();
        for (node, client) in clients.iter().enumerate() {
            let superblock = lease(client, &*options.clock)?.ok_or_else(beyond)?;
            let config = Config { geometry, nodes: clients.len(), node, superblock };
            let store = match client.create_store(name, &config.encode()) {
                Ok(store) => store,
                Err(error) => {
                    client.return_extents(&[superblock])?;
                    return Err(error.into());
                }
            };
            stores.push(store.clone());
            let memory = NodeMemory::new(Arc::clone(client), store, superblock);
            memory.share(superblock)?;
            nodes.push(memory);
        }
        let tree = Self::over(nodes, geometry, name, options);
        tree.client()?.format()?;
        Ok(tree)
    }

    /// Opens the tree of this name. The clients must be in the order in which the tree was created.
    ///
    /// # Errors
    /// Of kind `NotFound` when there is none, `Busy` while it is being created.
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

    /// Drops the tree of this name, even one that cannot be opened because its creator died: frees its memory at all
    /// nodes. Nobody may use it any more.
    ///
    /// # Errors
    /// Of kind `NotFound` when no node has a part of it, `Invalid` when a node has another store of this name; then
    /// nothing is dropped.
    pub fn destroy(clients: &[Arc<MemoryClient>], name: &str) -> Result<(), Error> {
        let mut stores = Vec::new();
        let mut missing = Ok(());
        for client in clients {
            match client.open_store(name) {
                Ok(store) => {
                    Config::decode(store.config())?;
                    stores.push((client, store.id()));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => missing = Err(error.into()),
                Err(error) => return Err(error.into()),
            }
        }
        if stores.is_empty() {
            return missing;
        }
        Ok(stores.into_iter().try_for_each(|(client, store)| client.drop_store(store))?)
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
}

fn check_clients(clients: &[Arc<MemoryClient>]) -> Result<(), Error> {
    if clients.is_empty() || clients.len() > MAX_NODES {
        return Err(Error::Invalid(format!("a tree lives on 1 to {MAX_NODES} nodes, not {}", clients.len())));
    }
    for client in clients {
        if !client.reads_foreign() {
            return Err(Error::Invalid("a tree's sessions announce their reads: set foreign_reads".into()));
        }
        let (bytes, least) = (client.extent_bytes(), 2 * CHUNK_BYTES);
        if bytes < least {
            let node = client.described();
            let what = format!("extents of {bytes} bytes at {node}: a tree needs {least} bytes at least");
            return Err(Error::Invalid(what));
        }
        // From now on, nothing that this session may read is used again.
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
        let geometry = &tree.memory.cut.geometry;
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
            match self.read_word(node, tree.memory.superblock(node, 0)?)? {
                SUPERBLOCK => {}
                // The root's word is written last.
                0 => return Err(Error::Unfinished(tree.name().into())),
                _ => return Err(Error::corrupt(format!("node {node} has no superblock of this version: destroy it"))),
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
