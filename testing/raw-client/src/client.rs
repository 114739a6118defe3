//! A client without manners: sockets and bytes.

use crate::body::{Granted, Shard};
use crate::calls::{self, Call};
use crate::door;
use crate::socket::{connect, read_frame, wrong};
use crate::wire::{self, Arguments, Reply, kind};
use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;

/// Room for replies that the client claims to have.
pub const REPLY_BYTES: u32 = 4 << 20;

/// A link: its control connection, and the proof that an endpoint belongs to it.
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

    /// Opens a link, and proves that it has a secret, given by name and value.
    ///
    /// # Errors
    /// As for sockets; when the node does not admit it.
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
    /// A partly received reply.
    partial: Vec<u8>,
}

impl<S: Read + Write> RawEndpoint<S> {
    /// An endpoint that was admitted over `stream`.
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

    /// Sends a call `count` times at once, without reading an answer.
    ///
    /// # Errors
    /// As for sockets.
    pub fn flood<R>(&mut self, call: &Call<R>, count: usize) -> Result<()> {
        for _ in 0..count.div_ceil(64) {
            let mut bytes = Vec::new();
            for _ in 0..64.min(count) {
                let request = wire::request(call.procedure, self.next, REPLY_BYTES, Arguments::Inline(&call.body));
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

    /// Sends a call and does not wait. Returns its number.
    ///
    /// # Errors
    /// As for sockets.
    pub fn send_call<R>(&mut self, call: &Call<R>) -> Result<u64> {
        self.post(call.procedure, Arguments::Inline(&call.body))
    }

    /// Makes a call. A refusal is its kind's code and text.
    ///
    /// # Errors
    /// As for sockets.
    pub fn call<R: calls::Reply>(&mut self, call: &Call<R>) -> Result<std::result::Result<R, (u8, String)>> {
        let number = self.send_call(call)?;
        loop {
            let reply = self.reply()?;
            if reply.number != number {
                continue;
            }
            return match reply.status {
                0 => R::of(&reply.body).map(Ok).ok_or_else(|| wrong("a reply that cannot be read")),
                code => Ok(Err((code, String::from_utf8_lossy(&reply.body).into_owned()))),
            };
        }
    }

    /// As [`RawEndpoint::call`], for calls that succeed.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn must<R: calls::Reply>(&mut self, call: &Call<R>) -> Result<R> {
        self.call(call)?.map_err(|(code, text)| Error::other(format!("refused ({code}): {text}")))
    }

    /// Opens a session.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn session(&mut self) -> Result<u64> {
        self.must(&calls::open_session("", "raw client")).map(|opened| opened.session)
    }

    /// Opens a session, creates a private store and acquires a shard of it, with a leased extent.
    ///
    /// # Errors
    /// As for sockets, and refusals.
    pub fn shard(&mut self) -> Result<RawShard> {
        let session = self.session()?;
        let store = self.must(&calls::create_store(session, "", b""))?.store;
        let shard = Shard { store, shard: 0 };
        let epoch = self.must(&calls::acquire_shard(session, shard, false))?.epoch;
        let leased = self.must(&calls::lease_extents(session, 1, calls::FLUSH))?.extents;
        let extent = leased.first().copied().ok_or_else(|| wrong("no extent"))?;
        Ok(RawShard { session, shard, epoch, extent })
    }
}

/// A shard of the client's own, with an extent.
#[derive(Debug, Clone, Copy)]
pub struct RawShard {
    /// The session.
    pub session: u64,
    /// The shard.
    pub shard: Shard,
    /// Its epoch.
    pub epoch: u64,
    /// A leased extent.
    pub extent: Granted,
}

impl RawShard {
    /// A job's request.
    #[must_use]
    pub fn job(&self, attempt: u64, kind: u16, arguments: &[u8]) -> Call<calls::JobDone> {
        let Self { session, shard, epoch, .. } = *self;
        calls::submit_job(session, shard, epoch, attempt, kind, arguments)
    }
}
