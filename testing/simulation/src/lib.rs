//! Seeded runs of a whole database: engine, memory node and the network between them, on one thread.
//!
//! ```text
//!            calls, checked against a model          steps of background work
//!                        │                                      │
//!                        └──────► engine, without threads ◄─────┘
//!                                        │ waits
//!                                 simulated fabric ── hook ──► the memory node's step
//!                                                        ├───► a worker: what it was given
//!                                                        └───► now and then, what is not running:
//!                                                              a step under a call, a call under a step
//! ```
//!
//! Everything depends on one seed: the operations, their interleaving, the network's disorder, and the faults. Where a
//! call waits for the network, a step of background work may run to its end (a version changes during a read). Where a
//! step waits, calls may run (a flush meets writes). Interactions of two threads inside one memtable are covered by
//! loom and shuttle, not here.
//!
//! | module | what |
//! |---|---|
//! | `stage` | the network, the nodes, the database, and the work done while somebody waits |
//! | `workers` | processes that run jobs of the database, while somebody waits |
//! | `calls` | random calls, each checked against a model |
//! | `run` | one seed from the start to the end |

#![forbid(unsafe_code)]

mod calls;
mod draw;
mod journal;
mod model;
mod reads;
mod run;
mod stage;
mod totals;
mod walker;
mod workers;

pub use run::{Report, RunOptions, run_seed};
pub use totals::Totals;
