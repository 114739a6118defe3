//! A connection's bytes, plain or within TLS. Only this module knows which.

use super::socket::{Broken, Received, Socket};
use super::tls::Tls;
use crate::Error;
use forebay_env::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// A connected socket that never blocks, and the TLS session on it if there is one.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Mutex<Tls>>,
}

impl Stream {
    /// Connects within `limit`.
    pub(super) fn connect(address: SocketAddr, limit: Duration, socket_bytes: Option<usize>) -> std::io::Result<Self> {
        Socket::connect(address, limit, socket_bytes).map(Self::plain)
    }

    /// Bytes go over the socket as they are.
    pub(super) const fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// From now on bytes go over the socket within TLS.
    pub(super) fn begin_tls(&mut self, tls: Tls) {
        self.tls = Some(Mutex::new(tls));
    }

    /// Continues TLS's handshake. True once bytes can be sent and received.
    pub(super) fn shake_hands(&self) -> Result<bool, Broken> {
        match &self.tls {
            None => Ok(true),
            Some(tls) => lock(tls).shake_hands(&self.socket),
        }
    }

    /// The certificates that the peer has shown, its own first.
    pub(super) fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        lock(self.tls.as_ref()?).peer_certificates()
    }

    /// Sends what the system takes now; zero when it takes nothing. Bytes that were not taken must be offered
    /// again, before any others.
    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Broken> {
        match &self.tls {
            None => Ok(self.socket.send(bytes)?),
            Some(tls) => lock(tls).send(&self.socket, bytes),
        }
    }

    /// Receives what is available now. Returns nothing while another thread sends within TLS.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<Received, Broken> {
        match self.tls.as_ref().map(Mutex::try_lock) {
            None => Ok(self.socket.receive(into)?),
            Some(Ok(mut tls)) => tls.receive(&self.socket, into),
            Some(Err(TryLockError::Poisoned(tls))) => tls.into_inner().receive(&self.socket, into),
            Some(Err(TryLockError::WouldBlock)) => Ok(Received::Bytes(0, true)),
        }
    }

    /// Receives what the socket has, without decrypting it, to be dropped. Nothing can be received after that.
    pub(super) fn drain(&self, into: &mut [u8]) -> Result<Received, Broken> {
        Ok(self.socket.receive(into)?)
    }

    /// Number of bytes that came for the TLS session, including those that carried no data; zero without TLS.
    pub(super) fn tls_bytes(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| lock(tls).received_bytes())
    }

    /// Whether the connection still stands and nothing has come over it.
    pub(super) fn is_quiet(&self) -> bool {
        self.socket.peek() == Ok(None) && !self.holds_bytes()
    }

    /// The first byte that came, which stays in the socket.
    pub(super) fn first_byte(&self) -> Result<Option<u8>, Broken> {
        Ok(self.socket.peek()?)
    }

    /// Whether bytes were taken off the socket and not received yet.
    fn holds_bytes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| lock(tls).holds_bytes())
    }

    /// Ends the connection both ways; threads that wait on it wake up.
    pub(super) fn shutdown(&self) {
        self.socket.shutdown(Shutdown::Both);
    }

    /// Ends the sending direction.
    pub(super) fn shutdown_sending(&self) {
        self.socket.shutdown(Shutdown::Write);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sleeps until one of `streams` has something to receive (or, if the flag is set, takes bytes
/// again), at most for `limit`.
pub(super) fn wait<const N: usize>(streams: [(&Stream, bool); N], limit: Duration) {
    if streams.iter().any(|(stream, _)| stream.holds_bytes()) {
        return;
    }
    let mut waited = streams.map(|(stream, also_for_room)| {
        let flags = if also_for_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(stream, flags)
    });
    // If woken early, for instance by a signal, the caller looks and waits again.
    let _ = rustix::event::poll(&mut waited, Some(&timespec(limit)));
}

/// A duration in the system's form.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// The loss of the connection to `node`.
pub(super) fn lost(node: impl fmt::Display, cause: impl Into<Broken>) -> Error {
    Error::lost(node, cause.into())
}
