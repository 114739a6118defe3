//! `FCALL`, `FUNCTION`: functions of libraries, which the store keeps.
//!
//! The store has the texts of libraries. The machine has what they registered, starting with the first command that
//! needs it. Changes go to both; when a run that makes some fails, the machine reads the libraries again.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{
    ALLOW_BUSY, DENYOOM, LOADING, MAY_REPLICATE, NO_MANDATORY_KEYS, NOSCRIPT, READONLY, SKIP_MONITOR, STALE, WRITE,
};
use crate::commands::command::{Command, Context, Family, Run, container, unknown_form};
use crate::commands::dump::{payload, reader};
use crate::commands::scripting::calls;
use crate::commands::scripting::run::{self, begin, of_machine, parts, with_held, with_machine};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::functions as kept;
use crate::script::first_line;
use crate::script::functions::{Functions, Library, MAX_LIBRARIES, Refused};
use crate::script::machine::{Callee, Machine};
use crate::script::progress::Kind;
use crate::text::{number, pattern};
use std::collections::BTreeMap;

const FAMILY: Family = Family::Scripting;
const CALL: u32 = NOSCRIPT | STALE | NO_MANDATORY_KEYS | SKIP_MONITOR;
/// The byte before the text of a library in a dump.
const LIBRARY: u8 = 245;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::with(FAMILY, "fcall", -3, CALL | MAY_REPLICATE, Run::Script(call))
        .counted_keys(2, false)
        .doc("7.0.0", "Calls a function."),
    Command::with(FAMILY, "fcall_ro", -3, CALL | READONLY, Run::Script(call_read_only))
        .counted_keys(2, false)
        .doc("7.0.0", "Calls a function that reads only."),
    Command::alone(FAMILY, "function", -2, 0, container)
        .doc("7.0.0", "A container for function commands.")
        .subcommands(&[
            Command::with(FAMILY, "function|delete", 3, WRITE | NOSCRIPT, Run::Exclusive(delete))
                .doc("7.0.0", "Deletes a library."),
            Command::alone(FAMILY, "function|dump", 2, NOSCRIPT, dump).doc("7.0.0", "Returns all libraries, as bytes."),
            Command::with(FAMILY, "function|flush", -2, WRITE | NOSCRIPT, Run::Exclusive(flush))
                .doc("7.0.0", "Deletes all libraries."),
            Command::alone(FAMILY, "function|help", 2, LOADING | STALE, help).doc("7.0.0", "Returns help."),
            Command::alone(FAMILY, "function|kill", 2, NOSCRIPT | ALLOW_BUSY, kill)
                .doc("7.0.0", "Ends the function that is carried out."),
            Command::alone(FAMILY, "function|list", -2, NOSCRIPT, list).doc("7.0.0", "Returns the libraries."),
            Command::with(FAMILY, "function|load", -3, WRITE | DENYOOM | NOSCRIPT, Run::Script(load))
                .doc("7.0.0", "Loads a library."),
            Command::with(FAMILY, "function|restore", -3, WRITE | DENYOOM | NOSCRIPT, Run::Script(restore))
                .doc("7.0.0", "Loads the libraries of a dump."),
            Command::alone(FAMILY, "function|stats", 2, NOSCRIPT | ALLOW_BUSY, statistics)
                .doc("7.0.0", "Returns what runs, and the numbers of libraries and functions."),
        ]),
];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DELETE <library>, DUMP, FLUSH [ASYNC|SYNC], KILL, LIST [LIBRARYNAME <pattern>] [WITHCODE],",
        "LOAD [REPLACE] <library code>, RESTORE <dump> [FLUSH|APPEND|REPLACE], STATS",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

/// Does something with the libraries.
fn with_functions<T>(
    cx: &mut Context<'_, '_>,
    act: impl FnOnce(&mut Context<'_, '_>, &Machine, &mut Functions) -> Outcome<T>,
) -> Outcome<T> {
    with_machine(cx, |cx, machine| with_functions_of(cx, machine, act))
}

/// The same to change them. What was replaced, or not taken, is garbage afterwards, and the next library may need its room.
fn change_functions<T>(
    cx: &mut Context<'_, '_>,
    act: impl FnOnce(&mut Context<'_, '_>, &Machine, &mut Functions) -> Outcome<T>,
) -> Outcome<T> {
    with_machine(cx, |cx, machine| {
        let outcome = with_functions_of(cx, machine, act);
        // If memory is short for this, the next command tries again.
        let _ = machine.collect_much();
        outcome
    })
}

fn with_functions_of<T>(
    cx: &mut Context<'_, '_>,
    machine: &mut Machine,
    act: impl FnOnce(&mut Context<'_, '_>, &Machine, &mut Functions) -> Outcome<T>,
) -> Outcome<T> {
    let mut functions = match machine.functions.take() {
        Some(functions) => functions,
        None => read(cx, machine)?,
    };
    let outcome = act(cx, machine, &mut functions);
    cx.shared.scripts.set_counts(functions.counts());
    machine.functions = Some(functions);
    outcome
}

/// Returns the libraries of the store. A library that can no longer be loaded is left out, and stays in the store.
fn read(cx: &mut Context<'_, '_>, machine: &Machine) -> Outcome<Functions> {
    let mut functions = Functions::default();
    for text in kept::read(cx.keys.writes())? {
        // The library has finished loading before, so it has no time limit.
        let added =
            library_of(cx, machine, Arguments::new(&[]), &text, false).and_then(|library| add(&mut functions, library));
        if let Err(failure) = added {
            let why = crate::text::shown::quoted(failure.message().as_bytes());
            tracing::error!(%why, "a library of functions cannot be loaded");
        }
    }
    Ok(functions)
}

/// Adds a library to others.
fn add(functions: &mut Functions, library: Library) -> Outcome {
    functions.add(library).map_err(|refused| match refused {
        Refused::Taken(taken) => Failure::new(format!("ERR Function {taken} already exists")),
        Refused::TooMany => {
            Failure::new(format!("ERR there are {MAX_LIBRARIES} libraries already: delete some, or join them"))
        }
    })
}

/// Loads a library from this text for a request, without adding it to the others yet. Loading may be given up when it
/// is busy for long.
fn library_of(
    cx: &mut Context<'_, '_>,
    machine: &Machine,
    arguments: Arguments<'_>,
    text: &[u8],
    ends_when_busy: bool,
) -> Outcome<Library> {
    let redis = calls::table_for_libraries(machine.lua()).map_err(|error| of_machine(&error))?;
    let _running = begin(cx, arguments, Kind::Library, "", ends_when_busy);
    machine.load_library(text, &redis).map_err(Failure::new)
}

fn load(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let last = arguments.len() - 1;
    let options = arguments.range(2, last);
    if let Some(unknown) = options.iter().find(|option| !option.eq_ignore_ascii_case(b"replace")) {
        return Err(Failure::new(format!("ERR Unknown option given: {}", String::from_utf8_lossy(unknown))));
    }
    let text = arguments.at(last);
    let name = change_functions(cx, |cx, machine, functions| {
        let (name, _) = first_line::of_library(text).map_err(Failure::new)?;
        if options.is_empty() && functions.has(&name) {
            return Err(Failure::new(format!("ERR Library '{name}' already exists")));
        }
        let library = library_of(cx, machine, arguments, text, true)?;
        cx.keys.change_libraries();
        add(functions, library)?;
        kept::keep(cx.keys.writes(), &name, text);
        Ok(name)
    })?;
    cx.out.bulk(name);
    Ok(())
}

fn delete(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    change_functions(cx, |cx, _, functions| {
        cx.keys.change_libraries();
        let name = String::from_utf8_lossy(arguments.at(2)).into_owned();
        if !functions.remove(&name) {
            return Err(Failure::text("ERR Library not found"));
        }
        kept::remove(cx.keys.writes(), &name);
        Ok(())
    })?;
    cx.out.ok();
    Ok(())
}

fn flush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() > 3 {
        return Err(unknown_form(arguments));
    }
    if arguments.len() == 3 && !arguments.is(2, "SYNC") && !arguments.is(2, "ASYNC") {
        return Err(Failure::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change_functions(cx, |cx, _, functions| {
        change(cx, functions, Functions::default());
        Ok(())
    })?;
    cx.out.ok();
    Ok(())
}

/// Replaces the existing libraries, also in the store.
fn change(cx: &mut Context<'_, '_>, functions: &mut Functions, now: Functions) {
    let texts = |functions: &Functions| -> BTreeMap<String, bytes::Bytes> {
        functions.libraries().map(|library| (library.name.clone(), library.text.clone())).collect()
    };
    let (former, texts) = (texts(functions), texts(&now));
    cx.keys.change_libraries();
    let writes = cx.keys.writes();
    former.keys().filter(|name| !texts.contains_key(*name)).for_each(|name| kept::remove(writes, name));
    texts
        .iter()
        .filter(|(name, text)| former.get(*name) != Some(*text))
        .for_each(|(name, text)| kept::keep(writes, name, text));
    *functions = now;
}

fn dump(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let mut bytes = Vec::new();
    with_functions(cx, |cx, _, functions| {
        for library in functions.libraries() {
            cx.make_room(bytes.len() + library.text.len())?;
            bytes.push(LIBRARY);
            reader::put_string(&mut bytes, &library.text);
        }
        Ok(())
    })?;
    cx.out.bulk(payload::seal(bytes));
    Ok(())
}

fn restore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() > 4 {
        return Err(unknown_form(arguments));
    }
    let (flushes, replaces) = (arguments.is(3, "FLUSH"), arguments.is(3, "REPLACE"));
    if arguments.len() == 4 && !flushes && !replaces && !arguments.is(3, "APPEND") {
        return Err(Failure::text("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."));
    }
    let bytes = payload::open(arguments.at(2));
    let mut reader = reader::Reader::new(bytes.ok_or(Failure::text("ERR DUMP payload version or checksum are wrong"))?);
    change_functions(cx, |cx, machine, functions| {
        let mut now = if flushes { Functions::default() } else { functions.clone() };
        let mut names = Vec::new();
        while !reader.0.is_empty() {
            if reader.byte()? != LIBRARY {
                return Err(Failure::text("ERR given type is not a function"));
            }
            let text = reader.string().map_err(|_| Failure::text("ERR failed loading functions payload"))?;
            let library = library_of(cx, machine, arguments, &text, true)?;
            if names.contains(&library.name) || (!replaces && now.has(&library.name)) {
                return Err(Failure::new(format!("ERR Library {} already exists", library.name)));
            }
            names.push(library.name.clone());
            add(&mut now, library)?;
        }
        change(cx, functions, now);
        Ok(())
    })?;
    cx.out.ok();
    Ok(())
}

fn list(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut words, mut wanted, mut with_code) = (arguments.words(2), None, false);
    while let Some(word) = words.word() {
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if wanted.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            wanted = Some(words.word().ok_or(Failure::text("ERR library name argument was not given"))?);
        } else {
            return Err(Failure::new(format!("ERR Unknown argument {}", String::from_utf8_lossy(word))));
        }
    }
    let is_wanted =
        |library: &&Library| wanted.is_none_or(|wanted| pattern::matches_any_case(wanted, library.name.as_bytes()));
    with_functions(cx, |cx, _, functions| {
        let found: Vec<&Library> = functions.libraries().filter(is_wanted).collect();
        cx.out.array(found.len());
        for library in found {
            cx.out.map(3 + usize::from(with_code));
            cx.out.bulk("library_name");
            cx.out.bulk(&library.name);
            cx.out.bulk("engine");
            cx.out.bulk("LUA");
            cx.out.bulk("functions");
            cx.out.array(library.functions.len());
            for function in library.functions.values() {
                cx.out.map(3);
                cx.out.bulk("name");
                cx.out.bulk(&function.name);
                cx.out.bulk("description");
                cx.out.bulk_or_null(function.description.as_ref());
                cx.out.bulk("flags");
                let flags = function.flags.names();
                cx.out.set(flags.len());
                flags.iter().for_each(|flag| cx.out.simple(flag));
            }
            if with_code {
                cx.out.bulk("library_code");
                cx.out.bulk(&library.text);
            }
        }
        Ok(())
    })
}

fn kill(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    run::kill(cx, &[Kind::Function, Kind::Library])
}

fn statistics(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let running = cx.shared.scripts.progress.running();
    if let Some((running, _)) = running.as_ref().filter(|(running, _)| running.kind == Kind::Script) {
        return Err(Failure::text(running.kind.busy()));
    }
    // If another thread holds the machine, it has read the libraries. Otherwise the machine also has those that are not
    // in the store yet: only a run that has everything locked makes it read them again, when the run has failed.
    if let Some(held) = cx.shared.scripts.try_machine() {
        with_held(cx, held, |cx, machine| with_functions_of(cx, machine, |_, _, _| Ok(())))?;
    }
    let (libraries, functions) = cx.shared.scripts.counts();
    cx.out.map(2);
    cx.out.bulk("running_script");
    match running {
        None => cx.out.null(),
        Some((running, took_ns)) => {
            cx.out.map(3);
            cx.out.bulk("name");
            cx.out.bulk(&running.name);
            cx.out.bulk("command");
            cx.out.array(running.request.len());
            running.request.iter().for_each(|word| cx.out.bulk(word));
            cx.out.bulk("duration_ms");
            cx.out.count(took_ns / 1_000_000);
        }
    }
    cx.out.bulk("engines");
    cx.out.map(1);
    cx.out.bulk("LUA");
    cx.out.map(2);
    cx.out.bulk("libraries_count");
    cx.out.count(libraries);
    cx.out.bulk("functions_count");
    cx.out.count(functions);
    Ok(())
}

fn call(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    call_function(cx, arguments, false)
}

fn call_read_only(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    call_function(cx, arguments, true)
}

fn call_function(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, is_read_only: bool) -> Outcome {
    with_functions(cx, |cx, machine, functions| {
        let (library, function) = functions.find(arguments.at(1)).ok_or(Failure::text("ERR Function not found"))?;
        let count = number::integer(arguments.at(2));
        let parts = parts(arguments, count.ok_or(Failure::text("ERR Bad number of keys provided"))?)?;
        let callee = Callee::Function(function.clone(), library.callbacks.clone());
        run::carry_out(cx, machine, &callee, arguments, parts, is_read_only)
    })
}
