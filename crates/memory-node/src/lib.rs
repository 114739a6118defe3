//! A memory node: it hands out memory, checks who may touch it, and runs jobs.
//!
//! | part | holds |
//! |---|---|
//! | [`state`] | what the node decides: a pure state machine |
//! | `core` | the state behind a lock, the memory and the keys |
//! | [`server`] | the loop over the fabric's events |
//! | `workers` | threads for jobs and for upkeep: zeroing, pulling long arguments |
//! | [`job`] | what a job is, and what memory it may touch |
//! | `compaction` | the job that compacts tables where they lie |
//!
//! ```
//! use forebay_memory_node::{MemoryNode, Options};
//! let (listener, connector) = forebay_fabric::inprocess::listen(1).unwrap();
//! let node = MemoryNode::start(Box::new(listener), Options::with_memory(64 << 20)).unwrap();
//! let _link = connector.connect().unwrap();
//! assert_eq!(node.statistics().sessions, 0);
//! node.shutdown().unwrap();
//! ```

#![forbid(unsafe_code)]

mod compaction;
mod core;
mod error;
mod gather;
pub mod job;
mod options;
pub mod server;
pub mod state;
mod workers;

pub use error::Error;
pub use job::{JobError, JobMemory, JobRegistry, JobRunner};
pub use options::{MIN_EXTENTS, Options};
pub use server::{Handle, MemoryNode};
pub use state::Job;
