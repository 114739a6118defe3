//! Builds a table's image from entries in order.
//!
//! The builder holds the image (tens of bytes per entry) and 24 bytes per entry for the point index, never a record. An
//! ordinal from [`TableBuilder::segment`] names a record's segment. A **run**, into which the table's records will be
//! gathered, gets its id when it ends.

use crate::block::{BlockBuilder, shared_bytes};
use crate::entry::{IndexEntry, OwnedKey, RangeTombstone, RecordAddress, UNIT_BYTES};
use crate::error::{Error, Result};
use crate::image::{Section, TailWriter, encode_tombstones};
use crate::point_index::{PointEntry, PointIndexOptions, build, key_hash};
use crate::properties::{Creation, PropertiesBuilder, SegmentUse, TableProperties};
use crate::sparse_index::{BlockAddress, SparseIndexBuilder};
use forebay_base::{InternalKey, KeyOrder, Kind, SegmentId};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Maximum bytes of point and sparse index per entry.
const POINT_BYTES: u64 = 8;
/// Approximate bytes that the builder holds for each segment: its use, and its ordinal.
const HELD_PER_SEGMENT: usize = size_of::<SegmentUse>() + 2 * size_of::<(SegmentId, u32)>();

/// Parameters of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Order of the user keys.
    pub key_order: KeyOrder,
    /// Size at which an index block ends, in bytes.
    pub block_bytes: u32,
    /// Number of entries from one key that is stored whole to the next such key.
    pub restart_interval: u32,
    /// Parameters of the point index.
    pub point_index: PointIndexOptions,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            key_order: KeyOrder::Bytewise,
            block_bytes: 4 << 10,
            restart_interval: 16,
            point_index: PointIndexOptions::default(),
        }
    }
}

/// A finished table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltTable {
    /// The image (see [`crate::image`]).
    pub image: Vec<u8>,
    /// Offset of the tail in the image, in bytes.
    pub tail_offset: u64,
    /// The properties in the image.
    pub properties: TableProperties,
}

impl BuiltTable {
    /// The part of the image that a compute node caches.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        self.image.get(self.tail_offset as usize..).unwrap_or_default()
    }
}

/// A run into which records will be gathered.
#[derive(Debug, Clone, Copy)]
struct Run {
    ordinal: u32,
    next_unit: u64,
}

/// Builds one table.
#[derive(Debug)]
pub struct TableBuilder {
    options: TableOptions,
    image: Vec<u8>,
    block: BlockBuilder,
    sparse: SparseIndexBuilder,
    points: Vec<PointEntry>,
    properties: PropertiesBuilder,
    ordinals: BTreeMap<SegmentId, u32>,
    run: Option<Run>,
    last: Option<OwnedKey>,
    tombstones: Vec<RangeTombstone>,
}

impl TableBuilder {
    /// A builder of a table that `creation` writes.
    #[must_use]
    pub fn new(options: TableOptions, creation: Creation) -> Self {
        Self {
            options,
            image: Vec::new(),
            block: BlockBuilder::new(options.restart_interval),
            sparse: SparseIndexBuilder::default(),
            points: Vec::new(),
            properties: PropertiesBuilder::new(options.key_order, creation),
            ordinals: BTreeMap::new(),
            run: None,
            last: None,
            tombstones: Vec::new(),
        }
    }

    /// The ordinal of a segment with records. `is_run` matters only at the first call for a segment.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are 2^32 segments.
    pub fn segment(&mut self, id: SegmentId, is_run: bool) -> Result<u32> {
        if let Some(ordinal) = self.ordinals.get(&id) {
            return Ok(*ordinal);
        }
        let ordinal = self.list_segment(SegmentUse::new(id, is_run))?;
        self.ordinals.insert(id, ordinal);
        Ok(ordinal)
    }

    fn list_segment(&mut self, segment: SegmentUse) -> Result<u32> {
        let segments = self.properties.segments_mut();
        let ordinal = u32::try_from(segments.len()).map_err(|_| Error::Invalid("the table has too many segments"))?;
        segments.push(segment);
        Ok(ordinal)
    }

    /// Number of entries added.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.points.len() as u64
    }

    /// Bytes of the records that the table references, with padding.
    #[must_use]
    pub const fn record_bytes(&self) -> u64 {
        self.properties.properties().record_bytes
    }

    /// Approximate bytes of the image, without the properties.
    #[must_use]
    #[inline]
    pub const fn image_bytes(&self) -> u64 {
        self.image.len() as u64 + self.points.len() as u64 * POINT_BYTES
    }

    /// Bytes that the builder holds.
    #[must_use]
    #[inline]
    pub const fn held_bytes(&self) -> u64 {
        let segments = self.properties.properties().segments.len() * HELD_PER_SEGMENT;
        let points = self.points.len() * size_of::<PointEntry>();
        (self.image.len() + self.block.size_bytes() + points + segments) as u64 + self.sparse.held_bytes()
    }

    /// Additional bytes that the builder holds while it [finishes](TableBuilder::finish): the point index twice, and the
    /// starts of its buckets three times.
    #[must_use]
    pub const fn finishing_bytes(&self) -> u64 {
        let load = if self.options.point_index.load == 0 { 1 } else { self.options.point_index.load as u64 };
        let entries = self.points.len() as u64;
        2 * entries * POINT_BYTES + 12 * (entries / load) + 2 * self.sparse.held_bytes()
    }

    /// The key of the last entry added.
    #[must_use]
    pub fn last_key(&self) -> Option<InternalKey<'_>> {
        self.last.as_ref().map(OwnedKey::as_key)
    }

    /// Whether the table has neither an entry nor a range deletion.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points.is_empty() && self.tombstones.is_empty()
    }

    /// Appends an entry. Its ordinal comes from [`TableBuilder::segment`], and its key sorts after the last one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry out of order or one that no record can have.
    pub fn add(&mut self, entry: &IndexEntry<'_>) -> Result<()> {
        self.add_hashed(entry, key_hash(entry.key.user_key))
    }

    /// Appends an entry whose record will be gathered into a run, after those added since the last run
    /// [ended](TableBuilder::end_run). `entry.address` is ignored.
    ///
    /// # Errors
    /// As [`TableBuilder::add`].
    pub fn add_to_run(&mut self, entry: &IndexEntry<'_>, hash: u64) -> Result<()> {
        let run = match self.run {
            Some(run) => run,
            None => Run { ordinal: self.list_segment(SegmentUse::new(SegmentId(u64::MAX), true))?, next_unit: 0 },
        };
        let address = RecordAddress { ordinal: run.ordinal, offset_units: run.next_unit };
        self.run = Some(run);
        self.add_hashed(&IndexEntry { address, ..*entry }, hash)?;
        self.run = Some(Run { next_unit: run.next_unit + entry.padded_length() / UNIT_BYTES, ..run });
        Ok(())
    }

    /// Bytes of the run so far; zero without a run.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        self.run.map_or(0, |run| run.next_unit * UNIT_BYTES)
    }

    /// Ends the run, if there is one: it is segment `id`. Later records go to another run.
    pub fn end_run(&mut self, id: SegmentId) {
        if let Some(Run { ordinal, .. }) = self.run.take()
            && let Some(run) = self.properties.segments_mut().get_mut(ordinal as usize)
        {
            run.id = id;
        }
    }

    fn add_hashed(&mut self, entry: &IndexEntry<'_>, hash: u64) -> Result<()> {
        entry.check()?;
        if entry.key.tag.kind() == Kind::RangeDelete || entry.key.tag.kind().is_void() {
            return Err(Error::Invalid("a range deletion, or nothing, is no entry"));
        }
        if entry.address.ordinal as usize >= self.properties.properties().segments.len() {
            return Err(Error::Invalid("the entry's segment is not listed"));
        }
        let shared = match &self.last {
            Some(last) => shared_bytes(&last.user_key, entry.key.user_key),
            None => 0,
        };
        if self.last.as_ref().is_some_and(|last| !self.is_before(last, entry.key, shared)) {
            return Err(Error::Invalid("the entry is out of order"));
        }
        let is_same = |last: &OwnedKey| last.user_key.len() == shared && entry.key.user_key.len() == shared;
        let is_shadowed = self.last.as_ref().is_some_and(is_same);
        let last_key = self.last.as_ref().map_or(&[][..], |last| &last.user_key);
        self.block.add(entry, shared, last_key);
        self.properties.add(entry, is_shadowed);
        self.points.push(PointEntry {
            hash,
            offset_units: entry.address.offset_units,
            ordinal: entry.address.ordinal,
            length: entry.length,
        });
        let last = self.last.get_or_insert_with(|| OwnedKey { user_key: Vec::new(), tag: entry.key.tag });
        last.user_key.truncate(shared);
        last.user_key.extend_from_slice(&entry.key.user_key[shared..]);
        last.tag = entry.key.tag;
        if self.block.size_bytes() >= self.options.block_bytes as usize {
            self.finish_block()?;
        }
        Ok(())
    }

    /// Whether `last` sorts before `key`. They share `shared` bytes.
    #[inline]
    fn is_before(&self, last: &OwnedKey, key: InternalKey<'_>, shared: usize) -> bool {
        let behind = |key: &[u8]| key.get(shared).map_or(0, |byte| u32::from(*byte) + 1);
        let order = match self.options.key_order {
            KeyOrder::Bytewise => behind(&last.user_key).cmp(&behind(key.user_key)),
            KeyOrder::ReverseBytewise => behind(key.user_key).cmp(&behind(&last.user_key)),
        };
        order.then(key.tag.cmp(&last.tag)) == Ordering::Less
    }

    /// Adds a range deletion, in any order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when its range is empty or it is of another kind.
    pub fn add_range_deletion(&mut self, tombstone: RangeTombstone) -> Result<()> {
        let empty = self.options.key_order.compare(&tombstone.start, &tombstone.end) != Ordering::Less;
        if empty || tombstone.tag.kind() != Kind::RangeDelete {
            return Err(Error::Invalid("the range deletion is none"));
        }
        self.tombstones.push(tombstone);
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        let Some(last) = self.last.as_ref().filter(|_| !self.block.is_empty()) else { return Ok(()) };
        let offset = self.image.len() as u64;
        let length = self.block.finish(&mut self.image);
        self.sparse.add(BlockAddress { offset, length }, last)
    }

    /// Completes the image.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty table, a run that has not ended, or a table that is too large.
    pub fn finish(mut self) -> Result<BuiltTable> {
        if self.is_empty() {
            return Err(Error::Invalid("a table has at least one entry"));
        }
        if self.run.is_some() {
            return Err(Error::Invalid("the table's run has no segment"));
        }
        self.finish_block()?;
        let Self { options, mut image, sparse, points, properties, last, tombstones, .. } = self;
        let properties = properties.finish(last, &tombstones);
        let spans: Vec<_> = properties.segments.iter().map(SegmentUse::span).collect();
        let mut tail = TailWriter::new(&mut image);
        tail.section(Section::SparseIndex, |out| sparse.encode(out))?;
        tail.section(Section::PointIndex, |out| build(out, &spans, &points, options.point_index))?;
        if !tombstones.is_empty() {
            tail.section(Section::RangeDeletions, |out| encode_tombstones(out, &tombstones))?;
        }
        tail.section(Section::Properties, |out| properties.encode(out))?;
        let tail_offset = tail.finish();
        Ok(BuiltTable { image, tail_offset, properties })
    }
}
