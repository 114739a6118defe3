//! Tables that follow each other in key order, as one sorted stream in either direction.
//!
//! It reads index blocks, in chunks that grow while the scan goes on (dLSM VI), and none that lie
//! outside of the scan's bounds. Forward over a table whose records are one run and nothing else, it
//! streams the records instead ([`RunReader`]), and looks at an index block only to find the first.

use crate::bounds::Bounds;
use crate::cursor::{Filled, Location};
use crate::run_reader::RunReader;
use crate::scan_batch::ScanBatch;
use crate::scan_endpoint::SharedEndpoint;
use crate::table::Table;
use crate::version::LiveVersion;
use crate::visibility::{Verdict, Visibility};
use crate::{Error, Result};
use forebay_base::{InternalKey, LogicalAddress};
use forebay_env::sync::lock;
use forebay_table::{BlockIterator, Direction, SparseIndex};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of index blocks that are read at once, at most.
const MAX_CHUNK_BYTES: u64 = 256 << 10;

/// One table of level 0, or the tables of a further level. See the module.
pub(crate) struct LevelCursor {
    version: Arc<LiveVersion>,
    bounds: Arc<Bounds>,
    endpoint: SharedEndpoint,
    level: usize,
    /// The level's tables that belong to the cursor.
    tables: Range<usize>,
    direction: Direction,
    /// The current table, counted from the range's start; past either end there is none.
    position: usize,
    /// The table's blocks that may hold entries within the bounds.
    blocks: Range<usize>,
    /// The current one.
    block: usize,
    chunk: Chunk,
    entries: Option<BlockIterator<BlockBytes>>,
    /// Stands on the current entry, where there is one.
    run: Option<RunReader>,
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

impl LevelCursor {
    /// A cursor over `tables` of a level, standing nowhere.
    pub(crate) fn new(
        version: Arc<LiveVersion>,
        bounds: Arc<Bounds>,
        endpoint: SharedEndpoint,
        level: usize,
        tables: Range<usize>,
    ) -> Self {
        Self {
            version,
            bounds,
            endpoint,
            level,
            tables,
            direction: Direction::Forward,
            position: 0,
            blocks: 0..0,
            block: 0,
            chunk: Chunk::default(),
            entries: None,
            run: None,
        }
    }

    fn tables(&self) -> &[Arc<Table>] {
        self.version.levels().get(self.level).and_then(|level| level.get(self.tables.clone())).unwrap_or_default()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.tables().get(self.position)
    }

    /// What follows `index` in the cursor's direction. Before zero comes the largest number, which
    /// is no table's and no block's.
    const fn following(&self, index: usize) -> usize {
        match self.direction {
            Direction::Forward => index.wrapping_add(1),
            Direction::Backward => index.wrapping_sub(1),
        }
    }

    /// Goes to the first entry from `target` on in `direction`; from the end without a target.
    pub(crate) fn seek(&mut self, direction: Direction, target: Option<InternalKey<'_>>) -> Result<()> {
        self.direction = direction;
        self.chunk = Chunk::default();
        let (order, tables) = (self.bounds.order(), self.tables());
        let position = match (direction, target) {
            (Direction::Forward, None) => 0,
            (Direction::Forward, Some(target)) => tables.partition_point(|table| table.ends_before(order, target)),
            (Direction::Backward, None) => tables.len().wrapping_sub(1),
            (Direction::Backward, Some(target)) => {
                tables.partition_point(|table| !table.starts_after(order, target)).wrapping_sub(1)
            }
        };
        self.open_table(position, target)
    }

    /// Goes to the first entry of the table at `position` from `target` on; if there is none, to the
    /// first one of the tables that follow.
    fn open_table(&mut self, position: usize, mut target: Option<InternalKey<'_>>) -> Result<()> {
        self.position = position;
        loop {
            self.chunk.blocks = 0..0;
            self.entries = None;
            self.run = None;
            let Some(table) = self.table().cloned() else { return Ok(()) };
            let index = table.cached().sparse_index();
            self.blocks = self.bounds.blocks(index);
            let (first, last) = (self.blocks.start, self.blocks.end.wrapping_sub(1));
            let sought = target.map(|target| index.seek(self.bounds.order(), target));
            let block = match self.direction {
                Direction::Forward => sought.map_or(first, |block| block.max(first)),
                Direction::Backward => sought.map_or(last, |block| block.min(last)),
            };
            let from_start = block == 0 && target.is_none();
            let found = match (self.direction, table.sole_run()) {
                (Direction::Forward, Some(records)) if from_start => self.open_run(&table, records)?,
                (Direction::Forward, Some(records)) => {
                    self.open_block(&table, block, target.take())? && self.stream(&table, records)?
                }
                _ => self.open_block(&table, block, target.take())?,
            };
            if found {
                return Ok(());
            }
            self.position = self.following(self.position);
        }
    }

    /// Goes on from the current entry by streaming the table's records, which are a run. Whether
    /// there is one.
    fn stream(&mut self, table: &Table, records: Range<u64>) -> Result<bool> {
        let Some(entry) = self.entries.as_ref().and_then(BlockIterator::entry) else { return Ok(false) };
        let (_, offset) = table.locate(entry.address)?;
        if !records.contains(&offset) {
            return Err(Error::corrupt(format!("an entry of table {} lies outside of its run", table.id().0)));
        }
        self.entries = None;
        self.open_run(table, offset..records.end)
    }

    /// Goes to the first of a run's records. Whether there is one.
    fn open_run(&mut self, table: &Table, records: Range<u64>) -> Result<bool> {
        let Some(segment) = table.only_segment() else { return Ok(false) };
        // Blocks hold about the same number of records, and records have about the same size.
        let blocks = table.cached().sparse_index().block_count() as u64;
        let span = table.sole_run().map_or(0..0, |run| run);
        let share = (span.end - span.start) / blocks.max(1);
        let likely_end = span.start.saturating_add(share.saturating_mul(self.blocks.end as u64 + 1)).min(span.end);
        let endpoint = Arc::clone(&self.endpoint);
        let run = self.run.insert(RunReader::new(Arc::clone(segment), endpoint, records, likely_end));
        run.advance()?;
        Ok(run.current().is_some())
    }

    /// See [`Source::fill`](crate::cursor::Source::fill).
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
    ) -> Result<Filled> {
        let Some(run) = &mut self.run else { return Ok(Filled::Not) };
        while let Some(key) = run.key()
            && batch.has_room(limit)
        {
            match visibility.decide(key) {
                Verdict::Shown => {
                    if let Some(record) = run.current() {
                        batch.add_record(run, record);
                    }
                }
                Verdict::Hidden => {}
                Verdict::Outside => return Ok(Filled::End),
            }
            run.advance()?;
        }
        if run.current().is_none() {
            self.run = None;
            self.open_table(self.following(self.position), None)?;
        }
        Ok(Filled::Some)
    }

    /// Goes to the first entry of `block` from `target` on; if there is none, to the first one of the
    /// table's blocks that follow. Whether there is one.
    fn open_block(&mut self, table: &Table, mut block: usize, mut target: Option<InternalKey<'_>>) -> Result<bool> {
        let (order, direction) = (self.bounds.order(), self.direction);
        while self.blocks.contains(&block) {
            self.block = block;
            let entries = self.load(table, block)?;
            match (direction, target.take()) {
                (Direction::Forward, None) => entries.seek_to_first()?,
                (Direction::Forward, Some(target)) => entries.seek(order, target)?,
                (Direction::Backward, None) => entries.seek_to_last()?,
                (Direction::Backward, Some(target)) => entries.seek_for_prev(order, target)?,
            }
            if entries.entry().is_some() {
                return Ok(true);
            }
            block = self.following(block);
        }
        Ok(false)
    }

    /// An iterator over a block, which is fetched if it is not here.
    fn load(&mut self, table: &Table, block: usize) -> Result<&mut BlockIterator<BlockBytes>> {
        if !self.chunk.blocks.contains(&block) {
            self.fetch(table, block)?;
        }
        let address = table.cached().sparse_index().block(block).ok_or_else(|| unknown_block(table))?;
        let start = address.offset.saturating_sub(self.chunk.offset) as usize;
        let range = start..start.saturating_add(address.length as usize);
        let bytes = BlockBytes { chunk: Arc::clone(&self.chunk.bytes), range };
        match self.entries.take() {
            Some(mut entries) => {
                drop(entries.replace(bytes)?);
                Ok(self.entries.insert(entries))
            }
            None => Ok(self.entries.insert(BlockIterator::new(bytes)?)),
        }
    }

    /// Reads `block` and those that follow: one round trip.
    fn fetch(&mut self, table: &Table, block: usize) -> Result<()> {
        let index = table.cached().sparse_index();
        let mut blocks = block..block + 1;
        let mut bytes = span(index, &blocks).ok_or_else(|| unknown_block(table))?;
        loop {
            let wider = match self.direction {
                Direction::Forward if blocks.end < self.blocks.end => blocks.start..blocks.end + 1,
                Direction::Backward if blocks.start > self.blocks.start => blocks.start - 1..blocks.end,
                _ => break,
            };
            let Some(with_next) = span(index, &wider) else { break };
            if with_next.end - with_next.start > self.chunk.next_bytes {
                break;
            }
            (blocks, bytes) = (wider, with_next);
        }
        let length = bytes.end - bytes.start;
        let mut endpoint = lock(&self.endpoint);
        let asked = endpoint.ask(table.image().at(bytes.start), length as usize)?;
        let slot = endpoint.wait(asked)?;
        self.chunk = Chunk {
            bytes: Arc::new(slot.to_vec()),
            blocks,
            offset: bytes.start,
            next_bytes: (length * 2).min(MAX_CHUNK_BYTES),
        };
        endpoint.release(slot);
        Ok(())
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        if let Some(run) = &self.run {
            return run.key();
        }
        Some(self.entries.as_ref()?.entry()?.key)
    }

    /// Goes to the next entry in the cursor's direction.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(run) = &mut self.run {
            run.advance()?;
            if run.current().is_some() {
                return Ok(());
            }
            self.run = None;
            return self.open_table(self.following(self.position), None);
        }
        let Some(entries) = &mut self.entries else { return Ok(()) };
        match self.direction {
            Direction::Forward => entries.advance()?,
            Direction::Backward => entries.retreat()?,
        }
        if entries.entry().is_some() {
            return Ok(());
        }
        let Some(table) = self.table().cloned() else { return Ok(()) };
        if self.open_block(&table, self.following(self.block), None)? {
            return Ok(());
        }
        table.crossed();
        self.open_table(self.following(self.position), None)
    }

    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        if let Some(reader) = &self.run {
            return Ok(reader.current().map(|record| Location::Run { reader, record }));
        }
        let (Some(table), Some(entry)) = (self.table(), self.entries.as_ref().and_then(BlockIterator::entry)) else {
            return Ok(None);
        };
        let (segment, offset) = table.locate(entry.address)?;
        let logical = LogicalAddress { segment: segment.id(), offset };
        if segment.clip(offset, entry.length.into()) < entry.length as usize {
            return Err(Error::corrupt(format!("an entry of table {} ends behind {logical}", table.id().0)));
        }
        let (address, extent) = (segment.at(offset), segment.extent());
        Ok(Some(Location::Remote { logical, address, extent, length: entry.length }))
    }
}

/// The bytes of the image that blocks take.
fn span(index: &SparseIndex, blocks: &Range<usize>) -> Option<Range<u64>> {
    let (first, last) = (index.block(blocks.start)?, index.block(blocks.end.checked_sub(1)?)?);
    Some(first.offset..last.offset + u64::from(last.length))
}

fn unknown_block(table: &Table) -> Error {
    Error::corrupt(format!("table {} has no such index block", table.id().0))
}
