//! The compute node's side of a memory node: a session, memory, stores and shards, jobs.
//!
//! | part | holds |
//! |---|---|
//! | [`MemoryClient`] | the session on a link: kept alive, with the keys to the node's extents |
//! | [`SubAllocator`] | divides leased extents into allocations (dLSM V-A) |
//! | [`StoreHandle`], [`ShardHandle`] | the node's directory, owners and epochs, jobs |
//! | [`Reach`] | connects to a node again when a session has ended |
//! | [`JoinedTicket`] | an attempt at a job of another session |
//!
//! All calls are RPCs off the data path and count as background traffic. The data path only
//! resolves an extent and an offset to a [`RemoteAddress`](forebay_fabric::RemoteAddress), without
//! a lock.
//!
//! When the session ends, for whatever reason, every call fails with that reason and nothing
//! resolves any more.

#![forbid(unsafe_code)]

mod allocator;
mod callers;
mod client;
mod error;
mod keys;
mod options;
mod reach;
mod session;
mod store;
mod ticket;

pub use allocator::{Allocation, AllocatorOptions, AllocatorStatistics, SubAllocator};
pub use client::MemoryClient;
pub use error::Error;
pub use forebay_proto::replies::{Credit, DoorFigures, NodeLoad, PoolEntry, PoolPage, TenantFigures, TenantPage};
pub use forebay_proto::{Blob, Epoch, ExtentId, ExtentRange, Purpose, SessionId, ShardId, ShardKey, StoreId};
pub use options::ClientOptions;
pub use reach::Reach;
pub use session::{ReadGuard, Reader};
pub use store::{MAX_STORED_BYTES, ShardHandle, StoreHandle};
pub use ticket::JoinedTicket;
