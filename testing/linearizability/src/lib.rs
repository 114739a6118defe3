//! Histories of the shared tree's clients in the simulated fabric, and whether an order explains them.
//!
//! ```text
//!   8 clients, one running at a time ──► trees of several processes
//!        │ a turn ends where a client       │
//!        │ waits, or posts an operation     ▼
//!        ▼                           simulated fabric ── lines of 8 bytes, any order, late and lost
//!     history ──► an order?               │              completions, endpoints that break
//!                                         ▼
//!                                    a memory node, served by waiting clients
//! ```
//!
//! Everything depends on one seed: the geometry of the leaves, who runs when, who dies where, and what
//! the network does. A run has rounds. In each, clients work on a few keys at once. When all have ended,
//! and what was lost on the way has landed, the tree is verified and read. Then stateright's tester
//! looks for an order of each key's operations that agrees with real time and with every answer. What a
//! scan found counts as a get of each key.
//!
//! | module | what |
//! |---|---|
//! | `turns` | threads, one of which runs at a time, as a seed decides |
//! | `history` | operations, answers, and the search for an order |
//! | `stage` | the network, the node, sessions and trees |
//! | `run` | one seed from the start to the end |
//! | `exhaustive` | all schedules of a few clients |

#![forbid(unsafe_code)]

#[cfg(feature = "planted")]
pub mod exhaustive;
mod history;
mod run;
mod stage;
mod turns;

pub use run::{Report, run_seed};
