//! The database that a command reads: one that is there, in storage or on memory nodes.

use crate::arguments::MemoryArguments;
use crate::durability::open_existing_storage;
use crate::failure::{Failure, Stage};
use crate::nodes::with_hint;
use forebay::{DEFAULT_NAME, ErrorKind, Options, Storage, Store, StoredDatabase};
use std::fmt::Display;

/// Where the database lies.
#[derive(Debug, Clone, clap::Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Name of the database in --storage (there `default`), or on the memory nodes.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL", value_parser = open_existing_storage)]
    storage: Option<Storage>,
}

/// A database in storage, which is looked at and not opened.
#[derive(Debug, Clone, clap::Args)]
pub struct StoredArguments {
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL", value_parser = open_existing_storage)]
    pub storage: Storage,
    /// Name of the database.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    pub db: String,
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

fn advised(error: &impl Display, kind: ErrorKind) -> String {
    format!("{error}{}", advice(kind))
}

fn stored(storage: &Storage, name: &str) -> Result<StoredDatabase, Failure> {
    StoredDatabase::new(storage, name)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, advised(&error, error.kind())))
}

impl PlaceArguments {
    /// The database as it lies in storage, where no memory node is named.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn stored(&self) -> Result<Option<StoredDatabase>, Failure> {
        match &self.storage {
            Some(storage) if self.memory.memory.is_local() => stored(storage, self.name()?).map(Some),
            _ => Ok(None),
        }
    }

    /// The database's name.
    ///
    /// # Errors
    /// When no flag says where it lies.
    pub fn name(&self) -> Result<&str, Failure> {
        match (&self.db, &self.storage) {
            (Some(name), _) => Ok(name),
            (None, Some(_)) => Ok(DEFAULT_NAME),
            (None, None) => Err(Failure::usage("say which database: --storage URL, or --memory ADDRESS and --db NAME")),
        }
    }

    /// Opens it, with the settings that it has. No other process may have it open.
    ///
    /// # Errors
    /// When it is not there, or cannot be opened.
    pub fn open(&self) -> Result<Store, Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        let starting = |error: forebay::Error| {
            let kind = error.kind();
            let message = match &self.storage {
                Some(_) => advised(&with_hint(kind, &error, memory), kind),
                None => with_hint(kind, &error, memory),
            };
            Failure::new(kind, Stage::Start, message)
        };
        let recorded = match (&self.storage, memory.is_local()) {
            (Some(storage), _) => Store::options_of_stored(storage, name),
            (None, false) => Store::options_of(memory.all(), name),
            (None, true) => {
                return Err(Failure::usage("--memory=local has no databases but with --storage: name one of them"));
            }
        };
        let options =
            Options { name: Some(name.to_owned()), storage: self.storage.clone(), ..recorded.map_err(starting)? };
        let opened = match memory.is_local() {
            true => Store::embedded(self.memory.local_memory_size, options),
            false => Store::connect_all(memory.all(), options),
        };
        opened.map_err(starting)
    }
}
