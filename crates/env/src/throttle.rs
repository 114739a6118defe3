//! Limits an action to once a second.

use crate::Nanos;

/// Lets something through at most once a second, and counts how often it did not.
#[derive(Debug, Default, Clone, Copy)]
pub struct Throttle {
    last: Option<Nanos>,
    left_out: u64,
}

impl Throttle {
    /// Time between two that are let through, nanoseconds.
    pub const INTERVAL: Nanos = 1_000_000_000;

    /// `None` if nothing may go through now; otherwise how many were held back since the last.
    pub fn take(&mut self, now: Nanos) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_sub(last) < Self::INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second() {
        const INTERVAL: Nanos = Throttle::INTERVAL;
        let mut throttle = Throttle::default();
        let taken = [0, 1, INTERVAL - 1, INTERVAL, INTERVAL + 1, 3 * INTERVAL].map(|at| throttle.take(at));
        assert_eq!(taken, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
