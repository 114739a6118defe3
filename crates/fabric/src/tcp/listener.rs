//! A node that listens.

use super::door::{Door, Hall};
use super::events::Events;
use super::server::Server;
use super::wakers::Waker;
use super::{CAPABILITIES, Options};
use crate::admission::{AdmissionCounts, Tally, Watcher};
use crate::transport::{Event, Listener};
use crate::{Backing, Capabilities, Error, NodeIdentity, Region};
use forebay_env::Random;
use forebay_env::thread::JoinHandle;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A node's side of the TCP back end. Until it is dropped, its I/O thread serves one-sided operations, and a
/// thread at its door admits clients.
#[derive(Debug)]
pub struct TcpListener {
    identity: NodeIdentity,
    address: SocketAddr,
    events: Arc<Events>,
    tally: Arc<Tally>,
    /// The threads, and what wakes them: first that of the door, then the I/O thread.
    threads: [(Arc<Waker>, Option<JoinHandle<()>>); 2],
}

/// Starts a node on `address`; with port 0 the system chooses one, which [`Listener::address`] returns.
///
/// # Errors
/// [`Error::Invalid`] for an address that is not loopback, unless connections are encrypted and clients prove who
/// they are, or [`Options::allow_remote`]; [`Error::Io`] when the address cannot be had.
pub fn listen(address: SocketAddr, node: u32, options: Options) -> Result<TcpListener, Error> {
    if !address.ip().is_loopback() && !options.allow_remote {
        let (encrypts, asks) = options.admission.as_ref().map_or((false, false), |a| (a.encrypts(), a.asks()));
        let missing = match (encrypts, asks) {
            (true, true) => None,
            (true, false) => Some("clients do not prove who they are: ask them for certificates or secrets"),
            (false, _) => Some("connections are not encrypted: give the node a certificate, and ask clients for proof"),
        };
        if let Some(missing) = missing {
            return Err(Error::Invalid(format!(
                "{address} is not a loopback address, and {missing}; or allow it all the same with --allow-remote"
            )));
        }
    }
    let io = |e| Error::Io { what: "listening", cause: format!("{address}: {e}") };
    let listener = std::net::TcpListener::bind(address).map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    let incarnation = Random::secret().map_err(|e| Error::io("drawing an incarnation", e))? as u64;
    let identity = NodeIdentity { node, incarnation };
    let (events, tally) = (Arc::new(Events::default()), Arc::new(Tally::default()));
    let wakers = [Arc::new(Waker::new()?), Arc::new(Waker::new()?)];
    let [door_waker, server_waker] = &wakers;
    if let Some(admission) = &options.admission {
        let watcher: Weak<Waker> = Arc::downgrade(server_waker);
        admission.watch(watcher as Weak<dyn Watcher>);
    }
    let hall = Arc::new(Hall::new(Arc::clone(server_waker)));
    let shared = (Arc::clone(&hall), Arc::clone(&tally));
    let server = Server::new(identity, options.clone(), Arc::clone(server_waker), Arc::clone(&events), shared)?;
    let door = Door::new(options, listener, Arc::clone(door_waker), hall, Arc::clone(&tally))?;
    let mut listener = TcpListener { identity, address, events, tally, threads: wakers.map(|waker| (waker, None)) };
    let starting = |e| Error::io("starting a thread", e);
    let [(_, door_thread), (_, server_thread)] = &mut listener.threads;
    *server_thread = Some(forebay_env::thread::spawn("fabric-tcp", move || server.run()).map_err(starting)?);
    *door_thread = Some(forebay_env::thread::spawn("fabric-tcp-door", move || door.run()).map_err(starting)?);
    Ok(listener)
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        for (waker, thread) in &mut self.threads {
            waker.stop();
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a thread of the fabric panicked");
            }
        }
        self.events.clear();
    }
}

impl Listener for TcpListener {
    fn address(&self) -> String {
        format!("tcp://{}", self.address)
    }

    fn identity(&self) -> NodeIdentity {
        self.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn admission_counts(&self) -> AdmissionCounts {
        self.tally.counts()
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        let (event, resume) = self.events.next(limit)?;
        let has_ended = |(_, thread): &(_, Option<JoinHandle<()>>)| thread.as_ref().is_none_or(JoinHandle::is_finished);
        if event.is_none() && self.threads.iter().any(has_ended) {
            return Err(Error::io("serving connections", "a thread of the fabric has ended"));
        }
        if resume {
            let [_, (server, _)] = &self.threads;
            server.wake();
        }
        Ok(event)
    }
}
