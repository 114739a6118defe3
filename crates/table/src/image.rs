//! The image of a table: one blob in remote memory.
//!
//! ```text
//!  ┌──────────────────┐ 0
//!  │ index blocks     │   sorted entries (see `block`)
//!  ├──────────────────┤ tail offset
//!  │ sparse index     │   section 1
//!  │ point index      │   section 2
//!  │ range deletions  │   section 3, only if there are any
//!  │ properties       │   section 4
//!  │ directory        │   24 bytes a section
//!  │ footer           │   32 bytes
//!  └──────────────────┘ image length
//! ```
//!
//! The part after the index blocks is the **tail**. One read of it brings everything that a compute
//! node caches. Each section and each block carries its own checksum.
//!
//! ```text
//!  directory entry      footer
//!  0  2  section        0   8  length of the image in bytes
//!  2  2  flags          8   8  length of the tail in bytes
//!        bit 0 optional 16  4  number of sections, at most 64
//!  4  4  zero           20  2  format version, 2; 1 is read
//!  8  8  offset         22  2  flags, zero
//!  16 8  length         24  4  CRC32C of the directory and bytes 0 … 24 of the footer
//!                       28  4  magic "FBtf"
//! ```
//!
//! Offsets count from the image's start. A reader skips unknown optional sections and refuses
//! unknown mandatory ones. Range deletions are a frame "FBrd": a varint count, then for each
//! deletion the start and the end, each after its length (varint), and a u64 tag.
//!
//! Versions 1 and 2 differ only in the index blocks, which carry their own version.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::entry::RangeTombstone;
use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, read_count};
use forebay_base::{DecodeError, Reader, Writer, checksum};
use std::ops::Range;

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 32;
const DIRECTORY_ENTRY_BYTES: usize = 24;
const MAX_SECTIONS: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"FBtf");
/// The version that is written, and the oldest that is read.
const VERSION: u16 = 2;
const OLDEST_VERSION: u16 = 1;
const OPTIONAL: u16 = 1;
const WHAT: &str = "a table's footer";
const TOMBSTONES: FrameKind = FrameKind { what: "range deletions", magic: *b"FBrd", version: 1 };
/// Minimum bytes of a range deletion.
const LEAST_TOMBSTONE_BYTES: usize = 10;

/// Parts of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Section {
    SparseIndex = 1,
    PointIndex = 2,
    RangeDeletions = 3,
    Properties = 4,
}

/// Whether an image ends in these bytes.
#[must_use]
pub fn ends_image(bytes: &[u8]) -> bool {
    bytes.ends_with(&MAGIC.to_le_bytes())
}

/// The offset of the tail of a whole image, according to its footer; `None` for bytes that do not end in a footer.
/// Nothing is verified here, because the tail is verified later.
#[must_use]
pub fn tail_offset(image: &[u8]) -> Option<usize> {
    let footer = image.last_chunk::<FOOTER_BYTES>()?;
    let mut reader = Reader::new(footer);
    let (image_bytes, tail_bytes) = (reader.u64().ok()?, reader.u64().ok()?);
    let is_footer = ends_image(footer) && image_bytes == image.len() as u64;
    let tail_bytes = usize::try_from(tail_bytes).ok().filter(|_| is_footer)?;
    image.len().checked_sub(tail_bytes)
}

/// Writes a tail after index blocks.
#[derive(Debug)]
pub(crate) struct TailWriter<'a> {
    image: &'a mut Vec<u8>,
    tail_offset: usize,
    directory: Vec<u8>,
    sections: u32,
}

impl<'a> TailWriter<'a> {
    /// Starts the tail after the contents of `image`.
    pub fn new(image: &'a mut Vec<u8>) -> Self {
        let tail_offset = image.len();
        Self { image, tail_offset, directory: Vec::new(), sections: 0 }
    }

    /// Appends a section.
    pub fn section(&mut self, section: Section, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let start = self.image.len();
        write(self.image)?;
        self.directory.put_u16(section as u16);
        self.directory.put_u16(0);
        self.directory.put_u32(0);
        self.directory.put_u64(start as u64);
        self.directory.put_u64((self.image.len() - start) as u64);
        self.sections += 1;
        Ok(())
    }

    /// Appends directory and footer. Returns the tail's offset.
    pub fn finish(self) -> u64 {
        let start = self.image.len();
        self.image.extend_from_slice(&self.directory);
        let length = self.image.len() + FOOTER_BYTES;
        self.image.put_u64(length as u64);
        self.image.put_u64((length - self.tail_offset) as u64);
        self.image.put_u32(self.sections);
        self.image.put_u16(VERSION);
        self.image.put_u16(0);
        let crc = checksum(&self.image[start..]);
        self.image.put_u32(crc);
        self.image.put_u32(MAGIC);
        self.tail_offset as u64
    }
}

/// The places of a tail's sections, relative to the tail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TailLayout {
    /// Bytes of index blocks before the tail.
    pub blocks_bytes: u64,
    pub sparse_index: Range<usize>,
    pub point_index: Range<usize>,
    pub range_deletions: Option<Range<usize>>,
    pub properties: Range<usize>,
}

impl TailLayout {
    /// Decodes the footer and the directory at the end of `tail`, which is a whole tail.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn parse(tail: &[u8]) -> Result<Self> {
        let inconsistent = |detail| Error::Inconsistent { what: WHAT, detail };
        let footer = tail.split_last_chunk::<FOOTER_BYTES>();
        let (rest, footer) = footer.ok_or(inconsistent("it is shorter than a footer"))?;
        let mut reader = Reader::new(footer);
        let image_bytes = reader.u64().context(WHAT)?;
        let tail_bytes = reader.u64().context(WHAT)?;
        let sections = reader.u32().context(WHAT)? as usize;
        let version = reader.u16().context(WHAT)?;
        let flags = reader.u16().context(WHAT)?;
        let expected = reader.u32().context(WHAT)?;
        if reader.u32().context(WHAT)? != MAGIC {
            return Err(inconsistent("its magic is missing"));
        }
        if sections > MAX_SECTIONS {
            return Err(inconsistent("it has too many sections"));
        }
        let sections_end = rest.len().checked_sub(sections * DIRECTORY_ENTRY_BYTES);
        let sections_end = sections_end.ok_or(inconsistent("it is shorter than its directory"))?;
        let covered = tail.get(sections_end..tail.len() - 8).unwrap_or_default();
        let found = checksum(covered);
        if found != expected {
            return Err(DecodeError::BadChecksum { what: WHAT, expected, found }).context(WHAT);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(Error::Unknown { what: WHAT, feature: "format version", number: version.into() });
        }
        if flags != 0 {
            return Err(Error::Unknown { what: WHAT, feature: "flags", number: flags.into() });
        }
        if tail_bytes != tail.len() as u64 || image_bytes < tail_bytes {
            return Err(inconsistent("its lengths are not those of the tail"));
        }
        let mut layout = Self { blocks_bytes: image_bytes - tail_bytes, ..Self::default() };
        let mut directory = Reader::new(rest.get(sections_end..).unwrap_or_default());
        while !directory.is_empty() {
            layout.add_section(&mut directory, sections_end)?;
        }
        if layout.sparse_index.is_empty() || layout.point_index.is_empty() || layout.properties.is_empty() {
            return Err(inconsistent("a section is missing"));
        }
        Ok(layout)
    }

    fn add_section(&mut self, directory: &mut Reader<'_>, sections_end: usize) -> Result<()> {
        let section = directory.u16().context(WHAT)?;
        let flags = directory.u16().context(WHAT)?;
        let reserved = directory.u32().context(WHAT)?;
        let offset = directory.u64().context(WHAT)?;
        let length = directory.u64().context(WHAT)?;
        let outside = Error::Inconsistent { what: WHAT, detail: "a section is outside of the tail" };
        let start = offset.checked_sub(self.blocks_bytes).and_then(|start| usize::try_from(start).ok());
        let end = start.zip(usize::try_from(length).ok()).and_then(|(start, length)| start.checked_add(length));
        let range = match (start, end) {
            (Some(start), Some(end)) if end <= sections_end && reserved == 0 => start..end,
            _ => return Err(outside),
        };
        match section {
            1 => self.sparse_index = range,
            2 => self.point_index = range,
            3 => self.range_deletions = Some(range),
            4 => self.properties = range,
            _ if flags & OPTIONAL != 0 => {}
            _ => return Err(Error::Unknown { what: WHAT, feature: "section", number: section.into() }),
        }
        Ok(())
    }
}

/// Appends the section of range deletions.
pub(crate) fn encode_tombstones(out: &mut Vec<u8>, tombstones: &[RangeTombstone]) -> Result<()> {
    TOMBSTONES.encode(out, |body| {
        body.put_varint(tombstones.len() as u64);
        for tombstone in tombstones {
            tombstone.encode(body);
        }
    })
}

/// Decodes the section of range deletions.
pub(crate) fn decode_tombstones(bytes: &[u8]) -> Result<Vec<RangeTombstone>> {
    let mut reader = Reader::new(TOMBSTONES.decode(bytes)?);
    read_tombstones(&mut reader).and_then(|list| reader.finish().map(|()| list)).context(TOMBSTONES.what)
}

fn read_tombstones(reader: &mut Reader<'_>) -> std::result::Result<Vec<RangeTombstone>, DecodeError> {
    let count = read_count(reader, LEAST_TOMBSTONE_BYTES)?;
    (0..count).map(|_| RangeTombstone::decode(reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tail with four sections of four bytes after 100 bytes of index blocks.
    fn sample() -> Vec<u8> {
        let mut image = vec![0; 100];
        let mut tail = TailWriter::new(&mut image);
        for section in [Section::SparseIndex, Section::PointIndex, Section::RangeDeletions, Section::Properties] {
            let write = |out: &mut Vec<u8>| {
                out.put_u32(0);
                Ok(())
            };
            tail.section(section, write).unwrap();
        }
        assert_eq!(tail.finish(), 100);
        image.split_off(100)
    }

    fn with_checksum(mut tail: Vec<u8>) -> Vec<u8> {
        let end = tail.len() - 8;
        let crc = checksum(&tail[16..end]);
        tail[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        tail
    }

    #[test]
    fn unknown_sections_are_skipped_or_refused_by_their_flag() {
        let mut tail = sample();
        let layout = TailLayout::parse(&tail).unwrap();
        assert_eq!((layout.blocks_bytes, layout.range_deletions, layout.properties), (100, Some(8..12), 12..16));
        tail[16 + 2 * DIRECTORY_ENTRY_BYTES] = 9;
        let error = TailLayout::parse(&with_checksum(tail.clone())).unwrap_err();
        assert_eq!(error, Error::Unknown { what: WHAT, feature: "section", number: 9 });
        tail[16 + 2 * DIRECTORY_ENTRY_BYTES + 2] = 1;
        assert_eq!(TailLayout::parse(&with_checksum(tail)).unwrap().range_deletions, None);
    }

    proptest! {
        #[test]
        fn any_directory_is_parsed_without_panic(changes in prop::collection::vec((16usize..136, any::<u8>()), 1..6)) {
            let mut tail = sample();
            for (at, byte) in changes {
                tail[at] = byte;
            }
            let tail = with_checksum(tail);
            if let Ok(layout) = TailLayout::parse(&tail) {
                prop_assert!(layout.point_index.end <= tail.len());
            }
        }

        #[test]
        fn any_range_deletions_decode_without_panic(bytes in prop::collection::vec(0u8..20, 0..60)) {
            let mut frame = Vec::new();
            TOMBSTONES.encode(&mut frame, |body| body.extend_from_slice(&bytes)).unwrap();
            let _ = decode_tombstones(&frame);
        }
    }

    #[test]
    fn golden_range_deletions() {
        let tag = forebay_base::Tag::new(forebay_base::SequenceNumber(3), forebay_base::Kind::RangeDelete, false);
        let list = vec![RangeTombstone { start: b"a".to_vec(), end: b"c".to_vec(), tag }];
        let mut out = Vec::new();
        encode_tombstones(&mut out, &list).unwrap();
        let expected: &[u8] =
            &[b'F', b'B', b'r', b'd', 1, 0, 0, 0, 13, 0, 0, 0, 1, 1, b'a', 1, b'c', 2, 3, 0, 0, 0, 0, 0, 0];
        assert_eq!(&out[..out.len() - 4], expected);
        assert_eq!(decode_tombstones(&out), Ok(list));
    }
}
