//! Sources of a scan: memtables and tables as sorted streams of entries.
//!
//! A table's stream reads index blocks, in chunks that grow while the scan goes on (dLSM VI); it
//! never reads records. Which records a scan needs is known after the merge.

use crate::endpoints::Pooled;
use crate::read::received;
use crate::table::Table;
use crate::version::LiveVersion;
use crate::{Error, Result};
use forebay_base::{InternalKey, KeyOrder, LogicalAddress};
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::RemoteAddress;
use forebay_memtable::OwnedCursor;
use forebay_table::{BlockIterator, SortedStream};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of index blocks that are read at once, at most.
const MAX_CHUNK_BYTES: u64 = 256 << 10;

/// The endpoint that the sources of a scan share.
pub(crate) type SharedEndpoint = Arc<Mutex<Pooled>>;

/// A source of a scan.
pub(crate) enum Source {
    Memtable(MemtableSource),
    Level(Box<LevelSource>),
}

/// Where an entry's value is.
pub(crate) enum Location<'s> {
    /// Here.
    Local(&'s [u8]),
    /// In a record of remote memory.
    Remote {
        /// For error messages.
        logical: LogicalAddress,
        /// Where the record starts.
        address: RemoteAddress,
        /// Length of the record, without padding.
        length: u32,
    },
}

impl Source {
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.seek(target)?),
            Self::Level(source) => source.seek(target),
        }
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.seek_to_first()?),
            Self::Level(source) => source.open(0, None),
        }
    }

    /// Where the current entry's value is.
    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.record()?.map(|found| Location::Local(found.record.value))),
            Self::Level(source) => source.location(),
        }
    }
}

impl SortedStream for Source {
    type Error = Error;

    fn key(&self) -> Option<InternalKey<'_>> {
        match self {
            Self::Memtable(source) => source.key(),
            Self::Level(source) => source.key(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memtable(source) => Ok(source.cursor.next()?),
            Self::Level(source) => source.advance(),
        }
    }
}

/// A memtable.
pub(crate) struct MemtableSource {
    pub(crate) cursor: OwnedCursor,
}

impl MemtableSource {
    fn key(&self) -> Option<InternalKey<'_>> {
        // A cursor fails only over overwritten memory, and then its next move fails too.
        let found = self.cursor.record().ok().flatten()?;
        Some(InternalKey { user_key: found.record.key, tag: found.record.tag })
    }
}

/// Tables that follow each other in key order: one table of level 0, or a whole level.
pub(crate) struct LevelSource {
    version: Arc<LiveVersion>,
    endpoint: SharedEndpoint,
    level: usize,
    /// The level's tables that belong to the source.
    tables: Range<usize>,
    /// The current one, counted from the range's start.
    position: usize,
    chunk: Chunk,
    /// The current block of the table.
    block: usize,
    entries: Option<BlockIterator<BlockBytes>>,
}

/// Consecutive index blocks of a table.
#[derive(Default)]
struct Chunk {
    bytes: Arc<Vec<u8>>,
    blocks: Range<usize>,
    /// Offset of the first block in the image.
    offset: u64,
    /// How many bytes to read next.
    next_bytes: u64,
}

/// One block of a chunk.
struct BlockBytes {
    chunk: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for BlockBytes {
    fn as_ref(&self) -> &[u8] {
        self.chunk.get(self.range.clone()).unwrap_or_default()
    }
}

impl LevelSource {
    pub(crate) fn new(version: Arc<LiveVersion>, endpoint: SharedEndpoint, level: usize, tables: Range<usize>) -> Self {
        Self { version, endpoint, level, tables, position: 0, chunk: Chunk::default(), block: 0, entries: None }
    }

    fn tables(&self) -> &[Arc<Table>] {
        self.version.levels().get(self.level).and_then(|level| level.get(self.tables.clone())).unwrap_or_default()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.tables().get(self.position)
    }

    fn order(&self) -> KeyOrder {
        self.version.order()
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        let order = self.order();
        let position = self.tables().partition_point(|table| table.ends_before(order, target));
        self.open(position, Some(target))
    }

    /// Goes to the first entry of a table, or to the first that does not sort before `target`; if
    /// there is none, to the next table's first.
    fn open(&mut self, position: usize, target: Option<InternalKey<'_>>) -> Result<()> {
        self.position = position;
        self.entries = None;
        self.chunk = Chunk::default();
        let Some(table) = self.table() else { return Ok(()) };
        let order = self.order();
        let block = target.map_or(0, |target| table.cached().sparse_index().seek(order, target));
        self.open_block(block)?;
        if let (Some(entries), Some(target)) = (&mut self.entries, target) {
            entries.seek(order, target)?;
            self.skip_ended()?;
        }
        Ok(())
    }

    /// Goes to the first entry of a block of the current table; past the last block, to the next
    /// table.
    fn open_block(&mut self, block: usize) -> Result<()> {
        self.block = block;
        let Some(table) = self.table().cloned() else {
            self.entries = None;
            return Ok(());
        };
        if block >= table.cached().sparse_index().block_count() {
            return self.open(self.position + 1, None);
        }
        if !self.chunk.blocks.contains(&block) {
            self.fetch(&table, block)?;
        }
        let Some(address) = table.cached().sparse_index().block(block) else { return Err(unknown_block(&table)) };
        let start = address.offset.saturating_sub(self.chunk.offset) as usize;
        let range = start..start.saturating_add(address.length as usize);
        let bytes = BlockBytes { chunk: Arc::clone(&self.chunk.bytes), range };
        match &mut self.entries {
            Some(entries) => drop(entries.replace(bytes)?),
            None => self.entries = Some(BlockIterator::new(bytes)?),
        }
        if let Some(entries) = &mut self.entries {
            entries.seek_to_first()?;
        }
        self.skip_ended()
    }

    fn skip_ended(&mut self) -> Result<()> {
        match &self.entries {
            Some(entries) if entries.entry().is_none() => self.open_block(self.block + 1),
            _ => Ok(()),
        }
    }

    /// Reads blocks from `block` on: one round trip.
    fn fetch(&mut self, table: &Table, block: usize) -> Result<()> {
        let sparse = table.cached().sparse_index();
        let first = sparse.block(block).ok_or_else(|| unknown_block(table))?;
        let mut end = block;
        let mut length = 0;
        while let Some(next) = sparse.block(end) {
            let with_next = next.offset + u64::from(next.length) - first.offset;
            if end > block && with_next > self.chunk.next_bytes {
                break;
            }
            length = with_next;
            end += 1;
        }
        let mut endpoint = lock(&self.endpoint);
        let slot = endpoint.slot(length as usize)?;
        let id = endpoint.post_read(table.image().at(first.offset), slot)?;
        let slot = received(endpoint.wait_for(id)?)?;
        self.chunk = Chunk {
            bytes: Arc::new(slot.to_vec()),
            blocks: block..end,
            offset: first.offset,
            next_bytes: (length * 2).min(MAX_CHUNK_BYTES),
        };
        endpoint.release(slot);
        Ok(())
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        Some(self.entries.as_ref()?.entry()?.key)
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(entries) = &mut self.entries {
            entries.advance()?;
        }
        self.skip_ended()
    }

    fn location(&self) -> Result<Option<Location<'_>>> {
        let (Some(table), Some(entry)) = (self.table(), self.entries.as_ref().and_then(BlockIterator::entry)) else {
            return Ok(None);
        };
        let (segment, offset) = table.locate(entry.address)?;
        let logical = LogicalAddress { segment: segment.id(), offset };
        if segment.clip(offset, entry.length.into()) < entry.length as usize {
            return Err(Error::corrupt(format!("an entry of table {} ends behind {logical}", table.id().0)));
        }
        Ok(Some(Location::Remote { logical, address: segment.at(offset), length: entry.length }))
    }
}

fn unknown_block(table: &Table) -> Error {
    Error::corrupt(format!("table {} has no such index block", table.id().0))
}
