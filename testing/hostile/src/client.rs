//! A client without manners: sockets and bytes.

use crate::door;
use crate::socket::{connect, read_frame, wrong};
use crate::wire::{self, Arguments, Reply, kind};
use forebay_proto::calls::{AcquireShard, Call, CreateStore, LeaseExtents, OpenSession, SubmitJob};
use forebay_proto::replies::{ExtentsGranted, SessionOpened, ShardAcquired, StoreOpened};
use forebay_proto::{
    Blob, Epoch, GrantedExtent, Message, PROTOCOL_VERSION, Purpose, Rest, SessionId, ShardId, ShardKey, Text,
};
use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;

/// The name and the secret of the honest tenant, and of the hostile one, where the node asks for them.
pub const HONEST: (&str, &str) = ("honest", "0123456789abcdef0123456789abcdef");
/// See [`HONEST`].
pub const HOSTILE: (&str, &str) = ("hostile", "fedcba9876543210fedcba9876543210");
/// Room for replies that it says it has.
pub const REPLY_BYTES: u32 = 4 << 20;

/// A link: its control connection, and what shows that an endpoint is of it.
#[derive(Debug)]
pub struct RawLink {
    address: String,
    /// The control connection.
    pub control: TcpStream,
    number: u64,
    token: u128,
    secret: Option<(&'static str, &'static str)>,
}

impl RawLink {
    /// Opens a link.
    ///
    /// # Errors
    /// As for sockets.
    pub fn open(address: &str) -> Result<Self> {
        let mut control = connect(address)?;
        control.write_all(&wire::hello(None))?;
        let (number, token) = wire::welcomed(&read_frame(&mut control)?).ok_or_else(|| wrong("no welcome"))?;
        Ok(Self { address: address.into(), control, number, token, secret: None })
    }

    /// Opens a link, and proves to have a secret: its name and value.
    ///
    /// # Errors
    /// As for sockets; when the node does not let it in.
    pub fn open_as(address: &str, secret: (&'static str, &'static str)) -> Result<Self> {
        let (control, welcome) = door::prove(address, secret, None)?;
        let (number, token) = wire::welcomed(&(kind::WELCOME, 0, welcome)).ok_or_else(|| wrong("no welcome"))?;
        Ok(Self { address: address.into(), control, number, token, secret: Some(secret) })
    }

    /// Opens an endpoint.
    ///
    /// # Errors
    /// As for sockets.
    pub fn endpoint(&self) -> Result<RawEndpoint> {
        if let Some(secret) = self.secret {
            return door::prove(&self.address, secret, Some((self.number, self.token)))
                .map(|(stream, _)| RawEndpoint::over(stream));
        }
        let mut stream = connect(&self.address)?;
        stream.write_all(&wire::hello(Some((self.number, self.token))))?;
        match read_frame(&mut stream)? {
            (kind::WELCOME, ..) => Ok(RawEndpoint::over(stream)),
            _ => Err(wrong("no welcome")),
        }
    }
}

/// An endpoint's connection.
#[derive(Debug)]
pub struct RawEndpoint<S = TcpStream> {
    /// The socket, or TLS on it.
    pub stream: S,
    next: u64,
    /// A reply that has come in part.
    partial: Vec<u8>,
}

impl<S: Read + Write> RawEndpoint<S> {
    /// An endpoint that was let in over `stream`.
    pub const fn over(stream: S) -> Self {
        Self { stream, next: 1, partial: Vec::new() }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As for sockets.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request and does not wait. Returns its number.
    ///
    /// # Errors
    /// As for sockets.
    pub fn post(&mut self, procedure: u16, arguments: Arguments<'_>) -> Result<u64> {
        let number = self.next;
        self.next += 1;
        let request = wire::request(procedure, number, REPLY_BYTES, arguments);
        self.send(&wire::checked(kind::MESSAGE, number, &request))?;
        Ok(number)
    }

    /// Sends so many requests in one go, without taking an answer.
    ///
    /// # Errors
    /// As for sockets.
    pub fn flood(&mut self, procedure: u16, body: &[u8], count: usize) -> Result<()> {
        for _ in 0..count.div_ceil(64) {
            let mut bytes = Vec::new();
            for _ in 0..64.min(count) {
                let request = wire::request(procedure, self.next, REPLY_BYTES, Arguments::Inline(body));
                bytes.extend(wire::checked(kind::MESSAGE, self.next, &request));
                self.next += 1;
            }
            self.send(&bytes)?;
        }
        Ok(())
    }

    /// The next reply to any request.
    ///
    /// # Errors
    /// As for sockets.
    pub fn reply(&mut self) -> Result<Reply> {
        loop {
            let (found, _, body) = read_frame(&mut self.stream)?;
            if found != kind::WRITE {
                continue;
            }
            // 20 of the key, 8 of the offset, 4 of the length of what is left, 4 of the immediate.
            let left = body.get(28..32).and_then(|left| left.try_into().ok()).map(u32::from_le_bytes);
            let bytes = body.get(36..).ok_or_else(|| wrong("a short write"))?;
            self.partial.extend_from_slice(bytes);
            if left == Some(bytes.len() as u32) {
                let whole = std::mem::take(&mut self.partial);
                return Reply::decode(&whole).ok_or_else(|| wrong("a reply with a wrong checksum"));
            }
        }
    }

    /// Makes a call. A refusal is its kind's code and text.
    ///
    /// # Errors
    /// As for sockets.
    pub fn call<C: Call>(&mut self, call: &C) -> Result<std::result::Result<C::Reply, (u8, String)>> {
        let number = self.post(C::PROCEDURE as u16, Arguments::Inline(&call.encode()))?;
        loop {
            let reply = self.reply()?;
            if reply.number != number {
                continue;
            }
            return match reply.status {
                0 => C::Reply::decode(&reply.body).map(Ok).map_err(|_| wrong("a reply that cannot be read")),
                code => Ok(Err((code, String::from_utf8_lossy(&reply.body).into_owned()))),
            };
        }
    }

    /// As [`RawEndpoint::call`], for calls that succeed.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn must<C: Call>(&mut self, call: &C) -> Result<C::Reply> {
        self.call(call)?.map_err(|(code, text)| Error::other(format!("refused ({code}): {text}")))
    }

    /// Opens a session.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn session(&mut self) -> Result<SessionId> {
        let name = Text::new("hostile").unwrap_or_default();
        let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: Text::default(), name, capabilities: 0 };
        self.must(&call).map(|opened: SessionOpened| opened.session)
    }

    /// Opens a session, creates a private store and acquires a shard of it, with a leased extent.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn shard(&mut self) -> Result<RawShard> {
        let session = self.session()?;
        let create = CreateStore { session, name: Text::default(), config: Blob::default() };
        let opened: StoreOpened = self.must(&create)?;
        let shard = ShardKey { store: opened.store, shard: ShardId(0) };
        let acquired: ShardAcquired = self.must(&AcquireShard { session, shard, takeover: false })?;
        let leased: ExtentsGranted = self.must(&LeaseExtents { session, count: 1, purpose: Purpose::Flush })?;
        let extent = leased.extents.first().copied().ok_or_else(|| wrong("no extent"))?;
        Ok(RawShard { session, shard, epoch: acquired.epoch, extent })
    }
}

/// A shard of the hostile client's own, with an extent.
#[derive(Debug, Clone, Copy)]
pub struct RawShard {
    /// The session.
    pub session: SessionId,
    /// The shard.
    pub shard: ShardKey,
    /// Its epoch.
    pub epoch: Epoch,
    /// A leased extent.
    pub extent: GrantedExtent,
}

impl RawShard {
    /// A job's request.
    #[must_use]
    pub fn job(&self, attempt: u64, kind: u16, arguments: Vec<u8>) -> SubmitJob {
        let Self { session, shard, epoch, .. } = *self;
        SubmitJob { session, shard, epoch, attempt, kind, arguments: Rest(arguments) }
    }
}
