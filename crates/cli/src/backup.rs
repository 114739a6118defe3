//! `forebay backup`: checkpoints of databases in storage, copies of them, and databases that begin with one.

use crate::failure::{Failure, Stage};
use crate::storage_flags::{self, NamedStorage};
use crate::{names, output, place, units};
use clap::Subcommand;
use forebay::{
    BackupSummary, DEFAULT_NAME, Db, DirectoryOptions, Durability, ErrorKind, Options, Storage, Store, Syncing,
};

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Keep the database as it is now, under a name. Nothing is copied, and no other process may have it open: `forebay serve` does this
    /// itself (`FOREBAY.CHECKPOINT CREATE NAME`).
    Create {
        #[command(flatten)]
        place: Place,
        /// The checkpoint's name.
        #[arg(value_parser = names::checkpoint)]
        checkpoint: String,
    },
    /// Print the names of the checkpoints, one a line.
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Copy a checkpoint to another storage: what is not there yet.
    Copy {
        #[command(flatten)]
        place: Place,
        /// The checkpoint's name.
        #[arg(value_parser = names::checkpoint)]
        checkpoint: String,
        /// The other storage, as for --storage.
        #[arg(long, value_name = "URL", value_parser = storage_flags::lasting)]
        to: NamedStorage,
    },
    /// Create a database in the same storage, as this one was at a checkpoint. Nothing is copied.
    Clone {
        #[command(flatten)]
        place: Place,
        /// The checkpoint's name.
        #[arg(value_parser = names::checkpoint)]
        checkpoint: String,
        /// The new database's name.
        #[arg(long = "as", value_name = "NAME", value_parser = names::database)]
        name: String,
    },
    /// Drop a checkpoint, and what nothing else needs. Where the database lives, no other process may have it open: `forebay serve` does
    /// this itself (`FOREBAY.CHECKPOINT DROP NAME`).
    Drop {
        #[command(flatten)]
        place: Place,
        /// The checkpoint's name.
        #[arg(value_parser = names::checkpoint)]
        checkpoint: String,
    },
}

/// Where the database lies.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Directory in which the database lies, as of `bench --path`.
    #[arg(long, value_name = "DIRECTORY", value_parser = storage_flags::named_directory,
          conflicts_with_all = ["db", "storage"])]
    path: Option<NamedStorage>,
    /// Name of the database in --storage; by default `default`.
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    db: Option<String>,
    /// Storage in which the database, or a copy of its checkpoints, lies.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Memory of the node in this process.
    #[arg(long, default_value = "4GiB", value_parser = units::node_memory, value_name = "SIZE")]
    local_memory_size: u64,
}

/// Carries the action out.
///
/// # Errors
/// The first error.
pub fn execute(action: &Action) -> Result<(), Failure> {
    match action {
        Action::Create { place, checkpoint } => {
            let store = place.open()?;
            store.create_checkpoint(checkpoint).and_then(|()| store.close()).map_err(running)?;
            output::line(&format!("created: {checkpoint}"))
        }
        Action::List { place } => {
            let names = place.checkpoints()?;
            names.iter().try_for_each(|name| output::line(name))
        }
        Action::Copy { place, checkpoint, to } => {
            // The other storage is created only if there is something to copy.
            if !place.checkpoints()?.contains(checkpoint) {
                let message = format!("there is no checkpoint {checkpoint:?} of the database {:?}", place.name());
                return Err(Failure::new(ErrorKind::NotFound, Stage::Running, message));
            }
            let to = to.open("--to").map_err(starting)?;
            let copied = Db::back_up(&place.storage()?, place.name(), checkpoint, &to).map_err(running)?;
            let BackupSummary { objects, objects_copied, bytes_copied } = copied;
            output::line(&format!("copied: {objects_copied} of {objects} objects, {bytes_copied} bytes, {checkpoint}"))
        }
        Action::Clone { place, checkpoint, name } => {
            place.checkpoints()?;
            Db::clone_checkpoint(&place.storage()?, place.name(), checkpoint, name).map_err(running)?;
            output::line(&format!("created: {name}"))
        }
        Action::Drop { place, checkpoint } => {
            let storage = place.storage()?;
            match Db::options_of_stored(&storage, place.name()) {
                Ok(_) => {
                    let store = place.open()?;
                    store.drop_checkpoint(checkpoint).and_then(|()| store.close()).map_err(running)?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Db::drop_backup(&storage, place.name(), checkpoint).map_err(running)?;
                }
                Err(error) => return Err(starting(error)),
            }
            output::line(&format!("dropped: {checkpoint}"))
        }
    }
}

impl Place {
    fn name(&self) -> &str {
        self.db.as_deref().unwrap_or(DEFAULT_NAME)
    }

    fn storage(&self) -> Result<Storage, Failure> {
        place::named(self.path.as_ref(), self.storage.as_ref())
    }

    /// Returns the names of the checkpoints of the database, or of its backup, which must be there. This is the first that
    /// reaches the storage.
    fn checkpoints(&self) -> Result<Vec<String>, Failure> {
        let storage = self.storage()?;
        let names = Db::stored_checkpoints(&storage, self.name()).map_err(starting)?;
        if names.is_empty() {
            // If there are no checkpoints, there must at least be a database.
            Db::options_of_stored(&storage, self.name()).map_err(starting)?;
        }
        Ok(names)
    }

    /// Opens the database, which must exist.
    fn open(&self) -> Result<Store, Failure> {
        let storage = self.storage()?;
        let options = Db::options_of_stored(&storage, self.name()).map_err(starting)?;
        let options = Options { durability: Durability::Storage(Syncing::Sync), ..options };
        let opened = match storage.directory().filter(|_| self.path.is_some()) {
            Some(path) => {
                let database = Options { name: None, storage: None, ..options };
                Store::open_with(path, DirectoryOptions { memory_bytes: self.local_memory_size, database })
            }
            None => Store::embedded(self.local_memory_size, options),
        };
        opened.map_err(|error| starting(error).going_on(ErrorKind::Busy, WHILE_OPEN))
    }
}

/// What to do while another process has the database open.
const WHILE_OPEN: &str = ". Who has the database open creates and drops its checkpoints: send a server FOREBAY.CHECKPOINT CREATE NAME or \
                          FOREBAY.CHECKPOINT DROP NAME; a program calls Db::create_checkpoint or Db::drop_checkpoint";

fn starting(error: impl Into<forebay::Error>) -> Failure {
    let error = error.into();
    Failure::new(error.kind(), Stage::Start, error)
}

fn running(error: impl Into<forebay::Error>) -> Failure {
    let error = error.into();
    Failure::new(error.kind(), Stage::Running, error)
}
