//! Options of a memory node.

use crate::Error;
use crate::registry::JobRegistry;
use crate::state::Settings;
use crate::tenants::{Identify, TenantsOptions};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::NodeIdentity;
use forebay_offload::Policy;
use forebay_proto::MAX_EXTENTS;
use forebay_proto::ranges::GRANULARITY_BYTES;
use std::sync::Arc;
use std::time::Duration;

/// Minimum number of extents of a node.
pub const MIN_EXTENTS: u64 = 4;
/// Most threads for jobs.
pub const MAX_THREADS: usize = 1024;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Options of a memory node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory to offer in bytes, rounded down to whole extents.
    pub memory_bytes: u64,
    /// Length of an extent in bytes, a multiple of 4 KiB. A single allocation must fit into an
    /// extent, so extents are large by default: a sixteenth of the memory but at most 256 MiB, or a
    /// 512th where that is more, in whole 2 MiB pages.
    pub extent_bytes: Option<u64>,
    /// Memory in bytes that only garbage collection gets. By default a 16th.
    pub headroom_bytes: Option<u64>,
    /// Memory in bytes kept for the node's own jobs (dLSM V-A). By default a 16th.
    pub job_bytes: Option<u64>,
    /// The tenants that share the node, and their parts.
    pub tenants: TenantsOptions,
    /// Identifies the client of a link.
    pub identify: Identify,
    /// How long a session lives without a call. At least 10 ms.
    pub lease: Duration,
    /// Number of threads for jobs. With none, jobs are refused.
    pub threads: usize,
    /// Whether it places jobs on executors without having been elected
    /// ([`Handle::schedule`](crate::Handle::schedule)).
    pub schedules: bool,
    /// How it places jobs.
    pub placement: Policy,
    /// Whether to commit all memory at the start, as registration with a network card does. A
    /// shortage then shows at once, and no write waits for a page to be zeroed.
    pub commit: bool,
    /// Whether nothing else runs in the process, so that all its processor time counts as the
    /// node's.
    pub whole_process: bool,
    /// The runners of jobs.
    pub jobs: JobRegistry,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            extent_bytes: None,
            headroom_bytes: None,
            job_bytes: None,
            tenants: TenantsOptions::default(),
            identify: Identify::default(),
            lease: Duration::from_secs(10),
            threads: 1,
            schedules: true,
            placement: Policy::default(),
            commit: false,
            whole_process: false,
            jobs: JobRegistry::standard(),
            clock: SystemClock::shared(),
        }
    }
}

impl Options {
    /// Options for a node of `memory_bytes`.
    #[must_use]
    pub fn with_memory(memory_bytes: u64) -> Self {
        Self { memory_bytes, ..Self::default() }
    }

    /// Default length of an extent in bytes.
    #[must_use]
    pub fn default_extent_bytes(memory_bytes: u64) -> u64 {
        let share = (memory_bytes / 16).min(256 << 20).max(memory_bytes / 512);
        (share - share % HUGE_PAGE_BYTES).max(HUGE_PAGE_BYTES)
    }

    /// Checks the options, as starting a node does.
    ///
    /// # Errors
    /// The message says what would be valid.
    pub fn check(&self) -> Result<(), Error> {
        self.settings(NodeIdentity { node: 0, incarnation: 0 }).map(drop)
    }

    /// The settings of the state machine.
    pub(crate) fn settings(&self, identity: NodeIdentity) -> Result<Settings, Error> {
        let extent_bytes = self.extent_bytes.unwrap_or_else(|| Self::default_extent_bytes(self.memory_bytes));
        if extent_bytes == 0 || !extent_bytes.is_multiple_of(GRANULARITY_BYTES) {
            let wrong = format!("an extent of {extent_bytes} bytes: use a positive multiple of {GRANULARITY_BYTES}");
            return Err(Error::Options(wrong));
        }
        let extents = self.memory_bytes / extent_bytes;
        if !(MIN_EXTENTS..=u64::from(MAX_EXTENTS)).contains(&extents) {
            return Err(Error::Options(format!(
                "{} bytes of memory are {extents} extents of {extent_bytes} bytes: use {MIN_EXTENTS} to {MAX_EXTENTS} \
                 extents",
                self.memory_bytes
            )));
        }
        let share = |wanted: Option<u64>| match wanted {
            Some(bytes) => bytes.div_ceil(extent_bytes),
            None => (extents / 16).max(1),
        };
        let (headroom, kept) = (share(self.headroom_bytes), share(self.job_bytes));
        if headroom.saturating_add(kept) >= extents {
            let wrong = "headroom and memory for jobs leave nothing to lease: make them smaller, or the memory larger";
            return Err(Error::Options(wrong.into()));
        }
        if self.lease < Duration::from_millis(10) {
            return Err(Error::Options(format!("a lease of {:?}: use 10 ms at least", self.lease)));
        }
        if self.threads > MAX_THREADS {
            return Err(Error::Options(format!("{} threads for jobs: use at most {MAX_THREADS}", self.threads)));
        }
        self.tenants.check()?;
        Ok(Settings {
            node: identity.node,
            incarnation: identity.incarnation,
            extent_bytes,
            extents: extents as u32,
            headroom_extents: headroom as u32,
            kept_extents: kept as u32,
            lease: u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX),
            job_threads: self.threads as u32,
            schedules: self.schedules,
            placement: self.placement,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: NodeIdentity = NodeIdentity { node: 1, incarnation: 2 };

    #[test]
    fn extents_fit_the_memory() {
        for (memory_mib, extent_mib) in
            [(8, 2), (128, 8), (129, 8), (1024, 64), (4096, 256), (8192, 256), (262_144, 512)]
        {
            assert_eq!(Options::default_extent_bytes(memory_mib << 20), extent_mib << 20, "{memory_mib} MiB");
        }
        let settings = Options::with_memory(1 << 30).settings(IDENTITY).unwrap();
        assert_eq!((settings.extents, settings.headroom_extents, settings.kept_extents), (16, 1, 1));
    }

    #[test]
    fn wrong_options_say_what_is_right() {
        let with = |change: fn(&mut Options)| {
            let mut options = Options::with_memory(64 << 20);
            change(&mut options);
            options.settings(IDENTITY).unwrap_err().to_string()
        };
        assert!(with(|o| o.memory_bytes = 1 << 20).contains("use 4 to"));
        assert!(with(|o| o.extent_bytes = Some(100)).contains("multiple of 4096"));
        assert!(with(|o| o.extent_bytes = Some(0)).contains("multiple of 4096"));
        assert!(with(|o| o.headroom_bytes = Some(u64::MAX)).contains("smaller"));
        assert!(with(|o| o.lease = Duration::ZERO).contains("10 ms"));
        assert!(with(|o| o.threads = 100_000).contains("at most 1024"));
    }
}
