//! Where records are stored: the only module that knows the engines. It knows neither keys of clients nor commands.
//!
//! A record is a key of an engine with its value. Both engines keep records in the bytewise order of their keys. What
//! is written together appears together, for every reader, and also when the process is killed.
//!
//! | module | holds |
//! |---|---|
//! | `store` | the records of a server, on either engine |
//! | `batch` | changes that are written together |
//! | `direction`, `cursor` | a place among the records, and its direction |
//! | `changes` | changes as bytes |
//! | `journal` | where a batch of the shared tree is stored while it is applied |
//! | `unfinished` | batches of the shared tree that count but are not applied yet |
//! | `tree` | the shared tree with batches and ranges |

pub mod batch;
pub mod changes;
pub mod cursor;
pub mod direction;
pub mod journal;
pub mod store;
#[cfg(test)]
pub mod testing;
pub mod tree;
pub mod unfinished;
