//! Options of a database.

use crate::terms::routing::Routing;
use crate::terms::{Error, Result};
use forebay_base::KeyOrder;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{Atomics, Capabilities};
use forebay_memory_client::Reach;
use forebay_storage::{BlockCacheOptions, BlockOptions, Compression, Storage};
use forebay_table::job::SizeClasses;
use forebay_table::{MergeOperators, PointIndexOptions};
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// Longest name of a database, bytes. Memory nodes know a database on storage by its name and two numbers, 26 bytes more, and
/// take 128.
const MAX_NAME_BYTES: usize = 102;

/// Where compactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionPlace {
    /// At the compute node, over the fabric.
    ComputeNode,
    /// At the memory node, near the data (dLSM V). The compute node does it when the memory node runs no jobs or
    /// refuses one.
    #[default]
    MemoryNode,
    /// Where the scheduler finds the least cost: at an executor, the memory node, or the compute node (O3-LSM 4.3). The
    /// compute node does it when the scheduler does not answer, or finds nobody.
    Pool,
}

/// Where the bounds between shards are at first. They can move later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ShardBounds {
    /// The values of a key's first two bytes are divided evenly. This suits keys that begin with random bytes.
    #[default]
    Uniform,
    /// These keys, ascending in the database's order, at most one fewer than there are shards. The first shard owns the
    /// keys before the first bound, the next shard those from there on, and so on. Remaining shards own nothing.
    Given(Vec<Vec<u8>>),
}

/// What compactions do with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionStyle {
    /// They merge indexes. Once enough records out of order have come to a table of the last level of their range, they
    /// are brought into key order, and then stay.
    #[default]
    Clustered,
    /// They merge indexes. Records stay where they were written until their segment is collected.
    Unclustered,
    /// They rewrite every record, as in other LSM-trees: the baseline for comparison.
    Classic,
}

/// In which order a flush writes its records to remote memory (`docs/decisions/0029`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushOrder {
    /// As they were written: the block of a memtable leaves as it is, and the compute node copies nothing. A scan reads
    /// each record by itself until a compaction brings it into key order in the last level.
    #[default]
    AsWritten,
    /// In key order, without those that are shadowed: each table of level 0 is a run, which a scan streams, and tables of
    /// further levels name stretches of runs. A background thread copies each record once more. Takes no more remote
    /// memory, and compactions move the same. Where no piece of memory holds all records, they leave as they were written.
    ByKey,
}

/// Who builds the index of a flush. In either case the records leave the compute node as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushPlace {
    /// The compute node, from the memtables.
    #[default]
    ComputeNode,
    /// The place that runs compactions ([`CompactionPlace`]), from the records in remote memory (O3-LSM 4.2, 4.3). So
    /// the compute node's cores are left to its callers. The compute node builds the index itself when nobody else
    /// does, while a job of this database runs at the memory node, and with [`FlushOrder::ByKey`].
    AsCompactions,
}

/// How a scan fetches records that are not adjacent. It reads them one by one with one doorbell, or the memory node
/// gathers them, at a cost to its processor, and sends them in one piece. Gathering needs a memory node that runs jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gathering {
    /// Never gather.
    Never,
    /// Gather many records where reading them uses the memory node's processor anyway, as over TCP.
    #[default]
    Automatic,
    /// Gather this many records or more.
    From(usize),
}

impl Gathering {
    /// Number of records from which gathering over TCP is cheaper than reading.
    const MANY: usize = 64;

    /// The number of records from which to gather on a back end with these capabilities; `None` for never.
    pub(crate) fn threshold(self, capabilities: &Capabilities) -> Option<usize> {
        match self {
            Self::Never => None,
            Self::Automatic => (capabilities.atomics == Atomics::ByTargetCpu).then_some(Self::MANY),
            Self::From(records) => Some(records),
        }
    }
}

/// Who looks up keys in tables whose point indexes are not held ([`Options::cached_index_bytes`]), and finds the first
/// entries of scans: this node, by reading index blocks, or the memory node, in answer to one message
/// (`docs/decisions/0049`). Needs a memory node that runs jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delegation {
    /// Always this node.
    Never,
    /// The one that costs less: in round trips and bytes, and in the memory node's time, as far as it says that it is
    /// busy.
    #[default]
    Automatic,
    /// The memory node, whenever it answers.
    Always,
}

/// What an acknowledged write survives (`docs/concepts/durability.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// What was flushed survives the process; the rest ends with it.
    #[default]
    None,
    /// The write is in the memory of `copies` memory nodes before it returns. It survives the process, and the loss of all
    /// but one of these nodes. Needs a name, and as many nodes when the database is created. For a database, this also says
    /// how many copies there are of everything else; a single write is in all of them. Each thread reads at one of the nodes of
    /// a shard, and the next one at the next.
    Memory {
        /// How many, from 1 on.
        copies: usize,
    },
    /// The write is in storage. It survives the loss of everything but the storage. Needs [`Options::storage`].
    Storage(Syncing),
}

/// As on the command line.
impl Display for Durability {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Memory { copies: 1 } => f.write_str("memory"),
            Self::Memory { copies } => write!(f, "memory={copies}"),
            Self::Storage(Syncing::Sync) => f.write_str("storage=sync"),
            Self::Storage(Syncing::Interval(interval)) => write!(f, "storage=interval:{interval:?}"),
            Self::Storage(Syncing::Flush) => f.write_str("storage=flush"),
        }
    }
}

/// How the other members of a shard get what a compaction makes, if there are several copies in memory and compactions
/// run near the data (Tebis 3.3, `docs/decisions/0040`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replication {
    /// The compaction runs at one member. This node reads there what it made, and writes it to the others.
    SendIndex,
    /// The compaction runs at each member, and makes the same bytes. What a member does not run is sent to it.
    BuildIndex,
    /// For each member the way that costs less, by bytes on this node's link and the member's time.
    #[default]
    Automatic,
}

/// When writes reach storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncing {
    /// Before they return. All that are written at the same time share one sync.
    Sync,
    /// At intervals: what was written within this time, and while the sync after it took, may be lost. What survives is
    /// what was written up to some moment. If storage is a directory, the log gets what was written every 10 ms, so
    /// that the end of this process alone loses no more than that.
    Interval(Duration),
    /// When their memtable is flushed. There is no log.
    Flush,
}

/// How a database behaves. The defaults come from the papers (dLSM XI-B) where they give one.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database's name on the memory node: letters, digits, `.`, `_`, `-`. A named database outlives its process,
    /// and another process can open it. A database without a name is private to its session at the memory node and ends
    /// with it.
    pub name: Option<String>,
    /// Create a named database that does not exist.
    pub create_if_missing: bool,
    /// Refuse to open a named database that exists.
    pub error_if_exists: bool,
    /// Open a database although the last acknowledged writes are lost, because the end of its log in memory is damaged
    /// in all copies. Otherwise opening fails, and nothing changes.
    pub accept_damaged_log: bool,
    /// Whether a database with several copies in memory fails to open, before anything changes, when the copies are on
    /// more memory nodes than it is opened with. Otherwise the copies on the others are left out: they are not read
    /// again, and have to be made again.
    pub all_copies_named: bool,
    /// Create a named database that nobody else may open before [`Db::finish`](crate::Db::finish) was called. What was
    /// begun like this under the name, and not finished, is dropped first; a database that is whole is refused. Not for
    /// a database with several copies in memory.
    pub unfinished: bool,
    /// Open a named database even when another process has it open. The other process is fenced: all its calls fail and
    /// have no effect.
    pub takeover: bool,
    /// Where the database keeps what survives everything else: versions, tables, and the log of writes. The database of this
    /// name in it is opened, or created, whatever its memory nodes hold. Needs a name, which does not begin with a dot.
    pub storage: Option<Storage>,
    /// What writes survive unless they say otherwise ([`WriteOptions`]).
    pub durability: Durability,
    /// Where the register of a database with several copies in memory is stored. The register says who owns the
    /// database, and which nodes hold the copies. It must outlive the memory nodes. Without one, more than half of the
    /// memory nodes that the database is created on decide (`docs/concepts/durability.md`).
    pub register: Option<Storage>,
    /// Order of the keys.
    pub key_order: KeyOrder,
    /// Name of the operator that makes values of the operands of [`Db::merge`](crate::Db::merge). A database keeps the
    /// name that it is created with; `None` opens it with that name, and creates it without one.
    pub merge_operator: Option<String>,
    /// The merge operators that this process knows by name, beside the built-in ones.
    pub merge_operators: MergeOperators,
    /// Number of shards: key ranges with an LSM-tree each (dLSM VII). Sizes and triggers in these options apply to one
    /// shard. Of several memory nodes, as many are used as there are shards, except for copies of
    /// [`Durability::Memory`]. A database keeps the number that it is created with.
    pub shards: usize,
    /// Bounds between the shards.
    pub shard_bounds: ShardBounds,
    /// How often to look at the shards and move bounds where neighbours differ too much in size. `None` for never;
    /// [`Db::rebalance`](crate::Db::rebalance) still does it on request. Uses a thread.
    pub rebalance_interval: Option<Duration>,
    /// Capacity of a memtable in bytes of records.
    pub write_buffer_bytes: usize,
    /// Sealed memtables that may wait for their flush before writers have to wait.
    pub max_immutable_memtables: usize,
    /// How far storage may lag behind memory, in full memtables, if a log in storage leads the tables
    /// ([`Syncing::Sync`], [`Syncing::Interval`]). For this many, the log holds what was flushed. Then storage gets the
    /// tables as they are by that time, and the log is trimmed. The larger the number, the less is written, and the
    /// more is read again after a crash. Storage gets the tables at once when a caller flushes or closes the database,
    /// or when memory is short. With 0 each flush and compaction waits for storage.
    pub storage_lag_memtables: usize,
    /// An output table of a compaction ends at this many record bytes.
    pub target_table_bytes: u64,
    /// Number of tables of level 0 at which it is compacted.
    pub level0_compaction_trigger: usize,
    /// Number of tables of level 0 at which writers are slowed down.
    pub level0_slowdown_trigger: usize,
    /// Number of tables of level 0 at which writers wait.
    pub level0_stop_trigger: usize,
    /// Whether much is written before anything is read. Level 0 then has no triggers, and compactions run only on
    /// request.
    pub bulk_load: bool,
    /// Record bytes at which level 1 is compacted.
    pub level1_bytes: u64,
    /// Each further level may be this many times larger than the one before.
    pub level_size_multiplier: u64,
    /// Number of levels, level 0 included. A database that has tables in deeper levels, because it had more levels
    /// before, keeps using those.
    pub levels: usize,
    /// Threads for the flushes and compactions of all shards. With none, background work runs in the thread that waits
    /// for it, and in [`Db::run_background_step`](crate::Db::run_background_step).
    pub background_threads: usize,
    /// Where compactions run.
    pub compaction_place: CompactionPlace,
    /// How what compactions make gets its copies, with [`CompactionPlace::MemoryNode`].
    pub replication: Replication,
    /// Bytes a second of copies in memory that are checked, whether somebody reads them or not, and repaired if they
    /// are damaged; zero for none. Only with [`Durability::Memory`]. Reads check and repair what they read in any case,
    /// so this is for what nobody reads: it finds damage before a second copy of the same bytes is damaged or lost. It
    /// is off by default, because all that is checked goes over the network to this process, and servers' memory
    /// corrects single bits by itself.
    pub scrub_bytes_per_second: u64,
    /// Most bytes a second that this process moves to the storage, and as many from it, for this database and all else
    /// that uses the same [`Storage`]; zero for no limit. The limit leaves room on a link that others share. Writes
    /// wait if their log does not get through.
    pub storage_bytes_per_second: u64,
    /// Who places compactions, with [`CompactionPlace::Pool`]; `None` for the first memory node.
    pub scheduler: Option<Arc<Reach>>,
    /// The memory nodes of a database with several copies in memory, for when they are lost. Nodes that can be reached
    /// again are reconnected, and get the copies that are missing, as by
    /// [`Db::add_memory_node`](crate::Db::add_memory_node). The others are tried at least twice a minute. If the
    /// database is opened with a session of one of these, that session is the first.
    pub memory_nodes: Vec<Arc<Reach>>,
    /// Maximum bytes of cached table indexes at this node; `None` for no limit. A read that needs an index beyond the
    /// limit costs one more round trip. The sparse indexes (about 0.3 bytes per key of 20 bytes) count towards the
    /// limit, but are always kept.
    pub cached_index_bytes: Option<u64>,
    /// Who looks up keys in tables beyond that limit, and finds the first entries of scans.
    pub delegation: Delegation,
    /// Who builds the index of a flush.
    pub flush_place: FlushPlace,
    /// In which order a flush writes its records.
    pub flush_order: FlushOrder,
    /// How a scan fetches records that are not adjacent.
    pub gathering: Gathering,
    /// What compactions do with records.
    pub compaction_style: CompactionStyle,
    /// Sizes from which records count as medium and as large (Tebis 3.1).
    pub size_classes: SizeClasses,
    /// Maximum number of runs of a table of the last level.
    pub last_level_runs: usize,
    /// Maximum share, in percent, of the bytes of a last-level table that may lie outside its runs, where they were
    /// written. Large records do not count. Scans lower the limit for the tables that they cross.
    pub unclustered_percent: u64,
    /// How long a memtable that is not full may hold what was written before it is flushed; `None` for as long as it is
    /// not full. If a shard is left alone after a write, the log keeps the write for this long, and as long again if
    /// tables reach storage later. A process that opens the database reads it again. Short times make many small
    /// tables.
    pub flush_after: Option<Duration>,
    /// How long a shard rests before it settles; `None` for never. It rests while next to nothing is written in this
    /// time, less than a 64th of a memtable. It settles when more than an eighth of its bytes are outside of the
    /// longest runs of their tables: everything goes down to the last level, one run a table, as with
    /// [`Db::compact_range`](crate::Db::compact_range). So scans stream. Settling moves each record at most once, and
    /// ends when writers come back. It needs memory for the records once more for a while. Nothing in storage is
    /// touched. Only for [`CompactionStyle::Clustered`].
    pub settle_after: Option<Duration>,
    /// Maximum dead bytes per 100 live bytes, of all dead bytes that are known and that no reader pins.
    pub dead_percent: u64,
    /// The first level whose tables are in storage, from 1 on; `None` when all are in memory. Levels from there on take
    /// memory for their cached indexes only, so the database may be as large as its storage. Compactions into them run
    /// at this node or, with [`CompactionPlace::Pool`], at an executor that reaches the storage.
    pub storage_from_level: Option<usize>,
    /// The weight of this database's share of the memory of its memory nodes, beside those of other databases of the same
    /// tenant. It may borrow what others leave of theirs, and gives it back when they want it
    /// (`docs/concepts/space.md`). Alone on a node it may use all.
    pub pool_share: u32,
    /// Bytes of the cache of what was read from storage.
    pub block_cache_bytes: u64,
    /// Bytes of memory nodes, in all, for blocks that were read from storage and that the cache has dropped. They take
    /// only memory that nobody else needs. With 0 they take none.
    pub memory_cache_bytes: u64,
    /// Memory nodes keep what storage took this long to bring, or longer. Keeping a block costs a write of it. So it is
    /// not worth it for blocks that come as fast as from memory, as from a directory whose files the system has in
    /// memory.
    pub memory_cache_after: Duration,
    /// How what is written to storage is compressed.
    pub compression: Compression,
    /// Bytes of the blocks that are written to storage, before compression: a power of two from 1 KiB to 1 MiB. What is
    /// there already stays as it is.
    pub block_bytes: u32,
    /// The point indexes of tables.
    pub point_index: PointIndexOptions,
    /// How long to wait for the fabric before a node counts as lost.
    pub fabric_timeout: Duration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// A seed for values that may differ between databases but must be repeatable within one.
    pub seed: u64,
}

/// How one write behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What the write survives once it is acknowledged; `None` for what [`Options::durability`] says.
    pub durability: Option<Durability>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            create_if_missing: true,
            error_if_exists: false,
            accept_damaged_log: false,
            all_copies_named: false,
            unfinished: false,
            takeover: false,
            storage: None,
            durability: Durability::default(),
            register: None,
            key_order: KeyOrder::Bytewise,
            merge_operator: None,
            merge_operators: MergeOperators::default(),
            shards: 1,
            shard_bounds: ShardBounds::default(),
            rebalance_interval: None,
            write_buffer_bytes: 64 << 20,
            max_immutable_memtables: 4,
            storage_lag_memtables: 8,
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
            replication: Replication::default(),
            scrub_bytes_per_second: 0,
            storage_bytes_per_second: 0,
            scheduler: None,
            memory_nodes: Vec::new(),
            cached_index_bytes: None,
            delegation: Delegation::default(),
            flush_place: FlushPlace::default(),
            flush_order: FlushOrder::default(),
            gathering: Gathering::default(),
            compaction_style: CompactionStyle::default(),
            size_classes: SizeClasses::default(),
            last_level_runs: 8,
            unclustered_percent: 25,
            flush_after: None,
            settle_after: Some(Duration::from_millis(500)),
            dead_percent: 25,
            storage_from_level: None,
            pool_share: 1,
            block_cache_bytes: 64 << 20,
            memory_cache_bytes: 256 << 20,
            memory_cache_after: Duration::from_micros(30),
            compression: Compression::default(),
            block_bytes: BlockOptions::default().block_bytes,
            point_index: PointIndexOptions::default(),
            fabric_timeout: Duration::from_secs(5),
            clock: SystemClock::shared(),
            seed: 0x464f_5245_4241_5921,
        }
    }
}

impl Options {
    /// Most shards that a database can have.
    pub const MAX_SHARDS: usize = 256;

    /// Adapts the options to a memory node whose largest allocation is `extent_bytes`. A memtable's block and a table's
    /// records are each allocated in one piece, with room for one more record.
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

    /// Part of the budget for cached indexes that addresses of records that lookups have found may take.
    const SHARE_OF_ADDRESSES: u64 = 8;

    /// Bytes of the budget for cached indexes that the indexes may take; `None` for no limit.
    pub(crate) fn budget_for_indexes(&self) -> Option<u64> {
        self.cached_index_bytes.map(|bytes| bytes - self.budget_for_addresses().min(bytes))
    }

    /// Bytes of that budget that addresses that lookups have found may take. Without a limit no lookup is needed.
    pub(crate) fn budget_for_addresses(&self) -> u64 {
        self.cached_index_bytes.unwrap_or(0) / Self::SHARE_OF_ADDRESSES
    }

    /// How objects in storage are laid out.
    pub(crate) fn layout(&self) -> BlockOptions {
        BlockOptions { block_bytes: self.block_bytes, compression: self.compression }
    }

    /// The cache of what is read from storage.
    pub(crate) fn block_cache(&self) -> BlockCacheOptions {
        let most = BlockCacheOptions::default();
        let threads = if self.background_threads == 0 { 0 } else { most.threads };
        BlockCacheOptions { capacity_bytes: self.block_cache_bytes, threads, ..most }
    }

    /// By how many bytes of flushed memtables of a shard storage may lag behind.
    pub(crate) const fn storage_lag_bytes(&self) -> u64 {
        (self.write_buffer_bytes as u64).saturating_mul(self.storage_lag_memtables as u64)
    }

    /// The initial bounds between shards.
    pub(crate) fn routing(&self) -> Result<Routing> {
        let bounds = match &self.shard_bounds {
            ShardBounds::Uniform => Routing::uniform(self.key_order, self.shards),
            ShardBounds::Given(bounds) => bounds.clone(),
        };
        Routing::new(self.key_order, self.shards, bounds)
    }

    /// How many copies there are in memory.
    pub(crate) const fn copies(&self) -> usize {
        match self.durability {
            Durability::Memory { copies } => copies,
            Durability::None | Durability::Storage(_) => 1,
        }
    }

    /// Whether a database with these options can be created unfinished ([`Options::unfinished`]).
    #[must_use]
    pub const fn may_be_finished(&self) -> bool {
        self.name.is_some() && self.copies() == 1
    }

    /// The same options for a database into which a checkpoint is to be loaded: a new one, which nobody can open before
    /// it is whole, if these options allow that.
    #[must_use]
    pub fn restoring(self) -> Self {
        Self { create_if_missing: true, error_if_exists: true, unfinished: self.may_be_finished(), ..self }
    }

    /// The merge operator's name; empty for none.
    pub(crate) fn operator_name(&self) -> String {
        self.merge_operator.clone().unwrap_or_default()
    }

    /// The options of a database that was created with the merge operator `name`; empty for none.
    ///
    /// # Errors
    /// `Unsupported` when the operator is not known.
    pub(crate) fn merging_by(&self, name: &str) -> Result<Self> {
        let merge_operator = (!name.is_empty()).then(|| name.to_owned());
        let options = Self { merge_operator, ..self.clone() };
        options.check_operator()?;
        Ok(options)
    }

    fn check_operator(&self) -> Result<()> {
        if let Some(name) = &self.merge_operator {
            self.merge_operators.get(name)?;
        }
        Ok(())
    }

    /// Checks that writes can be this durable.
    pub(crate) fn check_durability(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Memory { copies: 0 } => Err(Error::invalid("at least one memory node must have a write")),
            Durability::Memory { copies } if copies > self.copies() && self.storage.is_none() => {
                let has = self.copies();
                Err(Error::invalid(format!(
                    "the database has {has} copies in memory, so a write cannot be in {copies}"
                )))
            }
            Durability::Storage(_) if self.storage.is_none() => {
                Err(Error::invalid("a database without storage has no log there: name a storage"))
            }
            Durability::Storage(Syncing::Interval(interval)) if interval.is_zero() => {
                Err(Error::invalid("an interval between syncs must be positive"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a database can have this many shards.
    pub(crate) fn check_shards(shards: usize) -> Result<()> {
        if (1..=Self::MAX_SHARDS).contains(&shards) {
            return Ok(());
        }
        Err(Error::invalid(format!("shards must be from 1 to {}, not {shards}", Self::MAX_SHARDS)))
    }

    /// Checks that a database can have this name: 1 to 102 letters, digits, `.`, `_` and `-`, not starting with `.`.
    ///
    /// # Errors
    /// `Invalid`, which says what a name may be.
    pub fn check_name(name: &str) -> Result<()> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_allowed) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{name:?} is no name for a database: use 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' and '-', and no '.' at \
             the beginning"
        )))
    }

    /// Checks the options against one another, as opening a database does.
    ///
    /// # Errors
    /// `Invalid`; `Unsupported` for a merge operator that is not known.
    pub fn check(&self) -> Result<()> {
        let rule = |holds: bool, text: &str| if holds { Ok(()) } else { Err(Error::invalid(text)) };
        Self::check_shards(self.shards)?;
        self.name.as_deref().map_or(Ok(()), Self::check_name)?;
        rule(
            self.durability == Durability::None || self.name.is_some(),
            "a database without a name ends with its process: give it a name, or ask for no durability",
        )?;
        rule(
            self.storage.is_none() || self.name.is_some(),
            "a database on storage needs a name, by which the next process finds it",
        )?;
        self.check_durability(self.durability)?;
        rule(
            self.copies() == 1 || self.storage.is_none(),
            "a database on storage has one copy in memory: what is lost there is read from storage",
        )?;
        rule(
            self.register.is_none() || self.copies() > 1,
            "a register is for databases with several copies in memory (--durability=memory=COPIES)",
        )?;
        self.check_operator()?;
        self.routing()?;
        rule(
            (4 << 10..=256 << 20).contains(&self.write_buffer_bytes),
            "write_buffer_bytes must be from 4 KiB to 256 MiB",
        )?;
        rule(self.layout().is_valid(), "block_bytes must be a power of two from 1 KiB to 1 MiB")?;
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
            "size_classes: records cannot be of medium size from more bytes on than from which they are large",
        )?;
        rule(
            self.rebalance_interval.is_none_or(|interval| !interval.is_zero() && self.background_threads > 0),
            "rebalance_interval must be positive, and needs background threads",
        )?;
        rule((2..=16).contains(&self.levels), "levels must be from 2 to 16")?;
        rule(
            self.storage_from_level.is_none_or(|level| (1..self.levels).contains(&level)),
            "storage_from_level must be from 1 to the last level",
        )?;
        rule(
            self.storage_from_level.is_none() || self.storage.is_some(),
            "levels in storage need a storage: name one",
        )?;
        rule(
            !self.unfinished || self.create_if_missing && self.may_be_finished(),
            "a database that is to be finished is created, has a name, and no copies in memory",
        )?;
        rule(self.pool_share >= 1, "pool_share must be at least 1")?;
        rule(self.background_threads <= 64, "background_threads must be at most 64")
    }
}
