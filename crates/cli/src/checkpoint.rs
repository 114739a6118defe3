//! `forebay checkpoint` and `forebay restore`: a named database to a file, and back.

use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::nodes::with_hint;
use crate::output;
use forebay::{CheckpointLayout, CheckpointSummary, Db, ErrorKind, NodeAddress, Options, ShardBounds, Store};
use std::path::PathBuf;

/// Which database, and which file.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the memory nodes are: shm:<path> or tcp://<host>:<port>, all that the database lies on,
    /// separated by commas.
    #[arg(long)]
    memory: NodeAddresses,
    /// Name of the database in the memory nodes.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The file.
    file: PathBuf,
}

/// The same, and how the database is to be divided.
#[derive(Debug, clap::Args)]
pub struct RestoreArguments {
    #[command(flatten)]
    place: Arguments,
    /// Key ranges with an LSM-tree each, of about the same size; as many as memory nodes if not given.
    #[arg(long, value_name = "NUMBER")]
    shards: Option<usize>,
}

impl Arguments {
    fn check(&self) -> Result<(), Failure> {
        if self.memory.all().contains(&NodeAddress::Local) {
            return Err(Failure::usage("--memory=local has no named databases: use shm:<path> or tcp://<host>:<port>"));
        }
        Ok(())
    }

    fn open(&self, options: Options) -> Result<Store, Failure> {
        let options = Options { name: Some(self.db.clone()), ..options };
        Store::connect_all(self.memory.all(), options).map_err(|error| self.starting(&error))
    }

    fn starting(&self, error: &forebay::Error) -> Failure {
        Failure::new(error.kind(), Stage::Start, with_hint(error.kind(), error, &self.memory))
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
/// The first that occurs.
pub fn write(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check()?;
    let options = Store::options_of(arguments.memory.all(), &arguments.db);
    let store = arguments.open(options.map_err(|error| arguments.starting(&error))?)?;
    let written = store.checkpoint(&arguments.file);
    let summary = written.and_then(|summary| store.close().map(|()| summary)).map_err(running)?;
    arguments.tell("written", summary)
}

/// Creates the database from the file.
///
/// # Errors
/// The first that occurs.
pub fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    let RestoreArguments { place: arguments, shards } = arguments;
    arguments.check()?;
    let shards = shards.unwrap_or(arguments.memory.all().len());
    let CheckpointLayout { key_order, bounds } =
        Db::checkpoint_layout(&arguments.file, shards).map_err(|error| running(forebay::Error::from(error)))?;
    let shard_bounds = ShardBounds::Given(bounds);
    let store =
        arguments.open(Options { error_if_exists: true, key_order, shards, shard_bounds, ..Options::default() })?;
    match store.load(&arguments.file).and_then(|summary| store.close().map(|()| summary)) {
        Ok(summary) => arguments.tell("restored", summary),
        Err(error) => {
            drop(store);
            // Half a database would bear the name.
            match Store::destroy(arguments.memory.all(), &arguments.db) {
                Err(left) if left.kind() != ErrorKind::NotFound => output::complain(&left.to_string()),
                _ => {}
            }
            Err(running(error))
        }
    }
}
