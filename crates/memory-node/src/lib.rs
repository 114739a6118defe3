//! A memory node: it leases memory, checks who may touch it, and runs jobs.
//!
//! | part | holds |
//! |---|---|
//! | [`state`] | what the node decides: a pure state machine |
//! | `tenants` | who may use the node, and how much of it, as configured by the operator |
//! | `core` | the state behind a lock, the memory and the keys |
//! | [`server`] | the loop over the fabric's events: receives calls, and serves them in turns |
//! | `workers` | threads for jobs, which also take turns, and for upkeep: zeroing |
//! | [`job`] | what a job is, and what memory it may touch |
//! | `compaction` | the job that compacts tables where they are stored |
//! | `search` | the job that looks up keys for readers |
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

mod accounts;
mod compaction;
mod core;
mod error;
#[cfg(test)]
mod fakes;
mod gather;
pub mod job;
mod options;
mod registry;
mod search;
pub mod server;
pub mod state;
mod telling;
mod tenants;
mod workers;

pub use error::Error;
pub use job::{JobError, JobMemory, JobRunner, Pace};
pub use options::{MIN_EXTENTS, Options};
pub use registry::JobRegistry;
pub use server::{Handle, MemoryNode};
pub use state::Job;
pub use tenants::{
    Identify, Identity, Limits, MAX_NAME_BYTES, MAX_TENANTS, MAX_WEIGHT, TenantOptions, TenantRights, TenantsOptions,
};
