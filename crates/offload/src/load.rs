//! What a job costs on a node: the paper's formula, as data.
//!
//! ```text
//!  cost = size × (1 + L) + moved × m
//!  L    = a × active threads / threads + b × write throughput / calibrated bandwidth + c × pending / queue limit
//! ```
//!
//! With `m` zero this is O3-LSM 4.3: 64 MB cost 70.4 at a load of 0.1 and 121.6 at 0.9. [`Weights::MOVING`] also counts
//! the bytes that have to move, which the paper's formula does not: an idle node far away is then no better than a busy
//! one beside the data.
//!
//! The owner's own threads share a processor with its writers and readers, which no figure of the threads shows. So a
//! constant is added to the owner's load, which is zero in the paper's formula and one by default.

use forebay_env::Nanos;

/// Millionths in one.
const ONE: u128 = 1_000_000;

/// How busy a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Load {
    /// Threads that run jobs.
    pub active_threads: u32,
    /// Threads for jobs.
    pub threads: u32,
    /// What the node writes now, bytes a second.
    pub written_per_second: u64,
    /// What the node can write, bytes a second; zero when nobody has measured it, and then it does not count.
    pub bandwidth_per_second: u64,
    /// Jobs that wait for a thread.
    pub pending: u32,
    /// How many jobs may wait.
    pub queue_limit: u32,
}

impl Load {
    /// `L`, in millionths.
    #[must_use]
    pub fn millionths(&self, weights: &Weights) -> u64 {
        let share = |weight: u32, part: u64, whole: u64, unknown: u128| match whole {
            0 => unknown * u128::from(weight) / 1000,
            whole => u128::from(part) * ONE * u128::from(weight) / 1000 / u128::from(whole),
        };
        let sum = share(weights.threads, self.active_threads.into(), self.threads.into(), ONE)
            + share(weights.throughput, self.written_per_second, self.bandwidth_per_second, 0)
            + share(weights.pending, self.pending.into(), self.queue_limit.into(), 0);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// Whether a job would have to wait for a thread.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.active_threads >= self.threads
    }

    /// Whether no further job may come.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_busy() && self.pending >= self.queue_limit
    }

    /// Returns the load with one more job.
    #[must_use]
    pub const fn and_one(mut self) -> Self {
        if self.is_busy() {
            self.pending = self.pending.saturating_add(1);
        } else {
            self.active_threads += 1;
        }
        self
    }
}

/// Factors of the formula, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Weights {
    /// The factor of threads (a).
    pub threads: u32,
    /// The factor of throughput (b).
    pub throughput: u32,
    /// The factor of pending jobs (c).
    pub pending: u32,
    /// The factor of each byte that has to move (m).
    pub moved: u32,
    /// The constant that is added to the load of a job's owner.
    pub home: u32,
}

impl Weights {
    /// The paper's factors: one each, and nothing for bytes that have to move.
    pub const PAPER: Self = Self { threads: 1000, throughput: 1000, pending: 1000, moved: 0, home: 0 };
    /// The same, but a byte that has to move costs as much as one that is worked on.
    pub const MOVING: Self = Self { moved: 1000, ..Self::PAPER };

    /// The paper's factors, except for what a job costs its owner.
    pub const SPARING: Self = Self { home: 1000, ..Self::PAPER };

    /// The paper's factors, but a job's owner comes last: it costs a thousand times as much as an idle node.
    pub const AWAY: Self = Self { home: 1_000_000, ..Self::PAPER };

    /// The cost of a job of `size` bytes at its owner.
    #[must_use]
    pub fn cost_at_home(&self, size: u64, load: &Load) -> u128 {
        self.cost(size, size, load) + u128::from(size) * u128::from(self.home) / 1000
    }

    /// The cost of a job of `size` bytes, of which `moved` have to move, at this load.
    #[must_use]
    pub fn cost(&self, size: u64, moved: u64, load: &Load) -> u128 {
        let size = u128::from(size);
        // All of these are what peers say. No product of two numbers of 64 bits overflows here, but with the one added to
        // the load beforehand it could.
        let work = size + size * u128::from(load.millionths(self)) / ONE;
        work + u128::from(moved) * u128::from(self.moved) / 1000
    }
}

/// How jobs are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The factors of the formula.
    pub weights: Weights,
    /// How long an executor may take to accept a job.
    pub accept: Nanos,
    /// How long an executor may be silent.
    pub silence: Nanos,
    /// How long a job waits for an executor while its owner is busy, and a COMMIT for its owner.
    pub patience: Nanos,
    /// Attempts at a job.
    pub attempts: u32,
    /// Bytes by which a database may be ahead of another one whose jobs also wait.
    pub most_ahead_bytes: u64,
    /// Jobs of a database that may wait.
    pub most_waiting: usize,
    /// Jobs that the scheduler may know of.
    pub most_jobs: usize,
}

impl Default for Policy {
    fn default() -> Self {
        const SECOND: Nanos = 1_000_000_000;
        Self {
            weights: Weights::SPARING,
            accept: 2 * SECOND,
            silence: 5 * SECOND,
            patience: 10 * SECOND,
            attempts: 3,
            most_ahead_bytes: 256 << 20,
            most_waiting: 64,
            most_jobs: 4096,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_two_numbers() {
        let at = |active_threads| Load { active_threads, threads: 10, ..Load::default() };
        assert_eq!(Weights::PAPER.cost(64_000_000, 0, &at(1)), 70_400_000);
        assert_eq!(Weights::PAPER.cost(64_000_000, 0, &at(9)), 121_600_000);
    }

    #[test]
    fn any_load_has_a_cost() {
        let most = Load { written_per_second: u64::MAX, bandwidth_per_second: 1, ..Load::default() };
        assert_eq!(most.millionths(&Weights::PAPER), u64::MAX);
        for weights in [Weights::PAPER, Weights::MOVING, Weights::AWAY] {
            let cost = |load: &Load| weights.cost_at_home(u64::MAX, load);
            assert!(cost(&most) > cost(&Load::default()));
        }
    }

    #[test]
    fn each_part_counts_by_its_weight() {
        let load = Load {
            active_threads: 1,
            threads: 2,
            written_per_second: 30,
            bandwidth_per_second: 100,
            pending: 1,
            queue_limit: 8,
        };
        assert_eq!(load.millionths(&Weights::PAPER), 500_000 + 300_000 + 125_000);
        assert_eq!(load.millionths(&Weights { threads: 0, throughput: 2000, pending: 0, moved: 0, home: 0 }), 600_000);
        // A node without threads is as busy as can be; what is unknown or unlimited is not counted.
        assert_eq!(Load::default().millionths(&Weights::PAPER), 1_000_000);
        let full = Load { active_threads: u32::MAX, threads: 1, pending: u32::MAX, queue_limit: 1, ..load };
        assert!(Weights::MOVING.cost(u64::MAX, u64::MAX, &full) > u128::from(u64::MAX));
    }
}
