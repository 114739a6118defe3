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
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Verifies it: as it lies in storage, or, where memory nodes are named, opened there.
///
/// # Errors
/// When it is damaged; the first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let running = |error: forebay::EngineError| Failure::new(error.kind(), Stage::Running, error);
    let progress = Progress::of_steps("verifying:");
    let mut show = |step: Step| progress.step(step);
    let report = match arguments.place.stored()? {
        Some(database) => database.verify(&mut show).map_err(running)?,
        None => {
            let store = arguments.place.open(arguments.copies)?;
            let report = store.verify(&mut show).map_err(running)?;
            store.close().map_err(running)?;
            report
        }
    };
    progress.clear();
    findings::print(&report, arguments.format)?;
    findings::damage(&report, "it is damaged", MENDING).map_or(Ok(()), Err)
}
