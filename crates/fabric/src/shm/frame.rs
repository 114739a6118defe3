//! Frames on the sockets of the shared-memory back end (`docs/formats/shm-frame.md`).
//!
//! A socket keeps packet boundaries, so one packet is one frame. A node and a process of the same
//! machine exchange frames through the kernel, which neither loses nor damages bytes. So frames carry a
//! version and a length, but no checksum.
//!
//! ```text
//! header                                        bodies by type
//!  0  4  length of the whole frame               1  open link        —
//!  4  1  version (3)                             2  open endpoint    8 link, 16 token, 4 endpoint
//!  5  1  type                                    3  link opened      4 node, 8 incarnation,
//!  6  2  zero                                                        8 link, 16 token; with the
//!  8     body                                                        4 line; with the memory file
//!                                                                    of `notice` as a descriptor
//!                                                4  endpoint opened  —
//!                                                5  refused          1 error kind's code, text (UTF-8)
//!                                                6  grant            20 key, 1 rights, 3 zero,
//!                                                                    8 offset, 8 length; with the
//!                                                                    memory file as a descriptor
//!                                                7  grant taken      20 key, 1 status: 0, or an
//!                                                                    error kind's code
//!                                                8  revoke           20 key
//!                                                9  released         20 key
//!                                               10  immediate        4 value
//!                                               11  message          the message
//! ```
//!
//! Offset and length of a grant are bytes of the memory file.

use crate::rpc::{get_key, put_key};
use crate::{AccessKey, Rights};
use forebay_base::{DecodeError, Reader, Writer};

/// Version 1 passed no memory file when a link was opened, and version 2 announced no frames there.
pub(super) const VERSION: u8 = 3;
/// Bytes in front of a body.
pub(super) const HEADER_BYTES: usize = 8;
/// Longest message.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Longest frame.
pub(super) const MAX_FRAME_BYTES: usize = HEADER_BYTES + MAX_MESSAGE_BYTES;
/// Length of the receive buffer: a byte more than a frame, so that a packet that was cut off is not
/// taken for a frame.
pub(super) const BUFFER_BYTES: usize = MAX_FRAME_BYTES + 1;
/// Longest text of a refusal.
const MAX_TEXT_BYTES: usize = 256;
/// Grants of one side of a link to the other at one time.
pub(super) const MAX_GRANTS: u32 = 16 << 10;

const _: () = assert!(HEADER_BYTES == 4 + 1 + 1 + 2);
const _: () = assert!(AccessKey::WIRE_BYTES == 20);

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// First on a new socket: this will be a link's control socket.
    OpenLink,
    /// First on a new socket: this will be an endpoint of a link.
    OpenEndpoint { link: u64, token: u128, endpoint: u32 },
    /// The node's answer to [`Frame::OpenLink`].
    LinkOpened { node: u32, incarnation: u64, link: u64, token: u128, line: u32 },
    /// The node's answer to [`Frame::OpenEndpoint`].
    EndpointOpened,
    /// The node's answer to either.
    Refused { status: u8, text: &'a str },
    /// The other side may use a range of a memory file.
    Grant { key: AccessKey, rights: Rights, offset: u64, length: u64 },
    /// The node's answer to a client's grant.
    GrantTaken { key: AccessKey, status: u8 },
    /// The other side must release the memory.
    Revoke { key: AccessKey },
    /// It has released the memory.
    Released { key: AccessKey },
    /// An immediate for the endpoint.
    Immediate(u32),
    /// A message, in either direction.
    Message(&'a [u8]),
}

impl<'a> Frame<'a> {
    /// The frame's type on the wire.
    pub(super) const fn number(&self) -> u8 {
        match self {
            Self::OpenLink => 1,
            Self::OpenEndpoint { .. } => 2,
            Self::LinkOpened { .. } => 3,
            Self::EndpointOpened => 4,
            Self::Refused { .. } => 5,
            Self::Grant { .. } => 6,
            Self::GrantTaken { .. } => 7,
            Self::Revoke { .. } => 8,
            Self::Released { .. } => 9,
            Self::Immediate(_) => 10,
            Self::Message(_) => 11,
        }
    }

    /// The header of a frame with a body of this length.
    const fn header(number: u8, body_bytes: usize) -> [u8; HEADER_BYTES] {
        let length = ((HEADER_BYTES + body_bytes) as u32).to_le_bytes();
        [length[0], length[1], length[2], length[3], VERSION, number, 0, 0]
    }

    /// The header of a message frame, to be sent in front of the message itself.
    pub(super) const fn message_header(message_bytes: usize) -> [u8; HEADER_BYTES] {
        Self::header(Frame::Message(&[]).number(), message_bytes)
    }

    /// The frame's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        match *self {
            Self::OpenLink | Self::EndpointOpened => {}
            Self::OpenEndpoint { link, token, endpoint } => {
                out.put_u64(link);
                out.put_u128(token);
                out.put_u32(endpoint);
            }
            Self::LinkOpened { node, incarnation, link, token, line } => {
                out.put_u32(node);
                out.put_u64(incarnation);
                out.put_u64(link);
                out.put_u128(token);
                out.put_u32(line);
            }
            Self::Refused { status, text } => {
                out.put_u8(status);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Grant { key, rights, offset, length } => {
                put_key(&mut out, key);
                out.put_u8(rights.bits());
                out.extend_from_slice(&[0; 3]);
                out.put_u64(offset);
                out.put_u64(length);
            }
            Self::GrantTaken { key, status } => {
                put_key(&mut out, key);
                out.put_u8(status);
            }
            Self::Revoke { key } | Self::Released { key } => put_key(&mut out, key),
            Self::Immediate(value) => out.put_u32(value),
            Self::Message(bytes) => out.extend_from_slice(bytes),
        }
        let header = Self::header(self.number(), out.len() - HEADER_BYTES);
        out.iter_mut().zip(header).for_each(|(to, byte)| *to = byte);
        out
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(super) fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(packet);
        let length = reader.u32()?;
        if length as usize != packet.len() || packet.len() > MAX_FRAME_BYTES {
            return Err(DecodeError::BadValue { what: "frame length", found: length.into() });
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::BadValue { what: "frame version", found: version.into() });
        }
        let number = reader.u8()?;
        let zero = reader.u16()?;
        if zero != 0 {
            return Err(DecodeError::BadValue { what: "frame padding", found: zero.into() });
        }
        let frame = Self::decode_body(number, &mut reader)?;
        reader.finish()?;
        Ok(frame)
    }

    fn decode_body(number: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match number {
            1 => Self::OpenLink,
            2 => Self::OpenEndpoint { link: reader.u64()?, token: reader.u128()?, endpoint: reader.u32()? },
            3 => Self::LinkOpened {
                node: reader.u32()?,
                incarnation: reader.u64()?,
                link: reader.u64()?,
                token: reader.u128()?,
                line: reader.u32()?,
            },
            4 => Self::EndpointOpened,
            5 => Self::Refused { status: reader.u8()?, text: decode_text(reader.rest())? },
            6 => {
                let key = decode_key(reader)?;
                let bits = reader.u8()?;
                let rights =
                    Rights::from_bits(bits).ok_or(DecodeError::BadValue { what: "rights", found: bits.into() })?;
                let padding = reader.bytes(3)?;
                if padding != [0; 3] {
                    return Err(DecodeError::BadValue { what: "grant padding", found: 1 });
                }
                Self::Grant { key, rights, offset: reader.u64()?, length: reader.u64()? }
            }
            7 => Self::GrantTaken { key: decode_key(reader)?, status: reader.u8()? },
            8 => Self::Revoke { key: decode_key(reader)? },
            9 => Self::Released { key: decode_key(reader)? },
            10 => Self::Immediate(reader.u32()?),
            11 => Self::Message(reader.rest()),
            _ => return Err(DecodeError::BadValue { what: "frame type", found: number.into() }),
        })
    }
}

/// A key whose index is within the bounds of a table.
fn decode_key(reader: &mut Reader<'_>) -> Result<AccessKey, DecodeError> {
    let key = get_key(reader)?;
    if key.index >= MAX_GRANTS {
        return Err(DecodeError::BadValue { what: "grant index", found: key.index.into() });
    }
    Ok(key)
}

fn decode_text(bytes: &[u8]) -> Result<&str, DecodeError> {
    let text = bytes.get(..MAX_TEXT_BYTES.min(bytes.len())).unwrap_or_default();
    std::str::from_utf8(text).map_err(|e| DecodeError::BadValue { what: "text", found: e.valid_up_to() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let key = AccessKey::new(0x0102, u128::from_le_bytes([0xab; 16]));
        let hex = |frame: Frame<'_>| frame.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let secret = "ab".repeat(16);
        let token = u128::from_le_bytes([0xcd; 16]);
        let expected = [
            (Frame::OpenLink, "0800000003010000".into()),
            (
                Frame::OpenEndpoint { link: 3, token, endpoint: 4 },
                format!("24000000030200000300000000000000{}04000000", "cd".repeat(16)),
            ),
            (
                Frame::LinkOpened { node: 1, incarnation: 2, link: 3, token, line: 5 },
                format!("30000000030300000100000002000000000000000300000000000000{}05000000", "cd".repeat(16)),
            ),
            (Frame::EndpointOpened, "0800000003040000".into()),
            (Frame::Refused { status: 8, text: "no" }, "0b00000003050000086e6f".into()),
            (
                Frame::Grant { key, rights: Rights::ALL, offset: 4096, length: 8192 },
                format!("300000000306000002010000{secret}0700000000100000000000000020000000000000"),
            ),
            (Frame::GrantTaken { key, status: 4 }, format!("1d0000000307000002010000{secret}04")),
            (Frame::Revoke { key }, format!("1c0000000308000002010000{secret}")),
            (Frame::Released { key }, format!("1c0000000309000002010000{secret}")),
            (Frame::Immediate(7), "0c000000030a000007000000".into()),
            (Frame::Message(b"hi"), "0a000000030b00006869".into()),
        ];
        for (frame, bytes) in expected {
            assert_eq!(hex(frame), bytes, "{frame:?}");
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
        assert_eq!(Frame::message_header(2), Frame::Message(b"hi").encode()[..HEADER_BYTES]);
    }

    #[test]
    fn what_is_not_a_frame_is_refused() {
        let key = AccessKey::new(MAX_GRANTS, 1);
        assert!(Frame::decode(&Frame::Revoke { key }.encode()).is_err());
        assert!(Frame::decode(&Frame::Message(&vec![0; MAX_MESSAGE_BYTES + 1]).encode()).is_err());
        let good = Frame::Immediate(1).encode();
        for cut in 0..good.len() {
            assert!(Frame::decode(&good[..cut]).is_err());
        }
        let mut newer = good;
        newer[4] = VERSION + 1;
        assert!(Frame::decode(&newer).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn any_bytes_decode_without_panic(mut bytes: Vec<u8>, number in 0u8..14) {
            let _ = Frame::decode(&bytes);
            if bytes.len() >= HEADER_BYTES {
                let header = Frame::header(number, bytes.len() - HEADER_BYTES);
                bytes[..HEADER_BYTES].copy_from_slice(&header);
                if let Ok(frame) = Frame::decode(&bytes) {
                    let again = frame.encode();
                    prop_assert_eq!(Frame::decode(&again), Ok(frame));
                }
            }
        }
    }
}
