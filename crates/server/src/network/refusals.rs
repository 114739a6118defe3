//! Lines of the log about clients that are turned away. One is cheap to provoke, so there is one a second at most; it says how
//! many were left out.

use crate::text::shown;
use forebay_env::{Nanos, Throttle};
use std::net::SocketAddr;

/// See the module.
#[derive(Debug, Default)]
pub struct Refusals(Throttle);

impl Refusals {
    /// A client was turned away. What it chose itself may be in `why`.
    pub fn tell(&mut self, now: Nanos, client: SocketAddr, why: &str) {
        if let Some(left_out) = self.0.take(now) {
            let why = shown::quoted(why.as_bytes());
            tracing::warn!(%client, %why, left_out, "a client is turned away");
        }
    }
}
