//! The engine as a store under test, opened according to the command line.

use crate::arguments::{MemoryArguments, NodeAddresses};
use crate::durability::{DurabilityArguments, PATH_WITH_MEMORY};
use crate::failure::Failure;
use crate::{durability, nodes, units};
use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use forebay::{
    CompactionPlace, CompactionStyle, Compression, DEFAULT_NAME, Db, DbIterator, Delegation, DirectoryOptions,
    ErrorKind, FlushOrder, FlushPlace, Gathering, LevelStatistics, Options, Reach, Recovery, Replication, ShardBounds,
    SizeClasses, Storage, StorageCounts, Store as Database, WriteBatch,
};
use forebay_env::{Clock, Nanos, SystemClock};
use forebay_workload::keys::KeyBuffer;
use forebay_workload::{
    Cursor, Error, Figures, LevelFigures, LogFigures, LookupFigures, LsmFigures, MemoryNodeFigures, RecoveryFigures,
    StorageFigures, Store, StoreError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The engine's options, with db_bench's names.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArguments {
    #[command(flatten)]
    place: DurabilityArguments,
    /// Take the named database from another process that has it open.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    takeover: bool,
    /// Open the database although writes that were acknowledged last are lost: the end of its log is damaged, in all copies in memory.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    accept_damaged_log: bool,
    /// Key ranges with an LSM-tree each; sizes and triggers apply to one. By default as many as the database has, and of
    /// a new one as many as there are memory nodes.
    #[arg(long, value_name = "NUMBER", value_parser = shards())]
    shards: Option<usize>,
    /// Size of a memtable.
    #[arg(long, value_parser = units::length_in(4 << 10..=256 << 20), value_name = "SIZE")]
    write_buffer_size: Option<usize>,
    /// Number of memtables, including the active one.
    #[arg(long, value_name = "NUMBER", value_parser = Counts::new().range(2..))]
    max_write_buffer_number: Option<usize>,
    /// Threads for flushes and compactions.
    #[arg(long, value_name = "NUMBER", value_parser = Counts::new().range(..=64))]
    max_background_jobs: Option<usize>,
    /// A table ends at this many record bytes.
    #[arg(long, value_parser = units::size_in(4 << 10..=1 << 30), value_name = "SIZE")]
    target_file_size_base: Option<u64>,
    /// Level 1 is compacted at this many record bytes.
    #[arg(long, value_parser = units::size_in(1..=u64::MAX), value_name = "SIZE")]
    max_bytes_for_level_base: Option<u64>,
    /// How many times larger each further level may be.
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u64).range(2..))]
    max_bytes_for_level_multiplier: Option<u64>,
    /// Number of levels, level 0 included.
    #[arg(long, value_name = "NUMBER", value_parser = Counts::new().range(2..=16))]
    num_levels: Option<usize>,
    /// Number of tables of level 0 at which it is compacted.
    #[arg(long, value_name = "TABLES")]
    level0_file_num_compaction_trigger: Option<usize>,
    /// Number of tables of level 0 at which writers are slowed down.
    #[arg(long, value_name = "TABLES")]
    level0_slowdown_writes_trigger: Option<usize>,
    /// Number of tables of level 0 at which writers wait.
    #[arg(long, value_name = "TABLES")]
    level0_stop_writes_trigger: Option<usize>,
    /// Load without triggers of level 0: nothing is compacted until `compact`.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new(), action = clap::ArgAction::Set)]
    bulk_load: bool,
    /// Memory for the cached indexes of tables; by default no limit.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    cached_index_size: Option<u64>,
    /// Keep the tables of this level and below in storage, and not in memory.
    #[arg(long, value_name = "LEVEL", value_parser = Counts::new().range(1..16))]
    storage_from_level: Option<usize>,
    /// How many full memtables' worth of writes tables in storage may lag behind those in memory, where a log has them; by
    /// default 8.
    #[arg(long, value_name = "MEMTABLES")]
    storage_lag: Option<usize>,
    /// Move at most this many bytes a second to storage, and as many from it: for a link that others share. By default
    /// no limit.
    #[arg(long, value_parser = units::size_in(1..=u64::MAX), value_name = "SIZE")]
    storage_rate: Option<u64>,
    /// The weight of this database's share of its memory nodes, beside those of other databases; by default 1.
    #[arg(long, value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..))]
    pool_share: Option<u32>,
    /// Memory for what is read from storage; by default 64 MiB.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    block_cache: Option<u64>,
    /// Memory of the memory nodes for the same, below that; by default 256 MiB, as long as nobody else needs it.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    memory_cache: Option<u64>,
    /// The memory nodes keep what took this long, or longer, to read from storage; by default 30us.
    #[arg(long, value_parser = units::duration, value_name = "DURATION")]
    memory_cache_after: Option<Duration>,
    /// How objects in storage are compressed: none, lz4, zstd or zstd=LEVEL; by default lz4.
    #[arg(long, value_name = "COMPRESSION")]
    compression: Option<Compression>,
    /// Bytes of a block of an object in storage, before compression: what a read of one key brings; by
    /// default 16 KiB.
    #[arg(long, value_parser = units::block_length, value_name = "SIZE")]
    block_size: Option<u32>,
    /// Where compactions run.
    #[arg(long, value_enum, default_value_t = Place::Memory)]
    compaction_place: Place,
    /// How the other memory nodes get what a compaction at one of them made, with --durability=memory=COPIES.
    #[arg(long, value_enum, default_value_t = Copied::Auto)]
    replication: Copied,
    /// Check this many bytes a second of the copies in memory, whether somebody reads them or not, and repair what is
    /// damaged; with --durability=memory=COPIES. By default, only what is read is checked.
    #[arg(long, value_parser = units::size, value_name = "SIZE", default_value = "0")]
    scrub_rate: u64,
    /// Who places compactions, with --compaction-place pool: nodes of which one schedules, separated by commas; by default
    /// the first of --memory.
    #[arg(long, value_name = "ADDRESSES")]
    scheduler: Option<NodeAddresses>,
    /// What compactions do with records.
    #[arg(long, value_enum, default_value_t = Style::Clustered)]
    compaction_style: Style,
    /// Records whose key and value together have this many bytes are of medium size: the last levels bring them into
    /// key order. Every compaction gathers smaller ones.
    #[arg(long, value_parser = units::size_in(0..=u32::MAX.into()), value_name = "SIZE")]
    medium_from: Option<u64>,
    /// Records of this many bytes are large: they stay where they were written.
    #[arg(long, value_parser = units::size_in(0..=u32::MAX.into()), value_name = "SIZE")]
    large_from: Option<u64>,
    /// Who builds the index of a flush: this process, or whoever --compaction-place names.
    #[arg(long, value_enum, default_value_t = Builder::Compute)]
    flush_place: Builder,
    /// In which order a flush writes its records.
    #[arg(long, value_enum, default_value_t = Order::AsWritten)]
    flush_order: Order,
    /// How long a memtable may hold what was written before it is flushed although it is not full, or never; by default never.
    #[arg(long, value_name = "DURATION")]
    flush_after: Option<After>,
    /// How long nothing must have been written before a shard's records are brought into key order for scans, or never; by
    /// default 500ms.
    #[arg(long, value_name = "DURATION")]
    settle_after: Option<After>,
    /// Let the memory node gather a scan's scattered records when a batch has this many or more; 0 for never. By
    /// default 64 where reads use its processor anyway, as over TCP.
    #[arg(long, value_name = "RECORDS")]
    gather_records: Option<usize>,
    /// Whether the memory node looks keys up in tables whose indexes --cached-index-size leaves no room for; by default
    /// where that costs less.
    #[arg(long, value_enum, default_value_t = Who::Automatic)]
    delegation: Who,
}

/// A parser of counts, in a range.
type Counts = RangedU64ValueParser<usize>;

/// A parser of a number of shards.
pub fn shards() -> Counts {
    Counts::new().range(1..=Options::MAX_SHARDS as u64)
}

/// Returns the number of shards of a new database, unless a flag gives one: one for each memory node, as a node without a
/// shard holds nothing.
pub fn shards_of_new(memory: &NodeAddresses) -> usize {
    memory.all().len().clamp(1, Options::MAX_SHARDS)
}

/// A time after which something is done, or never.
#[derive(Debug, Clone, Copy)]
struct After(Option<Duration>);

impl FromStr for After {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        units::duration(text).map(|after| Self(Some(after))).map_err(|right| format!("{right}, or never"))
    }
}

/// Whether the memory node looks keys up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    Never,
    Automatic,
    Always,
}

/// What compactions do with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Style {
    /// Bring records into key order in the last level, once enough of a table is not.
    Clustered,
    /// Leave records where they were written.
    Unclustered,
    /// Rewrite every record.
    Classic,
}

/// In which order a flush writes its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// As they were written, without a copy.
    AsWritten,
    /// In key order, for scans, with one copy more.
    ByKey,
}

/// Who builds the index of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Builder {
    /// The compute node, from its memtables.
    Compute,
    /// Whoever runs compactions, from the records in remote memory.
    AsCompactions,
}

/// Where compactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// At the compute node, over the fabric.
    Compute,
    /// At the memory node, near the data; at the compute node when the memory node refuses.
    Memory,
    /// Wherever the scheduler finds the least cost: at a worker, the memory node, or the compute node.
    Pool,
}

/// How copies of what compactions make come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Copied {
    /// This process reads them at one memory node and writes them to the others.
    Send,
    /// The same compaction runs at each memory node.
    Build,
    /// Whichever costs less.
    Auto,
}

impl EngineArguments {
    /// Opens the database in the place that the flags name, with options that [`EngineArguments::opened`] has
    /// completed.
    ///
    /// # Errors
    /// Those of opening.
    pub fn open(&self, memory: &MemoryArguments, options: Options) -> Result<Database, forebay::Error> {
        let MemoryArguments { memory, local_memory_size, .. } = memory;
        match self.place.path() {
            Some(path) => {
                let options = DirectoryOptions { memory_bytes: *local_memory_size, database: options };
                Database::open_with(path, options)
            }
            None if memory.is_local() => Database::embedded(*local_memory_size, options),
            None => {
                durability::warn_if_frail(memory.all(), &options);
                Database::connect_all(memory.all(), options).inspect(durability::warn_of_missing_copies)
            }
        }
    }

    /// Drops the database that the flags name; there may be none.
    fn drop_existing(&self, memory: &NodeAddresses, options: &Options) -> Result<(), forebay::Error> {
        let addresses = if memory.is_local() { &[] } else { memory.all() };
        let dropped = match (self.place.path(), &options.name, &options.storage, &options.register) {
            (Some(path), ..) => Database::destroy_path(path),
            (None, Some(name), Some(storage), _) => Database::destroy_stored(storage, addresses, name),
            (None, Some(name), None, Some(register)) => Database::destroy_copied(register, addresses, name),
            (None, Some(name), None, None) => Database::destroy(addresses, name),
            (None, None, ..) => Ok(()),
        };
        match dropped {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            dropped => dropped,
        }
    }

    /// Returns the storage in which the database is, or will be, if that storage exists.
    pub fn found_storage(&self) -> Option<Storage> {
        self.place.found_storage()
    }

    /// The database's name.
    pub fn name(&self) -> Option<String> {
        self.place.name()
    }

    /// Checks that the database will still exist when the command has ended.
    ///
    /// # Errors
    /// Usage.
    pub fn check_lasting(&self, memory: &NodeAddresses) -> Result<(), Failure> {
        self.place.check_lasting(memory)
    }

    /// Checks options, which [`EngineArguments::options`] made and the command may have changed, against each other.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self, options: &Options) -> Result<(), forebay::Error> {
        self.place.check_options(options)
    }

    /// Checks the options, and sets their storage to the one that the flags name. Nothing is created before the check.
    ///
    /// # Errors
    /// Those of the options, and of the storage.
    pub fn opened(&self, options: Options) -> Result<Options, forebay::Error> {
        self.place.opened(options)
    }

    /// Places the database in `directory`, unless a flag says where it is or what its writes survive.
    pub fn or_in(&mut self, directory: &str) {
        self.place.or_in(directory);
    }

    /// Returns who places compactions, reached in the same way as the memory nodes; `None` for the first of these. With
    /// `lends`, this process also asks the scheduler for jobs of others.
    ///
    /// # Errors
    /// Usage, when nobody would ask the scheduler, or when it is in this process.
    pub fn scheduler(&self, memory: &NodeAddresses, lends: bool) -> Result<Option<Arc<Reach>>, Failure> {
        let Some(scheduler) = &self.scheduler else { return Ok(None) };
        if self.compaction_place != Place::Pool && !lends {
            return Err(Failure::usage("--scheduler is for --compaction-place=pool: give both, or leave it out"));
        }
        scheduler.check_remote("--scheduler")?;
        Ok(Some(forebay::reach_scheduler(&scheduler.as_reached(memory), "forebay")))
    }

    /// Takes the number of shards from the database that the flags name, if it exists and no flag gives a number. A
    /// number that differs is refused when the database is opened.
    ///
    /// # Errors
    /// When it cannot be looked up.
    pub fn with_recorded_shards(&self, memory: &NodeAddresses, options: Options) -> Result<Options, forebay::Error> {
        let recorded = if self.shards.is_none() { self.recorded(memory, &options)? } else { None };
        let shards = recorded.map_or(options.shards, |recorded| recorded.shards);
        Ok(Options { shards, ..options })
    }

    /// Returns the options with which the database that the flags name was created, if it exists.
    ///
    /// # Errors
    /// `Invalid` for options that conflict, before anything is looked up; when the database cannot be looked up.
    fn recorded(&self, memory: &NodeAddresses, options: &Options) -> Result<Option<Options>, forebay::Error> {
        self.check(options)?;
        let recorded = match (self.stored(options), &options.name) {
            (Some((storage, name)), _) => Database::options_of_stored(&storage, name),
            (None, Some(name)) if !self.place.has_storage() && !memory.is_local() => {
                Database::options_of(memory.all(), name)
            }
            (None, _) => return Ok(None),
        };
        match recorded {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            recorded => recorded.map(Some),
        }
    }

    /// Returns the storage in which the database is, or will be, if that storage exists, and the database's name in it.
    fn stored<'a>(&self, options: &'a Options) -> Option<(Storage, &'a str)> {
        Some((self.found_storage()?, options.name.as_deref().unwrap_or(DEFAULT_NAME)))
    }

    /// The first flag that says something about storage.
    fn storage_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--storage-from-level", self.storage_from_level.is_some()),
            ("--storage-lag", self.storage_lag.is_some()),
            ("--storage-rate", self.storage_rate.is_some()),
            ("--block-cache", self.block_cache.is_some()),
            ("--memory-cache", self.memory_cache.is_some()),
            ("--memory-cache-after", self.memory_cache_after.is_some()),
            ("--compression", self.compression.is_some()),
            ("--block-size", self.block_size.is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// Returns the engine's options, without the storage, which is opened after all checks
    /// ([`EngineArguments::opened`]).
    ///
    /// # Errors
    /// Usage, for a flag about storage of a database that has none, a name that no database can have or that names nothing, a
    /// durability that the database cannot have in its place, and a directory together with memory nodes of other processes.
    pub fn options(&self, memory: &NodeAddresses) -> Result<Options, Failure> {
        if let Some(flag) = self.storage_flag().filter(|_| !self.place.has_storage()) {
            return Err(Failure::usage(format_args!(
                "{flag} is for a database in storage: say where it lies with --path or --storage"
            )));
        }
        self.place.check(memory)?;
        if self.place.path().is_some() && !memory.is_local() {
            return Err(Failure::usage(PATH_WITH_MEMORY));
        }
        let usual = Options::default();
        Ok(Options {
            name: self.place.name(),
            takeover: self.takeover,
            accept_damaged_log: self.accept_damaged_log,
            durability: self.place.durability(),
            shards: self.shards.unwrap_or_else(|| shards_of_new(memory)),
            write_buffer_bytes: self.write_buffer_size.unwrap_or(usual.write_buffer_bytes),
            max_immutable_memtables: self
                .max_write_buffer_number
                .map_or(usual.max_immutable_memtables, |number| number.saturating_sub(1)),
            background_threads: self.max_background_jobs.unwrap_or(usual.background_threads),
            target_table_bytes: self.target_file_size_base.unwrap_or(usual.target_table_bytes),
            level1_bytes: self.max_bytes_for_level_base.unwrap_or(usual.level1_bytes),
            level_size_multiplier: self.max_bytes_for_level_multiplier.unwrap_or(usual.level_size_multiplier),
            levels: self.num_levels.unwrap_or(usual.levels),
            level0_compaction_trigger: self
                .level0_file_num_compaction_trigger
                .unwrap_or(usual.level0_compaction_trigger),
            level0_slowdown_trigger: self.level0_slowdown_writes_trigger.unwrap_or(usual.level0_slowdown_trigger),
            level0_stop_trigger: self.level0_stop_writes_trigger.unwrap_or(usual.level0_stop_trigger),
            bulk_load: self.bulk_load,
            cached_index_bytes: self.cached_index_size,
            storage_from_level: self.storage_from_level,
            storage_lag_memtables: self.storage_lag.unwrap_or(usual.storage_lag_memtables),
            pool_share: self.pool_share.unwrap_or(usual.pool_share),
            block_cache_bytes: self.block_cache.unwrap_or(usual.block_cache_bytes),
            memory_cache_bytes: self.memory_cache.unwrap_or(usual.memory_cache_bytes),
            memory_cache_after: self.memory_cache_after.unwrap_or(usual.memory_cache_after),
            compression: self.compression.unwrap_or(usual.compression),
            block_bytes: self.block_size.unwrap_or(usual.block_bytes),
            compaction_place: match self.compaction_place {
                Place::Compute => CompactionPlace::ComputeNode,
                Place::Memory => CompactionPlace::MemoryNode,
                Place::Pool => CompactionPlace::Pool,
            },
            replication: match self.replication {
                Copied::Send => Replication::SendIndex,
                Copied::Build => Replication::BuildIndex,
                Copied::Auto => Replication::Automatic,
            },
            scrub_bytes_per_second: self.scrub_rate,
            storage_bytes_per_second: self.storage_rate.unwrap_or(usual.storage_bytes_per_second),
            compaction_style: match self.compaction_style {
                Style::Clustered => CompactionStyle::Clustered,
                Style::Unclustered => CompactionStyle::Unclustered,
                Style::Classic => CompactionStyle::Classic,
            },
            size_classes: {
                let bytes =
                    |given: Option<u64>, usual| given.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(usual);
                SizeClasses {
                    medium_from_bytes: bytes(self.medium_from, usual.size_classes.medium_from_bytes),
                    large_from_bytes: bytes(self.large_from, usual.size_classes.large_from_bytes),
                }
            },
            flush_place: match self.flush_place {
                Builder::Compute => FlushPlace::ComputeNode,
                Builder::AsCompactions => FlushPlace::AsCompactions,
            },
            flush_order: match self.flush_order {
                Order::AsWritten => FlushOrder::AsWritten,
                Order::ByKey => FlushOrder::ByKey,
            },
            flush_after: self.flush_after.map_or(usual.flush_after, |After(after)| after),
            settle_after: self.settle_after.map_or(usual.settle_after, |After(after)| after),
            delegation: match self.delegation {
                Who::Never => Delegation::Never,
                Who::Automatic => Delegation::Automatic,
                Who::Always => Delegation::Always,
            },
            gathering: match self.gather_records {
                None => usual.gathering,
                Some(0) => Gathering::Never,
                Some(records) => Gathering::From(records),
            },
            ..usual
        })
    }
}

impl EngineArguments {
    /// Returns the values of these options, for flags that may be left out: the flag, and a value that it would take. A
    /// flag without effect, or one that depends on what is found, has no value.
    pub fn usual(&self, options: &Options) -> BTreeMap<&'static str, String> {
        let bytes = |bytes: usize| units::of_size(bytes as u64);
        let settles = options.settle_after.map_or_else(|| "never".to_owned(), |after| format!("{after:?}"));
        let mut usual = BTreeMap::from([
            ("durability", options.durability.to_string()),
            ("write-buffer-size", bytes(options.write_buffer_bytes)),
            ("max-write-buffer-number", options.max_immutable_memtables.saturating_add(1).to_string()),
            ("max-background-jobs", options.background_threads.to_string()),
            ("target-file-size-base", units::of_size(options.target_table_bytes)),
            ("max-bytes-for-level-base", units::of_size(options.level1_bytes)),
            ("max-bytes-for-level-multiplier", options.level_size_multiplier.to_string()),
            ("num-levels", options.levels.to_string()),
            ("medium-from", units::of_size(options.size_classes.medium_from_bytes.into())),
            ("large-from", units::of_size(options.size_classes.large_from_bytes.into())),
            ("level0-file-num-compaction-trigger", options.level0_compaction_trigger.to_string()),
            ("level0-slowdown-writes-trigger", options.level0_slowdown_trigger.to_string()),
            ("level0-stop-writes-trigger", options.level0_stop_trigger.to_string()),
            ("pool-share", options.pool_share.to_string()),
            ("settle-after", settles),
        ]);
        if self.place.has_storage() {
            usual.extend([
                ("storage-lag", options.storage_lag_memtables.to_string()),
                ("block-cache", units::of_size(options.block_cache_bytes)),
                ("memory-cache", units::of_size(options.memory_cache_bytes)),
                ("memory-cache-after", format!("{}us", options.memory_cache_after.as_micros())),
                ("compression", options.compression.to_string()),
                ("block-size", units::of_size(options.block_bytes.into())),
            ]);
        }
        // A database may already exist there, with its own number of shards.
        let is_new = options.name.is_none() && !self.place.has_storage();
        usual.extend(is_new.then(|| ("shards", options.shards.to_string())));
        usual.extend(self.place.path().map(|path| ("path", path.display().to_string())));
        usual.extend(options.name.clone().map(|name| ("db", name)));
        usual
    }
}

/// What happens to an existing named database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The database must exist, and is kept.
    Required,
    /// The database is kept.
    Kept,
    /// An empty database replaces it. In storage, only a database that a benchmark made, and that nothing else has
    /// opened since, is replaced.
    Replaced,
    /// An empty database replaces it, no matter who made it.
    Dropped,
}

/// Opens stores. Stores without a name are empty.
#[derive(Debug)]
pub struct Opener {
    memory: MemoryArguments,
    engine: EngineArguments,
    options: Options,
    existing: Existing,
}

impl Opener {
    /// An opener for stores with these memory nodes and options.
    ///
    /// # Errors
    /// As [`EngineArguments::options`] and [`EngineArguments::scheduler`].
    pub fn new(memory: &MemoryArguments, engine: &EngineArguments, existing: Existing) -> Result<Self, Failure> {
        let mut options = engine.options(&memory.memory)?;
        options.create_if_missing = existing != Existing::Required;
        options.scheduler = engine.scheduler(&memory.memory, false)?;
        Ok(Self { memory: memory.clone(), engine: engine.clone(), options, existing })
    }

    /// Sets bounds between shards that evenly divide `count` keys of `key_size` bytes that represent numbers.
    ///
    /// # Errors
    /// When the keys are too short for this many.
    pub fn with_numbered_keys(mut self, key_size: usize, count: u64) -> Result<Self, Error> {
        let mut key = KeyBuffer::new(key_size, count)?;
        let shards = self.options.shards as u64;
        let first = |shard: u64| u64::try_from(u128::from(count) * u128::from(shard) / u128::from(shards.max(1)));
        let numbers: BTreeSet<u64> = (1..shards).filter_map(|shard| first(shard).ok()).collect();
        self.options.shard_bounds =
            ShardBounds::Given(numbers.iter().map(|&number| key.set(number).to_vec()).collect());
        Ok(self)
    }

    /// Takes the number of shards from the database, if one exists and is kept, and no flag gives a number.
    ///
    /// # Errors
    /// When it cannot be looked up.
    pub fn with_recorded_shards(mut self) -> Result<Self, Error> {
        if matches!(self.existing, Existing::Required | Existing::Kept) {
            let found = self.engine.with_recorded_shards(&self.memory.memory, self.options.clone());
            self.options = found.map_err(|error| self.opening(&error))?;
        }
        Ok(self)
    }

    /// Takes the order of keys and the number of shards from the database, if one exists, whatever flags say.
    ///
    /// # Errors
    /// When it cannot be looked up.
    pub fn with_recorded(mut self) -> Result<Self, Error> {
        let recorded = self.engine.recorded(&self.memory.memory, &self.options);
        if let Some(recorded) = recorded.map_err(|error| self.opening(&error))? {
            (self.options.key_order, self.options.shards) = (recorded.key_order, recorded.shards);
        }
        Ok(self)
    }

    fn opening(&self, error: &forebay::Error) -> Error {
        let message = nodes::of_opening(error, &self.memory.memory);
        Error::Store { what: "opening the store", cause: StoreError { kind: error.kind(), message } }
    }

    /// Opens a store.
    ///
    /// # Errors
    /// When no memory node is reachable, or the options conflict.
    pub fn open(&self) -> Result<EngineStore, Error> {
        self.open_with(self.opened()?)
    }

    /// Returns the options, checked, with the storage that they name.
    fn opened(&self) -> Result<Options, Error> {
        self.engine.opened(self.options.clone()).map_err(|error| self.opening(&error))
    }

    fn open_with(&self, options: Options) -> Result<EngineStore, Error> {
        let clock = SystemClock::new();
        let begun = clock.now();
        let database = self.engine.open(&self.memory, options).map_err(|error| self.opening(&error))?;
        Ok(EngineStore { database: Arc::new(database), open_nanos: clock.now().saturating_sub(begun) })
    }

    /// Opens a store in which no server keeps its keys.
    ///
    /// # Errors
    /// As [`Opener::open`]; `Invalid`, with this message, when a server does.
    pub fn open_unserved(&self, refusal: &str) -> Result<EngineStore, Error> {
        let refused = || Error::Invalid(refusal.to_owned());
        if self.is_served_without_lock()? {
            return Err(refused());
        }
        let store = self.open()?;
        let is_served = forebay_server::is_served(&store.database).map_err(|error| self.opening(&error.into()))?;
        if is_served { Err(refused()) } else { Ok(store) }
    }

    /// Whether the database is a server's, in storage where no lock keeps it for the server: to open it there is to take
    /// it away. So it is only read.
    fn is_served_without_lock(&self) -> Result<bool, Error> {
        let found = self.engine.stored(&self.options).filter(|(storage, _)| storage.directory().is_none());
        let Some((storage, name)) = found else { return Ok(false) };
        let opening = |error: forebay::Error| self.opening(&error);
        let options = match Database::options_of_stored(&storage, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            options => options.map_err(opening)?,
        };
        match Database::embedded_to_read(self.memory.local_memory_size, options, None) {
            // It is not finished, or its log is longer than this memory.
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Full) => Ok(false),
            Err(error) => Err(opening(error)),
            Ok(store) => forebay_server::is_served(&store).map_err(|error| opening(error.into())),
        }
    }

    /// Opens a store for a benchmark. The next benchmark may replace again what this one has replaced.
    ///
    /// # Errors
    /// As [`Opener::open`]; `Invalid` when a database that is not a benchmark's would be replaced, or records would mix
    /// with a server's keys.
    pub fn open_for_benchmark(&self) -> Result<EngineStore, Error> {
        let is_benchmarks = self.is_benchmarks()?;
        if let (Existing::Replaced, Some((place, false))) = (self.existing, &is_benchmarks) {
            return Err(Error::Invalid(format!(
                "the database in {place} is not as bench left it: something else has made it, or has opened it since. Keep \
                 it with --use_existing_db, or delete it with --replace, as forebay drop does"
            )));
        }
        let replaces = matches!(self.existing, Existing::Replaced | Existing::Dropped);
        let store = if replaces {
            let options = self.opened()?;
            let dropped = self.engine.drop_existing(&self.memory.memory, &options);
            dropped.map_err(|error| self.opening(&error))?;
            self.open_with(options)?
        } else {
            self.open_unserved(
                "the database is a store of forebay serve, which would take a benchmark's records for keys of its \
                 clients: name another one",
            )?
        };
        if store.database.has_storage() && (replaces || matches!(is_benchmarks, Some((_, true)))) {
            store.database.note_benchmark().map_err(|error| self.opening(&error.into()))?;
        }
        Ok(store)
    }

    /// Returns the database in storage, if there is one: its place, and whether a benchmark made it and nothing else
    /// has opened it since.
    fn is_benchmarks(&self) -> Result<Option<(String, bool)>, Error> {
        let Some((storage, name)) = self.engine.stored(&self.options) else { return Ok(None) };
        match Db::is_benchmark_stored(&storage, name) {
            Ok(is_benchmarks) => Ok(Some((format!("{}/{name}", storage.objects().describe()), is_benchmarks))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.opening(&error.into())),
        }
    }
}

/// The engine as a store under test.
#[derive(Debug, Clone)]
pub struct EngineStore {
    database: Arc<Database>,
    /// How long it took to open it.
    open_nanos: Nanos,
}

impl EngineStore {
    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

fn failed(error: impl Into<forebay::Error>) -> StoreError {
    let error = error.into();
    StoreError::new(error.kind(), error)
}

impl Store for EngineStore {
    type Cursor<'a> = EngineCursor;

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.database.put(key, value).map_err(failed)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.database.delete(key).map_err(failed)
    }

    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new();
        for (key, value) in records {
            batch.put(key, value);
        }
        self.database.write(&batch).map_err(failed)
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.database.get(key).map_err(failed)
    }

    #[inline]
    fn get_with<T>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.database.get_with(key, None, found).map_err(failed)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.database.multi_get(keys).map_err(failed)
    }

    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        self.database.iter().map(EngineCursor).map_err(failed)
    }

    fn compact(&self) -> Result<(), StoreError> {
        self.database.flush().and_then(|()| self.database.compact_range(None, None)).map_err(failed)
    }

    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        self.database.wait_for_compactions().map_err(failed)
    }

    fn figures(&self) -> Result<Figures, StoreError> {
        let nodes = self.database.node_statistics().map_err(failed)?;
        let db = self.database.statistics();
        let level =
            |level: &LevelStatistics| LevelFigures { tables: level.tables, runs: level.runs, bytes: level.bytes };
        Ok(Figures {
            foreground: db.foreground,
            background: db.background,
            cached_index_bytes: db.cached_index_bytes,
            memtable_bytes: db.memtable_bytes,
            memory_node: MemoryNodeFigures {
                cpu_seconds: nodes.iter().map(|node| node.cpu_us).sum::<u64>() as f64 / 1e6,
                allocated_bytes: nodes.iter().map(|node| node.allocated_bytes).sum(),
                live_bytes: db.live_bytes,
            },
            lsm: Some(LsmFigures {
                stall_seconds: db.stall_nanos as f64 / 1e9,
                stalls: db.stalls,
                flushes: db.flushes,
                compactions: db.compactions,
                compaction_entries: db.compaction_entries,
                compaction_bytes_read: db.compaction_bytes_read,
                compaction_bytes_written: db.compaction_bytes_written,
                dead_bytes_known: db.dead_bytes_known,
                lookups: LookupFigures {
                    messages: db.delegation.searches,
                    delegated: db.delegation.searched_keys,
                    read: db.delegation.read_keys,
                    learnt: db.delegation.learnt_uses,
                },
                levels: db.levels.iter().map(level).collect(),
            }),
            storage: self.database.has_storage().then(|| storage_figures(db.storage)),
            log: (db.log.groups > 0)
                .then(|| LogFigures::new(db.log.bytes, db.log.records, db.log.groups, db.log.waits))
                .map(|log| log.with_copies(db.replicated_bytes, db.rebuilt_bytes)),
            recovery: self.database.recovery().map(|found| recovery_figures(found, self.open_nanos)),
        })
    }

    fn describe(&self) -> Result<String, StoreError> {
        let nodes = self.database.node_statistics().map_err(failed)?;
        Ok(format!("{:#?}\n{nodes:#?}\n", self.database.statistics()))
    }

    fn close(&self) -> Result<(), StoreError> {
        self.database.close().map_err(failed)
    }
}

fn storage_figures(counts: StorageCounts) -> StorageFigures {
    let StorageCounts { objects_read, objects_written, objects_deleted, bytes_read, bytes_written, syncs, .. } = counts;
    StorageFigures { objects_read, objects_written, objects_deleted, bytes_read, bytes_written, syncs }
}

fn recovery_figures(found: &Recovery, open_nanos: Nanos) -> RecoveryFigures {
    RecoveryFigures {
        open_us: open_nanos / 1000,
        records_replayed: found.replayed(),
        logs: found.logs,
        log_bytes: found.log_bytes,
        cut_bytes: found.cuts.iter().map(|cut| cut.bytes).sum(),
        segments_held: found.segments_held,
        segments_loaded: found.segments_loaded,
        bytes_loaded: found.bytes_loaded,
        objects_swept: found.objects_swept,
    }
}

/// A position in the engine's keys.
#[derive(Debug)]
pub struct EngineCursor(DbIterator);

impl Cursor for EngineCursor {
    fn seek_to_first(&mut self) -> Result<(), StoreError> {
        self.0.seek_to_first().map_err(failed)
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.0.seek(key).map_err(failed)
    }

    fn next(&mut self) -> Result<(), StoreError> {
        self.0.next().map_err(failed)
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.0.valid().then(|| (self.0.key(), self.0.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::{Server, ServerOptions};
    use std::net::SocketAddr;

    fn parsed<A: clap::Args>(flags: &[&str]) -> A {
        let command = A::augment_args(clap::Command::new("test")).no_binary_name(true);
        A::from_arg_matches(&command.try_get_matches_from(flags).unwrap()).unwrap()
    }

    /// No lock keeps a database that is in no directory: whoever opens it to write becomes its owner.
    #[test]
    fn the_store_of_a_running_server_stays_the_servers() {
        let memory: MemoryArguments = parsed(&["--local-memory-size=256MiB"]);
        let engine: EngineArguments = parsed(&["--storage=memory:"]);
        let opener = Opener::new(&memory, &engine, Existing::Kept).unwrap();
        let store = engine.open(&memory, opener.opened().unwrap()).unwrap();
        let options = ServerOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerOptions::default() };
        let server = Server::start(store, options).unwrap();
        for refused in [opener.open_unserved("it is served"), opener.open_for_benchmark()] {
            let refused = refused.unwrap_err();
            assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("serve"), "{refused}");
        }
        let observer = server.observer();
        observer.records().lsm().unwrap().check_owner().unwrap();
        server.stop().unwrap();
    }
}
