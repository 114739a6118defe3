//! What all handles of a network share.

use super::options::{Order, SimOptions, Time};
use super::world::World;
use crate::{Atomics, Capabilities};
use forebay_env::ManualClock;
use forebay_env::sync::lock;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Virtual time of a step.
const STEP_NANOS: u64 = 100;
/// Virtual time that passes at first when nothing can advance, before the hook is called again.
const FIRST_NAP: Duration = Duration::from_millis(1);
/// Naps of one length, before they become twice as long.
const NAPS_ALIKE: u32 = 8;
/// How often naps double: a nap is 64 ms at most. A caller that waits a minute for something lost need not
/// look 60,000 times.
const LONGEST_NAP_SHIFT: u32 = 6;
/// Longest that a thread sleeps in real time before it looks again.
const NAP: Duration = Duration::from_millis(20);

pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The side of those who wait. The nodes' side holds only [`Inner`], because the hook may hold nodes.
#[derive(Debug)]
pub(super) struct Users(pub(super) Arc<Inner>);

impl Users {
    /// Lets others of this thread work.
    pub(super) fn run_hook(&self) {
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl std::ops::Deref for Users {
    type Target = Arc<Inner>;

    fn deref(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Drop for Users {
    /// Nobody can wait any more, so this drops the hook and the nodes that it serves.
    fn drop(&mut self) {
        let hook = lock(&self.hook).take();
        drop(hook);
    }
}

pub(super) struct Inner {
    pub(super) world: Mutex<World>,
    /// Something has happened that a sleeping thread may wait for.
    pub(super) changed: Condvar,
    pub(super) clock: Arc<ManualClock>,
    pub(super) hook: Mutex<Option<Hook>>,
    pub(super) options: SimOptions,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sim",
            atomics: Atomics::RemoteOnly,
            ordered: self.options.order == Order::Total,
            revocation: self.options.revocation,
            // As over TCP.
            max_operation_bytes: 128 << 20,
            max_message_bytes: 64 << 10,
        }
    }

    /// Advances everything by a random number of steps; returns how many were made.
    pub(super) fn advance(&self, world: &mut World) -> u64 {
        let tries = world.tries();
        let made = world.advance(tries);
        match self.options.time {
            Time::Virtual => self.clock.advance(Duration::from_nanos(STEP_NANOS * (made + 1))),
            Time::Real if made > 0 => self.changed.notify_all(),
            Time::Real => {}
        }
        made
    }

    fn has_hook(&self) -> bool {
        lock(&self.hook).is_some()
    }

    /// Waits in vain for at most `limit`: nothing can advance.
    pub(super) fn idle(&self, mut world: MutexGuard<'_, World>, limit: Duration) {
        match self.options.time {
            Time::Virtual => {
                // What the hook serves may have timers of its own. So time passes in small steps, and in
                // longer ones when many steps brought nothing.
                let nap = FIRST_NAP * (1 << (world.idle_rounds / NAPS_ALIKE).min(LONGEST_NAP_SHIFT));
                world.idle_rounds = world.idle_rounds.saturating_add(1);
                drop(world);
                self.clock.advance(if self.has_hook() { limit.min(nap) } else { limit });
            }
            Time::Real => {
                drop(self.changed.wait_timeout(world, limit.min(NAP)).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
