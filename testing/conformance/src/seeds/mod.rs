//! Seeded runs of the simulated back end, checked against a model.
//!
//! A run posts random operations on several endpoints of several links while completions are lost,
//! endpoints break, grants are revoked and the node crashes. One thread does it all, so a seed
//! gives the same run again. What is checked, knowing only the contract of the simulation:
//!
//! * words that are written and read ([`words`]): a read gives a value that the word can have had
//!   between the read's post and its completion;
//! * atomics ([`atomics`]): those of a word form one chain that explains every word they returned;
//! * memory that one endpoint uses alone: exact, to the byte;
//! * what is outside the granted ranges, and the memory of a node that has crashed: unchanged;
//! * operations with a forged, revoked or stale key, or outside their grant: never succeed;
//! * messages: whole, in order, once; and counts: what was posted.

pub mod atomics;
mod clients;
mod layout;
mod options;
mod origin;
mod run;
pub mod words;

pub use options::{SeedOptions, SeedReport};
pub use origin::{Moment, Origin};

use forebay_fabric::RevocationMode;
use forebay_fabric::sim::{Faults, Order, SimOptions};

/// Runs a seed.
///
/// # Errors
/// What was seen that must not be.
pub fn run_seed(seed: u64, options: &SeedOptions) -> Result<SeedReport, String> {
    run::Run::new(seed, options, simulation(seed, options))?.finish()
}

/// Order and revocation change with the seed.
fn simulation(seed: u64, options: &SeedOptions) -> SimOptions {
    let orders = [Order::Writes, Order::Total, Order::None];
    let revocation = if seed % 5 == 4 { RevocationMode::Cooperative } else { RevocationMode::Enforced };
    SimOptions {
        line_bytes: options.line_bytes,
        order: orders[(seed % 3) as usize],
        revocation,
        faults: Faults { lose_completion: 1000, break_endpoint: 500, close_link: 100, crash_node: 50 },
        plant: options.plant,
        ..SimOptions::default()
    }
}
