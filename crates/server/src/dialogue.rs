//! One client's requests and replies, wherever its bytes come from and go to.

use crate::execute::{Executor, Pace};
use crate::protocol::reply::{Protocol, Reply};
use crate::protocol::request::{ProtocolError, Requests};
use crate::state::session::Session;

/// How many requests are parsed at a time.
const REQUESTS_AT_A_TIME: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct Dialogue {
    /// What the client has said about itself.
    pub session: Session,
    /// The client's requests.
    pub requests: Requests,
    /// The replies to the client.
    pub out: Reply,
    pace: Pace,
    broken: Option<ProtocolError>,
}

impl Dialogue {
    /// Begins a dialogue, with nothing asked yet.
    #[must_use]
    pub fn new(session: Session) -> Self {
        let (requests, out) = (Requests::default(), Reply::in_parts(Protocol::Two));
        Self { session, requests, out, pace: Pace::default(), broken: None }
    }

    /// Ends the client's wait with this reply.
    pub fn unblock(&mut self, bytes: Vec<u8>) {
        self.session.blocked = None;
        self.session.client.describe(|described| described.is_blocked = false);
        self.out.adopt(bytes);
    }

    /// Lets a held command continue.
    pub const fn release(&mut self) {
        self.session.held_until = None;
    }

    /// Carries out the complete requests. Returns false when there were none.
    pub fn carry_out(&mut self, executor: &Executor<'_>) -> bool {
        if self.requests.is_empty() && self.broken.is_none() {
            let most = usize::try_from(executor.shared.config.max_bulk_bytes()).unwrap_or(0);
            // What a client may send depends on the request before, with which it may have logged in.
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
