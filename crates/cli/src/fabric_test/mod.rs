//! `forebay fabric-test`: latency and rate of each operation of the fabric.
//!
//! A cell is one operation, one size and one depth. It posts `depth` operations, rings one doorbell
//! and waits for all completions, and repeats this until the time is over. One batch in sixteen is
//! timed separately for the percentiles. The rate comes from all batches, so the cost of reading
//! the clock (some 25 ns) does not affect it. Latency is that of a whole batch, so at depth 1 it is
//! that of one operation.
//!
//! Several targets are measured in turn, cell by cell, so that other load on the machine weighs on all of them.
//! `--tls-cost` compares TCP in plain and within TLS in this way.

mod command;
mod loopback;
mod measure;
mod render;
mod target;

pub use command::{Arguments, execute};
use measure::{Cell, Operation, Plan, run};
use render::Compared;
