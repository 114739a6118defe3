//! Clients that are shown all commands.

use crate::state::clients::Client;
use crate::state::mailbox::Reason;
use crate::text::shown::quoted;
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Clients that are shown all commands.
#[derive(Debug, Default)]
pub struct Monitors {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    count: AtomicUsize,
}

impl Monitors {
    /// Adds a client.
    pub fn add(&self, client: Arc<Client>) {
        let mut clients = lock(&self.clients);
        clients.insert(client.id, client);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Removes a client, if it is one.
    pub fn remove(&self, id: u64) {
        let mut clients = lock(&self.clients);
        clients.remove(&id);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Shows a command to all of these clients, with unprintable bytes escaped. The address says where the command comes
    /// from.
    pub fn show(&self, now_ms: u64, database: usize, address: &str, arguments: &[&[u8]]) {
        let mut line = String::new();
        let (seconds, us) = (now_ms / 1000, now_ms % 1000 * 1000);
        let _ = write!(line, "+{seconds}.{us:06} [{database} {address}]");
        for argument in arguments {
            line.push(' ');
            line.push_str(&quoted(argument));
        }
        line.push_str("\r\n");
        let line = Bytes::from(line);
        for monitor in lock(&self.clients).values() {
            monitor.send(line.clone(), Reason::Monitors);
        }
    }
}
