//! Clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time in nanoseconds since some start.
pub type Nanos = u64;

/// A source of time. Cheap to clone through an `Arc`.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Monotonic nanoseconds since the clock's start.
    fn now(&self) -> Nanos;
    /// Milliseconds since 1970. May jump; nothing that must be safe may depend on it.
    fn wall_ms(&self) -> u64;
    /// Waits. A manual clock advances instead.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// The same as a shared trait object.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock's milliseconds since 1970, which never go back: while the clock says less than before, time stands still.
#[derive(Debug)]
pub struct ForwardTime {
    clock: Arc<dyn Clock>,
    latest_ms: AtomicU64,
}

impl ForwardTime {
    /// The time of this clock.
    #[must_use]
    pub const fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, latest_ms: AtomicU64::new(0) }
    }

    /// The time, never earlier than any that was returned before.
    pub fn now_ms(&self) -> u64 {
        let now = self.clock.wall_ms();
        // Relaxed: no other data is read through this word, and no thread sees a single word go back.
        let latest = self.latest_ms.load(Ordering::Relaxed);
        if now <= latest { latest } else { self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now) }
    }

    /// From now on, the time is at least `time_ms`.
    pub fn begin_at(&self, time_ms: u64) {
        self.latest_ms.fetch_max(time_ms, Ordering::Relaxed);
    }
}

/// A clock that moves only when told: for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.now.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        self.now.load(Ordering::Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        self.now() / 1_000_000
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
