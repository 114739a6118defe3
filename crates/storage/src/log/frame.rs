//! The format of a log: segments of frames, the same in files and in objects.
//!
//! A segment begins with a header of 40 bytes:
//!
//! ```text
//!  offset  size  field
//!  0       4     magic "FBLS"
//!  4       2     format version, 1
//!  6       2     flags: 1 this is a seal, and no frames follow; an unknown flag is refused
//!  8       8     the log's random number
//!  16      8     number of the segment in the log, from 1
//!  24      8     position of its first frame
//!  32      4     CRC32C of the bytes before
//!  36      4     zero
//! ```
//!
//! Frames follow, each beginning at a multiple of eight bytes. The *position* of a frame is the length of all frames of the
//! log before it, so in a segment the frame is at offset 40 + position - position of the segment's first frame.
//!
//! ```text
//!  offset  size  field
//!  0       4     magic "FBLF"
//!  4       4     CRC32C of bytes 8 to 56
//!  8       8     the log's random number
//!  16      8     position
//!  24      8     position up to which the log was durable when this frame was written
//!  32      8     mark: whatever the writer of the frame means by it
//!  40      4     stream: the same
//!  44      4     length of the payload in bytes
//!  48      4     CRC-32 (ISO-HDLC) of the payload
//!  52      4     zero
//!  56            payload, and zeros up to a multiple of eight bytes
//! ```
//!
//! Purpose and golden test: `docs/formats/log.md`.

use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use bytes::Bytes;
use forebay_base::{DecodeError, Reader, Writer, checksum, envelope_checksum};
use std::ops::Range;

/// A place in a log: the bytes of frames before it.
pub type Position = u64;

/// Largest payload of a frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 256 << 20;

pub(super) const SEGMENT_HEADER_BYTES: usize = 40;
pub(super) const FRAME_HEADER_BYTES: usize = 56;
/// Frames begin at multiples of this many bytes.
pub(super) const ALIGNMENT: usize = 8;
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"FBLS");
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FBLF");
const VERSION: u16 = 1;
const SEAL: u16 = 1;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub is_seal: bool,
    pub log: u64,
    pub number: u64,
    pub start: Position,
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.put_u32(SEGMENT_MAGIC);
        out.put_u16(VERSION);
        out.put_u16(if self.is_seal { SEAL } else { 0 });
        for number in [self.log, self.number, self.start] {
            out.put_u64(number);
        }
        let checksum = checksum(&out);
        out.put_u32(checksum);
        out.put_u32(0);
        out
    }

    /// Decodes the header at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let bad = |what, found| Err(DecodeError::BadValue { what, found });
        let magic = reader.u32()?;
        if magic != SEGMENT_MAGIC {
            return bad("magic of a segment of a log", magic.into());
        }
        let (version, flags) = (reader.u16()?, reader.u16()?);
        let (log, number, start) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let found = checksum(bytes.get(..reader.offset()).unwrap_or_default());
        let (expected, zero) = (reader.u32()?, reader.u32()?);
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "a segment's header", expected, found });
        }
        let unknown = |feature, number: u16| {
            Err(DecodeError::Unknown { what: "a segment of a log", feature, number: number.into() })
        };
        if version != VERSION {
            return unknown("format version", version);
        }
        if flags & !SEAL != 0 {
            return unknown("flags", flags);
        }
        if zero != 0 {
            return bad("the end of a segment's header", zero.into());
        }
        Ok(Self { is_seal: flags & SEAL != 0, log, number, start })
    }
}

/// A frame of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where it begins.
    pub position: Position,
    /// A number with a meaning for its writer only: for instance, a shard.
    pub stream: u32,
    /// A number with a meaning for its writer only: for instance, the first sequence number.
    pub mark: u64,
    /// Its bytes.
    pub payload: Bytes,
}

impl Frame {
    /// The position where it ends and the next one begins.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.position.saturating_add(frame_bytes(self.payload.len()) as u64)
    }
}

/// Bytes of a frame with a payload of this length.
pub(super) const fn frame_bytes(payload: usize) -> usize {
    FRAME_HEADER_BYTES + payload.next_multiple_of(ALIGNMENT)
}

/// The number of zeros that follow the payload in its frame.
pub(super) const fn padding(payload: &[u8]) -> usize {
    payload.len().next_multiple_of(ALIGNMENT) - payload.len()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub log: u64,
    pub position: Position,
    pub durable: Position,
    pub mark: u64,
    pub stream: u32,
}

impl FrameHeader {
    /// Appends the frame.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.encode_before(payload, out);
        out.extend_from_slice(payload);
        out.resize(out.len() + padding(payload), 0);
    }

    /// Appends what precedes the payload in the frame. [`padding`] zeros follow the payload.
    pub fn encode_before(&self, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(FRAME_MAGIC);
        out.put_u32(0);
        for number in [self.log, self.position, self.durable, self.mark] {
            out.put_u64(number);
        }
        out.put_u32(self.stream);
        // Longer payloads are refused before.
        out.put_u32(payload.len() as u32);
        out.put_u32(envelope_checksum(payload));
        out.put_u32(0);
        let checksum = checksum(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes the header at the front of `bytes`, with the payload's length and checksum.
    fn decode(bytes: &[u8]) -> std::result::Result<(Self, usize, u32), DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32()?;
        if magic != FRAME_MAGIC {
            return Err(DecodeError::BadValue { what: "magic of a frame", found: magic.into() });
        }
        let expected = reader.u32()?;
        let covered = bytes.get(8..FRAME_HEADER_BYTES).unwrap_or_default();
        let (log, position, durable, mark) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let (stream, length, payload_checksum) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let zero = reader.u32()?;
        let found = checksum(covered);
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "a frame's header", expected, found });
        }
        if zero != 0 || length as usize > MAX_FRAME_BYTES {
            return Err(DecodeError::BadValue { what: "length of a frame", found: length.into() });
        }
        Ok((Self { log, position, durable, mark, stream }, length as usize, payload_checksum))
    }
}

/// The frames of a segment, up to its end or to the first bad one.
#[derive(Debug)]
pub(super) struct Scan {
    pub header: SegmentHeader,
    pub frames: Vec<Frame>,
    /// Where the last good frame ends.
    pub end: Position,
    /// What is wrong with the bytes after that; `None` when there are none, or only zeros.
    pub bad: Option<DecodeError>,
    /// The furthest position that any frame, even one after a bad one, declares durable.
    pub durable: Position,
    /// Whether the bytes end right after the last frame, or within one: there is no room for more.
    pub is_full: bool,
}

impl Scan {
    const fn empty(header: SegmentHeader) -> Self {
        Self { header, frames: Vec::new(), end: header.start, bad: None, durable: 0, is_full: false }
    }

    /// Scans a segment whose header is damaged: the first whole frame says what the header held, except the segment's
    /// number. `None` when no frame is whole.
    pub fn without_header(segment: &Bytes) -> Option<Self> {
        let mut offsets = (SEGMENT_HEADER_BYTES..segment.len()).step_by(ALIGNMENT);
        let mut scan = offsets.find_map(|offset| {
            let (FrameHeader { log, position, .. }, ..) = FrameHeader::decode(segment.get(offset..)?).ok()?;
            let start = position.checked_sub((offset - SEGMENT_HEADER_BYTES) as u64)?;
            let scan = Self::empty(SegmentHeader { is_seal: false, log, number: 0, start });
            scan.frame_at(segment, offset).is_ok().then_some(scan)
        })?;
        scan.go_on(segment);
        Some(scan)
    }

    /// Scans a segment; an error when its header is bad.
    pub fn new(segment: &Bytes) -> std::result::Result<Self, DecodeError> {
        let mut scan = Self::empty(SegmentHeader::decode(segment)?);
        let mut offset = SEGMENT_HEADER_BYTES;
        while offset < segment.len() {
            match scan.frame_at(segment, offset) {
                Ok((frame, durable)) => {
                    offset += frame_bytes(frame.payload.len());
                    scan.end = scan.position_at(offset);
                    scan.durable = scan.durable.max(durable);
                    scan.frames.push(frame);
                }
                Err(cause) => {
                    scan.is_full = scan.is_cut_at(segment, offset);
                    scan.look_further(segment, offset, cause);
                    return Ok(scan);
                }
            }
        }
        scan.is_full = true;
        Ok(scan)
    }

    /// Continues after the first bad frame, from one whole frame to the next, whatever is between them.
    pub fn go_on(&mut self, segment: &Bytes) {
        let mut offset = self.end.saturating_sub(self.header.start) as usize + SEGMENT_HEADER_BYTES;
        while offset < segment.len() {
            match self.frame_at(segment, offset) {
                Ok((frame, _)) => {
                    offset += frame_bytes(frame.payload.len());
                    self.frames.push(frame);
                }
                Err(_) => offset += ALIGNMENT,
            }
        }
    }

    /// Leaves out frames from `end` on, where the next segment begins. Such a frame was written although its writer was told
    /// that there was no room, so the writer continued in the next segment.
    pub fn end_at(&mut self, end: Position) {
        let kept = self.frames.partition_point(|frame| frame.position < end);
        if let Some(first) = self.frames.get(kept) {
            self.end = first.position;
            self.frames.truncate(kept);
        }
    }

    fn position_at(&self, offset: usize) -> Position {
        self.header.start.saturating_add((offset - SEGMENT_HEADER_BYTES) as u64)
    }

    fn frame_at(&self, segment: &Bytes, offset: usize) -> std::result::Result<(Frame, Position), DecodeError> {
        let bytes = segment.get(offset..).unwrap_or_default();
        let (header, length, expected) = FrameHeader::decode(bytes)?;
        if header.log != self.header.log || header.position != self.position_at(offset) {
            return Err(DecodeError::BadValue { what: "position of a frame", found: header.position });
        }
        let mut reader = Reader::new(bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default());
        let found = envelope_checksum(reader.bytes(length)?);
        // With its padding; otherwise the next frame could not be appended.
        let padding = reader.bytes(length.next_multiple_of(ALIGNMENT) - length)?;
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "a frame's payload", expected, found });
        }
        if let Some(byte) = padding.iter().find(|byte| **byte != 0) {
            return Err(DecodeError::BadValue { what: "padding of a frame", found: (*byte).into() });
        }
        let start = offset + FRAME_HEADER_BYTES;
        let payload = segment.slice(start..start + length);
        let frame = Frame { position: header.position, stream: header.stream, mark: header.mark, payload };
        Ok((frame, header.durable))
    }

    /// Whether a frame begins at `offset` that continues beyond the end of the segment, as far as its bytes show.
    fn is_cut_at(&self, segment: &Bytes, offset: usize) -> bool {
        let bytes = segment.get(offset..).unwrap_or_default();
        if let Ok((header, length, _)) = FrameHeader::decode(bytes) {
            let is_here = header.log == self.header.log && header.position == self.position_at(offset);
            return is_here && frame_bytes(length) > bytes.len();
        }
        let begins = |field: Range<usize>, expected: &[u8]| {
            let found = bytes.get(field.start..field.end.min(bytes.len())).unwrap_or_default();
            expected.starts_with(found)
        };
        bytes.len() < FRAME_HEADER_BYTES
            && begins(0..4, &FRAME_MAGIC.to_le_bytes())
            && begins(8..16, &self.header.log.to_le_bytes())
            && begins(16..24, &self.position_at(offset).to_le_bytes())
    }

    /// Finds out what frames after the first bad frame, at `offset`, declare durable.
    fn look_further(&mut self, segment: &Bytes, offset: usize, cause: DecodeError) {
        let rest = segment.get(offset..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) {
            return;
        }
        self.bad = Some(cause);
        for after in (offset..segment.len()).step_by(ALIGNMENT) {
            let bytes = segment.get(after..).unwrap_or_default();
            // Almost no eight bytes begin like a frame.
            if bytes.first_chunk().is_none_or(|magic| u32::from_le_bytes(*magic) != FRAME_MAGIC) {
                continue;
            }
            let is_here =
                |header: &FrameHeader| header.log == self.header.log && header.position == self.position_at(after);
            if let Ok((header, ..)) = FrameHeader::decode(bytes)
                && is_here(&header)
            {
                self.durable = self.durable.max(header.durable);
                if planted(Bug::HolesAreSkipped)
                    && let Ok((frame, _)) = self.frame_at(segment, after)
                {
                    self.frames.push(frame);
                }
            }
        }
    }

    /// Checks that what is missing at the end was never durable: that the tail is torn, and not damaged.
    ///
    /// A frame that is written after a sync says so. So if a later frame declares the bad one durable, the bad one was
    /// acknowledged and has been damaged. Otherwise its sync had not returned, and nobody was told that it was durable.
    /// (When no frame was written after the last synced group, damage in that group cannot be distinguished from a torn
    /// write.)
    pub fn check_tail(&self, object: &str) -> Result<()> {
        if self.durable <= self.end || planted(Bug::DamageIsTorn) {
            return Ok(());
        }
        Err(self.damage(object))
    }

    /// The error for frames that are missing after [`Scan::end`].
    pub fn damage(&self, object: &str) -> Error {
        let offset = self.end.saturating_sub(self.header.start).saturating_add(SEGMENT_HEADER_BYTES as u64);
        let cause = self.bad.as_ref().map_or_else(|| "it ends there".to_owned(), ToString::to_string);
        let detail = format!("the frame at byte {offset} (position {}) was durable and is damaged: {cause}", self.end);
        Error::corrupt(object, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;
    use proptest::prelude::*;

    const HEADER: SegmentHeader = SegmentHeader { is_seal: false, log: 0x0807_0605_0403_0201, number: 2, start: 64 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn segment(payloads: &[&[u8]], durable: Position) -> Vec<u8> {
        let mut out = HEADER.encode();
        for (mark, payload) in (7..).zip(payloads) {
            let position = HEADER.start + (out.len() - SEGMENT_HEADER_BYTES) as u64;
            FrameHeader { log: HEADER.log, position, durable, mark, stream: 3 }.encode(payload, &mut out);
        }
        out
    }

    #[test]
    fn golden_bytes() {
        let segment_header = "46424c53010000000102030405060708020000000000000040000000000000007020b76600000000";
        let bytes = segment(&[b"hello"], 64);
        assert_eq!(hex(&bytes[..40]), segment_header);
        let frame = "46424c46fd078aba01020304050607084000000000000000400000000000000007000000000000000300000005000000\
                     86a610360000000068656c6c6f000000";
        assert_eq!(hex(&bytes[40..]), frame);
        let seal = SegmentHeader { is_seal: true, ..HEADER }.encode();
        assert_eq!(hex(&seal[..8]), "46424c5301000100");
    }

    #[test]
    fn frames_are_read_up_to_zeros() {
        let mut bytes = segment(&[b"one", b"", b"three"], 0);
        let end = HEADER.start + (bytes.len() - SEGMENT_HEADER_BYTES) as u64;
        bytes.resize(bytes.len() + 100, 0);
        let scan = Scan::new(&bytes.into()).unwrap();
        let payloads: Vec<_> = scan.frames.iter().map(|frame| (frame.mark, &frame.payload[..])).collect();
        assert_eq!(payloads, [(7, &b"one"[..]), (8, b""), (9, b"three")]);
        assert_eq!((scan.end, scan.bad, scan.frames[1].stream), (end, None, 3));
    }

    #[test]
    fn a_torn_tail_is_told_from_damage_by_what_was_durable() {
        let [first, second] = [frame_bytes(3), frame_bytes(4)];
        for (durable, is_damage) in
            [(0, false), (first as u64 + HEADER.start, false), (first as u64 + HEADER.start + 1, true)]
        {
            let mut bytes = segment(&[b"one", b"four", b"5"], durable);
            bytes[SEGMENT_HEADER_BYTES + first + 58] ^= 1;
            let scan = Scan::new(&bytes.into()).unwrap();
            assert_eq!((scan.frames.len(), scan.end), (1, HEADER.start + first as u64));
            let checked = scan.check_tail("log/1");
            assert_eq!(checked.is_err(), is_damage, "{durable} {second}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("byte 104 (position 128)"), "{error}");
            }
        }
    }

    /// Each flip of a bit of the header, and then also of the first frame.
    #[test]
    fn frames_behind_a_damaged_header_are_found() {
        let payloads = |bytes: Vec<u8>| {
            let scan = Scan::without_header(&bytes.into())?;
            assert_eq!((scan.header.log, scan.header.start), (HEADER.log, HEADER.start));
            Some(scan.frames.iter().map(|frame| frame.payload.to_vec()).collect::<Vec<_>>())
        };
        let whole = segment(&[b"one", b"four", b"5"], 0);
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Scan::new(&bytes.clone().into()).is_err_and(|error| error.kind() == ErrorKind::Corrupt));
            assert_eq!(payloads(bytes.clone()).unwrap(), [&b"one"[..], b"four", b"5"], "bit {bit}");
            bytes[SEGMENT_HEADER_BYTES + 58] ^= 1;
            assert_eq!(payloads(bytes).unwrap(), [&b"four"[..], b"5"], "bit {bit}");
        }
        assert_eq!(payloads(vec![7; 400]), None);
        assert_eq!(payloads(whole[..SEGMENT_HEADER_BYTES + 60].to_vec()), None);
    }

    /// A version or a flag that this build does not know, with a right checksum, is no damage.
    #[test]
    fn what_a_newer_build_wrote_is_told_from_damage() {
        for at in [4, 6] {
            let mut bytes = HEADER.encode();
            bytes[at] ^= 2;
            assert_eq!(SegmentHeader::decode(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
            let right = checksum(&bytes[..32]);
            bytes[32..36].copy_from_slice(&right.to_le_bytes());
            let error = SegmentHeader::decode(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("which this build does not know"), "{error}");
        }
    }

    #[test]
    fn frames_behind_damage_are_found_when_asked_for() {
        let mut bytes = segment(&[b"one", b"four", b"5"], 0);
        bytes[SEGMENT_HEADER_BYTES + frame_bytes(3) + 58] ^= 1;
        let bytes = bytes.into();
        let mut scan = Scan::new(&bytes).unwrap();
        scan.go_on(&bytes);
        let payloads: Vec<_> = scan.frames.iter().map(|frame| &frame.payload[..]).collect();
        assert_eq!(payloads, [&b"one"[..], b"5"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_without_panic(
            bytes: Vec<u8>,
            flips in prop::collection::vec((0usize..300, 1u8..), 1..4),
            cut in 0usize..300,
        ) {
            let _ = Scan::new(&bytes.clone().into());
            Scan::without_header(&bytes.clone().into());
            let payloads: [&[u8]; 3] = [b"one", &[7; 30], b""];
            let whole = segment(&payloads, 70);
            let mut damaged = whole.clone();
            damaged.truncate(cut.max(SEGMENT_HEADER_BYTES));
            damaged.extend_from_slice(&bytes);
            for (at, mask) in flips {
                damaged.get_mut(at).into_iter().for_each(|byte| *byte ^= mask);
            }
            let damaged = damaged.into();
            if let Some(scan) = Scan::without_header(&damaged) {
                prop_assert!(scan.frames.iter().all(|frame| payloads.contains(&&frame.payload[..])), "{:?}", scan.frames);
            }
            if let Ok(mut scan) = Scan::new(&damaged) {
                let found: Vec<_> = scan.frames.iter().map(|frame| &frame.payload[..]).collect();
                prop_assert!(payloads.starts_with(&found), "{:?}", found);
                scan.go_on(&damaged);
                let is_one = |frame: &Frame| payloads.contains(&&frame.payload[..]);
                prop_assert!(scan.frames.iter().all(is_one), "{:?}", scan.frames);
            }
        }
    }
}
