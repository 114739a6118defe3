//! A server while it runs, and what ends it.

use crate::admin;
use crate::failure::{Failure, Stage};
use forebay::admission::Admission;
use forebay::{ErrorKind, Store};
use forebay_admin::{Admin, Settings};
use forebay_env::{Clock, SystemClock};
use forebay_server::{Error, Records, Server, ServerOptions};
use forebay_worker::Worker;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for signals and of the server.
const LOOK: Duration = Duration::from_millis(20);
/// After this many checks, the server tries to write a log again that could not be written, and checks for lost memory.
const LOOK_AT_STORE: u32 = 50;
/// After this many checks, the server checks whether it still owns its store.
const LOOK_FOR_OWNER: u32 = 250;

/// Why a server no longer serves.
#[derive(Debug)]
pub enum Ended {
    /// A signal or a client asked it to stop, or a thread of it has failed.
    Stopped,
    /// Another process has taken the store over, so this one would no longer read what that one writes. Or this process
    /// has lost a shared tree, and another one may have it.
    Lost(Error),
    /// A memory node is lost, and with it what the store had only there. Storage still has everything that it promised to
    /// keep.
    MemoryLost(forebay::Error),
}

/// What is served.
#[derive(Debug)]
pub struct Opened {
    /// The store, or the shared tree.
    pub records: Records,
    /// What the store was opened with.
    pub settings: Option<Settings>,
    /// The worker that uses the store's idle threads, if they are lent.
    pub lent: Option<Arc<Worker>>,
}

/// A server, and where operators look at it.
#[derive(Debug)]
pub struct Serving {
    server: Server,
    lent: Option<Arc<Worker>>,
    paused: Paused,
}

/// Everything needed to serve, except a store.
#[derive(Debug)]
pub struct Paused {
    options: ServerOptions,
    admin: Option<Admin>,
}

impl Serving {
    /// Serves a store.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start(opened: Opened, options: ServerOptions, admin: Option<Admin>) -> Result<Self, Failure> {
        Paused { options, admin }.start(opened)
    }

    /// Returns where it listens, as [`Server::address`].
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where it listens within TLS.
    pub const fn tls_address(&self) -> Option<SocketAddr> {
        self.server.tls_address()
    }

    /// Where operators look.
    pub const fn admin(&self) -> Option<&Admin> {
        self.paused.admin.as_ref()
    }

    /// Waits until the server can no longer serve. At SIGHUP, reads certificates again.
    pub fn wait(&self, signals: &mut Signals) -> Ended {
        let (clock, observer) = (SystemClock::new(), self.server.observer());
        let records = observer.records();
        let mut looked = 0u32;
        loop {
            if let Some(signal) = self.paused.heed(signals) {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                tracing::info!(signal = name, "stopping; SIGINT ends this process at once");
                return Ended::Stopped;
            }
            if !self.server.is_running() {
                return Ended::Stopped;
            }
            looked = looked.wrapping_add(1);
            if let Some(store) = records.lsm().filter(|_| looked.is_multiple_of(LOOK_AT_STORE)) {
                write_log_again(store);
                // Writes that are missing from the log are in this process alone.
                if let Some(lost) = store.lost_memory().filter(|_| store.has_storage() && store.log_failure().is_none())
                {
                    return Ended::MemoryLost(lost);
                }
            }
            if looked.is_multiple_of(LOOK_FOR_OWNER)
                && let Err(error) = check_owner(records)
            {
                tracing::debug!(%error, "looking for the owner");
            }
            if let Some(lost) = self.server.ended() {
                return Ended::Lost(lost);
            }
            clock.sleep(LOOK);
        }
    }

    /// Stops, and closes the store.
    ///
    /// # Errors
    /// `cause`, or else those of closing the store.
    pub fn stop(self, cause: Option<Error>) -> Result<(), Failure> {
        if let Some(cause) = &cause {
            tracing::error!(error = %cause, "stopping");
        }
        drop((self.paused, self.lent));
        let stopped = self.server.stop();
        cause.map_or(stopped, Err).map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
        tracing::info!("stopped");
        Ok(())
    }

    /// Closes the store, whose memory is lost, and ends all connections. Clients that connect meanwhile are refused.
    pub fn pause(self, cause: &forebay::Error) -> Paused {
        tracing::error!(error = %cause, "memory is lost: the store is opened again, as storage has it");
        let Self { server, lent, mut paused } = self;
        if let Some(admin) = &paused.admin {
            admin::show_opening(admin, &cause.to_string());
        }
        drop(lent);
        // The next server listens where this one did.
        paused.options.address = server.address();
        // Clients need the passwords that they needed before.
        paused.options.kept = Some(server.kept());
        if let (Some(tls), Some(address)) = (&mut paused.options.tls, server.tls_address()) {
            tls.address = address;
        }
        // The store is closed because flushes fail, so errors are expected here. The log has caught up.
        if let Err(error) = server.stop() {
            tracing::debug!(%error, "closing the store");
        }
        paused
    }
}

impl Paused {
    /// Heeds the signals that have come: at SIGHUP, reads certificates again. Returns a signal that says to stop.
    pub fn heed(&self, signals: &mut Signals) -> Option<i32> {
        let received: Vec<_> = signals.pending().collect();
        if received.contains(&SIGHUP) {
            reload(self.options.tls.as_ref().map(|tls| &*tls.admission));
        }
        received.into_iter().find(|signal| *signal != SIGHUP)
    }

    /// Serves a store.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start(self, opened: Opened) -> Result<Serving, Failure> {
        let Opened { records, settings, lent } = opened;
        let server = Server::start(records, self.options.clone());
        let server = server.map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
        if let Some(admin) = &self.admin {
            admin::show_server(admin, server.address(), server.observer(), settings, lent.clone());
        }
        Ok(Serving { server, lent, paused: self })
    }
}

/// Asks who owns the store. The store, or the session at a memory node, remembers an answer that this process has lost
/// it.
fn check_owner(records: &Records) -> Result<(), forebay::Error> {
    match records {
        Records::Lsm(store) => Ok(store.check_owner()?),
        Records::Tree(tree) => tree.tree().check_owner(),
    }
}

/// Tries again to write what is missing from the log, if the last time failed.
fn write_log_again(store: &Store) {
    let failing = store.log_failure().filter(|error| error.kind() != ErrorKind::Fenced);
    if failing.is_some() && store.resume().is_ok() {
        tracing::info!("the log is written again");
    }
}

/// Reads certificates again, where there are some.
fn reload(admission: Option<&Admission>) {
    match admission.map(Admission::reload) {
        None => tracing::info!("there is nothing to read again"),
        Some(Ok(())) => tracing::info!("certificates were read again"),
        Some(Err(error)) => tracing::error!(%error, "certificates stay as they are"),
    }
}
