//! Jobs that run elsewhere: who asks, who places, who runs, and what they say to each other (O3-LSM 4.3). No I/O, no
//! clock, no lock, no thread: events go in, messages and orders come out.
//!
//! ```text
//!   owner                    scheduler                   executor            memory node
//!     │ opens the job ──────────────────────────────────────────────────────► ticket
//!     │ PREPARE ────────────────►│                           │
//!     │                          │ ASSIGN ──────────────────►│ joins ─────────► keys for this attempt
//!     │                          │◄────────────────── ACCEPT │
//!     │                          │                           │ reads, writes ─► outputs of this attempt
//!     │                          │◄────────────────── COMMIT │ ends ──────────► keys are revoked
//!     │◄──────────────── COMMIT  │
//!     │ adopts, installs ───────────────────────────────────────────────────► outputs are the shard's
//!     │ ACK ────────────────────►│
//! ```
//!
//! | decider | of whom | keeps |
//! |---|---|---|
//! | [`Owner`] | a database | the jobs that it waits for |
//! | [`Scheduler`] | the elected candidate | what owners and executors told it, and would tell again |
//! | [`Executor`] | a worker | the jobs that it runs |
//! | [`Election`] | each candidate for scheduling | its term |
//!
//! # Rules
//! - **The memory node decides who may write.** A job is a *ticket* there. An attempt joins it and gets keys for itself
//!   alone. A later attempt that joins ends the earlier one: its keys are revoked and its outputs are freed.
//! - **Only the owner installs**, once, an attempt that is still the last one. It refuses a COMMIT for a job that it no
//!   longer waits for.
//! - **Nobody has to trust the scheduler.** If it is slow, gone, deposed or wrong, the owner ends the ticket and runs the
//!   job at home.
//! - Attempts are ordered by the scheduler's term first, so those of a scheduler that was deposed never end later ones.
//! - Inputs are freed when the keys to them have been revoked and the job is acknowledged.

#![forbid(unsafe_code)]

mod election;
mod executor;
mod job;
mod line;
mod load;
mod message;
mod owner;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;
mod scheduler;
mod stored;
#[cfg(test)]
mod tests;

pub use election::{Election, Question, Register};
pub use executor::{Executor, Task};
pub use job::{Attempt, JobName, Life, Outcome, Package, Reason, Span, StorageAccess, StorageNeed, Term, Ticket};
pub use load::{Load, Policy, Weights};
pub use message::{Beat, Body, Letter, MAX_LETTERS, MAX_RUNNING, MOST_MESSAGE_BYTES, Message};
pub use owner::{Order, Owner};
pub use scheduler::{Party, Scheduler};
pub use stored::{MAX_SIGNED_NAMES, MAX_URL_BYTES, SignedName, SignedNames, StoredPlace};
