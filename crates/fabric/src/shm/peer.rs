//! A client as its node sees it.
//!
//! A link ends in two steps. Either side can end it: from then on nothing goes over it, and nothing is granted. But the
//! client may still be in the middle of a copy, so it keeps what it was granted until it is *gone*. It says so by
//! ending its control socket, which also happens when its process ends. Only then are revocations complete, and only
//! then do others hear that the client has left. A client that never goes keeps that memory, its sockets and its place
//! among the links.
//!
//! ```text
//!   alive ── either side ends it ──► ended ── the client's socket ends, or the node stops ──► gone
//! ```

use super::channel::Channel;
use super::events::{Events, Item, Unread};
use super::frame::{Frame, MAX_MESSAGE_BYTES};
use super::notice::{Line, Page};
use super::offered::{Offered, file_for};
use super::outlet::Outlet;
use crate::admission::Origin;
use crate::seats::Endpoints;
use crate::transport::{Account, Peer, Revocation};
use crate::{AccessKey, EndpointId, Error, GrantTable, PeerId, Region, RemoteAddress, Rights};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes that may wait for an endpoint beyond what its socket holds, before its link ends.
const MAX_UNSENT_BYTES: usize = 4 << 20;
/// What a frame that waits takes up besides its bytes. An immediate has fewer bytes than that.
pub(super) const WAITING_BYTES: usize = 128;
/// Endpoints of a link.
const MAX_ENDPOINTS: usize = 1024;
/// Answers that may wait for a client: one for each grant that it may have made, and one for each that it revoked.
pub(super) const MAX_UNSAID_ANSWERS: usize = 2 * MAX_CLIENT_GRANTS as usize;
/// Grants of one client that the node maps.
pub(super) const MAX_CLIENT_GRANTS: u32 = 1024;

/// The node's end of a link.
#[derive(Debug)]
pub(super) struct ShmPeer {
    id: PeerId,
    /// What an endpoint must know to join the link.
    pub(super) token: u128,
    origin: Origin,
    /// Why the link has ended, once it has. Threads that end it at the same time wait.
    ended: OnceLock<Error>,
    /// Only answers have weight here, one each: the number of possible grants bounds grants and revocations.
    pub(super) control: Outlet,
    /// Where the client sees how many frames were sent or will be.
    line: Line,
    /// `None` once they are shut down.
    endpoints: Mutex<Option<Endpoints<Outlet>>>,
    /// Grants of this node to the client.
    pub(super) offered: Offered,
    /// Grants of the client to this node, mapped here.
    pub(super) received: GrantTable,
    pub(super) unread: Arc<Unread>,
    /// Where all clients see that something was revoked.
    page: Page,
    events: Arc<Events>,
}

impl ShmPeer {
    pub(super) fn new(
        (id, token): (PeerId, u128),
        origin: Origin,
        control: Arc<Channel>,
        (page, line): (Page, Line),
        events: Arc<Events>,
    ) -> Self {
        Self {
            id,
            token,
            origin,
            ended: OnceLock::new(),
            control: Outlet::new(control, MAX_UNSAID_ANSWERS, Arc::clone(&events)),
            line,
            endpoints: Mutex::new(Some(Endpoints::default())),
            offered: Offered::default(),
            received: GrantTable::new(),
            unread: Arc::default(),
            page,
            events,
        }
    }

    /// Ends the link: its sockets, except that the client may still send over the control socket, and what the client
    /// granted. When this returns, all of that is done, even if another thread began it. Returns why the link has ended.
    pub(super) fn end(&self, cause: Error) -> &Error {
        self.ended.get_or_init(|| {
            self.control.end_saying();
            let endpoints = lock(&self.endpoints).take();
            endpoints.unwrap_or_default().take_all().iter().for_each(|endpoint| endpoint.end());
            // After the end of the sockets, where clients find it.
            self.page.taken_back();
            self.received.revoke_all();
            cause
        })
    }

    /// Finishes the link when the client uses nothing any more, or the node stops. To be called once.
    pub(super) fn gone(&self, cause: Error) {
        let cause = self.end(cause).clone();
        self.control.end();
        self.offered.end();
        self.events.push(Item::Left { peer: self.id, cause });
    }

    /// Locks the endpoints: while this is held, no endpoint joins, and the end of the link waits.
    #[cfg(all(test, not(miri)))]
    pub(super) fn hold_endpoints(&self) -> impl Drop {
        lock(&self.endpoints)
    }

    /// Adds an endpoint to the link.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is one of that number, [`Error::Remote`] when there are too many.
    pub(super) fn join(&self, endpoint: EndpointId, channel: &Arc<Channel>) -> Result<Arc<Outlet>, Error> {
        let mut endpoints = lock(&self.endpoints);
        let Some(endpoints) = &mut *endpoints else { return Err(self.lost()) };
        if endpoints.get(endpoint).is_some() {
            return Err(Error::Invalid(format!("the link has an endpoint {} already", endpoint.0)));
        }
        if endpoints.len() >= MAX_ENDPOINTS {
            let message = format!("the link has its most endpoints: {MAX_ENDPOINTS}");
            return Err(Error::Remote { kind: ErrorKind::Busy, message });
        }
        let outlet = Arc::new(Outlet::new(Arc::clone(channel), MAX_UNSENT_BYTES, Arc::clone(&self.events)));
        endpoints.insert(endpoint, Arc::clone(&outlet))?;
        Ok(outlet)
    }

    /// Removes an endpoint from the link.
    pub(super) fn leave(&self, endpoint: EndpointId) {
        if let Some(endpoints) = &mut *lock(&self.endpoints) {
            endpoints.remove(endpoint);
        }
    }

    fn lost(&self) -> Error {
        Error::lost(format!("link {}", self.id.0), "the client or this node closed it")
    }

    fn endpoint(&self, endpoint: EndpointId) -> Result<Arc<Outlet>, Error> {
        let endpoints = lock(&self.endpoints);
        endpoints.as_ref().and_then(|endpoints| endpoints.get(endpoint)).cloned().ok_or_else(|| self.lost())
    }

    /// Sends a frame, for which the client may wait, over the control socket.
    ///
    /// # Errors
    /// As for [`Outlet::say`].
    fn say(&self, frame: Frame<'_>, granted: Option<(OwnedFd, &Region, Rights)>, weight: usize) -> Result<(), Error> {
        self.control.say(&[&frame.encode()], granted, weight)?;
        self.line.announce();
        Ok(())
    }

    /// Answers the client.
    ///
    /// # Errors
    /// As for [`Outlet::say`].
    pub(super) fn answer(&self, frame: Frame<'_>) -> Result<(), Error> {
        self.say(frame, None, 1)
    }

    /// Sends something to an endpoint; a client that does not read loses its link.
    fn say_to(&self, outlet: &Outlet, parts: &[&[u8]]) -> Result<(), Error> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        outlet.say(parts, None, WAITING_BYTES + bytes).map_err(|cause| match cause {
            Error::Protocol(cause) => {
                tracing::warn!(link = self.id.0, cause, "a link ends");
                self.end(Error::lost(format!("link {}", self.id.0), cause)).clone()
            }
            other => other,
        })
    }
}

impl Peer for ShmPeer {
    fn id(&self) -> PeerId {
        self.id
    }

    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        let file = file_for(region, offset, length, rights)?;
        if !self.is_alive() {
            return Err(self.lost());
        }
        let key = self.offered.give()?;
        match self.say(Frame::Grant { key, rights, offset, length }, Some((file, region, rights)), 0) {
            Ok(()) => Ok(key),
            Err(cause) => {
                self.offered.forget(key);
                Err(cause)
            }
        }
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        let revocation = self.offered.withdraw(key)?;
        if let Err(cause) = self.say(Frame::Revoke { key }, None, 0) {
            // The client was not asked: it releases the memory when it finds the end of the link.
            self.end(cause);
        }
        // After the frame, or the end of the link.
        self.page.taken_back();
        Ok(revocation)
    }

    fn read(&self, endpoint: EndpointId, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        self.endpoint(endpoint)?;
        let granted = self.received.hold();
        let (region, offset) = granted.check(from, into.len() as u64, Rights::READ)?;
        region.read(offset, into)
    }

    fn write(
        &self,
        endpoint: EndpointId,
        to: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        let outlet = self.endpoint(endpoint)?;
        {
            let granted = self.received.hold();
            let (region, offset) = granted.check(to, bytes.len() as u64, Rights::WRITE)?;
            region.write(offset, bytes)?;
        }
        match immediate {
            Some(immediate) => self.say_to(&outlet, &[&Frame::Immediate(immediate).encode()]),
            None => Ok(()),
        }
    }

    fn unsent(&self, endpoint: EndpointId) -> usize {
        self.endpoint(endpoint).map_or(0, |outlet| outlet.unsaid())
    }

    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLarge { length: bytes.len() as u64, limit: MAX_MESSAGE_BYTES as u64 });
        }
        let outlet = self.endpoint(endpoint)?;
        self.say_to(&outlet, &[&Frame::message_header(bytes.len()), bytes])
    }

    fn is_alive(&self) -> bool {
        self.ended.get().is_none()
    }

    fn count_endpoints(&self, account: Arc<dyn Account>) {
        let ended = lock(&self.endpoints).as_mut().map(|endpoints| endpoints.count_on(account));
        ended.into_iter().flatten().for_each(|(outlet, _)| outlet.end());
    }

    fn close(&self) {
        self.end(Error::lost(format!("link {}", self.id.0), "this node closed it"));
    }
}
