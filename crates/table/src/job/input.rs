//! Inputs of a compaction: streams of index entries; those of tables are read in large pieces.

use super::result::JobCounters;
use super::{AllocatedSegment, GatherRead, Held, JobIo};
use crate::block::Layout;
use crate::coding::Coding;
use crate::entry::{EntryTail, IndexEntry, RangeTombstone};
use crate::error::{Context, Error, Result};
use crate::image::{TailLayout, decode_tombstones};
use crate::merge::SortedStream;
use crate::properties::TableProperties;
use crate::segments::SegmentKind;
use crate::sparse_index::SparseIndex;
use crate::version_edit::{ImageAddress, TableMetadata};
use forebay_base::{InternalKey, KeyOrder, LogicalAddress, Reader, SegmentId};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of index blocks that all inputs together hold, unless single blocks are longer.
const MOST_CHUNKS_BYTES: u64 = 8 << 20;
/// Bytes of memory that a table's properties take for each encoded byte: a segment has at least 6 bytes there, and is held
/// together with its output state.
const PROPERTIES_FACTOR: u64 = 20;
/// The same factor for range deletions, which are held three times.
const TOMBSTONES_FACTOR: u64 = 36;

/// A job's I/O with its counters and budget, shared by its streams and its output.
pub(super) struct Io<'a> {
    io: &'a mut dyn JobIo,
    pub counters: JobCounters,
    /// Bytes that the inputs hold.
    inputs_bytes: u64,
    /// Bytes of the result so far.
    pub result_bytes: u64,
    allocated_bytes: u64,
    budget_bytes: u64,
}

impl<'a> Io<'a> {
    pub fn new(io: &'a mut dyn JobIo, budget_bytes: u64) -> Self {
        let counters = JobCounters::default();
        Self { io, counters, inputs_bytes: 0, result_bytes: 0, allocated_bytes: 0, budget_bytes }
    }

    pub fn check_cancelled(&self) -> Result<()> {
        if self.io.cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    pub fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_cancelled()?;
        self.counters.bytes_read += into.len() as u64;
        self.io.read(segment, offset, into)
    }

    pub fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<()> {
        self.check_cancelled()?;
        self.counters.gathers += 1;
        self.counters.bytes_read += reads.iter().map(|read| read.length as u64).sum::<u64>();
        self.io.gather(reads, into)
    }

    /// Tells the runner what the job holds: its inputs, its result, and `bytes` more.
    pub fn hold(&mut self, bytes: u64) -> Result<()> {
        let working_bytes = self.inputs_bytes.saturating_add(bytes);
        self.io.hold(Held { working_bytes, result_bytes: self.result_bytes })
    }

    /// As [`Io::hold`], with `more` bytes that its inputs hold from now on.
    pub fn hold_input(&mut self, more: u64) -> Result<()> {
        self.inputs_bytes = self.inputs_bytes.saturating_add(more);
        self.hold(0)
    }

    pub fn takes_tail(&mut self, bytes: u64) -> bool {
        self.io.takes_tail(bytes)
    }

    pub fn longest_piece(&mut self, wanted: u64) -> u64 {
        self.io.longest_piece(wanted)
    }

    pub fn allocate(&mut self, kind: SegmentKind, length: u64) -> Result<AllocatedSegment> {
        let needed = self.allocated_bytes.saturating_add(length);
        if needed > self.budget_bytes {
            return Err(Error::OverBudget { needed, budget: self.budget_bytes });
        }
        self.allocated_bytes = needed;
        self.io.allocate(kind, length)
    }

    pub fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counters.bytes_written += bytes.len() as u64;
        self.io.write(segment, offset, bytes)
    }
}

/// A stream of index entries that can locate their records.
pub(super) trait Input: SortedStream<Error = Error> {
    /// The current entry; `None` at the end.
    fn entry(&self) -> Option<IndexEntry<'_>>;

    /// The address of the record of an entry of this stream.
    fn locate(&self, entry: &IndexEntry<'_>) -> Result<LogicalAddress>;
}

/// The part of a key range that a job merges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub order: KeyOrder,
    pub lower: Option<&'a [u8]>,
    pub upper: Option<&'a [u8]>,
}

/// Index entries of one table, in order and within bounds.
pub(super) struct TableStream<'a, 'io> {
    io: &'a RefCell<Io<'io>>,
    image: ImageAddress,
    properties: Arc<TableProperties>,
    sparse_index: SparseIndex,
    bounds: Bounds<'a>,
    read_bytes: u64,
    /// Blocks that are not read yet.
    blocks: Range<usize>,
    /// The last bytes read: their blocks, and the start of the next one.
    chunk: Vec<u8>,
    chunk_blocks: Range<usize>,
    chunk_next: usize,
    /// The remaining entries of the current block, in the chunk.
    entries: Range<usize>,
    coding: Coding,
    key: Vec<u8>,
    current: Option<EntryTail>,
}

/// Reads what a merge needs of a table's tail: the sparse index and the range deletions, but not the point index.
pub(super) fn read_tail(io: &mut Io<'_>, table: &TableMetadata) -> Result<(SparseIndex, Vec<RangeTombstone>)> {
    let image = table.image;
    let bytes = image.length.checked_sub(image.tail_offset);
    let bytes = bytes.ok_or(Error::Invalid("an image is shorter than its index blocks"))?;
    io.hold(bytes)?;
    let length = usize::try_from(bytes).map_err(|_| Error::Invalid("an image is larger than the address space"))?;
    let mut tail = vec![0; length];
    io.read(image.segment, image.tail_offset, &mut tail)?;
    let layout = TailLayout::parse(&tail)?;
    let section = |range: &Range<usize>| tail.get(range.clone()).unwrap_or_default();
    let held = |range: &Range<usize>, factor: u64| (range.len() as u64).saturating_mul(factor);
    io.inputs_bytes = io
        .inputs_bytes
        .saturating_add(held(&layout.sparse_index, 1))
        .saturating_add(held(&layout.properties, PROPERTIES_FACTOR))
        .saturating_add(layout.range_deletions.as_ref().map_or(0, |range| held(range, TOMBSTONES_FACTOR)));
    io.hold(bytes)?;
    let properties = TableProperties::decode(section(&layout.properties))?;
    let sparse_index = SparseIndex::parse(section(&layout.sparse_index).into())?;
    let tombstones = layout.range_deletions.as_ref().map(|range| decode_tombstones(section(range))).transpose()?;
    let tombstones = tombstones.unwrap_or_default();
    let is_of_table = properties.agrees_with(&table.properties)
        && sparse_index.blocks_bytes() == image.tail_offset
        && layout.blocks_bytes == image.tail_offset
        && tombstones.len() as u64 == properties.range_deletions;
    if is_of_table {
        Ok((sparse_index, tombstones))
    } else {
        Err(Error::Inconsistent { what: "a table", detail: "its image is another one's" })
    }
}

impl<'a, 'io> TableStream<'a, 'io> {
    /// A stream at the table's first entry within bounds, and the table's range deletions. It is one of `inputs` inputs,
    /// each of which holds a part of its blocks.
    pub fn open(
        io: &'a RefCell<Io<'io>>,
        table: &TableMetadata,
        bounds: Bounds<'a>,
        read_bytes: u32,
        inputs: usize,
    ) -> Result<(Self, Vec<RangeTombstone>)> {
        let image = table.image;
        let (sparse_index, tombstones) = read_tail(&mut io.borrow_mut(), table)?;
        let read_bytes = u64::from(read_bytes).min(MOST_CHUNKS_BYTES / inputs.max(1) as u64);
        let blocks = sparse_index.range(bounds.order, bounds.lower, bounds.upper);
        let lengths = blocks.clone().filter_map(|index| Some(u64::from(sparse_index.block(index)?.length)));
        let longest = lengths.max().unwrap_or(0);
        let chunk_bytes = longest.max(read_bytes.min(sparse_index.blocks_bytes()));
        io.borrow_mut().inputs_bytes += chunk_bytes + size_of::<Self>() as u64;
        io.borrow_mut().hold(0)?;
        let mut stream = Self {
            io,
            image,
            properties: Arc::clone(&table.properties),
            sparse_index,
            bounds,
            read_bytes,
            blocks,
            chunk: Vec::new(),
            chunk_blocks: 0..0,
            chunk_next: 0,
            entries: 0..0,
            coding: Coding::V2,
            key: Vec::new(),
            current: None,
        };
        stream.step()?;
        if let Some(lower) = bounds.lower {
            while stream.current.is_some() && bounds.order.compare(&stream.key, lower) == Ordering::Less {
                stream.step()?;
            }
        }
        Ok((stream, tombstones))
    }

    /// Decodes the next entry. None follows after the last block or the upper bound.
    #[inline]
    fn step(&mut self) -> Result<()> {
        if self.entries.is_empty() && !self.enter_next_block()? {
            self.current = None;
            return Ok(());
        }
        let mut reader = Reader::new(self.chunk.get(self.entries.clone()).unwrap_or_default());
        let decoded = self.coding.decode(&mut reader, &mut self.key, self.current.as_ref());
        self.current = Some(decoded.context("an index block")?);
        self.entries.start += reader.offset();
        if self.is_last_block() && self.bounds.upper.is_some_and(|upper| self.is_behind(upper)) {
            self.current = None;
            (self.entries, self.chunk_blocks) = (0..0, 0..0);
        }
        Ok(())
    }

    /// Whether the current block is the last one that may hold keys within bounds.
    fn is_last_block(&self) -> bool {
        self.chunk_blocks.is_empty() && self.blocks.is_empty()
    }

    fn is_behind(&self, upper: &[u8]) -> bool {
        self.bounds.order.compare(&self.key, upper) != Ordering::Less
    }

    fn enter_next_block(&mut self) -> Result<bool> {
        if self.chunk_blocks.is_empty() && !self.read_chunk()? {
            return Ok(false);
        }
        let length = self.chunk_blocks.next().and_then(|index| self.sparse_index.block(index)).map_or(0, |b| b.length);
        let start = self.chunk_next;
        self.chunk_next = start + length as usize;
        let block = self.chunk.get(start..self.chunk_next).unwrap_or_default();
        let Layout { coding, entries, .. } = Layout::verify(block).context("an index block")?;
        self.entries = start + entries.start..start + entries.end;
        self.coding = coding;
        self.key.clear();
        Ok(true)
    }

    /// Reads the next blocks, about as many bytes as one read should have. Returns false when none is left.
    fn read_chunk(&mut self) -> Result<bool> {
        let Some(first) = self.blocks.next().and_then(|index| Some((index, self.sparse_index.block(index)?))) else {
            return Ok(false);
        };
        let (first_index, first) = first;
        let mut length = u64::from(first.length);
        self.chunk_blocks = first_index..first_index + 1;
        while let Some(next) = self.sparse_index.block(self.blocks.start).filter(|_| !self.blocks.is_empty()) {
            if length + u64::from(next.length) > self.read_bytes {
                break;
            }
            length += u64::from(next.length);
            self.blocks.start += 1;
            self.chunk_blocks.end += 1;
        }
        self.chunk.resize(length as usize, 0);
        self.chunk_next = 0;
        self.io.borrow_mut().read(self.image.segment, first.offset, &mut self.chunk)?;
        Ok(true)
    }
}

impl SortedStream for TableStream<'_, '_> {
    type Error = Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        Some(InternalKey { user_key: &self.key, tag: self.current?.tag })
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        if self.current.is_some() { self.step() } else { Ok(()) }
    }
}

impl Input for TableStream<'_, '_> {
    #[inline]
    fn entry(&self) -> Option<IndexEntry<'_>> {
        self.current.map(|tail| tail.entry(&self.key))
    }

    #[inline]
    fn locate(&self, entry: &IndexEntry<'_>) -> Result<LogicalAddress> {
        self.properties.locate(entry).map(|(_, address)| address)
    }
}
