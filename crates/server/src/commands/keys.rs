//! Keys of any type.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{DENYOOM, FAST, LOADING, READONLY, STALE, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Content, Header, Kind, Stream};
use crate::keyspace::layout::{self, Space};
use crate::keyspace::writes::Direction;
use crate::text::number;
use bytes::{BufMut, Bytes, BytesMut};

const FAMILY: Family = Family::Generic;
/// Redis shares each integer below this between all keys.
const SHARED_INTEGERS: i64 = 10_000;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "copy", -3, WRITE | DENYOOM, copy).keys(1, 2, 1).doc("6.2.0", "Copies a key."),
    Command::new(FAMILY, "del", -2, WRITE, del).keys(1, -1, 1).overwrites().doc("1.0.0", "Removes keys."),
    Command::new(FAMILY, "exists", -2, READONLY | FAST, exists).keys(1, -1, 1).doc("1.0.0", "Counts keys."),
    Command::new(FAMILY, "move", 3, WRITE | FAST, move_key)
        .keys(1, 1, 1)
        .doc("1.0.0", "Moves a key to another database."),
    Command::new(FAMILY, "object", -2, 0, object_help)
        .doc("2.2.3", "A container for object introspection commands.")
        .subcommands(&[
            Command::new(FAMILY, "object|encoding", 3, READONLY, object_encoding)
                .keys(2, 2, 1)
                .doc("2.2.3", "Returns how Redis would keep a value of this size."),
            Command::new(FAMILY, "object|freq", 3, READONLY, object_frequency)
                .keys(2, 2, 1)
                .doc("4.0.0", "Returns how often a key is used."),
            Command::new(FAMILY, "object|help", 2, LOADING | STALE, object_help).doc("6.2.0", "Returns help."),
            Command::new(FAMILY, "object|idletime", 3, READONLY, object_idle)
                .keys(2, 2, 1)
                .doc("2.2.3", "Returns how long a key was not used."),
            Command::new(FAMILY, "object|refcount", 3, READONLY, object_references)
                .keys(2, 2, 1)
                .doc("2.2.3", "Returns the number of references to a value."),
        ]),
    Command::new(FAMILY, "rename", 3, WRITE, rename).keys(1, 2, 1).doc("1.0.0", "Renames a key."),
    Command::new(FAMILY, "renamenx", 3, WRITE | FAST, renamenx)
        .keys(1, 2, 1)
        .doc("1.0.0", "Renames a key if the new name is free."),
    Command::new(FAMILY, "touch", -2, READONLY | FAST, exists).keys(1, -1, 1).doc("3.2.1", "Counts keys."),
    Command::new(FAMILY, "type", 2, READONLY | FAST, type_of).keys(1, 1, 1).doc("1.0.0", "Returns the type of a key."),
    Command::new(FAMILY, "unlink", -2, WRITE | FAST, del).keys(1, -1, 1).overwrites().doc("4.0.0", "Removes keys."),
];

fn del(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut count = 0;
    for key in arguments.from(1) {
        if cx.remove(key)? {
            cx.notify(Class::GENERIC, "del", key);
            count += 1;
        }
    }
    cx.out.integer(count);
    Ok(())
}

fn exists(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut count = 0;
    for key in arguments.from(1) {
        count += i64::from(cx.look_up(key)?.is_some());
    }
    cx.out.integer(count);
    Ok(())
}

fn type_of(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let name = cx.header(arguments.at(1))?.map_or("none", |header| header.kind().name());
    cx.out.simple(name);
    Ok(())
}

/// Renames a key; elements stay where they are. Returns false when `only_new` is set and the new name is taken.
fn rename_key(cx: &mut Context<'_, '_>, from: &[u8], to: &[u8], only_new: bool) -> Outcome<bool> {
    let space = cx.space();
    if cx.header(from)?.is_none() {
        return Err(Failure::NO_SUCH_KEY);
    }
    if from == to {
        return Ok(!only_new);
    }
    if only_new && cx.header(to)?.is_some() {
        return Ok(false);
    }
    if let Some(header) = cx.keys.detach(space, from)? {
        cx.remove(to)?;
        cx.keys.set_header(space, to, &header)?;
        cx.notify(Class::GENERIC, "rename_from", from);
        cx.notify(Class::GENERIC, "rename_to", to);
    }
    Ok(true)
}

fn rename(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    rename_key(cx, arguments.at(1), arguments.at(2), false)?;
    cx.out.ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_done = rename_key(cx, arguments.at(1), arguments.at(2), true)?;
    cx.out.integer(i64::from(is_done));
    Ok(())
}

/// Copies the elements of a collection to a new one and returns its header.
fn copied(cx: &mut Context<'_, '_>, from: Space, to: Space, header: &Header) -> Outcome<Header> {
    let Some(former) = header.id() else { return Ok(header.clone()) };
    cx.keys.reads().expect_steps(header.elements())?;
    let id = cx.keys.new_id()?;
    let (old, new) = (layout::elements(from, former), layout::elements(to, id));
    let mut elements = cx.keys.new_elements(to, id);
    cx.keys.reads().scan(&old, Direction::Forward, |key, value| {
        let rest = key.get(layout::ELEMENT_PREFIX_BYTES..).unwrap_or_default();
        let mut key = BytesMut::with_capacity(new.0.len() + rest.len());
        key.put_slice(&new.0);
        key.put_slice(rest);
        elements.add(key.freeze(), Bytes::copy_from_slice(value)).map(|()| true)
    })?;
    cx.keys.adopt(elements);
    let content = match &header.content {
        Content::Collection(kind, collection) => Content::Collection(*kind, Collection { id, ..*collection }),
        Content::Stream(stream) => Content::Stream(Stream { id, ..*stream }),
        Content::String(bytes) => Content::String(bytes.clone()),
    };
    Ok(Header { expires_ms: header.expires_ms, content })
}

fn copy(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (from, to) = (arguments.at(1), arguments.at(2));
    let (mut database, mut replaces) = (cx.session.database, false);
    let mut words = arguments.words(3);
    while !words.is_done() {
        if words.take("REPLACE") {
            replaces = true;
        } else if let Some(number) = words.take_with_value("DB") {
            database = cx.database(number)?;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let (source, target) = (cx.space(), cx.space_of(database));
    if source == target && from == to {
        return Err(Failure::text("ERR source and destination objects are the same"));
    }
    let header = cx.look_up(from)?;
    let is_free = replaces || cx.keys.header(target, to)?.is_none();
    let header = header.filter(|_| is_free);
    cx.out.integer(i64::from(header.is_some()));
    let Some(header) = header else { return Ok(()) };
    let header = copied(cx, source, target, &header)?;
    cx.keys.remove(target, to)?;
    cx.keys.set_header(target, to, &header)?;
    cx.keys.notify(Class::GENERIC, "copy_to", target, to);
    Ok(())
}

fn move_key(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(1);
    let target = cx.database(arguments.at(2))?;
    if target == cx.session.database {
        return Err(Failure::text("ERR source and destination objects are the same"));
    }
    let (source, target) = (cx.space(), cx.space_of(target));
    let header = cx.header(key)?;
    let is_free = cx.keys.header(target, key)?.is_none();
    let header = header.filter(|_| is_free);
    cx.out.integer(i64::from(header.is_some()));
    let Some(header) = header else { return Ok(()) };
    let header = copied(cx, source, target, &header)?;
    cx.keys.set_header(target, key, &header)?;
    cx.keys.remove(source, key)?;
    cx.keys.notify(Class::GENERIC, "move_from", source, key);
    cx.keys.notify(Class::GENERIC, "move_to", target, key);
    Ok(())
}

fn object_help(cx: &mut Context<'_, '_>, _: Arguments<'_>) -> Outcome {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>.",
        "HELP",
        "    Print this help.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified <key>.",
    ];
    cx.out.lines(LINES);
    Ok(())
}

/// Replies with what Redis would say of a value of this type and number of short elements.
fn object_encoding(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(header) = cx.header(arguments.at(2))? else {
        cx.out.null();
        return Ok(());
    };
    let config = &cx.shared.config;
    let is_few = |count: u64, name: &str| count <= config.number(name).unsigned_abs();
    let encoding = match &header.content {
        Content::String(bytes) if bytes.len() <= 20 && number::integer(bytes).is_some() => "int",
        Content::String(bytes) if bytes.len() <= 44 => "embstr",
        Content::String(_) => "raw",
        Content::Collection(Kind::List, _) => "quicklist",
        Content::Collection(Kind::Hash, of) if is_few(of.a, "hash-max-listpack-entries") => "listpack",
        Content::Collection(Kind::SortedSet, of) if is_few(of.a, "zset-max-listpack-entries") => "listpack",
        Content::Collection(Kind::SortedSet, _) => "skiplist",
        Content::Collection(..) => "hashtable",
        Content::Stream(_) => "stream",
    };
    cx.out.bulk(encoding);
    Ok(())
}

/// Replies with what Redis would say: it shares the small integers, and does not count their references.
fn object_references(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_shared = |bytes: &[u8]| number::integer(bytes).is_some_and(|number| (0..SHARED_INTEGERS).contains(&number));
    match cx.header(arguments.at(2))?.map(|header| header.content) {
        Some(Content::String(bytes)) if is_shared(&bytes) => cx.out.integer(i32::MAX.into()),
        Some(_) => cx.out.integer(1),
        None => cx.out.null(),
    }
    Ok(())
}

fn object_idle(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    match cx.header(arguments.at(2))? {
        Some(_) => cx.out.integer(0),
        None => cx.out.null(),
    }
    Ok(())
}

fn object_frequency(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    match cx.header(arguments.at(2))? {
        Some(_) => Err(Failure::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        )),
        None => {
            cx.out.null();
            Ok(())
        }
    }
}
