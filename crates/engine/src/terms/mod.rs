//! Words that every other room uses: errors, options, bounds of keys, routing, statistics and their counters.
//!
//! Owns only values: counters and the latest time are the only things here that change after they were made. May use no
//! other room. Never here: a lock, a thread, the fabric, or a decision.

pub(crate) mod bounds;
pub(crate) mod entry;
pub(crate) mod error;
pub(crate) mod options;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
pub(crate) mod planted;
pub(crate) mod recovery;
pub(crate) mod routing;
pub(crate) mod segment_numbers;
pub(crate) mod statistics;
pub(crate) mod time;
pub(crate) mod undeleted;

pub(crate) use entry::{Entry, Stamp};
pub(crate) use error::{Error, Result};
pub(crate) use options::{CompactionPlace, Delegation, Durability, Options, Replication, Syncing, WriteOptions};
pub(crate) use statistics::Statistics;
pub(crate) use undeleted::Undeleted;
