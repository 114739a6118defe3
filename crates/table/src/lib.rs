//! Tables, point indexes, merging, versions, and the jobs that make tables: bytes in, bytes out.
//!
//! A **table** is an index over records in segments, not a copy of them (dLSM VI with the values left in place). Its
//! image is one blob of remote memory ([`image`]). A compute node caches the image's tail: a point index that maps a
//! key's hash to its record's address, and a sparse index for scans ([`CachedTable`]). Compaction merges indexes and
//! moves records only to bring them back into key order ([`job`]).
//!
//! A **version** is the set of tables and segments of a shard. Version edits lead from one to the next ([`version`],
//! [`version_edit`]). Addresses are logical, so moving a segment changes the version's segment map and no index.
//!
//! Nothing here does I/O. Every decoder is total: any bytes give a value or a typed error.

#![forbid(unsafe_code)]

pub mod block;
pub mod builder;
mod cached;
pub mod checkpoint;
mod coding;
pub mod database;
pub mod deletions;
pub mod entry;
mod error;
mod frame;
pub mod image;
pub mod job;
pub mod manifest;
pub mod members;
pub mod merge;
pub mod operator;
pub mod point_index;
pub mod properties;
pub mod segments;
pub mod sparse_index;
pub mod version;
pub mod version_edit;

pub use block::BlockIterator;
pub use builder::{BuiltTable, TableBuilder, TableOptions};
pub use cached::CachedTable;
pub use database::{DatabaseCommit, DatabaseIdentity, DropStage, LogName, StorageRoot};
pub use deletions::DeletionSweep;
pub use entry::{IndexEntry, OwnedKey, RangeTombstone, RecordAddress};
pub use error::{Error, RecordMismatch, Result, VersionError};
pub use manifest::{ManifestRoot, StoreConfig, StorePart};
pub use members::{Ballot, CopiedDatabase, MemberNode, MembersRecord};
pub use merge::{Direction, Merge, SortedStream};
pub use operator::{MergeOperator, MergeOperators};
pub use point_index::{Candidate, PointIndex, PointIndexOptions, key_hash};
pub use properties::{Creation, SegmentUse, TableProperties};
pub use segments::{Placement, SegmentInfo, SegmentKind};
pub use sparse_index::{BlockAddress, SparseIndex};
pub use version::Version;
pub use version_edit::{EditLog, ImageAddress, LogPart, ShardIdentity, TableId, TableMetadata, VersionEdit};
