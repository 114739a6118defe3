//! Frames: the format of everything on a connection (`docs/formats/tcp-frame.md`).
//!
//! A header says what follows and how much. No body is longer than [`MAX_BODY_BYTES`]: a longer read is
//! answered by several `Data` frames, and a longer write is several `Write` frames. Each is a write in its own
//! right, but only the last is acknowledged. So a receiver needs one bounded buffer, applies whole frames
//! only, and frames of several origins can follow each other in any order.
//!
//! ```text
//! header                                   target (T), of a one-sided operation
//!  0   1  magic (0xFB)                      0   4  access key: index
//!  1   1  version (1)                       4  16  access key: secret
//!  2   1  kind                             20   8  offset in the granted range, bytes
//!  3   1  flags                            28   4  length, bytes
//!  4   4  length of the body, bytes
//!  8   8  number of the operation
//!
//! kind              body
//!  1  Hello         C, 1 role (0 control, 1 endpoint), 3 zero, 8 link, 16 token
//!  2  Welcome       C, 4 node, 8 incarnation, 8 link, 16 token, 4 endpoint
//!  3  Read          T
//!  4  Write         T, 4 immediate (with flag 1, else zero), bytes; T's length counts what is left
//!                   of the operation: these bytes and those of the frames that continue it
//!  5  CompareSwap   T (length 8), 8 expected, 8 new
//!  6  FetchAdd      T (length 8), 8 delta
//!  7  Message       C, bytes
//!  8  Data          bytes: the next ones of a read's answer
//!  9  Done          nothing: a write or message was accepted
//! 10  Word          8 word before the atomic operation
//! 11  Failed        C, 1 code, 3 zero, 8 first and 8 second detail (see `Failure`)
//! 12  Challenge     C, 32 nonce: the node asks for the proof of a secret
//! 13  Proof         C, 32 nonce, 32 proof, 1 to 64 name: the client's (see `admission`)
//! 14  Proven        C, 32 proof: the node's, in front of a `Welcome`
//! 15  Refused       C, 1 error kind's code, at most 256 text (UTF-8): the node has no room for the connection
//!
//! C: 4 bytes, CRC32C of the header and of the body after C.
//! ```
//!
//! Control frames and messages carry a checksum because TCP's own is weak and nothing above them
//! checks again. Operations do not: the target refuses a damaged key or offset, except for a chance in 2^128
//! or an offset within the same grant. The layer that stores the bytes checksums them end to end.

use super::buffer::Buffer;
use crate::admission::{Bytes32, MAX_NAME_BYTES, PROOF_BYTES, REQUEST_BYTES};
use crate::{AccessKey, Denial, Error, RemoteAddress};
use forebay_base::{DecodeError, ErrorKind, Reader, checksum, checksum_append};
use std::fmt::Display;

pub(super) const HEADER_BYTES: usize = 16;
/// Most bytes of an operation in one frame.
pub(super) const MAX_PIECE_BYTES: usize = 64 << 10;
/// Longest body: that of a `Write`.
pub(super) const MAX_BODY_BYTES: usize = WRITE_HEAD_BYTES + MAX_PIECE_BYTES;
pub(super) const MAX_FRAME_BYTES: usize = HEADER_BYTES + MAX_BODY_BYTES;

pub(super) const MAGIC: u8 = 0xfb;
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
const TARGET_BYTES: usize = 32;
const WRITE_HEAD_BYTES: usize = TARGET_BYTES + 4;
const HELLO_BYTES: usize = 32;
const WELCOME_BYTES: usize = 44;
const FAILED_BYTES: usize = 24;
/// Longest text of a `Refused`.
const MAX_TEXT_BYTES: usize = 256;
/// Longest of the frames with which a client begins: its proof.
pub(super) const MAX_FIRST_FRAME_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES + 2 * PROOF_BYTES + MAX_NAME_BYTES;
/// Flag of a `Write`: the immediate is one.
const IMMEDIATE: u8 = 1;

const _: () = assert!(TARGET_BYTES == AccessKey::WIRE_BYTES + 8 + 4);
const _: () = assert!(REQUEST_BYTES == HELLO_BYTES - CHECKSUM_BYTES);

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const READ: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const COMPARE_SWAP: u8 = 5;
    pub(super) const FETCH_ADD: u8 = 6;
    pub(super) const MESSAGE: u8 = 7;
    pub(super) const DATA: u8 = 8;
    pub(super) const DONE: u8 = 9;
    pub(super) const WORD: u8 = 10;
    pub(super) const FAILED: u8 = 11;
    pub(super) const CHALLENGE: u8 = 12;
    pub(super) const PROOF: u8 = 13;
    pub(super) const PROVEN: u8 = 14;
    pub(super) const REFUSED: u8 = 15;
}

/// What a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hello {
    /// A new link: its first connection, which lives as long as the link.
    Control,
    /// An endpoint of the link that the node gave this number and token.
    Endpoint {
        /// The link's number.
        link: u64,
        /// The link's secret.
        token: u128,
    },
}

impl Hello {
    /// The body of its frame after the checksum: what a proof covers.
    pub(super) fn request(self) -> [u8; REQUEST_BYTES] {
        let (role, link, token) = match self {
            Self::Control => (0u32, 0, 0),
            Self::Endpoint { link, token } => (1, link, token),
        };
        let mut body = [0; REQUEST_BYTES];
        pack(&mut body, [&role.to_le_bytes(), &link.to_le_bytes(), &token.to_le_bytes()]);
        body
    }
}

/// The node's answer to a `Hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) node: u32,
    pub(super) incarnation: u64,
    pub(super) link: u64,
    /// The link's secret, on a control connection; else zero.
    pub(super) token: u128,
    /// The endpoint's number; zero on a control connection.
    pub(super) endpoint: u32,
}

/// Where a one-sided operation goes, and how long it is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) at: RemoteAddress,
    pub(super) length: u32,
}

/// Why an operation or a connection was refused: a code and two details.
///
/// 1 access denied; 2 out of bounds (offset, length); 3 misaligned (offset); 4 unsupported;
/// 5 too large (length, limit). Connections: 6 proof of a secret refused; 7 TLS is needed; 8 there is no TLS;
/// 9 no room; 10 the certificate is not for one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    code: u8,
    first: u64,
    second: u64,
}

impl Failure {
    /// Encodes an error of a target.
    pub(super) fn of(error: &Error) -> Self {
        let (code, first, second) = match *error {
            Error::OutOfBounds { offset, length } => (2, offset, length),
            Error::Misaligned { offset } => (3, offset, 0),
            // A peer that speaks another version finds ours in the header.
            Error::Unsupported(_) | Error::OtherVersion { .. } => (4, 0, 0),
            Error::TooLarge { length, limit } => (5, length, limit),
            Error::NotAdmitted { ref cause, .. } => match cause {
                Denial::Plain => (7, 0, 0),
                Denial::Tls => (8, 0, 0),
                Denial::Crowded => (9, 0, 0),
                Denial::Certificate(_) => (10, 0, 0),
                _ => (6, 0, 0),
            },
            _ => (1, 0, 0),
        };
        Self { code, first, second }
    }

    /// Decodes the error.
    pub(super) fn error(self) -> Error {
        let Self { code, first, second } = self;
        match code {
            2 => Error::OutOfBounds { offset: first, length: second },
            3 => Error::Misaligned { offset: first },
            4 => Error::Unsupported("the node refuses the operation"),
            5 => Error::TooLarge { length: first, limit: second },
            6..=10 => Error::denied("the node", self.denial()),
            _ => Error::AccessDenied,
        }
    }

    fn denial(self) -> Denial {
        match self.code {
            7 => Denial::Plain,
            8 => Denial::Tls,
            9 => Denial::Crowded,
            10 => Denial::Certificate("it was revoked, or is not for one DNS name, which is the client's name".into()),
            _ => Denial::Secret,
        }
    }
}

/// A frame. Its bytes, if it has any, stay in the buffer that it was decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Hello(Hello),
    Welcome(Welcome),
    Read(Target),
    Write { to: Target, immediate: Option<u32>, bytes: &'a [u8] },
    CompareSwap { at: RemoteAddress, expected: u64, new: u64 },
    FetchAdd { at: RemoteAddress, delta: u64 },
    Message(&'a [u8]),
    Data(&'a [u8]),
    Done,
    Word(u64),
    Failed(Failure),
    Challenge(Bytes32),
    Proof { nonce: Bytes32, proof: Bytes32, name: &'a str },
    Proven(Bytes32),
    Refused { kind: ErrorKind, text: &'a str },
}

/// A frame at the front of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decoded<'a> {
    /// Number of the operation.
    pub(super) number: u64,
    pub(super) frame: Frame<'a>,
    /// Length of the whole frame.
    pub(super) length: usize,
}

/// Decodes the frame at the front of `input`; `None` while it is incomplete. A frame that is too long is refused as soon as
/// its header has arrived.
///
/// Always inlined: out of line, a frame goes through memory twice before it is used, which adds a fifth to a node's time
/// for an operation.
#[inline(always)]
pub(super) fn decode(input: &[u8]) -> Result<Option<Decoded<'_>>, DecodeError> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [magic, version, kind, flags, l0, l1, l2, l3, number @ ..] = *header;
    let body_bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let number = u64::from_le_bytes(number);
    if magic != MAGIC {
        return Err(bad("frame magic", magic.into()));
    }
    if version != VERSION {
        return Err(unknown_version(version));
    }
    if body_bytes > MAX_BODY_BYTES {
        return Err(bad("body length", body_bytes as u64));
    }
    if flags != 0 && (flags != IMMEDIATE || kind != kind::WRITE) {
        return Err(bad("frame flags", flags.into()));
    }
    let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
    let frame = decode_body(header, kind, flags, body)?;
    Ok(Some(Decoded { number, frame, length: HEADER_BYTES + body_bytes }))
}

/// Number of bytes that are missing from the frame at the front of `input`, as far as is known; zero when it is whole, or
/// is no frame.
#[inline]
pub(super) fn missing(input: &[u8]) -> usize {
    match input {
        [_, _, _, _, l0, l1, l2, l3, ..] => {
            let body_bytes = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
            (HEADER_BYTES + body_bytes.min(MAX_BODY_BYTES)).saturating_sub(input.len())
        }
        _ => HEADER_BYTES - input.len(),
    }
}

#[inline(always)]
fn decode_body<'a>(header: &[u8; HEADER_BYTES], kind: u8, flags: u8, body: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
    let mut reader = Reader::new(body);
    Ok(match kind {
        kind::READ => {
            let target = get_target(body)?;
            exactly(body, TARGET_BYTES)?;
            Frame::Read(target)
        }
        kind::WRITE => {
            let to = get_target(body)?;
            reader.bytes(TARGET_BYTES)?;
            let immediate = reader.u32()?;
            let bytes = reader.rest();
            if bytes.len() > to.length as usize || bytes.is_empty() && to.length > 0 {
                return Err(bad("bytes of a write", bytes.len() as u64));
            }
            if flags & IMMEDIATE == 0 && immediate != 0 {
                return Err(bad("absent immediate", immediate.into()));
            }
            Frame::Write { to, immediate: (flags & IMMEDIATE != 0).then_some(immediate), bytes }
        }
        kind::COMPARE_SWAP => {
            let at = get_word_target(body)?;
            reader.bytes(TARGET_BYTES)?;
            let frame = Frame::CompareSwap { at, expected: reader.u64()?, new: reader.u64()? };
            reader.finish()?;
            frame
        }
        kind::FETCH_ADD => {
            let at = get_word_target(body)?;
            reader.bytes(TARGET_BYTES)?;
            let frame = Frame::FetchAdd { at, delta: reader.u64()? };
            reader.finish()?;
            frame
        }
        kind::DATA => {
            if body.len() > MAX_PIECE_BYTES {
                return Err(bad("bytes of an answer", body.len() as u64));
            }
            Frame::Data(body)
        }
        kind::DONE => {
            reader.finish()?;
            Frame::Done
        }
        kind::WORD => {
            let word = reader.u64()?;
            reader.finish()?;
            Frame::Word(word)
        }
        _ => decode_checked(header, kind, body)?,
    })
}

/// Decodes the body of a frame that carries a checksum.
fn decode_checked<'a>(header: &[u8; HEADER_BYTES], kind: u8, body: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
    let checked = matches!(kind, kind::HELLO | kind::WELCOME | kind::MESSAGE | kind::FAILED);
    if !checked && !matches!(kind, kind::CHALLENGE | kind::PROOF | kind::PROVEN | kind::REFUSED) {
        return Err(bad("frame kind", kind.into()));
    }
    let mut reader = Reader::new(body);
    let expected = reader.u32()?;
    let rest = body.get(CHECKSUM_BYTES..).unwrap_or_default();
    let found = checksum_append(checksum(header), rest);
    if found != expected {
        return Err(DecodeError::BadChecksum { what: "frame", expected, found });
    }
    let frame = match kind {
        kind::HELLO => {
            let role = reader.u32()?;
            let (link, token) = (reader.u64()?, reader.u128()?);
            match (role, link, token) {
                (0, 0, 0) => Frame::Hello(Hello::Control),
                (1, _, _) => Frame::Hello(Hello::Endpoint { link, token }),
                _ => return Err(bad("role", role.into())),
            }
        }
        kind::WELCOME => Frame::Welcome(Welcome {
            node: reader.u32()?,
            incarnation: reader.u64()?,
            link: reader.u64()?,
            token: reader.u128()?,
            endpoint: reader.u32()?,
        }),
        kind::FAILED => {
            let code = reader.u32()?;
            let (first, second) = (reader.u64()?, reader.u64()?);
            match u8::try_from(code) {
                Ok(code @ 1..=10) => Frame::Failed(Failure { code, first, second }),
                _ => return Err(bad("failure code", code.into())),
            }
        }
        kind::CHALLENGE => Frame::Challenge(get_bytes32(&mut reader)?),
        kind::PROVEN => Frame::Proven(get_bytes32(&mut reader)?),
        kind::PROOF => {
            let (nonce, proof) = (get_bytes32(&mut reader)?, get_bytes32(&mut reader)?);
            let length = reader.remaining();
            match std::str::from_utf8(reader.rest()) {
                Ok(name) if (1..=MAX_NAME_BYTES).contains(&length) => Frame::Proof { nonce, proof, name },
                _ => return Err(bad("name of a secret", length as u64)),
            }
        }
        kind::REFUSED => {
            let code = reader.u8()?;
            let kind = ErrorKind::from_code(code).ok_or(bad("error kind", code.into()))?;
            let length = reader.remaining();
            match std::str::from_utf8(reader.rest()) {
                Ok(text) if length <= MAX_TEXT_BYTES => Frame::Refused { kind, text },
                _ => return Err(bad("text of a refusal", length as u64)),
            }
        }
        _ => {
            if reader.remaining() > MAX_PIECE_BYTES {
                return Err(bad("message length", reader.remaining() as u64));
            }
            Frame::Message(reader.rest())
        }
    };
    reader.finish()?;
    Ok(frame)
}

fn get_bytes32(reader: &mut Reader<'_>) -> Result<Bytes32, DecodeError> {
    let mut bytes = [0; PROOF_BYTES];
    bytes.copy_from_slice(reader.bytes(PROOF_BYTES)?);
    Ok(bytes)
}

fn bad(what: &'static str, found: u64) -> DecodeError {
    DecodeError::BadValue { what, found }
}

/// The error for bytes from a peer, described by `about`, that are no frame.
pub(super) fn refused(peer: impl Display, about: &str, cause: DecodeError) -> Error {
    match cause {
        DecodeError::Unknown { number, .. } => {
            Error::OtherVersion { peer: peer.to_string(), found: number, known: VERSION.into() }
        }
        cause => Error::Protocol(format!("{about}: {cause}")),
    }
}

/// A header has no checksum, so a flipped bit may look like another version.
#[cold]
const fn unknown_version(version: u8) -> DecodeError {
    DecodeError::Unknown { what: "a frame", feature: "format version", number: version as u64 }
}

fn exactly(body: &[u8], length: usize) -> Result<(), DecodeError> {
    if body.len() == length { Ok(()) } else { Err(DecodeError::Trailing(body.len().saturating_sub(length))) }
}

#[inline]
fn get_target(body: &[u8]) -> Result<Target, DecodeError> {
    let Some(target) = body.first_chunk::<TARGET_BYTES>() else {
        return Err(DecodeError::Truncated { offset: 0, needed: TARGET_BYTES, left: body.len() });
    };
    let mut reader = Reader::new(target);
    let key = AccessKey::new(reader.u32()?, reader.u128()?);
    Ok(Target { at: key.at(reader.u64()?), length: reader.u32()? })
}

fn get_word_target(body: &[u8]) -> Result<RemoteAddress, DecodeError> {
    match get_target(body)? {
        Target { at, length: 8 } => Ok(at),
        Target { length, .. } => Err(bad("length of an atomic operation", length.into())),
    }
}

/// The target of a read at the front of `input`, decoded ahead of its turn, and the length of its
/// frame.
#[inline]
pub(super) fn peek_read(input: &[u8]) -> Option<(Target, usize)> {
    let length = HEADER_BYTES + TARGET_BYTES;
    let frame = input.get(..length)?;
    if *frame.get(2)? != kind::READ {
        return None;
    }
    Some((get_target(frame.get(HEADER_BYTES..)?).ok()?, length))
}

impl Frame<'_> {
    /// Appends the frame to `out`.
    pub(super) fn encode(&self, number: u64, out: &mut Buffer) {
        match *self {
            Self::Hello(hello) => put_checked(out, kind::HELLO, number, &hello.request()),
            Self::Welcome(Welcome { node, incarnation, link, token, endpoint }) => {
                let mut body = [0; WELCOME_BYTES - CHECKSUM_BYTES];
                pack(
                    &mut body,
                    [
                        &node.to_le_bytes(),
                        &incarnation.to_le_bytes(),
                        &link.to_le_bytes(),
                        &token.to_le_bytes(),
                        &endpoint.to_le_bytes(),
                    ],
                );
                put_checked(out, kind::WELCOME, number, &body);
            }
            Self::Read(from) => put(out, kind::READ, number, [&target(from)]),
            Self::Write { to, immediate, bytes } => {
                let filled = put_write(out, number, to, immediate, bytes.len(), |into| {
                    into.copy_from_slice(bytes);
                    Ok(())
                });
                debug_assert!(filled.is_ok());
            }
            Self::CompareSwap { at, expected, new } => {
                let target = target(Target { at, length: 8 });
                put(out, kind::COMPARE_SWAP, number, [&target, &expected.to_le_bytes(), &new.to_le_bytes()]);
            }
            Self::FetchAdd { at, delta } => {
                let target = target(Target { at, length: 8 });
                put(out, kind::FETCH_ADD, number, [&target, &delta.to_le_bytes()]);
            }
            Self::Message(bytes) => put_checked(out, kind::MESSAGE, number, bytes),
            Self::Data(bytes) => put(out, kind::DATA, number, [bytes]),
            Self::Done => put(out, kind::DONE, number, []),
            Self::Word(word) => put(out, kind::WORD, number, [&word.to_le_bytes()]),
            Self::Failed(Failure { code, first, second }) => {
                let mut body = [0; FAILED_BYTES - CHECKSUM_BYTES];
                pack(&mut body, [&u32::from(code).to_le_bytes(), &first.to_le_bytes(), &second.to_le_bytes()]);
                put_checked(out, kind::FAILED, number, &body);
            }
            Self::Challenge(nonce) => put_checked(out, kind::CHALLENGE, number, &nonce),
            Self::Proof { nonce, proof, name } => {
                put_checked(out, kind::PROOF, number, &[&nonce[..], &proof, name.as_bytes()].concat());
            }
            Self::Proven(proof) => put_checked(out, kind::PROVEN, number, &proof),
            Self::Refused { kind, text } => {
                let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or(text);
                put_checked(out, kind::REFUSED, number, &[&[kind.code()], text.as_bytes()].concat());
            }
        }
    }
}

/// Appends a `Data` frame whose `length` bytes come from `fill`; nothing if that fails.
#[inline]
pub(super) fn put_data(
    out: &mut Buffer,
    number: u64,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (head, bytes) = out.space(HEADER_BYTES + length).split_at_mut(HEADER_BYTES);
    fill(bytes)?;
    head.copy_from_slice(&header(kind::DATA, 0, length, number));
    out.commit(HEADER_BYTES + length);
    Ok(())
}

/// Appends a `Write` frame whose `length` bytes come from `fill`; nothing if that fails.
#[inline]
pub(super) fn put_write(
    out: &mut Buffer,
    number: u64,
    to: Target,
    immediate: Option<u32>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    const HEAD_BYTES: usize = HEADER_BYTES + WRITE_HEAD_BYTES;
    let (head, bytes) = out.space(HEAD_BYTES + length).split_at_mut(HEAD_BYTES);
    fill(bytes)?;
    let flags = if immediate.is_some() { IMMEDIATE } else { 0 };
    let header = header(kind::WRITE, flags, WRITE_HEAD_BYTES + length, number);
    pack(head, [&header, &target(to), &immediate.unwrap_or(0).to_le_bytes()]);
    out.commit(HEAD_BYTES + length);
    Ok(())
}

#[inline]
fn header(kind: u8, flags: u8, body_bytes: usize, number: u64) -> [u8; HEADER_BYTES] {
    debug_assert!(body_bytes <= MAX_BODY_BYTES);
    let mut header = [0; HEADER_BYTES];
    pack(&mut header, [&[MAGIC, VERSION, kind, flags], &(body_bytes as u32).to_le_bytes(), &number.to_le_bytes()]);
    header
}

/// Appends a frame without flags whose body is `parts`.
#[inline]
fn put<const N: usize>(out: &mut Buffer, kind: u8, number: u64, parts: [&[u8]; N]) {
    let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let (head, body) = out.space(HEADER_BYTES + body_bytes).split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header(kind, 0, body_bytes, number));
    pack(body, parts);
    out.commit(HEADER_BYTES + body_bytes);
}

#[inline]
fn target(Target { at, length }: Target) -> [u8; TARGET_BYTES] {
    let mut target = [0; TARGET_BYTES];
    pack(
        &mut target,
        [&at.key.index.to_le_bytes(), &at.key.secret().to_le_bytes(), &at.offset.to_le_bytes(), &length.to_le_bytes()],
    );
    target
}

/// Appends a frame with a checksum in front of its `body`.
pub(super) fn put_checked(out: &mut Buffer, kind: u8, number: u64, body: &[u8]) {
    let header = header(kind, 0, CHECKSUM_BYTES + body.len(), number);
    out.extend(&header);
    out.extend(&checksum_append(checksum(&header), body).to_le_bytes());
    out.extend(body);
}

/// Concatenates `parts`.
#[inline]
fn pack<const N: usize>(into: &mut [u8], parts: [&[u8]; N]) {
    let mut at = 0;
    for part in parts {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

#[cfg(test)]
mod tests;
