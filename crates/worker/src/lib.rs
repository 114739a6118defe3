//! An executor: a process with cores and no data, which runs jobs of databases over the fabric (O3-LSM 4.3).
//!
//! | part | holds |
//! |---|---|
//! | [`Worker`] | the threads: one that talks to the scheduler, and those that run jobs; [`SteppedWorker`] has none |
//! | `attempt` | one attempt at a job: joins the ticket, runs the job function of `table`, leaves the result in memory |
//! | `io` | the job's reads and writes: one-sided, with keys for that attempt alone |
//! | `stored` | its objects in storage, under names of that attempt: by what the owner of the job has signed, or by rights of the worker's own |
//! | [`NodeRegister`], [`StoredRegister`] | who schedules, as a memory node's directory or a storage knows it: for those who would |
//!
//! All decisions are made in [`forebay_offload::Executor`]. If a worker is stopped for so long that its sessions lapse,
//! its keys open nothing when it continues: its attempts fail, and it opens new sessions.

#![forbid(unsafe_code)]

mod attempt;
mod error;
mod io;
mod register;
mod stored;
mod stored_register;
mod throughput;
mod worker;

pub use error::Error;
pub use forebay_storage::{Follow, SignedAccess};
pub use register::NodeRegister;
pub use stored_register::StoredRegister;
pub use worker::{Occupied, Options, Statistics, SteppedWorker, Worker};
