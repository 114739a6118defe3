//! `forebay checkpoint` and `forebay restore`: write a named database to a file, and load it again.

use crate::access::AccessArguments;
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::nodes::of_opening;
use crate::storage_flags::NamedStorage;
use crate::{durability, output};
use forebay::{
    CheckpointLayout, CheckpointSummary, Db, Durability, ErrorKind, NodeAddress, Options, ShardBounds, Storage, Store,
};
use std::num::NonZero;
use std::path::PathBuf;

/// The database and the file.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of all memory nodes that hold the database: shm:<path> or tcp://<host>:<port>, separated by commas.
    #[arg(long)]
    pub memory: NodeAddresses,
    #[command(flatten)]
    pub access: AccessArguments,
    /// Name of the database on the memory nodes, or in --storage.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// Storage in which the database lies.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Where it is written which memory nodes hold the copies, if there are several and the database has such a register.
    #[arg(long, value_name = "URL")]
    register: Option<NamedStorage>,
    /// The file.
    file: PathBuf,
}

/// The same, and the division of the database.
#[derive(Debug, clap::Args)]
pub struct RestoreArguments {
    #[command(flatten)]
    pub place: Arguments,
    /// Number of key ranges with an LSM-tree each, of about the same size; by default as many as memory nodes.
    #[arg(long, value_name = "NUMBER", value_parser = crate::stores::shards())]
    shards: Option<usize>,
    /// Number of memory nodes that hold a copy of each key range.
    #[arg(long, value_name = "NUMBER", default_value = "1", conflicts_with = "storage")]
    copies: NonZero<usize>,
}

/// What the flags name beside memory nodes.
struct Stored {
    storage: Option<Storage>,
    register: Option<Storage>,
}

impl Arguments {
    /// Checks that the flags fit together.
    fn check(&self) -> Result<(), Failure> {
        if self.memory.all().contains(&NodeAddress::Local) {
            return Err(Failure::usage("--memory=local has no named databases: use shm:<path> or tcp://<host>:<port>"));
        }
        Ok(())
    }

    /// What the flags name. Only a new database creates a directory.
    fn stored(&self, open: fn(&NamedStorage, &str) -> Result<Storage, forebay::Error>) -> Result<Stored, Failure> {
        let opened = |flag: &str, named: &Option<NamedStorage>| {
            named.as_ref().map(|named| open(named, flag)).transpose().map_err(Failure::usage)
        };
        Ok(Stored { storage: opened("--storage", &self.storage)?, register: opened("--register", &self.register)? })
    }

    fn open(&self, stored: &Stored, options: Options) -> Result<Store, Failure> {
        let Stored { storage, register } = stored;
        let (storage, register) = (storage.clone(), register.clone());
        let options = Options { name: Some(self.db.clone()), storage, register, ..options };
        durability::warn_if_frail(self.memory.all(), &options);
        Store::connect_all(self.memory.all(), options).map_err(|error| self.starting(&error))
    }

    fn starting(&self, error: &forebay::Error) -> Failure {
        Failure::new(error.kind(), Stage::Start, of_opening(error, &self.memory))
    }

    fn tell(&self, done: &str, summary: CheckpointSummary) -> Result<(), Failure> {
        let CheckpointSummary { entries, file_bytes, .. } = summary;
        output::line(&format!("{done}: {entries} keys, {file_bytes} bytes, {}", self.file.display()))
    }
}

fn running(error: impl Into<forebay::Error>) -> Failure {
    let error = error.into();
    Failure::new(error.kind(), Stage::Running, error)
}

/// Writes the database to the file.
///
/// # Errors
/// The first error.
pub fn write(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check()?;
    let stored = arguments.stored(NamedStorage::open_existing)?;
    let options = match &stored.storage {
        Some(storage) => Store::options_of_stored(storage, &arguments.db),
        None => Store::options_of(arguments.memory.all(), &arguments.db),
    };
    let store = arguments.open(&stored, options.map_err(|error| arguments.starting(&error))?)?;
    let written = store.checkpoint(&arguments.file);
    let summary = written.and_then(|summary| store.close().map(|()| summary)).map_err(running)?;
    arguments.tell("written", summary)
}

/// Creates the database from the file.
///
/// # Errors
/// The first error.
pub fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    let RestoreArguments { place: arguments, shards, copies } = arguments;
    arguments.check()?;
    let shards = shards.unwrap_or(arguments.memory.all().len());
    let CheckpointLayout { key_order, bounds } =
        Db::checkpoint_layout(&arguments.file, shards).map_err(|error| running(forebay::Error::from(error)))?;
    let shard_bounds = ShardBounds::Given(bounds);
    let stored = arguments.stored(NamedStorage::open)?;
    let durability = match copies.get() {
        1 => Durability::None,
        copies => Durability::Memory { copies },
    };
    // Nobody opens it before it is whole, unless copies of it lie in memory.
    let unfinished = stored.storage.is_some() || durability == Durability::None;
    let options = Options {
        unfinished,
        error_if_exists: true,
        key_order,
        shards,
        shard_bounds,
        durability,
        ..Options::default()
    };
    let store = arguments.open(&stored, options)?;
    let restored = store.load(&arguments.file).and_then(|summary| {
        if unfinished {
            store.finish()?;
        }
        store.close().map(|()| summary)
    });
    match restored {
        Ok(summary) => arguments.tell("restored", summary),
        Err(error) => {
            drop(store);
            // Otherwise half a database would have the name.
            let dropped = match (&stored.storage, &stored.register) {
                (Some(storage), _) => Store::destroy_stored(storage, arguments.memory.all(), &arguments.db),
                (None, Some(register)) => Store::destroy_copied(register, arguments.memory.all(), &arguments.db),
                (None, None) => Store::destroy(arguments.memory.all(), &arguments.db),
            };
            match dropped {
                Err(left) if left.kind() != ErrorKind::NotFound => output::complain(&left.to_string()),
                _ => {}
            }
            Err(running(error))
        }
    }
}
