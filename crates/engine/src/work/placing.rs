//! Where a flush's bytes go, and its blocks when memory is fragmented.
//!
//! What the log in memory has of a block stays there, and the table names it there: a flush writes the index alone.
//! Otherwise:
//!
//! | tried first to last, for the whole block and then for parts half as long | |
//! |---|---|
//! | memory that this session leased, or leases now where memory is not short | written one-sided, without a copy |
//! | memory where outputs of the node's jobs are | the node pulls the bytes and copies them |
//! | memory that this session leases now, also from the headroom | written one-sided |
//!
//! Last comes the memory that was held for this (see `room`). The index, which is in one piece, takes it first. Each
//! part is a segment of its own and begins with a record, so readers need not know of parts. So a flush finds room as
//! long as there are free bytes in pieces of a [`MOST_PARTS`]th of a block, no matter what divides them.

use crate::durable::log::Stretch;
use crate::plan::room::MOST_PARTS;
use crate::remote::pipeline::Pipeline;
use crate::remote::segment::Segment;
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, LogicalAddress};
use forebay_memory_client::Purpose;
use forebay_table::SegmentKind;
use forebay_table::job::RecordStretch;
use std::sync::Arc;

/// A memtable's block in remote memory, in order.
#[derive(Debug)]
pub(crate) struct PlacedBlock {
    parts: Vec<PlacedPart>,
    /// The parts belong to the log: versions name them already.
    is_logged: bool,
}

#[derive(Debug)]
struct PlacedPart {
    /// Where the part begins in the block.
    start: u64,
    segment: Arc<Segment>,
    /// Where the part begins in the segment.
    offset: u64,
    length: u64,
}

impl PlacedBlock {
    /// A block that the log already has.
    pub(crate) fn logged(stretches: Vec<Stretch>) -> Self {
        let part = |Stretch { from, length, segment, to }| PlacedPart { start: from, segment, offset: to, length };
        Self { parts: stretches.into_iter().map(part).collect(), is_logged: true }
    }

    /// Where `offset` of the block is stored.
    pub(crate) fn locate(&self, offset: u64) -> LogicalAddress {
        let behind = self.parts.partition_point(|part| part.start <= offset);
        let PlacedPart { start, segment, offset: place, .. } = &self.parts[behind - 1];
        LogicalAddress { segment: segment.id(), offset: offset - start + place }
    }

    /// Whether versions name its segments already.
    pub(crate) const fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Where the block's records are stored.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = RecordStretch> {
        let stretch =
            |part: &PlacedPart| RecordStretch { segment: part.segment.id(), offset: part.offset, length: part.length };
        self.parts.iter().map(stretch)
    }

    /// The segments that the block is stored in.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Arc<Segment>> {
        self.parts.iter().map(|part| Arc::clone(&part.segment))
    }
}

impl Shard {
    /// Finds memory for the first `length` bytes of a memtable's block, which is not empty, and writes them there.
    /// They are written when the pipeline is drained.
    ///
    /// # Errors
    /// `Full`, also when only shorter pieces are free.
    pub(crate) fn place_block(&self, buffer: &Buffer, length: usize, pipeline: &mut Pipeline) -> Result<PlacedBlock> {
        let bytes = buffer.memtable.filled_prefix().get(..length).unwrap_or_default();
        let least = (length / MOST_PARTS as usize).max(1);
        let (mut parts, mut start, mut longest) = (Vec::new(), 0, length);
        let mut starts = None;
        while start < length {
            let end = if length - start <= longest {
                length
            } else {
                let starts = match &mut starts {
                    Some(starts) => starts,
                    none => none.insert(record_starts(buffer)?),
                };
                end_of_part(starts, start, longest, length)
            };
            let part = bytes.get(start..end).unwrap_or_default();
            let post =
                |segment: &Arc<Segment>| pipeline.write_block(segment, &buffer.memtable, &buffer.block, start..end);
            match self.place_bytes(SegmentKind::MemtableBlock, part, post) {
                Ok(segment) => {
                    parts.push(PlacedPart { start: start as u64, segment, offset: 0, length: part.len() as u64 });
                    start = end;
                }
                Err(error) if error.kind() == ErrorKind::Full && longest > least => longest = (longest / 2).max(least),
                Err(error) if error.kind() == ErrorKind::Full && self.release_for_flush() => longest = length,
                Err(error) => return Err(error),
            }
        }
        Ok(PlacedBlock { parts, is_logged: false })
    }

    /// Memory for what a flush writes, in one piece.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn allocate(&self, kind: SegmentKind, length: u64, purpose: Purpose) -> Result<Arc<Segment>> {
        self.tree.remote.allocate(self.tree.next_segment(), kind, length, purpose)
    }

    /// Finds memory for bytes of a flush, in one piece, and lets `post` write them there, unless the node writes them.
    ///
    /// # Errors
    /// `Full`, also when only shorter pieces are free.
    fn place_bytes(
        &self,
        kind: SegmentKind,
        bytes: &[u8],
        post: impl FnOnce(&Arc<Segment>) -> Result<()>,
    ) -> Result<Arc<Segment>> {
        let length = bytes.len() as u64;
        let allocate = |purpose| match self.allocate(kind, length, purpose) {
            Err(full) if full.kind() == ErrorKind::Full => Ok(None),
            allocated => allocated.map(Some),
        };
        // Whole extents are for everybody: where memory is short they come last.
        let is_plenty = self.lock().room().is_plenty() || self.tree.remote.free_bytes(length) > 0;
        let mut segment = if is_plenty { allocate(Purpose::Flush)? } else { None };
        if segment.is_none() {
            match self.store_near_data(self.tree.remote.pinned(), kind, bytes) {
                Err(full) if full.kind() == ErrorKind::Full => {}
                stored => return stored,
            }
        }
        for purpose in [Purpose::Flush, Purpose::Collection] {
            segment = if segment.is_none() { allocate(purpose)? } else { segment };
        }
        let full = || Error::new(ErrorKind::Full, format!("no piece of {length} bytes is free for a flush"));
        let segment = segment.ok_or_else(full)?;
        post(&segment).map(|()| segment)
    }

    /// Finds memory for a table's image and writes it there.
    ///
    /// # Errors
    /// `Full`, also when only shorter pieces are free.
    pub(crate) fn place_image(&self, image: &[u8], pipeline: &mut Pipeline) -> Result<Arc<Segment>> {
        let kind = SegmentKind::TableImage;
        match self.place_bytes(kind, image, |segment| pipeline.write(segment, 0, image)) {
            Err(full) if full.kind() == ErrorKind::Full && self.release_for_flush() => {
                self.place_bytes(kind, image, |segment| pipeline.write(segment, 0, image))
            }
            placed => placed,
        }
    }
}

/// Where the records of a block begin, in ascending order.
fn record_starts(buffer: &Buffer) -> Result<Vec<usize>> {
    let mut starts = buffer.sorted()?.map(|found| Ok(found?.offset as usize)).collect::<Result<Vec<_>>>()?;
    starts.sort_unstable();
    Ok(starts)
}

/// Where a part that begins at `start` ends: before a record, and at most `longest` bytes later if that is possible.
fn end_of_part(starts: &[usize], start: usize, longest: usize, length: usize) -> usize {
    let behind = starts.partition_point(|&record| record <= start + longest);
    let last = starts.get(behind.wrapping_sub(1)).copied().filter(|&record| record > start);
    last.or_else(|| starts.get(behind).copied()).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_before_a_record() {
        let starts = [0, 10, 25, 30, 90];
        for (start, longest, end) in [(0, 29, 25), (0, 30, 30), (25, 5, 30), (30, 10, 90), (90, 5, 100), (0, 1, 10)] {
            assert_eq!(end_of_part(&starts, start, longest, 100), end, "from {start}, at most {longest}");
        }
    }
}
