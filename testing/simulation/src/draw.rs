//! The random parameters of a seed: its database's options, its network, its faults. All of them
//! are drawn, so the same calls meet every combination in some seed. The model says what they must all return.

use crate::habits::Habits;
use crate::operands::Operator;
use crate::swarm::Swarm;
use forebay_base::KeyOrder;
use forebay_engine::{
    CompactionPlace, CompactionStyle, Compression, Delegation, Durability, FlushOrder, FlushPlace, Gathering, Options,
    Replication, ShardBounds, Syncing,
};
use forebay_env::Random;
use forebay_fabric::sim::Faults;
use forebay_table::job::SizeClasses;
use std::time::Duration;

/// Number of key prefixes; shard bounds are between them.
const FIRST_DIGITS: u64 = 9;
/// Maximum keys of a database when images of it are taken. Each image is read as a whole.
const IMAGED_KEYS: u64 = 500;
/// The database's name, if it has one.
pub(crate) const NAME: &str = "simulated";

/// Where the database keeps what outlives its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// On its memory nodes, if anywhere.
    InMemory,
    /// In several copies in memory, which a register knows: a register in storage, or the memory nodes.
    InCopies { is_registered: bool },
    /// In storage on a disk.
    OnDisk,
    /// In a store of objects.
    InObjects,
}

impl Kept {
    /// Whether segments, versions and the log are in storage.
    pub(crate) const fn is_stored(self) -> bool {
        matches!(self, Self::OnDisk | Self::InObjects)
    }

    /// Whether anything is in storage.
    pub(crate) const fn has_storage(self) -> bool {
        self.is_stored() || matches!(self, Self::InCopies { is_registered: true })
    }

    /// Whether the database outlives a memory node.
    pub(crate) const fn outlives_nodes(self) -> bool {
        self.is_stored() || self.has_copies()
    }

    /// Whether the memory nodes are the register of copies.
    pub(crate) const fn is_registered_in_nodes(self) -> bool {
        matches!(self, Self::InCopies { is_registered: false })
    }

    pub(crate) const fn has_copies(self) -> bool {
        matches!(self, Self::InCopies { .. })
    }
}

/// The parameters of a seed.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    pub(crate) kept: Kept,
    pub(crate) habits: Habits,
    pub(crate) engine: Options,
    pub(crate) faults: Faults,
    /// Number of memory nodes, and the memory and extents of each.
    pub(crate) nodes: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) extent_bytes: u64,
    /// Calls may run inside steps of background work.
    pub(crate) calls_inside: bool,
    /// Number of workers, and of threads for jobs of a memory node: with none, workers have more to do.
    pub(crate) workers: u32,
    pub(crate) node_threads: usize,
    /// Another database shares the node.
    pub(crate) has_neighbour: bool,
    /// Bytes are damaged now and then.
    pub(crate) rots: bool,
}

impl Drawn {
    /// Returns how many nodes a database with copies may lose in all, one after the other.
    pub(crate) fn survivable_losses(&self) -> u32 {
        match self.kept {
            Kept::InCopies { is_registered: true } => u32::MAX,
            Kept::InCopies { is_registered: false } => self.nodes.saturating_sub(1) / 2,
            _ => 0,
        }
    }

    /// Whether a call may hold a lock while it waits for the network: a step inside it would wait for that lock for ever.
    /// A change of members holds a lock. So does a lease of memory for a job, which a call makes for copies that a worker
    /// makes in storage.
    pub(crate) fn calls_hold_locks(&self) -> bool {
        self.kept.is_registered_in_nodes() || (self.kept.is_stored() && self.workers > 0)
    }

    /// Whether the only faults are deliberate ones.
    pub(crate) fn is_faultless(&self) -> bool {
        let Faults { lose_completion, break_endpoint, close_link, crash_node } = self.faults;
        !self.habits.storage_fails && lose_completion + break_endpoint + close_link + crash_node == 0
    }
}

/// Draws the parameters of a seed.
pub(crate) fn draw(random: &mut Random) -> Drawn {
    let swarm = Swarm::drawn(&mut Random::seeded(random.clone().word()));
    let is_registered = random.one_in(1, 2);
    let copied = Kept::InCopies { is_registered };
    let kept = pick(random, [Kept::InMemory, Kept::InMemory, Kept::OnDisk, Kept::InObjects, copied]);
    let is_named = kept != Kept::InMemory || random.one_in(1, 2);
    let may_be_full = !kept.has_copies() && random.one_in(1, 6);
    let nodes = match kept {
        // Nodes that are the register need a majority without the lost node.
        Kept::InCopies { is_registered } => pick(random, [if is_registered { 2 } else { 3 }, 3, 4]),
        _ if may_be_full => 1,
        _ => pick(random, [1, 1, 2, 3]),
    };
    let order = if random.one_in(1, 8) { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
    let habits = Habits {
        order,
        keys: if may_be_full { 2000 } else { pick(random, [50, 500, 5000]) },
        value_bytes: if may_be_full { 400 } else { pick(random, [40, 100, 100, 200]) },
        large_value_bytes: pick(random, [200, 3000]),
        is_named,
        may_be_full,
        durability: match kept {
            Kept::InMemory => Durability::None,
            Kept::InCopies { .. } => Durability::Memory { copies: pick(random, [2, 2, 3]).min(nodes as usize) },
            Kept::OnDisk | Kept::InObjects => Durability::Storage(syncing(random)),
        },
        storage_fails: kept.has_storage() && random.one_in(1, 2),
        operator: pick(random, [None, Some(Operator::Append), Some(Operator::Separated), Some(Operator::Bracket)]),
        swarm,
    };
    // A call inside the only step cannot wait for memory, or for the log that the step ships.
    let calls_inside = !may_be_full && !kept.has_copies() && random.one_in(1, 2);
    // Workers that reach the storage are drawn apart, so that the other options of a seed stay as they were.
    let mut apart = Random::seeded(random.clone().word());
    let workers = match kept {
        Kept::InMemory => pick(random, [0, 0, 1, 2]),
        Kept::InCopies { .. } => 0,
        Kept::OnDisk | Kept::InObjects => pick(&mut apart, [0, 0, 1, 2]),
    };
    let engine = engine(random, kept, &habits, calls_inside);
    let rots = kept.outlives_nodes() && apart.one_in(1, 2);
    let compaction_place = if workers > 0 { CompactionPlace::Pool } else { engine.compaction_place };
    Drawn {
        kept,
        habits,
        engine: Options { compaction_place, ..engine },
        workers,
        node_threads: match workers {
            0 => 1,
            _ if kept.is_stored() => pick(&mut apart, [0, 0, 1]),
            _ => pick(random, [0, 0, 1]),
        },
        faults: faults(random, kept, rots),
        nodes,
        memory_bytes: if may_be_full { pick(random, [3 << 19, 2 << 20]) } else { 24 << 20 },
        extent_bytes: if may_be_full { 64 << 10 } else { 512 << 10 },
        calls_inside,
        // Only for a node that is too small anyway.
        has_neighbour: may_be_full && random.clone().one_in(1, 2),
        rots,
    }
}

/// Draws the network's faults.
fn faults(random: &mut Random, kept: Kept, rots: bool) -> Faults {
    let faults = match random.below(4) {
        0 => Faults::default(),
        1 => Faults { lose_completion: 100, break_endpoint: 500, ..Faults::default() },
        2 => Faults { close_link: 10, crash_node: 10, ..Faults::default() },
        _ => Faults { lose_completion: 20, break_endpoint: 100, close_link: 5, crash_node: 5 },
    };
    // No more nodes may be lost at a time than copies survive, and none while a copy is damaged: the run sees to that.
    match kept.has_copies() {
        true if rots => Faults::default(),
        true => Faults { crash_node: 0, ..faults },
        false => faults,
    }
}

/// Draws the parameters of a seed when images of its storage are taken: nothing else goes wrong.
pub(crate) fn draw_imaged(random: &mut Random) -> Drawn {
    let mut drawn = draw(random);
    while !drawn.kept.is_stored() || drawn.habits.may_be_full {
        drawn = draw(random);
    }
    drawn.habits.keys = drawn.habits.keys.min(IMAGED_KEYS);
    drawn.habits.storage_fails = false;
    Drawn { faults: Faults::default(), calls_inside: false, rots: false, ..drawn }
}

fn syncing(random: &mut Random) -> Syncing {
    let interval = Duration::from_micros(pick(random, [1, 1000, 100_000]));
    pick(random, [Syncing::Sync, Syncing::Sync, Syncing::Interval(interval), Syncing::Flush])
}

fn engine(random: &mut Random, kept: Kept, habits: &Habits, calls_inside: bool) -> Options {
    let shards = if habits.may_be_full { pick(random, [1, 2]) } else { pick(random, [1, 1, 2, 4]) };
    let level0_compaction_trigger = pick(random, [1, 2, 4]);
    let levels = pick(random, [2, 3, 5, 7]);
    let storage_from_level = pick(random, [None, Some(1), Some(2)]);
    Options {
        name: habits.is_named.then(|| NAME.to_owned()),
        durability: habits.durability,
        key_order: habits.order,
        merge_operator: habits.operator.map(|operator| operator.name().to_owned()),
        merge_operators: Operator::registered(),
        shards,
        shard_bounds: ShardBounds::Given(bounds(random, shards, habits.order)),
        write_buffer_bytes: pick(random, [6 << 10, 16 << 10, 16 << 10, 28 << 10]),
        target_table_bytes: pick(random, [8 << 10, 16 << 10, 30 << 10]),
        level0_compaction_trigger,
        // A call inside a step cannot wait for the step.
        max_immutable_memtables: if calls_inside { 1000 } else { 1 + random.below(3) as usize },
        level0_slowdown_trigger: if calls_inside { 1000 } else { 12 },
        level0_stop_trigger: if calls_inside { 1000 } else { 16 },
        level1_bytes: pick(random, [20 << 10, 64 << 10]),
        level_size_multiplier: pick(random, [2, 4, 10]),
        levels,
        background_threads: 0,
        compaction_place: pick(random, [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode]),
        compaction_style: pick(
            random,
            [
                CompactionStyle::Clustered,
                CompactionStyle::Clustered,
                CompactionStyle::Unclustered,
                CompactionStyle::Classic,
            ],
        ),
        cached_index_bytes: pick(random, [None, None, Some(0), Some(1000), Some(20_000)]),
        gathering: pick(random, [Gathering::Never, Gathering::Automatic, Gathering::From(1), Gathering::From(8)]),
        size_classes: pick(
            random,
            [
                SizeClasses::default(),
                SizeClasses::NONE,
                SizeClasses { medium_from_bytes: 50, large_from_bytes: 90 },
                SizeClasses { medium_from_bytes: 0, large_from_bytes: 500 },
            ],
        ),
        last_level_runs: pick(random, [1, 2, 8]),
        unclustered_percent: pick(random, [0, 25, 100]),
        dead_percent: pick(random, [5, 25, 100]),
        flush_place: flush_place(random.clone()),
        flush_order: pick(random, [FlushOrder::AsWritten, FlushOrder::ByKey]),
        storage_from_level: storage_from_level.filter(|level| kept.is_stored() && *level < levels),
        block_cache_bytes: pick(random, [16 << 10, 256 << 10, 64 << 20]),
        memory_cache_bytes: pick(random, [0, 512 << 10, 4 << 20]),
        // Simulated storage takes no time.
        memory_cache_after: Duration::ZERO,
        compression: pick(random, [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }]),
        replication: pick(random, [Replication::SendIndex, Replication::BuildIndex, Replication::Automatic]),
        delegation: pick(random, [Delegation::Never, Delegation::Automatic, Delegation::Always]),
        settle_after: pick(random, [None, Some(Duration::ZERO), Some(Duration::from_millis(500))]),
        storage_lag_memtables: pick(&mut random.clone(), [0, 1, 2, 8]),
        fabric_timeout: Duration::from_millis(100),
        ..Options::default()
    }
}

/// Drawn apart, so that the other options of a seed stay as they were.
fn flush_place(mut random: Random) -> FlushPlace {
    random.below(1000);
    pick(&mut random, [FlushPlace::ComputeNode, FlushPlace::AsCompactions])
}

/// Bounds between shards, ascending in the order. Some shards may own little or nothing.
fn bounds(random: &mut Random, shards: usize, order: KeyOrder) -> Vec<Vec<u8>> {
    let mut bounds: Vec<_> = (1..shards).map(|_| (random.below(FIRST_DIGITS * 10)).to_string().into_bytes()).collect();
    bounds.sort_by(|a, b| order.compare(a, b));
    bounds.dedup();
    bounds
}

fn pick<T: Copy, const N: usize>(random: &mut Random, choices: [T; N]) -> T {
    choices[random.below(N as u64) as usize]
}
