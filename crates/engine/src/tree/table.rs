//! A table as this process holds it: its cached indexes and the segments that it names.

use crate::remote::index_cache::HeldIndex;
use crate::remote::segment::Segment;
use crate::terms::bounds::Bounds;
use crate::terms::{Error, Result};
use crate::tree::range_deletions::RangeDeletions;
use forebay_base::{InternalKey, KeyOrder, SegmentId};
use forebay_table::entry::UNIT_BYTES;
use forebay_table::job::SearchPlace;
use forebay_table::point_index::Candidates;
use forebay_table::{CachedTable, Candidate, ImageAddress, RecordAddress, SegmentKind, TableId, TableProperties};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places where records of a key may be.
pub(crate) enum Places<'t> {
    /// From the point index, which the table always holds.
    Cached(Candidates<'t>),
    /// From a point index that may be dropped.
    Copied(std::vec::IntoIter<Candidate>),
}

impl Iterator for Places<'_> {
    type Item = Candidate;

    #[inline]
    fn next(&mut self) -> Option<Candidate> {
        match self {
            Self::Cached(places) => places.next(),
            Self::Copied(places) => places.next(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    id: TableId,
    /// Includes the point index, unless that is held within a budget.
    cached: CachedTable,
    held: Option<Arc<HeldIndex>>,
    range_deletions: RangeDeletions,
    image: Arc<Segment>,
    /// Range of the tail in the image's segment.
    tail: Range<u64>,
    /// In the order of the table's segment list; addresses count in this order.
    segments: Vec<Arc<Segment>>,
    /// Ordinals of the segments, by their numbers: there may be hundreds.
    ordinals: Vec<(SegmentId, u32)>,
    /// How often scans crossed the whole table.
    crossings: AtomicU32,
}

impl Table {
    /// A table over the segments that it names.
    ///
    /// # Errors
    /// `Corrupt` when a segment is missing.
    pub(crate) fn new(
        id: TableId,
        mut cached: CachedTable,
        image: ImageAddress,
        find: impl Fn(SegmentId) -> Option<Arc<Segment>>,
    ) -> Result<Self> {
        let open = |segment| {
            find(segment).ok_or_else(|| Error::corrupt(format!("table {} names {segment}, which is not open", id.0)))
        };
        let used = &cached.properties().segments;
        let segments = used.iter().map(|used| open(used.id)).collect::<Result<_>>()?;
        let mut ordinals: Vec<_> = used.iter().zip(0..).map(|(used, ordinal)| (used.id, ordinal)).collect();
        ordinals.sort_unstable();
        let range_deletions = cached.range_deletions().iter().cloned().map(Arc::new);
        let range_deletions = RangeDeletions::new(cached.properties().key_order, range_deletions);
        let tail = image.tail_offset..image.length;
        let image = open(image.segment)?;
        let held = match image.remote().index_cache() {
            Some(cache) => {
                cached.take_point_index().map(|index| cache.hold(index, cached.sparse_index().size_bytes() as u64))
            }
            None => None,
        };
        let crossings = AtomicU32::new(0);
        Ok(Self { id, image, cached, held, range_deletions, segments, ordinals, tail, crossings })
    }

    /// Where records of the key with this hash may be; `None` when the point index is not held.
    #[inline]
    pub(crate) fn places(&self, hash: u64) -> Option<Places<'_>> {
        match (self.cached.point_index(), &self.held) {
            (Some(index), _) => Some(Places::Cached(index.candidates(hash))),
            (None, Some(held)) => Some(Places::Copied(held.get()?.candidates(hash).collect::<Vec<_>>().into_iter())),
            (None, None) => None,
        }
    }

    /// Whether [`Table::places`] would return an answer.
    pub(crate) fn has_places(&self) -> bool {
        self.cached.point_index().is_some() || self.held.as_ref().is_some_and(|held| held.is_held())
    }

    /// The entry of the point index in the cache, if it is held within a budget.
    pub(crate) fn held(&self) -> Option<&Arc<HeldIndex>> {
        self.held.as_ref()
    }

    /// Range of the tail in the image's segment.
    pub(crate) fn tail(&self) -> &Range<u64> {
        &self.tail
    }

    /// Bytes of the cached indexes.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.held.as_ref().map_or(self.cached.size_bytes() as u64, |held| held.held_bytes())
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    #[inline]
    pub(crate) fn cached(&self) -> &CachedTable {
        &self.cached
    }

    #[inline]
    pub(crate) fn properties(&self) -> &TableProperties {
        self.cached.properties()
    }

    /// Notes that a scan reached the end of the table; it should then have fewer runs.
    pub(crate) fn crossed(&self) {
        self.crossings.fetch_add(1, Ordering::Relaxed);
    }

    /// How often scans crossed the whole table.
    pub(crate) fn crossings(&self) -> u32 {
        self.crossings.load(Ordering::Relaxed)
    }

    /// Where the table's image begins in the memory of a member; `None` when it is not there, but in storage.
    pub(crate) fn image_place(&self, member: usize) -> Option<SearchPlace> {
        self.image.memory_place(member)
    }

    /// Where each of its segments begins in that memory, by ordinal; `None` when one is not there.
    pub(crate) fn segment_places(&self, member: usize) -> Option<Vec<SearchPlace>> {
        self.segments.iter().map(|segment| segment.memory_place(member)).collect()
    }

    /// The segment that holds the table's image.
    pub(crate) fn image(&self) -> &Arc<Segment> {
        &self.image
    }

    /// The segment with this number.
    ///
    /// # Errors
    /// `Corrupt` when the table has no such segment.
    #[inline]
    pub(crate) fn segment(&self, id: SegmentId) -> Result<&Arc<Segment>> {
        let place = self.ordinals.binary_search_by_key(&id, |(other, _)| *other).ok();
        let ordinal = place.and_then(|place| self.ordinals.get(place));
        ordinal.and_then(|(_, ordinal)| self.segments.get(*ordinal as usize)).ok_or_else(|| self.stray(&id))
    }

    /// The segment of an address of this table, and the offset in it in bytes.
    ///
    /// # Errors
    /// `Corrupt` when the table's list has no such segment.
    #[inline]
    pub(crate) fn locate(&self, address: RecordAddress) -> Result<(&Arc<Segment>, u64)> {
        match self.segments.get(address.ordinal as usize) {
            Some(segment) => Ok((segment, address.offset_units * UNIT_BYTES)),
            None => Err(self.stray(&address.ordinal)),
        }
    }

    /// The segment that holds all of the table's records, if there is only one.
    pub(crate) fn only_segment(&self) -> Option<&Arc<Segment>> {
        match self.segments.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The range of the table's only segment if its records are in key order without gaps; `None` if they are not.
    pub(crate) fn sole_run(&self) -> Option<Range<u64>> {
        let [used] = self.properties().segments.as_slice() else { return None };
        if self.only_segment()?.info().kind != SegmentKind::Run
            || used.gap_bytes() > 0
            || used.entries != self.properties().entries()
        {
            return None;
        }
        let start = used.first_unit.checked_mul(UNIT_BYTES)?;
        let end = start.checked_add(used.span_units.checked_mul(UNIT_BYTES)?)?;
        (end <= self.only_segment()?.info().length).then_some(start..end)
    }

    #[cold]
    fn stray(&self, segment: &dyn std::fmt::Debug) -> Error {
        Error::corrupt(format!("table {} has a record in segment {segment:?}, which it does not name", self.id.0))
    }

    /// The table's range deletions.
    #[inline]
    pub(crate) fn range_deletions(&self) -> &RangeDeletions {
        &self.range_deletions
    }

    /// Whether all of the table's entries sort before `target`.
    pub(crate) fn ends_before(&self, order: KeyOrder, target: InternalKey<'_>) -> bool {
        order.compare_internal(self.properties().largest.as_key(), target) == std::cmp::Ordering::Less
    }

    /// Whether all of the table's entries sort after `target`.
    pub(crate) fn starts_after(&self, order: KeyOrder, target: InternalKey<'_>) -> bool {
        order.compare_internal(self.properties().smallest.as_key(), target) == std::cmp::Ordering::Greater
    }

    /// Whether the table may hold entries within the bounds.
    pub(crate) fn overlaps(&self, bounds: &Bounds) -> bool {
        bounds.overlap(self.properties().smallest.as_key(), self.properties().largest.as_key())
    }
}
