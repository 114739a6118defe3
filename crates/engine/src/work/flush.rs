//! Flush: sealed memtables become a table of level 0 (dLSM X-C, O3-LSM 4.2).
//!
//! A flush takes the oldest sealed memtable, and those after it as long as one table holds them all. So level 0 gets
//! fewer tables where memtables are smaller than tables, or ended early, and flushes lag behind. When memory is short,
//! a flush takes as little as possible.
//!
//! The records go out in pieces, several in flight, while the index over them is built: as they were written, block by
//! block, or in key order, as one run (`flushed_records`). Nothing is serialised. The table is installed when all bytes
//! of segments and image are written. If memory is fragmented, the blocks go to several segments (`placing`). What the
//! log in memory already has is not written again: the table names it there.
//!
//! With [`FlushPlace::AsCompactions`], the place that runs compactions builds the index instead, from the records in
//! remote memory (`docs/decisions/0067`). This is a job like a compaction, whose input is the records. If nobody does
//! it there, it is done here, over the same records.

use crate::plan::planner::Took;
use crate::plan::tiers::Tier;
use crate::remote::pipeline::Pipeline;
use crate::terms::options::FlushPlace;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::View;
use crate::tree::table::Table;
use crate::tree::version::Change;
use crate::work::compaction::InputSegments;
use crate::work::flushed_records::{FlushedRecords, Segments};
use crate::work::near_data::NotThere;
use crate::work::placing::PlacedBlock;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, InternalKey, Kind};
use forebay_memtable::{RecordRef, SortedRecords};
use forebay_table::job::{CompactionJob, Flush, FlushJob, JobIdentity, LocatedEntry};
use forebay_table::merge::{Direction, Merge, SortedStream};
use forebay_table::{CachedTable, ImageAddress, RangeTombstone, SegmentKind, TableId, TableMetadata, TableOptions};
use std::sync::Arc;

/// The records of a sealed memtable, as a stream to be merged.
struct MemtableStream<'b> {
    records: SortedRecords<'b>,
    current: Option<RecordRef<'b>>,
}

impl<'b> MemtableStream<'b> {
    fn new(buffer: &'b Buffer, copies: bool) -> Result<Self> {
        let records = buffer.sorted()?;
        let records = if copies { records.to_copy(buffer.memtable.filled_prefix().len()) } else { records };
        let mut stream = Self { records, current: None };
        stream.advance()?;
        Ok(stream)
    }
}

impl SortedStream for MemtableStream<'_> {
    type Error = Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.current.as_ref().map(|found| InternalKey { user_key: found.record.key, tag: found.record.tag })
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.current = self.records.next().transpose()?;
        Ok(())
    }
}

impl Shard {
    /// Flushes the oldest sealed memtables into one table and installs it.
    ///
    /// # Errors
    /// `Full` when the memory node is full: nothing is lost, and it can be tried again; others.
    pub(crate) fn flush(&self, buffers: &[Arc<Buffer>]) -> Result<()> {
        let are_sealed =
            |view: &View| buffers.iter().all(|buffer| view.sealed.iter().any(|sealed| Arc::ptr_eq(sealed, buffer)));
        self.settle_commits(are_sealed)?;
        buffers.iter().for_each(|buffer| self.wait_complete(buffer));
        if planted(Bug::DropBeforeInstalled) {
            let state = self.lock();
            self.tree.install(Arc::clone(&self.tree.view.load().version), buffers);
            drop(state);
        }
        let table = self.tree.next_table();
        let mut change = Change::default();
        let filled: Vec<_> = buffers.iter().filter(|buffer| buffer.memtable.filled_prefix_bytes() > 0).collect();
        let mut written = match filled.is_empty() {
            true => None,
            false => Some(self.write_table(&filled, table, &mut change)?),
        };
        if let Some(written) = &mut written
            && !planted(Bug::EditBeforeData)
        {
            written.drain()?;
        }
        change.edit.last_sequence = buffers.iter().filter_map(|buffer| buffer.memtable.last_sequence()).max();
        let mut took =
            Took { records: buffers.iter().map(|b| b.memtable.filled_prefix_bytes()).sum(), ..Took::default() };
        for segment in &change.segments {
            took.memory += segment.allocated_bytes();
            if segment.info().kind == SegmentKind::TableImage {
                took.index += segment.allocated_bytes();
            }
        }
        self.commit(change, buffers)?;
        self.lock().wrote(self.holder, &mut self.common.ledger(), took);
        statistics::add(&self.tree.counters.flushes, 1);
        tracing::debug!(table = table.0, memtables = buffers.len(), "flushed memtables");
        Ok(())
    }

    /// Waits until every number of the memtable's range is inserted and published: no version may
    /// name an entry that the published number does not cover.
    fn wait_complete(&self, buffer: &Buffer) {
        let mut round = 0;
        while !buffer.memtable.is_complete() {
            forebay_env::sync::relax(&mut round);
        }
        if let Some(last) = buffer.memtable.last_sequence() {
            self.tree.publication.wait_published(last);
        }
    }

    /// Writes memtables' records and the index over them. They are written when the pipeline is drained.
    fn write_table(&self, buffers: &[&Arc<Buffer>], id: TableId, change: &mut Change) -> Result<Pipeline> {
        let mut pipeline = Pipeline::new(self.tree.remote.background()?);
        let mut records = self.place_records(buffers, &mut pipeline)?;
        if let FlushedRecords::Blocks(blocks) = &records
            && let Some(made) = self.index_elsewhere(blocks, &mut pipeline)?
        {
            *change = made;
            return Ok(pipeline);
        }
        let job = FlushJob {
            identity: self.job_identity(id.0),
            snapshots: self.tree.pinned_numbers(),
            options: self.table_options(),
        };
        let deletions: Vec<_> = buffers.iter().map(|buffer| buffer.range_deletions.all()).collect();
        let deletions = deletions.iter().flat_map(|all| all.iter()).map(|deletion| RangeTombstone::clone(deletion));
        let mut flush = Flush::new(&job, deletions.collect())?;
        let copies = records.is_run();
        let streams = buffers.iter().map(|buffer| MemtableStream::new(buffer, copies)).collect::<Result<Vec<_>>>()?;
        let mut merge = Merge::new(streams, self.tree.options.key_order, Direction::Forward);
        while let Some((number, stream)) = merge.current() {
            // Range deletions stand beside the entries.
            if let Some(found) = &stream.current
                && found.record.tag.kind() != Kind::RangeDelete
            {
                let located = LocatedEntry {
                    key: InternalKey { user_key: found.record.key, tag: found.record.tag },
                    address: records.locate(number, found.offset)?,
                    length: found.record.length() as u32,
                    expiry_ms: found.record.expiry_ms,
                };
                if flush.add(&located)? {
                    records.add(&mut pipeline, number, found.offset, found.padded_length)?;
                }
            }
            merge.advance()?;
        }
        let Segments { added, named } = records.finish(&mut pipeline)?;
        if let Some(built) = flush.finish()?.table {
            let length = built.image.len() as u64;
            let image = self.place_image(&built.image, &mut pipeline)?;
            let address = ImageAddress { segment: image.id(), length, tail_offset: built.tail_offset };
            change.segments = added.into_iter().chain([image]).collect();
            let cached = CachedTable::parse(built.tail())?;
            let metadata = TableMetadata { id, image: address, properties: Arc::clone(cached.properties()) };
            let find = |id| change.segments.iter().chain(&named).find(|segment| segment.id() == id).cloned();
            change.tables = vec![Arc::new(Table::new(id, cached, address, find)?)];
            change.edit.added_segments =
                change.segments.iter().map(|segment| (segment.id(), segment.info().clone())).collect();
            change.edit.added_tables = vec![(0, metadata)];
        }
        Ok(pipeline)
    }

    /// Lets the place that runs compactions build the index over blocks, if the options say so and it does. Returns the
    /// change that installs the index, without what the flush itself knows.
    fn index_elsewhere(&self, blocks: &[PlacedBlock], pipeline: &mut Pipeline) -> Result<Option<Change>> {
        let remote = self.tree.remote.pinned();
        let is_asked = match (self.tree.options.flush_place, remote.memory_node().offloading()) {
            (FlushPlace::ComputeNode, _) => false,
            (FlushPlace::AsCompactions, Some(_)) => true,
            // A flush does not queue after a compaction.
            (FlushPlace::AsCompactions, None) => remote.memory_node().busy() == 0,
        };
        // Where memory is short, what is free there is reserved for compactions.
        if !is_asked || !self.lock().room().is_plenty() {
            return Ok(None);
        }
        // Somebody else reads what this endpoint writes.
        pipeline.drain()?;
        let inputs: InputSegments =
            blocks.iter().flat_map(PlacedBlock::segments).map(|held| (held.id(), held)).collect();
        let mut job = CompactionJob {
            stretches: blocks.iter().flat_map(PlacedBlock::stretches).collect(),
            snapshots: self.tree.pinned_numbers(),
            ..self.job_over(&inputs)
        };
        let (result, segments) = match self.run_elsewhere(remote, &inputs, &mut job, Tier::Memory) {
            Some(Ok(made)) => made,
            Some(Err(NotThere::Failed(error))) if error.kind() != ErrorKind::Corrupt => {
                return Err(self.tree.check_open().err().unwrap_or(error));
            }
            // Whatever is wrong there, the memtables are whole.
            Some(Err(NotThere::Refused(error) | NotThere::Failed(error))) => {
                tracing::debug!(%error, "the index of a flush is built at the compute node");
                return Ok(None);
            }
            None => return Ok(None),
        };
        let mut change = self.merged(&inputs, 0, result, segments)?;
        if !change.tables.is_empty() {
            for block in blocks.iter().filter(|block| !block.is_logged()) {
                change.segments.extend(block.segments());
            }
            change.edit.added_segments =
                change.segments.iter().map(|segment| (segment.id(), segment.info().clone())).collect();
        }
        Ok(Some(change))
    }

    pub(crate) fn job_identity(&self, job: u64) -> JobIdentity {
        JobIdentity { store: 0, shard: 0, epoch: 0, job, attempt: 1 }
    }

    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            key_order: self.tree.options.key_order,
            point_index: self.tree.options.point_index,
            ..TableOptions::default()
        }
    }
}
