//! `SAVE` and its like. Writes are in the store's log, and reach the storage according to the store's durability. To save
//! is to bring the rest of the log to the storage, which takes almost no time. If the log was lost, saving begins another
//! one.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::state::counters::Count;
use std::sync::atomic::Ordering;

const FAMILY: Family = Family::Server;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(FAMILY, "bgrewriteaof", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, rewrite)
        .doc("1.0.0", "Says that there is no append-only file."),
    Command::alone(FAMILY, "bgsave", -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, background_save)
        .doc("1.0.0", "Brings what was written to the storage."),
    Command::alone(FAMILY, "lastsave", 1, LOADING | STALE | FAST, last_save)
        .doc("1.0.0", "Returns when data was last saved."),
    Command::alone(FAMILY, "save", 1, ADMIN | NOSCRIPT | NO_MULTI | NO_ASYNC_LOADING, save)
        .doc("1.0.0", "Brings what was written to the storage."),
];

fn bring(cx: &Context<'_, '_>) -> Outcome {
    let begun = cx.shared.clock.now();
    cx.shared.store.save()?;
    cx.shared.saved_ms.store(cx.shared.clock.wall_ms(), Ordering::Relaxed);
    let took_s = cx.shared.clock.now().saturating_sub(begun) / 1_000_000_000;
    cx.shared.save_took_s.store(i64::try_from(took_s).unwrap_or(i64::MAX), Ordering::Relaxed);
    cx.counters.add(Count::Saves, 1);
    Ok(())
}

fn save(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    bring(cx)?;
    cx.out.ok();
    Ok(())
}

/// Saves before it answers.
fn background_save(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    match arguments.len() {
        1 => {}
        2 if arguments.is(1, "SCHEDULE") => {}
        _ => return Err(Failure::SYNTAX),
    }
    bring(cx)?;
    cx.out.simple("Background saving started");
    Ok(())
}

fn rewrite(_: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    Err(Failure::text("ERR there is no append only file: the store trims its log by itself"))
}

fn last_save(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.count(cx.shared.saved_ms.load(Ordering::Relaxed) / 1000);
    Ok(())
}
