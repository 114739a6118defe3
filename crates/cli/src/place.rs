//! The database that a command reads: one that is there, in storage or on memory nodes.

use crate::arguments::MemoryArguments;
use crate::durability::{self, PATH_WITH_MEMORY};
use crate::failure::{Failure, Stage};
use crate::names;
use crate::nodes::of_opening;
use crate::storage_flags::{open_existing_directory, open_existing_storage};
use forebay::{DEFAULT_NAME, ErrorKind, NodeAddress, Options, Storage, Store, StoredDatabase};

/// Where the database lies.
#[derive(Debug, Clone, clap::Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Directory in which the database lies, as of `bench --path`.
    #[arg(long, value_name = "DIRECTORY", value_parser = open_existing_directory,
          conflicts_with_all = ["db", "storage", "register"])]
    path: Option<Storage>,
    /// Name of the database in --storage (there `default`), or on the memory nodes.
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    db: Option<String>,
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL", value_parser = open_existing_storage)]
    storage: Option<Storage>,
    /// Where it is written which memory nodes hold the copies, if there are several and the database has such a register.
    #[arg(long, value_name = "URL", value_parser = open_existing_storage, conflicts_with = "storage")]
    register: Option<Storage>,
}

/// Whether copies may be left out.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct CopiesArguments {
    /// Open the database although its copies lie on more memory nodes than --memory names. The copies on the others are left out: they
    /// are not used again.
    #[arg(long)]
    leave_out: bool,
}

impl CopiesArguments {
    /// Opens a database.
    ///
    /// # Errors
    /// As [`Store::connect_all`]; `Invalid` when copies would be left out and may not be.
    pub fn connect(self, addresses: &[NodeAddress], options: Options) -> Result<Store, forebay::Error> {
        let options = Options { all_copies_named: !self.leave_out, ..options };
        Store::connect_all(addresses, options).inspect(durability::warn_of_missing_copies)
    }
}

/// A database in storage, which is looked at and not opened.
#[derive(Debug, Clone)]
pub struct StoredArguments {
    /// The storage in which it lies.
    pub storage: Storage,
    /// Its name.
    pub db: String,
}

/// The flags that say so.
#[derive(Debug, clap::Args)]
struct StoredFlags {
    /// Directory in which the database lies, as of `bench --path`.
    #[arg(long, value_name = "DIRECTORY", value_parser = open_existing_directory, conflicts_with_all = ["db", "storage"],
          required_unless_present = "storage")]
    path: Option<Storage>,
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL", value_parser = open_existing_storage)]
    storage: Option<Storage>,
    /// Name of the database.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = names::database)]
    db: String,
}

impl clap::Args for StoredArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        StoredFlags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        StoredFlags::augment_args_for_update(command)
    }
}

impl clap::FromArgMatches for StoredArguments {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let StoredFlags { path, storage, db } = StoredFlags::from_arg_matches(matches)?;
        let missing = || clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, "--path or --storage");
        Ok(Self { storage: path.or(storage).ok_or_else(missing)?, db })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl StoredArguments {
    /// The database.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn database(&self) -> Result<StoredDatabase, Failure> {
        stored(&self.storage, &self.db)
    }
}

/// What to do about storage of which all that is damaged is known.
pub const MENDING: &str = "restore that from a copy, or save the rest with forebay repair";

/// What to do about storage that is damaged, or that may not be read.
pub fn advice(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Corrupt => format!("; forebay verify tells all that is damaged: {MENDING}"),
        ErrorKind::AccessDenied => "; mend the permissions of the directory, or the credentials".to_owned(),
        _ => String::new(),
    }
}

fn stored(storage: &Storage, name: &str) -> Result<StoredDatabase, Failure> {
    StoredDatabase::new(storage, name)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, format_args!("{error}{}", advice(error.kind()))))
}

impl PlaceArguments {
    /// The storage that the flags name.
    fn storage(&self) -> Option<&Storage> {
        self.path.as_ref().or(self.storage.as_ref())
    }

    /// The database as it lies in storage, where no memory node is named.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn stored(&self) -> Result<Option<StoredDatabase>, Failure> {
        match self.storage() {
            Some(storage) if self.memory.memory.is_local() => stored(storage, self.name()?).map(Some),
            _ => Ok(None),
        }
    }

    /// The database's name.
    ///
    /// # Errors
    /// When no flag says where it lies.
    pub fn name(&self) -> Result<&str, Failure> {
        match (&self.db, self.storage()) {
            (Some(name), _) => Ok(name),
            (None, Some(_)) => Ok(DEFAULT_NAME),
            (None, None) => Err(Failure::usage(
                "say which database: --path DIRECTORY, --storage URL, or --memory ADDRESS and --db NAME",
            )),
        }
    }

    /// Drops it. No process may have it open.
    ///
    /// # Errors
    /// When it is not there, or somebody has it open.
    pub fn destroy(&self) -> Result<(), Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        self.check()?;
        let addresses = if memory.is_local() { &[] } else { memory.all() };
        let directory = self.path.as_ref().and_then(Storage::directory);
        let dropped = match (directory, self.storage(), &self.register) {
            (Some(directory), ..) => Store::destroy_path(directory),
            (None, Some(storage), _) => Store::destroy_stored(storage, addresses, name),
            (None, None, Some(register)) => Store::destroy_copied(register, addresses, name),
            (None, None, None) => Store::destroy(addresses, name),
        };
        dropped.map_err(|error| self.starting(&error))
    }

    /// Checks that the flags name a place.
    fn check(&self) -> Result<(), Failure> {
        match (&self.path, self.storage(), self.memory.memory.is_local()) {
            (Some(_), _, false) => Err(Failure::usage(PATH_WITH_MEMORY)),
            (_, None, true) => {
                Err(Failure::usage("--memory=local has no databases but with --path or --storage: name one of them"))
            }
            _ => Ok(()),
        }
    }

    fn starting(&self, error: &forebay::Error) -> Failure {
        let (kind, message) = (error.kind(), of_opening(error, &self.memory.memory));
        let advice = self.storage().map(|_| advice(kind)).unwrap_or_default();
        Failure::new(kind, Stage::Start, format_args!("{message}{advice}"))
    }

    /// Opens it, with the settings that it has. No other process may have it open.
    ///
    /// # Errors
    /// When it is not there, or cannot be opened.
    pub fn open(&self, copies: CopiesArguments) -> Result<Store, Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        self.check()?;
        let recorded = match self.storage() {
            Some(storage) => Store::options_of_stored(storage, name),
            None => Store::options_of(memory.all(), name),
        };
        let starting = |error| self.starting(&error);
        let (name, storage, register) = (Some(name.to_owned()), self.storage().cloned(), self.register.clone());
        let options = Options { name, storage, register, ..recorded.map_err(starting)? };
        let opened = match memory.is_local() {
            true => Store::embedded(self.memory.local_memory_size, options),
            false => copies.connect(memory.all(), options),
        };
        opened.map_err(starting)
    }
}
