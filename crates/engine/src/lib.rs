//! The LSM engine: an ordered key-value database whose tables live in remote memory.
//!
//! It implements dLSM on the joined design of `ARCHITECTURE.md`: records are written once, as they
//! will be read, into a memtable's block; a flush ships the block as it stands and adds an index; a
//! compaction merges indexes; a read probes cached point indexes and fetches exactly one record.
//!
//! | module | what |
//! |---|---|
//! | `db` | the public interface |
//! | `router`, `routing`, `split`, `cut` | the shards behind it, and what spans several of them |
//! | `move_bound`, `rebalance`, `weights` | which shard has which keys, and when that changes |
//! | `shard` | what the threads of one LSM-tree share, and when the view changes |
//! | `write`, `read`, `multi_get`, `probe`, `lookup`, `index_cache`, `range_deletions` | the paths of callers |
//! | `db_iterator`, `iterator`, `bounds`, `visibility`, `cursor`, `level_cursor`, `index_reader`, `run_reader`, `read_ahead`, `scan_batch`, `scan_endpoint` | iteration |
//! | `flush`, `compaction`, `near_data`, `picker`, `background` | what goes on behind them |
//! | `version`, `table`, `segment`, `node_part` | the tree, held open; remote memory freed when nothing names it |
//! | `named`, `manifest`, `recovery`, `owner` | what outlives the process, and who may change it |
//! | `checkpoint` | a database in a file |
//! | `statistics`, `property` | what a database tells of itself |
//!
//! The engine names no back end of the fabric and depends on no memory node.

#![forbid(unsafe_code)]

mod background;
mod batch;
mod bounds;
mod checkpoint;
mod collection;
mod compaction;
mod cursor;
mod cut;
mod db;
mod db_iterator;
mod endpoints;
mod error;
mod fences;
mod flush;
mod index_cache;
mod index_reader;
mod iterator;
mod level_cursor;
mod lookup;
mod manifest;
mod manual;
mod memory;
mod move_bound;
mod multi_get;
mod named;
mod near_data;
mod node_part;
mod open;
mod options;
mod owner;
mod picker;
mod pipeline;
mod placing;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;
mod probe;
mod property;
mod range_deletions;
mod read;
mod read_ahead;
mod rebalance;
mod recovery;
mod room;
mod router;
mod routing;
mod run_reader;
mod scan_batch;
mod scan_endpoint;
mod segment;
mod shard;
mod space;
mod split;
mod stall;
mod statistics;
mod table;
mod version;
mod visibility;
mod weights;
mod write;

pub use batch::{MAX_BATCH_BYTES, WriteBatch};
pub use bounds::IterOptions;
pub use checkpoint::{CheckpointLayout, CheckpointSummary};
pub use db::{Db, Snapshot};
pub use db_iterator::DbIterator;
pub use error::{Error, Result};
pub use options::{CompactionPlace, CompactionStyle, Gathering, Options, ShardBounds};
pub use statistics::{IndexCacheStatistics, LevelStatistics, Stalls, StallsByCause, Statistics};
