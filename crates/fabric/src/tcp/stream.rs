//! A connection's bytes. The only place that knows what carries them: TLS goes here.

use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Idle time before the system asks whether the peer is still there, and between its questions.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Unanswered questions after which the connection is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// A connected socket that never blocks.
#[derive(Debug)]
pub(super) struct Stream(TcpStream);

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection.
    End,
}

impl Stream {
    /// Connects within `limit`.
    pub(super) fn connect(address: SocketAddr, limit: Duration, socket_bytes: Option<usize>) -> std::io::Result<Self> {
        Self::adopt(TcpStream::connect_timeout(&address, limit)?, socket_bytes)
    }

    /// Takes an accepted or connected socket. With `socket_bytes`, the system's buffers for it are
    /// made that large, each way.
    pub(super) fn adopt(socket: TcpStream, socket_bytes: Option<usize>) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        if let Some(bytes) = socket_bytes {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        Ok(Self(socket))
    }

    /// Sends what the system takes now; zero when it takes nothing.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                result => return result,
            }
        }
    }

    /// Receives what is there now.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<Received, Errno> {
        self.receive_with(into, RecvFlags::DONTWAIT)
    }

    /// Whether the connection still stands and nothing has come over it.
    pub(super) fn is_quiet(&self) -> bool {
        self.receive_with(&mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK) == Ok(Received::Nothing)
    }

    #[inline]
    fn receive_with(&self, into: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
        loop {
            match rustix::net::recv(&self.0, &mut *into, flags) {
                Ok((_, 0)) => return Ok(Received::End),
                Ok((_, count)) => return Ok(Received::Bytes(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Ends the connection both ways: whoever waits on it wakes up.
    pub(super) fn shutdown(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of `streams` has something to receive (or, if the flag is set, takes bytes
/// again), at most for `limit`.
pub(super) fn wait<const N: usize>(streams: [(&Stream, bool); N], limit: Duration) {
    let mut waited = streams.map(|(stream, also_for_room)| {
        let flags = if also_for_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(stream, flags)
    });
    // Woken early, by a signal for instance, the caller looks and waits again.
    let _ = rustix::event::poll(&mut waited, Some(&timespec(limit)));
}

/// A duration as the system wants it.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// The loss of the connection to `node`.
pub(super) fn lost(node: impl std::fmt::Display, cause: Errno) -> Error {
    Error::lost(node, std::io::Error::from(cause))
}
