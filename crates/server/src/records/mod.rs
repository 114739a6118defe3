//! Where records lie: the one room that knows the engines. Knows neither keys of clients nor commands.
//!
//! A record is a key of an engine with its value. Both engines have them in the bytewise order of their keys; what is written together is
//! there together, for whoever reads, and when the process is killed.
//!
//! | module | holds |
//! |---|---|
//! | `store` | the records of a server, on either engine |
//! | `batch` | what is written together |
//! | `direction`, `cursor` | a place among the records, and which way it goes |
//! | `changes` | changes as bytes |
//! | `journal` | where a batch of the shared tree is while it is applied |
//! | `unfinished` | batches of the shared tree that count and are not applied yet |
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
