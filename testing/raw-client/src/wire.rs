//! Frames as in `docs/formats/tcp-frame.md`, and envelopes as in `docs/formats/rpc-envelope.md`.

use crate::body::Key;
use crate::checksum::{crc32, crc32c};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the checksum before some bodies.
pub const CHECKSUM_BYTES: usize = 4;

/// Kinds of frames.
pub mod kind {
    #![allow(missing_docs, reason = "named in docs/formats/tcp-frame.md")]
    pub const HELLO: u8 = 1;
    pub const WELCOME: u8 = 2;
    pub const READ: u8 = 3;
    pub const WRITE: u8 = 4;
    pub const MESSAGE: u8 = 7;
    pub const FAILED: u8 = 11;
    pub const CHALLENGE: u8 = 12;
    pub const PROOF: u8 = 13;
    pub const PROVEN: u8 = 14;
    pub const REFUSED: u8 = 15;
}

/// A header that announces a body of `length` bytes.
#[must_use]
pub fn header(kind: u8, number: u64, length: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&[0xfb, 1, kind, 0]);
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// A frame without a checksum.
#[must_use]
pub fn frame(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    [&header(kind, number, body.len() as u32), body].concat()
}

/// A frame whose body begins with a checksum.
#[must_use]
pub fn checked(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let header = header(kind, number, body.len() as u32 + 4);
    let crc = crc32c(&[&header, body]);
    [&header[..], &crc.to_le_bytes(), body].concat()
}

/// A hello: of a link when `token` is `None`, else of an endpoint.
#[must_use]
pub fn hello(endpoint_of: Option<(u64, u128)>) -> Vec<u8> {
    let (link, token) = endpoint_of.unwrap_or_default();
    let role = u32::from(endpoint_of.is_some());
    checked(kind::HELLO, 0, &[&role.to_le_bytes()[..], &link.to_le_bytes(), &token.to_le_bytes()].concat())
}

/// The link's number and token in the answer to its hello; `None` when the answer is not a welcome.
#[must_use]
pub fn welcomed((kind, _, body): &(u8, u64, Vec<u8>)) -> Option<(u64, u128)> {
    let number = body.get(16..24)?.try_into().ok().map(u64::from_le_bytes)?;
    let token = body.get(24..40)?.try_into().ok().map(u128::from_le_bytes)?;
    (*kind == kind::WELCOME).then_some((number, token))
}

/// Where an operation goes: key, offset and length.
#[must_use]
pub fn target(key: Key, offset: u64, length: u32) -> Vec<u8> {
    [&key.index.to_le_bytes()[..], &key.secret.to_le_bytes(), &offset.to_le_bytes(), &length.to_le_bytes()].concat()
}

/// How a request's arguments travel.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// In the request.
    Inline(&'a [u8]),
    /// By reference: this many bytes, which may never exist.
    Announced(u32),
}

/// A request's envelope. Replies are asked for in a buffer of `reply_bytes`.
#[must_use]
pub fn request(procedure: u16, number: u64, reply_bytes: u32, arguments: Arguments<'_>) -> Vec<u8> {
    let mut body = vec![2, if matches!(arguments, Arguments::Inline(_)) { 0 } else { 2 }];
    body.extend_from_slice(&procedure.to_le_bytes());
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(&[7; 20]);
    body.extend_from_slice(&0u64.to_le_bytes());
    body.extend_from_slice(&reply_bytes.to_le_bytes());
    body.extend_from_slice(&0u32.to_le_bytes());
    match arguments {
        Arguments::Inline(bytes) => body.extend_from_slice(bytes),
        Arguments::Announced(length) => {
            body.extend_from_slice(&[9; 20]);
            body.extend_from_slice(&0u64.to_le_bytes());
            body.extend_from_slice(&length.to_le_bytes());
            body.extend_from_slice(&0u32.to_le_bytes());
        }
    }
    [&crc32(&[&body]).to_le_bytes()[..], &body].concat()
}

/// A reply: its request's number, its status and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Number of the request.
    pub number: u64,
    /// 0, or the code of an error kind.
    pub status: u8,
    /// Result, or the error's text.
    pub body: Vec<u8>,
}

impl Reply {
    /// Reads a reply from its form in the caller's buffer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let crc = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let valid = crc32(&[bytes.get(4..)?]) == crc;
        valid.then_some(Self { number: word(8)?, status: *bytes.get(16)?, body: bytes.get(24..)?.to_vec() })
    }
}
