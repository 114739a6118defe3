//! Memory nodes and their clients.

mod compaction;
mod node;
mod simulated;
