//! `COMMAND`: what the server can do, told from the table of commands.

use crate::acl::catalogue::CATEGORIES;
use crate::commands::arguments::Arguments;
use crate::commands::categories::categories;
use crate::commands::command::flags::{LOADING, NAMES, NO_MANDATORY_KEYS, PUBSUB, STALE};
use crate::commands::command::{Command, Context, Family, Keys};
use crate::commands::documentation::{self, Argument, Begin, Find, KeySpecification};
use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::Reply;
use crate::text::pattern;

const SEEN: u32 = LOADING | STALE;
const FAMILY: Family = Family::Server;
/// The last flag of a key, when the command's other arguments decide what it does with the key.
const VARIES: &str = "variable_flags";
/// The last flag of a key specification that does not find all keys. It says nothing about a key itself.
const INCOMPLETE: &str = "incomplete";

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

/// First key, last key and step. If a command's keys follow from other arguments, they describe the keys before those.
const fn legacy_keys(keys: Keys) -> (i64, i64, i64) {
    match keys {
        Keys::None | Keys::Counted(_, false) | Keys::Streams(_) => (0, 0, 0),
        Keys::Range(first, last, step) => (first, last, step),
        Keys::Counted(_, true) | Keys::After(..) => (1, 1, 1),
        Keys::Migrated => (3, 3, 1),
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
    let told = documentation::of(command.name);
    let (tips, keys) = told.map_or((&[][..], &[][..]), |told| (&told.tips[..], &told.keys[..]));
    out.set(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip));
    key_specifications(keys, out);
    match command.subcommands.len() {
        // Redis replies with an empty set here.
        0 => out.set(0),
        count => out.array(count),
    }
    command.subcommands.iter().for_each(|subcommand| describe(subcommand, out));
}

fn key_specifications(specifications: &[KeySpecification], out: &mut Reply) {
    out.set(specifications.len());
    for KeySpecification { begin, find, flags, note } in specifications {
        out.map(3 + usize::from(note.is_some()));
        say(out, &[("notes", *note)]);
        out.bulk("flags");
        out.set(flags.len());
        flags.iter().for_each(|flag| out.simple(flag));
        out.bulk("begin_search");
        match *begin {
            Begin::At(place) => search("index", None, &[("index", place as i64)], out),
            Begin::Behind(word, from) => search("keyword", Some(word), &[("startfrom", from)], out),
            Begin::Unknown => search("unknown", None, &[], out),
        }
        out.bulk("find_keys");
        match *find {
            _ if *begin == Begin::Unknown => search("unknown", None, &[], out),
            Find::Counted => search("keynum", None, &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)], out),
            Find::Range { last, step, limit } => {
                let numbers = [("lastkey", last), ("keystep", step as i64), ("limit", limit as i64)];
                search("range", None, &numbers, out);
            }
        }
    }
}

/// Replies with how keys are searched for: the method, its word, and its numbers.
fn search(kind: &str, word: Option<&str>, numbers: &[(&str, i64)], out: &mut Reply) {
    out.map(2);
    say(out, &[("type", Some(kind))]);
    out.bulk("spec");
    out.map(numbers.len() + usize::from(word.is_some()));
    say(out, &[("keyword", word)]);
    for (name, number) in numbers {
        out.bulk(name);
        out.integer(*number);
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
    let told = documentation::of(command.name);
    let is_internal = told.is_some_and(|told| told.is_internal);
    let deprecated = told.and_then(|told| told.deprecated);
    let texts = [
        ("summary", Some(command.summary)),
        ("since", Some(command.since)),
        ("group", Some(command.family.name())),
        ("complexity", told.map(|told| told.complexity)),
    ];
    let doc_flags: Vec<&str> = deprecated.iter().map(|_| "deprecated").chain(is_internal.then_some("syscmd")).collect();
    let instead =
        [("deprecated_since", deprecated.map(|(since, _)| since)), ("replaced_by", deprecated.map(|(_, by)| by))];
    let arguments = told.map_or(&[][..], |told| &told.arguments[..]);
    let history = told.map_or(&[][..], |told| &told.history[..]);
    let parts = [!doc_flags.is_empty(), !history.is_empty(), !arguments.is_empty(), !command.subcommands.is_empty()];
    let texts_in = |texts: &[(&str, Option<&str>)]| texts.iter().filter(|(_, text)| text.is_some()).count();
    out.map(texts_in(&texts) + texts_in(&instead) + parts.iter().filter(|is_there| **is_there).count());
    say(out, &texts);
    if !doc_flags.is_empty() {
        out.bulk("doc_flags");
        out.set(doc_flags.len());
        doc_flags.iter().for_each(|flag| out.simple(flag));
    }
    say(out, &instead);
    if !history.is_empty() {
        out.bulk("history");
        out.set(history.len());
        for (version, change) in history {
            out.array(2);
            out.bulk(version);
            out.bulk(change);
        }
    }
    if !arguments.is_empty() {
        out.bulk("arguments");
        list_arguments(arguments, out);
    }
    if !command.subcommands.is_empty() {
        out.bulk("subcommands");
        out.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| document(subcommand, out));
    }
}

/// Replies with names and texts, for the texts that exist.
fn say(out: &mut Reply, texts: &[(&str, Option<&str>)]) {
    for (name, text) in texts.iter().filter_map(|(name, text)| text.map(|text| (name, text))) {
        out.bulk(name);
        out.bulk(text);
    }
}

fn list_arguments(arguments: &[Argument], out: &mut Reply) {
    out.array(arguments.len());
    for argument in arguments {
        let texts =
            [("token", argument.token), ("since", argument.since), ("deprecated_since", argument.deprecated_since)];
        let flags: Vec<&str> = [
            (argument.is_optional, "optional"),
            (argument.is_repeated, "multiple"),
            (argument.repeats_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
        .collect();
        let more = [argument.key_specification.is_some(), !flags.is_empty(), !argument.arguments.is_empty()];
        let texts_in = texts.iter().filter(|(_, text)| text.is_some()).count();
        out.map(2 + texts_in + more.iter().filter(|is_there| **is_there).count());
        say(out, &[("name", Some(&argument.name)), ("type", Some(argument.kind))]);
        if let Some(number) = argument.key_specification {
            out.bulk("key_spec_index");
            out.integer(number);
        }
        say(out, &texts);
        if !flags.is_empty() {
            out.bulk("flags");
            out.set(flags.len());
            flags.iter().for_each(|flag| out.simple(flag));
        }
        if !argument.arguments.is_empty() {
            out.bulk("arguments");
            list_arguments(&argument.arguments, out);
        }
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
    let specifications = documentation::of(command.name).map_or(&[][..], |told| &told.keys[..]);
    cx.out.array(places.len());
    for place in places {
        let finds = |specification: &&KeySpecification| specification.places(request).contains(&place);
        let is_anywhere = |specification: &&KeySpecification| specification.begin == Begin::Unknown;
        let found = specifications.iter().find(finds).or_else(|| specifications.iter().rfind(is_anywhere));
        let flags = found.map_or(&[][..], |found| flags_in(command, request, &found.flags));
        cx.out.array(2);
        cx.out.bulk(request.at(place));
        cx.out.set(flags.len());
        flags.iter().for_each(|flag| cx.out.simple(flag));
    }
    Ok(())
}

/// Returns what a request does with a key, given the flags of its command.
fn flags_in<'f>(command: &Command, request: Arguments<'_>, flags: &'f [&'static str]) -> &'f [&'static str] {
    let changes = || (2..request.len()).any(|place| request.is(place, "SET") || request.is(place, "INCRBY"));
    match flags.split_last() {
        Some((&VARIES, _)) if command.name == "set" && command.is_overwriting(request) => &["OW", "update"],
        Some((&VARIES, _)) if command.name == "bitfield" && !changes() => &["RO", "access"],
        Some((&(VARIES | INCOMPLETE), flags)) => flags,
        _ => flags,
    }
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
    // The keys of a script need not make sense.
    if places.is_empty() && !command.has(NO_MANDATORY_KEYS) {
        return Err(Failure::text("ERR Invalid arguments specified for command"));
    }
    Ok((command, places))
}
