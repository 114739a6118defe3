//! Options of a database.

use crate::routing::Routing;
use crate::{Error, Result};
use forebay_base::KeyOrder;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{Atomics, Capabilities};
use forebay_table::PointIndexOptions;
use forebay_table::job::SizeClasses;
use std::sync::Arc;
use std::time::Duration;

/// Most shards of a database.
const MAX_SHARDS: usize = 256;

/// Where compactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionPlace {
    /// At the compute node, over the fabric.
    ComputeNode,
    /// At the memory node, near the data (dLSM V); at the compute node when the memory node runs no
    /// jobs or refuses one.
    #[default]
    MemoryNode,
}

/// Where the bounds between shards are at first. They can be moved later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ShardBounds {
    /// The values of a key's first two bytes are divided evenly: for keys that begin with random
    /// bytes.
    #[default]
    Uniform,
    /// These keys, ascending in the database's order; at most one fewer than shards. The first shard
    /// owns what is before the first, the next what is from there on, and so on; what is left over
    /// owns nothing.
    Given(Vec<Vec<u8>>),
}

/// What compactions do with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionStyle {
    /// They merge indexes. Records are brought into key order in the last level of their range, once enough of
    /// them have come to a table, and then stay.
    #[default]
    Clustered,
    /// They merge indexes. Records stay where they were written until their segment is collected.
    Unclustered,
    /// They rewrite every record, as in other LSM-trees: the baseline.
    Classic,
}

/// How a scan brings records that lie apart: read one by one behind one doorbell, or gathered by the memory
/// node, which takes its processor, and sent in one piece. It takes a memory node that runs jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gathering {
    /// They are never gathered.
    Never,
    /// Many are gathered where reading them takes the memory node's processor anyway, as over TCP.
    #[default]
    Automatic,
    /// So many or more are gathered.
    From(usize),
}

impl Gathering {
    /// Records from which gathering them over TCP is cheaper than reading them.
    const MANY: usize = 64;

    /// The records from which they are gathered on a back end that promises this; `None` for never.
    pub(crate) fn threshold(self, capabilities: &Capabilities) -> Option<usize> {
        match self {
            Self::Never => None,
            Self::Automatic => (capabilities.atomics == Atomics::ByTargetCpu).then_some(Self::MANY),
            Self::From(records) => Some(records),
        }
    }
}

/// How a database behaves. The defaults are the papers' (dLSM XI-B) where they give one.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database's name in the memory node: letters, digits, `.`, `_`, `-`. A named database
    /// outlives its process, and another process can open it. One without a name is private to its
    /// session at the memory node and ends with it.
    pub name: Option<String>,
    /// Create a named database that is not there.
    pub create_if_missing: bool,
    /// Refuse to open a named database that is there.
    pub error_if_exists: bool,
    /// Open a named database even when another process has it open. That one is fenced: none of its
    /// calls has an effect any more, and all of them fail.
    pub takeover: bool,
    /// Order of the keys.
    pub key_order: KeyOrder,
    /// Shards: key ranges with an LSM-tree each (dLSM VII). Sizes and triggers of these options are
    /// those of one shard.
    pub shards: usize,
    /// Bounds between the shards.
    pub shard_bounds: ShardBounds,
    /// How often shards are looked at, and bounds moved where neighbours differ too much in size; `None`
    /// for never: then [`Db::rebalance`](crate::Db::rebalance) does it. Takes a thread.
    pub rebalance_interval: Option<Duration>,
    /// Capacity of a memtable in bytes of records.
    pub write_buffer_bytes: usize,
    /// Sealed memtables that may wait for their flush before writers wait.
    pub max_immutable_memtables: usize,
    /// Record bytes at which an output table of a compaction ends.
    pub target_table_bytes: u64,
    /// Tables of level 0 at which it is compacted.
    pub level0_compaction_trigger: usize,
    /// Tables of level 0 at which writers are slowed down.
    pub level0_slowdown_trigger: usize,
    /// Tables of level 0 at which writers wait.
    pub level0_stop_trigger: usize,
    /// Whether much is to be written before anything is read: level 0 has no triggers, and only what
    /// somebody asks for is compacted.
    pub bulk_load: bool,
    /// Record bytes at which level 1 is compacted.
    pub level1_bytes: u64,
    /// How many times larger each further level may be.
    pub level_size_multiplier: u64,
    /// Number of levels, level 0 included.
    pub levels: usize,
    /// Threads for the flushes and compactions of all shards. With none, background work is done where
    /// somebody waits for it, and in [`Db::run_background_step`](crate::Db::run_background_step).
    pub background_threads: usize,
    /// Where compactions run.
    pub compaction_place: CompactionPlace,
    /// Bytes that the cached indexes of tables may take at this node; `None` for no limit. What a read
    /// needs beyond that costs one more round trip. The sparse indexes, about 0.3 bytes a key of 20
    /// bytes, count, but are always kept.
    pub cached_index_bytes: Option<u64>,
    /// How a scan brings records that lie apart.
    pub gathering: Gathering,
    /// What compactions do with records.
    pub compaction_style: CompactionStyle,
    /// Sizes from which records are treated as medium and as large (Tebis 3.1).
    pub size_classes: SizeClasses,
    /// Most runs of a table of the last level.
    pub last_level_runs: usize,
    /// Most bytes of 100 of a table of the last level that may lie outside of its runs, where they were written.
    /// Large records are not counted. Scans lower it for the tables that they cross.
    pub unclustered_percent: u64,
    /// Most dead bytes for 100 bytes that live, of all that are known and that no reader pins.
    pub dead_percent: u64,
    /// The point indexes of tables.
    pub point_index: PointIndexOptions,
    /// How long to wait for the fabric before a node counts as lost.
    pub fabric_timeout: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seed of what need not be repeatable between databases but must be within one.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            create_if_missing: true,
            error_if_exists: false,
            takeover: false,
            key_order: KeyOrder::Bytewise,
            shards: 1,
            shard_bounds: ShardBounds::default(),
            rebalance_interval: None,
            write_buffer_bytes: 64 << 20,
            max_immutable_memtables: 4,
            target_table_bytes: 64 << 20,
            level0_compaction_trigger: 4,
            level0_slowdown_trigger: 20,
            level0_stop_trigger: 36,
            bulk_load: false,
            level1_bytes: 256 << 20,
            level_size_multiplier: 10,
            levels: 7,
            background_threads: 3,
            compaction_place: CompactionPlace::default(),
            cached_index_bytes: None,
            gathering: Gathering::default(),
            compaction_style: CompactionStyle::default(),
            size_classes: SizeClasses::default(),
            last_level_runs: 8,
            unclustered_percent: 25,
            dead_percent: 25,
            point_index: PointIndexOptions::default(),
            fabric_timeout: Duration::from_secs(5),
            clock: SystemClock::shared(),
            seed: 0x464f_5245_4241_5921,
        }
    }
}

impl Options {
    /// The options for a memory node whose largest allocation is `extent_bytes`: a memtable's block
    /// and a table's records are each allocated in one piece, with room for one record beyond.
    pub(crate) fn fitted_to(mut self, extent_bytes: u64) -> Self {
        let half = extent_bytes / 2;
        let fit = |name: &str, bytes: u64| {
            if bytes > half {
                tracing::info!(
                    option = name,
                    asked_bytes = bytes,
                    used_bytes = half,
                    "fitted to the memory node's extents"
                );
            }
            bytes.min(half)
        };
        self.write_buffer_bytes = fit("write_buffer_bytes", self.write_buffer_bytes as u64) as usize;
        self.target_table_bytes = fit("target_table_bytes", self.target_table_bytes);
        self
    }

    /// The first bounds between shards.
    pub(crate) fn routing(&self) -> Result<Routing> {
        let bounds = match &self.shard_bounds {
            ShardBounds::Uniform => Routing::uniform(self.key_order, self.shards),
            ShardBounds::Given(bounds) => bounds.clone(),
        };
        Routing::new(self.key_order, self.shards, bounds)
    }

    /// Checks the options against one another.
    pub(crate) fn check(&self) -> Result<()> {
        let rule = |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::invalid(text)) };
        rule((1..=MAX_SHARDS).contains(&self.shards), "shards must be from 1 to 256")?;
        self.routing()?;
        rule(
            (4 << 10..=256 << 20).contains(&self.write_buffer_bytes),
            "write_buffer_bytes must be from 4 KiB to 256 MiB",
        )?;
        rule(self.max_immutable_memtables >= 1, "max_immutable_memtables must be at least 1")?;
        rule((4 << 10..=1 << 30).contains(&self.target_table_bytes), "target_table_bytes must be from 4 KiB to 1 GiB")?;
        rule(
            1 <= self.level0_compaction_trigger
                && self.level0_compaction_trigger <= self.level0_slowdown_trigger
                && self.level0_slowdown_trigger <= self.level0_stop_trigger,
            "the triggers of level 0 must be 1 <= compaction <= slowdown <= stop",
        )?;
        rule(self.level1_bytes >= 1, "level1_bytes must be positive")?;
        rule(self.level_size_multiplier >= 2, "level_size_multiplier must be at least 2")?;
        rule(self.last_level_runs >= 1, "last_level_runs must be at least 1")?;
        rule(self.unclustered_percent <= 100, "unclustered_percent must be at most 100")?;
        rule((1..=1000).contains(&self.dead_percent), "dead_percent must be from 1 to 1000")?;
        rule(
            self.size_classes.medium_from_bytes <= self.size_classes.large_from_bytes,
            "records must be small below the size from which they are large",
        )?;
        rule(
            self.rebalance_interval.is_none_or(|interval| !interval.is_zero() && self.background_threads > 0),
            "rebalance_interval must be positive, and needs background threads",
        )?;
        rule((2..=16).contains(&self.levels), "levels must be from 2 to 16")?;
        rule(self.background_threads <= 64, "background_threads must be at most 64")
    }
}
