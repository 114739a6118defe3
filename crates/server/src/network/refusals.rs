//! Lines of the log about refused clients. A line is cheap to provoke, so there is at most one a second; it says how
//! many were left out.

use crate::text::shown;
use forebay_env::{Nanos, Throttle};
use std::net::SocketAddr;

/// See the module.
#[derive(Debug, Default)]
pub struct Refusals(Throttle);

impl Refusals {
    /// Logs that a client was refused. `why` may contain text that the client chose.
    pub fn tell(&mut self, now: Nanos, client: SocketAddr, why: &str) {
        if let Some(left_out) = self.0.take(now) {
            let why = shown::quoted(why.as_bytes());
            tracing::warn!(%client, %why, left_out, "a client is turned away");
        }
    }
}
