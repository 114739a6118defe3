//! The LSM-tree in its current state: memtables, tables, versions, range deletions, and the view that readers and
//! writers share.
//!
//! Owns the [`Tree`](shared::Tree) of a shard: its current view, its published numbers, its snapshots, its numbers for
//! new tables and segments. May use [`terms`](crate::terms) and [`remote`](crate::remote). Never here: a decision about
//! what to do next, a wait for background work, or a version that changes in place.

pub(crate) mod buffer;
pub(crate) mod cut;
pub(crate) mod fences;
pub(crate) mod hidden;
pub(crate) mod learnt;
pub(crate) mod range_deletions;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod version;
