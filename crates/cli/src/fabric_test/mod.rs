//! `forebay fabric-test`: latency and rate of each operation of the fabric.
//!
//! A cell is one operation, one size and one depth: `depth` operations are posted, one doorbell is
//! rung, all completions are waited for, and so on until the time is over. One batch in sixteen is
//! timed by itself for the percentiles; the rate comes from all of them, so that reading the clock
//! (some 25 ns) does not count against it. Latency is that of a whole batch, so at depth 1 of one
//! operation.

mod command;
mod measure;
mod render;
mod target;

pub use command::{Arguments, execute};
use measure::{Cell, Operation, Plan, run};
use render::{header, row, to_json};
