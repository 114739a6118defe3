//! The environment: the only source of time, randomness and threads.
//!
//! Everything that a run depends on besides its input comes from here, so a simulation can fix it.
//! Elsewhere, clippy forbids the standard library's own functions for these.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod clock;
pub mod cpu;
mod hash;
mod planted;
pub mod process;
mod random;
mod secret;
pub mod sync;
pub mod thread;
mod throttle;

pub use clock::{Clock, ForwardTime, ManualClock, Nanos, SystemClock};
pub use hash::{HashMap, HashSet};
pub use random::Random;
#[cfg(feature = "seeded-secrets")]
pub use secret::SeededSecrets;
pub use throttle::Throttle;
