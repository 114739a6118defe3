//! Bytes of a connection, in plain or within TLS.
//!
//! A read gives less than was asked for only when the socket has nothing left, also within TLS. So a caller that then
//! waits for the socket misses nothing. Output of a session that the socket has not taken is pending: at most
//! [`MAX_PENDING_BYTES`] of the bytes to send, and what a handshake needs.

use mio::net::TcpStream;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are encrypted before the socket takes them.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// A client that does not answer this many probes is gone.
const KEEPALIVE_PROBES: u32 = 3;
/// The longest silence before the system probes, in seconds.
const MAX_KEEPALIVE_S: u64 = 32_767;

/// A connection's socket.
#[derive(Debug)]
pub enum Stream {
    /// Bytes go over it in plain.
    Plain(Arc<TcpStream>),
    /// Bytes go over it within TLS.
    Tls(Arc<TcpStream>, Box<Connection>),
}

impl Stream {
    /// Makes a session over an accepted socket, within TLS if `tls` says how.
    ///
    /// # Errors
    /// When a session of TLS cannot be set up.
    pub fn new(socket: Arc<TcpStream>, tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        Ok(Self::within(socket, Connection::Server(ServerConnection::new(config).map_err(Error::other)?)))
    }

    /// Makes a session over a socket to a server, within TLS if `tls` says how, and for which name the server's
    /// certificate must be.
    ///
    /// # Errors
    /// As [`Stream::new`].
    pub fn to(socket: Arc<TcpStream>, tls: Option<(Arc<ClientConfig>, ServerName<'static>)>) -> Result<Self> {
        let Some((config, name)) = tls else { return Ok(Self::Plain(socket)) };
        Ok(Self::within(socket, Connection::Client(ClientConnection::new(config, name).map_err(Error::other)?)))
    }

    fn within(socket: Arc<TcpStream>, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(MAX_PENDING_BYTES));
        Self::Tls(socket, Box::new(session))
    }

    /// Whether the other side has not proven yet that it speaks TLS.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(_, session) if session.is_handshaking())
    }

    /// Whether there is something that the socket has not taken.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Tls(_, session) if session.wants_write())
    }

    /// Ends the session properly, and sends nothing more.
    pub fn end(&mut self) {
        self.close();
        let (Self::Plain(socket) | Self::Tls(socket, _)) = self;
        // A socket that has already ended also sends nothing more.
        let _ = socket.shutdown(Shutdown::Write);
    }

    /// Ends the session properly, if the socket takes it.
    pub fn close(&mut self) {
        if let Self::Tls(socket, session) = self {
            session.send_close_notify();
            let _ = push(socket, session);
        }
    }
}

/// Makes the socket send writes at once, and makes the system probe a client after this many seconds of silence.
///
/// # Errors
/// Those of the operating system.
pub fn prepare(socket: &TcpStream, keepalive_s: u64) -> Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, keepalive_s > 0)?;
    if keepalive_s > 0 {
        let idle_s = keepalive_s.min(MAX_KEEPALIVE_S);
        sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle_s))?;
        let interval_s = (idle_s / u64::from(KEEPALIVE_PROBES)).max(1);
        sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval_s))?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    }
    Ok(())
}

/// Hands what the session made to the socket.
fn push(mut socket: &TcpStream, session: &mut Connection) -> Result<()> {
    while session.wants_write() {
        if session.write_tls(&mut socket)? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let (socket, session) = match self {
            Self::Plain(socket) => return (&**socket).read(room),
            Self::Tls(socket, session) => (&**socket, session),
        };
        let mut read = 0;
        loop {
            let left = room.get_mut(read..).unwrap_or_default();
            match session.reader().read(left) {
                Ok(0) => return Ok(read),
                Ok(more) => {
                    read += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The other side ended the connection without ending the TLS session.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(read),
                Err(error) => return Err(error),
            }
            match session.read_tls(&mut &*socket) {
                // The reader reports what this means, once it has no bytes left.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock && read > 0 => return Ok(read),
                Err(error) => return Err(error),
            }
            let understood = session.process_new_packets();
            match push(socket, session) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            understood.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let (socket, session) = match self {
            Self::Plain(socket) => return (&**socket).write(bytes),
            Self::Tls(socket, session) => (socket, session),
        };
        push(socket, session)?;
        let taken = session.writer().write(bytes)?;
        match push(socket, session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(socket, session) => push(socket, session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_silent_client_is_asked_whether_it_is_there() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        for (keepalive_s, expected) in
            [(300, Some((300, 100))), (1, Some((1, 1))), (i32::MAX as u64, Some((32_767, 10_922))), (0, None)]
        {
            let socket = TcpStream::connect(address).unwrap();
            prepare(&socket, keepalive_s).unwrap();
            assert!(sockopt::tcp_nodelay(&socket).unwrap());
            assert_eq!(sockopt::socket_keepalive(&socket).unwrap(), expected.is_some());
            if let Some((idle_s, interval_s)) = expected {
                assert_eq!(sockopt::tcp_keepidle(&socket).unwrap().as_secs(), idle_s);
                assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap().as_secs(), interval_s);
                assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), KEEPALIVE_PROBES);
            }
        }
    }
}
