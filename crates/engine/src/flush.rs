//! Flush: a sealed memtable becomes a table of level 0 (dLSM X-C, O3-LSM 4.2).
//!
//! The block goes to a segment as it stands, in pieces, several in flight; meanwhile the index over
//! it is built. Records are not copied or serialised. The table is installed when all bytes of
//! segment and image are written. Where memory is cut up, the block goes to several segments (`placing`).

use crate::memory::Buffer;
use crate::pipeline::Pipeline;
use crate::planted::{Bug, planted};
use crate::shard::Shard;
use crate::table::Table;
use crate::version::Change;
use crate::{Result, statistics};
use forebay_base::{InternalKey, Kind};
use forebay_table::job::{Flush, FlushJob, JobIdentity, LocatedEntry};
use forebay_table::{CachedTable, ImageAddress, RangeTombstone, TableId, TableMetadata, TableOptions};
use std::sync::Arc;

impl Shard {
    /// Flushes the oldest sealed memtable and installs its table.
    ///
    /// # Errors
    /// `Full` when the memory node is full: nothing is lost, it can be tried again; others.
    pub(crate) fn flush(&self, buffer: &Arc<Buffer>) -> Result<()> {
        self.wait_complete(buffer);
        if planted(Bug::DropBeforeInstalled) {
            let state = self.lock();
            self.install(Arc::clone(&self.view.load().version), Some(buffer));
            drop(state);
        }
        let table = self.next_table();
        let mut change = Change::default();
        let length = buffer.memtable.filled_prefix_bytes();
        let mut written = None;
        if length > 0 {
            written = Some(self.write_table(buffer, length, table, &mut change)?);
        }
        if let Some(written) = &mut written
            && !planted(Bug::EditBeforeData)
        {
            written.drain()?;
        }
        change.edit.last_sequence = buffer.memtable.last_sequence();
        self.commit(change, Some(buffer))?;
        statistics::add(&self.counters.flushes, 1);
        tracing::debug!(table = table.0, bytes = length, "flushed a memtable");
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
            self.publication.wait_published(last);
        }
    }

    /// Writes a memtable's block and the index over it. They are written when the pipeline is drained.
    fn write_table(&self, buffer: &Buffer, length: u64, id: TableId, change: &mut Change) -> Result<Pipeline> {
        let mut pipeline = Pipeline::new(self.remote.background()?);
        let block = self.place_block(buffer, length as usize, &mut pipeline)?;
        let job = FlushJob {
            identity: self.job_identity(id.0),
            snapshots: self.pinned_numbers(),
            options: self.table_options(),
        };
        let deletions = buffer.range_deletions.all();
        let mut flush = Flush::new(&job, deletions.iter().map(|deletion| RangeTombstone::clone(deletion)).collect())?;
        for found in buffer.sorted()? {
            let found = found?;
            // Range deletions stand beside the entries.
            if found.record.tag.kind() != Kind::RangeDelete {
                flush.add(&LocatedEntry {
                    key: InternalKey { user_key: found.record.key, tag: found.record.tag },
                    address: block.locate(found.offset),
                    length: found.record.length() as u32,
                    expiry_ms: found.record.expiry_ms,
                })?;
            }
        }
        if let Some(built) = flush.finish()?.table {
            let length = built.image.len() as u64;
            let image = self.place_image(&built.image, &mut pipeline)?;
            let address = ImageAddress { segment: image.id(), length, tail_offset: built.tail_offset };
            change.segments = block.segments().chain([image]).collect();
            let cached = CachedTable::parse(built.tail())?;
            let metadata = TableMetadata { id, image: address, properties: Arc::clone(cached.properties()) };
            let find = |id| change.segments.iter().find(|segment| segment.id() == id).cloned();
            change.tables = vec![Arc::new(Table::new(id, cached, address, find)?)];
            change.edit.added_segments =
                change.segments.iter().map(|segment| (segment.id(), segment.info().clone())).collect();
            change.edit.added_tables = vec![(0, metadata)];
        }
        Ok(pipeline)
    }

    pub(crate) fn job_identity(&self, job: u64) -> JobIdentity {
        JobIdentity { store: 0, shard: 0, epoch: 0, job, attempt: 1 }
    }

    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            key_order: self.options.key_order,
            point_index: self.options.point_index,
            ..TableOptions::default()
        }
    }
}
