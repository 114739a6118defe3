//! Commands about groups and consumers.

use super::basic::new_stream;
use super::groups::Open;
use super::ids;
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{DENYOOM, FAST, LOADING, STALE, WRITE};
use crate::commands::command::{Command, Context, Family, unknown_form};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::StreamId;
use crate::text::shown;

const FAMILY: Family = Family::Stream;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "xack", -4, WRITE | FAST, xack).keys(1, 1, 1).doc("5.0.0", "Acknowledges entries."),
    Command::new(FAMILY, "xgroup", -2, 0, help).doc("5.0.0", "A container for consumer groups commands.").subcommands(
        &[
            Command::new(FAMILY, "xgroup|create", -5, WRITE | DENYOOM, create)
                .keys(2, 2, 1)
                .doc("5.0.0", "Adds a group."),
            Command::new(FAMILY, "xgroup|createconsumer", 5, WRITE | DENYOOM, create_consumer)
                .keys(2, 2, 1)
                .doc("6.2.0", "Adds a consumer."),
            Command::new(FAMILY, "xgroup|delconsumer", 5, WRITE, delete_consumer)
                .keys(2, 2, 1)
                .doc("5.0.0", "Removes a consumer."),
            Command::new(FAMILY, "xgroup|destroy", 4, WRITE, destroy).keys(2, 2, 1).doc("5.0.0", "Removes a group."),
            Command::new(FAMILY, "xgroup|help", 2, LOADING | STALE, help).doc("5.0.0", "Returns help."),
            Command::new(FAMILY, "xgroup|setid", -5, WRITE, set_id)
                .keys(2, 2, 1)
                .doc("5.0.0", "Sets what a group has read."),
        ],
    ),
];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
        "    Create a group that has read up to an id.",
        "CREATECONSUMER <key> <group> <consumer>",
        "    Create a consumer of a group.",
        "DELCONSUMER <key> <group> <consumer>",
        "    Remove a consumer, and what is pending for it.",
        "DESTROY <key> <group>",
        "    Remove a group.",
        "SETID <key> <group> <id|$> [ENTRIESREAD <count>]",
        "    Say what a group has read.",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

/// The options of `CREATE` and `SETID`.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    read: Option<u64>,
}

fn options(arguments: Arguments<'_>, may_make: bool) -> Outcome<Options> {
    let (mut words, mut options) = (arguments.words(5), Options::default());
    while !words.is_done() {
        if may_make && words.take("MKSTREAM") {
            options.makes_stream = true;
        } else if let Some(text) = words.take_with_value("ENTRIESREAD") {
            options.read = match integer(text)? {
                -1 => None,
                read => Some(
                    u64::try_from(read)
                        .map_err(|_| Failure::text("ERR value for ENTRIESREAD must be positive or -1"))?,
                ),
            };
        } else {
            return Err(unknown_form(arguments));
        }
    }
    Ok(options)
}

/// Returns the stream, which must exist.
fn stream(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome<Stream> {
    cx.keys.stream(cx.space(), arguments.at(2))?.ok_or(Failure::text(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
         create an empty stream automatically.",
    ))
}

/// Returns the stream and the group, which must exist.
fn group(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome<(Stream, Open)> {
    let stream = stream(cx, arguments)?;
    match Open::find(cx, &stream, arguments.at(3))? {
        Some(group) => Ok((stream, group)),
        None => Err(no_group(arguments.at(2), arguments.at(3))),
    }
}

/// The error for a missing group of an existing stream.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (shown::short(key, 128), shown::short(group, 128));
    Failure::new(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

fn create(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let options = options(arguments, true)?;
    let (key, name) = (arguments.at(2), arguments.at(3));
    crate::commands::collections::check_element(&cx.shared.store, name)?;
    let found = match options.makes_stream {
        true => cx.keys.stream(cx.space(), key)?,
        false => Some(stream(cx, arguments)?),
    };
    let last = match arguments.at(4) {
        b"$" => found.map_or(StreamId::LEAST, |stream| stream.last),
        text => ids::exact(text, 0)?,
    };
    let stream = match found {
        Some(stream) => stream,
        None => {
            let stream = new_stream(cx)?;
            cx.keys.set_stream(cx.space(), key, stream)?;
            stream
        }
    };
    if Open::find(cx, &stream, name)?.is_some() {
        return Err(Failure::text("BUSYGROUP Consumer Group name already exists"));
    }
    Open::new(cx, &stream, name, last, options.read)?.save(cx);
    cx.notify(Class::STREAM, "xgroup-create", key);
    cx.out.ok();
    Ok(())
}

fn set_id(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let options = options(arguments, false)?;
    let (stream, mut group) = group(cx, arguments)?;
    group.now.last = match arguments.at(4) {
        b"$" => stream.last,
        text => ids::any(text, 0)?,
    };
    group.now.read = options.read;
    group.save(cx);
    cx.notify(Class::STREAM, "xgroup-setid", arguments.at(2));
    cx.out.ok();
    Ok(())
}

fn destroy(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let stream = stream(cx, arguments)?;
    let group = Open::find(cx, &stream, arguments.at(3))?;
    cx.out.integer(i64::from(group.is_some()));
    if let Some(group) = group {
        group.destroy(cx)?;
        // Clients that wait for the group must learn of its end.
        let space = cx.space();
        cx.keys.touch(space, arguments.at(2));
        cx.notify(Class::STREAM, "xgroup-destroy", arguments.at(2));
    }
    Ok(())
}

fn create_consumer(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (_, group) = group(cx, arguments)?;
    let is_new = group.add_consumer(cx, arguments.at(2), arguments.at(4))?;
    cx.out.integer(i64::from(is_new));
    Ok(())
}

fn delete_consumer(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (_, mut group) = group(cx, arguments)?;
    let pending = group.remove_consumer(cx, arguments.at(4))?;
    group.save(cx);
    if pending.is_some() {
        cx.notify(Class::STREAM, "xgroup-delconsumer", arguments.at(2));
    }
    cx.out.count(pending.unwrap_or(0));
    Ok(())
}

fn xack(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let group = match cx.keys.stream(cx.space(), arguments.at(1))? {
        Some(stream) => Open::find(cx, &stream, arguments.at(2))?,
        None => None,
    };
    let mut acknowledged = 0;
    if let Some(mut group) = group {
        let ids = arguments.from(3).iter().map(|text| ids::exact(text, 0)).collect::<Outcome<Vec<_>>>()?;
        group.fetch_pending(cx, ids.iter().copied())?;
        for id in ids {
            if let Some(pending) = group.pending(cx, id)? {
                group.release(cx, id, &pending)?;
                acknowledged += 1;
            }
        }
        group.save(cx);
    }
    cx.out.integer(acknowledged);
    Ok(())
}
