//! RPC on messages and one-sided writes (dLSM X-D). Format: `docs/formats/rpc-envelope.md`.
//!
//! The caller grants the node a reply buffer and sends a small request that names it. The node does
//! the work and writes the reply into the buffer with a one-sided write, past any dispatcher. A
//! caller of a short procedure polls its buffer (dLSM X-D1); a caller of a long one sleeps until
//! the write's immediate wakes it, and its arguments, which may be large, stay in registered memory until the node
//! pulls them by a one-sided read (dLSM X-D2).
//!
//! A reply carries its length, the request's number and a checksum, so that a late or torn reply is not taken for
//! another one. Numbers never repeat within a link, in either style. The checksum uses another polynomial than the
//! checksums inside the body. Otherwise a torn reply, a new header before an old body of the same length that ends
//! in its own CRC32C, would have the right CRC32C.
//!
//! ```text
//! request message                               reply, in the caller's buffer
//!  0   4  CRC-32 of bytes 4 … end                0   4  CRC-32 of bytes 4 … 24 + length
//!  4   1  version (2)                            4   4  length of the body
//!  5   1  flags: 1 wake, 2 by reference          8   8  request number
//!  6   2  procedure                              16  1  status: 0, or an error kind's code
//!  8   8  request number                         17  7  zero
//!  16  20 access key of the reply buffer         24     body: result, or an error's text (UTF-8)
//!  36  8  offset of the reply buffer
//!  44  4  size of the reply buffer
//!  48  4  immediate (with flag 1)
//!  52     arguments, at most 1024 bytes; or with flag 2, of longer ones:
//!         20 access key, 8 offset, 4 length, 4 CRC-32 of the arguments
//! ```

use crate::transport::{Incoming, Link, Peer, Pull};
use crate::{AccessKey, Endpoint, EndpointId, EndpointOptions, Error, Region, RemoteAddress, Rights};
use forebay_base::{DecodeError, ErrorKind, Reader, Writer, envelope_checksum};
use std::sync::Arc;
use std::time::Duration;

const VERSION: u8 = 2;
const WAKE: u8 = 1;
const BY_REFERENCE: u8 = 2;
const REQUEST_HEADER_BYTES: usize = 52;
const REPLY_HEADER_BYTES: usize = 24;
/// Longest reply, with its header.
pub(crate) const MAX_WHOLE_REPLY_BYTES: usize = MAX_REPLY_BYTES + REPLY_HEADER_BYTES;
/// Longest arguments that travel in the request itself.
pub const MAX_INLINE_BYTES: usize = 1024;
/// Longest arguments at all.
pub const MAX_ARGUMENT_BYTES: usize = 16 << 20;
/// Longest reply.
pub const MAX_REPLY_BYTES: usize = 64 << 20;

const _: () = assert!(REQUEST_HEADER_BYTES == 16 + AccessKey::WIRE_BYTES + 16);

/// How a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Polls the reply buffer, for procedures that take microseconds.
    Poll,
    /// Sleeps until the reply wakes it, for procedures that take longer.
    Sleep,
}

/// Appends an access key.
pub fn put_key(out: &mut Vec<u8>, key: AccessKey) {
    out.put_u32(key.index);
    out.put_u128(key.secret());
}

/// Reads an access key.
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn get_key(reader: &mut Reader<'_>) -> Result<AccessKey, DecodeError> {
    Ok(AccessKey::new(reader.u32()?, reader.u128()?))
}

/// A thread's RPC connection to a node.
#[derive(Debug)]
pub struct Client {
    link: Arc<dyn Link>,
    endpoint: Endpoint,
    reply: Granted,
    arguments: Option<Granted>,
    next: u64,
}

/// A region granted to the node.
#[derive(Debug)]
struct Granted {
    region: Region,
    key: AccessKey,
}

impl Granted {
    fn new(link: &dyn Link, length: usize, rights: Rights) -> Result<Self, Error> {
        let region = link.allocate(length.next_multiple_of(4096))?;
        let key = link.grant(&region, 0, region.length(), rights)?;
        Ok(Self { region, key })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // If the link is gone, its grants are gone with it.
        for granted in self.arguments.iter().chain([&self.reply]) {
            let _ = self.link.revoke(granted.key);
        }
    }
}

impl Client {
    /// Opens an endpoint on `link` and a reply buffer of `reply_bytes`.
    ///
    /// # Errors
    /// As [`Link::endpoint`] and [`Link::grant`].
    pub fn new(link: Arc<dyn Link>, options: EndpointOptions, reply_bytes: usize) -> Result<Self, Error> {
        let length = reply_bytes.min(MAX_REPLY_BYTES) + REPLY_HEADER_BYTES;
        let reply = Granted::new(&*link, length, Rights::WRITE)?;
        let endpoint = link.endpoint(options)?;
        Ok(Self { link, endpoint, reply, arguments: None, next: 1 })
    }

    /// The endpoint, for one-sided operations between calls.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Calls `procedure` and waits for its result for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Remote`] when the procedure failed; [`Error::TimedOut`], after which the client is
    /// broken and must be replaced, because the late reply may still be written; as for endpoints.
    pub fn call(&mut self, procedure: u16, arguments: &[u8], style: Style, limit: Duration) -> Result<Vec<u8>, Error> {
        let number = self.next;
        self.next += 1;
        // Clears the word that tells a new reply from the last one.
        self.reply.region.store(8, 0)?;
        let request = self.request(number, procedure, arguments, style)?;
        let id = self.endpoint.post_message(&request)?;
        self.endpoint.wait_for_sent(id)?;
        let body = self.wait_reply(number, style, limit)?;
        self.endpoint.count_rpc(id, body.len() + REPLY_HEADER_BYTES);
        self.finish(body)
    }

    fn finish(&self, reply: Reply) -> Result<Vec<u8>, Error> {
        match reply.status {
            0 => Ok(reply.body),
            code => Err(Error::Remote {
                kind: ErrorKind::from_code(code).unwrap_or(ErrorKind::Unsupported),
                message: String::from_utf8_lossy(&reply.body).into_owned(),
            }),
        }
    }

    fn request(&mut self, number: u64, procedure: u16, arguments: &[u8], style: Style) -> Result<Vec<u8>, Error> {
        if arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(Error::TooLarge { length: arguments.len() as u64, limit: MAX_ARGUMENT_BYTES as u64 });
        }
        let by_reference = arguments.len() > MAX_INLINE_BYTES;
        let mut out = Vec::with_capacity(REQUEST_HEADER_BYTES + arguments.len().min(MAX_INLINE_BYTES));
        out.put_u32(0);
        out.put_u8(VERSION);
        out.put_u8(if style == Style::Sleep { WAKE } else { 0 } | if by_reference { BY_REFERENCE } else { 0 });
        out.put_u16(procedure);
        out.put_u64(number);
        put_key(&mut out, self.reply.key);
        out.put_u64(0);
        out.put_u32(self.reply.region.length() as u32);
        out.put_u32(number as u32);
        if by_reference {
            let key = self.stage(arguments)?;
            put_key(&mut out, key);
            out.put_u64(0);
            out.put_u32(arguments.len() as u32);
            out.put_u32(envelope_checksum(arguments));
        } else {
            out.extend_from_slice(arguments);
        }
        let crc = envelope_checksum(out.get(4..).unwrap_or_default());
        if let Some(head) = out.first_chunk_mut() {
            *head = crc.to_le_bytes();
        }
        Ok(out)
    }

    /// Puts arguments where the node can pull them.
    fn stage(&mut self, arguments: &[u8]) -> Result<AccessKey, Error> {
        let fits = |granted: &Granted| granted.region.length() >= arguments.len() as u64;
        let staged = match self.arguments.take() {
            Some(granted) if fits(&granted) => granted,
            outgrown => {
                if let Some(outgrown) = outgrown {
                    self.link.revoke(outgrown.key)?;
                }
                Granted::new(&*self.link, arguments.len().next_power_of_two(), Rights::READ)?
            }
        };
        staged.region.write(0, arguments)?;
        let key = staged.key;
        self.arguments = Some(staged);
        Ok(key)
    }

    fn wait_reply(&mut self, number: u64, style: Style, limit: Duration) -> Result<Reply, Error> {
        let start = self.endpoint.clock().now();
        let limit_nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let mut round = 0u32;
        loop {
            self.endpoint.progress();
            let arrivals = self.take_arrivals();
            if let Some(reply) = self.read_reply(number)? {
                return Ok(reply);
            }
            // A reply that came before the node was lost still counts: look at this last.
            if let Err(cause) = arrivals {
                self.endpoint.break_with(cause.clone());
                return Err(cause);
            }
            let waited = self.endpoint.clock().now().saturating_sub(start);
            if waited >= limit_nanos {
                let cause = Error::TimedOut(limit);
                self.endpoint.break_with(cause.clone());
                return Err(cause);
            }
            let left = Duration::from_nanos(limit_nanos - waited);
            match style {
                Style::Sleep => self.endpoint.block(left),
                Style::Poll if waited < 200_000 => forebay_env::sync::relax(&mut round),
                // Where a plain write wakes nobody, look again every so often.
                Style::Poll => self.endpoint.block(left.min(Duration::from_micros(500))),
            }
        }
    }

    /// Takes what arrived. Immediates only wake: the reply itself shows whether it is complete.
    fn take_arrivals(&mut self) -> Result<(), Error> {
        while let Some(incoming) = self.endpoint.receive()? {
            if let Incoming::Message(_) = incoming {
                return Err(Error::Protocol("a message to an RPC client".into()));
            }
        }
        Ok(())
    }

    fn read_reply(&self, number: u64) -> Result<Option<Reply>, Error> {
        let region = &self.reply.region;
        if region.load(8)? != number {
            return Ok(None);
        }
        // Only the length to copy is taken from this head: the next read may find other bytes.
        let mut head = [0; 8];
        region.read(0, &mut head)?;
        let [.., a, b, c, d] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        if u64::from(length) > region.length() - REPLY_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut whole = vec![0; REPLY_HEADER_BYTES + length as usize];
        region.read(0, &mut whole)?;
        Ok(Reply::decode(whole, number))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u8,
    body: Vec<u8>,
}

impl Reply {
    /// The bytes of a reply to request `number`.
    fn encode(number: u64, status: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(REPLY_HEADER_BYTES + body.len());
        out.put_u32(0);
        out.put_u32(body.len() as u32);
        out.put_u64(number);
        out.put_u8(status);
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(body);
        let crc = envelope_checksum(out.get(4..).unwrap_or_default());
        if let Some(head) = out.first_chunk_mut() {
            *head = crc.to_le_bytes();
        }
        out
    }

    /// Decodes these bytes, from header to end, as the reply to request `number`. `None` when they are not that reply:
    /// then it is still being written.
    fn decode(mut bytes: Vec<u8>, number: u64) -> Option<Self> {
        let mut reader = Reader::new(&bytes);
        let crc = reader.u32().ok()?;
        let length = reader.u32().ok()?;
        let found = reader.u64().ok()?;
        let status = reader.u8().ok()?;
        let is_whole = bytes.len().checked_sub(REPLY_HEADER_BYTES)? == length as usize
            && found == number
            && envelope_checksum(bytes.get(4..)?) == crc;
        is_whole.then(|| Self { status, body: bytes.split_off(REPLY_HEADER_BYTES) })
    }

    fn len(&self) -> usize {
        self.body.len()
    }
}

/// Decodes bytes in a caller's buffer that should be the reply to the request that the first eight bytes name. Does so
/// twice: as they are, and with the right checksum, because nothing after a wrong one is looked at.
///
/// # Panics
/// When a decoded reply does not encode to the same bytes, padding aside.
#[cfg(feature = "decoders")]
pub fn decode_any_reply(bytes: &[u8]) {
    let Some((number, bytes)) = bytes.split_first_chunk() else { return };
    let number = u64::from_le_bytes(*number);
    let repaired = || [&envelope_checksum(bytes).to_le_bytes()[..], bytes].concat();
    for bytes in [bytes.to_vec(), repaired()] {
        if let Some(Reply { status, body }) = Reply::decode(bytes.clone(), number) {
            let again = Reply::encode(number, status, &body);
            assert_eq!((again.len(), again.get(REPLY_HEADER_BYTES..)), (bytes.len(), Some(&body[..])));
        }
    }
}

/// A request as the node received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which procedure.
    pub procedure: u16,
    number: u64,
    reply_to: RemoteAddress,
    reply_bytes: u32,
    immediate: Option<u32>,
    arguments: Arguments,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Arguments {
    Inline(Vec<u8>),
    Reference { at: RemoteAddress, length: u32, crc: u32 },
}

/// Arguments that are being pulled.
#[derive(Debug)]
pub struct PulledArguments {
    pull: Box<dyn Pull>,
    crc: u32,
}

impl PulledArguments {
    /// Returns the arguments, once; `None` before they have arrived.
    ///
    /// # Errors
    /// As for [`Request::arguments`].
    pub fn poll(&mut self) -> Option<Result<Vec<u8>, Error>> {
        let pulled = self.pull.poll()?;
        Some(pulled.and_then(|bytes| match envelope_checksum(&bytes) == self.crc {
            true => Ok(bytes),
            false => Err(Error::Protocol("pulled arguments do not have the announced checksum".into())),
        }))
    }
}

impl Request {
    /// Decodes a request message.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let expected = reader.u32()?;
        let found = envelope_checksum(bytes.get(4..).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "request", expected, found });
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::BadValue { what: "request version", found: version.into() });
        }
        let flags = reader.u8()?;
        if flags & !(WAKE | BY_REFERENCE) != 0 {
            return Err(DecodeError::BadValue { what: "request flags", found: flags.into() });
        }
        let procedure = reader.u16()?;
        let number = reader.u64()?;
        let reply_to = RemoteAddress { key: get_key(&mut reader)?, offset: reader.u64()? };
        let reply_bytes = reader.u32()?;
        let immediate = reader.u32()?;
        let arguments = if flags & BY_REFERENCE == 0 {
            if reader.remaining() > MAX_INLINE_BYTES {
                return Err(DecodeError::BadValue { what: "argument bytes", found: reader.remaining() as u64 });
            }
            Arguments::Inline(reader.rest().to_vec())
        } else {
            let at = RemoteAddress { key: get_key(&mut reader)?, offset: reader.u64()? };
            let length = reader.u32()?;
            // A pull costs the node far more than the bytes that it brings, so it is only for what
            // does not fit in here.
            if !(MAX_INLINE_BYTES + 1..=MAX_ARGUMENT_BYTES).contains(&(length as usize)) {
                return Err(DecodeError::BadValue { what: "argument bytes", found: length.into() });
            }
            let crc = reader.u32()?;
            reader.finish()?;
            Arguments::Reference { at, length, crc }
        };
        let immediate = (flags & WAKE != 0).then_some(immediate);
        Ok(Self { procedure, number, reply_to, reply_bytes, immediate, arguments })
    }

    /// Whether [`Request::arguments`] must pull the arguments from the caller's memory, which takes
    /// as long as the caller's link takes.
    #[must_use]
    pub fn is_by_reference(&self) -> bool {
        matches!(self.arguments, Arguments::Reference { .. })
    }

    /// The arguments, pulled from the caller's memory if they are not in the request.
    ///
    /// # Errors
    /// As for [`Peer::read`]; [`Error::Protocol`] when they are not what the caller announced.
    pub fn arguments(&self, peer: &dyn Peer, endpoint: EndpointId) -> Result<Vec<u8>, Error> {
        match &self.arguments {
            Arguments::Inline(bytes) => Ok(bytes.clone()),
            Arguments::Reference { at, length, crc } => {
                let mut bytes = vec![0; *length as usize];
                peer.read(endpoint, *at, &mut bytes)?;
                if envelope_checksum(&bytes) != *crc {
                    return Err(Error::Protocol("pulled arguments do not have the announced checksum".into()));
                }
                Ok(bytes)
            }
        }
    }

    /// The arguments, if they are in the request.
    #[must_use]
    pub fn inline_arguments(&self) -> Option<&[u8]> {
        match &self.arguments {
            Arguments::Inline(bytes) => Some(bytes),
            Arguments::Reference { .. } => None,
        }
    }

    /// Length of the arguments, bytes.
    #[must_use]
    pub fn argument_bytes(&self) -> usize {
        match &self.arguments {
            Arguments::Inline(bytes) => bytes.len(),
            Arguments::Reference { length, .. } => *length as usize,
        }
    }

    /// Begins to pull arguments that are not in the request; `None` when they are.
    ///
    /// # Errors
    /// As for [`Peer::pull`].
    pub fn pull_arguments(&self, peer: &dyn Peer, endpoint: EndpointId) -> Result<Option<PulledArguments>, Error> {
        match &self.arguments {
            Arguments::Inline(_) => Ok(None),
            Arguments::Reference { at, length, crc } => {
                let pull = peer.pull(endpoint, *at, *length as usize)?;
                Ok(Some(PulledArguments { pull, crc: *crc }))
            }
        }
    }

    /// Longest result that fits into the caller's buffer and into a reply, bytes.
    #[must_use]
    pub fn most_result_bytes(&self) -> usize {
        (self.reply_bytes as usize).saturating_sub(REPLY_HEADER_BYTES).min(MAX_REPLY_BYTES)
    }

    /// Writes the reply into the caller's buffer, and wakes the caller if it sleeps. Does not wait for the caller to
    /// take it: see [`Peer::unsent`].
    ///
    /// # Errors
    /// As for [`Peer::post`]. A result that does not fit is replaced by an error that says so.
    pub fn reply(
        &self,
        peer: &dyn Peer,
        endpoint: EndpointId,
        result: Result<&[u8], (ErrorKind, &str)>,
    ) -> Result<(), Error> {
        let room = self.most_result_bytes();
        let (status, body) = match result {
            Ok(body) if body.len() <= room => (0, body),
            Ok(_) => (ErrorKind::Invalid.code(), &b"the result does not fit into the caller's reply buffer"[..]),
            Err((kind, text)) => (kind.code(), text.as_bytes()),
        };
        let reply = Reply::encode(self.number, status, &body[..body.len().min(room)]);
        peer.post(endpoint, self.reply_to, &reply, self.immediate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inprocess;
    use crate::transport::{Event, Listener};
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Answers the next call, if one comes soon.
    fn serve_one(listener: &mut impl Listener) {
        if let Some(Event::Message { peer, endpoint, bytes, .. }) = listener.next(Duration::from_millis(20)).unwrap() {
            let request = Request::decode(&bytes).unwrap();
            let mut arguments = request.arguments(&*peer, endpoint).unwrap();
            arguments.reverse();
            let result = match request.procedure {
                1 => Ok(&arguments[..]),
                _ => Err((ErrorKind::Full, "no more")),
            };
            request.reply(&*peer, endpoint, result).unwrap();
        }
    }

    #[test]
    fn threads_call_in_both_styles_with_both_ways_of_passing_arguments() {
        let (mut listener, connector) = inprocess::listen(1).unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = Arc::clone(&stopping);
        let serve = move || {
            while !is_stopping.load(Ordering::Relaxed) {
                serve_one(&mut listener)
            }
        };
        let server = forebay_env::thread::spawn("server", serve).unwrap();
        let link = connector.connect().unwrap();
        let mut client = Client::new(link.clone(), EndpointOptions::default(), 1 << 20).unwrap();
        // An interpreter is slow.
        let limit = Duration::from_secs(600);
        for length in [0, 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, if cfg!(miri) { 6000 } else { 300_000 }, 5000] {
            let arguments: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut expected = arguments.clone();
            expected.reverse();
            for style in [Style::Poll, Style::Sleep] {
                assert_eq!(client.call(1, &arguments, style, limit).unwrap(), expected);
            }
        }
        let error = client.call(2, b"", Style::Poll, limit).unwrap_err();
        assert_eq!(error, Error::Remote { kind: ErrorKind::Full, message: "no more".into() });
        let counts = link.counts(crate::Traffic::Foreground);
        assert_eq!((counts.round_trips, counts.messages), (13, 13));
        let mut small = Client::new(link, EndpointOptions::default(), 64).unwrap();
        let error = small.call(1, &[7; 5000], Style::Sleep, limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        stopping.store(true, Ordering::Relaxed);
        server.join().unwrap();
        let error = client.call(1, b"", Style::Sleep, limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    /// What a caller sees while a reply is being written has words of the last reply among its own.
    #[test]
    fn a_reply_is_read_while_it_is_written() {
        let replies: u64 = if cfg!(miri) { 20 } else { 300_000 };
        let (_listener, connector) = inprocess::listen(1).unwrap();
        let client = Client::new(connector.connect().unwrap(), EndpointOptions::default(), 64).unwrap();
        let region = client.reply.region.clone();
        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let status = |number: u64| [0, ErrorKind::Fenced.code()][number as usize % 2];
        let write = {
            let asked = Arc::clone(&asked);
            move || {
                for number in 1..=replies {
                    let mut round = 0;
                    while asked.load(Ordering::Acquire) != number {
                        forebay_env::sync::relax(&mut round);
                    }
                    region.write(0, &Reply::encode(number, status(number), b"as long as the last")).unwrap();
                }
            }
        };
        let writer = forebay_env::thread::spawn("writer", write).unwrap();
        for number in 1..=replies {
            client.reply.region.store(8, 0).unwrap();
            asked.store(number, Ordering::Release);
            let mut round = 0;
            let reply = loop {
                match client.read_reply(number).unwrap() {
                    Some(reply) => break reply,
                    None => forebay_env::sync::relax(&mut round),
                }
            };
            assert_eq!(
                reply,
                Reply { status: status(number), body: b"as long as the last".to_vec() },
                "reply {number}"
            );
        }
        writer.join().unwrap();
    }

    #[test]
    fn of_a_torn_reply_nothing_is_taken() {
        let old = Reply::encode(3, 0, b"eighteen bytes: ok");
        let new = Reply::encode(4, 7, b"eighteen bytes: no");
        let torn_at = |end: usize| [&new[..end], &old[end..]].concat();
        for end in (0..new.len()).step_by(8) {
            assert_eq!(Reply::decode(torn_at(end), 4), None, "{end} bytes");
        }
        assert_eq!(Reply::decode(old, 4), None);
        for end in 0..new.len() {
            assert_eq!(Reply::decode(new[..end].to_vec(), 4), None, "{end} bytes");
        }
        assert_eq!(Reply::decode(new, 4), Some(Reply { status: 7, body: b"eighteen bytes: no".to_vec() }));
    }

    #[test]
    fn golden_reply() {
        let mut bytes = vec![0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, b'n', b'o'];
        let crc = envelope_checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Reply::encode(9, ErrorKind::Busy.code(), b"no"), bytes);
    }

    #[test]
    fn a_result_is_no_longer_than_a_reply_whatever_its_caller_has_room_for() {
        let request = |reply_bytes: u32| {
            let mut bytes = vec![0, 0, 0, 0, VERSION, 0, 7, 0];
            bytes.resize(REQUEST_HEADER_BYTES - 8, 0);
            bytes.put_u32(reply_bytes);
            bytes.put_u32(0);
            let crc = envelope_checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            Request::decode(&bytes).unwrap()
        };
        let most = [0, 24, 34, u32::MAX].map(|room| request(room).most_result_bytes());
        assert_eq!(most, [0, 0, 10, MAX_REPLY_BYTES]);
    }

    #[test]
    fn only_what_does_not_fit_is_passed_by_reference() {
        let request = |length: usize| {
            let mut bytes = vec![0, 0, 0, 0, VERSION, BY_REFERENCE, 7, 0];
            bytes.resize(REQUEST_HEADER_BYTES + AccessKey::WIRE_BYTES + 8, 0);
            bytes.put_u32(length as u32);
            bytes.put_u32(0);
            let crc = envelope_checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            Request::decode(&bytes)
        };
        for length in [MAX_INLINE_BYTES + 1, MAX_ARGUMENT_BYTES] {
            assert_eq!(request(length).unwrap().argument_bytes(), length);
        }
        for length in [0, 1, MAX_INLINE_BYTES, MAX_ARGUMENT_BYTES + 1] {
            assert_eq!(request(length), Err(DecodeError::BadValue { what: "argument bytes", found: length as u64 }));
        }
    }

    #[test]
    fn golden_request() {
        let mut bytes = vec![0, 0, 0, 0, 2, 1, 7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
        bytes.extend_from_slice(&[0xab; 16]);
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 9, 0, 0, 0, b'x', b'y']);
        let crc = envelope_checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        let request = Request::decode(&bytes).unwrap();
        assert_eq!(
            request,
            Request {
                procedure: 7,
                number: 9,
                reply_to: AccessKey::new(2, u128::from_le_bytes([0xab; 16])).at(0),
                reply_bytes: 4096,
                immediate: Some(9),
                arguments: Arguments::Inline(b"xy".to_vec()),
            }
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn any_bytes_decode_without_panic(mut bytes: Vec<u8>) {
            let _ = Request::decode(&bytes);
            if bytes.len() > 6 {
                let crc = envelope_checksum(&bytes[4..]);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
                bytes[4] = VERSION;
                let _ = Request::decode(&bytes);
            }
        }
    }
}
