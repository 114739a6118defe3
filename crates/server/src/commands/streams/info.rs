//! `XINFO`: what is known about a stream.

use super::claims;
use super::counters;
use super::entries;
use super::group_commands::no_group;
use super::groups::{self, Open};
use super::trimming::NODE_ENTRIES;
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{LOADING, READONLY, STALE};
use crate::commands::command::{Command, Context, Family, unknown_form};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{Consumer, StreamId};
use crate::keyspace::writes::Direction;
use bytes::Bytes;

const FAMILY: Family = Family::Stream;
/// Entries that `XINFO STREAM FULL` shows, unless the client says otherwise.
const SHOWN: u64 = 10;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::new(FAMILY, "xinfo", -2, 0, help)
    .doc("5.0.0", "A container for stream introspection commands.")
    .subcommands(&[
        Command::new(FAMILY, "xinfo|consumers", 4, READONLY, consumers)
            .keys(2, 2, 1)
            .doc("5.0.0", "Returns the consumers of a group."),
        Command::new(FAMILY, "xinfo|groups", 3, READONLY, all_groups)
            .keys(2, 2, 1)
            .doc("5.0.0", "Returns the groups of a stream."),
        Command::new(FAMILY, "xinfo|help", 2, LOADING | STALE, help).doc("5.0.0", "Returns help."),
        Command::new(FAMILY, "xinfo|stream", -3, READONLY, stream_info)
            .keys(2, 2, 1)
            .doc("5.0.0", "Returns what is known about a stream."),
    ])];

fn help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]]",
        "    Show information about the stream.",
        "HELP",
        "    Print this help.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

/// Returns the stream, which must exist.
fn stream(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome<Stream> {
    cx.keys.stream(cx.space(), arguments.at(2))?.ok_or(Failure::NO_SUCH_KEY)
}

fn consumers(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let stream = stream(cx, arguments)?;
    let Some(group) = Open::find(cx, &stream, arguments.at(3))? else {
        return Err(no_group(arguments.at(2), arguments.at(3)));
    };
    let (consumers, now_ms) = (named_consumers(cx, &group)?, cx.keys.now_ms());
    cx.out.array(consumers.len());
    for (name, consumer) in consumers {
        cx.out.map(3);
        cx.out.bulk("name");
        cx.out.bulk(name);
        count(cx, "pending", consumer.pending);
        count(cx, "idle", now_ms.saturating_sub(consumer.seen_ms));
    }
    Ok(())
}

/// All consumers of a group, which are replied with their names.
fn named_consumers(cx: &mut Context<'_, '_>, group: &Open) -> Outcome<Vec<(Bytes, Consumer)>> {
    group.consumers(cx, |name, _| Some(name.len()))
}

fn count(cx: &mut Context<'_, '_>, name: &str, count: u64) {
    cx.out.bulk(name);
    cx.out.count(count);
}

fn id(cx: &mut Context<'_, '_>, name: &str, id: StreamId) {
    cx.out.bulk(name);
    entries::reply_id(cx, id);
}

fn number_or_null(cx: &mut Context<'_, '_>, name: &str, number: Option<i64>) {
    cx.out.bulk(name);
    match number {
        Some(number) => cx.out.integer(number),
        None => cx.out.null(),
    }
}

/// Replies with what a group has read, and what not.
fn progress(cx: &mut Context<'_, '_>, stream: &Stream, first: StreamId, group: &Open) {
    number_or_null(cx, "entries-read", group.now.read.map(|read| read as i64));
    number_or_null(cx, "lag", counters::lag(stream, first, &group.now));
}

fn all_groups(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let stream = stream(cx, arguments)?;
    let first = entries::edge_id(cx, &stream, Direction::Forward)?;
    let groups = groups::all(cx, &stream, <[u8]>::len)?;
    cx.out.array(groups.len());
    for (name, group) in groups {
        let mut consumers = 0;
        group.each_consumer(cx, |_, _| {
            consumers += 1;
            Ok(())
        })?;
        cx.out.map(6);
        cx.out.bulk("name");
        cx.out.bulk(name);
        count(cx, "consumers", consumers);
        count(cx, "pending", group.now.pending);
        id(cx, "last-delivered-id", group.now.last);
        progress(cx, &stream, first, &group);
    }
    Ok(())
}

/// Returns `None` for the short form; for the full form, the number of entries to show.
fn form(arguments: Arguments<'_>) -> Outcome<Option<u64>> {
    match arguments.len() {
        3 => Ok(None),
        4 if arguments.is(3, "FULL") => Ok(Some(SHOWN)),
        6 if arguments.is(3, "FULL") && arguments.is(4, "COUNT") => Ok(Some(match integer(arguments.at(5))? {
            0 => u64::MAX,
            count => u64::try_from(count).unwrap_or(SHOWN),
        })),
        _ => Err(unknown_form(arguments)),
    }
}

fn stream_info(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let stream = stream(cx, arguments)?;
    let shown = form(arguments)?;
    let first = entries::edge(cx, &stream, Direction::Forward)?;
    let first_id = first.as_ref().map_or(StreamId::LEAST, |(id, _)| *id);
    cx.out.map(if shown.is_some() { 9 } else { 10 });
    count(cx, "length", stream.entries);
    // As many as Redis would have, if no entry was deleted.
    let nodes = stream.entries.div_ceil(NODE_ENTRIES);
    count(cx, "radix-tree-keys", nodes);
    count(cx, "radix-tree-nodes", nodes + 1);
    id(cx, "last-generated-id", stream.last);
    id(cx, "max-deleted-entry-id", stream.deleted);
    count(cx, "entries-added", stream.added);
    id(cx, "recorded-first-entry-id", first_id);
    let Some(shown) = shown else {
        let groups = groups::count(cx, &stream)?;
        count(cx, "groups", groups);
        let last = entries::edge(cx, &stream, Direction::Backward)?;
        for (name, entry) in [("first-entry", first), ("last-entry", last)] {
            cx.out.bulk(name);
            match entry {
                Some(entry) => entries::reply(cx, entry)?,
                None => cx.out.null(),
            }
        }
        return Ok(());
    };
    cx.out.bulk("entries");
    let found = entries::range(cx, &stream, (StreamId::LEAST, StreamId::MOST), Direction::Forward, shown)?;
    entries::reply_all(cx, found)?;
    let groups = groups::all(cx, &stream, <[u8]>::len)?;
    cx.out.bulk("groups");
    cx.out.array(groups.len());
    for (name, group) in groups {
        cx.out.map(7);
        cx.out.bulk("name");
        cx.out.bulk(name);
        id(cx, "last-delivered-id", group.now.last);
        progress(cx, &stream, first_id, &group);
        count(cx, "pel-count", group.now.pending);
        full_pending(cx, &group, shown)?;
        let consumers = named_consumers(cx, &group)?;
        cx.out.bulk("consumers");
        cx.out.array(consumers.len());
        for (name, consumer) in consumers {
            full_consumer(cx, &group, &name, &consumer, shown)?;
        }
    }
    Ok(())
}

fn full_pending(cx: &mut Context<'_, '_>, group: &Open, shown: u64) -> Outcome {
    cx.out.bulk("pending");
    claims::list(cx, group, None, (StreamId::LEAST, StreamId::MOST), shown, 0, |out, id, pending| {
        out.array(4);
        out.bulk(id.to_string());
        out.bulk(&pending.name);
        out.count(pending.at_ms);
        out.integer(pending.deliveries as i64);
    })
}

fn full_consumer(cx: &mut Context<'_, '_>, group: &Open, name: &Bytes, consumer: &Consumer, shown: u64) -> Outcome {
    cx.out.map(4);
    cx.out.bulk("name");
    cx.out.bulk(name);
    count(cx, "seen-time", consumer.seen_ms);
    count(cx, "pel-count", consumer.pending);
    cx.out.bulk("pending");
    claims::list(cx, group, Some(consumer), (StreamId::LEAST, StreamId::MOST), shown, 0, |out, id, pending| {
        out.array(3);
        out.bulk(id.to_string());
        out.count(pending.at_ms);
        out.integer(pending.deliveries as i64);
    })
}
