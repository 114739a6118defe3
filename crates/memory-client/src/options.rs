//! Options of a client.

use forebay_env::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The tenant to which the client expects to belong; empty for any. The node refuses a tenant other than the one that
    /// the link has proven.
    pub tenant: String,
    /// The node's address, for messages; empty if messages need none.
    pub address: String,
    /// How long a call may take, except for jobs.
    pub timeout: Duration,
    /// Length of the longest job result in bytes.
    pub job_reply_bytes: usize,
    /// Whether the session reads memory that other sessions may free; see
    /// [`MemoryClient::begin_read`](crate::MemoryClient::begin_read).
    pub foreign_reads: bool,
    /// Whether a thread renews the session. Without it, the user of the client calls
    /// [`MemoryClient::renew`](crate::MemoryClient::renew), for simulation.
    pub renew: bool,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tenant: String::new(),
            address: String::new(),
            timeout: Duration::from_secs(5),
            job_reply_bytes: 16 << 20,
            foreign_reads: false,
            renew: true,
            clock: SystemClock::shared(),
        }
    }
}
