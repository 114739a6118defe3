//! `forebay checkpoint` and `forebay restore`: a named database to a file, and back.

use crate::failure::{Failure, Stage};
use crate::nodes::with_hint;
use crate::output;
use forebay::{CheckpointSummary, ErrorKind, NodeAddress, Options, Store};
use std::path::PathBuf;

/// Which database, and which file.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the memory node is: shm:<path> or tcp://<host>:<port>.
    #[arg(long)]
    memory: NodeAddress,
    /// Name of the database in the memory node.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The file.
    file: PathBuf,
}

impl Arguments {
    fn open(&self, options: Options) -> Result<Store, Failure> {
        if self.memory == NodeAddress::Local {
            return Err(Failure::usage("--memory=local has no named databases: use shm:<path> or tcp://<host>:<port>"));
        }
        let options = Options { name: Some(self.db.clone()), ..options };
        Store::connect(&self.memory, options)
            .map_err(|error| Failure::new(error.kind(), Stage::Start, with_hint(error.kind(), &error, &self.memory)))
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
    let store = arguments.open(Options { create_if_missing: false, ..Options::default() })?;
    let summary = store.checkpoint(&arguments.file).map_err(running)?;
    arguments.tell("written", summary)
}

/// Creates the database from the file.
///
/// # Errors
/// The first that occurs.
pub fn restore(arguments: &Arguments) -> Result<(), Failure> {
    let store = arguments.open(Options { error_if_exists: true, ..Options::default() })?;
    match store.load(&arguments.file).and_then(|summary| store.close().map(|()| summary)) {
        Ok(summary) => arguments.tell("restored", summary),
        Err(error) => {
            drop(store);
            // Half a database would bear the name.
            match Store::destroy(std::slice::from_ref(&arguments.memory), &arguments.db) {
                Err(left) if left.kind() != ErrorKind::NotFound => output::complain(&left.to_string()),
                _ => {}
            }
            Err(running(error))
        }
    }
}
