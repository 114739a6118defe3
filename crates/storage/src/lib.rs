//! Durable storage: objects, the commit register, and logs.
//!
//! ```text
//!             engine
//!    ┌──────────┼─────────────────┐
//!  Log      CommitRegister     objects (tables, …)
//!   │ │         │                 │
//!   │ └─────────┴───── ObjectStorage ── DirectoryObjects, MemoryObjects, remote services
//!   └── files ──────── Disk ─────────── OsDisk, SimDisk
//! ```
//!
//! - [`ObjectStorage`]: bytes under a name, written once, read by ranges. Its contract is in [`objects`].
//! - [`SignedAccess`]: objects that another party allows this process to read or write, by signed names.
//! - [`NumberedObjects`]: objects that an owner writes once, and those that earlier owners left behind.
//! - [`CommitRegister`]: numbered commits. Each claims its number, so that of two writers one is fenced.
//! - [`Log`]: frames in order, made durable in groups: in preallocated files where there is a [`Disk`], in numbered objects
//!   elsewhere. Recovery seals a log first, so that its writer cannot acknowledge anything any more.
//! - [`BlockObject`]: an object whose bytes are compressed in blocks and read by ranges, through a [`BlockCache`]
//!   ([`blocks`]).
//! - [`SimDisk`] and [`MemoryObjects`] keep the same contracts in memory, with faults that a test plans by counting.
//!
//! Everything blocks. The remote back ends have an asynchronous runtime of their own, which stays inside them; they are
//! enabled by the features `s3`, `gs`, `az` and `hdfs`. Without those the crate pulls in little: compression, and a cache's
//! policy.

#![forbid(unsafe_code)]

pub mod blocks;
mod counts;
pub mod disk;
pub mod error;
mod link;
pub mod log;
pub mod name;
pub mod numbered;
pub mod objects;
pub mod options;
pub mod planted;
pub mod register;
mod rot;
pub mod store;

pub use blocks::{
    Asked, BlockCache, BlockCacheCounts, BlockCacheOptions, BlockDirectory, BlockEncoder, BlockObject, BlockOptions,
    BlockWriter, Compression, LowerFloor,
};
pub use counts::StorageCounts;
pub use disk::{Disk, DiskEntry, DiskFault, DiskFile, OsDisk, SimDisk};
pub use error::{Error, Result};
pub use log::{
    Cut, FileLog, FileLogOptions, Frame, Log, LogCounts, LogReader, MAX_FRAME_BYTES, ObjectLog, ObjectLogOptions,
    Position, Recovery, Rescued, SEAL_BYTES,
};
pub use name::{MAX_NAME_BYTES, ObjectName};
pub use numbered::{NumberedObjects, ObjectNumber};
pub use objects::{
    DirectoryObjects, Follow, MemoryObjects, ObjectFault, ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter,
    Permit, PutMode, ReadRequest, SignedAccess, SignedUrl, Unfinished,
};
pub use options::StorageOptions;
pub use register::{Commit, CommitKind, CommitRegister, History, MAX_COMMIT_BYTES};
pub use store::Storage;
