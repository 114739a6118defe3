//! Lines of the log about clients that are turned away. One is cheap to provoke, so there is one a second at most; it says how
//! many were left out.

use crate::text::shown;
use forebay_env::Nanos;
use std::net::SocketAddr;

/// Time between two lines.
const INTERVAL: Nanos = 1_000_000_000;

/// When a line was last written, and how many were not since.
#[derive(Debug, Default)]
pub struct Refusals {
    last: Option<Nanos>,
    left_out: u64,
}

impl Refusals {
    /// A client was turned away. What it chose itself may be in `why`.
    pub fn tell(&mut self, now: Nanos, client: SocketAddr, why: &str) {
        if let Some(left_out) = self.take(now) {
            let why = shown::quoted(why.as_bytes());
            tracing::warn!(%client, %why, left_out, "a client is turned away");
        }
    }

    /// Whether a line may be written now, and how many were left out.
    fn take(&mut self, now: Nanos) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_sub(last) < INTERVAL) {
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
    fn a_line_a_second() {
        let mut refusals = Refusals::default();
        let taken = [0, 1, INTERVAL - 1, INTERVAL, 3 * INTERVAL].map(|now| refusals.take(now));
        assert_eq!(taken, [Some(0), None, None, Some(2), Some(0)]);
    }
}
