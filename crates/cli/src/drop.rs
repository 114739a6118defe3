//! `forebay drop`: deletes a database.

use crate::arguments::Engine;
use crate::failure::Failure;
use crate::output;
use crate::place::PlaceArguments;

/// The database.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub place: PlaceArguments,
    /// What it is: an LSM database, or a shared tree of a server, on the nodes of --memory.
    #[arg(long, value_enum, default_value_t = Engine::Lsm)]
    engine: Engine,
    /// Delete it. Without, nothing is done.
    #[arg(long)]
    yes: bool,
}

/// Deletes the database.
///
/// # Errors
/// When it does not exist, or a process has it open; without `--yes`.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.place.name()?;
    if !arguments.yes {
        return Err(Failure::usage(format_args!(
            "this deletes the database {name:?} with all that it holds: add --yes"
        )));
    }
    match arguments.engine {
        Engine::Lsm => arguments.place.destroy()?,
        Engine::Tree => arguments.place.destroy_tree()?,
    }
    output::line(&format!("dropped: {name}"))
}
