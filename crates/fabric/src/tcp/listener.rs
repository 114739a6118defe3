//! A node that listens.

use super::events::Events;
use super::server::{Server, Waker};
use super::{CAPABILITIES, Options};
use crate::transport::{Event, Listener};
use crate::{Backing, Capabilities, Error, NodeIdentity, Region};
use forebay_env::Random;
use forebay_env::thread::JoinHandle;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A node's side of the TCP back end. Its I/O thread serves one-sided operations until it is
/// dropped.
#[derive(Debug)]
pub struct TcpListener {
    identity: NodeIdentity,
    address: SocketAddr,
    events: Arc<Events>,
    waker: Arc<Waker>,
    server: Option<JoinHandle<()>>,
}

/// Starts a node on `address`; with port 0 the system chooses one, which
/// [`Listener::address`] tells.
///
/// # Errors
/// [`Error::Invalid`] for an address that is not loopback, unless [`Options::allow_remote`];
/// [`Error::Io`] when the address cannot be had.
pub fn listen(address: SocketAddr, node: u32, options: Options) -> Result<TcpListener, Error> {
    if !address.ip().is_loopback() && !options.allow_remote {
        return Err(Error::Invalid(format!(
            "{address} is not a loopback address, and TCP is not encrypted: use 127.0.0.1, or allow it with \
             --allow-remote"
        )));
    }
    let io = |e| Error::Io { what: "listening", cause: format!("{address}: {e}") };
    let listener = std::net::TcpListener::bind(address).map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    let incarnation = Random::secret().map_err(|e| Error::io("drawing an incarnation", e))? as u64;
    let identity = NodeIdentity { node, incarnation };
    let (events, waker) = (Arc::new(Events::default()), Arc::new(Waker::new()?));
    let server = Server::new(identity, options, listener, Arc::clone(&waker), Arc::clone(&events))?;
    let server = forebay_env::thread::spawn("fabric-tcp", move || server.run())
        .map_err(|e| Error::io("starting the I/O thread", e))?;
    Ok(TcpListener { identity, address, events, waker, server: Some(server) })
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.waker.stop();
        if let Some(server) = self.server.take()
            && server.join().is_err()
        {
            tracing::error!("the fabric's I/O thread panicked");
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

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        let (event, resume) = self.events.next(limit)?;
        if resume {
            self.waker.wake();
        }
        Ok(event)
    }
}
