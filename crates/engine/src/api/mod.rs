//! What users see: the database, keyspaces, snapshots, iterators, checkpoints, properties, statistics.
//!
//! Owns the router and the background threads of an open database. May use all rooms. Never here: an algorithm; other
//! rooms do the work.

pub(crate) mod benchmark;
pub(crate) mod checkpoint;
pub(crate) mod db;
pub(crate) mod db_iterator;
pub(crate) mod file;
mod health;
pub(crate) mod keyspace;
pub(crate) mod keyspaces;
pub(crate) mod property;
mod reads;
pub(crate) mod requests;
pub(crate) mod snapshot;
pub(crate) mod statistics;
pub(crate) mod stored_checkpoint;
pub(crate) mod verify;
