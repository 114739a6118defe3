//! Bytes of a connection, as they are or within TLS.
//!
//! A read gives less than was asked for only when the socket has nothing left, within TLS too, so that whoever waits for the
//! socket to have more misses nothing. What a session made and the socket has not taken is pending: no more than
//! [`MAX_PENDING_BYTES`] of what is to be sent, and what a handshake needs.

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::sync::Arc;

/// Bytes that are encrypted before the socket takes them.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// A connection's socket.
#[derive(Debug)]
pub enum Stream {
    /// Bytes go over it as they are.
    Plain(TcpStream),
    /// Bytes go over it within TLS.
    Tls(TcpStream, Box<ServerConnection>),
}

impl Stream {
    /// A session of TLS over a socket that was accepted.
    ///
    /// # Errors
    /// When the session cannot be set up.
    pub fn tls(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self> {
        let mut session = ServerConnection::new(config).map_err(Error::other)?;
        session.set_buffer_limit(Some(MAX_PENDING_BYTES));
        Ok(Self::Tls(socket, Box::new(session)))
    }

    /// The socket.
    pub const fn socket(&mut self) -> &mut TcpStream {
        let (Self::Plain(socket) | Self::Tls(socket, _)) = self;
        socket
    }

    /// Whether the client has not proven yet that it speaks TLS.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(_, session) if session.is_handshaking())
    }

    /// Whether there is something that the socket has not taken.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Tls(_, session) if session.wants_write())
    }

    /// Says farewell, if the socket takes it.
    pub fn close(&mut self) {
        if let Self::Tls(socket, session) = self {
            session.send_close_notify();
            let _ = push(socket, session);
        }
    }
}

/// Hands what the session made to the socket.
fn push(socket: &mut TcpStream, session: &mut ServerConnection) -> Result<()> {
    while session.wants_write() {
        if session.write_tls(socket)? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let (socket, session) = match self {
            Self::Plain(socket) => return socket.read(room),
            Self::Tls(socket, session) => (socket, session),
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
                // The client ended the connection without saying so within TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(read),
                Err(error) => return Err(error),
            }
            match session.read_tls(socket) {
                // The reader says what this means, once it has no bytes left.
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
            Self::Plain(socket) => return socket.write(bytes),
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
