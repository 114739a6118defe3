//! A connected socket that never blocks, and why a connection may carry nothing any more.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Idle time before the system asks whether the peer is still there, and between its questions.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Unanswered questions after which the connection is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// A connected socket that never blocks.
#[derive(Debug)]
pub(super) struct Socket(TcpStream);

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes, and whether there may be more at once. With TLS there may be none now and more at once.
    Bytes(usize, bool),
    /// Nothing yet.
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// Why a connection carries nothing any more.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Broken {
    /// The system says so.
    System(Errno),
    /// TLS does: the peer is not who it should be, or what came is not from it.
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
            // What it quotes may be the peer's.
            Self::Tls(error) => error.to_string().escape_debug().take(MAX_QUOTED).try_for_each(|c| write!(f, "{c}")),
        }
    }
}

/// Most characters of a text that may quote the peer.
const MAX_QUOTED: usize = 300;

/// Whether the socket's other end is the socket itself. The system connects it so when nobody listens at a port of this
/// machine, and it gives the socket that very port: who tries again and again to reach a node that is away meets it, and
/// would keep the port from the node.
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
        let room = into.len();
        match self.receive_with(into, RecvFlags::DONTWAIT)? {
            None => Ok(Received::Nothing),
            Some(0) => Ok(Received::End),
            // A receive that did not fill the space has emptied the socket.
            Some(count) => Ok(Received::Bytes(count, count == room)),
        }
    }

    /// The first byte that came, which stays where it is; its end, too, is an error.
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

    /// Bytes that were received; `None` when nothing is there, zero at the end.
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
