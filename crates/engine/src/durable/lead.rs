//! Group commit: of all who wait for the same thing, one does it for all.
//!
//! Whoever comes first is the *leader*. Whoever comes meanwhile waits, and the next leader does for all of them what the
//! first one did not. Nobody has to be woken between a write and its round trip.

use crate::terms::Result;
use forebay_env::sync::{Condvar, Mutex, lock};
use std::sync::PoisonError;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    leads: Mutex<bool>,
    ended: Condvar,
}

/// Ends the lead of whoever leads, also when that fails.
struct Leader<'a>(&'a Lead);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        *lock(&self.0.leads) = false;
        self.0.ended.notify_all();
    }
}

impl Lead {
    /// Returns when `is_reached`. Until then leads, with `step`, or waits for who does, and calls `waits` first.
    ///
    /// # Errors
    /// Those of a step that this call led.
    pub(crate) fn reach(
        &self,
        is_reached: impl Fn() -> bool,
        waits: impl Fn(),
        step: impl Fn() -> Result<()>,
    ) -> Result<()> {
        while !is_reached() {
            let mut leads = lock(&self.leads);
            if *leads {
                waits();
                drop(self.ended.wait(leads).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            *leads = true;
            drop(leads);
            let _leader = Leader(self);
            step()?;
        }
        Ok(())
    }

    /// Runs `body` while nobody else leads.
    pub(crate) fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        let mut leads = lock(&self.leads);
        while *leads {
            leads = self.ended.wait(leads).unwrap_or_else(PoisonError::into_inner);
        }
        *leads = true;
        drop(leads);
        let _leader = Leader(self);
        body()
    }
}
