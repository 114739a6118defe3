//! Workloads, and stores with faults that they must notice.

mod common;
mod replays;
mod workloads;
mod ycsb;
