//! What the operator of a server sees.

use crate::keyspace::layout::DATABASES;
use crate::records::store::Records;
use crate::state::counters::Count;
use crate::state::durations::Durations;
use crate::state::shared::Shared;
use crate::state::slow_log;
use crate::text::shown;
use std::sync::Arc;

/// Figures of a server. Counts are since it started, or since `CONFIG RESETSTAT`; durations are since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Connected clients.
    pub connected: u64,
    /// Clients that wait in a command that blocks.
    pub blocked: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub rejected: u64,
    /// Commands.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Bytes of requests.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
    /// Keys that were looked up and found.
    pub hits: u64,
    /// Keys that were looked up and not found.
    pub misses: u64,
    /// Keys that expired and were removed.
    pub expired: u64,
    /// How long commands of runs that only read took.
    pub reads: Durations,
    /// How long commands of runs that write took.
    pub writes: Durations,
}

/// A command that took long, safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCommand {
    /// Its number.
    pub id: i64,
    /// When it was carried out: seconds since 1970.
    pub at_s: u64,
    /// How long it took.
    pub took_us: u64,
    /// Its name and arguments, each in quotation marks and escaped. Much of them may be left out.
    pub arguments: String,
    /// Where its client is.
    pub address: String,
}

/// Observes a server while it runs. The store is closed when the server stops, even if an observer exists.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    pub(crate) const fn of(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns the records that are served.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.0.store
    }

    /// Returns the number of keys of all databases, including expired keys that were not removed yet.
    #[must_use]
    pub fn keys(&self) -> u64 {
        let keys = |space| u64::try_from(self.0.spaces.counts(space).keys).unwrap_or(0);
        (0..DATABASES as u8).map(keys).sum()
    }

    /// Whether the server serves.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.0.is_stopping()
    }

    /// The figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let Shared { counts, clients, waiting, .. } = &*self.0;
        let (reads, writes) = counts.durations();
        Figures {
            connected: clients.count() as u64,
            blocked: waiting.count() as u64,
            connections: counts.of(Count::Connections),
            rejected: counts.of(Count::Rejected),
            commands: counts.of(Count::Commands),
            errors: counts.of(Count::Errors),
            received_bytes: counts.of(Count::ReceivedBytes),
            sent_bytes: counts.of(Count::SentBytes),
            hits: counts.of(Count::Hits),
            misses: counts.of(Count::Misses),
            expired: counts.of(Count::Expired),
            reads,
            writes,
        }
    }

    /// The latest commands that took long, the latest first.
    #[must_use]
    pub fn slow_commands(&self, most: usize) -> Vec<SlowCommand> {
        let shown = |slow: slow_log::SlowCommand| {
            let arguments: Vec<String> = slow.arguments.iter().map(|argument| shown::quoted(argument)).collect();
            SlowCommand {
                id: slow.id,
                at_s: slow.at_s,
                took_us: slow.took_us,
                arguments: arguments.join(" "),
                address: slow.address,
            }
        };
        self.0.slow_log.latest(most).into_iter().map(shown).collect()
    }
}
