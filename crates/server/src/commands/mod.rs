//! What commands do: a module for each family, each with its table of commands.
//!
//! `command` says what a command is, and what it is given; `arguments` says how it reads what the client sent; `table`
//! lists all commands. A new family is a module here, a line in `table`, and, if it needs new kinds of elements, a line
//! in `keyspace::layout`.

pub mod acl;
pub mod arguments;
pub mod bitfield;
pub mod bitmaps;
pub mod blocking;
mod building;
pub mod categories;
pub mod checkpoints;
pub mod client;
pub mod collections;
pub mod command;
pub mod compatibility;
pub mod connection;
pub mod diagnostics;
pub mod documentation;
pub mod dump;
pub mod expire_time;
pub mod expiry;
pub mod geo;
pub mod hashes;
pub mod hyperloglog;
pub mod info;
pub mod introspection;
pub mod keys;
pub mod lcs;
pub mod lists;
pub mod lolwut;
pub mod memory;
pub mod migrate;
pub mod monitored;
pub mod permission;
pub mod persistence;
pub mod pubsub;
pub mod scan;
pub mod scripting;
pub mod server;
pub mod set_algebra;
pub mod sets;
pub mod sorted_sets;
pub mod sorting;
pub mod streams;
pub mod strings;
pub mod table;
mod tracking;
pub mod transactions;
mod whole;
