//! The keys of clients over the ordered keys of the engine. This module knows no command and no connection.
//!
//! | module | holds |
//! |---|---|
//! | `layout` | the engine's keys |
//! | `header` | the value of a key's header |
//! | `streams` | keys and values of what belongs to a stream |
//! | `failure` | why a command failed |
//! | `events` | what happens to keys |
//! | `locks` | who may touch which keys at the same time |
//! | `plain` | keys that are known to hold a string that does not expire |
//! | `swept` | where entries of expiring keys begin |
//! | `spaces` | what a store knows of itself: seed, ids, databases, counts |
//! | `building` | elements of collections that do not exist yet |
//! | `writes` | what a run of commands has read and written so far |
//! | `fronts` | where streams, pending entries and sorted sets begin and end |
//! | `functions` | libraries of functions |
//! | `transaction` | keys, types and expiries on top of it |

pub mod building;
pub mod events;
pub mod failure;
pub mod fronts;
pub mod functions;
pub mod header;
pub mod layout;
pub mod locks;
pub mod plain;
pub mod spaces;
pub mod streams;
pub mod swept;
pub mod transaction;
pub mod writes;
