//! `forebay inspect`: what lies in storage.

use crate::failure::{Failure, Stage};
use crate::findings;
use crate::output::Format;
use crate::place::StoredArguments;
use forebay::Shown;

/// What is to be shown.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The commits, and what they say: versions, logs, tables, segments.
    Manifest(Common),
    /// The frames of one log, or of all.
    Log {
        #[command(flatten)]
        common: Common,
        /// The log, as `inspect manifest` names it: EPOCH/SERIAL.
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
    /// The records, or the image of a table, in the object of a segment.
    Segment {
        #[command(flatten)]
        common: Common,
        /// The object's name, as `inspect manifest` has it.
        object: String,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Common {
    #[command(flatten)]
    stored: StoredArguments,
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

/// Shows it. Damage that is met is shown too, and gives exit code 6.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let (common, shown) = match &arguments.what {
        What::Manifest(common) => (common, Shown::Manifest),
        What::Log { common, log } => (common, Shown::Log(log.map(|LogNumbers(epoch, serial)| (epoch, serial)))),
        What::Table { common, shard, table } => (common, Shown::Table { shard: *shard, table: *table }),
        What::Segment { common, object } => (common, Shown::Segment(object.clone())),
    };
    let database = common.stored.database()?;
    let report = database.show(&shown, common.limit);
    let report = report.map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    findings::print(&report, common.format)?;
    findings::damage(&report, "what is shown is damaged", "forebay verify tells all that is").map_or(Ok(()), Err)
}
