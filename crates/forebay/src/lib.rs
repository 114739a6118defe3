//! Forebay: an ordered key-value engine for disaggregated memory and storage.
//!
//! ```
//! # fn main() -> Result<(), forebay::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path();
//! use forebay::Store;
//!
//! // A directory, one process, no setting. It survives the process, and a crash of the machine except for the last second.
//! let store = Store::open(path)?;
//! store.put(b"key", b"value")?;
//! assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! [`Store::open_with`] takes options, such as how much memory a database takes and what a write survives. Instead of a
//! directory, a database may be stored in other storage, which a URL names:
//!
//! ```no_run
//! use forebay::{Durability, Options, Storage, Store, Syncing};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let storage = Storage::open("s3://bucket/example", Default::default())?;
//! let options = Options {
//!     name: Some("orders".to_owned()),
//!     storage: Some(storage),
//!     durability: Durability::Storage(Syncing::Sync),
//!     ..Options::default()
//! };
//! let store = Store::embedded(64 << 20, options)?;
//! store.put(b"key", b"value")?;
//! # Ok(())
//! # }
//! ```
//!
//! A database may also be in memory alone, and end with the process:
//!
//! ```
//! use forebay::{Options, Store};
//!
//! # fn main() -> Result<(), forebay::Error> {
//! let store = Store::embedded(64 << 20, Options::default())?;
//! # store.put(b"key", b"value")?;
//! # Ok(())
//! # }
//! ```
//!
//! After a write has failed, nobody knows whether it took effect. A write that names its request ([`Requests`]) can be
//! tried again, also by the process that opens the database next. It takes effect once:
//!
//! ```
//! # fn main() -> Result<(), forebay::Error> {
//! # let store = forebay::Store::embedded(64 << 20, forebay::Options::default())?;
//! use forebay::{Keyspaces, Request, WriteBatch};
//!
//! let keyspaces = Keyspaces::open(store.db())?;
//! let (orders, requests) = (keyspaces.create("orders")?, keyspaces.requests());
//! let mut batch = WriteBatch::new();
//! batch.within(&orders).put(b"1001", b"a compass");
//! let request = Request { client: b"ada", number: 1 };
//! let first = requests.write(request, &batch, b"order 1001")?;
//! assert!(!first.is_repeated);
//! // As if the answer had been lost.
//! let again = requests.write(request, &batch, b"")?;
//! assert!(again.is_repeated && again.result == b"order 1001");
//! # Ok(())
//! # }
//! ```
//!
//! For a memory node in another process, use [`Store::connect`]. A [`Store`] has all of [`Db`]'s
//! methods. With the feature `async` there is an `AsyncStore` for asynchronous code. A store belongs to the process
//! that opened it: a child that was forked later may neither use nor drop the store ([`process`]).

#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "async")]
mod async_store;
mod directory;
mod embedded;
mod entries;
mod error;
mod fork;
mod lock;
mod owned_tree;
pub mod process;
mod reach;
mod store;

pub use address::{ListenOptions, NodeAddress, connect, listen};
#[cfg(feature = "async")]
pub use async_store::{AsyncEntries, AsyncStore};
pub use directory::DirectoryOptions;
pub use entries::Entries;
pub use error::Error;
pub use forebay_base::{ErrorKind, KeyOrder};
/// An error of the database itself.
pub use forebay_engine::Error as EngineError;
pub use forebay_engine::{
    Answer, BackupSummary, BatchWrite, CheckpointLayout, CheckpointSummary, CompactionPlace, CompactionStyle, Db,
    DbIterator, Delegation, DelegationStatistics, Durability, Entry, FlushOrder, FlushPlace, Gathering,
    IndexCacheStatistics, IterOptions, Keyspace, KeyspaceBatch, KeyspaceIterator, Keyspaces, LevelStatistics, LogCut,
    LogStatistics, MAX_BATCH_BYTES, MergeOperator, MergeOperators, Options, OutputFile, PartialFile, Recovery,
    Replication, Request, Requests, ShardBounds, ShardRecovery, SizeClasses, Snapshot, Stalls, StallsByCause, Stamp,
    Statistics, Syncing, WriteBatch, WriteOptions,
};
/// Where a database keeps what survives everything else.
pub use forebay_engine::{BlockCacheCounts, Compression, Storage, StorageCounts, StorageOptions};
/// What is in storage or on memory nodes, inspected without opening the database.
pub use forebay_engine::{
    Cell, Finding, MemoryDatabase, Report, Salvage, SalvagedEntry, Section, Shown, Step, StoredDatabase,
};
/// Who may connect to a memory node, and how both sides prove who they are.
pub use forebay_fabric::admission;
pub use forebay_fabric::{Counts, LinkModel};
/// A memory node, or a scheduler, which is connected to again when a session has ended.
pub use forebay_memory_client::Reach;
/// A session at a memory node, for creating and opening a [`Tree`].
pub use forebay_memory_client::{ClientOptions, MemoryClient};
pub use forebay_memory_node::{Handle as MemoryNodeHandle, MemoryNode, Options as MemoryNodeOptions};
/// The shared tree: an index that any number of clients read and write with one-sided operations.
pub use forebay_tree as tree;
pub use forebay_tree::{Tree, TreeClient, TreeOptions};
pub use lock::DEFAULT_NAME;
pub use owned_tree::OwnedTree;
pub use reach::{reach, reach_scheduler};
pub use store::{NodeStatistics, Store};
