//! `forebay inspect`: what is in storage, or on memory nodes.

use crate::access::AccessArguments;
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::output::Format;
use crate::place::StoredArguments;
use crate::{findings, nodes};
use forebay::{EngineError, MemoryDatabase, Report, Shown};

/// What is to be shown.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The commits, and what they say: versions, logs, tables, segments. In memory, the manifests of shards.
    Manifest(Common),
    /// The frames of one log, or of all. In memory, the parts of the log of each shard.
    Log {
        #[command(flatten)]
        common: Common,
        /// The log, as `inspect manifest` names it: EPOCH/SERIAL. Those in memory have no names.
        #[arg(value_parser = log_name)]
        log: Option<LogNumbers>,
    },
    /// The index of a table.
    Table {
        #[command(flatten)]
        common: Common,
        /// The shard.
        #[arg(long, default_value_t = 0)]
        shard: u64,
        /// The table's number, as `inspect manifest` has it.
        table: u64,
    },
    /// The records, or the image of a table, in the object of a segment, or in a segment in memory.
    Segment {
        #[command(flatten)]
        common: Common,
        /// The object's name, as `inspect manifest` has it. In memory SHARD/SEGMENT.
        object: String,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Common {
    #[command(flatten)]
    stored: StoredArguments,
    /// Memory nodes on which the database lies, in place of storage: shm:<path> or tcp://<host>:<port>; several are separated by
    /// commas.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["path", "storage"])]
    memory: Option<NodeAddresses>,
    #[command(flatten)]
    access: AccessArguments,
    /// Rows of a long list that are shown.
    #[arg(long, default_value_t = 1000, value_name = "ROWS")]
    limit: usize,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Epoch and serial number of a log.
#[derive(Debug, Clone, Copy)]
struct LogNumbers(u64, u64);

fn log_name(text: &str) -> Result<LogNumbers, String> {
    let numbers =
        text.split_once('/').and_then(|(epoch, serial)| Some(LogNumbers(epoch.parse().ok()?, serial.parse().ok()?)));
    numbers.ok_or_else(|| "a log is EPOCH/SERIAL, such as 1/1".to_owned())
}

impl Arguments {
    /// Sets how to reach the addresses.
    ///
    /// # Errors
    /// When a node is of this process, flags have no use there, nothing says where the database is, or nothing there
    /// can have the name of what to show.
    pub fn resolve(&mut self) -> Result<(), Failure> {
        let shown = self.shown();
        let (What::Manifest(common)
        | What::Log { common, .. }
        | What::Table { common, .. }
        | What::Segment { common, .. }) = &mut self.what;
        match &mut common.memory {
            Some(memory) => {
                memory.check_remote("--memory")?;
                MemoryDatabase::check(&shown).map_err(Failure::usage)?;
                memory.set_access(&common.access)
            }
            None if common.access.is_given() => {
                Err(Failure::usage("certificates and secrets are for memory nodes: name those with --memory"))
            }
            None if !common.stored.is_given() => {
                Err(Failure::usage("say where the database lies: --path, --storage or --memory"))
            }
            None => Ok(()),
        }
    }

    fn shown(&self) -> Shown {
        match &self.what {
            What::Manifest(_) => Shown::Manifest,
            What::Log { log, .. } => Shown::Log(log.map(|LogNumbers(epoch, serial)| (epoch, serial))),
            What::Table { shard, table, .. } => Shown::Table { shard: *shard, table: *table },
            What::Segment { object, .. } => Shown::Segment(object.clone()),
        }
    }

    const fn common(&self) -> &Common {
        let (What::Manifest(common)
        | What::Log { common, .. }
        | What::Table { common, .. }
        | What::Segment { common, .. }) = &self.what;
        common
    }
}

impl Common {
    /// Returns a part of the database, in storage or on memory nodes.
    fn show(&self, shown: &Shown) -> Result<Report, Failure> {
        let failed = |stage| move |error: EngineError| Failure::new(error.kind(), stage, error);
        let Some(memory) = &self.memory else {
            return self.stored.database()?.show(shown, self.limit).map_err(failed(Stage::Running));
        };
        let clients = memory.all().iter().map(|memory| nodes::session(memory, "forebay inspect"));
        let database = MemoryDatabase::new(&clients.collect::<Result<Vec<_>, _>>()?, &self.stored.db);
        database.map_err(failed(Stage::Start))?.show(shown, self.limit).map_err(failed(Stage::Running))
    }
}

/// Shows what the arguments ask for. Damage that is met is also shown, and gives exit code 6.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common();
    let report = common.show(&arguments.shown())?;
    let failure = findings::damage(&report, "what is shown is damaged", "forebay verify tells all that is");
    findings::tell(&report, common.format, failure)
}
