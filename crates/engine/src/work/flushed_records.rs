//! Where a flush's records go: as their blocks are, or in key order into one run ([`FlushOrder`]). Blocks that the log
//! in memory has stay where they are.
//!
//! A run takes one copy of each record, made by the background thread, and no more remote memory than the blocks. It
//! leaves out what is shadowed within the memtables; that much of the run's memory stays unused at its end. If memory
//! is fragmented, the blocks go out as they are, in either order.
//!
//! Range deletions are in the table's image. So memtables that only delete ranges take memory for the image alone, and
//! their flush fits into the last page of a full node.

use crate::remote::pipeline::Pipeline;
use crate::remote::segment::Segment;
use crate::terms::options::FlushOrder;
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::work::placing::PlacedBlock;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, LogicalAddress};
use forebay_fabric::Slot;
use forebay_memory_client::Purpose;
use forebay_table::SegmentKind;
use std::sync::Arc;

/// Bytes of one write of a run: they are still in the processor's cache when they leave.
const PIECE_BYTES: usize = 256 << 10;

/// Records of memtables in remote memory.
pub(crate) enum FlushedRecords<'b> {
    /// None: the memtables only delete ranges, and range deletions are in the table's image.
    Nothing,
    Run(Run<'b>),
    Blocks(Vec<PlacedBlock>),
}

/// The segments of a flush's records.
pub(crate) struct Segments {
    /// The segments that the flush made.
    pub(crate) added: Vec<Arc<Segment>>,
    /// The segments that versions already name.
    pub(crate) named: Vec<Arc<Segment>>,
}

/// Records in key order, in one segment.
pub(crate) struct Run<'b> {
    segment: Arc<Segment>,
    /// The complete bytes of each memtable's block.
    blocks: Vec<&'b [u8]>,
    /// Bytes of the run so far, and the last of them, which are still here.
    length: u64,
    piece: Option<(Slot, usize)>,
}

impl Shard {
    /// Finds memory for the records of complete memtables: for a run, in one piece, or for the blocks, which are
    /// written there.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn place_records<'b>(
        &self,
        buffers: &[&'b Arc<Buffer>],
        pipeline: &mut Pipeline,
    ) -> Result<FlushedRecords<'b>> {
        if buffers.iter().all(|buffer| buffer.only_deletes_ranges()) {
            return Ok(FlushedRecords::Nothing);
        }
        let run = match self.tree.options.flush_order {
            FlushOrder::AsWritten => None,
            FlushOrder::ByKey => self.place_run(buffers)?,
        };
        if let Some(run) = run {
            return Ok(FlushedRecords::Run(run));
        }
        let place = |buffer: &&Arc<Buffer>| match self.logged(buffer) {
            Some(stretches) => Ok(PlacedBlock::logged(stretches)),
            None => self.place_block(buffer, buffer.memtable.filled_prefix_bytes() as usize, pipeline),
        };
        Ok(FlushedRecords::Blocks(buffers.iter().map(place).collect::<Result<_>>()?))
    }

    /// Finds memory for a run of memtables' records; `None` when no piece is long enough.
    fn place_run<'b>(&self, buffers: &[&'b Arc<Buffer>]) -> Result<Option<Run<'b>>> {
        let blocks: Vec<_> = buffers.iter().map(|buffer| buffer.memtable.filled_prefix()).collect();
        let bytes = blocks.iter().map(|block| block.len() as u64).sum();
        match self.allocate(SegmentKind::Run, bytes, Purpose::Flush) {
            Ok(segment) => Ok(Some(Run { segment, blocks, length: 0, piece: None })),
            Err(error) if error.kind() == ErrorKind::Full => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FlushedRecords<'_> {
    /// Whether the records are copied into a run.
    pub(crate) const fn is_run(&self) -> bool {
        matches!(self, Self::Run(_))
    }

    /// Where the record at `offset` of a block is stored, if it is the next one.
    ///
    /// # Errors
    /// `Corrupt` when there is no such block.
    #[inline]
    pub(crate) fn locate(&self, block: usize, offset: u64) -> Result<LogicalAddress> {
        match self {
            Self::Nothing => Err(no_block()),
            Self::Run(run) => Ok(LogicalAddress { segment: run.segment.id(), offset: run.length }),
            Self::Blocks(blocks) => Ok(blocks.get(block).ok_or_else(no_block)?.locate(offset)),
        }
    }

    /// Takes the next record, where [`FlushedRecords::locate`] said: `length` bytes with padding at `offset` of a block.
    ///
    /// # Errors
    /// Those of the fabric.
    #[inline]
    pub(crate) fn add(&mut self, pipeline: &mut Pipeline, block: usize, offset: u64, length: u32) -> Result<()> {
        match self {
            Self::Run(run) => run.add(pipeline, block, offset, length),
            Self::Nothing | Self::Blocks(_) => Ok(()),
        }
    }

    /// Ends the records. They are written when the pipeline is drained.
    ///
    /// # Errors
    /// Those of the fabric.
    pub(crate) fn finish(self, pipeline: &mut Pipeline) -> Result<Segments> {
        let mut segments = Segments { added: Vec::new(), named: Vec::new() };
        match self {
            Self::Nothing => {}
            Self::Run(mut run) => {
                run.send(pipeline)?;
                segments.added.push(run.segment);
            }
            Self::Blocks(blocks) => {
                for block in blocks {
                    let into = if block.is_logged() { &mut segments.named } else { &mut segments.added };
                    into.extend(block.segments());
                }
            }
        }
        Ok(segments)
    }
}

impl Run<'_> {
    #[inline]
    fn add(&mut self, pipeline: &mut Pipeline, block: usize, offset: u64, length: u32) -> Result<()> {
        let start = offset as usize;
        let record = self.blocks.get(block).and_then(|block| block.get(start..start + length as usize));
        let mut rest = record.ok_or_else(no_block)?;
        while !rest.is_empty() {
            let (slot, filled) = match &mut self.piece {
                Some(piece) => piece,
                none => none.insert((pipeline.slot(PIECE_BYTES)?, 0)),
            };
            let room = slot.get_mut(*filled..).unwrap_or_default();
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            if let Some(place) = room.get_mut(..now.len()) {
                place.copy_from_slice(now);
            }
            *filled += now.len();
            self.length += now.len() as u64;
            rest = later;
            if *filled == PIECE_BYTES {
                self.send(pipeline)?;
            }
        }
        Ok(())
    }

    /// Sends the last bytes.
    fn send(&mut self, pipeline: &mut Pipeline) -> Result<()> {
        let Some((mut slot, filled)) = self.piece.take() else { return Ok(()) };
        slot.truncate(filled);
        pipeline.write_slot(&self.segment, self.length - filled as u64, slot)
    }
}

#[cold]
fn no_block() -> Error {
    Error::corrupt("a record of a memtable lies outside of its block")
}
