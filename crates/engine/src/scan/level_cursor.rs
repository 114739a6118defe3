//! Tables that follow each other in key order, as one sorted stream in either direction.
//!
//! The stream reads index blocks in pieces that grow while the scan continues (dLSM VI), and none outside the scan's
//! bounds. If a table's records are one run and nothing else, it also streams the records ([`RunReader`]). Forward, it
//! does so in place of the index, and reads an index block only to find the first record. Backward, it also reads the
//! index, which says where each record begins.

use crate::scan::found::{Filled, Location, MAX_STREAMED, goes_on};
use crate::scan::index_reader::IndexReader;
use crate::scan::read_ahead::FIRST_PIECE_BYTES;
use crate::scan::run_reader::RunReader;
use crate::scan::scan_batch::ScanBatch;
use crate::scan::scan_endpoint::SharedEndpoint;
use crate::scan::visibility::{Verdict, Visibility};
use crate::terms::bounds::Bounds;
use crate::terms::{Error, Result};
use crate::tree::table::Table;
use crate::tree::version::LiveVersion;
use forebay_base::{InternalKey, LogicalAddress};
use forebay_table::merge::Rival;
use forebay_table::{BlockIterator, Direction, IndexEntry};
use std::ops::Range;
use std::sync::Arc;

/// One table of level 0, or the tables of a further level. See the module.
pub(crate) struct LevelCursor {
    version: Arc<LiveVersion>,
    bounds: Arc<Bounds>,
    endpoint: SharedEndpoint,
    /// The member where the cursor reads.
    member: usize,
    level: usize,
    /// The level's tables that belong to the cursor.
    tables: Range<usize>,
    direction: Direction,
    /// The current table, counted from the range's start; past either end there is none.
    position: usize,
    /// The current table's blocks that may hold entries within the bounds.
    blocks: Range<usize>,
    /// The current block.
    block: usize,
    index: Option<IndexReader>,
    entries: Option<BlockIterator<Vec<u8>>>,
    /// Memory for the next block.
    buffer: Vec<u8>,
    /// The reader stands on the current entry, if there is one. With `entries`, it follows them backward.
    run: Option<RunReader>,
    pace: Pace,
    /// Maximum bytes of a read of a run.
    piece_bytes: u64,
}

/// Bytes of the first reads in the next table: a scan that streams continues to stream there. In memory they are no larger
/// than the last reads, as the scan may end soon.
#[derive(Clone, Copy)]
struct Pace {
    index_bytes: u64,
    run_bytes: u64,
}

impl Pace {
    /// One index block, and a few records.
    const FIRST: Self = Self { index_bytes: 0, run_bytes: FIRST_PIECE_BYTES };
}

impl LevelCursor {
    /// Returns a cursor over `tables` of a level that stands nowhere. The tables are read over an endpoint to a member.
    /// Reads of runs have at most `piece_bytes`.
    pub(crate) fn new(
        version: Arc<LiveVersion>,
        bounds: Arc<Bounds>,
        (endpoint, member): (SharedEndpoint, usize),
        level: usize,
        tables: Range<usize>,
        piece_bytes: u64,
    ) -> Self {
        Self {
            version,
            bounds,
            endpoint,
            member,
            level,
            tables,
            direction: Direction::Forward,
            position: 0,
            blocks: 0..0,
            block: 0,
            index: None,
            entries: None,
            buffer: Vec::new(),
            run: None,
            pace: Pace::FIRST,
            piece_bytes,
        }
    }

    fn tables(&self) -> &[Arc<Table>] {
        self.version.levels().get(self.level).and_then(|level| level.get(self.tables.clone())).unwrap_or_default()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.tables().get(self.position)
    }

    /// Returns what follows `index` in the cursor's direction. Before zero comes the largest number, which is no
    /// table's and no block's.
    const fn following(&self, index: usize) -> usize {
        match self.direction {
            Direction::Forward => index.wrapping_add(1),
            Direction::Backward => index.wrapping_sub(1),
        }
    }

    /// Goes to the first entry from `target` on in `direction`; from the end without a target.
    pub(crate) fn seek(&mut self, direction: Direction, target: Option<InternalKey<'_>>) -> Result<()> {
        self.close_table();
        self.direction = direction;
        self.pace = Pace::FIRST;
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

    /// Stands nowhere until the next seek.
    pub(crate) fn leave(&mut self) {
        self.close_table();
        self.pace = Pace::FIRST;
    }

    /// Goes to the first entry of the table at `position` from `target` on; if there is none, to the
    /// first one of the tables that follow.
    fn open_table(&mut self, position: usize, mut target: Option<InternalKey<'_>>) -> Result<()> {
        self.position = position;
        loop {
            self.close_table();
            let Some(table) = self.table().cloned() else { return Ok(()) };
            let index = table.cached().sparse_index();
            self.blocks = self.bounds.blocks(index);
            let (first, last) = (self.blocks.start, self.blocks.end.wrapping_sub(1));
            let sought = target.map(|target| index.seek(self.bounds.order(), target));
            let block = match self.direction {
                Direction::Forward => sought.map_or(first, |block| block.max(first)),
                Direction::Backward => sought.map_or(last, |block| block.min(last)),
            };
            let from_start = self.direction == Direction::Forward && block == 0 && target.is_none();
            let found = match table.sole_run() {
                Some(records) if from_start => {
                    self.run = self.reader(&table, records);
                    self.follow()?
                }
                Some(records) => self.open_block(&table, block, target.take())? && self.stream(&table, &records)?,
                None => self.open_block(&table, block, target.take())?,
            };
            if found {
                return Ok(());
            }
            self.position = self.following(self.position);
        }
    }

    /// Releases what was read of a table.
    fn close_table(&mut self) {
        if let Some(index) = self.index.take() {
            self.pace.index_bytes = index.last_bytes();
        }
        if let Some(run) = self.run.take() {
            self.pace.run_bytes = run.last_bytes();
        }
        self.entries = None;
    }

    /// Streams the table's records, which are a run, from the current entry on. Returns whether there is one.
    fn stream(&mut self, table: &Table, run: &Range<u64>) -> Result<bool> {
        let Some(entry) = self.entries.as_ref().and_then(BlockIterator::entry) else { return Ok(false) };
        let (_, offset) = table.locate(entry.address)?;
        let end = offset.saturating_add(entry.padded_length());
        if offset < run.start || end > run.end {
            return Err(Error::corrupt(format!("an entry of table {} lies outside of its run", table.id().0)));
        }
        match self.direction {
            Direction::Forward => {
                self.run = self.reader(table, offset..run.end);
                (self.entries, self.index) = (None, None);
            }
            Direction::Backward => self.run = self.reader(table, run.start..end),
        }
        self.follow()
    }

    /// Returns a reader of `records`, a part of the table's only run.
    fn reader(&self, table: &Table, records: Range<u64>) -> Option<RunReader> {
        let segment = Arc::clone(table.only_segment()?);
        // Blocks hold about the same number of records, and records have about the same size.
        let blocks = table.cached().sparse_index().block_count() as u64;
        let span = table.sole_run()?;
        let share = (span.end - span.start) / blocks.max(1);
        let at = |blocks: u64| span.start.saturating_add(share.saturating_mul(blocks)).min(span.end);
        let likely = at((self.blocks.start as u64).saturating_sub(1))..at(self.blocks.end as u64 + 1);
        let endpoint = Arc::clone(&self.endpoint);
        let pace = (self.pace.run_bytes.min(self.piece_bytes), self.piece_bytes);
        Some(RunReader::new(segment, endpoint, self.direction, records, &likely, pace))
    }

    /// Moves the run's reader along, if there is one: forward to the next record, backward to the current entry's
    /// record. Returns whether the cursor stands on an entry.
    fn follow(&mut self) -> Result<bool> {
        let entry = self.entries.as_ref().map(BlockIterator::entry);
        match (&mut self.run, entry) {
            (Some(run), None) => run.advance()?,
            (Some(run), Some(Some(entry))) => run.go_back(&entry)?,
            (None, Some(Some(_))) => return Ok(true),
            (_, Some(None)) | (None, None) => return Ok(false),
        }
        Ok(self.run.as_ref().is_some_and(|run| run.current().is_some()))
    }

    /// See [`Source::fill`](crate::scan::cursor::Source::fill).
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        loop {
            if let Some(run) = &mut self.run {
                let is_alone = rival.is_none();
                let limit = if is_alone { limit.min(MAX_STREAMED) } else { limit };
                let filled = run.fill(batch, visibility, limit, rival)?;
                if run.current().is_none() {
                    self.open_table(self.following(self.position), None)?;
                }
                return Ok(if is_alone && filled == Filled::Some { Filled::Streamed } else { filled });
            }
            let Some(entry) = self.entries.as_ref().and_then(BlockIterator::entry) else { return Ok(Filled::Some) };
            match visibility.decide(entry.key, entry.expiry_ms) {
                Verdict::Shown => {
                    batch.add(entry.key.user_key, self.location_of(&entry)?)?;
                    batch.expires(entry.expiry_ms);
                }
                Verdict::Merged => batch.add_merged(entry.key.user_key),
                Verdict::Hidden => {}
                Verdict::Outside => return Ok(Filled::End),
            }
            self.advance()?;
            if !batch.has_room(limit) || !self.key().is_some_and(|key| goes_on(rival, key.user_key)) {
                return Ok(Filled::Some);
            }
        }
    }

    /// Goes to the first entry of `block` from `target` on; if there is none, to the first entry of the table's blocks
    /// that follow. Returns whether there is one.
    fn open_block(
        &mut self,
        table: &Arc<Table>,
        mut block: usize,
        mut target: Option<InternalKey<'_>>,
    ) -> Result<bool> {
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

    /// Reads a block of the open table, and returns an iterator over it.
    fn load(&mut self, table: &Arc<Table>, block: usize) -> Result<&mut BlockIterator<Vec<u8>>> {
        let index = match &mut self.index {
            Some(index) => index,
            None => {
                let blocks = match self.direction {
                    Direction::Forward => block..self.blocks.end,
                    Direction::Backward => self.blocks.start..block + 1,
                };
                let (endpoint, bytes) = (Arc::clone(&self.endpoint), self.pace.index_bytes);
                let index = IndexReader::new(Arc::clone(table), endpoint, self.direction, &blocks, bytes)?;
                self.index.insert(index)
            }
        };
        index.read(block, &mut self.buffer)?;
        let bytes = std::mem::take(&mut self.buffer);
        let entries = match self.entries.take() {
            Some(mut entries) => {
                self.buffer = entries.replace(bytes)?;
                entries
            }
            None => BlockIterator::new(bytes)?,
        };
        Ok(self.entries.insert(entries))
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        if let Some(run) = &self.run {
            return run.key();
        }
        Some(self.entries.as_ref()?.entry()?.key)
    }

    /// The current entry's expiry.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        match &self.run {
            Some(run) => run.expiry_ms(),
            None => self.entries.as_ref()?.entry()?.expiry_ms,
        }
    }

    /// Goes to the next entry in the cursor's direction.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(entries) = &mut self.entries {
            match self.direction {
                Direction::Forward => entries.advance()?,
                Direction::Backward => entries.retreat()?,
            }
            if entries.entry().is_none() {
                self.leave_block()?;
            }
        } else if self.run.is_none() {
            return Ok(());
        }
        if self.follow()? { Ok(()) } else { self.open_table(self.following(self.position), None) }
    }

    /// Continues to the table's next blocks, if there are any.
    fn leave_block(&mut self) -> Result<()> {
        if let Some(table) = self.table().cloned()
            && !self.open_block(&table, self.following(self.block), None)?
        {
            table.crossed();
        }
        Ok(())
    }

    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        if let Some(reader) = &self.run {
            return Ok(reader.location());
        }
        match self.entries.as_ref().and_then(BlockIterator::entry) {
            Some(entry) => self.location_of(&entry),
            None => Ok(None),
        }
    }

    /// Where the record of an entry of the current table is.
    #[inline]
    fn location_of(&self, entry: &IndexEntry<'_>) -> Result<Option<Location<'_>>> {
        let Some(table) = self.table() else { return Ok(None) };
        let (segment, offset) = table.locate(entry.address)?;
        let logical = LogicalAddress { segment: segment.id(), offset };
        if segment.clip(offset, entry.length.into()) < entry.length as usize {
            return Err(Error::corrupt(format!("an entry of table {} ends behind {logical}", table.id().0)));
        }
        let (spot, tag) = (segment.spot_at(self.member, offset)?, entry.key.tag);
        Ok(Some(Location::Remote { logical, spot, length: entry.length, tag }))
    }
}
