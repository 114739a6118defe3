//! What one client asks and is answered, wherever its bytes come from and go to.

use crate::execute::{Executor, Pace};
use crate::protocol::reply::{Protocol, Reply};
use crate::protocol::request::{ProtocolError, Requests};
use crate::state::session::Session;

/// Requests that are understood at a time.
const REQUESTS_AT_A_TIME: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct Dialogue {
    /// What the client has said about itself.
    pub session: Session,
    /// What it asks.
    pub requests: Requests,
    /// What it is answered.
    pub out: Reply,
    pace: Pace,
    broken: Option<ProtocolError>,
}

impl Dialogue {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(session: Session) -> Self {
        let (requests, out) = (Requests::default(), Reply::new(Protocol::Two));
        Self { session, requests, out, pace: Pace::default(), broken: None }
    }

    /// The client need not wait any longer, and gets this reply.
    pub fn unblock(&mut self, bytes: Vec<u8>) {
        self.session.blocked = None;
        self.session.client.describe(|described| described.is_blocked = false);
        self.out.adopt(bytes);
    }

    /// A command that was held goes on.
    pub const fn release(&mut self) {
        self.session.held_until = None;
    }

    /// Carries out what is whole. False when there was nothing.
    pub fn carry_out(&mut self, executor: &Executor<'_>) -> bool {
        if self.requests.is_empty() && self.broken.is_none() {
            let most = usize::try_from(executor.shared.config.max_bulk_bytes()).unwrap_or(0);
            // What a client may send depends on the request before, by which it may have said who it is.
            let is_known = self.session.user.is_some();
            let count = if is_known { REQUESTS_AT_A_TIME } else { 1 };
            self.broken = self.requests.parse(count, most, is_known).err();
        }
        if self.requests.is_empty() {
            self.requests.consume(0);
            let Some(broken) = &self.broken else { return false };
            tracing::debug!(client = self.session.client.id, %broken, "a client broke the protocol");
            self.out.error(&format!("ERR {broken}"));
            self.session.is_closing = true;
            return true;
        }
        let done = executor.serve(&mut self.session, &self.requests, &mut self.out, &mut self.pace);
        self.requests.consume(done);
        true
    }
}
