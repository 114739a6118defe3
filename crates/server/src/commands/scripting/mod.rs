//! Lua scripts: `EVAL` and its like, `SCRIPT`.
//!
//! | module | holds |
//! |---|---|
//! | `calls` | what a script may call: `redis.call` and its like |
//! | `replies` | replies as values of Lua, and back |
//!
//! A script is carried out in a thread of its own, while nobody else touches a key, as one batch: others see all that it wrote
//! or nothing. So a script that is ended leaves nothing, and may be ended whatever it did.

mod calls;
mod replies;

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{ALLOW_BUSY, MOVABLEKEYS, NOSCRIPT, READONLY, STALE};
use crate::commands::command::{Command, Context, Family, Run};
use crate::keyspace::failure::{Failure, Outcome};
use crate::script::machine::{Digest, End, Machine};
use crate::script::progress::{Ending, Running};
use calls::Caller;
use mlua::MultiValue;
use std::cell::RefCell;

const FAMILY: Family = Family::Scripting;
const SCRIPT: u32 = NOSCRIPT | STALE | MOVABLEKEYS;
/// A script's name is the digest of its text, in hexadecimal digits.
const NAME_BYTES: usize = 40;
const NO_SCRIPT: Failure = Failure::text("NOSCRIPT No matching script. Please use EVAL.");

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::with(FAMILY, "eval", -3, SCRIPT, Run::Script(eval))
        .counted_keys(2, false)
        .doc("2.6.0", "Carries out a script."),
    Command::with(FAMILY, "eval_ro", -3, SCRIPT | READONLY, Run::Script(eval_read_only))
        .counted_keys(2, false)
        .doc("7.0.0", "Carries out a script that reads only."),
    Command::with(FAMILY, "evalsha", -3, SCRIPT, Run::Script(eval_name))
        .counted_keys(2, false)
        .doc("2.6.0", "Carries out a script that was loaded."),
    Command::with(FAMILY, "evalsha_ro", -3, SCRIPT | READONLY, Run::Script(eval_name_read_only))
        .counted_keys(2, false)
        .doc("7.0.0", "Carries out a script that was loaded and reads only."),
    Command::alone(FAMILY, "script", -2, 0, container)
        .doc("2.6.0", "A container for Lua scripts management commands.")
        .subcommands(&[
            Command::alone(FAMILY, "script|exists", -3, NOSCRIPT, exists)
                .doc("2.6.0", "Says which scripts are loaded."),
            Command::alone(FAMILY, "script|flush", -2, NOSCRIPT, flush).doc("2.6.0", "Forgets all scripts."),
            Command::alone(FAMILY, "script|help", 2, STALE, help).doc("5.0.0", "Returns help."),
            Command::alone(FAMILY, "script|kill", 2, NOSCRIPT | ALLOW_BUSY, kill)
                .doc("2.6.0", "Ends the script that is carried out."),
            Command::alone(FAMILY, "script|load", 3, NOSCRIPT | STALE, load).doc("2.6.0", "Loads a script."),
        ]),
];

fn container(_: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    Err(Failure::SYNTAX)
}

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "EXISTS <sha1> ..., FLUSH [ASYNC|SYNC], KILL, LOAD <script>",
        "HELP",
        "    Print this help.",
    ];
    cx.out.array(LINES.len());
    LINES.iter().for_each(|line| cx.out.simple(line));
    Ok(())
}

/// Lua itself failed, and not a script.
fn of_machine(error: &mlua::Error) -> Failure {
    Failure::new(format!("ERR Lua: {error}"))
}

/// Does something with the machine.
fn with_machine<T>(
    cx: &mut Context<'_, '_>,
    act: impl FnOnce(&mut Context<'_, '_>, &mut Machine) -> Outcome<T>,
) -> Outcome<T> {
    let shared = cx.shared;
    let mut held = shared.scripts.machine();
    let machine = match &mut *held {
        Some(machine) => machine,
        none => none.insert(Machine::new(&shared.scripts.progress).map_err(|error| of_machine(&error))?),
    };
    act(cx, machine)
}

fn load(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let name = with_machine(cx, |_, machine| machine.load(arguments.at(2)).map_err(Failure::new))?;
    cx.out.bulk(name);
    Ok(())
}

fn exists(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let names = arguments.from(2);
    let found: Vec<bool> =
        with_machine(cx, |_, machine| Ok(names.iter().map(|name| machine.find(&name_in(name)).is_some()).collect()))?;
    cx.out.array(found.len());
    found.iter().for_each(|&is_there| cx.out.integer(i64::from(is_there)));
    Ok(())
}

fn flush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() > 3 || (arguments.len() == 3 && !arguments.is(2, "SYNC") && !arguments.is(2, "ASYNC")) {
        return Err(Failure::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    with_machine(cx, |_, machine| {
        machine.forget();
        Ok(())
    })?;
    cx.out.ok();
    Ok(())
}

fn kill(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let progress = &cx.shared.scripts.progress;
    if !progress.is_running() {
        return Err(Failure::text("NOTBUSY No scripts in execution right now."));
    }
    progress.end(Ending::Killed);
    cx.out.ok();
    Ok(())
}

/// A script's name as a client gives it.
fn name_in(given: &[u8]) -> Digest {
    String::from_utf8_lossy(given).to_ascii_lowercase()
}

fn eval(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    carry_out(cx, arguments, false, |machine| machine.load(arguments.at(1)).map_err(Failure::new))
}

fn eval_read_only(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    carry_out(cx, arguments, true, |machine| machine.load(arguments.at(1)).map_err(Failure::new))
}

fn eval_name(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    carry_out_loaded(cx, arguments, false)
}

fn eval_name_read_only(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    carry_out_loaded(cx, arguments, true)
}

fn carry_out_loaded(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, is_read_only: bool) -> Outcome {
    if arguments.at(1).len() != NAME_BYTES {
        return Err(NO_SCRIPT);
    }
    carry_out(cx, arguments, is_read_only, |_| Ok(name_in(arguments.at(1))))
}

fn carry_out(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    is_read_only: bool,
    name: impl FnOnce(&mut Machine) -> Outcome<Digest>,
) -> Outcome {
    let count = arguments.integer(2)?;
    if count > arguments.len() as i64 - 3 {
        return Err(Failure::text("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Failure::text("ERR Number of keys can't be negative"))?;
    let (keys, rest) = (arguments.range(3, 3 + count), arguments.from(3 + count));
    with_machine(cx, |cx, machine| {
        let name = name(machine)?;
        let script = machine.find(&name).ok_or(NO_SCRIPT)?;
        if is_read_only && script.flags.are_given && !script.flags.no_writes {
            return Err(Failure::text("ERR Can not execute a script with write flag using *_ro command."));
        }
        let shared = cx.shared;
        let now = shared.clock.now();
        let patience_ms = u64::try_from(shared.config.number("busy-reply-threshold")).unwrap_or(0);
        let busy_at = now.saturating_add(patience_ms.saturating_mul(1_000_000));
        let ends_when_busy = cx.session.is_in_transaction;
        let _running = shared.scripts.progress.begin(Running { busy_at, ends_when_busy });
        let caller = RefCell::new(Caller::new(cx, is_read_only || script.flags.no_writes));
        let end = machine.lua().scope(|scope| {
            let call = scope.create_function(|lua, words: MultiValue| caller.borrow_mut().call(lua, &words))?;
            let protected =
                scope.create_function(|lua, words: MultiValue| caller.borrow_mut().call_protected(lua, &words))?;
            let set_protocol =
                scope.create_function(|_, version: Option<i64>| caller.borrow_mut().set_protocol(version))?;
            let may_call = scope.create_function(|_, words: MultiValue| caller.borrow().may_call(&words))?;
            let redis = calls::table(machine.lua())?;
            redis.set("call", call)?;
            redis.set("pcall", protected)?;
            redis.set("setresp", set_protocol)?;
            redis.set("acl_check_cmd", may_call)?;
            machine.run(&script, redis, keys, rest)
        });
        let (protocol, fatal) = caller.into_inner().finish();
        if let Some(failure) = fatal {
            return Err(failure);
        }
        if let Some(ending) = shared.scripts.progress.ending() {
            return Err(Failure::of_run(format!("ERR {} script: {name}, on @user_script", ending.text())));
        }
        match end.map_err(|error| of_machine(&error))? {
            End::Returned(value) => replies::write(&value, protocol, cx.out),
            End::Raised { text, place } => {
                let place = place.map(|(source, line)| format!(", on {source}:{line}.")).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                Err(Failure::new(format!("{text} script: {name}{place}")))
            }
        }
    })
}
