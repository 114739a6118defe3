//! What a database counts.

use forebay_fabric::Counts;
use forebay_storage::{BlockCacheCounts, StorageCounts};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the database was opened, and its current shape, summed over its shards.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Fabric operations that callers waited for.
    pub foreground: Counts,
    /// Fabric operations of flushes, compactions and upkeep.
    pub background: Counts,
    /// Nanoseconds that writers waited for flushes and compactions, summed over writers.
    pub stall_nanos: u64,
    /// How often a writer waited.
    pub stalls: u64,
    /// The same, by cause.
    pub stalls_by_cause: StallsByCause,
    /// Memtables flushed.
    pub flushes: u64,
    /// Activity of the log of writes.
    pub log: LogStatistics,
    /// Bytes of tables that were copied from one memory node to others, where there are several copies.
    pub replicated_bytes: u64,
    /// Bytes of tables that these nodes made themselves, by running the same compaction.
    pub rebuilt_bytes: u64,
    /// Damage that was found in copies in memory.
    pub copies: CopyStatistics,
    /// What was done to storage; zeros without one.
    pub storage: StorageCounts,
    /// Activity of the cache of what is read from storage; zeros without one.
    pub block_cache: BlockCacheCounts,
    /// Compactions done at either node.
    pub compactions: u64,
    /// Compactions that the memory node did.
    pub near_data_compactions: u64,
    /// Compactions done by executors that the scheduler found.
    pub offloaded_compactions: u64,
    /// Segments in memory whose copies executors put into storage.
    pub offloaded_copies: u64,
    /// Flushes whose index was built elsewhere: at the memory node, or by an executor
    /// ([`Options::flush_place`](crate::Options::flush_place)).
    pub offloaded_flushes: u64,
    /// How often the memory node, or the scheduler, refused a compaction.
    pub refused_compactions: u64,
    /// Tables that went without a compaction, because a newer range deletion hid all that they held.
    pub hidden_tables: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes of indexes and records that compactions read, at either node.
    pub compaction_bytes_read: u64,
    /// Bytes of indexes and records that compactions wrote, at either node.
    pub compaction_bytes_written: u64,
    /// Bytes that compactions moved over the fabric. For a compaction at the memory node: arguments and reply.
    pub compaction_fabric_bytes: u64,
    /// Bytes of records that are known to be dead, that no reader pins, and that are not freed yet.
    pub dead_bytes_known: u64,
    /// Estimated bytes of shadowed records that no compaction has compared yet, from the share that compactions have
    /// found so far.
    pub dead_bytes_undiscovered: u64,
    /// Bytes of the segments that the newest versions name.
    pub named_bytes: u64,
    /// Bytes that the newest versions do not name. An earlier version that a snapshot, an iterator or a read holds
    /// names them, or a flush or compaction is producing them, or the manifests take them: up to two extents a shard.
    pub dead_bytes_pinned: u64,
    /// Bytes of the cached indexes of tables.
    pub cached_index_bytes: u64,
    /// Activity of the budget for cached indexes; zeros without a budget.
    pub index_cache: IndexCacheStatistics,
    /// Lookups without a point index, and who did them.
    pub delegation: DelegationStatistics,
    /// Bytes of memtables, sealed ones included.
    pub memtable_bytes: u64,
    /// Bytes that this database occupies on memory nodes.
    pub remote_bytes: u64,
    /// Bytes of records that tables reference.
    pub live_bytes: u64,
    /// Bounds between shards that were moved.
    pub bound_moves: u64,
    /// Bytes of keys and values that moved to another shard with the bounds.
    pub bound_moved_bytes: u64,
    /// The levels, level 0 first.
    pub levels: Vec<LevelStatistics>,
}

/// Activity of the log of writes, in memory or in storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Shipments: each makes all durable that was published then.
    pub groups: u64,
    /// Bytes of records that were shipped. A log in a directory gets them some milliseconds after they were written,
    /// even before a shipment makes them durable: then they survive the end of this process.
    pub bytes: u64,
    /// Number of these records.
    pub records: u64,
    /// Writers that waited while another one shipped.
    pub waits: u64,
    /// Bytes of memtables that were flushed, and whose tables storage does not have yet.
    pub lag_bytes: u64,
}

/// Damage in copies in memory, where a database has durability `memory`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyStatistics {
    /// Places in copies that were found to be damaged. A place that cannot be repaired counts each time that it is
    /// found.
    pub damaged: u64,
    /// Of these, those that were rewritten from another copy.
    pub mended: u64,
    /// Bytes of copies that scrubs have checked
    /// ([`Options::scrub_bytes_per_second`](crate::Options::scrub_bytes_per_second)).
    pub scrubbed_bytes: u64,
    /// How often a scrub has checked all copies of a shard, summed over the shards.
    pub scrubs: u64,
}

/// What a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StallCause {
    Memtables,
    Level0Slowdown,
    Level0Stop,
    Collection,
    MemoryFull,
    MovedBound,
}

/// Writers' waits by their cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallsByCause {
    /// The maximum number of memtables wait for their flush.
    pub memtables: Stalls,
    /// Level 0 has reached its slowdown trigger: short pauses.
    pub level0_slowdown: Stalls,
    /// Level 0 has reached its stop trigger.
    pub level0_stop: Stalls,
    /// There are more dead bytes than allowed: short pauses, so that collection keeps up.
    pub collection: Stalls,
    /// The memory node is full or nearly full: pauses, waits until memory was freed, and writes that failed.
    pub memory_full: Stalls,
    /// The keys are moving to another shard: short waits.
    pub moved_bound: Stalls,
}

impl StallsByCause {
    /// The sum over all causes.
    #[must_use]
    pub fn all(&self) -> Stalls {
        let causes = [
            self.memtables,
            self.level0_slowdown,
            self.level0_stop,
            self.collection,
            self.memory_full,
            self.moved_bound,
        ];
        causes.iter().fold(Stalls::default(), |all, stalls| Stalls {
            count: all.count + stalls.count,
            nanos: all.nanos + stalls.nanos,
        })
    }
}

/// Waits of writers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of waits.
    pub count: u64,
    /// Nanoseconds, summed over writers.
    pub nanos: u64,
}

/// Activity of a database's cache of point indexes, see [`Statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexCacheStatistics {
    /// Lookups of point indexes that were held.
    pub hits: u64,
    /// Lookups of point indexes that were not held.
    pub misses: u64,
    /// Point indexes dropped to stay within the budget.
    pub evictions: u64,
    /// Point indexes read again.
    pub loads: u64,
}

impl IndexCacheStatistics {
    pub(crate) const fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.evictions += other.evictions;
        self.loads += other.loads;
    }
}

/// Lookups of keys in tables whose point indexes were not held, and scans, that memory nodes did or could have done, see
/// [`Statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DelegationStatistics {
    /// Messages by which a memory node was asked to look keys up.
    pub searches: u64,
    /// Keys that it looked up.
    pub searched_keys: u64,
    /// Of these, keys whose record was too long for the answer, and was read from its address.
    pub long_records: u64,
    /// Keys that could have been delegated, and were looked up by reading because that costs less.
    pub read_keys: u64,
    /// Scans whose first entries a memory node brought.
    pub scans: u64,
    /// Searches that a memory node refused or failed at, and wrong answers: the keys were read instead.
    pub refusals: u64,
    /// Records read at an address that an earlier lookup had learnt.
    pub learnt_uses: u64,
    /// Learnt addresses that were dropped because the key may have moved.
    pub learnt_stale: u64,
}

/// One level of the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Number of tables.
    pub tables: u64,
    /// Number of clustered runs.
    pub runs: u64,
    /// Bytes of records that the level's tables reference.
    pub bytes: u64,
    /// Number of index entries.
    pub entries: u64,
}

impl LevelStatistics {
    pub(crate) fn add(&mut self, other: &Self) {
        self.tables += other.tables;
        self.runs += other.runs;
        self.bytes += other.bytes;
        self.entries += other.entries;
    }
}

/// Counters that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) stalls: StallCounters,
    pub(crate) flushes: AtomicU64,
    /// Compactions at the compute node.
    pub(crate) home_compactions: AtomicU64,
    pub(crate) near_data_compactions: AtomicU64,
    pub(crate) offloaded_compactions: AtomicU64,
    pub(crate) offloaded_copies: AtomicU64,
    pub(crate) offloaded_flushes: AtomicU64,
    pub(crate) refused_compactions: AtomicU64,
    pub(crate) hidden_tables: AtomicU64,
    pub(crate) compaction_entries: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    pub(crate) compaction_fabric_bytes: AtomicU64,
    /// Bytes of records that came from above, and bytes of those that were dropped.
    pub(crate) compaction_bytes_arrived: AtomicU64,
    pub(crate) compaction_bytes_dropped: AtomicU64,
    /// Shipments of the log, their bytes and records, and writers that waited for another one's.
    pub(crate) log_groups: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_records: AtomicU64,
    pub(crate) log_waits: AtomicU64,
    /// Bytes of tables that were copied to other members.
    pub(crate) replicated_bytes: AtomicU64,
    /// Bytes of tables that other members made themselves.
    pub(crate) rebuilt_bytes: AtomicU64,
    /// Damaged places of copies that were found, and those that were rewritten.
    pub(crate) damaged_copies: AtomicU64,
    pub(crate) mended_copies: AtomicU64,
    /// Bytes of copies that a scrub has checked, and how often it has checked all.
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) scrubs: AtomicU64,
    pub(crate) delegation: DelegationCounters,
}

impl Counters {
    /// Adds the compactions of each place. All of them are the sum of these: a place's share never falls.
    pub(crate) fn add_compactions(&self, sums: &mut Statistics) {
        let (near, offloaded) = (get(&self.near_data_compactions), get(&self.offloaded_compactions));
        sums.near_data_compactions += near;
        sums.offloaded_compactions += offloaded;
        sums.compactions += get(&self.home_compactions) + near + offloaded;
    }
}

/// Counters of lookups without a point index, see [`DelegationStatistics`].
#[derive(Debug, Default)]
pub(crate) struct DelegationCounters {
    pub(crate) searches: AtomicU64,
    pub(crate) searched_keys: AtomicU64,
    pub(crate) long_records: AtomicU64,
    pub(crate) read_keys: AtomicU64,
    pub(crate) scans: AtomicU64,
    pub(crate) refusals: AtomicU64,
}

impl DelegationCounters {
    pub(crate) fn add_to(&self, sums: &mut DelegationStatistics) {
        sums.searches += get(&self.searches);
        sums.searched_keys += get(&self.searched_keys);
        sums.long_records += get(&self.long_records);
        sums.read_keys += get(&self.read_keys);
        sums.scans += get(&self.scans);
        sums.refusals += get(&self.refusals);
    }
}

/// Counters of bound moves.
#[derive(Debug, Default)]
pub(crate) struct MoveCounters {
    pub(crate) moves: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// Counters of stalls, by cause.
#[derive(Debug, Default)]
pub(crate) struct StallCounters([StallCounter; 6]);

/// Counters of stalls of one cause.
#[derive(Debug, Default)]
pub(crate) struct StallCounter {
    pub(crate) count: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

impl StallCounters {
    pub(crate) fn of(&self, cause: StallCause) -> &StallCounter {
        &self.0[cause as usize]
    }

    pub(crate) fn add_to(&self, sums: &mut StallsByCause) {
        let add = |cause, sum: &mut Stalls| {
            let counter = self.of(cause);
            sum.count += get(&counter.count);
            sum.nanos += get(&counter.nanos);
        };
        add(StallCause::Memtables, &mut sums.memtables);
        add(StallCause::Level0Slowdown, &mut sums.level0_slowdown);
        add(StallCause::Level0Stop, &mut sums.level0_stop);
        add(StallCause::Collection, &mut sums.collection);
        add(StallCause::MemoryFull, &mut sums.memory_full);
        add(StallCause::MovedBound, &mut sums.moved_bound);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Adds to a counter that nobody else adds to meanwhile: no locked instruction.
pub(crate) fn add_alone(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_elsewhere_takes_nothing_from_those_at_home() {
        let counters = Counters::default();
        let at_home = || {
            let mut sums = Statistics::default();
            counters.add_compactions(&mut sums);
            sums.compactions - sums.near_data_compactions - sums.offloaded_compactions
        };
        add(&counters.home_compactions, 2);
        assert_eq!(at_home(), 2);
        add(&counters.near_data_compactions, 1);
        assert_eq!(at_home(), 2);
        add(&counters.offloaded_compactions, 1);
        assert_eq!(at_home(), 2);
    }
}
