//! The database that a command reads: an existing one, in storage or on memory nodes.

use crate::arguments::MemoryArguments;
use crate::durability::{self, PATH_WITH_MEMORY};
use crate::failure::{Failure, Stage};
use crate::names;
use crate::nodes::of_opening;
use crate::storage_flags::{NamedStorage, named_directory};
use forebay::{DEFAULT_NAME, ErrorKind, NodeAddress, Options, OwnedTree, Storage, Store, StoredDatabase};

/// Where the database lies.
#[derive(Debug, Clone, clap::Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Directory in which the database lies, as of `bench --path`.
    #[arg(long, value_name = "DIRECTORY", value_parser = named_directory,
          conflicts_with_all = ["db", "storage", "register"])]
    path: Option<NamedStorage>,
    /// Name of the database in --storage (there `default`), or on the memory nodes.
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    db: Option<String>,
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Where it is written which memory nodes hold the copies, if there are several and the database has such a register.
    #[arg(long, value_name = "URL", conflicts_with = "storage")]
    register: Option<NamedStorage>,
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
#[derive(Debug, Clone, clap::Args)]
pub struct StoredArguments {
    /// Directory in which the database lies, as of `bench --path`.
    #[arg(long, value_name = "DIRECTORY", value_parser = named_directory,
          conflicts_with_all = ["db", "storage"])]
    path: Option<NamedStorage>,
    /// Storage in which the database lies: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix or hdfs://host:port/prefix.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Name of the database.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = names::database)]
    pub db: String,
}

impl StoredArguments {
    /// Whether the flags say where the database is.
    pub const fn is_given(&self) -> bool {
        self.path.is_some() || self.storage.is_some()
    }

    /// Returns the storage in which the database is.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn storage(&self) -> Result<Storage, Failure> {
        named(self.path.as_ref(), self.storage.as_ref())
    }

    /// The database.
    ///
    /// # Errors
    /// When there is no database there.
    pub fn database(&self) -> Result<StoredDatabase, Failure> {
        stored(&self.storage()?, &self.db)
    }
}

/// What to do about damaged storage when all of the damage is known.
pub const MENDING: &str = "restore that from a copy, or save the rest with forebay repair";

/// What to do about storage that is damaged, or that may not be read.
pub fn advice(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Corrupt => format!("; forebay verify tells all that is damaged: {MENDING}"),
        ErrorKind::AccessDenied => "; mend the permissions of the directory, or the credentials".to_owned(),
        _ => String::new(),
    }
}

/// Returns the storage that `--path` or `--storage` names, which must exist; none where no flag names one.
///
/// # Errors
/// Those of the storage.
fn existing(path: Option<&NamedStorage>, storage: Option<&NamedStorage>) -> Result<Option<Storage>, Failure> {
    let (flag, named) = if path.is_some() { ("--path", path) } else { ("--storage", storage) };
    let opened = named.map(|named| named.open_existing(flag)).transpose();
    opened.map_err(|error| Failure::new(error.kind(), Stage::Start, format_args!("{error}{}", advice(error.kind()))))
}

/// The same, where a flag must name one.
///
/// # Errors
/// Those of the storage; when no flag names one.
pub fn named(path: Option<&NamedStorage>, storage: Option<&NamedStorage>) -> Result<Storage, Failure> {
    existing(path, storage)?.ok_or_else(|| Failure::usage("say where the database lies: --path or --storage"))
}

fn stored(storage: &Storage, name: &str) -> Result<StoredDatabase, Failure> {
    StoredDatabase::new(storage, name)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, format_args!("{error}{}", advice(error.kind()))))
}

impl PlaceArguments {
    /// Whether the flags name storage.
    const fn has_storage(&self) -> bool {
        self.path.is_some() || self.storage.is_some()
    }

    /// The storage that the flags name.
    fn storage(&self) -> Result<Option<Storage>, Failure> {
        existing(self.path.as_ref(), self.storage.as_ref())
    }

    /// Returns the register, which says who holds the copies.
    fn register(&self) -> Result<Option<Storage>, Failure> {
        let opened = self.register.as_ref().map(|register| register.open_existing("--register")).transpose();
        opened.map_err(|error| self.starting(&error))
    }

    /// Returns the database as it is in storage, if no memory node is named.
    ///
    /// # Errors
    /// When there is no database there.
    pub fn stored(&self) -> Result<Option<StoredDatabase>, Failure> {
        if !self.memory.memory.is_local() {
            return Ok(None);
        }
        self.storage()?.map(|storage| stored(&storage, self.name()?)).transpose()
    }

    /// The database's name.
    ///
    /// # Errors
    /// When no flag says where the database is.
    pub fn name(&self) -> Result<&str, Failure> {
        match (&self.db, self.has_storage()) {
            (Some(name), _) => Ok(name),
            (None, true) => Ok(DEFAULT_NAME),
            (None, false) => Err(Failure::usage(
                "say which database: --path DIRECTORY, --storage URL, or --memory ADDRESS and --db NAME",
            )),
        }
    }

    /// Drops the database. No process may have it open.
    ///
    /// # Errors
    /// When it does not exist, or a process has it open.
    pub fn destroy(&self) -> Result<(), Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        self.check()?;
        let addresses = if memory.is_local() { &[] } else { memory.all() };
        let dropped = match (self.storage()?, self.register()?) {
            (Some(storage), _) => match storage.directory().filter(|_| self.path.is_some()) {
                Some(directory) => Store::destroy_path(directory),
                None => Store::destroy_stored(&storage, addresses, name),
            },
            (None, Some(register)) => Store::destroy_copied(&register, addresses, name),
            (None, None) => Store::destroy(addresses, name),
        };
        dropped.map_err(|error| self.starting(&error))
    }

    /// Drops the shared tree of this name. No server may have it.
    ///
    /// # Errors
    /// As [`PlaceArguments::destroy`].
    pub fn destroy_tree(&self) -> Result<(), Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        if self.has_storage() || memory.is_local() {
            return Err(Failure::usage(
                "a shared tree lies on memory nodes alone: name it with --memory ADDRESS and --db NAME",
            ));
        }
        OwnedTree::destroy(memory.all(), name).map_err(|error| self.starting(&error))
    }

    /// Checks that the flags name a place.
    fn check(&self) -> Result<(), Failure> {
        match (self.path.is_some(), self.has_storage(), self.memory.memory.is_local()) {
            (true, _, false) => Err(Failure::usage(PATH_WITH_MEMORY)),
            (_, false, true) => {
                Err(Failure::usage("--memory=local has no databases but with --path or --storage: name one of them"))
            }
            _ => Ok(()),
        }
    }

    fn starting(&self, error: &forebay::Error) -> Failure {
        let (kind, message) = (error.kind(), of_opening(error, &self.memory.memory));
        let advice = if self.has_storage() { advice(kind) } else { String::new() };
        Failure::new(kind, Stage::Start, format_args!("{message}{advice}"))
    }

    /// Opens the database for reading. If it is in storage, and no memory node is named, nothing is written, and it may
    /// be read as it was at a checkpoint.
    ///
    /// # Errors
    /// As [`PlaceArguments::open`]; usage for a checkpoint of a database that is not in storage.
    pub fn open_to_read(&self, copies: CopiesArguments, checkpoint: Option<&str>) -> Result<Store, Failure> {
        let storage = if self.memory.memory.is_local() { self.storage()? } else { None };
        let Some(storage) = storage else {
            if checkpoint.is_some() {
                let message = "--checkpoint is of a database in storage, which is read there: name --path or --storage, and no --memory";
                return Err(Failure::usage(message));
            }
            return self.open(copies);
        };
        let bytes = self.memory.local_memory_size;
        let options = Store::options_of_stored(&storage, self.name()?);
        let opened = options.and_then(|options| Store::embedded_to_read(bytes, options, checkpoint));
        opened.map_err(|error| self.starting(&error))
    }

    /// Opens the database, with its own settings. No other process may have it open.
    ///
    /// # Errors
    /// When it does not exist, or cannot be opened.
    pub fn open(&self, copies: CopiesArguments) -> Result<Store, Failure> {
        let (name, memory) = (self.name()?, &self.memory.memory);
        self.check()?;
        let (storage, register) = (self.storage()?, self.register()?);
        let recorded = match &storage {
            Some(storage) => Store::options_of_stored(storage, name),
            None => Store::options_of(memory.all(), name),
        };
        let starting = |error| self.starting(&error);
        let options = Options { name: Some(name.to_owned()), storage, register, ..recorded.map_err(starting)? };
        let opened = match memory.is_local() {
            true => Store::embedded(self.memory.local_memory_size, options),
            false => copies.connect(memory.all(), options),
        };
        opened.map_err(starting)
    }
}
