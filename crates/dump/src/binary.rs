//! The binary form: the bytes of a checkpoint (`docs/formats/checkpoint.md`), as a stream.
//!
//! A dump in this form can be restored as a checkpoint, and a checkpoint loaded as a dump. It is read from start to end,
//! also from a pipe. Each block is verified before its entries are used, and the footer at the end says whether the dump
//! was complete.
//!
//! What the form is for: `docs/formats/dump.md`.

use crate::entry::Entry;
use crate::error::{Error, Result};
use forebay::KeyOrder;
use forebay_table::checkpoint::{
    BLOCK_HEADER_LENGTH, BlockEntry, Footer, Header, MAX_HEADER_BYTES, StreamWriter, TRAILER_LENGTH, begins_footer,
    block_length, decode_block, decode_header, header_length,
};
use std::io::Read;

/// Longest block that is read, in bytes: one entry may be as long as a value can be.
const MAX_BLOCK_BYTES: u64 = 128 << 20;
/// Longest footer that is read, in bytes.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// Writes a dump. Each call appends the bytes to write next to a buffer.
#[derive(Debug)]
pub struct Writer(StreamWriter);

impl Writer {
    /// Begins a dump of keys in this order, of a database with this merge operator.
    ///
    /// # Errors
    /// None: a header is short.
    pub fn begin(key_order: KeyOrder, merge_operator: Option<&str>, out: &mut Vec<u8>) -> Result<Self> {
        let header = Header { key_order, merge_operator: merge_operator.map(str::to_owned) };
        StreamWriter::begin(&header, out).map(Self).map_err(below)
    }

    /// Adds an entry. Keys come in order.
    ///
    /// # Errors
    /// `Invalid` when a block reaches 4 GiB.
    pub fn push(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<()> {
        let entry = BlockEntry { key: &entry.key, value: &entry.value, expiry_ms: entry.expiry_ms };
        self.0.push(entry, out).map_err(below)
    }

    /// Ends the dump.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn finish(self, out: &mut Vec<u8>) -> Result<()> {
        self.0.finish(out).map(drop).map_err(below)
    }
}

fn below(error: forebay_table::Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

/// A block that was read, and not verified.
#[derive(Debug)]
pub struct Block {
    /// Which block it is, from 1.
    pub number: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Its entries.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged.
    pub fn entries(&self) -> Result<Vec<Entry<'_>>> {
        let entries = decode_block(&self.bytes).map_err(below)?;
        let entry = |BlockEntry { key, value, expiry_ms }| Entry { key: key.into(), value: value.into(), expiry_ms };
        Ok(entries.into_iter().map(entry).collect())
    }
}

/// Reads a dump block by block.
#[derive(Debug)]
pub struct Blocks<R> {
    input: R,
    header_bytes: u64,
    /// Bytes read so far.
    offset: u64,
    number: u64,
    has_ended: bool,
    footer: Option<Footer>,
}

impl<R: Read> Blocks<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// `Corrupt` when the input is no dump; `Io`.
    pub fn begin(input: R) -> Result<Self> {
        let mut blocks = Self { input, header_bytes: 0, offset: 0, number: 0, has_ended: false, footer: None };
        let no_dump = |error: Error| error.at("it is no dump in the binary form");
        let mut header = blocks.exactly(BLOCK_HEADER_LENGTH as u64).map_err(no_dump)?;
        let length = header_length(&header, MAX_HEADER_BYTES).map_err(|error| no_dump(below(error)))?;
        header.extend(blocks.exactly((length - BLOCK_HEADER_LENGTH) as u64).map_err(no_dump)?);
        decode_header(&header).map_err(|error| no_dump(below(error)))?;
        blocks.header_bytes = blocks.offset;
        Ok(blocks)
    }

    /// Returns the next block; `None` when all have been read, and the footer says that none is missing.
    ///
    /// # Errors
    /// `Corrupt` when the dump was cut, or its frames are out of sequence: nothing can be read after that. `Io`.
    pub fn read(&mut self) -> Result<Option<Block>> {
        if self.has_ended {
            return Ok(None);
        }
        self.has_ended = true;
        let mut bytes = self.exactly(BLOCK_HEADER_LENGTH as u64)?;
        if begins_footer(&bytes) {
            return self.end(bytes).map(|()| None);
        }
        let length = block_length(&bytes, MAX_BLOCK_BYTES).map_err(|error| below(error).at(self.place()))?;
        bytes.extend(self.exactly((length - BLOCK_HEADER_LENGTH) as u64)?);
        self.number += 1;
        self.has_ended = false;
        Ok(Some(Block { number: self.number, bytes }))
    }

    /// Returns how many bytes were read.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how many entries the footer counts, once it was read.
    #[must_use]
    pub fn entries(&self) -> Option<u64> {
        self.footer.as_ref().map(Footer::entries)
    }

    fn end(&mut self, mut bytes: Vec<u8>) -> Result<()> {
        let offset = self.offset - bytes.len() as u64;
        let mut rest = Vec::new();
        let read = (&mut self.input).take(MAX_FOOTER_BYTES).read_to_end(&mut rest);
        read.map_err(|cause| Error::io("reading the dump", &cause))?;
        bytes.extend(rest);
        let total = offset + bytes.len() as u64;
        let damaged = |error| below(error).at("the end of the dump");
        let at_trailer = bytes.len().saturating_sub(TRAILER_LENGTH as usize);
        let (footer, trailer) = bytes.split_at(at_trailer);
        let (found, _) = Footer::locate(trailer, total).map_err(damaged)?;
        let footer = Footer::decode(footer, self.header_bytes, offset).map_err(damaged)?;
        if found != offset {
            return Err(Error::corrupt("the end of the dump: it names another place of its footer"));
        }
        self.footer = Some(footer);
        Ok(())
    }

    fn place(&self) -> String {
        format!("block {} of the dump", self.number + 1)
    }

    fn exactly(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length).read_to_end(&mut bytes);
        let read = read.map_err(|cause| Error::io("reading the dump", &cause))? as u64;
        self.offset += read;
        if read < length {
            return Err(Error::corrupt(format!("{}: the dump ends before it is complete", self.place())));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dump(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::begin(KeyOrder::Bytewise, None, &mut out).unwrap();
        entries.iter().for_each(|entry| writer.push(entry, &mut out).unwrap());
        writer.finish(&mut out).unwrap();
        out
    }

    fn read(bytes: &[u8]) -> Result<u64> {
        let mut blocks = Blocks::begin(bytes)?;
        let mut found = 0;
        while let Some(block) = blocks.read()? {
            found += block.entries()?.len() as u64;
        }
        assert_eq!(blocks.entries(), Some(found));
        Ok(found)
    }

    #[test]
    fn a_dump_is_whole_or_an_error() {
        let value = vec![7; 100 << 10];
        let entry = |key: u8| Entry {
            key: vec![key].into(),
            value: value.as_slice().into(),
            expiry_ms: (key == 3).then_some(9),
        };
        let entries: Vec<_> = (0..8).map(entry).collect();
        let bytes = dump(&entries);
        assert_eq!(read(&bytes), Ok(8));
        for cut in [0, 5, 20, 300 << 10, bytes.len() - 40, bytes.len() - 1] {
            assert_eq!(read(&bytes[..cut]).unwrap_err().kind(), forebay::ErrorKind::Corrupt, "{cut}");
        }
        for at in [3, 20, 100, 400 << 10, bytes.len() - 50, bytes.len() - 20, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(read(&damaged).is_err(), "{at}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(read(&longer).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, at in 0usize..100) {
            let _ = read(&bytes);
            let mut damaged = dump(&[Entry { key: b"a".into(), value: b"b".into(), expiry_ms: None }]);
            damaged.truncate(at.max(27));
            damaged.extend(bytes);
            let _ = read(&damaged);
        }
    }
}
