//! The clock of a database: the network's clock, with a time of day that moves only when the run says so. So what has
//! expired does not depend on how long a call takes.

use forebay_env::{Clock, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct DayClock {
    network: Arc<dyn Clock>,
    wall_ms: AtomicU64,
    latest_ms: AtomicU64,
}

impl DayClock {
    pub(crate) fn new(network: Arc<dyn Clock>, wall_ms: u64) -> Self {
        Self { network, wall_ms: wall_ms.into(), latest_ms: wall_ms.into() }
    }

    /// Moves the time of day forward from the latest that it has been.
    pub(crate) fn advance(&self, milliseconds: u64) {
        let wall_ms = self.latest_ms.fetch_add(milliseconds, Ordering::Relaxed) + milliseconds;
        self.wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    /// Moves the time of day back.
    pub(crate) fn go_back(&self, milliseconds: u64) {
        self.wall_ms.store(self.wall_ms().saturating_sub(milliseconds), Ordering::Relaxed);
    }

    /// The latest that the time of day has been.
    pub(crate) fn latest_ms(&self) -> u64 {
        self.latest_ms.load(Ordering::Relaxed)
    }
}

impl Clock for DayClock {
    fn now(&self) -> Nanos {
        self.network.now()
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.network.sleep(duration);
    }
}
