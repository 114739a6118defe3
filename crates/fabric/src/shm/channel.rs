//! Sockets of the shared-memory back end: frames out and in, memory files that go with them, and
//! the node's place in the file system.
//!
//! Sockets are of the kind that keeps packets whole and in order (`SOCK_SEQPACKET`), and never
//! block: a packet is sent or taken in one piece or not at all, so any thread may send.

use super::frame::{BUFFER_BYTES, Frame};
use crate::Error;
use crate::admission::{Identity, Origin, Source};
use forebay_env::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause between tries to reach a node whose backlog is full.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// How long others may keep the folder of a node's socket locked. Nodes do so for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A connected socket.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// What [`Channel::receive`] found.
#[derive(Debug)]
pub(super) enum Received {
    /// A packet of this length in the buffer, and the file that came with it.
    Packet(usize, Option<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Nothing will come any more, and why.
    Ended(String),
}

impl Channel {
    /// Connects to the node at `path`.
    pub(super) fn connect(path: &Path, limit: Duration) -> Result<Self, Error> {
        let address = address(path)?;
        let clock = SystemClock::new();
        loop {
            let socket = new_socket()?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self(socket)),
                Err(Errno::AGAIN | Errno::INTR) if u128::from(clock.now()) < limit.as_nanos() => {
                    clock.sleep(RETRY_PAUSE);
                }
                Err(Errno::NOENT | Errno::CONNREFUSED) => {
                    return Err(Error::lost(display(path), "no node listens there"));
                }
                Err(Errno::AGAIN | Errno::INTR) => return Err(Error::lost(display(path), "the node does not answer")),
                Err(e) => return Err(Error::file("connecting to the socket", path, e)),
            }
        }
    }

    /// Sends a packet made of `parts`, with a file. False, and nothing sent, when the other side
    /// does not keep up.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Io`].
    pub(super) fn try_send(&self, parts: &[&[u8]], file: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let mut slices = [IoSlice::new(&[]); 2];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let files = file.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Error::io("passing a memory file", "no room"));
        }
        loop {
            return match rustix::net::sendmsg(&self.0, &slices, &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            {
                Ok(_) => Ok(true),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    Err(Error::lost("the other side", "it closed the connection"))
                }
                Err(e) => Err(Error::io("sending to a peer", e)),
            };
        }
    }

    /// Sends a packet, and waits up to `limit` for room.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when there was no room, [`Error::PeerLost`], [`Error::Io`].
    pub(super) fn send(&self, parts: &[&[u8]], file: Option<BorrowedFd<'_>>, limit: Duration) -> Result<(), Error> {
        let clock = SystemClock::new();
        while !self.try_send(parts, file)? {
            let left = limit.saturating_sub(Duration::from_nanos(clock.now()));
            if left.is_zero() {
                return Err(Error::TimedOut(limit));
            }
            self.wait(PollFlags::OUT, left);
        }
        Ok(())
    }

    /// Receives a packet; `buffer` must have [`BUFFER_BYTES`].
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = loop {
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut beside, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(e) => return Received::Ended(e.to_string()),
            }
        };
        let mut file = None;
        for item in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = item {
                // Files beyond the first are closed here.
                file = files.into_iter().next().or(file);
            }
        }
        match message.bytes {
            0 => Received::Ended("the other side closed the connection".into()),
            bytes => Received::Packet(bytes, file),
        }
    }

    /// Waits up to `limit` for a whole frame, and the file that comes with it.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Protocol`].
    pub(super) fn receive_within(&self, limit: Duration) -> Result<(Vec<u8>, Option<OwnedFd>), Error> {
        let clock = SystemClock::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match self.receive(&mut buffer) {
                Received::Packet(length, file) => {
                    buffer.truncate(length);
                    return Ok((buffer, file));
                }
                Received::Ended(cause) => return Err(Error::lost("the node", cause)),
                Received::Nothing => {}
            }
            let left = limit.saturating_sub(Duration::from_nanos(clock.now()));
            if left.is_zero() {
                return Err(Error::lost("the node", format!("it did not answer within {limit:?}")));
            }
            self.wait(PollFlags::IN, left);
        }
    }

    /// Sleeps until one of `flags` holds, the connection ends or `limit` has passed.
    pub(super) fn wait(&self, flags: PollFlags, limit: Duration) {
        wait(&self.0, flags, Some(limit));
    }

    /// Sleeps until something can be received or the connection ends.
    pub(super) fn wait_for_packet(&self) {
        wait(&self.0, PollFlags::IN, None);
    }

    /// The user and process at the other end, as of when it connected.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn origin(&self) -> Result<Origin, Error> {
        let at = rustix::net::sockopt::socket_peercred(&self.0).map_err(|e| Error::io("asking who connects", e))?;
        let identity = Identity::User { uid: at.uid.as_raw(), gid: at.gid.as_raw() };
        Ok(Origin { identity, source: Source::Process(at.pid.as_raw_nonzero().get()) })
    }

    /// Ends the connection; threads that wait on either side wake.
    pub(super) fn shutdown(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Ends the sending direction: the other side finds the end after everything that was sent.
    pub(super) fn shutdown_sending(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn wait(socket: &OwnedFd, flags: PollFlags, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // An interrupted sleep is a short one: callers look again.
    let _ = rustix::event::poll(&mut [PollFd::new(socket, flags)], limit.as_ref());
}

/// Decodes a packet.
pub(super) fn decode(packet: &[u8]) -> Result<Frame<'_>, Error> {
    Frame::decode(packet).map_err(|e| Error::Protocol(e.to_string()))
}

/// A node's address, as it is written.
pub(super) fn display(path: &Path) -> String {
    format!("shm:{}", path.display())
}

fn address(path: &Path) -> Result<SocketAddrUnix, Error> {
    SocketAddrUnix::new(path).map_err(|e| {
        Error::Invalid(format!("{} cannot be the path of a socket (at most 107 bytes): {e}", path.display()))
    })
}

fn new_socket() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|e| Error::io("making a socket", e))
}

/// A node's listening socket; its file goes when this is dropped.
#[derive(Debug)]
pub(super) struct Door {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket's file: another node may have replaced it.
    file: (u64, u64),
}

impl Door {
    /// Listens at `path`, in place of a dead node if there was one. Only the socket's owner may connect, or
    /// with `for_all` everybody.
    ///
    /// # Errors
    /// [`Error::Invalid`] when something else is there, a node is alive, or somebody keeps the folder locked;
    /// [`Error::File`].
    pub(super) fn open(path: &Path, for_all: bool) -> Result<Self, Error> {
        let at = address(path)?;
        let _lock = lock_folder(path, LOCK_PATIENCE)?;
        remove_stale(path, &at)?;
        let socket = new_socket()?;
        rustix::net::bind(&socket, &at).map_err(|e| Error::file("making the socket", path, e))?;
        // Before `listen`, so that nobody connects under the mode that the process's umask left.
        let owner = Mode::RUSR | Mode::WUSR;
        let others = Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        let mode = if for_all { owner | others } else { owner };
        rustix::fs::chmod(path, mode).map_err(|e| Error::file("saying who may open the socket", path, e))?;
        let file = identity(path).ok_or_else(|| Error::file("looking at the socket", path, Errno::NOENT))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|e| Error::file("listening on the socket", path, e))?;
        Ok(Self { socket, path: path.to_path_buf(), file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a connection; `None` when none waits.
    pub(super) fn accept(&self) -> Result<Option<Channel>, Errno> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(Channel(socket))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Ok(_lock) = lock_folder(&self.path, LOCK_PATIENCE)
            && identity(&self.path) == Some(self.file)
        {
            // If the file stays, the next node finds it stale.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Device and inode of the socket at `path`, if one exists.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let status = rustix::fs::lstat(path).ok()?;
    (FileType::from_raw_mode(status.st_mode) == FileType::Socket).then_some((status.st_dev, status.st_ino))
}

/// Keeps other nodes from looking at, removing or making sockets in the folder of `path`. Everybody who may read the
/// folder can lock it, and keep it locked, so this waits no longer than `limit`.
pub(super) fn lock_folder(path: &Path, limit: Duration) -> Result<OwnedFd, Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock =
        rustix::fs::open(folder, flags, Mode::empty()).map_err(|e| Error::file("opening the folder", folder, e))?;
    let clock = SystemClock::new();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::AGAIN | Errno::INTR) if u128::from(clock.now()) < limit.as_nanos() => clock.sleep(RETRY_PAUSE),
            Err(Errno::AGAIN | Errno::INTR) => {
                return Err(Error::Invalid(format!(
                    "another process keeps the folder {} locked: end it, or use another folder for the socket",
                    folder.display()
                )));
            }
            Err(e) => return Err(Error::file("locking the folder", folder, e)),
        }
    }
}

/// Removes the socket of a node that no longer runs.
fn remove_stale(path: &Path, at: &SocketAddrUnix) -> Result<(), Error> {
    if rustix::fs::lstat(path).is_err() {
        return Ok(());
    }
    if identity(path).is_none() {
        return Err(Error::Invalid(format!("{} exists and is not a socket", path.display())));
    }
    match rustix::net::connect(new_socket()?, at) {
        Err(Errno::CONNREFUSED) => {
            rustix::fs::unlink(path).map_err(|e| Error::file("removing the socket of a dead node", path, e))
        }
        Ok(()) | Err(Errno::AGAIN) => Err(Error::Invalid(format!("a node is alive at {}", display(path)))),
        Err(e) => Err(Error::file("asking whether a node is alive at the socket", path, e)),
    }
}
