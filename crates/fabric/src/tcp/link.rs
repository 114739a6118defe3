//! A client's connection to a node.

use super::buffer::Buffer;
use super::frame::{Decoded, Frame, Hello, Welcome, decode};
use super::stream::{Received, Stream, lost, wait};
use super::transport::TcpTransport;
use super::{CAPABILITIES, Options};
use crate::counters::CountsRegistry;
use crate::transport::{Link, Revocation};
use crate::{
    AccessKey, Backing, Capabilities, Counts, Endpoint, EndpointOptions, Error, GrantTable, NodeIdentity, Region,
    Rights, Traffic,
};
use forebay_env::sync::lock;
use forebay_env::{Clock, Nanos, SystemClock};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes received at a time while a connection introduces itself.
const RECEIVE_BYTES: usize = 4096;

/// Opens a link to the node at `address`: `tcp://host:port`, or `host:port`.
///
/// # Errors
/// [`Error::Invalid`] for an address of another form; [`Error::PeerLost`] when no node answers
/// there within [`Options::connect_timeout`].
pub fn connect(address: &str, options: Options) -> Result<Arc<dyn Link>, Error> {
    let place = address.strip_prefix("tcp://").unwrap_or(address);
    let invalid = |cause: String| {
        Error::Invalid(format!("{address:?} is not the address of a TCP node, such as tcp://127.0.0.1:4000: {cause}"))
    };
    let candidates = place.to_socket_addrs().map_err(|e| invalid(e.to_string()))?;
    let mut last = Err(invalid("the name has no address".into()));
    for candidate in candidates {
        last = join(candidate, options.clone());
        if last.is_ok() {
            break;
        }
    }
    last.map(|shared| Arc::new(TcpLink(shared)) as Arc<dyn Link>)
}

fn join(address: SocketAddr, options: Options) -> Result<Arc<Shared>, Error> {
    let (control, welcome, _) = introduce(address, &options, Hello::Control)?;
    Ok(Arc::new(Shared {
        node: NodeIdentity { node: welcome.node, incarnation: welcome.incarnation },
        address,
        options,
        hello: Hello::Endpoint { link: welcome.link, token: welcome.token },
        control,
        alive: AtomicBool::new(true),
        exposed: GrantTable::new(),
        streams: Mutex::default(),
        counts: CountsRegistry::default(),
    }))
}

/// Connects and says hello. Returns what came behind the welcome, too.
fn introduce(address: SocketAddr, options: &Options, hello: Hello) -> Result<(Stream, Welcome, Buffer), Error> {
    let clock = SystemClock::new();
    let limit = options.connect_timeout;
    let deadline = Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
    let stream = Stream::connect(address, limit, options.socket_bytes).map_err(|e| Error::lost(address, e))?;
    let mut bytes = Buffer::default();
    Frame::Hello(hello).encode(0, &mut bytes);
    // A socket that was just opened takes a few bytes at once.
    if stream.send(bytes.filled()).map_err(|e| lost(address, e))? != bytes.len() {
        return Err(Error::lost(address, "the socket takes no greeting"));
    }
    bytes.clear();
    loop {
        let decoded = decode(bytes.filled()).map_err(|e| Error::Protocol(format!("{address} is no node: {e}")))?;
        if let Some(Decoded { frame, length, .. }) = decoded {
            return match frame {
                Frame::Welcome(welcome) => {
                    bytes.consume(length);
                    Ok((stream, welcome, bytes))
                }
                Frame::Failed(failure) => Err(failure.error()),
                _ => Err(Error::Protocol(format!("{address} answers a hello with another frame"))),
            };
        }
        match stream.receive(bytes.space(RECEIVE_BYTES)).map_err(|e| lost(address, e))? {
            Received::Bytes(count) => bytes.commit(count),
            Received::End => return Err(Error::lost(address, "it closed the connection instead of a welcome")),
            Received::Nothing => {
                let now = clock.now();
                if now >= deadline {
                    return Err(Error::lost(address, format_args!("no welcome within {limit:?}")));
                }
                wait([(&stream, false)], Duration::from_nanos(deadline - now));
            }
        }
    }
}

/// What a link and its endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    node: NodeIdentity,
    address: SocketAddr,
    options: Options,
    /// What its endpoints say.
    hello: Hello,
    pub(super) control: Stream,
    alive: AtomicBool,
    /// Grants of the client to the node.
    pub(super) exposed: GrantTable,
    /// Connections of endpoints.
    streams: Mutex<Vec<Weak<Stream>>>,
    counts: CountsRegistry,
}

impl Shared {
    /// Whether the link stands as far as is known, without asking the system.
    #[inline]
    pub(super) fn stands(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether the link stands. Nothing comes over a control connection but its end.
    pub(super) fn check(&self) -> bool {
        if self.stands() && !self.control.is_quiet() {
            self.end();
        }
        self.stands()
    }

    fn end(&self) {
        if self.alive.swap(false, Ordering::AcqRel) {
            self.exposed.revoke_all();
            self.control.shutdown();
            for stream in lock(&self.streams).iter().filter_map(Weak::upgrade) {
                stream.shutdown();
            }
        }
    }

    pub(super) fn lost(&self, cause: impl std::fmt::Display) -> Error {
        Error::lost(self.node, cause)
    }

    fn ended(&self) -> Error {
        self.lost("the link is closed")
    }

    fn open(&self) -> Result<(Arc<Stream>, Buffer), Error> {
        if !self.check() {
            return Err(self.ended());
        }
        let (stream, welcome, rest) = match introduce(self.address, &self.options, self.hello) {
            // Another life of the node, or another node, has the address.
            Err(Error::AccessDenied) => return Err(self.lost("the node does not know the link")),
            other => other?,
        };
        if (welcome.node, welcome.incarnation) != (self.node.node, self.node.incarnation) {
            return Err(self.lost("another node answers at its address"));
        }
        let stream = Arc::new(stream);
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        drop(streams);
        // Whoever ended the link meanwhile may have missed the stream.
        if self.stands() { Ok((stream, rest)) } else { Err(self.ended()) }
    }
}

#[derive(Debug)]
struct TcpLink(Arc<Shared>);

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Link for TcpLink {
    fn node(&self) -> NodeIdentity {
        self.0.node
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error> {
        let (stream, input) = self.0.open()?;
        let counts = self.0.counts.register(options.traffic);
        let transport = TcpTransport::new(Arc::clone(&self.0), stream, input);
        Ok(Endpoint::new(Box::new(transport), CAPABILITIES, options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if !self.0.check() {
            return Err(self.0.ended());
        }
        self.0.exposed.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.0.exposed.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.0.counts.sum(traffic)
    }

    fn is_alive(&self) -> bool {
        self.0.check()
    }

    fn close(&self) {
        self.0.end();
    }
}
