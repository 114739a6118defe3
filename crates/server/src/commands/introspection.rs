//! `COMMAND`: what the server can do, told from the table of commands.

use crate::acl::catalogue::CATEGORIES;
use crate::commands::arguments::Arguments;
use crate::commands::categories::categories;
use crate::commands::command::flags::{LOADING, NAMES, PUBSUB, STALE, WRITE};
use crate::commands::command::{Command, Context, Family, Keys, Run};
use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::Reply;
use crate::text::pattern;

const SEEN: u32 = LOADING | STALE;
const FAMILY: Family = Family::Server;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::new(FAMILY, "command", -1, SEEN, all)
    .doc("2.8.13", "Returns detailed information about all commands.")
    .subcommands(&[
        Command::new(FAMILY, "command|count", 2, SEEN, count).doc("2.8.13", "Returns the number of commands."),
        Command::new(FAMILY, "command|docs", -2, SEEN, docs).doc("7.0.0", "Returns documentation of commands."),
        Command::new(FAMILY, "command|getkeys", -4, SEEN, get_keys).doc("2.8.13", "Finds the keys of a request."),
        Command::new(FAMILY, "command|getkeysandflags", -4, SEEN, get_keys_and_flags)
            .doc("7.0.0", "Finds the keys of a request, and what it does with them."),
        Command::new(FAMILY, "command|help", 2, SEEN, help).doc("5.0.0", "Returns help."),
        Command::new(FAMILY, "command|info", -2, SEEN, info).doc("2.8.13", "Returns information about commands."),
        Command::new(FAMILY, "command|list", -2, SEEN, list).doc("7.0.0", "Returns names of commands."),
    ])];

fn all(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    let commands = cx.registry.all();
    cx.out.array(commands.len());
    commands.iter().for_each(|command| describe(command, cx.out));
    Ok(())
}

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "COUNT, DOCS [<name> ...], GETKEYS <request>, GETKEYSANDFLAGS <request>, INFO [<name> ...], LIST [FILTERBY (ACLCAT|PATTERN|MODULE) <value>]",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

fn count(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    cx.out.count(cx.registry.all().len());
    Ok(())
}

fn info(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() == 2 {
        return all(cx, arguments);
    }
    cx.out.array(arguments.len() - 2);
    for name in arguments.from(2) {
        match cx.registry.find(name) {
            Some(command) => describe(command, cx.out),
            None => cx.out.null(),
        }
    }
    Ok(())
}

/// First key, last key and step of commands whose keys follow from other arguments are those of what comes before.
const fn legacy_keys(keys: Keys) -> (i64, i64, i64) {
    match keys {
        Keys::None | Keys::Counted(_, false) | Keys::Streams(_) => (0, 0, 0),
        Keys::Range(first, last, step) => (first, last, step),
        Keys::Counted(_, true) | Keys::After(..) => (1, 1, 1),
    }
}

fn describe(command: &Command, out: &mut Reply) {
    out.array(10);
    out.bulk(command.name);
    out.integer(command.arity);
    let flags: Vec<_> = NAMES.iter().filter(|(flag, _)| command.has(*flag)).collect();
    out.set(flags.len());
    flags.iter().for_each(|(_, name)| out.simple(name));
    let (first, last, step) = legacy_keys(command.keys);
    [first, last, step].into_iter().for_each(|place| out.integer(place));
    let mut categories = categories(command);
    categories.sort_by_key(|category| CATEGORIES.iter().position(|other| other == category));
    out.set(categories.len());
    categories.iter().for_each(|category| out.simple(&format!("@{category}")));
    // There are no tips.
    out.set(0);
    key_specifications(command, out);
    match command.subcommands.len() {
        // Redis has a set of none here.
        0 => out.set(0),
        count => out.array(count),
    }
    command.subcommands.iter().for_each(|subcommand| describe(subcommand, out));
}

/// Where the search for keys begins.
enum Begin {
    /// At a place.
    At(i64),
    /// At a word, which is looked for from a place on.
    Word(&'static str, i64),
}

/// What it does with its keys.
fn access(command: &Command) -> &'static str {
    if command.has(WRITE) { "RW" } else { "RO" }
}

fn key_specifications(command: &Command, out: &mut Reply) {
    let access = access(command);
    let specification = |out: &mut Reply, begin: Begin, find: &[(&str, i64)], kind: &str| {
        out.map(3);
        out.bulk("flags");
        out.set(1);
        out.simple(access);
        out.bulk("begin_search");
        out.map(2);
        out.bulk("type");
        match begin {
            Begin::At(place) => {
                out.bulk("index");
                out.bulk("spec");
                out.map(1);
                out.bulk("index");
                out.integer(place);
            }
            Begin::Word(word, from) => {
                out.bulk("keyword");
                out.bulk("spec");
                out.map(2);
                out.bulk("keyword");
                out.bulk(word);
                out.bulk("startfrom");
                out.integer(from);
            }
        }
        out.bulk("find_keys");
        out.map(2);
        out.bulk("type");
        out.bulk(kind);
        out.bulk("spec");
        out.map(find.len());
        for (name, value) in find {
            out.bulk(name);
            out.integer(*value);
        }
    };
    let range = |last: i64, step: i64, limit: i64| [("lastkey", last), ("keystep", step), ("limit", limit)];
    let one = range(0, 1, 0);
    match command.keys {
        Keys::None => out.set(0),
        Keys::Range(first, last, step) => {
            out.set(1);
            let last = if last < 0 { last } else { last - first };
            specification(out, Begin::At(first), &range(last, step, 0), "range");
        }
        Keys::Counted(place, has_destination) => {
            out.set(1 + usize::from(has_destination));
            if has_destination {
                specification(out, Begin::At(1), &one, "range");
            }
            let find = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            specification(out, Begin::At(place as i64), &find, "keynum");
        }
        Keys::After(words, from) => {
            out.set(1 + words.len());
            specification(out, Begin::At(1), &one, "range");
            words.iter().for_each(|word| specification(out, Begin::Word(word, from as i64), &one, "range"));
        }
        Keys::Streams(from) => {
            out.set(1);
            specification(out, Begin::Word("STREAMS", from as i64), &range(-1, 1, 2), "range");
        }
    }
}

fn docs(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let commands: Vec<&Command> = if arguments.len() == 2 {
        cx.registry.all().to_vec()
    } else {
        arguments.from(2).iter().filter_map(|name| cx.registry.find(name)).collect()
    };
    cx.out.map(commands.len());
    commands.iter().for_each(|command| document(command, cx.out));
    Ok(())
}

fn document(command: &Command, out: &mut Reply) {
    out.bulk(command.name);
    out.map(3 + usize::from(!command.subcommands.is_empty()));
    for (name, value) in [("summary", command.summary), ("since", command.since), ("group", command.family.name())] {
        out.bulk(name);
        out.bulk(value);
    }
    if !command.subcommands.is_empty() {
        out.bulk("subcommands");
        out.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| document(subcommand, out));
    }
}

fn list(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut words = arguments.words(2);
    let mut wanted: Box<dyn Fn(&Command) -> bool> = Box::new(|_| true);
    if words.take("FILTERBY") {
        if let Some(given) = words.take_with_value("PATTERN") {
            wanted = Box::new(move |command| pattern::matches_any_case(given, command.name.as_bytes()));
        } else if let Some(given) = words.take_with_value("ACLCAT") {
            wanted = Box::new(move |command| {
                categories(command).iter().any(|category| category.as_bytes().eq_ignore_ascii_case(given))
            });
        } else if words.take_with_value("MODULE").is_some() {
            wanted = Box::new(|_| false);
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    if !words.is_done() {
        return Err(Failure::SYNTAX);
    }
    let with_subcommands = cx.registry.all().iter().flat_map(|command| {
        std::iter::once(*command).chain(command.subcommands.iter().filter(|_| arguments.len() > 2))
    });
    let names: Vec<_> = with_subcommands.filter(|command| wanted(command)).map(|command| command.name).collect();
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name));
    Ok(())
}

fn get_keys(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let request = Arguments::new(arguments.from(2));
    let (_, places) = keys_of(cx, request)?;
    cx.out.array(places.len());
    places.iter().for_each(|&place| cx.out.bulk(request.at(place)));
    Ok(())
}

fn get_keys_and_flags(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let request = Arguments::new(arguments.from(2));
    let (command, places) = keys_of(cx, request)?;
    cx.out.array(places.len());
    for place in places {
        cx.out.array(2);
        cx.out.bulk(request.at(place));
        cx.out.set(1);
        cx.out.simple(access(command));
    }
    Ok(())
}

/// The command of a request, and where its keys are.
fn keys_of(cx: &Context<'_, '_>, request: Arguments<'_>) -> Outcome<(&'static Command, Vec<usize>)> {
    let Ok(command) = cx.registry.resolve(request) else {
        return Err(match cx.registry.look_up(request) {
            Some(_) => Failure::text("ERR Invalid number of arguments specified for command"),
            None => Failure::text("ERR Invalid command specified"),
        });
    };
    // Channels are no keys.
    if command.keys == Keys::None || command.has(PUBSUB) {
        return Err(Failure::text("ERR The command has no key arguments"));
    }
    let places = command.key_places(request);
    // A script need not have keys, and what it has must not make sense.
    if places.is_empty() && !matches!(command.run, Run::Script(_)) {
        return Err(Failure::text("ERR Invalid arguments specified for command"));
    }
    Ok((command, places))
}
