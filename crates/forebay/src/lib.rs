//! Forebay: an ordered key-value engine for disaggregated memory and storage.
//!
//! ```
//! use forebay::{Options, Store};
//!
//! # fn main() -> Result<(), forebay::Error> {
//! // Everything in this process: the memory node is a thread.
//! let store = Store::embedded(64 << 20, Options::default())?;
//! store.put(b"key", b"value")?;
//! assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! With a memory node in another process, use [`Store::connect`]. A [`Store`] gives all of
//! [`Db`]'s methods.

#![forbid(unsafe_code)]

mod address;
mod error;
mod store;

pub use address::{NodeAddress, connect, listen};
pub use error::Error;
pub use forebay_base::{ErrorKind, KeyOrder};
pub use forebay_engine::{
    CheckpointLayout, CheckpointSummary, CompactionPlace, CompactionStyle, Db, DbIterator, Gathering,
    IndexCacheStatistics, IterOptions, LevelStatistics, MAX_BATCH_BYTES, Options, ShardBounds, Snapshot, Stalls,
    StallsByCause, Statistics, WriteBatch,
};
pub use forebay_fabric::{Counts, LinkModel};
/// A session at a memory node: what a [`Tree`] is created and opened with.
pub use forebay_memory_client::{ClientOptions, MemoryClient};
pub use forebay_memory_node::{MemoryNode, Options as MemoryNodeOptions};
/// The shared tree: an index that any number of clients read and write by one-sided operations.
pub use forebay_tree as tree;
pub use forebay_tree::{Tree, TreeClient, TreeOptions};
pub use store::{NodeStatistics, Store};
