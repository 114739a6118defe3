//! `EVAL` and its like, `SCRIPT`.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{
    ALLOW_BUSY, LOADING, MAY_REPLICATE, NO_MANDATORY_KEYS, NOSCRIPT, READONLY, SKIP_MONITOR, STALE,
};
use crate::commands::command::{Command, Context, Family, Run, container};
use crate::commands::scripting::run::{self, parts, with_machine};
use crate::keyspace::failure::{Failure, Outcome};
use crate::script::machine::{Callee, Digest, Machine};
use crate::script::progress::Kind;

const FAMILY: Family = Family::Scripting;
const SCRIPT: u32 = NOSCRIPT | STALE | NO_MANDATORY_KEYS | SKIP_MONITOR;
/// A script's name is the digest of its text, in hexadecimal digits.
const NAME_BYTES: usize = 40;
const NO_SCRIPT: Failure = Failure::text("NOSCRIPT No matching script. Please use EVAL.");

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::with(FAMILY, "eval", -3, SCRIPT | MAY_REPLICATE, Run::Script(eval))
        .counted_keys(2, false)
        .doc("2.6.0", "Carries out a script."),
    Command::with(FAMILY, "eval_ro", -3, SCRIPT | READONLY, Run::Script(eval_read_only))
        .counted_keys(2, false)
        .doc("7.0.0", "Carries out a script that reads only."),
    Command::with(FAMILY, "evalsha", -3, SCRIPT | MAY_REPLICATE, Run::Script(eval_name))
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
            Command::alone(FAMILY, "script|help", 2, LOADING | STALE, help).doc("5.0.0", "Returns help."),
            Command::alone(FAMILY, "script|kill", 2, NOSCRIPT | ALLOW_BUSY, kill)
                .doc("2.6.0", "Ends the script that is carried out."),
            Command::alone(FAMILY, "script|load", 3, NOSCRIPT | STALE, load).doc("2.6.0", "Loads a script."),
        ]),
];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "EXISTS <sha1> ..., FLUSH [ASYNC|SYNC], KILL, LOAD <script>",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
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
    run::kill(cx, &[Kind::Script])
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
    let parts = parts(arguments, arguments.integer(2)?)?;
    with_machine(cx, |cx, machine| {
        let name = name(machine)?;
        let script = Callee::Script(machine.find(&name).ok_or(NO_SCRIPT)?);
        run::carry_out(cx, machine, &script, arguments, parts, is_read_only)
    })
}
