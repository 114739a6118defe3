//! Iteration over one shard: sources in key order, their merge, and batches of entries that are read together.
//!
//! Owns an iterator's view, endpoint and read-ahead. May use [`terms`](crate::terms), [`remote`](crate::remote),
//! [`tree`](crate::tree), and what [`plan`](crate::plan) decides about delegation. Never here: a lock that a writer or background work takes, or the value of an entry that is
//! not shown.
//!
//! ```text
//!   iterator ──► cursor ──► delegated
//!      │            └─────► level_cursor ──► run_reader, index_reader ──► read_ahead ──► scan_endpoint
//!      │                                          │
//!      └──────────────► scan_batch ◄──────────────┘
//! ```

pub(crate) mod cursor;
pub(crate) mod delegated;
pub(crate) mod found;
pub(crate) mod index_reader;
pub(crate) mod iterator;
pub(crate) mod level_cursor;
pub(crate) mod read_ahead;
pub(crate) mod run_reader;
pub(crate) mod scan_batch;
pub(crate) mod scan_endpoint;
pub(crate) mod visibility;
