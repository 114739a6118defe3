//! Search: finds the newest records of keys in several tables at once, where the tables are stored (O3-LSM 4.5).
//!
//! A compute node that does not hold the point indexes of some tables knows from their sparse indexes which block of each
//! table has a key's entries. It names these blocks, newest table first, and the places of the tables' segments. The node
//! that holds the memory looks into one block after the other until it finds an entry of the key that the read may see. It
//! answers with the record if that is short, and with the record's address if it is long (adaptive inlining).
//!
//! The function reads only what the arguments name, and trusts none of it: blocks carry checksums, and every offset is
//! checked where it is read. The caller verifies a returned record like one that it has read itself.
//!
//! ```text
//!  arguments
//!  u8      version, 1
//!  u8      key order
//!  varint  bytes of the longest record that the result is to hold
//!  varint  number of tables, then for each
//!          varint extent and varint offset of the table's image
//!          varint number of segments, then for each: varint extent, varint offset
//!  varint  number of keys, then for each
//!          the key after its length (varint), varint sequence number of the read
//!          varint number of blocks, then for each, newest first:
//!          varint table, varint offset in its image, varint length in bytes
//!
//!  result
//!  u8      version, 1
//!  varint  calls and jobs that waited where the search ran
//!  for each key
//!  varint  0 for none, else 1 + number of the block that has the entry; then
//!          varint tag, varint ordinal of the segment, varint offset in units of 8 bytes
//!          varint length of the record, u8 1 if it follows, else 0
//!          the record, without padding
//! ```
//!
//! The envelope of the call has a checksum. Purpose and golden test: `docs/formats/search.md`.

use crate::block::BlockIterator;
use crate::entry::{MAX_OFFSET_UNITS, MAX_RECORD_BYTES, RecordAddress, UNIT_BYTES};
use crate::error::{Context, Error, Result};
use crate::frame::{read_count, read_flag};
use crate::sparse_index::BlockAddress;
use forebay_base::{DecodeError, InternalKey, KeyOrder, MAX_KEY_BYTES, Reader, SequenceNumber, Tag, Writer};

pub(super) type Decoded<T> = std::result::Result<T, DecodeError>;

const WHAT: &str = "a search";
const VERSION: u8 = 1;
/// Most keys of a search.
pub const MAX_SEARCHED_KEYS: usize = 1024;
/// Most bytes of blocks that a search reads.
pub const MAX_SEARCHED_BYTES: u64 = 4 << 20;
/// Longest result in bytes, whatever room the reader has for it: it is held where the search runs, and both the room and
/// the lengths of records are what the reader says.
pub(super) const MAX_RESULT_BYTES: usize = 2 << 20;
/// Most bytes that a hit takes in a result, without its record.
pub(super) const MAX_HIT_BYTES: usize = 48;

/// Where something begins in the memory that the search runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SearchPlace {
    /// The extent.
    pub extent: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// A table to be searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedTable {
    /// Its image.
    pub image: SearchPlace,
    /// Its segments, by ordinal.
    pub segments: Vec<SearchPlace>,
}

/// The block of a table in which a key's entries are, if it has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchedBlock {
    /// Position of the table in [`SearchJob::tables`].
    pub table: u32,
    /// The block in the table's image.
    pub block: BlockAddress,
}

/// A key to be searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedKey {
    /// The key.
    pub user_key: Vec<u8>,
    /// The sequence number of the read: newer records are passed over.
    pub number: SequenceNumber,
    /// Where to look, newest first.
    pub blocks: Vec<SearchedBlock>,
}

/// The arguments of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchJob {
    /// Order of the keys.
    pub key_order: KeyOrder,
    /// Length of the longest record that the result includes, in bytes; of longer ones it has the
    /// addresses.
    pub inline_bytes: u32,
    /// The tables.
    pub tables: Vec<SearchedTable>,
    /// The keys, at most [`MAX_SEARCHED_KEYS`].
    pub keys: Vec<SearchedKey>,
}

/// The newest entry of a key that a read may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// Position of its block among those of the key.
    pub block: u32,
    /// Its sequence number and kind.
    pub tag: Tag,
    /// The record's place in the table.
    pub address: RecordAddress,
    /// The record's length in bytes, without padding.
    pub length: u32,
    /// The record, unless it is long.
    pub record: Option<Vec<u8>>,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// Number of calls and jobs that waited where the search ran.
    pub waiting: u32,
    /// What was found for each key.
    pub hits: Vec<Option<SearchHit>>,
}

/// The memory that a search reads.
pub trait SearchIo {
    /// Fills `into` with the bytes that begin at `place`.
    ///
    /// # Errors
    /// [`Error::Io`] for memory that the search may not read.
    fn read(&mut self, place: SearchPlace, into: &mut [u8]) -> Result<()>;
}

impl SearchPlace {
    /// The place `offset` bytes further on.
    fn behind(self, offset: u64) -> Result<Self> {
        let beyond = Error::Inconsistent { what: WHAT, detail: "it names a place past the end of memory" };
        Ok(Self { extent: self.extent, offset: self.offset.checked_add(offset).ok_or(beyond)? })
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.put_varint(self.extent.into());
        out.put_varint(self.offset);
    }

    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { extent: reader.varint32()?, offset: reader.varint64()? })
    }
}

impl SearchJob {
    /// Most bytes of blocks that the search reads.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let blocks = self.keys.iter().flat_map(|key| &key.blocks);
        blocks.map(|searched| u64::from(searched.block.length)).sum()
    }

    /// Most bytes of records that the result holds.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        (self.keys.len() as u64).saturating_mul(self.inline_bytes.into())
    }

    /// Appends the arguments to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.key_order as u8);
        out.put_varint(self.inline_bytes.into());
        encode_tables(&self.tables, out);
        out.put_varint(self.keys.len() as u64);
        for key in &self.keys {
            out.put_prefixed(&key.user_key);
            out.put_varint(key.number.0);
            encode_blocks(&key.blocks, out);
        }
    }

    /// Decodes arguments.
    ///
    /// # Errors
    /// [`Error::Damaged`], also for more keys or bytes than allowed; [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader, WHAT)?;
        let job = Self::decode_rest(&mut reader).context(WHAT)?;
        match job.block_bytes() {
            0..=MAX_SEARCHED_BYTES => Ok(job),
            found => Err(DecodeError::BadValue { what: "bytes to search", found }).context(WHAT),
        }
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Decoded<Self> {
        let bad = |what, found| DecodeError::BadValue { what, found };
        let order = reader.u8()?;
        let key_order = KeyOrder::from_number(order).ok_or(bad("key order", order.into()))?;
        let inline_bytes = reader.varint32()?;
        let tables = decode_tables(reader)?;
        let count = read_count(reader, 3)?;
        if count > MAX_SEARCHED_KEYS {
            return Err(bad("number of keys", count as u64));
        }
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let user_key = reader.prefixed()?.to_vec();
            if user_key.len() > MAX_KEY_BYTES {
                return Err(bad("length of a key", user_key.len() as u64));
            }
            let number = SequenceNumber(reader.varint64()?);
            if number > SequenceNumber::MAX {
                return Err(bad("sequence number", number.0));
            }
            keys.push(SearchedKey { user_key, number, blocks: decode_blocks(reader, tables.len())? });
        }
        reader.finish()?;
        Ok(Self { key_order, inline_bytes, tables, keys })
    }
}

impl SearchResult {
    /// Appends the result to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_varint(self.waiting.into());
        for hit in &self.hits {
            let Some(hit) = hit else {
                out.put_varint(0);
                continue;
            };
            out.put_varint(u64::from(hit.block) + 1);
            out.put_varint(hit.tag.word());
            out.put_varint(hit.address.ordinal.into());
            out.put_varint(hit.address.offset_units);
            out.put_varint(hit.length.into());
            out.put_u8(hit.record.is_some().into());
            out.extend_from_slice(hit.record.as_deref().unwrap_or_default());
        }
    }

    /// Decodes the result for `keys` keys.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Unknown`].
    pub fn decode(bytes: &[u8], keys: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader, WHAT)?;
        Self::decode_rest(&mut reader, keys).context(WHAT)
    }

    fn decode_rest(reader: &mut Reader<'_>, keys: usize) -> Decoded<Self> {
        let waiting = reader.varint32()?;
        let hits = (0..keys).map(|_| SearchHit::decode(reader)).collect::<Decoded<_>>()?;
        reader.finish()?;
        Ok(Self { waiting, hits })
    }
}

impl SearchHit {
    fn decode(reader: &mut Reader<'_>) -> Decoded<Option<Self>> {
        let Some(block) = reader.varint32()?.checked_sub(1) else { return Ok(None) };
        let word = reader.varint64()?;
        let tag = Tag::from_word(word).ok_or(DecodeError::BadValue { what: "tag", found: word })?;
        let address = RecordAddress { ordinal: reader.varint32()?, offset_units: reader.varint64()? };
        if address.offset_units >= MAX_OFFSET_UNITS {
            return Err(DecodeError::BadValue { what: "record offset", found: address.offset_units });
        }
        let length = reader.varint32()?;
        if length as usize > MAX_RECORD_BYTES {
            return Err(DecodeError::BadValue { what: "record length", found: length.into() });
        }
        let follows = read_flag(reader, "whether a record follows")?;
        let record = if follows { Some(reader.bytes(length as usize)?.to_vec()) } else { None };
        Ok(Some(Self { block, tag, address, length, record }))
    }
}

/// Reads the version of arguments or of a result.
pub(super) fn check_version(reader: &mut Reader<'_>, what: &'static str) -> Result<()> {
    match reader.u8().context(what)? {
        VERSION => Ok(()),
        found => Err(Error::Unknown { what, feature: "version", number: found.into() }),
    }
}

/// Appends the tables of a search.
pub(super) fn encode_tables(tables: &[SearchedTable], out: &mut Vec<u8>) {
    out.put_varint(tables.len() as u64);
    for table in tables {
        table.image.encode(out);
        out.put_varint(table.segments.len() as u64);
        table.segments.iter().for_each(|segment| segment.encode(out));
    }
}

/// Decodes the tables of a search.
pub(super) fn decode_tables(reader: &mut Reader<'_>) -> Decoded<Vec<SearchedTable>> {
    let mut tables = Vec::new();
    for _ in 0..read_count(reader, 3)? {
        let image = SearchPlace::decode(reader)?;
        let segments = (0..read_count(reader, 2)?).map(|_| SearchPlace::decode(reader)).collect::<Decoded<_>>()?;
        tables.push(SearchedTable { image, segments });
    }
    Ok(tables)
}

/// Appends the blocks that a search looks into.
pub(super) fn encode_blocks(blocks: &[SearchedBlock], out: &mut Vec<u8>) {
    out.put_varint(blocks.len() as u64);
    for searched in blocks {
        out.put_varint(searched.table.into());
        out.put_varint(searched.block.offset);
        out.put_varint(searched.block.length.into());
    }
}

/// Decodes the blocks that a search looks into, which belong to `tables` tables.
pub(super) fn decode_blocks(reader: &mut Reader<'_>, tables: usize) -> Decoded<Vec<SearchedBlock>> {
    let mut blocks = Vec::new();
    for _ in 0..read_count(reader, 3)? {
        let table = reader.varint32()?;
        if table as usize >= tables {
            return Err(DecodeError::BadValue { what: "table", found: table.into() });
        }
        let block = BlockAddress { offset: reader.varint64()?, length: reader.varint32()? };
        blocks.push(SearchedBlock { table, block });
    }
    Ok(blocks)
}

/// Runs a search. The result takes at most `most_bytes`, and at most 2 MiB: records that do not fit are left out, but
/// their addresses remain.
///
/// # Errors
/// Corruption of a block; errors of `io`; [`Error::Invalid`] when not even the addresses would fit.
pub fn run_search(job: &SearchJob, io: &mut dyn SearchIo, most_bytes: usize) -> Result<SearchResult> {
    let most_bytes = most_bytes.min(MAX_RESULT_BYTES);
    let Some(mut room) = most_bytes.checked_sub(MAX_HIT_BYTES * (1 + job.keys.len())) else {
        return Err(Error::Invalid("the result of the search has no room"));
    };
    let mut hits = Vec::with_capacity(job.keys.len());
    let mut bytes = Vec::new();
    for key in &job.keys {
        let mut hit = find(job, key, io, &mut bytes)?;
        if let Some(hit) = &mut hit
            && hit.length <= job.inline_bytes
            && let Some(left) = room.checked_sub(hit.length as usize)
        {
            let table = key.blocks.get(hit.block as usize).map_or(u32::MAX, |searched| searched.table);
            hit.record = Some(read_record(&job.tables, table, hit.address, hit.length, io)?);
            room = left;
        }
        hits.push(hit);
    }
    Ok(SearchResult { waiting: 0, hits })
}

/// Finds the newest entry of the key up to its number.
fn find(job: &SearchJob, key: &SearchedKey, io: &mut dyn SearchIo, buffer: &mut Vec<u8>) -> Result<Option<SearchHit>> {
    let target = InternalKey { user_key: &key.user_key, tag: Tag::seek(key.number) };
    for (block, searched) in (0u32..).zip(&key.blocks) {
        buffer.clear();
        buffer.resize(searched.block.length as usize, 0);
        io.read(image_of(&job.tables, searched)?, buffer)?;
        let mut entries = BlockIterator::new(buffer.as_slice())?;
        entries.seek(job.key_order, target)?;
        if let Some(entry) = entries.entry().filter(|entry| entry.key.user_key == key.user_key) {
            let (tag, address, length) = (entry.key.tag, entry.address, entry.length);
            return Ok(Some(SearchHit { block, tag, address, length, record: None }));
        }
    }
    Ok(None)
}

/// The place where a block begins.
pub(super) fn image_of(tables: &[SearchedTable], searched: &SearchedBlock) -> Result<SearchPlace> {
    let missing = Error::Inconsistent { what: WHAT, detail: "a block is of a table that it does not name" };
    tables.get(searched.table as usize).ok_or(missing)?.image.behind(searched.block.offset)
}

/// Reads a record of a table.
pub(super) fn read_record(
    tables: &[SearchedTable],
    table: u32,
    address: RecordAddress,
    length: u32,
    io: &mut dyn SearchIo,
) -> Result<Vec<u8>> {
    let missing = Error::Inconsistent { what: WHAT, detail: "an entry is in a segment that it does not name" };
    let segments = tables.get(table as usize).map(|table| table.segments.as_slice()).unwrap_or_default();
    let segment = segments.get(address.ordinal as usize).ok_or(missing)?;
    let mut record = vec![0; length as usize];
    io.read(segment.behind(address.offset_units.saturating_mul(UNIT_BYTES))?, &mut record)?;
    Ok(record)
}

#[cfg(test)]
pub(super) mod tests;
