//! Checkpoints: the contents of a database at one moment, in a file (dLSM VIII).
//!
//! ```text
//!  header   frame FBCH
//!  blocks   frames FBCB, one after another, keys in order over all of them
//!  footer   frame FBCF: the sections, which are runs of whole blocks
//!  trailer  32 bytes
//! ```
//!
//! Sections are independent of each other, so several threads can load a checkpoint.
//!
//! ```text
//!  header's body    fields: 1 name of the key order after its length (varint)
//!                           2 name of the merge operator, the same; only of a database that has one, and optional
//!  block's body     varint entries; each: varint length of the key, varint length of the value,
//!                   key, value
//!                   version 2, for blocks with entries that expire, continues: varint entries that do;
//!                   each: varint its place, u64 milliseconds since 1970
//!  footer's body    fields: 1 u64 entries in all
//!                           2 a section, repeated: u64 offset in the file, u64 bytes, u64 entries
//!
//!  trailer, offset  size  field
//!           0       8     offset of the footer in the file
//!           8       8     length of the footer's frame
//!           16      4     format version of the file
//!           20      4     CRC32C of the 20 bytes before
//!           24      8     magic
//! ```
//!
//! Purpose and golden test: `docs/formats/checkpoint.md`.

use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, HEADER_BYTES, Need, TRAILER_BYTES, for_each_field, put_field, read_count, read_text};
use crate::version_edit::read_key_order_name;
use forebay_base::{DecodeError, KeyOrder, Reader, Writer, checksum};

const HEADER: FrameKind = FrameKind { what: "the header of a checkpoint", magic: *b"FBCH", version: 1 };
const BLOCK: FrameKind = FrameKind { what: "a block of a checkpoint", magic: *b"FBCB", version: 1 };
/// As [`BLOCK`], for blocks with entries that expire.
const EXPIRING_BLOCK: FrameKind = FrameKind { version: 2, ..BLOCK };
const FOOTER: FrameKind = FrameKind { what: "the footer of a checkpoint", magic: *b"FBCF", version: 1 };
const TRAILER: &str = "the end of a checkpoint";
const MAGIC: [u8; 8] = *b"FBCKPT\r\n";
const VERSION: u32 = 1;

/// Bytes at the end of the file.
pub const TRAILER_LENGTH: u64 = 32;
/// Bytes before a block that give its length.
pub const BLOCK_HEADER_LENGTH: usize = HEADER_BYTES;
/// Longest header that is read, in bytes.
pub const MAX_HEADER_BYTES: u64 = 1 << 20;

/// What a checkpoint says of its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The order of its keys.
    pub key_order: KeyOrder,
    /// The name of its merge operator, if it has one.
    pub merge_operator: Option<String>,
}

/// Encodes a header.
///
/// # Errors
/// [`Error::Invalid`] when it reaches 4 GiB.
pub fn encode_header(header: &Header) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    HEADER.encode(&mut out, |body| {
        put_field(body, 1, Need::Mandatory, |out| out.put_prefixed(header.key_order.name().as_bytes()));
        if let Some(name) = &header.merge_operator {
            put_field(body, 2, Need::Optional, |out| out.put_prefixed(name.as_bytes()));
        }
    })?;
    Ok(out)
}

/// Decodes a header.
///
/// # Errors
/// [`Error::Damaged`] or [`Error::Unknown`].
pub fn decode_header(bytes: &[u8]) -> Result<Header> {
    let (mut order, mut merge_operator) = (None, None);
    for_each_field(HEADER.decode(bytes)?, HEADER.what, |number, value| {
        match number {
            1 => order = Some(read_key_order_name(value).context(HEADER.what)?),
            2 => merge_operator = Some(read_text(value, "name of the merge operator").context(HEADER.what)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let key_order = order.ok_or(Error::Inconsistent { what: HEADER.what, detail: "it names no key order" })?;
    Ok(Header { key_order, merge_operator })
}

/// An entry of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Until when the key has the value, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
}

/// Entries of a block being written.
#[derive(Debug, Default)]
pub struct BlockWriter {
    entries: Vec<u8>,
    count: u64,
    /// Places of entries that expire, and when.
    expiries: Vec<(u64, u64)>,
}

impl BlockWriter {
    /// Adds an entry.
    pub fn push(&mut self, entry: BlockEntry<'_>) {
        let BlockEntry { key, value, expiry_ms } = entry;
        self.expiries.extend(expiry_ms.map(|expiry_ms| (self.count, expiry_ms)));
        self.entries.put_varint(key.len() as u64);
        self.entries.put_varint(value.len() as u64);
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        self.count += 1;
    }

    /// Number of entries so far.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the entries so far.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.entries.len()
    }

    /// Appends the block to `out`, and begins the next one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it reaches 4 GiB.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let kind = if self.expiries.is_empty() { BLOCK } else { EXPIRING_BLOCK };
        kind.encode(out, |body| {
            body.put_varint(self.count);
            body.extend_from_slice(&self.entries);
            if !self.expiries.is_empty() {
                body.put_varint(self.expiries.len() as u64);
                for (place, expiry_ms) in &self.expiries {
                    body.put_varint(*place);
                    body.put_u64(*expiry_ms);
                }
            }
        })?;
        self.entries.clear();
        self.expiries.clear();
        self.count = 0;
        Ok(())
    }
}

/// A block ends at this many bytes of entries.
const BLOCK_BYTES: usize = 256 << 10;
/// A section ends at this many bytes of blocks.
const SECTION_BYTES: u64 = 32 << 20;

/// Writes a whole checkpoint as a stream of bytes. The next bytes are appended to a buffer of the caller, who empties it.
#[derive(Debug)]
pub struct StreamWriter {
    block: BlockWriter,
    section: Section,
    footer: Footer,
    /// Bytes written so far.
    offset: u64,
}

impl StreamWriter {
    /// Begins a checkpoint with this header.
    ///
    /// # Errors
    /// As [`encode_header`].
    pub fn begin(header: &Header, out: &mut Vec<u8>) -> Result<Self> {
        let header = encode_header(header)?;
        out.extend_from_slice(&header);
        let offset = header.len() as u64;
        let section = Section { offset, ..Section::default() };
        Ok(Self { block: BlockWriter::default(), section, footer: Footer::default(), offset })
    }

    /// Adds an entry. Entries come in key order, each key once.
    ///
    /// # Errors
    /// As [`BlockWriter::finish`].
    pub fn push(&mut self, entry: BlockEntry<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.block.push(entry);
        if self.block.size_bytes() >= BLOCK_BYTES { self.end_block(out) } else { Ok(()) }
    }

    /// Ends the checkpoint. Returns its sections, and its length in bytes.
    ///
    /// # Errors
    /// As [`BlockWriter::finish`].
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(Footer, u64)> {
        self.end_block(out)?;
        self.end_section();
        let before = out.len();
        self.footer.encode(self.offset, out)?;
        Ok((self.footer, self.offset + (out.len() - before) as u64))
    }

    fn end_block(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.block.count() == 0 {
            return Ok(());
        }
        self.section.entries += self.block.count();
        let before = out.len();
        self.block.finish(out)?;
        let written = (out.len() - before) as u64;
        self.offset += written;
        self.section.length += written;
        if self.section.length >= SECTION_BYTES {
            self.end_section();
        }
        Ok(())
    }

    fn end_section(&mut self) {
        let next = Section { offset: self.offset, ..Section::default() };
        let ended = std::mem::replace(&mut self.section, next);
        if ended.entries > 0 {
            self.footer.sections.push(ended);
        }
    }
}

/// Whether a checkpoint begins with these bytes.
#[must_use]
pub fn begins_checkpoint(bytes: &[u8]) -> bool {
    bytes.starts_with(&HEADER.magic)
}

/// Whether a footer begins with these bytes.
#[must_use]
pub fn begins_footer(bytes: &[u8]) -> bool {
    bytes.starts_with(&FOOTER.magic)
}

/// Length of the whole block that begins with these [`BLOCK_HEADER_LENGTH`] bytes.
///
/// # Errors
/// [`Error::Damaged`] when it is more than `most`, or the bytes do not begin a block.
pub fn block_length(header: &[u8], most: u64) -> Result<usize> {
    let length = |reader: &mut Reader<'_>| {
        let magic = reader.u32()?;
        if magic != u32::from_le_bytes(BLOCK.magic) {
            return Err(DecodeError::BadValue { what: "magic", found: magic.into() });
        }
        reader.u32()?;
        let length = u64::from(reader.u32()?) + (HEADER_BYTES + TRAILER_BYTES) as u64;
        if length > most {
            return Err(DecodeError::BadValue { what: "length of a block", found: length });
        }
        Ok(length as usize)
    };
    length(&mut Reader::new(header)).context(BLOCK.what)
}

/// The entries of a block.
///
/// # Errors
/// [`Error::Damaged`] or [`Error::Unknown`].
pub fn decode_block(bytes: &[u8]) -> Result<Vec<BlockEntry<'_>>> {
    let expires = bytes.get(4..6) == Some(&EXPIRING_BLOCK.version.to_le_bytes());
    let mut reader = Reader::new(if expires { EXPIRING_BLOCK } else { BLOCK }.decode(bytes)?);
    let mut entries = || {
        let count = read_count(&mut reader, 2)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let lengths = (reader.varint64()?, reader.varint64()?);
            let length =
                |length| usize::try_from(length).map_err(|_| DecodeError::BadValue { what: "length", found: length });
            let (key, value) = (reader.bytes(length(lengths.0)?)?, reader.bytes(length(lengths.1)?)?);
            entries.push(BlockEntry { key, value, expiry_ms: None });
        }
        let count = if expires { read_count(&mut reader, 9)? } else { 0 };
        for _ in 0..count {
            let (place, expiry_ms) = (reader.varint64()?, reader.u64()?);
            let entry = usize::try_from(place).ok().and_then(|place| entries.get_mut(place));
            let entry = entry.ok_or(DecodeError::BadValue { what: "place of an entry", found: place })?;
            entry.expiry_ms = Some(expiry_ms);
        }
        reader.finish()?;
        Ok(entries)
    };
    entries().context(BLOCK.what)
}

/// A run of whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Section {
    /// Offset of its first block in the file.
    pub offset: u64,
    /// Bytes of its blocks.
    pub length: u64,
    /// Number of entries in its blocks.
    pub entries: u64,
}

/// The table of contents of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footer {
    /// The sections, in the order of their keys.
    pub sections: Vec<Section>,
}

impl Footer {
    /// Number of entries of all sections.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.sections.iter().map(|section| section.entries).fold(0, u64::saturating_add)
    }

    /// Appends footer and trailer to `out`; the footer begins at `offset` of the file.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it reaches 4 GiB.
    pub fn encode(&self, offset: u64, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        FOOTER.encode(out, |body| {
            put_field(body, 1, Need::Mandatory, |out| out.put_u64(self.entries()));
            for section in &self.sections {
                put_field(body, 2, Need::Mandatory, |out| {
                    out.put_u64(section.offset);
                    out.put_u64(section.length);
                    out.put_u64(section.entries);
                });
            }
        })?;
        let length = (out.len() - start) as u64;
        let end = out.len();
        out.put_u64(offset);
        out.put_u64(length);
        out.put_u32(VERSION);
        let crc = checksum(out.get(end..).unwrap_or_default());
        out.put_u32(crc);
        out.extend_from_slice(&MAGIC);
        Ok(())
    }

    /// Offset and length of the footer of a file of `file_bytes`, from the file's last
    /// [`TRAILER_LENGTH`] bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is not a checkpoint or not a whole one; [`Error::Unknown`].
    pub fn locate(trailer: &[u8], file_bytes: u64) -> Result<(u64, usize)> {
        let mut reader = Reader::new(trailer);
        let mut read = || {
            let covered = trailer.get(..20).unwrap_or_default();
            let (offset, length, version, expected) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u32()?);
            if reader.bytes(8)? != MAGIC {
                return Err(DecodeError::BadValue { what: "magic", found: 0 });
            }
            let found = checksum(covered);
            if found != expected {
                return Err(DecodeError::BadChecksum { what: TRAILER, expected, found });
            }
            let end = offset.checked_add(length).and_then(|end| end.checked_add(TRAILER_LENGTH));
            match usize::try_from(length) {
                Ok(length) if end == Some(file_bytes) => Ok((offset, length, version)),
                _ => Err(DecodeError::BadValue { what: "place of the footer", found: offset }),
            }
        };
        let (offset, length, version) = read().context(TRAILER)?;
        if version != VERSION {
            return Err(Error::Unknown { what: TRAILER, feature: "format version", number: version.into() });
        }
        Ok((offset, length))
    }

    /// Decodes a footer that begins at `offset` of the file, after a header of `header_bytes`.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Unknown`], [`Error::Inconsistent`].
    pub fn decode(bytes: &[u8], header_bytes: u64, offset: u64) -> Result<Self> {
        let mut footer = Self::default();
        let mut entries = None;
        for_each_field(FOOTER.decode(bytes)?, FOOTER.what, |number, value| {
            match number {
                1 => entries = Some(value.u64().context(FOOTER.what)?),
                2 => footer.sections.push(Section::decode(value).context(FOOTER.what)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let inconsistent = |detail| Err(Error::Inconsistent { what: FOOTER.what, detail });
        if entries != Some(footer.entries()) {
            return inconsistent("its sections have another number of entries than it says");
        }
        let mut end = header_bytes;
        for section in &footer.sections {
            if section.offset != end {
                return inconsistent("its sections do not follow one another");
            }
            end = end.saturating_add(section.length);
        }
        if end != offset {
            return inconsistent("its sections do not fill the file");
        }
        Ok(footer)
    }
}

impl Section {
    fn decode(value: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(Self { offset: value.u64()?, length: value.u64()?, entries: value.u64()? })
    }
}

/// Length of a header, from its first [`BLOCK_HEADER_LENGTH`] bytes.
///
/// # Errors
/// [`Error::Damaged`] when it is more than `most`.
pub fn header_length(bytes: &[u8], most: u64) -> Result<usize> {
    let length = |reader: &mut Reader<'_>| {
        reader.u64()?;
        let length = u64::from(reader.u32()?) + (HEADER_BYTES + TRAILER_BYTES) as u64;
        if length > most {
            return Err(DecodeError::BadValue { what: "length of a header", found: length });
        }
        Ok(length as usize)
    };
    length(&mut Reader::new(bytes)).context(HEADER.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes() {
        let plain = Header { key_order: KeyOrder::Bytewise, merge_operator: None };
        let header = encode_header(&plain).unwrap();
        let mut block = BlockWriter::default();
        let entry = |key: &'static [u8], value: &'static [u8]| BlockEntry { key, value, expiry_ms: None };
        block.push(entry(b"a", b"1"));
        block.push(entry(b"", b""));
        let mut bytes = Vec::new();
        block.finish(&mut bytes).unwrap();
        let section = Section { offset: header.len() as u64, length: bytes.len() as u64, entries: 2 };
        let footer = Footer { sections: vec![section] };
        let offset = section.offset + section.length;
        let mut end = Vec::new();
        footer.encode(offset, &mut end).unwrap();
        assert_eq!(hex(&header), "46424348010000000b0000000209086279746577697365ee81943a");
        assert_eq!(hex(&bytes), "4642434201000000070000000201016131000084b750df");
        assert_eq!(
            hex(&end),
            "4642434601000000240000000208020000000000000004181b0000000000000017000000000000000200000000000000087a8de6\
             32000000000000003400000000000000010000004c0aa66f4642434b50540d0a"
        );
        assert_eq!(decode_header(&header), Ok(plain));
        assert_eq!(header_length(&header[..12], 1000), Ok(header.len()));
        assert_eq!(block_length(&bytes[..12], 1000), Ok(bytes.len()));
        assert_eq!(decode_block(&bytes).unwrap(), [entry(b"a", b"1"), entry(b"", b"")]);
        let split = end.len() - TRAILER_LENGTH as usize;
        let file_bytes = offset + end.len() as u64;
        assert_eq!(Footer::locate(&end[split..], file_bytes), Ok((offset, split)));
        assert!(Footer::locate(&end[split..], file_bytes - 1).is_err());
        assert_eq!(Footer::decode(&end[..split], section.offset, offset), Ok(footer));
    }

    #[test]
    fn golden_header_with_a_merge_operator() {
        let merging = Header { key_order: KeyOrder::Bytewise, merge_operator: Some("counter".to_owned()) };
        let header = encode_header(&merging).unwrap();
        let without_checksum = header.len() - TRAILER_BYTES;
        assert_eq!(
            hex(&header[..without_checksum]),
            "4642434801000000150000000209086279746577697365050807636f756e746572"
        );
        assert_eq!(decode_header(&header), Ok(merging));
    }

    #[test]
    fn golden_bytes_of_expiring_entries() {
        let entries = [
            BlockEntry { key: b"a", value: b"1", expiry_ms: None },
            BlockEntry { key: b"b", value: b"", expiry_ms: Some(0x0102) },
        ];
        let mut block = BlockWriter::default();
        entries.into_iter().for_each(|entry| block.push(entry));
        let mut bytes = Vec::new();
        block.finish(&mut bytes).unwrap();
        assert_eq!(hex(&bytes), "464243420200000012000000020101613101006201010201000000000000b95e06a5");
        assert_eq!(decode_block(&bytes).unwrap(), entries);
        assert_eq!(block.expiries.len(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode_header(&bytes);
            let _ = block_length(&bytes, 100);
            let _ = header_length(&bytes, 100);
            let _ = decode_block(&bytes);
            let _ = Footer::locate(&bytes, 100);
            let _ = Footer::decode(&bytes, 0, 100);
            for kind in [HEADER, BLOCK, EXPIRING_BLOCK, FOOTER] {
                let mut framed = Vec::new();
                kind.encode(&mut framed, |body| body.extend_from_slice(&bytes)).unwrap();
                let _ = decode_header(&framed);
                let _ = decode_block(&framed);
                let _ = Footer::decode(&framed, 0, 100);
            }
        }
    }
}
