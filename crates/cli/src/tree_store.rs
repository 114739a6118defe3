//! The shared tree as a store under test.

use crate::arguments::MemoryArguments;
use crate::nodes;
use crate::signals::Asked;
use forebay::tree::{self, Entry, Range};
use forebay::{ClientOptions, MemoryClient, Tree, TreeClient, TreeOptions};
use forebay_base::ErrorKind;
use forebay_fabric::{Counts, Traffic};
use forebay_workload::{Cursor, Error, Figures, MemoryNodeFigures, Store, StoreError};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of entries that a cursor reads at once.
const CURSOR_ENTRIES: usize = 1000;

/// A client of a tree, with its own session and cache. Each handle contains its thread's own state,
/// so threads with separate handles do not wait for one another.
#[derive(Debug)]
pub struct TreeStore {
    tree: Arc<Tree>,
    sessions: Arc<[Arc<MemoryClient>]>,
    own: Mutex<Option<TreeClient>>,
    /// A signal that has come. From then on, every call fails.
    asked: Asked,
    /// The cost of reading the figures, which is not part of the measurement.
    figures_counts: Mutex<Counts>,
}

impl Clone for TreeStore {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.tree), Arc::clone(&self.sessions), Arc::clone(&self.asked))
    }
}

/// Creates a tree on these nodes and opens it for this many clients. Their calls fail once a signal has `asked` for the end.
///
/// # Errors
/// When a memory node is not reachable, or has no memory.
pub fn open(
    memory: &MemoryArguments,
    nodes: &[nodes::Nodes],
    name: &str,
    clients: usize,
    options: &TreeOptions,
    asked: &Asked,
) -> Result<Vec<TreeStore>, Error> {
    let failed = |what: &'static str| {
        move |kind: ErrorKind, error: String| Error::Store { what, cause: StoreError { kind, message: error } }
    };
    let session = |node: &nodes::Nodes| {
        let link = node.link().map_err(|failure| failed("reaching the memory node")(failure.kind, failure.message))?;
        let client_options = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
        MemoryClient::connect(link, "forebay-ycsb", client_options).map_err(|error| {
            failed("opening a session")(error.kind(), nodes::with_hint(error.kind(), &error, &memory.memory))
        })
    };
    let opened = |is_first: bool| -> Result<TreeStore, Error> {
        let sessions: Arc<[Arc<MemoryClient>]> = nodes.iter().map(&session).collect::<Result<_, Error>>()?;
        let opened = if is_first {
            Tree::create(&sessions, name, options.clone())
        } else {
            Tree::open(&sessions, name, options.clone())
        };
        let tree = opened.map_err(|error| failed("opening the tree")(error.kind(), error.to_string()))?;
        Ok(TreeStore::new(tree, sessions, Arc::clone(asked)))
    };
    let mut stores = Vec::with_capacity(clients);
    for number in 0..clients {
        match opened(number == 0) {
            Ok(store) => stores.push(store),
            Err(error) => {
                // The first error says what is wrong.
                let _ = drop_tree(stores);
                return Err(error);
            }
        }
    }
    Ok(stores)
}

/// Ends these clients and drops their tree, which nobody else uses: it would outlive this process on the memory nodes.
///
/// # Errors
/// When a memory node is gone.
pub fn drop_tree(clients: Vec<TreeStore>) -> Result<(), Error> {
    let Some(tree) = clients.first().map(|client| Arc::clone(&client.tree)) else { return Ok(()) };
    // A client that ends still writes to the tree.
    drop(clients);
    tree.drop_tree().map_err(|error| Error::Store { what: "dropping the tree", cause: failed(error) })
}

fn failed(error: tree::Error) -> StoreError {
    StoreError::new(error.kind(), error)
}

impl TreeStore {
    fn new(tree: Arc<Tree>, sessions: Arc<[Arc<MemoryClient>]>, asked: Asked) -> Self {
        Self { tree, sessions, own: Mutex::new(None), asked, figures_counts: Mutex::default() }
    }

    /// Runs `call` with this handle's client.
    #[inline]
    fn with<T>(&self, call: impl FnOnce(&mut TreeClient) -> Result<T, tree::Error>) -> Result<T, StoreError> {
        if self.asked.get().is_some() {
            return Err(StoreError::new(ErrorKind::Closed, "a signal ends the run"));
        }
        let mut own: MutexGuard<'_, _> = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match &mut *own {
            Some(client) => client,
            none => none.insert(self.tree.client().map_err(failed)?),
        };
        call(client).map_err(failed)
    }

    fn counted(&self, traffic: Traffic) -> Counts {
        let mut sum = Counts::default();
        self.sessions.iter().for_each(|session| sum += session.link().counts(traffic));
        sum
    }
}

impl Store for TreeStore {
    type Cursor<'a> = TreeCursor<'a>;

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.with(|client| client.put(key, value)).map(|_| ())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.with(|client| client.delete(key)).map(|_| ())
    }

    fn put_batch(&self, _: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        Err(StoreError::new(ErrorKind::Unsupported, "the shared tree has no batches"))
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|client| client.get(key))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.with(|client| client.multi_get(keys))
    }

    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        Ok(TreeCursor { store: self, entries: Vec::new(), at: 0 })
    }

    fn scan(&self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut go_on = true;
        let each = |key: &[u8], value: &[u8]| go_on = go_on && visit(key, value);
        self.with(|client| client.scan_with(Range::starting_at(from, limit), each)).map(|_| ())
    }

    fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn figures(&self) -> Result<Figures, StoreError> {
        let (memory, counts) = self.with(|client| {
            let before = client.counts();
            Ok((client.memory()?, client.counts() - before))
        })?;
        let mut figures_counts = self.figures_counts.lock().unwrap_or_else(PoisonError::into_inner);
        *figures_counts += counts;
        let mut memory_node = MemoryNodeFigures { live_bytes: memory.live_bytes(), ..MemoryNodeFigures::default() };
        for session in self.sessions.iter() {
            let node = session.node_statistics().map_err(|error| StoreError::new(error.kind(), error))?;
            memory_node.cpu_seconds += node.cpu_us as f64 / 1e6;
            memory_node.allocated_bytes += node.allocated_bytes;
        }
        Ok(Figures {
            foreground: self.counted(Traffic::Foreground) - *figures_counts,
            background: self.counted(Traffic::Background),
            cached_index_bytes: self.tree.cached_bytes() as u64,
            memtable_bytes: 0,
            memory_node,
            ..Figures::default()
        })
    }

    fn describe(&self) -> Result<String, StoreError> {
        self.with(TreeClient::verify).map(|statistics| format!("{statistics:#?}\n"))
    }

    /// Nothing is buffered: all writes are on the memory node.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A position in the tree's keys: a chunk of entries, and the place in it.
#[derive(Debug)]
pub struct TreeCursor<'a> {
    store: &'a TreeStore,
    entries: Vec<Entry>,
    at: usize,
}

impl TreeCursor<'_> {
    fn read(&mut self, from: Bound<&[u8]>) -> Result<(), StoreError> {
        let range = Range { from, limit: CURSOR_ENTRIES, ..Range::all() };
        self.entries = self.store.with(|client| client.scan(range))?;
        self.at = 0;
        Ok(())
    }
}

impl Cursor for TreeCursor<'_> {
    fn seek_to_first(&mut self) -> Result<(), StoreError> {
        self.read(Bound::Unbounded)
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.read(Bound::Included(key))
    }

    fn next(&mut self) -> Result<(), StoreError> {
        self.at += 1;
        if self.at < self.entries.len() {
            return Ok(());
        }
        match self.entries.pop() {
            Some((last, _)) => self.read(Bound::Excluded(&last)),
            None => Ok(()),
        }
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.entries.get(self.at).map(|(key, value)| (key.as_slice(), value.as_slice()))
    }
}
