//! A connected socket that never blocks, and the reasons why a connection may carry nothing any more.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Idle time before the system probes whether the peer still exists, and between probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Unanswered probes after which the connection is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// A connected socket that never blocks.
#[derive(Debug)]
pub(super) struct Socket(TcpStream);

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes, and whether more may be available at once. With TLS there may be none now, but more at once.
    Bytes(usize, bool),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// Why a connection carries nothing any more.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Broken {
    /// The system reports it.
    System(Errno),
    /// TLS reports it: the peer is not who it should be, or the data is not from it.
    Tls(rustls::Error),
}

impl From<Errno> for Broken {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => std::io::Error::from(*errno).fmt(f),
            // It may quote text of the peer.
            Self::Tls(error) => error.to_string().escape_debug().take(MAX_QUOTED).try_for_each(|c| write!(f, "{c}")),
        }
    }
}

/// Most characters of a text that may quote the peer.
const MAX_QUOTED: usize = 300;

/// Whether the socket's other end is the socket itself. This happens when nobody listens at a port of this machine and
/// the system gives the connecting socket that very port. A client that keeps trying to reach an absent node runs into
/// this, and would keep the port from the node.
fn is_connected_to_itself(socket: &TcpStream) -> std::io::Result<bool> {
    Ok(socket.local_addr()? == socket.peer_addr()?)
}

impl Socket {
    /// Connects within `limit`.
    pub(super) fn connect(address: SocketAddr, limit: Duration, socket_bytes: Option<usize>) -> std::io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, limit)?;
        if is_connected_to_itself(&socket)? {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        Self::adopt(socket, socket_bytes)
    }

    /// Takes an accepted or connected socket. With `socket_bytes`, sets the size of the system's buffers for it, each
    /// way.
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

    /// Receives what is available now.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<Received, Errno> {
        let room = into.len();
        match self.receive_with(into, RecvFlags::DONTWAIT)? {
            None => Ok(Received::Nothing),
            Some(0) => Ok(Received::End),
            // A receive that did not fill the space has emptied the socket.
            Some(count) => Ok(Received::Bytes(count, count == room)),
        }
    }

    /// The first byte that came, which stays in the socket; the connection's end is also an error.
    pub(super) fn peek(&self) -> Result<Option<u8>, Errno> {
        let mut first = [0];
        match self.receive_with(&mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK)? {
            None => Ok(None),
            Some(0) => Err(Errno::CONNRESET),
            Some(_) => Ok(Some(first[0])),
        }
    }

    /// Ends the connection, both ways or one.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // It may have ended already.
        let _ = self.0.shutdown(how);
    }

    /// Number of bytes received; `None` when nothing is available, zero at the end.
    #[inline]
    fn receive_with(&self, into: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::net::recv(&self.0, &mut *into, flags) {
                Ok((_, count)) => return Ok(Some(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_socket_that_is_connected_to_itself_is_told_from_one_of_a_server() {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let place = SocketAddr::try_from(getsockname(&own).unwrap()).unwrap();
        connect(&own, &place).unwrap();
        assert!(is_connected_to_itself(&TcpStream::from(own)).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_connected_to_itself(&client).unwrap());
    }
}
