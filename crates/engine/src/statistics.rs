//! What a database counts.

pub use crate::index_cache::IndexCacheStatistics;
use crate::segment::Node;
use crate::shard::Shard;
use forebay_fabric::{Counts, Traffic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a database since it was opened, and its shape now, summed over its shards.
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
    /// The same by what it waited for.
    pub stalls_by_cause: StallsByCause,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions done, wherever.
    pub compactions: u64,
    /// Those of them that the memory node did.
    pub near_data_compactions: u64,
    /// How often the memory node refused one.
    pub refused_compactions: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes of indexes and records that compactions read, wherever they ran.
    pub compaction_bytes_read: u64,
    /// Bytes of indexes and records that compactions wrote, wherever they ran.
    pub compaction_bytes_written: u64,
    /// Bytes that compactions moved over the fabric. Of one that the memory node did: arguments and reply.
    pub compaction_fabric_bytes: u64,
    /// Bytes of records that are known to be dead, that no reader pins and that are not freed yet.
    pub dead_bytes_known: u64,
    /// Bytes of records that are shadowed and not compared yet: an estimate, from how many were in compactions
    /// so far.
    pub dead_bytes_undiscovered: u64,
    /// Bytes of the segments that the newest versions name.
    pub named_bytes: u64,
    /// Bytes that the newest versions do not name: earlier ones that a snapshot, an iterator or a read holds
    /// do, or a flush or a compaction is making them.
    pub dead_bytes_pinned: u64,
    /// Bytes of the cached indexes of tables.
    pub cached_index_bytes: u64,
    /// What the budget for cached indexes did; zeros without one.
    pub index_cache: IndexCacheStatistics,
    /// Bytes of memtables, sealed ones included.
    pub memtable_bytes: u64,
    /// Bytes that this database holds in memory nodes.
    pub remote_bytes: u64,
    /// Bytes of records that tables reference.
    pub live_bytes: u64,
    /// Bounds between shards that were moved.
    pub bound_moves: u64,
    /// Bytes of keys and values that went to another shard thereby.
    pub bound_moved_bytes: u64,
    /// The levels, level 0 first.
    pub levels: Vec<LevelStatistics>,
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
    /// As many memtables as may be wait for their flush.
    pub memtables: Stalls,
    /// Level 0 has as many tables as its slowdown trigger says: short pauses.
    pub level0_slowdown: Stalls,
    /// Level 0 has as many tables as its stop trigger says.
    pub level0_stop: Stalls,
    /// More bytes are dead than may be: short pauses, so that collection keeps up.
    pub collection: Stalls,
    /// The memory node is full, or nearly: pauses, waits until memory was freed, and writes that failed.
    pub memory_full: Stalls,
    /// The keys are on their way to another shard: short waits.
    pub moved_bound: Stalls,
}

impl StallsByCause {
    /// All of them.
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
    /// How many.
    pub count: u64,
    /// Nanoseconds, summed over writers.
    pub nanos: u64,
}

/// One level of the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Tables.
    pub tables: u64,
    /// Clustered runs.
    pub runs: u64,
    /// Bytes of records that the level's tables reference.
    pub bytes: u64,
    /// Index entries.
    pub entries: u64,
}

impl Statistics {
    /// Adds what a shard counted and holds.
    pub(crate) fn add_shard(&mut self, shard: &Shard) {
        let view = Arc::clone(&shard.view.load());
        let counters = &shard.counters;
        counters.stalls.add_to(&mut self.stalls_by_cause);
        let stalls = self.stalls_by_cause.all();
        (self.stalls, self.stall_nanos) = (stalls.count, stalls.nanos);
        self.flushes += get(&counters.flushes);
        self.compactions += get(&counters.compactions);
        self.near_data_compactions += get(&counters.near_data_compactions);
        self.refused_compactions += get(&counters.refused_compactions);
        self.compaction_entries += get(&counters.compaction_entries);
        self.compaction_bytes_read += get(&counters.compaction_bytes_read);
        self.compaction_bytes_written += get(&counters.compaction_bytes_written);
        self.compaction_fabric_bytes += get(&counters.compaction_fabric_bytes);
        self.dead_bytes_known += view.version.dead_bytes();
        self.dead_bytes_undiscovered += shard.undiscovered_bytes(&view.version);
        self.named_bytes += view.version.segment_bytes();
        self.cached_index_bytes += view.version.cached_index_bytes();
        self.memtable_bytes += view.buffers().map(|buffer| buffer.memtable.reserved_bytes()).sum::<u64>();
        self.remote_bytes += shard.remote.own_bytes();
        self.live_bytes += view.version.live_bytes();
        let levels = view.version.level_statistics();
        self.levels.resize(self.levels.len().max(levels.len()), LevelStatistics::default());
        self.levels.iter_mut().zip(&levels).for_each(|(sum, level)| sum.add(level));
    }

    /// Adds how keys went from shard to shard.
    pub(crate) fn add_moves(&mut self, moves: &MoveCounters) {
        self.bound_moves += get(&moves.moves);
        self.bound_moved_bytes += get(&moves.bytes);
    }

    /// Adds what went to a memory node, and what this session leased of it.
    pub(crate) fn add_node(&mut self, node: &Node) {
        self.foreground += node.link().counts(Traffic::Foreground);
        self.background += node.link().counts(Traffic::Background);
        self.remote_bytes += node.allocated_bytes();
        if let Some(cache) = node.index_cache() {
            self.index_cache.add(cache.statistics());
        }
    }
}

impl LevelStatistics {
    fn add(&mut self, other: &Self) {
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
    pub(crate) compactions: AtomicU64,
    pub(crate) near_data_compactions: AtomicU64,
    pub(crate) refused_compactions: AtomicU64,
    pub(crate) compaction_entries: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    pub(crate) compaction_fabric_bytes: AtomicU64,
    /// Bytes of records that came from above, and that were dropped.
    pub(crate) compaction_bytes_arrived: AtomicU64,
    pub(crate) compaction_bytes_dropped: AtomicU64,
}

/// Counters of moved bounds.
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

    fn add_to(&self, sums: &mut StallsByCause) {
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

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
