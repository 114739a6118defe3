//! Background work: flushes, compactions (here, near the data, or by executors), and the threads that wait for them.
//!
//! Owns the [`Shard`](shard::Shard): a tree, and behind a lock the bookkeeping that [`plan`](crate::plan) decides by.
//! Its threads ask the planner what to do, do it, and report the outcome. May use the rooms below it. Never here: a
//! lock held during a wait for the fabric, or a change of a version except by a commit.

pub(crate) mod background;
pub(crate) mod bell;
pub(crate) mod collection;
pub(crate) mod common;
pub(crate) mod compaction;
pub(crate) mod crossings;
pub(crate) mod errand;
pub(crate) mod flush;
mod flushed_records;
pub(crate) mod near_data;
pub(crate) mod offloaded;
mod offloaded_copies;
pub(crate) mod placing;
mod record;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod reserve;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod shard;
pub(crate) mod stall;
pub(crate) mod ticker;
