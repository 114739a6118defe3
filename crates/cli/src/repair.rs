//! `forebay repair`: saves what is left of a database in storage to a new one beside it.

use crate::failure::{Failure, Stage};
use crate::findings;
use crate::output::Format;
use crate::place::StoredArguments;
use crate::progress::Progress;
use crate::storage_flags::{NamedStorage, lasting};
use crate::{names, units};
use forebay::{Durability, ErrorKind, Finding, Options, Salvage, SalvagedEntry, ShardBounds, Step, Store, Syncing};
use forebay_dump::{Entry, Loader};

/// The database, and the new one.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    stored: StoredArguments,
    /// Name of the new database. Without it, nothing is written, and the command only reports what could be saved.
    #[arg(long, value_name = "NAME", value_parser = names::database)]
    into: Option<String>,
    /// Storage of the new database; by default that of the damaged one.
    #[arg(long, value_name = "URL", requires = "into", value_parser = lasting)]
    into_storage: Option<NamedStorage>,
    /// Leave out keys that may have been deleted or overwritten, when the records that would tell are lost.
    #[arg(long)]
    without_doubt: bool,
    /// Memory for writing the new database, which is taken when it is first used. A record needs 32 times its length.
    #[arg(long, default_value = "4GiB", value_parser = units::node_memory, value_name = "SIZE")]
    local_memory_size: u64,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn running(error: impl Into<forebay::Error>) -> Failure {
    let error = error.into();
    Failure::new(error.kind(), Stage::Running, error)
}

/// A failure to write the new database.
fn writing(error: forebay_dump::Error) -> Failure {
    // The damaged database accepted these keys and values, so it is their length for which there is no room.
    crate::dump::failed(error).going_on(ErrorKind::Invalid, " (--local-memory-size)")
}

/// A failure of saving, or of the database that is written.
struct Stopped(Failure);

impl From<forebay::EngineError> for Stopped {
    fn from(error: forebay::EngineError) -> Self {
        Self(running(error))
    }
}

impl From<forebay_dump::Error> for Stopped {
    fn from(error: forebay_dump::Error) -> Self {
        Self(writing(error))
    }
}

impl Arguments {
    /// Creates the new database, which must not exist yet, unless a repair that did not finish began it.
    fn create(&self, name: &str, salvage: &Salvage) -> Result<Store, Failure> {
        let starting = |error: forebay::Error| Failure::new(error.kind(), Stage::Start, error);
        let into = self.into_storage.as_ref().map(|storage| storage.open("--into-storage")).transpose();
        let storage = into.map_err(starting)?.map_or_else(|| self.stored.storage(), Ok)?;
        let options = Options {
            name: Some(name.to_owned()),
            storage: Some(storage),
            durability: Durability::Storage(Syncing::Flush),
            unfinished: true,
            key_order: salvage.key_order(),
            merge_operator: salvage.merge_operator().map(str::to_owned),
            shards: salvage.bounds().len() + 1,
            shard_bounds: ShardBounds::Given(salvage.bounds().to_vec()),
            ..Options::default()
        };
        Store::embedded(self.local_memory_size, options).map_err(starting)
    }
}

/// Saves what can be saved. Nothing of the damaged database is changed, moved or deleted.
///
/// # Errors
/// The first error. `Corrupt` when damage was met, although all that can be saved is saved: the report says what is lost.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.into.as_ref() == Some(&arguments.stored.db) && arguments.into_storage.is_none() {
        let other = format!("{}-repaired", arguments.stored.db);
        return Err(Failure::usage(format!("--into needs a name that no database has, such as {other}")));
    }
    let database = arguments.stored.database()?;
    let progress = Progress::of_steps("looking:");
    let salvage = database.salvage(&mut |step: Step| progress.step(step)).map_err(running)?;
    progress.clear();
    let salvage = if arguments.without_doubt { salvage.without_doubt() } else { salvage };
    let mut report = match &arguments.into {
        None => salvage.save(|_| Ok::<(), Stopped>(())).map_err(|stopped| stopped.0)?,
        Some(name) => {
            let store = arguments.create(name, &salvage)?;
            let progress = Progress::of_bytes("saving:", None);
            let mut loader = Loader::new(&store, None).map_err(writing)?;
            let (mut keys, mut bytes) = (0_u64, 0_u64);
            let saved = salvage.save(|SalvagedEntry { key, value, expiry_ms, .. }| {
                keys += 1;
                bytes += (key.len() + value.len()) as u64;
                progress.set(bytes, format!("({keys} keys)"));
                loader.push(&Entry { key: key.into(), value: value.into(), expiry_ms }).map_err(Stopped::from)
            });
            let report = saved.map_err(|stopped| stopped.0)?;
            loader.finish().map_err(writing)?;
            store.finish().and_then(|()| store.close()).map_err(running)?;
            report
        }
    };
    // Also report damage in what the repair did not need.
    let progress = Progress::of_steps("verifying:");
    match database.verify(&mut |step: Step| progress.step(step)) {
        Ok(verified) => {
            let is_told = |found: &Finding| report.problems.iter().any(|problem| problem.object == found.object);
            let others: Vec<_> = verified.problems.into_iter().filter(|found| !is_told(found)).collect();
            report.problems.extend(others);
        }
        // The database was dropped, and something of it is left.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(running(error)),
    }
    progress.clear();
    let what = if arguments.into.is_some() { "what is left is saved" } else { "what is left can be saved with --into" };
    let failure = findings::failure(&report, what, "the report says how many keys are lost or in doubt");
    findings::tell(&report, arguments.format, failure)
}
