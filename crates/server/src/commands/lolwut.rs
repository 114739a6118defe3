//! `LOLWUT`: the version, as Redis shows it when it has no picture for it.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{FAST, READONLY};
use crate::commands::command::{Command, Context, Family};
use crate::commands::connection::REDIS_VERSION;
use crate::keyspace::failure::Outcome;

/// The commands of this module.
pub const COMMANDS: &[Command] =
    &[Command::new(Family::Server, "lolwut", -1, READONLY | FAST, lolwut).doc("5.0.0", "Returns the version.")];

fn lolwut(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() > 2 && arguments.is(1, "VERSION") {
        arguments.integer(2)?;
    }
    cx.out.verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}
