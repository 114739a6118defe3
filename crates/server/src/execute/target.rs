//! A server to which keys move: requests out, short replies in.
//!
//! Nothing that it sends is trusted: a reply is a line of bounded length, and any reply other than `+OK` or an error
//! breaks the connection. A wait ends when the target has been silent for the time-out, or the migration is given up.

use crate::keyspace::failure::Failure;
use crate::stream::Stream;
use crate::text::shown;
use forebay_env::{Clock, Nanos};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

const SOCKET: Token = Token(0);
/// How often a waiting thread checks whether the migration is given up.
const LOOK: Duration = Duration::from_millis(100);
/// Longest reply, in bytes.
const MAX_LINE_BYTES: usize = 1024;
/// Longest name of a host, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// Where a migration broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The target was not reached.
    Connecting,
    /// The target did not take what it was sent.
    Writing,
    /// The target did not reply, or with something that no server replies.
    Reading,
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::text(match broken {
            Broken::Connecting => "IOERR error or timeout connecting to the client",
            Broken::Writing => "IOERR error or timeout writing to target instance",
            Broken::Reading => "IOERR error or timeout reading to target instance",
        })
    }
}

impl Broken {
    /// Logs the system's error, and returns this.
    fn by(self) -> impl FnOnce(Error) -> Self {
        move |error| {
            tracing::debug!(at = ?self, %error, "a server to which keys are to go");
            self
        }
    }
}

/// The target's reply: success, or its error.
pub type Answer = std::result::Result<(), String>;

/// See the module.
pub struct Target<'a> {
    stream: Stream,
    poll: Poll,
    events: Events,
    /// Bytes that were received after the replies that were read.
    received: Vec<u8>,
    timeout: Duration,
    clock: &'a dyn Clock,
    is_given_up: &'a dyn Fn() -> bool,
}

impl<'a> Target<'a> {
    /// Connects to a server, at the first of its addresses that can be reached within the time-out. The system looks
    /// the name up, without a time limit. Within TLS, if `tls` says how, the server's certificate must be for this
    /// host.
    ///
    /// # Errors
    /// [`Broken::Connecting`].
    pub fn connect(
        (host, port): (&[u8], &[u8]),
        tls: Option<Arc<ClientConfig>>,
        timeout: Duration,
        clock: &'a dyn Clock,
        is_given_up: &'a dyn Fn() -> bool,
    ) -> std::result::Result<Self, Broken> {
        let named = |config| name_of(host).map(|name| (config, name));
        let tls = tls.map(named).transpose().map_err(Broken::Connecting.by())?;
        let reach = |address| {
            let reached = Self::reach(address, tls.clone(), timeout, clock, is_given_up);
            reached.map_err(Broken::Connecting.by()).ok()
        };
        let mut addresses = addresses(host, port).map_err(Broken::Connecting.by())?;
        addresses.find_map(reach).ok_or(Broken::Connecting)
    }

    fn reach(
        address: SocketAddr,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
        timeout: Duration,
        clock: &'a dyn Clock,
        is_given_up: &'a dyn Fn() -> bool,
    ) -> Result<Self> {
        let (poll, mut socket) = (Poll::new()?, TcpStream::connect(address)?);
        poll.registry().register(&mut socket, SOCKET, Interest::READABLE | Interest::WRITABLE)?;
        let socket = Arc::new(socket);
        let stream = Stream::to(Arc::clone(&socket), tls)?;
        let (events, received) = (Events::with_capacity(1), Vec::new());
        let mut target = Self { stream, poll, events, received, timeout, clock, is_given_up };
        let until = target.deadline();
        loop {
            target.wait(until)?;
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        socket.set_nodelay(true)?;
        target.shake_hands(until)?;
        Ok(target)
    }

    /// Ends the handshake of TLS, if there is one.
    fn shake_hands(&mut self, until: Nanos) -> Result<()> {
        loop {
            self.flush(until)?;
            if !self.stream.is_handshaking() {
                return Ok(());
            }
            match self.receive() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                // What came may be the end of the handshake, and then nothing more comes.
                Err(_) if self.stream.is_handshaking() => self.wait(until)?,
                _ => {}
            }
        }
    }

    /// Sends requests.
    ///
    /// # Errors
    /// [`Broken::Writing`]. The target may have some of them.
    pub fn send(&mut self, requests: &[u8]) -> std::result::Result<(), Broken> {
        self.write_all(requests).map_err(Broken::Writing.by())
    }

    /// The reply to the next request.
    ///
    /// # Errors
    /// [`Broken::Reading`].
    pub fn answer(&mut self) -> std::result::Result<Answer, Broken> {
        let line = self.line().map_err(Broken::Reading.by())?;
        match line.split_first() {
            Some((b'+', b"OK")) => Ok(Ok(())),
            Some((b'-', text)) => Ok(Err(shown::short(text, MAX_LINE_BYTES))),
            _ => Err(Broken::Reading.by()(ErrorKind::InvalidData.into())),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(self.deadline())?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.flush(self.deadline())
    }

    /// A line without its end.
    fn line(&mut self) -> Result<Vec<u8>> {
        let until = self.deadline();
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received) {
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                let is_end = line.ends_with(b"\r\n");
                line.truncate(line.len().saturating_sub(2));
                return if is_end { Ok(line) } else { Err(ErrorKind::InvalidData.into()) };
            }
            if self.received.len() >= MAX_LINE_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.receive() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(until)?,
                received => received?,
            }
        }
    }

    /// Receives some of what there is.
    fn receive(&mut self) -> Result<()> {
        let mut room = [0; MAX_LINE_BYTES];
        match self.stream.read(&mut room) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.received.extend_from_slice(room.get(..read).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Hands to the socket what it has not taken yet.
    fn flush(&mut self, until: Nanos) -> Result<()> {
        loop {
            match self.stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(until)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                flushed => return flushed,
            }
        }
    }

    fn deadline(&self) -> Nanos {
        let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        self.clock.now().saturating_add(timeout)
    }

    /// Waits until the socket is ready.
    fn wait(&mut self, until: Nanos) -> Result<()> {
        loop {
            let left = Duration::from_nanos(until.saturating_sub(self.clock.now()));
            if left.is_zero() || (self.is_given_up)() {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.poll.poll(&mut self.events, Some(left.min(LOOK))) {
                Ok(()) if !self.events.is_empty() => return Ok(()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// The addresses of a host.
fn addresses(host: &[u8], port: &[u8]) -> Result<impl Iterator<Item = SocketAddr>> {
    let host = std::str::from_utf8(host).ok().filter(|host| host.len() <= MAX_HOST_BYTES);
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
    let (Some(host), Some(port)) = (host, port) else { return Err(ErrorKind::InvalidInput.into()) };
    (host, port).to_socket_addrs()
}

/// The name for which the certificate of a host must be.
fn name_of(host: &[u8]) -> Result<ServerName<'static>> {
    let host = std::str::from_utf8(host).map_err(Error::other)?;
    ServerName::try_from(host.to_owned()).map_err(Error::other)
}
