//! How a scheduler places jobs, as a flag.

use forebay_offload::{Policy, Weights};

/// Where a job costs least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Placement {
    /// At whoever is least busy; the compute node counts as busier than it says, as it has other work.
    #[default]
    Sparing,
    /// At the compute node only when nobody else takes it.
    Away,
    /// At whoever is least busy.
    Paper,
    /// The same, but bytes that have to move count as much as the work.
    Moving,
}

impl Placement {
    /// What the scheduler goes by.
    pub fn policy(self) -> Policy {
        let weights = match self {
            Self::Sparing => Weights::SPARING,
            Self::Away => Weights::AWAY,
            Self::Paper => Weights::PAPER,
            Self::Moving => Weights::MOVING,
        };
        Policy { weights, ..Policy::default() }
    }
}
