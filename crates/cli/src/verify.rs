//! `forebay verify`: reads all of a database.

use crate::failure::{Failure, Stage};
use crate::findings;
use crate::output::Format;
use crate::place::{CopiesArguments, MENDING, PlaceArguments};
use crate::progress::Progress;
use forebay::Step;

/// The database.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub place: PlaceArguments,
    #[command(flatten)]
    copies: CopiesArguments,
    /// Write copies in memory anew that are damaged, from others that are whole, before they are verified.
    #[arg(long)]
    repair: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Verifies the database: as it is in storage, or, if memory nodes are named, opened there.
///
/// # Errors
/// When the database is damaged; the first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let running = |error: forebay::EngineError| Failure::new(error.kind(), Stage::Running, error);
    let progress = Progress::of_steps("verifying:");
    let mut show = |step: Step| progress.step(step);
    let report = match arguments.place.stored()? {
        Some(_) if arguments.repair => {
            return Err(Failure::usage(
                "--repair mends copies in memory: name the nodes with --memory. What lies in storage has one \
                 copy, of which forebay repair saves what is left",
            ));
        }
        Some(database) => database.verify(&mut show).map_err(running)?,
        None => {
            let store = arguments.place.open(arguments.copies)?;
            let mended = arguments.repair.then(|| store.mend_copies(&mut show).map_err(running)).transpose()?;
            let mut report = store.verify(&mut show).map_err(running)?;
            store.close().map_err(running)?;
            // Damage that could not be repaired is found again.
            report.notes.extend(mended.into_iter().flat_map(|mended| mended.notes));
            report
        }
    };
    progress.clear();
    findings::tell(&report, arguments.format, findings::damage(&report, "it is damaged", MENDING))
}
