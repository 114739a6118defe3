//! Short scan: finds the first entries from a key on, over several tables at once, where the tables are stored (O3-LSM
//! 4.5).
//!
//! A seek of a compute node reads an index block of each level, one level after the other, and then records. Here the node
//! that holds the memory merges the blocks, and answers with the records of the first few keys, or with their addresses
//! where they are long. The compute node merges the answer with its memtables, and decides what range deletions and expiry
//! hide.
//!
//! A source is a table of level 0, or what follows in the tables of another level. It names the next few blocks. If the
//! blocks end before the source does, the answer also ends there, and the compute node continues by itself after the
//! answer's last key.
//!
//! ```text
//!  arguments
//!  u8      version, 1
//!  u8      key order
//!  varint  bytes of the longest record that the result is to hold
//!  varint  number of entries, at most
//!  the key to begin at after its length (varint), varint sequence number of the read
//!  varint  number of tables, then for each: as in a search (see `search`)
//!  varint  number of sources, then for each
//!          u8 1 if it continues after its blocks, else 0
//!          varint number of blocks, then for each: varint table, varint offset in its image, varint length in bytes
//!
//!  result
//!  u8      version, 1
//!  varint  calls and jobs that waited where the scan ran
//!  u8      1 if nothing follows in any source, else 0
//!  varint  number of entries, then for each, in key order
//!          varint table, varint tag, varint ordinal of the segment, varint offset in units of 8 bytes
//!          varint length of the record, u8 1 if it follows, else 0
//!          the record without padding; or the key after its length (varint), and u64 expiry if the tag says so
//! ```
//!
//! The envelope of the call has a checksum. Purpose and golden test: `docs/formats/search.md`.

use super::search::{
    Decoded, MAX_HIT_BYTES, MAX_RESULT_BYTES, MAX_SEARCHED_BYTES, SearchIo, SearchedBlock, SearchedTable,
    check_version, decode_blocks, decode_tables, encode_blocks, encode_tables, image_of, read_record,
};
use crate::block::BlockIterator;
use crate::entry::{IndexEntry, MAX_OFFSET_UNITS, MAX_RECORD_BYTES, RecordAddress};
use crate::error::{Context, Error, Result};
use crate::frame::{read_count, read_flag};
use crate::merge::{Direction, Merge, SortedStream};
use forebay_base::{DecodeError, InternalKey, KeyOrder, Kind, MAX_KEY_BYTES, Reader, SequenceNumber, Tag, Writer};
use std::cell::RefCell;

const WHAT: &str = "a short scan";
const VERSION: u8 = 1;
/// Most entries of a short scan.
pub const MAX_SCANNED_ENTRIES: u32 = 1024;
/// Most bytes of keys that a short scan passes over, whether it returns them or not. Keys with prefixes in common may have
/// thousands of times as many bytes as their blocks.
const MAX_PASSED_KEY_BYTES: usize = 16 << 20;
/// Most sources of a short scan.
const MAX_SCANNED_SOURCES: usize = 4096;

/// A table of level 0, or the tables of another level, from the scan's first key on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedSource {
    /// Its next blocks, in key order.
    pub blocks: Vec<SearchedBlock>,
    /// Whether it may have further entries after these blocks.
    pub goes_on: bool,
}

/// The arguments of a short scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortScanJob {
    /// Order of the keys.
    pub key_order: KeyOrder,
    /// Length of the longest record that the result includes, in bytes; of longer ones it has the addresses.
    pub inline_bytes: u32,
    /// Number of entries wanted, at most [`MAX_SCANNED_ENTRIES`].
    pub most_entries: u32,
    /// The key to begin at.
    pub from: Vec<u8>,
    /// The sequence number of the read: newer records are passed over.
    pub number: SequenceNumber,
    /// The tables.
    pub tables: Vec<SearchedTable>,
    /// The sources to merge.
    pub sources: Vec<ScannedSource>,
}

/// The newest entry of a key that the read may see. It sets a value, or is an operand of a merge, after which the compute
/// node continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedEntry {
    /// Position of its table in [`ShortScanJob::tables`].
    pub table: u32,
    /// Its sequence number and kind.
    pub tag: Tag,
    /// The record's place in the table.
    pub address: RecordAddress,
    /// The record's length in bytes, without padding.
    pub length: u32,
    /// The record, or what the scan needs to know until it reads it.
    pub body: ScannedBody,
}

/// See [`ScannedEntry::body`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScannedBody {
    /// The record, without padding.
    Record(Vec<u8>),
    /// The record is too long.
    Key {
        /// Its key.
        user_key: Vec<u8>,
        /// Milliseconds since 1970 after which it counts as deleted.
        expiry_ms: Option<u64>,
    },
}

/// The result of a short scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShortScanResult {
    /// Number of calls and jobs that waited where the scan ran.
    pub waiting: u32,
    /// Whether nothing follows in any source.
    pub is_whole: bool,
    /// The entries, in key order.
    pub entries: Vec<ScannedEntry>,
}

impl ShortScanJob {
    /// Most bytes of blocks that the scan reads.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let blocks = self.sources.iter().flat_map(|source| &source.blocks);
        blocks.map(|scanned| u64::from(scanned.block.length)).sum()
    }

    /// Most bytes of records that the result holds.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        u64::from(self.most_entries) * u64::from(self.inline_bytes)
    }

    /// Appends the arguments to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.key_order as u8);
        out.put_varint(self.inline_bytes.into());
        out.put_varint(self.most_entries.into());
        out.put_prefixed(&self.from);
        out.put_varint(self.number.0);
        encode_tables(&self.tables, out);
        out.put_varint(self.sources.len() as u64);
        for source in &self.sources {
            out.put_u8(source.goes_on.into());
            encode_blocks(&source.blocks, out);
        }
    }

    /// Decodes arguments.
    ///
    /// # Errors
    /// [`Error::Damaged`], also for more entries or bytes than allowed; [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader, WHAT)?;
        let job = Self::decode_rest(&mut reader).context(WHAT)?;
        match job.block_bytes() {
            0..=MAX_SEARCHED_BYTES => Ok(job),
            found => Err(DecodeError::BadValue { what: "bytes to scan", found }).context(WHAT),
        }
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Decoded<Self> {
        let bad = |what, found| DecodeError::BadValue { what, found };
        let order = reader.u8()?;
        let key_order = KeyOrder::from_number(order).ok_or(bad("key order", order.into()))?;
        let inline_bytes = reader.varint32()?;
        let most_entries = reader.varint32()?;
        if most_entries > MAX_SCANNED_ENTRIES {
            return Err(bad("number of entries", most_entries.into()));
        }
        let from = reader.prefixed()?.to_vec();
        if from.len() > MAX_KEY_BYTES {
            return Err(bad("length of a key", from.len() as u64));
        }
        let number = SequenceNumber(reader.varint64()?);
        if number > SequenceNumber::MAX {
            return Err(bad("sequence number", number.0));
        }
        let tables = decode_tables(reader)?;
        let count = read_count(reader, 2)?;
        if count > MAX_SCANNED_SOURCES {
            return Err(bad("number of sources", count as u64));
        }
        let mut sources = Vec::new();
        for _ in 0..count {
            let goes_on = read_flag(reader, "whether a source goes on")?;
            sources.push(ScannedSource { blocks: decode_blocks(reader, tables.len())?, goes_on });
        }
        reader.finish()?;
        Ok(Self { key_order, inline_bytes, most_entries, from, number, tables, sources })
    }
}

impl ShortScanResult {
    /// Appends the result to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_varint(self.waiting.into());
        out.put_u8(self.is_whole.into());
        out.put_varint(self.entries.len() as u64);
        for entry in &self.entries {
            out.put_varint(entry.table.into());
            out.put_varint(entry.tag.word());
            out.put_varint(entry.address.ordinal.into());
            out.put_varint(entry.address.offset_units);
            out.put_varint(entry.length.into());
            match &entry.body {
                ScannedBody::Record(record) => {
                    out.put_u8(1);
                    out.extend_from_slice(record);
                }
                ScannedBody::Key { user_key, expiry_ms } => {
                    out.put_u8(0);
                    out.put_prefixed(user_key);
                    expiry_ms.iter().for_each(|&expiry_ms| out.put_u64(expiry_ms));
                }
            }
        }
    }

    /// Decodes a result.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader, WHAT)?;
        Self::decode_rest(&mut reader).context(WHAT)
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Decoded<Self> {
        let waiting = reader.varint32()?;
        let is_whole = read_flag(reader, "whether nothing follows")?;
        let entries = (0..read_count(reader, 7)?).map(|_| ScannedEntry::decode(reader)).collect::<Decoded<_>>()?;
        reader.finish()?;
        Ok(Self { waiting, is_whole, entries })
    }
}

impl ScannedEntry {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let bad = |what, found| DecodeError::BadValue { what, found };
        let table = reader.varint32()?;
        let word = reader.varint64()?;
        let tag = Tag::from_word(word).ok_or(bad("tag", word))?;
        let address = RecordAddress { ordinal: reader.varint32()?, offset_units: reader.varint64()? };
        if address.offset_units >= MAX_OFFSET_UNITS {
            return Err(bad("record offset", address.offset_units));
        }
        let length = reader.varint32()?;
        if length as usize > MAX_RECORD_BYTES {
            return Err(bad("record length", length.into()));
        }
        let body = if read_flag(reader, "whether a record follows")? {
            ScannedBody::Record(reader.bytes(length as usize)?.to_vec())
        } else {
            let user_key = reader.prefixed()?.to_vec();
            if user_key.len() > MAX_KEY_BYTES {
                return Err(bad("length of a key", user_key.len() as u64));
            }
            ScannedBody::Key { user_key, expiry_ms: if tag.has_expiry() { Some(reader.u64()?) } else { None } }
        };
        Ok(Self { table, tag, address, length, body })
    }
}

/// The memory, which all sources read.
type SharedIo<'i> = RefCell<&'i mut dyn SearchIo>;

/// A source, at its current entry.
struct Stream<'j, 'i> {
    job: &'j ShortScanJob,
    io: &'j SharedIo<'i>,
    source: &'j ScannedSource,
    /// Number of the source's blocks that were opened.
    opened: usize,
    table: u32,
    entries: Option<BlockIterator<Vec<u8>>>,
}

impl Stream<'_, '_> {
    /// Goes to the first entry of the next block, or to its first entry from `target` on; to none after the last
    /// block.
    fn open(&mut self, target: Option<InternalKey<'_>>) -> Result<()> {
        self.entries = None;
        let Some(scanned) = self.source.blocks.get(self.opened) else { return Ok(()) };
        self.opened += 1;
        let mut bytes = vec![0; scanned.block.length as usize];
        self.io.borrow_mut().read(image_of(&self.job.tables, scanned)?, &mut bytes)?;
        let mut entries = BlockIterator::new(bytes)?;
        match target {
            Some(target) => entries.seek(self.job.key_order, target)?,
            None => entries.seek_to_first()?,
        }
        self.table = scanned.table;
        self.entries = Some(entries);
        Ok(())
    }

    fn entry(&self) -> Option<IndexEntry<'_>> {
        self.entries.as_ref()?.entry()
    }

    /// Opens blocks until there is an entry.
    fn settle(&mut self, target: Option<InternalKey<'_>>) -> Result<()> {
        while self.entry().is_none() && self.opened < self.source.blocks.len() {
            self.open(target)?;
        }
        Ok(())
    }

    /// Whether it has entries that it cannot show.
    fn ran_out(&self) -> bool {
        self.entry().is_none() && self.source.goes_on
    }
}

impl SortedStream for Stream<'_, '_> {
    type Error = Error;

    fn key(&self) -> Option<InternalKey<'_>> {
        self.entry().map(|entry| entry.key)
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(entries) = &mut self.entries {
            entries.advance()?;
        }
        self.settle(None)
    }
}

/// Runs a short scan. The result takes at most `most_bytes`, and at most 2 MiB. It ends where the scan has passed over 16 MiB
/// of keys.
///
/// # Errors
/// Corruption of a block; errors of `io`; [`Error::Invalid`] when not even an empty result has room.
pub fn run_short_scan(job: &ShortScanJob, io: &mut dyn SearchIo, most_bytes: usize) -> Result<ShortScanResult> {
    let no_room = Error::Invalid("the result of the scan has no room");
    let mut room = most_bytes.min(MAX_RESULT_BYTES).checked_sub(MAX_HIT_BYTES).ok_or(no_room)?;
    let io = RefCell::new(io);
    let target = InternalKey { user_key: &job.from, tag: Tag::seek(job.number) };
    let mut streams = Vec::with_capacity(job.sources.len());
    for source in &job.sources {
        let mut stream = Stream { job, io: &io, source, opened: 0, table: 0, entries: None };
        stream.settle(Some(target))?;
        streams.push(stream);
    }
    let mut result = ShortScanResult::default();
    if streams.iter().any(Stream::ran_out) {
        return Ok(result);
    }
    let mut merge = Merge::new(streams, job.key_order, Direction::Forward);
    let mut decided: Option<Vec<u8>> = None;
    let mut unpassed = MAX_PASSED_KEY_BYTES;
    loop {
        let Some((_, stream)) = merge.current() else {
            result.is_whole = true;
            return Ok(result);
        };
        let Some(entry) = stream.entry() else { return Ok(result) };
        let Some(left) = unpassed.checked_sub(entry.key.user_key.len()) else { return Ok(result) };
        unpassed = left;
        let is_newest = decided.as_deref() != Some(entry.key.user_key);
        if is_newest && entry.key.tag.sequence() <= job.number {
            decided = Some(entry.key.user_key.to_vec());
            if matches!(entry.key.tag.kind(), Kind::Put | Kind::Merge) {
                let left = room.checked_sub(size_bytes(job, &entry));
                let has_room = result.entries.len() < job.most_entries as usize;
                let Some(left) = left.filter(|_| has_room) else { return Ok(result) };
                room = left;
                result.entries.push(scanned(job, stream.table, &entry, *io.borrow_mut())?);
            }
        }
        let ran_out = merge.with_first(|stream, _| stream.advance().map(|()| stream.ran_out()))?;
        if ran_out == Some(true) {
            return Ok(result);
        }
    }
}

/// Most bytes that an entry takes in the result.
fn size_bytes(job: &ShortScanJob, entry: &IndexEntry<'_>) -> usize {
    let has_record = entry.length <= job.inline_bytes;
    MAX_HIT_BYTES + if has_record { entry.length as usize } else { entry.key.user_key.len() + 8 }
}

/// What the result says of an entry.
fn scanned(job: &ShortScanJob, table: u32, entry: &IndexEntry<'_>, io: &mut dyn SearchIo) -> Result<ScannedEntry> {
    let (tag, address, length) = (entry.key.tag, entry.address, entry.length);
    let body = if length <= job.inline_bytes {
        ScannedBody::Record(read_record(&job.tables, table, address, length, io)?)
    } else {
        ScannedBody::Key { user_key: entry.key.user_key.to_vec(), expiry_ms: entry.expiry_ms }
    };
    Ok(ScannedEntry { table, tag, address, length, body })
}

#[cfg(test)]
mod tests;
