//! A client's connection to a node, as its handle and its endpoints share it.

use super::Options;
use super::buffer::Buffer;
use super::frame::{Decoded, Hello, Welcome, decode, refused};
use super::gate::Gate;
use super::socket::{Broken, Received};
use super::stream::{Stream, wait};
use super::tls::Tls;
use crate::admission::{Bytes32, PROOF_BYTES, channel_of};
use crate::counters::CountsRegistry;
use crate::{Denial, Error, GrantTable, NodeIdentity};
use forebay_env::sync::lock;
use forebay_env::{Clock, Nanos, SystemClock};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes received at a time while a connection introduces itself.
const RECEIVE_BYTES: usize = 4096;
/// How often a connection is opened again that the node closes without a reason. The node shows out the oldest
/// strangers of a source that sends many, and others at this address may be sending many.
const ATTEMPTS: u32 = 9;
/// Pause before the second attempt; each further one is twice as long. All together take half a second.
const PAUSE: Duration = Duration::from_millis(2);

/// Opens a link to the node at this address; it lives until [`Shared::end`]. `host` is the address as it was written.
pub(super) fn join(address: SocketAddr, host: &str, options: Options) -> Result<Arc<Shared>, Error> {
    let name = options.access.tls.is_some().then(|| options.access.name_of(host)).transpose()?;
    let (control, welcome, _) = introduce(address, name.as_ref(), &options, Hello::Control)?;
    Ok(Arc::new(Shared {
        node: NodeIdentity { node: welcome.node, incarnation: welcome.incarnation },
        address,
        name,
        options,
        hello: Hello::Endpoint { link: welcome.link, token: welcome.token },
        control,
        alive: AtomicBool::new(true),
        exposed: GrantTable::new(),
        streams: Mutex::default(),
        counts: CountsRegistry::default(),
    }))
}

/// A connection that was admitted, the node's welcome, and what came after the welcome.
type Welcomed = (Stream, Welcome, Buffer);

/// Connects, says hello and proves who this process is, and tries again where the node closes the connection. `name`
/// is that of the node's certificate.
fn introduce(
    address: SocketAddr,
    name: Option<&ServerName<'static>>,
    options: &Options,
    hello: Hello,
) -> Result<Welcomed, Error> {
    let clock = SystemClock::new();
    let limit = options.connect_timeout;
    let deadline = Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
    let time_left = || match deadline.saturating_sub(clock.now()) {
        0 => Err(Error::lost(address, format_args!("no welcome within {limit:?}"))),
        left => Ok(Duration::from_nanos(left)),
    };
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        let stream = open(address, time_left()?, options)?;
        match greet(stream, address, name, options, hello, time_left) {
            Err(Error::PeerLost { .. }) => clock.sleep(pause.min(time_left()?)),
            result => return result,
        }
        pause *= 2;
    }
    greet(open(address, time_left()?, options)?, address, name, options, hello, time_left)
}

fn open(address: SocketAddr, limit: Duration, options: &Options) -> Result<Stream, Error> {
    Stream::connect(address, limit, options.socket_bytes).map_err(|e| Error::lost(address, e))
}

/// Says hello over a connection, and proves who this process is.
fn greet(
    mut stream: Stream,
    address: SocketAddr,
    name: Option<&ServerName<'static>>,
    options: &Options,
    hello: Hello,
    time_left: impl Fn() -> Result<Duration, Error>,
) -> Result<Welcomed, Error> {
    let broken = |broken| denied(address, broken);
    let pause = |stream: &Stream, for_room| {
        wait([(stream, for_room)], time_left()?);
        Ok(())
    };
    if let (Some(config), Some(name)) = (&options.access.tls, name) {
        stream.begin_tls(Tls::client(config, name.clone()).map_err(broken)?);
        while !stream.shake_hands().map_err(broken)? {
            // Its own hello fits into a newly opened socket.
            pause(&stream, false)?;
        }
    }
    let mut gate = Gate::new(address, &options.access, hello, channel(&stream));
    let mut bytes = Buffer::default();
    loop {
        while !gate.out.is_empty() {
            match stream.send(gate.out.filled()).map_err(broken)? {
                0 => pause(&stream, true)?,
                count => gate.out.consume(count),
            }
        }
        let decoded =
            decode(bytes.filled()).map_err(|cause| refused(address, &format!("{address} is no node"), cause))?;
        if let Some(Decoded { frame, length, .. }) = decoded {
            let welcome = gate.take(frame)?;
            bytes.consume(length);
            match welcome {
                Some(welcome) => return Ok((stream, welcome, bytes)),
                None => continue,
            }
        }
        // A node may keep sending without ever reaching a frame's end.
        time_left()?;
        match stream.receive(bytes.space(RECEIVE_BYTES)).map_err(broken)? {
            Received::Bytes(count, _) => bytes.commit(count),
            Received::End => return Err(Error::lost(address, "it closed the connection instead of a welcome")),
            Received::Nothing => pause(&stream, false)?,
        }
    }
}

/// The name of the channel to the node.
fn channel(stream: &Stream) -> Bytes32 {
    let shown = stream.peer_certificates();
    shown.as_deref().and_then(<[_]>::first).map_or([0; PROOF_BYTES], |own| channel_of(own))
}

/// Why TLS, or the system, ended a connection that was being opened.
fn denied(node: SocketAddr, broken: Broken) -> Error {
    use rustls::{AlertDescription as Alert, Error as Tls};
    let text = broken.to_string();
    let cause = match &broken {
        Broken::System(_) => return Error::lost(node, text),
        Broken::Tls(Tls::InvalidCertificate(_)) => Denial::NodeCertificate(text),
        Broken::Tls(Tls::AlertReceived(Alert::CertificateRequired)) => Denial::CertificateMissing,
        Broken::Tls(Tls::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError,
        )) => Denial::Certificate(text),
        Broken::Tls(Tls::InvalidMessage(_)) => Denial::Tls,
        Broken::Tls(_) => return Error::Protocol(format!("TLS with {node}: {text}")),
    };
    Error::denied(node, cause)
}

/// What a link and its endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node: NodeIdentity,
    address: SocketAddr,
    /// The name that the node's certificate must be for.
    name: Option<ServerName<'static>>,
    options: Options,
    /// What its endpoints say.
    hello: Hello,
    pub(super) control: Stream,
    alive: AtomicBool,
    /// Grants of the client to the node.
    pub(super) exposed: GrantTable,
    /// Connections of endpoints.
    streams: Mutex<Vec<Weak<Stream>>>,
    pub(super) counts: CountsRegistry,
}

impl Shared {
    /// Whether the link stands as far as is known, without asking the system.
    #[inline]
    pub(super) fn stands(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether the link stands. A control connection carries nothing but its end.
    pub(super) fn check(&self) -> bool {
        if self.stands() && !self.control.is_quiet() {
            self.end();
        }
        self.stands()
    }

    pub(super) fn end(&self) {
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

    pub(super) fn ended(&self) -> Error {
        self.lost("the link is closed")
    }

    /// Opens an endpoint's connection. Also returns what came after the welcome.
    pub(super) fn open(&self) -> Result<(Arc<Stream>, Buffer), Error> {
        if !self.check() {
            return Err(self.ended());
        }
        let (stream, welcome, rest) = match introduce(self.address, self.name.as_ref(), &self.options, self.hello) {
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
        // A thread that ended the link meanwhile may have missed the stream.
        if self.stands() { Ok((stream, rest)) } else { Err(self.ended()) }
    }
}
