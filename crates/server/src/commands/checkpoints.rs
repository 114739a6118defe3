//! `FOREBAY.CHECKPOINT`: keeps the store as it is now, under a name in its storage, while clients continue.
//! `forebay backup` copies and clones checkpoints (`docs/operating/backup.md`).
//!
//! A command that writes makes one batch, or makes its batches visible with the last one. So a checkpoint has all of a
//! command or nothing.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ADMIN, LOADING, NO_MULTI, NOSCRIPT, STALE};
use crate::commands::command::{Command, Context, Family, container};
use crate::keyspace::failure::{Failure, Outcome};
use forebay::{ErrorKind, Store};
use std::borrow::Cow;

const FAMILY: Family = Family::Server;
const CONTROL: u32 = ADMIN | NOSCRIPT | NO_MULTI;

/// The commands of this module, which Redis does not have.
pub const COMMANDS: &[Command] = &[Command::alone(FAMILY, "forebay.checkpoint", -2, 0, container)
    .doc("7.0.0", "A container for commands about checkpoints of the store.")
    .subcommands(&[
        Command::new(FAMILY, "forebay.checkpoint|create", 3, CONTROL, create)
            .doc("7.0.0", "Keeps the store as it is now, under a name in its storage."),
        Command::new(FAMILY, "forebay.checkpoint|drop", 3, CONTROL, drop_one)
            .doc("7.0.0", "Drops a checkpoint, and what nothing else needs."),
        Command::alone(FAMILY, "forebay.checkpoint|help", 2, LOADING | STALE, help).doc("7.0.0", "Returns help."),
        Command::alone(FAMILY, "forebay.checkpoint|list", 2, CONTROL, list)
            .doc("7.0.0", "Returns the names of the checkpoints, in order."),
    ])];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "FOREBAY.CHECKPOINT <subcommand> [<arg>]. Subcommands are:",
        "CREATE <name>, DROP <name>, LIST",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn store<'s>(cx: &Context<'s, '_>) -> Outcome<&'s Store> {
    let none = Failure::text(
        "ERR checkpoints lie in storage, and the shared tree lies in memory alone: serve with --engine lsm",
    );
    cx.shared.store.lsm().ok_or(none)
}

/// Runs as a job, because it waits for a flush.
fn create(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    cx.keys.reads().expect_steps(u64::MAX)?;
    store(cx)?.create_checkpoint(&name(arguments)).map_err(failed)?;
    cx.out.ok();
    Ok(())
}

/// Runs as a job, because it waits for the storage.
fn drop_one(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    cx.keys.reads().expect_steps(u64::MAX)?;
    store(cx)?.drop_checkpoint(&name(arguments)).map_err(failed)?;
    cx.out.ok();
    Ok(())
}

fn list(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let names = store(cx)?.checkpoints().map_err(failed)?;
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
    Ok(())
}

/// The name as text. If the bytes are not text, the store refuses the name.
fn name(arguments: Arguments<'_>) -> Cow<'_, str> {
    String::from_utf8_lossy(arguments.at(2))
}

/// The failure of the command, or else of the storage.
fn failed(error: impl Into<forebay::Error>) -> Failure {
    let error = error.into();
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::Busy | ErrorKind::Invalid | ErrorKind::NotFound => {
            Failure::new(format!("ERR {error}"))
        }
        _ => error.into(),
    }
}
