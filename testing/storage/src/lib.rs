//! What every back end of the storage must do, and what must exist after every crash.
//!
//! - [`cases`]: one suite that a directory, memory, the simulated disk, two servers of S3, one like Google's, and HDFS pass.
//! - [`crash`]: logs, the commit register and objects on the simulated back ends: ended, failed and overtaken at every step.
//! - [`servers`]: real servers on loopback, which tests start and end.
//! - [`Place`]: storage that a test uses alone: a folder, or one of the servers.
//!
//! A checker returns what it found, so that `tests/planted.rs` can see that each planted bug is found.

#![forbid(unsafe_code)]

pub mod cases;
pub mod crash;
mod place;
pub mod servers;

pub use place::Place;

/// What a checker found wrong, in words.
pub type Finding = String;

/// Fails with the message `text` unless `holds`.
pub(crate) fn check(holds: bool, text: impl FnOnce() -> String) -> Result<(), Finding> {
    if holds { Ok(()) } else { Err(text()) }
}
