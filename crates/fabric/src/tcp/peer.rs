//! A link as its node knows it.

use super::events::Events;
use super::frame::{Hello, MAX_PIECE_BYTES};
use super::outlet::Outlet;
use super::{CAPABILITIES, MAX_OPERATION_BYTES};
use crate::admission::{Identity, Origin, Standing};
use crate::rpc::MAX_WHOLE_REPLY_BYTES;
use crate::seats::Endpoints;
use crate::transport::{Account, Event, Peer, Pull, Revocation};
use crate::turns::Turn;
use crate::{AccessKey, EndpointId, Error, GrantTable, PeerId, Region, RemoteAddress, Rights};
use forebay_env::Random;
use forebay_env::sync::lock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(super) struct NodeLink {
    pub(super) id: PeerId,
    /// The party and link for whose turns its work counts.
    pub(super) turn: Turn<u64>,
    /// What an endpoint must show to belong to the link.
    pub(super) token: u128,
    origin: Origin,
    /// The proof for which it was admitted.
    pub(super) standing: Standing,
    /// Grants of the node to the client.
    pub(super) offered: GrantTable,
    alive: AtomicBool,
    control: Arc<Outlet>,
    endpoints: Mutex<Endpoints<Outlet>>,
    next_endpoint: AtomicU32,
    events: Arc<Events>,
}

impl NodeLink {
    pub(super) fn new(
        turn: Turn<u64>,
        (origin, standing): (Origin, Standing),
        control: Arc<Outlet>,
        events: Arc<Events>,
    ) -> Result<Self, Error> {
        Ok(Self {
            id: PeerId(turn.link),
            turn,
            token: Random::secret().map_err(|e| Error::io("drawing a link's token", e))?,
            origin,
            standing,
            offered: GrantTable::new(),
            alive: AtomicBool::new(true),
            control,
            endpoints: Mutex::default(),
            next_endpoint: AtomicU32::new(1),
            events,
        })
    }

    /// Whether `hello` shows the link's token, in time that does not depend on where it differs, and comes from
    /// the owner of the link.
    pub(super) fn admits(&self, hello: Hello, identity: &Identity) -> bool {
        match hello {
            Hello::Endpoint { link, token } => {
                let same_token = AccessKey::new(0, token).same_secret(&AccessKey::new(0, self.token));
                link == self.id.0 && same_token && self.origin.identity == *identity
            }
            Hello::Control => false,
        }
    }

    /// Adds an endpoint's connection.
    pub(super) fn attach(&self, outlet: &Arc<Outlet>) -> Result<EndpointId, Error> {
        let id = EndpointId(self.next_endpoint.fetch_add(1, Ordering::Relaxed));
        lock(&self.endpoints).insert(id, Arc::clone(outlet))?;
        // A thread that ended the link meanwhile may have missed the endpoint.
        if self.is_alive() {
            return Ok(id);
        }
        self.detach(id);
        Err(self.lost())
    }

    pub(super) fn detach(&self, endpoint: EndpointId) {
        lock(&self.endpoints).remove(endpoint);
    }

    /// Ends the link, once.
    pub(super) fn end(&self, cause: Error) {
        if self.alive.swap(false, Ordering::AcqRel) {
            self.offered.revoke_all();
            let endpoints = lock(&self.endpoints).take_all();
            for outlet in endpoints.iter().chain([&self.control]) {
                outlet.end(cause.clone());
            }
            self.events.push(self.turn, Event::Left { peer: self.id, cause });
        }
    }

    fn outlet(&self, endpoint: EndpointId) -> Result<Arc<Outlet>, Error> {
        if !self.is_alive() {
            return Err(self.lost());
        }
        lock(&self.endpoints).get(endpoint).cloned().ok_or_else(|| self.lost())
    }

    fn lost(&self) -> Error {
        Error::lost(format_args!("link {}", self.id.0), "the link or its endpoint is closed")
    }
}

fn check_length(length: usize, limit: usize) -> Result<(), Error> {
    if length > limit {
        return Err(Error::TooLarge { length: length as u64, limit: limit as u64 });
    }
    Ok(())
}

impl Peer for NodeLink {
    fn id(&self) -> PeerId {
        self.id
    }

    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if !self.is_alive() {
            return Err(self.lost());
        }
        self.offered.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.offered.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn read(&self, endpoint: EndpointId, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        check_length(into.len(), MAX_OPERATION_BYTES)?;
        let outlet = self.outlet(endpoint)?;
        if into.is_empty() { Ok(()) } else { outlet.read(from, into) }
    }

    fn write(
        &self,
        endpoint: EndpointId,
        to: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        check_length(bytes.len(), MAX_OPERATION_BYTES)?;
        self.outlet(endpoint)?.write(to, bytes, immediate)
    }

    fn post(&self, endpoint: EndpointId, to: RemoteAddress, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        // The node keeps what the client does not take, so it is never longer than a reply.
        check_length(bytes.len(), MAX_WHOLE_REPLY_BYTES)?;
        self.outlet(endpoint)?.post(to, bytes, immediate)
    }

    fn unsent(&self, endpoint: EndpointId) -> usize {
        self.outlet(endpoint).map_or(0, |outlet| outlet.unsent())
    }

    fn pull(&self, endpoint: EndpointId, from: RemoteAddress, length: usize) -> Result<Box<dyn Pull>, Error> {
        check_length(length, MAX_OPERATION_BYTES)?;
        let outlet = self.outlet(endpoint)?;
        let number = if length == 0 { None } else { Some(outlet.start_read(from, length)?) };
        Ok(Box::new(Pulling { outlet, number }))
    }

    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error> {
        check_length(bytes.len(), CAPABILITIES.max_message_bytes)?;
        self.outlet(endpoint)?.message(bytes)
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    fn count_endpoints(&self, account: Arc<dyn Account>) {
        let ended = lock(&self.endpoints).count_on(account);
        ended.into_iter().for_each(|(outlet, cause)| outlet.end(cause));
    }

    fn close(&self) {
        self.end(self.lost());
    }
}

/// A read of the client's memory, by its number; a read of zero bytes has none.
#[derive(Debug)]
struct Pulling {
    outlet: Arc<Outlet>,
    number: Option<u64>,
}

impl Pull for Pulling {
    fn poll(&mut self) -> Option<Result<Vec<u8>, Error>> {
        match self.number {
            Some(number) => self.outlet.take_read(number),
            None => Some(Ok(Vec::new())),
        }
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.outlet.drop_read(number);
        }
    }
}

const _: () = assert!(CAPABILITIES.max_message_bytes <= MAX_PIECE_BYTES);
