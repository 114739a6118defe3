//! `forebay dump`: the keys and values of a database as a stream.

use crate::failure::{Failure, Stage};
use crate::place::{CopiesArguments, PlaceArguments};
use crate::progress::Progress;
use crate::{names, output, partial};
use forebay::{Db, Keyspace, Keyspaces};
use forebay_dump::{Dumped, Format, Output, Range, tsv};
use std::path::{Path, PathBuf};

/// The database, which keys of it, and where they go.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub place: PlaceArguments,
    #[command(flatten)]
    copies: CopiesArguments,
    /// As it was at this checkpoint, which `forebay backup create` or FOREBAY.CHECKPOINT CREATE has made. Another process may have
    /// the database open.
    #[arg(long, value_name = "NAME", value_parser = names::checkpoint)]
    checkpoint: Option<String>,
    /// Only this keyspace, with its keys as it knows them. Without, all keys as the database has them.
    #[arg(long, value_name = "NAME", value_parser = names::keyspace)]
    keyspace: Option<String>,
    /// The first key, written as in lines of text: \xHH is a byte, \\ a backslash.
    #[arg(long, value_name = "KEY", value_parser = key)]
    from: Option<Key>,
    /// The first key that is not dumped any more.
    #[arg(long, value_name = "KEY", value_parser = key)]
    to: Option<Key>,
    /// Only keys that begin so.
    #[arg(long, value_name = "KEY", value_parser = key)]
    prefix: Option<Key>,
    /// The form: tsv, json or binary.
    #[arg(long, default_value = "tsv")]
    format: Format,
    /// The file; - for standard output.
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// A key on the command line.
#[derive(Debug, Clone)]
struct Key(Vec<u8>);

fn key(text: &str) -> Result<Key, String> {
    tsv::unescape(text.as_bytes()).map(|bytes| Key(bytes.into_owned())).map_err(|error| error.to_string())
}

/// A failure of a dump or of a load.
pub fn failed(error: forebay_dump::Error) -> Failure {
    Failure::new(error.kind(), Stage::Running, error)
}

/// Returns the keyspace with this name, of a database that has keyspaces.
///
/// # Errors
/// When the keyspace does not exist.
pub fn keyspace(db: &Db, name: Option<&str>) -> Result<Option<Keyspace>, Failure> {
    let found = name.map(|name| Keyspaces::open(db).and_then(|keyspaces| keyspaces.get(name))).transpose();
    found.map_err(|error| Failure::new(error.kind(), Stage::Running, error))
}

/// Writes the dump.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let store = arguments.place.open_to_read(arguments.copies, arguments.checkpoint.as_deref())?;
    let keyspace = keyspace(&store, arguments.keyspace.as_deref())?;
    let bytes = |key: &Option<Key>| key.as_ref().map(|key| key.0.clone());
    let range = Range { from: bytes(&arguments.from), to: bytes(&arguments.to), prefix: bytes(&arguments.prefix) };
    range.check(store.key_order()).map_err(|error| Failure::usage(format_args!("--from and --to: {error}")))?;
    let created = || Output::create(&arguments.file).map_err(failed);
    let mut out = partial::create(&arguments.file, created, Output::partial)?;
    let is_all = range.is_everything() && keyspace.is_none();
    let statistics = store.statistics();
    let held = statistics.memtable_bytes + statistics.levels.iter().map(|level| level.bytes).sum::<u64>();
    let progress = Progress::of_bytes("dumping:", is_all.then_some(held));
    let mut show = |dumped: Dumped| progress.set(dumped.entry_bytes, format!("({} keys)", dumped.keys));
    let is_stream = arguments.file == Path::new("-");
    let failed = |error: forebay_dump::Error| {
        if is_stream && error.is_of_lost_reader() { Failure::unheard() } else { failed(error) }
    };
    let dumped = match forebay_dump::write(&store, keyspace.as_ref(), &range, arguments.format, &mut out, &mut show) {
        Ok(dumped) => dumped,
        Err(error) => return Err(failed(out.abandon(error))),
    };
    out.finish().map_err(failed)?;
    progress.clear();
    store.close().map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    let told = format!("dumped: {} keys, {} bytes", dumped.keys, dumped.bytes);
    if is_stream {
        output::complain(&told);
        return Ok(());
    }
    output::line(&format!("{told}, {}", arguments.file.display()))
}
