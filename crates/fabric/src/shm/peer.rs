//! A client as its node sees it.
//!
//! A link ends in two steps. Either side can end it: from then on nothing goes over it, and nothing is granted. But the
//! client may still be in the middle of a copy, so what it was granted is its own until it is *gone*: it has said so by
//! the end of its control socket, which is also what its process leaves behind. Only then are revocations complete, and
//! do others hear that it has left. One that never goes keeps that memory, its sockets and its place among the links.
//!
//! ```text
//!   alive ── either side ends it ──► ended ── the client's socket ends, or the node stops ──► gone
//! ```

use super::channel::Channel;
use super::events::{Events, Item, Unread};
use super::frame::{Frame, MAX_MESSAGE_BYTES};
use super::notice::{Line, Page};
use super::offered::{Offered, file_for, open_file};
use crate::admission::Origin;
use crate::transport::{Peer, Revocation};
use crate::{AccessKey, EndpointId, Error, GrantTable, PeerId, Region, RemoteAddress, Rights};
use forebay_env::HashMap;
use forebay_env::sync::lock;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long the node waits for a client that does not take in what is sent to its endpoints.
const PATIENCE: Duration = Duration::from_millis(500);
/// Endpoints of a link.
const MAX_ENDPOINTS: usize = 1024;
/// Answers that may wait for a client: those to all that it may have granted, and taken back.
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
    /// Why the link has ended, once it has. Who ends it meanwhile waits.
    ended: OnceLock<Error>,
    control: Arc<Channel>,
    /// What the control socket has no room for yet, in order.
    unsaid: Mutex<Unsaid>,
    /// Where the client sees how much was said, and is yet to be.
    line: Line,
    /// `None` once they are shut down.
    endpoints: Mutex<Option<HashMap<EndpointId, Arc<Channel>>>>,
    /// Grants of this node to the client.
    pub(super) offered: Offered,
    /// Grants of the client to this node, mapped here.
    pub(super) received: GrantTable,
    pub(super) unread: Arc<Unread>,
    /// Where all clients see that something was taken back.
    page: Page,
    events: Arc<Events>,
}

/// Frames that wait for room. Grants and revocations among them are bounded by the grants that there may be.
#[derive(Debug, Default)]
struct Unsaid {
    frames: VecDeque<Said>,
    answers: usize,
}

#[derive(Debug)]
struct Said {
    packet: Vec<u8>,
    /// Memory whose file goes with it, to be opened then: descriptors are few.
    granted: Option<(Region, Rights)>,
    is_answer: bool,
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
            control,
            unsaid: Mutex::default(),
            line,
            endpoints: Mutex::new(Some(HashMap::default())),
            offered: Offered::default(),
            received: GrantTable::new(),
            unread: Arc::default(),
            page,
            events,
        }
    }

    /// Ends the link: its sockets, but for what the client has yet to say, and what it granted. When this returns, all of
    /// that is done, whoever began it. Returns why the link has ended.
    pub(super) fn end(&self, cause: Error) -> &Error {
        self.ended.get_or_init(|| {
            self.control.shutdown_sending();
            *lock(&self.unsaid) = Unsaid::default();
            for channel in lock(&self.endpoints).take().unwrap_or_default().values() {
                channel.shutdown();
            }
            // Behind the end of the sockets, where clients find it.
            self.page.taken_back();
            self.received.revoke_all();
            cause
        })
    }

    /// The client uses nothing any more, or the node stops. To be called once.
    pub(super) fn gone(&self, cause: Error) {
        let cause = self.end(cause).clone();
        self.control.shutdown();
        self.offered.end();
        self.events.push(Item::Left { peer: self.id, cause });
    }

    /// While this is held, nobody joins, and the end of the link waits.
    #[cfg(all(test, not(miri)))]
    pub(super) fn hold_endpoints(&self) -> impl Drop {
        lock(&self.endpoints)
    }

    /// Takes an endpoint into the link.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is one of that number, or too many.
    pub(super) fn join(&self, endpoint: EndpointId, channel: &Arc<Channel>) -> Result<(), Error> {
        let mut endpoints = lock(&self.endpoints);
        let Some(endpoints) = &mut *endpoints else { return Err(self.lost()) };
        if endpoints.len() >= MAX_ENDPOINTS || endpoints.contains_key(&endpoint) {
            return Err(Error::Invalid(format!("endpoint {} is one too many on its link", endpoint.0)));
        }
        endpoints.insert(endpoint, Arc::clone(channel));
        Ok(())
    }

    /// Takes an endpoint out of the link.
    pub(super) fn leave(&self, endpoint: EndpointId) {
        lock(&self.endpoints).as_mut().and_then(|endpoints| endpoints.remove(&endpoint));
    }

    fn lost(&self) -> Error {
        Error::lost(format!("link {}", self.id.0), "the client or this node closed it")
    }

    fn endpoint(&self, endpoint: EndpointId) -> Result<Arc<Channel>, Error> {
        let endpoints = lock(&self.endpoints);
        endpoints.as_ref().and_then(|endpoints| endpoints.get(&endpoint)).cloned().ok_or_else(|| self.lost())
    }

    /// Says something over the control socket, at once or when there is room. It never waits for that.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Io`]; [`Error::Protocol`] when too many answers wait. Then it is never said.
    fn say(&self, frame: Frame<'_>, granted: Option<(OwnedFd, &Region, Rights)>, is_answer: bool) -> Result<(), Error> {
        let packet = frame.encode();
        let mut unsaid = lock(&self.unsaid);
        let file = granted.as_ref().map(|(file, ..)| file.as_fd());
        if !unsaid.frames.is_empty() || !self.control.try_send(&[&packet], file)? {
            if is_answer && unsaid.answers >= MAX_UNSAID_ANSWERS {
                return Err(Error::Protocol("a client asks and does not take in the answers".into()));
            }
            unsaid.answers += usize::from(is_answer);
            let granted = granted.map(|(_, region, rights)| (region.clone(), rights));
            unsaid.frames.push_back(Said { packet, granted, is_answer });
            if unsaid.frames.len() == 1 {
                // The socket thread says the rest.
                self.events.wake_reader();
            }
        }
        self.line.announce();
        Ok(())
    }

    /// Answers the client.
    ///
    /// # Errors
    /// As for [`ShmPeer::say`].
    pub(super) fn answer(&self, frame: Frame<'_>) -> Result<(), Error> {
        self.say(frame, None, true)
    }

    /// Whether something waits for room in the control socket.
    pub(super) fn has_unsaid(&self) -> bool {
        !lock(&self.unsaid).frames.is_empty()
    }

    /// Says what there is room for. True when nothing is left.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Io`].
    pub(super) fn say_on(&self) -> Result<bool, Error> {
        let unsaid = &mut *lock(&self.unsaid);
        while let Some(Said { packet, granted, is_answer }) = unsaid.frames.front() {
            let file = granted.as_ref().map(|(region, rights)| open_file(region, *rights)).transpose()?;
            if !self.control.try_send(&[packet], file.as_ref().map(AsFd::as_fd))? {
                return Ok(false);
            }
            unsaid.answers -= usize::from(*is_answer);
            unsaid.frames.pop_front();
        }
        Ok(true)
    }

    /// Sends to an endpoint; a client that does not take things in loses its link.
    fn send_on(&self, channel: &Channel, parts: &[&[u8]]) -> Result<(), Error> {
        match channel.send(parts, None, PATIENCE) {
            Err(Error::TimedOut(limit)) => {
                let cause = Error::lost(format!("link {}", self.id.0), format!("it took nothing in for {limit:?}"));
                tracing::warn!(link = self.id.0, "a client does not take in what is sent to it: its link ends");
                self.end(cause.clone());
                Err(cause)
            }
            other => other,
        }
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
        match self.say(Frame::Grant { key, rights, offset, length }, Some((file, region, rights)), false) {
            Ok(()) => Ok(key),
            Err(cause) => {
                self.offered.forget(key);
                Err(cause)
            }
        }
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        let revocation = self.offered.withdraw(key)?;
        if let Err(cause) = self.say(Frame::Revoke { key }, None, false) {
            // The client was not asked: it lets go when it finds the end of the link.
            self.end(cause);
        }
        // Behind the frame, or the end of the link.
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
        let channel = self.endpoint(endpoint)?;
        {
            let granted = self.received.hold();
            let (region, offset) = granted.check(to, bytes.len() as u64, Rights::WRITE)?;
            region.write(offset, bytes)?;
        }
        match immediate {
            Some(immediate) => self.send_on(&channel, &[&Frame::Immediate(immediate).encode()]),
            None => Ok(()),
        }
    }

    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLarge { length: bytes.len() as u64, limit: MAX_MESSAGE_BYTES as u64 });
        }
        let channel = self.endpoint(endpoint)?;
        self.send_on(&channel, &[&Frame::message_header(bytes.len()), bytes])
    }

    fn is_alive(&self) -> bool {
        self.ended.get().is_none()
    }

    fn close(&self) {
        self.end(Error::lost(format!("link {}", self.id.0), "this node closed it"));
    }
}
