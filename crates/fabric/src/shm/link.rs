//! A client's connection to a node, as its handle, its thread and its endpoints share it.
//!
//! A thread waits at the control socket, handles what the node says, and marks the link dead when the socket ends: the
//! node's memory stays mapped here and would answer for a dead node. An endpoint that does not find a key handles frames
//! itself, because the node may have passed on the key through memory before that thread was scheduled. A page of the node
//! ([`Notice`]) tells whether there are revocations to handle, and whether all frames have come.
//!
//! A revoked grant is released as follows. It leaves the link's table, then each endpoint's. Endpoints hold their table
//! while they use it, so after the last removal nobody uses the mapping. The mapping is then gone, and the node is told.
//! The end of the link does the same for all grants at once: the end of the control socket, which comes last, tells the
//! node.

use super::channel::{Channel, Received, decode, display};
use super::frame::{BUFFER_BYTES, Frame};
use super::notice::Notice;
use super::offered::{Offered, is_written};
use crate::{AccessKey, CountsRegistry, Error, GrantTable, NodeIdentity, Region, Rights};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_env::{Clock, SystemClock};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// How long a node may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The link as its handle, its thread and its endpoints share it.
#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    pub(super) identity: NodeIdentity,
    number: u64,
    token: u128,
    pub(super) control: Channel,
    /// The incoming frames; the thread that holds this lock handles them in order.
    inbound: Mutex<Inbound>,
    alive: AtomicBool,
    cause: OnceLock<String>,
    /// Grants of this process to the node.
    pub(super) offered: Offered,
    /// Grants of the node to this process, mapped here.
    received: GrantTable,
    pub(super) notice: Notice,
    endpoints: Mutex<Vec<Weak<Attached>>>,
    next_endpoint: AtomicU32,
    pub(super) counts: CountsRegistry,
}

#[derive(Debug)]
struct Inbound {
    buffer: Vec<u8>,
    /// Number of frames that were handled.
    count: u64,
}

/// What an endpoint and its link share.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) channel: Channel,
    /// The grants that the endpoint has used: its own copy, so that threads do not contend for a
    /// lock.
    pub(super) known: GrantTable,
}

/// Opens a link; it lives until [`Shared::end`].
pub(super) fn open(path: &Path) -> Result<Arc<Shared>, Error> {
    let shared = introduced(path)?;
    let watcher = Arc::clone(&shared);
    forebay_env::thread::spawn("forebay-shm-link", move || watcher.watch())
        .map_err(|e| Error::io("starting a link's thread", e))?;
    Ok(shared)
}

/// A link that no thread watches yet.
pub(super) fn introduced(path: &Path) -> Result<Arc<Shared>, Error> {
    let control = Channel::connect(path, PATIENCE)?;
    let (answer, file) = introduce(&control, Frame::OpenLink, path)?;
    let Frame::LinkOpened { node, incarnation, link, token, line } = decode(&answer)? else {
        return Err(Error::Protocol(format!("{} did not open the link", display(path))));
    };
    let file = file.ok_or_else(|| Error::Protocol("a link was opened without its node's page".into()))?;
    Ok(Arc::new(Shared {
        path: path.to_path_buf(),
        identity: NodeIdentity { node, incarnation },
        number: link,
        token,
        control,
        inbound: Mutex::new(Inbound { buffer: vec![0; BUFFER_BYTES], count: 0 }),
        alive: AtomicBool::new(true),
        cause: OnceLock::new(),
        offered: Offered::default(),
        received: GrantTable::new(),
        notice: Notice::of_file(file, line)?,
        endpoints: Mutex::default(),
        next_endpoint: AtomicU32::new(1),
        counts: CountsRegistry::default(),
    }))
}

/// Says what a new socket is for, and returns the node's answer and the file that came with it.
fn introduce(channel: &Channel, frame: Frame<'_>, path: &Path) -> Result<(Vec<u8>, Option<OwnedFd>), Error> {
    // A node that admits nobody says so unasked.
    let sent = channel.send(&[&frame.encode()], None, PATIENCE);
    let answer = channel.receive_within(PATIENCE).map_err(|cause| match sent.err().unwrap_or(cause) {
        Error::PeerLost { cause, .. } => Error::lost(display(path), cause),
        other => other,
    })?;
    if let Frame::Refused { status, text } = decode(&answer.0)? {
        let kind = ErrorKind::from_code(status).unwrap_or(ErrorKind::Unsupported);
        return Err(Error::Remote { kind, message: text.into() });
    }
    Ok(answer)
}

impl Shared {
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn lost(&self) -> Error {
        let cause = self.cause.get().map_or("the connection ended", String::as_str);
        Error::lost(format!("{} at {}", self.identity, display(&self.path)), cause)
    }

    fn watch(&self) {
        while self.is_alive() {
            self.control.wait_for_packet();
            self.catch_up();
        }
    }

    /// Handles all frames that the node has announced so far.
    fn catch_up(&self) {
        let Inbound { buffer, count } = &mut *lock(&self.inbound);
        // Revocations counted by now are announced.
        let taken_back = self.notice.now();
        let waiting = OnceCell::new();
        while self.is_alive() {
            let result = match self.control.receive(buffer) {
                Received::Nothing if *count >= self.notice.announced() => {
                    return self.notice.taken_in(taken_back);
                }
                Received::Nothing => self.wait_for_room(waiting.get_or_init(SystemClock::new)),
                Received::Ended(cause) => return self.end(cause),
                Received::Packet(length, file) => {
                    *count += 1;
                    decode(buffer.get(..length).unwrap_or_default()).and_then(|frame| self.handle(frame, file))
                }
            };
            if let Err(cause) = result {
                self.end(cause.to_string());
            }
        }
    }

    /// Waits for a frame for which the socket had no room before.
    fn wait_for_room(&self, since: &SystemClock) -> Result<(), Error> {
        let left = PATIENCE.saturating_sub(Duration::from_nanos(since.now()));
        if left.is_zero() {
            return Err(Error::Protocol("the node announced a frame that has not come".into()));
        }
        self.control.wait(PollFlags::IN, left);
        Ok(())
    }

    fn handle(&self, frame: Frame<'_>, file: Option<OwnedFd>) -> Result<(), Error> {
        match frame {
            Frame::Grant { key, rights, offset, length } => self.take_grant(key, rights, offset, length, file),
            Frame::GrantTaken { key, status } => {
                self.offered.answer(key, status);
                Ok(())
            }
            Frame::Revoke { key } => {
                self.let_go(key);
                self.control.send(&[&Frame::Released { key }.encode()], None, PATIENCE)
            }
            Frame::Released { key } => {
                self.offered.released(key);
                Ok(())
            }
            other => Err(Error::Protocol(format!("frame type {} is out of place", other.number()))),
        }
    }

    fn take_grant(
        &self,
        key: AccessKey,
        rights: Rights,
        offset: u64,
        length: u64,
        file: Option<OwnedFd>,
    ) -> Result<(), Error> {
        let file = file.ok_or_else(|| Error::Protocol("a grant came without its memory file".into()))?;
        let bytes = usize::try_from(length).map_err(|_| Error::Protocol(format!("a grant of {length} bytes")))?;
        let region = Region::from_received(file, offset, bytes, is_written(rights))?;
        // The node has committed it.
        region.populate();
        self.received.enter(key, region, rights)
    }

    fn let_go(&self, key: AccessKey) {
        self.received.revoke(key);
        for attached in self.attached() {
            attached.known.revoke(key);
        }
    }

    fn attached(&self) -> Vec<Arc<Attached>> {
        lock(&self.endpoints).iter().filter_map(Weak::upgrade).collect()
    }

    /// Gives an endpoint a grant that it does not know, if the node made it.
    pub(super) fn learn(&self, key: AccessKey, attached: &Attached) {
        if !attached.known.learn(key, &self.received) {
            self.catch_up();
            attached.known.learn(key, &self.received);
        }
    }

    /// Checks that what this thread wrote under a key was in place before the node began to revoke the grant, and before the
    /// node died. Uses no system call and no cache line that other threads write, unless there is a frame to handle.
    #[inline]
    pub(super) fn confirm(&self, key: &AccessKey, attached: &Attached) -> Result<(), Error> {
        // In this order: see `notice`.
        if self.is_as_known() && attached.known.hold().knows(key) {
            return Ok(());
        }
        self.ask(key)
    }

    /// Whether, after all that this thread wrote, the node lives and every revoked grant has been released here.
    ///
    /// A caller that holds an endpoint's table with a key in it need not look up the key again: while the table is held, the
    /// key is not released.
    #[inline]
    pub(super) fn is_as_known(&self) -> bool {
        self.notice.is_unchanged() && self.is_alive()
    }

    /// As [`Shared::confirm`], from the socket. The caller holds no table.
    #[cold]
    pub(super) fn ask(&self, key: &AccessKey) -> Result<(), Error> {
        self.catch_up();
        let is_granted = self.received.hold().knows(key);
        match (self.is_alive(), is_granted) {
            (false, _) => Err(self.lost()),
            (true, false) => Err(Error::AccessDenied),
            (true, true) => Ok(()),
        }
    }

    /// Ends the link. Waits for threads of this process that are using the node's memory.
    pub(super) fn end(&self, cause: impl Into<String>) {
        let _ = self.cause.set(cause.into());
        if !self.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        self.received.end();
        for attached in self.attached() {
            attached.channel.shutdown();
            attached.known.end();
        }
        // This tells the node that nobody here uses its memory any more.
        self.control.shutdown();
        self.offered.end();
    }

    /// Opens an endpoint.
    pub(super) fn attach(&self) -> Result<Arc<Attached>, Error> {
        let endpoint = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
        let channel = Channel::connect(&self.path, PATIENCE)?;
        let frame = Frame::OpenEndpoint { link: self.number, token: self.token, endpoint };
        let (answer, _) = introduce(&channel, frame, &self.path)?;
        if decode(&answer)? != Frame::EndpointOpened {
            return Err(Error::Protocol(format!("{} did not open the endpoint", display(&self.path))));
        }
        let attached = Arc::new(Attached { channel, known: GrantTable::new() });
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.push(Arc::downgrade(&attached));
        Ok(attached)
    }
}
