//! The directory of a block object: where each part is stored.
//!
//! An object consists of its blocks, one after the other, then the directory, then the footer:
//!
//! ```text
//!  directory, at the end of the last block
//!  offset  size  field
//!  0       4     magic "FBBO"
//!  4       2     format version, 1
//!  6       2     flags, zero: an unknown flag is refused
//!  8       8     identity of the object
//!  16      8     length of the object in bytes before compression
//!  24      4     length of each block but the last, before compression
//!  28      4     number of blocks, n
//!  32      4     length of what the writer says of the object
//!  36            what the writer says of the object
//!  …       4 × n length of each block as stored, header and checksum included
//!  …       4     CRC-32 (ISO-HDLC) of all that precedes in the directory
//!
//!  footer, the last 12 bytes of the object
//!  0       4     length of the directory in bytes
//!  4       4     magic "FBBE"
//!  8       4     CRC32C of the bytes before
//! ```
//!
//! Purpose and golden test: `docs/formats/block-object.md`.

use super::block::stored_bytes;
use super::options::{BlockOptions, MAX_ABOUT_BYTES};
use bytes::Bytes;
use forebay_base::{DecodeError, Reader, Writer, checksum, envelope_checksum};
use std::ops::Range;

const MAGIC: u32 = u32::from_le_bytes(*b"FBBO");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"FBBE");
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 12;

/// The directory of a block object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDirectory {
    pub(super) identity: u64,
    pub(super) about: Bytes,
    pub(super) length: u64,
    pub(super) block_bytes: u32,
    /// Where in the object each block ends.
    pub(super) ends: Vec<u64>,
}

impl BlockDirectory {
    /// The number that the writer gave the object.
    #[must_use]
    pub const fn identity(&self) -> u64 {
        self.identity
    }

    /// What the writer says of the object.
    #[must_use]
    pub const fn about(&self) -> &Bytes {
        &self.about
    }

    /// Length of the object in bytes before compression.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Length of each block except the last, in bytes before compression.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Length of the object in bytes as stored.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        self.blocks_bytes() + (self.directory_bytes() + FOOTER_BYTES) as u64
    }

    /// Number of blocks.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Approximate bytes that a directory takes in memory.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.about.len() + self.ends.len() * size_of::<u64>()
    }

    fn blocks_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn directory_bytes(&self) -> usize {
        HEADER_BYTES + self.about.len() + self.ends.len() * 4 + CHECKSUM_BYTES
    }

    /// The blocks that hold a range of the bytes before compression; `None` when it goes beyond the object's end.
    pub(super) fn blocks_of(&self, range: &Range<u64>) -> Option<Range<u32>> {
        if range.start > range.end || range.end > self.length {
            return None;
        }
        if range.is_empty() {
            return Some(0..0);
        }
        let block_bytes = u64::from(self.block_bytes);
        Some((range.start / block_bytes) as u32..range.end.div_ceil(block_bytes) as u32)
    }

    /// The range of the bytes before compression that a block holds.
    pub(super) fn bytes_of(&self, block: u32) -> Range<u64> {
        let start = u64::from(block) * u64::from(self.block_bytes);
        start.min(self.length)..(start + u64::from(self.block_bytes)).min(self.length)
    }

    /// Where a block is stored in the object.
    pub(super) fn place_of(&self, block: u32) -> Range<u64> {
        let end = |block: u32| self.ends.get(block as usize).copied().unwrap_or_else(|| self.blocks_bytes());
        block.checked_sub(1).map_or(0, end)..end(block)
    }

    /// Appends directory and footer.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u16(0);
        out.put_u64(self.identity);
        out.put_u64(self.length);
        out.put_u32(self.block_bytes);
        out.put_u32(self.blocks());
        out.put_u32(self.about.len() as u32);
        out.extend_from_slice(&self.about);
        let mut last = 0;
        for &end in &self.ends {
            out.put_u32((end - last) as u32);
            last = end;
        }
        let crc = envelope_checksum(&out[start..]);
        out.put_u32(crc);
        let footer = out.len();
        out.put_u32((footer - start) as u32);
        out.put_u32(FOOTER_MAGIC);
        let crc = checksum(&out[footer..]);
        out.put_u32(crc);
    }

    /// Decodes the directory of an object of `object_bytes`, whose last bytes are `tail`. If the directory begins
    /// before `tail`: returns how many bytes from the object's end are needed.
    pub(super) fn decode(tail: &[u8], object_bytes: u64) -> Result<Result<Self, usize>, DecodeError> {
        let bad = |what, found| Err(DecodeError::BadValue { what, found });
        let (before, footer) = tail.split_last_chunk::<FOOTER_BYTES>().ok_or(DecodeError::Truncated {
            offset: 0,
            needed: FOOTER_BYTES,
            left: tail.len(),
        })?;
        let mut reader = Reader::new(footer);
        let (directory_bytes, magic, expected) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let found = checksum(&footer[..FOOTER_BYTES - CHECKSUM_BYTES]);
        if magic != FOOTER_MAGIC {
            return bad("magic of a block object's footer", magic.into());
        }
        if found != expected {
            return Err(DecodeError::BadChecksum { what: "a block object's footer", expected, found });
        }
        let needed = directory_bytes as usize + FOOTER_BYTES;
        if needed as u64 > object_bytes || (directory_bytes as usize) < HEADER_BYTES + CHECKSUM_BYTES {
            return bad("length of a block object's directory", directory_bytes.into());
        }
        let Some(start) = before.len().checked_sub(directory_bytes as usize) else { return Ok(Err(needed)) };
        let directory = Self::decode_directory(before.get(start..).unwrap_or_default())?;
        if directory.object_bytes() != object_bytes {
            return bad("length of a block object", object_bytes);
        }
        Ok(Ok(directory))
    }

    fn decode_directory(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "a block object's directory";
        let bad = |what, found| Err(DecodeError::BadValue { what, found });
        let mut reader = Reader::new(bytes);
        let magic = reader.u32()?;
        if magic != MAGIC {
            return bad("magic of a block object's directory", magic.into());
        }
        let covered = bytes.len().saturating_sub(CHECKSUM_BYTES);
        let found = envelope_checksum(bytes.get(..covered).unwrap_or_default());
        let expected = Reader::new(bytes.get(covered..).unwrap_or_default()).u32()?;
        if found != expected {
            return Err(DecodeError::BadChecksum { what: WHAT, expected, found });
        }
        let (version, flags) = (reader.u16()?, reader.u16()?);
        let unknown =
            |feature, number: u16| Err(DecodeError::Unknown { what: "a block object", feature, number: number.into() });
        if version != VERSION {
            return unknown("format version", version);
        }
        if flags != 0 {
            return unknown("flags", flags);
        }
        let (identity, length) = (reader.u64()?, reader.u64()?);
        let (block_bytes, blocks, about_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if !BlockOptions::allows(block_bytes) {
            return bad("length of an object's blocks", block_bytes.into());
        }
        if length.div_ceil(block_bytes.into()) != u64::from(blocks) {
            return bad("number of an object's blocks", blocks.into());
        }
        if about_bytes as usize > MAX_ABOUT_BYTES {
            return bad("length of what a writer says of its object", about_bytes.into());
        }
        let about = Bytes::copy_from_slice(reader.bytes(about_bytes as usize)?);
        if reader.remaining() != (blocks as usize).saturating_mul(4).saturating_add(CHECKSUM_BYTES) {
            return bad("number of an object's blocks", blocks.into());
        }
        let mut ends = Vec::with_capacity(blocks as usize);
        let mut end = 0u64;
        for _ in 0..blocks {
            let stored = reader.u32()?;
            if (stored as usize) < stored_bytes(0) || stored as usize > stored_bytes(block_bytes as usize) {
                return bad("length of a block as stored", stored.into());
            }
            end += u64::from(stored);
            ends.push(end);
        }
        Ok(Self { identity, about, length, block_bytes, ends })
    }
}
