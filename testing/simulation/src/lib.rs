//! Seeded runs of a whole database: engine, memory nodes, the network between them, and storage, on one thread.
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
//! Everything depends on one seed: the operations, their interleaving, the network's disorder, and the faults. Most seeds
//! also draw how often each kind of call is made and how often each rare event happens (see `swarm`). Where a
//! call waits for the network, a step of background work may run to its end (a version changes during a read). Where a
//! step waits, calls may run (a flush meets writes). Interactions of two threads inside one memtable are covered by
//! loom and shuttle, not here.
//!
//! The storage is a disk or an object store in memory. Its operations take no time, and nothing else runs meanwhile.
//! But before any of them the process may be struck: killed, with or without a loss of power, or taken over. Operations
//! fail, replies are lost, and requests may be carried out late. What must be found afterwards follows from the
//! durability of each write (see `journal`).
//!
//! Bytes are damaged in storage, on their way from it, and in copies in memory. `damage` says what must be found then.
//!
//! Checkpoints of a database on storage are made and dropped. Now and then another process reads one, while the owner works
//! and is struck (see `checkpoints`).
//!
//! A database with several copies in memory loses memory nodes, and links to them, one at a time. It loses a node only
//! while all copies exist. Nodes come back empty, and copies are made there.
//!
//! | module | what |
//! |---|---|
//! | `stage` | the network, the nodes, the database, and the work done while somebody waits |
//! | `workers` | processes that run jobs of the database, while somebody waits |
//! | `store` | the storage |
//! | `damage` | what is damaged, and what may be seen of it |
//! | `operands` | the merge operators |
//! | `clock` | the time of day by which keys expire |
//! | `habits` | what calls a seed makes |
//! | `swarm` | how often it makes each kind of call, and how often rare events happen |
//! | `calls` | random calls, each checked against a model |
//! | `checkpoints` | what must be found in checkpoints |
//! | `keeping` | calls that make and drop checkpoints |
//! | `run` | one seed from the start to the end |
//! | `images` | images of the storage at any moment of a run, each opened and checked |

#![forbid(unsafe_code)]

mod calls;
mod checkpoints;
mod clock;
mod damage;
mod draw;
mod habits;
mod images;
mod journal;
mod keeping;
mod model;
mod neighbour;
mod operands;
mod reads;
mod run;
mod stage;
mod store;
mod swarm;
mod totals;
mod walker;
mod workers;

pub use checkpoints::CheckpointCounts;
pub use damage::DamageCounts;
pub use images::{ImageReport, run_images};
pub use run::{Report, RunOptions, run_seed};
pub use totals::Totals;
