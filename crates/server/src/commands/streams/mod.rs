//! Streams: entries in the order of their ids, and groups of consumers who share them.
//!
//! An entry is one record. A pending entry of a group is also one record, with a second one in the order of a
//! consumer's ids (`keyspace::streams`). So only what changes is written, whatever the size of the stream.
//!
//! | module | holds |
//! |---|---|
//! | `ids` | ids as clients write them |
//! | `entries` | reading and deleting entries |
//! | `trimming` | which entries are too many or too old |
//! | `basic` | commands about entries |
//! | `groups` | groups, consumers, and what is pending |
//! | `counters` | how far a group has read |
//! | `reading` | commands that read from several streams, or wait for entries |
//! | `group_commands` | commands about groups and consumers |
//! | `claims` | commands about what is pending |
//! | `info` | what is known about a stream |
//! | `whole` | all of a stream as one value |

pub mod basic;
pub mod claims;
mod counters;
mod entries;
pub mod group_commands;
mod groups;
mod ids;
pub mod info;
pub mod reading;
mod trimming;
pub(crate) mod whole;
