//! A budget for point indexes.
//!
//! A compute node always keeps a table's properties, range deletions and sparse index (a few hundredths of the whole).
//! It keeps the point index, which is nearly all the rest, only as far as
//! [`Options::cached_index_bytes`](crate::Options::cached_index_bytes) allows. Without a budget, nothing of this module
//! runs.
//!
//! * **Eviction** uses second chance (CLOCK). The indexes form a ring. The hand clears the mark of use of an index that
//!   has one, and evicts an index that has none.
//! * **Misses** are answered from the table's index blocks, which are verified on their own, at the price of one more
//!   round trip (see `lookup`).
//! * **Admission**: a table's misses are counted. Once they have read as many bytes as the index has, the reader loads
//!   it. So misses cost at most twice what knowledge of the future would cost (the ski rental argument).
//!
//! A new table brings its index along; the index is held at once.

use crate::terms::statistics::{IndexCacheStatistics, add, get};
use forebay_env::sync::{Mutex, RwLock, lock};
use forebay_table::PointIndex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

/// See the module.
#[derive(Debug)]
pub(crate) struct IndexCache {
    /// Bytes that indexes may take.
    budget_bytes: u64,
    /// Bytes of everything that is held, sparse indexes included.
    held_bytes: AtomicU64,
    ring: Mutex<VecDeque<Weak<HeldIndex>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    loads: AtomicU64,
}

/// The entry of a table's point index.
#[derive(Debug)]
pub(crate) struct HeldIndex {
    cache: Arc<IndexCache>,
    /// Bytes of the table's sparse index. The point index's bytes follow.
    sparse_bytes: u64,
    point_bytes: u64,
    index: RwLock<Option<Arc<PointIndex>>>,
    /// Used since the last pass of the clock's hand.
    is_used: AtomicBool,
    /// A reader is loading the index.
    is_loading: AtomicBool,
    /// Bytes read in place of the index.
    missed_bytes: AtomicU64,
}

impl IndexCache {
    pub(crate) fn new(budget_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            held_bytes: AtomicU64::new(0),
            ring: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            loads: AtomicU64::new(0),
        })
    }

    pub(crate) fn statistics(&self) -> IndexCacheStatistics {
        IndexCacheStatistics {
            hits: get(&self.hits),
            misses: get(&self.misses),
            evictions: get(&self.evictions),
            loads: get(&self.loads),
        }
    }

    /// The entry of a new table's index, which is held if the budget allows.
    pub(crate) fn hold(self: &Arc<Self>, index: PointIndex, sparse_bytes: u64) -> Arc<HeldIndex> {
        let held = Arc::new(HeldIndex {
            cache: Arc::clone(self),
            sparse_bytes,
            point_bytes: index.size_bytes() as u64,
            index: RwLock::new(None),
            is_used: AtomicBool::new(true),
            is_loading: AtomicBool::new(false),
            missed_bytes: AtomicU64::new(0),
        });
        self.held_bytes.fetch_add(sparse_bytes, Ordering::Relaxed);
        self.admit(&held, index);
        held
    }

    /// Holds an index, then evicts indexes, this one included, until the budget is kept.
    fn admit(&self, held: &Arc<HeldIndex>, index: PointIndex) {
        // An index that could never stay would only drive others out.
        if held.point_bytes > self.budget_bytes {
            return;
        }
        let mut ring = lock(&self.ring);
        // While the budget is kept, the hand stands still, and tables come and go.
        ring.retain(|held| held.strong_count() > 0);
        *held.index.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(index));
        self.held_bytes.fetch_add(held.point_bytes, Ordering::Relaxed);
        ring.push_back(Arc::downgrade(held));
        // Each is visited at most twice: once with the mark of use, once without.
        for _ in 0..2 * ring.len() {
            if self.held_bytes.load(Ordering::Relaxed) <= self.budget_bytes {
                return;
            }
            let Some(next) = ring.pop_front() else { return };
            let Some(victim) = next.upgrade() else { continue };
            if victim.is_used.swap(false, Ordering::Relaxed) {
                ring.push_back(next);
            } else if victim.index.write().unwrap_or_else(PoisonError::into_inner).take().is_some() {
                self.held_bytes.fetch_sub(victim.point_bytes, Ordering::Relaxed);
                add(&self.evictions, 1);
            }
        }
    }
}

impl HeldIndex {
    /// The index, if it is held.
    pub(crate) fn get(&self) -> Option<Arc<PointIndex>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner).clone();
        if index.is_some() {
            add(&self.cache.hits, 1);
            // Stores only to change the value, because readers share the cache line.
            if !self.is_used.load(Ordering::Relaxed) {
                self.is_used.store(true, Ordering::Relaxed);
            }
        } else {
            add(&self.cache.misses, 1);
        }
        index
    }

    /// Whether the index is held. Does not count as a use.
    pub(crate) fn is_held(&self) -> bool {
        self.index.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Bytes held of the table's indexes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.sparse_bytes + if self.is_held() { self.point_bytes } else { 0 }
    }

    /// Notes that `bytes` were read because the index is not held. Returns whether the caller should load it and then
    /// call [`HeldIndex::loaded`].
    pub(crate) fn missed(&self, bytes: u64) -> bool {
        let missed = self.missed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        missed >= self.point_bytes
            && self.point_bytes <= self.cache.budget_bytes
            && !self.is_loading.swap(true, Ordering::Relaxed)
    }

    /// Ends a load.
    pub(crate) fn loaded(self: &Arc<Self>, index: Option<PointIndex>) {
        self.missed_bytes.store(0, Ordering::Relaxed);
        if let Some(index) = index
            && !self.is_held()
        {
            self.is_used.store(true, Ordering::Relaxed);
            self.cache.admit(self, index);
            add(&self.cache.loads, 1);
        }
        self.is_loading.store(false, Ordering::Relaxed);
    }
}

impl Drop for HeldIndex {
    fn drop(&mut self) {
        self.cache.held_bytes.fetch_sub(self.held_bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{InternalKey, Kind, SequenceNumber, Tag};
    use forebay_table::{CachedTable, Creation, IndexEntry, RecordAddress, TableBuilder, TableOptions};

    fn index() -> PointIndex {
        let mut builder = TableBuilder::new(TableOptions::default(), Creation::default());
        let ordinal = builder.segment(forebay_base::SegmentId(1), false).unwrap();
        for i in 0..100u64 {
            let tag = Tag::new(SequenceNumber(i + 1), Kind::Put, false);
            let key = InternalKey { user_key: &i.to_be_bytes(), tag };
            let address = RecordAddress { ordinal, offset_units: i * 4 };
            builder.add(&IndexEntry { key, address, length: 32, expiry_ms: None }).unwrap();
        }
        let table = builder.finish().unwrap();
        CachedTable::parse(table.tail()).unwrap().take_point_index().unwrap()
    }

    #[test]
    fn the_budget_is_kept_and_what_is_used_stays() {
        let bytes = index().size_bytes() as u64;
        let cache = IndexCache::new(3 * bytes);
        let places: Vec<_> = (0..3).map(|_| cache.hold(index(), 0)).collect();
        assert!(places.iter().all(|place| place.is_held()));
        // All are marked. The hand clears the marks and then evicts the oldest.
        let fourth = cache.hold(index(), 0);
        assert_eq!(places.iter().map(|place| place.is_held()).collect::<Vec<_>>(), [false, true, true]);
        assert!(fourth.is_held() && places[1].get().is_some());
        let fifth = cache.hold(index(), 0);
        assert!(fifth.is_held() && places[1].is_held() && !places[2].is_held());
        assert_eq!(get(&cache.held_bytes), 3 * bytes);
        drop((places, fourth, fifth));
        assert_eq!(get(&cache.held_bytes), 0);
        assert_eq!(cache.statistics(), IndexCacheStatistics { hits: 1, misses: 0, evictions: 2, loads: 0 });
    }

    #[test]
    fn indexes_of_tables_that_are_gone_leave_the_ring() {
        let cache = IndexCache::new(u64::MAX);
        (0..10).for_each(|_| drop(cache.hold(index(), 0)));
        let last = cache.hold(index(), 0);
        assert!(last.is_held());
        assert_eq!(lock(&cache.ring).len(), 1);
    }

    #[test]
    fn an_index_is_loaded_when_its_misses_have_cost_as_much() {
        let bytes = index().size_bytes() as u64;
        let cache = IndexCache::new(bytes);
        let (first, second) = (cache.hold(index(), 0), cache.hold(index(), 0));
        assert!(!first.is_held() && second.is_held() && first.get().is_none());
        assert!(!first.missed(bytes / 2));
        assert!(first.missed(bytes / 2 + 1));
        assert!(!first.missed(bytes), "one loads it");
        first.loaded(Some(index()));
        assert!(first.is_held() ^ second.is_held());
        assert_eq!(cache.statistics().loads, 1);
        let small = IndexCache::new(bytes - 1);
        let never = small.hold(index(), 7);
        assert!(!never.is_held() && !never.missed(100 * bytes) && never.held_bytes() == 7);
    }
}
