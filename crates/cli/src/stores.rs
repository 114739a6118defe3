//! The engine as a store under test, opened where the command line says.

use crate::arguments::MemoryArguments;
use crate::{nodes, units};
use clap::builder::BoolishValueParser;
use forebay::{
    CompactionPlace, CompactionStyle, DbIterator, ErrorKind, Gathering, LevelStatistics, NodeAddress, Options,
    ShardBounds, Store as Database, WriteBatch,
};
use forebay_workload::keys::KeyBuffer;
use forebay_workload::{Cursor, Error, Figures, LevelFigures, LsmFigures, MemoryNodeFigures, Store, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The engine's options, with db_bench's names.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArguments {
    /// Name of the database in the memory node. It outlives the command; without a name it ends with it.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// Take the named database from another process that has it open.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    takeover: bool,
    /// Key ranges with an LSM-tree each; sizes and triggers are those of one.
    #[arg(long, value_name = "NUMBER")]
    shards: Option<usize>,
    /// Size of a memtable.
    #[arg(long, value_parser = units::length, value_name = "SIZE")]
    write_buffer_size: Option<usize>,
    /// Memtables, the one that is written included.
    #[arg(long, value_name = "NUMBER")]
    max_write_buffer_number: Option<usize>,
    /// Threads for flushes and compactions.
    #[arg(long, value_name = "NUMBER")]
    max_background_jobs: Option<usize>,
    /// Record bytes at which a table ends.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    target_file_size_base: Option<u64>,
    /// Record bytes at which level 1 is compacted.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    max_bytes_for_level_base: Option<u64>,
    /// How many times larger each further level may be.
    #[arg(long, value_name = "FACTOR")]
    max_bytes_for_level_multiplier: Option<u64>,
    /// Levels, level 0 included.
    #[arg(long, value_name = "NUMBER")]
    num_levels: Option<usize>,
    /// Tables of level 0 at which it is compacted.
    #[arg(long, value_name = "TABLES")]
    level0_file_num_compaction_trigger: Option<usize>,
    /// Tables of level 0 at which writers are slowed down.
    #[arg(long, value_name = "TABLES")]
    level0_slowdown_writes_trigger: Option<usize>,
    /// Tables of level 0 at which writers wait.
    #[arg(long, value_name = "TABLES")]
    level0_stop_writes_trigger: Option<usize>,
    /// Load without triggers of level 0: nothing is compacted until `compact`.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new(), action = clap::ArgAction::Set)]
    bulk_load: bool,
    /// Memory for the cached indexes of tables; by default no limit.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    cached_index_size: Option<u64>,
    /// Where compactions run.
    #[arg(long, value_enum, default_value_t = Place::Memory)]
    compaction_place: Place,
    /// What compactions do with records.
    #[arg(long, value_enum, default_value_t = Style::Clustered)]
    compaction_style: Style,
    /// Records of a scan that lie apart: from so many in a batch on, the memory node gathers them; 0 for never. By
    /// default 64 where reads take its processor anyway, as over TCP.
    #[arg(long, value_name = "RECORDS")]
    gather_records: Option<usize>,
}

/// What compactions do with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Style {
    /// They bring records into key order in the last level, once enough of a table is not.
    Clustered,
    /// They leave records where they were written.
    Unclustered,
    /// They rewrite every record.
    Classic,
}

/// Where compactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// At the compute node, over the fabric.
    Compute,
    /// At the memory node, near the data; at the compute node when that refuses.
    Memory,
}

impl EngineArguments {
    fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            name: self.db.clone(),
            takeover: self.takeover,
            shards: self.shards.unwrap_or(usual.shards),
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
            compaction_place: match self.compaction_place {
                Place::Compute => CompactionPlace::ComputeNode,
                Place::Memory => CompactionPlace::MemoryNode,
            },
            compaction_style: match self.compaction_style {
                Style::Clustered => CompactionStyle::Clustered,
                Style::Unclustered => CompactionStyle::Unclustered,
                Style::Classic => CompactionStyle::Classic,
            },
            gathering: match self.gather_records {
                None => usual.gathering,
                Some(0) => Gathering::Never,
                Some(records) => Gathering::From(records),
            },
            ..usual
        }
    }
}

/// What becomes of a named database that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It must be there, and is gone on with.
    Required,
    /// It is gone on with.
    Kept,
    /// An empty one takes its place.
    Replaced,
}

/// Opens stores; those without a name are empty.
#[derive(Debug)]
pub struct Opener {
    memory: MemoryArguments,
    options: Options,
    existing: Existing,
}

impl Opener {
    /// Stores with these memory nodes and options.
    pub fn new(memory: &MemoryArguments, engine: &EngineArguments, existing: Existing) -> Self {
        let mut options = engine.options();
        options.create_if_missing = existing != Existing::Required;
        Self { memory: memory.clone(), options, existing }
    }

    /// Bounds between shards that divide `count` keys of `key_size` bytes that stand for numbers evenly.
    ///
    /// # Errors
    /// When the keys are too short for so many.
    pub fn with_numbered_keys(mut self, key_size: usize, count: u64) -> Result<Self, Error> {
        let mut key = KeyBuffer::new(key_size, count)?;
        let shards = self.options.shards as u64;
        let first = |shard: u64| u64::try_from(u128::from(count) * u128::from(shard) / u128::from(shards.max(1)));
        let numbers: BTreeSet<u64> = (1..shards).filter_map(|shard| first(shard).ok()).collect();
        self.options.shard_bounds =
            ShardBounds::Given(numbers.iter().map(|&number| key.set(number).to_vec()).collect());
        Ok(self)
    }

    /// Opens a store.
    ///
    /// # Errors
    /// When no memory node is there, or the options do not fit each other.
    pub fn open(&self) -> Result<EngineStore, Error> {
        let MemoryArguments { memory, local_memory_size } = &self.memory;
        let opened = if memory.is_local() {
            Database::embedded(*local_memory_size, self.options.clone())
        } else {
            self.make_room(memory.all()).and_then(|()| Database::connect_all(memory.all(), self.options.clone()))
        };
        let store = opened.map_err(|error| {
            let message = nodes::with_hint(error.kind(), &error, memory);
            Error::Store { what: "opening the store", cause: StoreError { kind: error.kind(), message } }
        })?;
        Ok(EngineStore(Arc::new(store)))
    }
}

impl Opener {
    /// Drops the database that an empty one is to replace.
    fn make_room(&self, addresses: &[NodeAddress]) -> Result<(), forebay::Error> {
        let (Some(name), Existing::Replaced) = (&self.options.name, self.existing) else { return Ok(()) };
        match Database::destroy(addresses, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            dropped => dropped,
        }
    }
}

/// The engine as a store under test.
#[derive(Debug, Clone)]
pub struct EngineStore(Arc<Database>);

fn failed(error: impl Into<forebay::Error>) -> StoreError {
    let error = error.into();
    StoreError::new(error.kind(), error)
}

impl Store for EngineStore {
    type Cursor<'a> = EngineCursor;

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.put(key, value).map_err(failed)
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.0.delete(key).map_err(failed)
    }

    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new();
        for (key, value) in records {
            batch.put(key, value);
        }
        self.0.write(&batch).map_err(failed)
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key).map_err(failed)
    }

    #[inline]
    fn get_with<T>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.0.get_with(key, None, found).map_err(failed)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.0.multi_get(keys).map_err(failed)
    }

    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        self.0.iter().map(EngineCursor).map_err(failed)
    }

    fn compact(&self) -> Result<(), StoreError> {
        self.0.flush().and_then(|()| self.0.compact_range(None, None)).map_err(failed)
    }

    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        self.0.wait_for_compactions().map_err(failed)
    }

    fn figures(&self) -> Result<Figures, StoreError> {
        let nodes = self.0.node_statistics().map_err(failed)?;
        let db = self.0.statistics();
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
                levels: db.levels.iter().map(level).collect(),
            }),
        })
    }

    fn describe(&self) -> Result<String, StoreError> {
        let nodes = self.0.node_statistics().map_err(failed)?;
        Ok(format!("{:#?}\n{nodes:#?}\n", self.0.statistics()))
    }

    fn close(&self) -> Result<(), StoreError> {
        self.0.close().map_err(failed)
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
