//! The write path: batches, reservation in the active memtable, insertion, publication.
//!
//! Owns only the caller's batch. May use the rooms below it. Never here: a lock, unless the memtable has ended; a
//! number that is reserved but not inserted, unless the shard has failed for good.

pub(crate) mod batch;
pub(crate) mod condition;
pub(crate) mod conditional;
pub(crate) mod put;
