//! `forebay load`: writes a dump into a database.

use crate::arguments::MemoryArguments;
use crate::dump::{failed, keyspace};
use crate::failure::{Failure, Stage};
use crate::progress::Progress;
use crate::stores::{EngineArguments, Existing, Opener};
use crate::{names, output};
use forebay::{ErrorKind, Keyspaces};
use forebay_dump::{Format, Input, LoadOptions, Loaded};
use forebay_workload::Store as _;
use std::path::PathBuf;

/// Why nothing is loaded into a store of a server.
const SERVED: &str = "the database is a store of forebay serve, which would take what is loaded for keys of its clients, or hide \
                      it from them: name another one. A dump of such a store goes into an empty database; in parts, with the \
                      part that has the first keys as the last one";

/// The dump, and the database.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine: EngineArguments,
    /// Load into this keyspace, which is created if it is not there. Without, keys are taken as the database has them.
    #[arg(long, value_name = "NAME", value_parser = names::keyspace)]
    keyspace: Option<String>,
    /// The form: tsv, json or binary.
    #[arg(long, default_value = "tsv")]
    format: Format,
    /// What happens at a line that cannot be loaded: stop ends the load, skip passes the line over and reports its
    /// number.
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    on_error: OnError,
    /// The file; - for standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// What a line that cannot be loaded does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnError {
    Stop,
    Skip,
}

impl Arguments {
    fn options(&self) -> LoadOptions {
        let on_error = match self.on_error {
            OnError::Stop => forebay_dump::OnError::Stop,
            OnError::Skip => forebay_dump::OnError::Skip,
        };
        LoadOptions { format: self.format, on_error }
    }

    /// Creates the keyspace if it does not exist.
    fn create_keyspace(&self, db: &forebay::Db) -> Result<(), forebay::EngineError> {
        let Some(name) = &self.keyspace else { return Ok(()) };
        match Keyspaces::open(db)?.create(name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            created => created.map(drop),
        }
    }
}

/// Loads the dump.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    arguments.engine.check_lasting(&arguments.memory.memory)?;
    let mut input = Input::open(&arguments.file).map_err(failed)?;
    input.check(arguments.format).map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let opener = Opener::new(&arguments.memory, &arguments.engine, Existing::Kept)?;
    let store = opener.with_recorded().and_then(|opener| opener.open_unserved(SERVED));
    let store = store.map_err(Failure::workload(Stage::Start))?;
    let db = store.database().db();
    arguments.create_keyspace(db).map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    let keyspace = keyspace(db, arguments.keyspace.as_deref())?;
    let progress = Progress::of_bytes("loading:", input.bytes());
    let mut show = |loaded: Loaded| progress.set(loaded.bytes, format!("({} keys)", loaded.entries));
    let mut skipped = |error: &forebay_dump::Error| progress.complain(&format!("skipped: {error}"));
    let options = arguments.options();
    let loaded = forebay_dump::load(db, keyspace.as_ref(), input.into_reader(), options, &mut show, &mut skipped);
    progress.clear();
    // Entries before a line that cannot be loaded stay.
    let closed = store.close().map_err(Failure::closing);
    let Loaded { entries, bytes, skipped, lacks_end, .. } = loaded.map_err(failed)?;
    closed?;
    if lacks_end && arguments.format == Format::Tsv {
        output::complain(
            "forebay: warning: the last line has no line feed: if the dump was cut there, its value is too short",
        );
    }
    output::line(&format!("loaded: {entries} keys of {bytes} bytes, {skipped} skipped"))
}
