//! The records of a server, on either engine.

use crate::records::batch::Batch;
use crate::records::changes::{Change, Changes};
use crate::records::cursor::Cursor;
use crate::records::direction::Direction;
use crate::records::tree::TreeRecords;
use forebay::{Error, ErrorKind, IterOptions, OwnedTree, Store, WriteBatch};

/// The longest key of an LSM database.
const MAX_LSM_KEY_BYTES: usize = 64 << 10;

/// The records of a server.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of them")]
pub enum Records {
    /// In an LSM database.
    Lsm(Store),
    /// In a shared tree.
    Tree(TreeRecords),
}

impl From<Store> for Records {
    fn from(store: Store) -> Self {
        Self::Lsm(store)
    }
}

impl From<OwnedTree> for Records {
    fn from(tree: OwnedTree) -> Self {
        Self::Tree(TreeRecords::new(tree))
    }
}

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes on memory nodes.
    pub remote_bytes: u64,
    /// The part of these bytes that is live data.
    pub live_bytes: u64,
    /// The part of these bytes that was replaced or removed, and is not free yet.
    pub dead_bytes: u64,
    /// Bytes of this process, except what it reads and writes now.
    pub local_bytes: u64,
    /// How often writers had to wait.
    pub stalls: u64,
}

impl Records {
    /// The name of the engine.
    #[must_use]
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::Lsm(_) => "lsm",
            Self::Tree(_) => "tree",
        }
    }

    /// The LSM database, if it is one.
    #[must_use]
    pub const fn lsm(&self) -> Option<&Store> {
        match self {
            Self::Lsm(store) => Some(store),
            Self::Tree(_) => None,
        }
    }

    /// The shared tree, if it is one.
    #[must_use]
    pub const fn tree(&self) -> Option<&TreeRecords> {
        match self {
            Self::Lsm(_) => None,
            Self::Tree(tree) => Some(tree),
        }
    }

    /// Whether a scan sees the records as they were when it began.
    #[must_use]
    pub const fn has_snapshots(&self) -> bool {
        matches!(self, Self::Lsm(_))
    }

    /// Whether removing a few keys one by one is better than removing a range.
    #[must_use]
    pub const fn likes_single_deletions(&self) -> bool {
        matches!(self, Self::Lsm(_))
    }

    /// The longest key, in bytes.
    #[must_use]
    pub const fn max_key_bytes(&self) -> usize {
        match self {
            Self::Lsm(_) => MAX_LSM_KEY_BYTES,
            Self::Tree(_) => forebay::tree::MAX_KEY_BYTES,
        }
    }

    /// Finishes what an earlier process has begun. Until then, nobody may use the records.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn recover(&self) -> Result<(), Error> {
        match self {
            Self::Lsm(_) => Ok(()),
            Self::Tree(tree) => tree.recover(),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the engine.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Lsm(store) => Ok(store.get(key)?),
            Self::Tree(tree) => tree.get(key),
        }
    }

    /// The values of the first keys, in few round trips: as many as have at most `budget_bytes`, and at least one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn multi_get(&self, keys: &[&[u8]], budget_bytes: usize) -> Result<Vec<Option<Vec<u8>>>, Error> {
        match self {
            Self::Lsm(store) => Ok(store.multi_get_within(keys, budget_bytes)?),
            Self::Tree(tree) => tree.multi_get(keys, budget_bytes),
        }
    }

    /// Sets a key.
    ///
    /// # Errors
    /// As [`Records::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self {
            Self::Lsm(store) => Ok(store.put(key, value)?),
            Self::Tree(tree) => {
                let mut changes = Changes::default();
                changes.add(Change::Put(key, value));
                tree.write(&changes)
            }
        }
    }

    /// An empty batch.
    #[must_use]
    pub fn batch(&self) -> Batch {
        match self {
            Self::Lsm(_) => Batch::Lsm(WriteBatch::new()),
            Self::Tree(_) => Batch::Tree(Changes::default()),
        }
    }

    /// Writes a batch that [`Records::batch`] of these records made: all of it, or nothing.
    ///
    /// # Errors
    /// Those of the engine. Then nothing was written, unless [`Error::is_published`] says so, or the records are of no
    /// use any more ([`Records::ended`]). `Invalid` for a batch of other records.
    #[inline]
    pub fn write(&self, batch: &Batch) -> Result<(), Error> {
        match (self, batch) {
            (Self::Lsm(store), Batch::Lsm(batch)) => Ok(store.write(batch)?),
            (Self::Tree(tree), Batch::Tree(changes)) => tree.write(changes),
            _ => Err(invalid("a batch is for the engine that it was made for")),
        }
    }

    /// Returns the records from `from` on and before `to`, in this direction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn scan(&self, from: &[u8], to: &[u8], direction: Direction) -> Result<Cursor<'_>, Error> {
        match self {
            Self::Lsm(store) => {
                let options = IterOptions { lower: Some(from), upper: Some(to), ..IterOptions::default() };
                Cursor::of_lsm(store.iter_with(&options)?, direction)
            }
            Self::Tree(tree) => Cursor::of_tree(tree.cursor(from, to, direction), direction),
        }
    }

    /// Does the work of the first scan of a range now, just after the range was written.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn settle(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        match self {
            // The first cursor puts what was written in order.
            Self::Lsm(_) => self.scan(from, to, Direction::Forward).map(drop),
            Self::Tree(_) => Ok(()),
        }
    }

    /// Makes writes durable, if there is storage that outlives the process and its memory nodes.
    ///
    /// # Errors
    /// `Invalid` when there is no such storage; those of the engine.
    pub fn sync(&self) -> Result<(), Error> {
        match self {
            Self::Lsm(store) => Ok(store.sync()?),
            Self::Tree(_) => Err(invalid("the shared tree lies in memory alone: there is nothing to save it to")),
        }
    }

    /// The same, also after it has failed.
    ///
    /// # Errors
    /// As [`Records::sync`].
    pub fn save(&self) -> Result<(), Error> {
        if let Self::Lsm(store) = self {
            store.resume()?;
        }
        self.sync()
    }

    /// Whether there is a log of writes.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.lsm().is_some_and(|store| store.has_log())
    }

    /// Whether there is storage.
    #[must_use]
    pub fn has_storage(&self) -> bool {
        self.lsm().is_some_and(|store| store.has_storage())
    }

    /// Why the log cannot be written, if it cannot.
    #[must_use]
    pub fn log_failure(&self) -> Option<Error> {
        self.lsm()?.log_failure().map(Error::from)
    }

    /// Returns why the records are of no use to this process any more, if that is so: another process has them, or may
    /// have them soon.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        match self {
            Self::Lsm(store) => store.failure().filter(|error| error.kind() == ErrorKind::Fenced).map(Error::from),
            Self::Tree(tree) => tree.failure(),
        }
    }

    /// Closes the records. Calls fail from here on.
    ///
    /// # Errors
    /// Those of the engine; the records are closed all the same.
    pub fn close(&self) -> Result<(), Error> {
        match self {
            Self::Lsm(store) => Ok(store.close()?),
            Self::Tree(tree) => tree.close(),
        }
    }

    /// Returns the bytes on memory nodes, at little cost.
    #[must_use]
    pub fn remote_bytes(&self) -> u64 {
        match self {
            Self::Lsm(store) => store.remote_bytes(),
            Self::Tree(tree) => tree.used_bytes(),
        }
    }

    /// What memory is used for.
    #[must_use]
    pub fn figures(&self) -> Figures {
        match self {
            Self::Lsm(store) => {
                let statistics = store.statistics();
                Figures {
                    remote_bytes: statistics.remote_bytes,
                    live_bytes: statistics.live_bytes,
                    dead_bytes: statistics.dead_bytes_known + statistics.dead_bytes_undiscovered,
                    local_bytes: statistics.cached_index_bytes + statistics.memtable_bytes,
                    stalls: statistics.stalls,
                }
            }
            Self::Tree(tree) => {
                let figures = tree.figures();
                Figures {
                    remote_bytes: figures.used_bytes,
                    live_bytes: figures.live_bytes,
                    local_bytes: figures.cached_bytes,
                    ..Figures::default()
                }
            }
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::Below { kind: ErrorKind::Invalid, message: message.to_owned() }
}
