//! Benchmarks and tests for Forebay: db_bench's workloads, YCSB, recorded traces, values that verify themselves,
//! latencies and reports.
//!
//! A workload drives a [`Store`] and knows nothing about the layers below. The store's counts ([`Figures`]) are read
//! before and after each phase. The difference goes into the phase's [`PhaseReport`], which is printed as JSON
//! (`docs/reference/json.md`) or as a table.
//!
//! # Measuring
//!
//! The threads of a phase start together, and the phase lasts until the last one ends. Unless calls are sampled
//! ([`Timing`]), the clock is read once per operation, as in db_bench. The latency of an operation reaches from the end
//! of the previous operation to its own end, so it includes making the key and checking the value. Latencies of threads
//! are merged, counts are summed.
//!
//! # Verification
//!
//! A value is a function of its key's number and a version ([`values`]). Benchmarks check that each read returns a
//! value of the requested key, whole in every byte. Trace replay keeps a model of the store and also checks the
//! version.

#![forbid(unsafe_code)]

pub mod bench;
mod durable;
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

pub use durable::{LogFigures, RecoveryFigures, StorageFigures};
pub use error::Error;
pub use histogram::{Latencies, LatencyMicros};
pub use map_store::MapStore;
pub use measure::{Progress, Run, Timing};
pub use page::render_page;
pub use report::{
    Compute, Curves, FabricCounts, Level, Lsm, MemoryNode, Modelled, OperationReport, PhaseReport, Report,
};
pub use store::{Cursor, Figures, LevelFigures, LookupFigures, LsmFigures, MemoryNodeFigures, Store, StoreError};
pub use table::{render_header, render_phase, render_summary};
