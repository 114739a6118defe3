//! Transactions. Because these commands are about other commands, `execute` implements them.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ALLOW_BUSY, FAST, LOADING, NOSCRIPT, SKIP_SLOWLOG, STALE};
use crate::commands::command::{Command, Context, Family, Flow, Run};
use crate::keyspace::failure::Outcome;

const FAMILY: Family = Family::Transactions;
const SEEN: u32 = NOSCRIPT | LOADING | STALE;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::with(FAMILY, "discard", 1, SEEN | FAST | ALLOW_BUSY, Run::Flow(Flow::Discard))
        .doc("2.0.0", "Gives a transaction up."),
    Command::with(FAMILY, "exec", 1, SEEN | SKIP_SLOWLOG, Run::Flow(Flow::Exec))
        .doc("1.2.0", "Carries a transaction out."),
    Command::with(FAMILY, "multi", 1, SEEN | FAST | ALLOW_BUSY, Run::Flow(Flow::Multi))
        .doc("1.2.0", "Begins a transaction."),
    Command::alone(FAMILY, "unwatch", 1, SEEN | FAST | ALLOW_BUSY, unwatch).doc("2.2.0", "Forgets watched keys."),
    Command::with(FAMILY, "watch", -2, SEEN | FAST | ALLOW_BUSY, Run::Flow(Flow::Watch))
        .keys(1, -1, 1)
        .doc("2.2.0", "Makes the next transaction depend on keys."),
];

fn unwatch(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.session.unwatch(&cx.shared.watches);
    cx.out.ok();
    Ok(())
}
