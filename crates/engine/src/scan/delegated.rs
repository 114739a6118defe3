//! The first entries of a scan, which the memory node merges from all tables (O3-LSM 4.5).
//!
//! A seek reads an index block of each level, one level after the other, and then records. If that costs more than a
//! message, the memory node is asked for the first few entries of all tables at once. They are one source of the scan,
//! beside the memtables, and the tables' own sources stand nowhere. When the scan reaches the end of the answer, the
//! tables' sources are placed after it and continue (see [`ShardIterator`](crate::scan::iterator::ShardIterator)).
//!
//! The answer is verified as far as it is used: each record by its checksum, key and tag, each address by its table's
//! properties, and the order of the keys.

use crate::plan::delegating::{Delegating, LookupCost};
use crate::remote::segment::Remote;
use crate::scan::found::{Filled, Location, goes_on};
use crate::scan::scan_batch::ScanBatch;
use crate::scan::visibility::{Verdict, Visibility};
use crate::terms::Result;
use crate::terms::bounds::Bounds;
use crate::terms::statistics::add;
use crate::tree::shared::Tree;
use crate::tree::table::Table;
use crate::tree::version::LiveVersion;
use forebay_base::{InternalKey, LogicalAddress, Record, SequenceNumber, Tag};
use forebay_proto::job_kind;
use forebay_table::job::{
    ScannedBody, ScannedEntry, ScannedSource, SearchedBlock, SearchedTable, ShortScanJob, ShortScanResult,
};
use forebay_table::merge::Rival;
use forebay_table::{IndexEntry, RecordAddress};
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries that are asked for: those of the first batches of a scan.
const ENTRIES: u32 = 16;
/// Records of at most this many bytes come with the answer.
const INLINE_BYTES: u32 = 1 << 10;
/// Blocks of each source: the one that has the key, and the next.
const BLOCKS: usize = 2;
/// Approximate bytes of an answer for each entry without its record.
const ANSWER_BYTES: u64 = 24;

/// Entries that a memory node brought, as a source of a scan. Empty while the tables' own sources continue by
/// themselves.
#[derive(Default)]
pub(crate) struct DelegatedCursor {
    entries: Vec<Brought>,
    position: usize,
    /// The member where the scan reads.
    member: usize,
}

/// An entry, verified.
struct Brought {
    user_key: Vec<u8>,
    tag: Tag,
    expiry_ms: Option<u64>,
    value: Value,
}

enum Value {
    Here(Vec<u8>),
    There { table: Arc<Table>, address: RecordAddress, length: u32 },
}

/// Where an answer ends.
pub(crate) enum End {
    /// No table has anything after it.
    Whole,
    /// The tables may have more after this key.
    Behind(Vec<u8>),
}

impl DelegatedCursor {
    /// Asks the memory node of the member where the scan reads for the entries from `target` on, if that costs less
    /// than a seek. Returns where the answer ends, if there is one.
    pub(crate) fn begin(
        &mut self,
        (tree, at): (&Tree, &Remote),
        version: &LiveVersion,
        bounds: &Bounds,
        target: InternalKey<'_>,
        number: SequenceNumber,
    ) -> Option<End> {
        self.clear();
        self.member = at.member();
        let delegating = Delegating::new(tree.options.delegation, &at.memory_node().link().capabilities());
        if !delegating.is_possible() || !at.can_search() {
            return None;
        }
        let question = Question::of(at.member(), version, bounds, target.user_key, number)?;
        let mut arguments = Vec::new();
        question.job.encode(&mut arguments);
        let cost = LookupCost {
            one_sided_round_trips: question.job.sources.len() as u64 + 1,
            one_sided_bytes: question.first_block_bytes + question.record_bytes,
            delegated_bytes: arguments.len() as u64 + question.record_bytes + ANSWER_BYTES * u64::from(ENTRIES),
        };
        if !delegating.delegates(cost, at.searches().waiting()) {
            at.searches().spared();
            return None;
        }
        let counters = &tree.counters.delegation;
        let answer = ask(at, arguments).and_then(|result| question.verified(result, bounds));
        let Some((mut entries, is_whole)) = answer else {
            add(&counters.refusals, 1);
            return None;
        };
        // The answer begins with the target's key. A scan may begin after that, as those of a prefix in descending
        // order do.
        entries.retain(|entry| bounds.order().compare_internal(entry.key(), target).is_ge());
        let end = match entries.last() {
            _ if is_whole => End::Whole,
            Some(last) => End::Behind(last.user_key.clone()),
            None => return None,
        };
        add(&counters.scans, 1);
        self.entries = entries;
        Some(end)
    }

    /// Stands nowhere.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.position = 0;
    }

    fn current(&self) -> Option<&Brought> {
        self.entries.get(self.position)
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.current().map(Brought::key)
    }

    pub(crate) fn advance(&mut self) {
        self.position += 1;
    }

    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        self.current()?.expiry_ms
    }

    /// See [`Source::location`](crate::scan::cursor::Source::location).
    pub(crate) fn location(&self) -> Result<Option<Location<'_>>> {
        self.current().map(|entry| entry.location(self.member)).transpose()
    }

    /// See [`Source::fill`](crate::scan::cursor::Source::fill).
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        while let Some(entry) = self.current() {
            let key = entry.key();
            match visibility.decide(key, entry.expiry_ms) {
                Verdict::Shown => {
                    batch.add(key.user_key, Some(entry.location(self.member)?))?;
                    batch.expires(entry.expiry_ms);
                }
                Verdict::Merged => batch.add_merged(key.user_key),
                Verdict::Hidden => {}
                Verdict::Outside => return Ok(Filled::End),
            }
            self.advance();
            if !batch.has_room(limit) || !self.key().is_some_and(|key| goes_on(rival, key.user_key)) {
                break;
            }
        }
        Ok(Filled::Some)
    }
}

impl Brought {
    fn key(&self) -> InternalKey<'_> {
        InternalKey { user_key: &self.user_key, tag: self.tag }
    }

    fn location(&self, member: usize) -> Result<Location<'_>> {
        match &self.value {
            Value::Here(value) => Ok(Location::Local(value)),
            Value::There { table, address, length } => {
                let (segment, offset) = table.locate(*address)?;
                let logical = LogicalAddress { segment: segment.id(), offset };
                let spot = segment.spot_at(member, offset)?;
                Ok(Location::Remote { logical, spot, length: *length, tag: self.tag })
            }
        }
    }
}

/// Makes the call. Returns `None` when the node does not answer, whatever the cause.
fn ask(remote: &Remote, arguments: Vec<u8>) -> Option<ShortScanResult> {
    let bytes = remote.search(job_kind::SHORT_SCAN, arguments)?;
    let result = ShortScanResult::decode(&bytes);
    let result = result.inspect_err(|error| tracing::debug!(%error, "a node's answer to a short scan")).ok()?;
    remote.searches().told(result.waiting);
    Some(result)
}

/// What is asked.
struct Question<'v> {
    job: ShortScanJob,
    /// The member where the tables are.
    member: usize,
    /// The tables of the job.
    tables: Vec<&'v Arc<Table>>,
    /// Bytes of the first block of each source.
    first_block_bytes: u64,
    /// Approximate bytes of the records that are brought.
    record_bytes: u64,
}

impl<'v> Question<'v> {
    /// Returns the question; `None` when there is nothing to ask, or tables are in storage.
    fn of(
        member: usize,
        version: &'v LiveVersion,
        bounds: &Bounds,
        from: &[u8],
        number: SequenceNumber,
    ) -> Option<Self> {
        let job = ShortScanJob {
            key_order: bounds.order(),
            inline_bytes: INLINE_BYTES,
            most_entries: ENTRIES,
            from: from.to_vec(),
            number,
            tables: Vec::new(),
            sources: Vec::new(),
        };
        let mut question = Self { job, member, tables: Vec::new(), first_block_bytes: 0, record_bytes: 0 };
        for (level, tables) in version.levels().iter().enumerate() {
            match level {
                0 => tables.iter().try_for_each(|table| question.add(std::slice::from_ref(table), bounds))?,
                _ => question.add(tables, bounds)?,
            }
        }
        (!question.job.sources.is_empty()).then_some(question)
    }

    /// Adds a source: tables that follow each other.
    fn add(&mut self, tables: &'v [Arc<Table>], bounds: &Bounds) -> Option<()> {
        let order = bounds.order();
        let from = self.job.from.clone();
        let target = InternalKey { user_key: &from, tag: Tag::seek(self.job.number) };
        let mut source = ScannedSource { blocks: Vec::new(), goes_on: false };
        let behind = tables.iter().skip_while(|table| table.ends_before(order, target));
        for table in behind.filter(|table| table.overlaps(bounds)) {
            let sparse = table.cached().sparse_index();
            let all = bounds.blocks(sparse);
            let blocks = sparse.seek(order, target).max(all.start)..all.end;
            for block in blocks.filter_map(|block| sparse.block(block)) {
                if source.blocks.len() == BLOCKS {
                    source.goes_on = true;
                    break;
                }
                let position = self.name(table)?;
                source.blocks.push(SearchedBlock { table: position, block });
            }
            if source.goes_on {
                break;
            }
        }
        if let Some(first) = source.blocks.first() {
            self.first_block_bytes += u64::from(first.block.length);
            self.job.sources.push(source);
        }
        Some(())
    }

    /// Returns the position of the table among those of the job; `None` when a part of the table is not at the member.
    fn name(&mut self, table: &'v Arc<Table>) -> Option<u32> {
        if let Some(last) = self.tables.last()
            && Arc::ptr_eq(last, table)
        {
            return Some(self.tables.len() as u32 - 1);
        }
        let (image, segments) = (table.image_place(self.member)?, table.segment_places(self.member)?);
        self.job.tables.push(SearchedTable { image, segments });
        self.tables.push(table);
        let properties = table.properties();
        let mean = properties.record_bytes / properties.entries().max(1);
        self.record_bytes = self.record_bytes.max(mean.min(INLINE_BYTES.into()) * u64::from(ENTRIES));
        Some(self.tables.len() as u32 - 1)
    }

    /// Returns the entries of an answer, and whether nothing follows them; `None` when the answer cannot be right.
    fn verified(&self, result: ShortScanResult, bounds: &Bounds) -> Option<(Vec<Brought>, bool)> {
        let order = bounds.order();
        let mut entries: Vec<Brought> = Vec::with_capacity(result.entries.len());
        for entry in result.entries {
            let brought = self.brought(entry)?;
            let before = entries.last().map_or(self.job.from.as_slice(), |last| &last.user_key);
            let least = if entries.is_empty() { Ordering::Equal } else { Ordering::Greater };
            if order.compare(&brought.user_key, before) < least || brought.tag.sequence() > self.job.number {
                return None;
            }
            entries.push(brought);
        }
        Some((entries, result.is_whole))
    }

    fn brought(&self, entry: ScannedEntry) -> Option<Brought> {
        let table = *self.tables.get(entry.table as usize)?;
        let ScannedEntry { tag, address, length, body, .. } = entry;
        match body {
            ScannedBody::Record(bytes) => {
                let record = Record::decode(&bytes).ok().filter(|record| record.tag == tag)?;
                let value = Value::Here(record.value.to_vec());
                Some(Brought { user_key: record.key.to_vec(), tag, expiry_ms: record.expiry_ms, value })
            }
            ScannedBody::Key { user_key, expiry_ms } => {
                let key = InternalKey { user_key: &user_key, tag };
                table.properties().locate(&IndexEntry { key, address, length, expiry_ms }).ok()?;
                let value = Value::There { table: Arc::clone(table), address, length };
                Some(Brought { user_key, tag, expiry_ms, value })
            }
        }
    }
}
