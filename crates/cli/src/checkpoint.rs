//! `forebay checkpoint` and `forebay restore`: write a named database to a file, and load it again.

use crate::access::AccessArguments;
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::nodes::of_opening;
use crate::place::CopiesArguments;
use crate::storage_flags::{NamedStorage, lasting};
use crate::stores::shards_of_new;
use crate::{durability, names, output, partial};
use forebay::{
    CheckpointLayout, CheckpointSummary, Db, Durability, ErrorKind, NodeAddress, Options, OutputFile, ShardBounds,
    Storage, Store,
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
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    db: String,
    /// Storage in which the database lies.
    #[arg(long, value_name = "URL", value_parser = lasting)]
    storage: Option<NamedStorage>,
    /// Where it is written which memory nodes hold the copies, if there are several and the database has such a register.
    #[arg(long, value_name = "URL", value_parser = lasting)]
    register: Option<NamedStorage>,
    /// The file.
    file: PathBuf,
}

/// The same, and what may be left out of it.
#[derive(Debug, clap::Args)]
pub struct WriteArguments {
    #[command(flatten)]
    pub place: Arguments,
    #[command(flatten)]
    copies: CopiesArguments,
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

    /// Opens what the flags name. Only a new database creates a directory.
    fn stored(&self, open: fn(&NamedStorage, &str) -> Result<Storage, forebay::Error>) -> Result<Stored, Failure> {
        let opened = |flag: &str, named: &Option<NamedStorage>| {
            named.as_ref().map(|named| open(named, flag)).transpose().map_err(|error| self.starting(&error))
        };
        Ok(Stored { storage: opened("--storage", &self.storage)?, register: opened("--register", &self.register)? })
    }

    /// Returns these options for the database that the flags name.
    fn named(&self, Stored { storage, register }: Stored, options: Options) -> Options {
        Options { name: Some(self.db.clone()), storage, register, ..options }
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

/// What to do while another process has the database open.
const WHILE_OPEN: &str = ". A checkpoint takes nothing over: stop that process, such as a server, by SIGTERM, write the checkpoint, and \
                          start it again; or a program that has the database open writes one itself (Db::checkpoint)";

/// Writes the database to the file.
///
/// # Errors
/// The first error.
pub fn write(arguments: &WriteArguments) -> Result<(), Failure> {
    let WriteArguments { place: arguments, copies } = arguments;
    arguments.check()?;
    let stored = arguments.stored(NamedStorage::open_existing)?;
    let options = match &stored.storage {
        Some(storage) => Store::options_of_stored(storage, &arguments.db),
        None => Store::options_of(arguments.memory.all(), &arguments.db),
    };
    let options = options.map_err(|error| arguments.starting(&error))?;
    let opened = copies.connect(arguments.memory.all(), arguments.named(stored, options));
    let store = opened.map_err(|error| arguments.starting(&error).going_on(ErrorKind::Busy, WHILE_OPEN))?;
    let created = || OutputFile::create(&arguments.file, "checkpoint").map_err(running);
    let written = store.checkpoint_to(partial::create(&arguments.file, created, OutputFile::partial)?);
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
    let shards = shards.unwrap_or_else(|| shards_of_new(&arguments.memory));
    let CheckpointLayout { key_order, merge_operator, bounds } =
        Db::checkpoint_layout(&arguments.file, shards).map_err(|error| running(forebay::Error::from(error)))?;
    let shard_bounds = ShardBounds::Given(bounds);
    let durability = match copies.get() {
        1 => Durability::None,
        copies => Durability::Memory { copies },
    };
    let options = Options { key_order, merge_operator, shards, shard_bounds, durability, ..Options::default() };
    let options = arguments.named(Stored { storage: None, register: None }, options);
    // Nothing is created before the check.
    options.check().map_err(|error| arguments.starting(&forebay::Error::from(error)))?;
    let stored = arguments.stored(NamedStorage::open)?;
    let options = arguments.named(stored, options).restoring();
    durability::warn_if_frail(arguments.memory.all(), &options);
    let store = Store::connect_all(arguments.memory.all(), options).map_err(|error| arguments.starting(&error))?;
    let summary = store.load_whole(&arguments.file).map_err(running)?;
    store.close().map_err(running)?;
    arguments.tell("restored", summary)
}
