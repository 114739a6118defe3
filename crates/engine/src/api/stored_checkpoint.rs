//! Checkpoints in storage, and what is made of them: databases open for reading, clones, backups.

use crate::api::db::Db;
use crate::durable::checkpoints;
use crate::durable::database::{CheckpointId, Committed, Place};
use crate::durable::recovery::LeftRecords;
use crate::sharding::open_stored;
use crate::terms::{CompactionPlace, Durability, Error, Options, Result, Syncing};
use forebay_env::sync::lock;
use forebay_memory_client::MemoryClient;
use forebay_storage::Storage;
use std::sync::Arc;

pub use crate::durable::checkpoints::BackupSummary;

/// Longest name of a checkpoint, bytes. A directory takes names of 255 bytes, and the number of a commit adds 21.
const MAX_NAME_BYTES: usize = 234;

impl Db {
    /// Keeps the present state of the database in its storage, under a name. Costs a flush and one small object. The
    /// objects that it names stay until the checkpoint is dropped; the database shares those that it still needs. In a
    /// database of several shards, writers wait for the flush.
    ///
    /// # Errors
    /// `Invalid` for a database without storage, or a name that no checkpoint can have; `AlreadyExists`; as for [`Db::flush`]; those
    /// of the storage, after which there may be a checkpoint of that name.
    pub fn create_checkpoint(&self, name: &str) -> Result<()> {
        Self::check_checkpoint_name(name)?;
        let stored = self.stored()?;
        self.router().between_writes(|| {
            self.flush()?;
            checkpoints::create(&stored.place, &stored.register, &stored.kept, name)
        })
    }

    /// Names of the database's checkpoints in its storage, in order.
    ///
    /// # Errors
    /// `Invalid` for a database without storage.
    pub fn checkpoints(&self) -> Result<Vec<String>> {
        Ok(checkpoints::names(&self.stored()?.kept))
    }

    /// Drops a checkpoint in storage. What nothing else needs is deleted in the background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while a clone reads what the checkpoint names; `Fenced`; those of the storage: call again.
    pub fn drop_checkpoint(&self, name: &str) -> Result<()> {
        let stored = self.stored()?;
        let freed = {
            let _moving = lock(&self.router().moving);
            checkpoints::drop_one(&stored.place, &stored.register, &stored.kept, name)?
        };
        for shard in self.router().shards().iter() {
            if let Some(objects) = shard.tree.remote.objects() {
                freed.iter().for_each(|object| objects.discard(object));
            }
            shard.notify();
        }
        Ok(())
    }

    /// Names of the checkpoints of the database `name` in `storage`, in order: its own checkpoints where the database
    /// lives, backups elsewhere.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn stored_checkpoints(storage: &Storage, name: &str) -> Result<Vec<String>> {
        checkpoints::list(&Place::new(storage, name)?)
    }

    /// Opens the database that [`Options::name`] and [`Options::storage`] name as it was at a checkpoint, for reading.
    /// A process that has it open is not disturbed. Writes fail with `Invalid`; nothing is written to the storage.
    /// Reads go to storage, through the cache of blocks; the memory nodes hold nothing that outlives this.
    ///
    /// # Errors
    /// `NotFound` when there is no such checkpoint, or it was dropped; `Busy` when another checkpoint got its name
    /// meanwhile; as [`Db::open`].
    pub fn open_checkpoint(clients: &[Arc<MemoryClient>], options: Options, checkpoint: &str) -> Result<Self> {
        let (Some(name), Some(storage)) = (&options.name, &options.storage) else {
            return Err(Error::invalid("a checkpoint is one of a named database in a storage: name both"));
        };
        let found = checkpoints::read_named(&Place::new(storage, name)?, checkpoint)?;
        let records = vec![LeftRecords::new(); found.versions.len()];
        Self::open_view(clients, storage.layered(), (found, records), options)
    }

    /// Opens the database that [`Options::name`] and [`Options::storage`] name, for reading. Nothing is written to the
    /// storage, and a process that has it open is not fenced; objects that it replaces meanwhile may be missing. Writes
    /// fail with `Invalid`. Records that are in the logs but in no table are put in the memory nodes, which hold
    /// nothing that outlives this.
    ///
    /// # Errors
    /// `NotFound` when it is not there; `Busy` when it is not finished; `Corrupt`; as [`Db::open`].
    pub fn open_to_read(clients: &[Arc<MemoryClient>], options: Options) -> Result<Self> {
        let (Some(name), Some(storage)) = (&options.name, &options.storage) else {
            return Err(Error::invalid("what is opened to be read is a named database in a storage: name both"));
        };
        let (found, replay) = open_stored::look(&Place::new(storage, name)?, name)?;
        let records = replay.shards.into_iter().map(|shard| shard.records).collect();
        Self::open_view(clients, storage.layered(), (found, records), options)
    }

    /// Opens a committed state, and the records of each shard that are in no table, as a clone whose commits stay in this
    /// process.
    fn open_view(
        clients: &[Arc<MemoryClient>],
        view: Storage,
        (found, records): (Committed, Vec<LeftRecords>),
        options: Options,
    ) -> Result<Self> {
        let config = found.identity.config.clone();
        // Nobody else sees the clone. A checkpoint's name may be no part of a database's: it may be longer, and have `=`.
        let name = format!("view.{:016x}", found.identity.database as u64);
        drop(checkpoints::begin(&Place::new(&view, &name)?, found)?);
        let options = Options {
            name: Some(name),
            storage: Some(view),
            durability: Durability::Storage(Syncing::Flush),
            create_if_missing: false,
            error_if_exists: false,
            key_order: config.key_order,
            merge_operator: Some(config.merge_operator).filter(|name| !name.is_empty()),
            shards: usize::try_from(config.shards).unwrap_or(usize::MAX),
            rebalance_interval: None,
            bulk_load: true,
            // Others cannot write beside the storage, and to the storage they may not.
            compaction_place: CompactionPlace::ComputeNode,
            ..options
        };
        Self::open_as(clients, options, Some(records))
    }

    /// Checks that a checkpoint in storage may have this name: 1 to 234 letters, digits, `-`, `_`, `=` and `.`, not
    /// starting with `.`.
    ///
    /// # Errors
    /// `Invalid`; the message says what is wrong with it.
    pub fn check_checkpoint_name(name: &str) -> Result<()> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "{name:?} is no name of a checkpoint: use 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        CheckpointId::check_name(name)
    }

    /// Creates the database `clone` in the same storage, as the database `name` was at a checkpoint. It shares what the checkpoint
    /// names: nothing is copied. The checkpoint cannot be dropped while the clone reads any of it. The checkpoint may be a
    /// backup, which restores it.
    ///
    /// # Errors
    /// `NotFound` when there is no such checkpoint; `Busy` while somebody drops it; `AlreadyExists`; `Invalid` for a
    /// name that no database can have; those of the storage.
    pub fn clone_checkpoint(storage: &Storage, name: &str, checkpoint: &str, clone: &str) -> Result<()> {
        Options::check_name(clone)?;
        checkpoints::clone(&Place::new(storage, name)?, checkpoint, clone)
    }

    /// Copies a checkpoint of the database `name` to another storage, with the objects it names that are not there yet,
    /// and verifies what it copies. A failed call can be repeated, and continues. The database may be open.
    ///
    /// # Errors
    /// `NotFound` when there is no such checkpoint; `Busy` when another checkpoint got its name meanwhile; `Corrupt`,
    /// naming the object, when what it names is damaged or missing; `Invalid` when a database of that name lives in the
    /// other storage, or another database was backed up to it, also for the name of a database that this one is a clone
    /// of, and whose objects it names; those of the storages.
    pub fn back_up(storage: &Storage, name: &str, checkpoint: &str, to: &Storage) -> Result<BackupSummary> {
        checkpoints::back_up(&Place::new(storage, name)?, checkpoint, to)
    }

    /// Drops a backup, and deletes what no other backup of the database needs.
    ///
    /// # Errors
    /// `NotFound`; `Busy` when the database lives in this storage, or while a clone reads what the backup names; those of
    /// the storage.
    pub fn drop_backup(storage: &Storage, name: &str, checkpoint: &str) -> Result<()> {
        checkpoints::drop_backup(&Place::new(storage, name)?, checkpoint)
    }
}
