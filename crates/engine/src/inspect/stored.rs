//! A database as it is in storage.

use crate::durable::database::{Committed, Place};
use crate::durable::groups::Replay;
use crate::durable::unnamed;
use crate::inspect::report::Report;
use crate::remote::objects::Objects;
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_storage::{BlockCache, BlockCacheOptions, BlockOptions, ObjectInfo, ObjectName, ObjectNumber, Storage};
use forebay_table::LogName;
use std::sync::Arc;

/// Memory for blocks of objects that are read again soon.
const CACHE_BYTES: u64 = 128 << 20;
/// The epoch of a reader that owns nothing, and so is not taken over.
const NO_OWNER: u64 = u64::MAX;

/// A database in storage that is looked at, and not opened. No call on it changes anything, and its owner may continue
/// meanwhile. What the owner replaces and deletes may then be found missing. So what is found counts only if nothing
/// was written meanwhile, or if it is found again.
#[derive(Debug, Clone)]
pub struct StoredDatabase {
    pub(crate) place: Place,
    pub(crate) name: String,
}

/// An object of a segment, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) shard: u64,
    pub(crate) number: ObjectNumber,
    pub(crate) name: ObjectName,
    pub(crate) bytes: u64,
}

impl StoredDatabase {
    /// The database `name` in `storage`.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; `Invalid` for a name that no database can have; those of the storage.
    pub fn new(storage: &Storage, name: &str) -> Result<Self> {
        let database = Self { place: Place::new(storage, name)?, name: name.to_owned() };
        if storage.objects().list(Some(database.place.root()))?.is_empty() {
            let message = format!("there is no database {name:?} in {}", storage.objects().describe());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(database)
    }

    /// What the commits say; `None` when they say that there is no database, or cannot be read, which is a problem.
    pub(crate) fn committed(&self, report: &mut Report) -> Option<Committed> {
        let found = self.place.history().and_then(|history| Committed::of(&history));
        match found {
            Ok(Some(committed)) => Some(committed),
            Ok(None) => {
                let detail =
                    "there is no commit that says what is current: the register is gone, or the database was dropped";
                report.problem(self.register_name(), ErrorKind::NotFound, detail);
                None
            }
            Err(error) => {
                report.problem(self.register_name(), error.kind(), error);
                None
            }
        }
    }

    /// Reads a log as an owner who takes over would, but seals nothing.
    ///
    /// # Errors
    /// `Corrupt`, naming the place, when something that was durable is damaged or missing; those of the storage.
    pub(crate) fn read_log(&self, log: LogName, replay: &mut Replay) -> Result<()> {
        unnamed::read_log(&self.place, log, replay)
    }

    /// The logs that hold writes although no commit names them, each of which is a problem: commits are missing.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn unnamed_logs(&self, report: &mut Report) -> Result<Vec<LogName>> {
        // As they are now: an owner that continues may have named logs since they were read.
        let Ok(history) = self.place.history() else { return Ok(Vec::new()) };
        let Some(committed) = Committed::of(&history)? else { return Ok(Vec::new()) };
        let logs = unnamed::logs(&self.place, &history, &committed)?;
        for unnamed in &logs {
            report.problem(self.place.log(unnamed.log)?.as_str(), ErrorKind::Corrupt, unnamed.describe(&self.place)?);
        }
        Ok(logs.into_iter().map(|unnamed| unnamed.log).collect())
    }

    /// All objects of the database, with their bytes. They change when an owner replaces or deletes something.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn contents(&self) -> Result<Vec<ObjectInfo>> {
        Ok(self.place.storage.objects().list(Some(self.place.root()))?)
    }

    pub(crate) fn register_name(&self) -> String {
        format!("{}/commit", self.name)
    }

    /// The objects of all segments among these, by shards and numbers.
    ///
    /// # Errors
    /// None for a database that can be.
    pub(crate) fn segments_in(&self, contents: &[ObjectInfo]) -> Result<Vec<Listed>> {
        let prefix = self.place.all_segments()?;
        let shard_of = |name: &ObjectName| name.after(&prefix)?.split_once('/')?.0.parse().ok();
        let mut listed = Vec::new();
        for object in contents {
            let Some(shard) = shard_of(&object.name) else { continue };
            if let Some(number) = ObjectNumber::of(&object.name, &self.place.segments(shard)?) {
                listed.push(Listed { shard, number, name: object.name.clone(), bytes: object.size_bytes });
            }
        }
        listed.sort_unstable_by_key(|object| (object.shard, object.number));
        Ok(listed)
    }

    /// A cache to read objects through.
    ///
    /// # Errors
    /// `Io` when there is no thread.
    pub(crate) fn cache() -> Result<Arc<BlockCache>> {
        let options = BlockCacheOptions { capacity_bytes: CACHE_BYTES, threads: 0, ..BlockCacheOptions::default() };
        Ok(Arc::new(BlockCache::new(options)?))
    }

    /// The objects of a shard, for reading.
    ///
    /// # Errors
    /// None for a shard that can be.
    pub(crate) fn objects(&self, shard: u64, cache: &Arc<BlockCache>) -> Result<Objects> {
        let (storage, names) = (&self.place.storage, (self.place.segments(shard)?, self.place.commits()?));
        Ok(Objects::new(storage, names, NO_OWNER, Arc::clone(cache), BlockOptions::default(), Arc::default()))
    }
}
