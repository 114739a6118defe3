//! The LSM engine: an ordered key-value database whose tables live in remote memory.
//!
//! It implements dLSM within the design of `ARCHITECTURE.md`. A record is written once, in the form in which it is
//! read, into a memtable's block. A flush ships the block as it is, or the records in key order, and adds an index. A
//! compaction merges indexes. A read probes cached point indexes and fetches exactly one record.
//!
//! The engine names no fabric back end and does not depend on the memory node.
//!
//! # Rooms
//!
//! Each folder is a room. A room uses only the rooms below it:
//!
//! ```text
//!   api                   what users see
//!   sharding              several shards as one
//!   write                 the write path
//!   work                  background work: does what the planner says
//!   read, scan            point reads and iteration
//!   inspect               shows and verifies what is stored, without opening it
//!   durable               what outlives the process
//!   plan                  what to do next: pure
//!   tree                  the LSM-tree in its current state
//!   remote                remote memory
//!   terms                 errors, options, bounds, counters
//! ```
//!
//! # Locks and their order
//!
//! A thread that holds a lock of this list takes only locks that come later in it. Reads take none of these locks.
//! Writes take them only when their memtable has ended.
//!
//! | | lock | guards |
//! |---|---|---|
//! | 1 | `Router::moving` | the move of a bound |
//! | 1 | `Rejoining::known`, which no thread waits for | when to connect to nodes that were lost |
//! | 1 | `Members::regaining`, which no thread waits for, after `Rejoining::known` | the regaining of lost members |
//! | 2 | `Router::present` | the number of the current assignment |
//! | 3 | `StorageLog::appended` | what was appended to the log in storage |
//! | 3 | `Cut::gate`, then `Cut::turn`, after any of these | batches that cross shards |
//! | 4 | `Log::shipping`, then `Log::spares`, then `Commits::turn`, then `Manifest::logs` | the log in memory, and the change of a version |
//! | 4 | `Members::changing`, then `MemberRegister::state`, after any of these | the members of a shard, and the register of them |
//! | 4 | `StorageLog::shipping`, then `Register::state`, then `Register::lost` | the log and the commits in storage |
//! | 4 | `Recorded::turn`, which may follow `Commits::turn`, then `Recorded::version` or `Register::state` | the version that storage has |
//! | 5 | `Shard::state` | the bookkeeping of background work |
//! | 6 | `Shard::reserve` | memory held back while memory is short |
//! | 6 | `Common::ledger` | who has reserved remote memory |
//! | 7 | `Tree::changing` | the change of a view |
//! | 8 | `Tree::snapshots` | the pinned numbers |
//! | 9 | the locks of `remote`: an owner's epoch, the contents of a node's part, idle endpoints, cached indexes | |
//! | 10 | `Bell::rings` | the background threads' sleep |
//!
//! While a thread waits for the fabric, it may hold only locks 1 to 4 and locks that belong to one iterator or one
//! endpoint; the same holds for storage. Lock 5 is never held while indexes are merged.

#![forbid(unsafe_code)]

mod api;
mod durable;
mod inspect;
mod plan;
mod read;
mod remote;
mod scan;
mod sharding;
mod terms;
mod tree;
mod work;
mod write;

#[cfg(feature = "planted")]
pub use terms::planted;

pub use api::checkpoint::{CheckpointLayout, CheckpointSummary};
pub use api::db::Db;
pub use api::db_iterator::{DbIterator, IterOptions};
pub use api::file::{OutputFile, PartialFile};
pub use api::keyspace::{Keyspace, KeyspaceBatch, KeyspaceIterator};
pub use api::keyspaces::Keyspaces;
pub use api::requests::{Answer, Request, Requests};
pub use api::snapshot::Snapshot;
pub use api::stored_checkpoint::BackupSummary;
pub use forebay_storage::{BlockCacheCounts, Compression, Storage, StorageCounts, StorageOptions};
pub use forebay_table::job::SizeClasses;
pub use forebay_table::{MergeOperator, MergeOperators};
pub use inspect::in_memory::MemoryDatabase;
pub use inspect::report::{Cell, Finding, Report, Section, Step};
pub use inspect::salvage::{Salvage, SalvagedEntry};
pub use inspect::show::Shown;
pub use inspect::stored::StoredDatabase;
pub use terms::entry::{Entry, Stamp};
pub use terms::error::{Error, Result};
pub use terms::options::{
    CompactionPlace, CompactionStyle, Delegation, Durability, FlushOrder, FlushPlace, Gathering, Options, Replication,
    ShardBounds, Syncing, WriteOptions,
};
pub use terms::recovery::{LogCut, Recovery, ShardRecovery};
pub use terms::statistics::{
    CopyStatistics, DelegationStatistics, IndexCacheStatistics, LevelStatistics, LogStatistics, Stalls, StallsByCause,
    Statistics,
};
pub use write::batch::{BatchWrite, MAX_BATCH_BYTES, WriteBatch};
