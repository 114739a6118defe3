//! Options of a client.

use forebay_env::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The tenant that the client expects to be of; empty if any will do. The node refuses another one than the link
    /// has proven to be of.
    pub tenant: String,
    /// Where the node is reached, for messages; empty if nobody has to be told.
    pub address: String,
    /// How long a call may take, except for jobs.
    pub timeout: Duration,
    /// Length of the longest job result in bytes.
    pub job_reply_bytes: usize,
    /// The session reads memory that other sessions may free; see [`MemoryClient::begin_read`](crate::MemoryClient::begin_read).
    pub foreign_reads: bool,
    /// Renew the session on a thread. Without it, the user of the client calls
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
