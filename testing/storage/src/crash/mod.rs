//! Crashes, faults and takeovers at every step of the simulated back ends.
//!
//! Each checker runs a script once to count its steps, and then once for each step and each thing that can happen there:
//! the process ends, the operation fails in one of several ways, or the process is stopped while another one takes over, and
//! then continues. A script is made from a seed.

mod log;
mod objects;
mod register;
mod world;

pub use log::{cut_log, damaged_log, log, not_found_log};
pub use objects::objects;
pub use register::{not_found_commits, register};
pub use world::{DiskWorld, ObjectWorld, World};
