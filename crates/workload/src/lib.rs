//! What Forebay is measured and tried with: db_bench's workloads, recorded traces, values that
//! verify themselves, latencies and reports.
//!
//! A workload drives a [`Store`] and knows nothing of what is below it. What a store counts
//! ([`Figures`]) is read before and after each phase; the difference goes into the phase's
//! [`PhaseReport`], which is printed as JSON (`docs/reference/json.md`) or as a table.
//!
//! # Measuring
//!
//! The threads of a phase start together, and the phase lasts until the last one
//! ends. Unless calls are sampled ([`Timing`]), as in db_bench the clock is read once an operation: the latency of an operation reaches
//! from the end of the one before it to its own end, so it includes making the key and checking
//! the value. Latencies of threads are merged, figures are sums.
//!
//! # Verification
//!
//! A value is a function of its key's number and a version ([`values`]). Benchmarks check that what
//! they read is a value of the key they asked for, whole in every byte; trace replay keeps a model
//! of the store and checks the version too.

#![forbid(unsafe_code)]

pub mod bench;
mod error;
mod histogram;
pub mod keys;
mod map_store;
mod measure;
mod mix;
mod page;
pub mod plot;
pub mod replay;
mod report;
mod store;
mod table;
pub mod trace;
pub mod values;
pub mod ycsb;

pub use error::Error;
pub use histogram::{Latencies, LatencyMicros};
pub use map_store::MapStore;
pub use measure::{Progress, Run, Timing};
pub use page::render_page;
pub use report::{
    Compute, Curves, FabricCounts, Level, Lsm, MemoryNode, Modelled, OperationReport, PhaseReport, Report,
};
pub use store::{Cursor, Figures, LevelFigures, LsmFigures, MemoryNodeFigures, Store, StoreError};
pub use table::{render_header, render_phase, render_summary};
