//! Hashes: fields with values, one record of the engine each.

use crate::commands::arguments::Arguments;
use crate::commands::collections::{self, HASHED, Open, check_element, random_count};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::scan::{cursor, scan_options};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::protocol::reply::{Protocol, Reply};
use crate::text::decimal::Number;
use crate::text::number;
use bytes::Bytes;

const FAMILY: Family = Family::Hash;
const SET: u32 = WRITE | DENYOOM | FAST;
const READ: u32 = READONLY | FAST;
/// How many fields `HMGET` reads together.
const FETCHED: usize = 1024;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "hdel", -3, WRITE | FAST, hdel)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, -1, 1)
        .doc("2.0.0", "Removes fields."),
    Command::new(FAMILY, "hexists", 3, READ, hexists)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("2.0.0", "Says whether a field is there."),
    Command::new(FAMILY, "hget", 3, READ, hget)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("2.0.0", "Returns a field's value."),
    Command::new(FAMILY, "hgetall", 2, READONLY, hgetall).keys(1, 1, 1).doc("2.0.0", "Returns all fields and values."),
    Command::new(FAMILY, "hincrby", 4, SET, hincrby)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("2.0.0", "Increments an integer in a field."),
    Command::new(FAMILY, "hincrbyfloat", 4, SET, hincrbyfloat)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("2.6.0", "Increments a number with a fraction in a field."),
    Command::new(FAMILY, "hkeys", 2, READONLY, hkeys).keys(1, 1, 1).doc("2.0.0", "Returns all fields."),
    Command::new(FAMILY, "hlen", 2, READ, hlen).keys(1, 1, 1).doc("2.0.0", "Returns the number of fields."),
    Command::new(FAMILY, "hmget", -3, READ, hmget)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, -1, 1)
        .doc("2.0.0", "Returns the values of fields."),
    Command::new(FAMILY, "hmset", -4, SET, hmset)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, -1, 2)
        .doc("2.0.0", "Sets fields."),
    Command::new(FAMILY, "hrandfield", -2, READONLY, hrandfield).keys(1, 1, 1).doc("6.2.0", "Returns random fields."),
    Command::new(FAMILY, "hscan", -3, READONLY, hscan)
        .keys(1, 1, 1)
        .doc("2.8.0", "Returns some fields, and where others are."),
    Command::new(FAMILY, "hset", -4, SET, hset)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, -1, 2)
        .doc("2.0.0", "Sets fields."),
    Command::new(FAMILY, "hsetnx", 4, SET, hsetnx)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("2.0.0", "Sets a field that is not there."),
    Command::new(FAMILY, "hstrlen", 3, READ, hstrlen)
        .keys(1, 1, 1)
        .elements(Kind::Hash, 2, 2, 1)
        .doc("3.2.0", "Returns the length of a field's value."),
    Command::new(FAMILY, "hvals", 2, READONLY, hvals).keys(1, 1, 1).doc("2.0.0", "Returns all values."),
];

fn field(cx: &mut Context<'_, '_>, hash: Collection, field: &[u8]) -> Outcome<Option<Bytes>> {
    let key = cx.keys.layout().hashed_element(cx.space(), hash.id, field);
    cx.keys.writes().get(&key)
}

pub(crate) fn get(cx: &mut Context<'_, '_>, key: &[u8], name: &[u8]) -> Outcome<Option<Bytes>> {
    match cx.collection(key, Kind::Hash)? {
        Some(hash) => field(cx, hash, name),
        None => Ok(None),
    }
}

/// Sets a field. Returns true when it did not exist.
pub(crate) fn put(cx: &mut Context<'_, '_>, hash: &mut Open, name: &[u8], value: impl Into<Bytes>) -> Outcome<bool> {
    check_element(&cx.shared.store, name)?;
    let key = cx.keys.layout().hashed_element(cx.space(), hash.now.id, name);
    let is_new = cx.keys.writes().get(&key)?.is_none();
    cx.keys.writes().put(key, value);
    hash.now.a += u64::from(is_new);
    Ok(is_new)
}

fn set_all(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, command: &str) -> Outcome<i64> {
    let (pairs, rest) = arguments.from(2).as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::new(format!("ERR wrong number of arguments for '{command}' command")));
    }
    pairs.iter().try_for_each(|[name, _]| check_element(&cx.shared.store, name))?;
    let mut hash = Open::or_new(cx, arguments.at(1), Kind::Hash)?;
    let mut added = 0;
    for [name, value] in pairs {
        added += i64::from(put(cx, &mut hash, name, Bytes::copy_from_slice(value))?);
    }
    hash.save(cx, arguments.at(1), true)?;
    cx.notify(Class::HASH, "hset", arguments.at(1));
    Ok(added)
}

fn hset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let added = set_all(cx, arguments, "hset")?;
    cx.out.integer(added);
    Ok(())
}

fn hmset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    set_all(cx, arguments, "hmset")?;
    cx.out.ok();
    Ok(())
}

fn hsetnx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_new = get(cx, arguments.at(1), arguments.at(2))?.is_none();
    if is_new {
        let mut hash = Open::or_new(cx, arguments.at(1), Kind::Hash)?;
        put(cx, &mut hash, arguments.at(2), Bytes::copy_from_slice(arguments.at(3)))?;
        hash.save(cx, arguments.at(1), true)?;
        cx.notify(Class::HASH, "hset", arguments.at(1));
    }
    cx.out.integer(i64::from(is_new));
    Ok(())
}

fn hget(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let value = get(cx, arguments.at(1), arguments.at(2))?;
    cx.out.shared_or_null(value.as_ref());
    Ok(())
}

fn hexists(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let value = get(cx, arguments.at(1), arguments.at(2))?;
    cx.out.integer(i64::from(value.is_some()));
    Ok(())
}

fn hstrlen(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let value = get(cx, arguments.at(1), arguments.at(2))?;
    cx.out.count(value.map_or(0, |value| value.len()));
    Ok(())
}

fn hmget(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let hash = cx.collection(arguments.at(1), Kind::Hash)?;
    let (layout, space) = (cx.keys.layout(), cx.space());
    cx.out.array(arguments.len() - 2);
    for names in arguments.from(2).chunks(FETCHED) {
        if let Some(hash) = hash {
            cx.keys.writes().fetch(names.iter().map(|name| layout.hashed_element(space, hash.id, name)))?;
        }
        for name in names {
            let value = match hash {
                Some(hash) => field(cx, hash, name)?,
                None => None,
            };
            cx.out.shared_or_null(value.as_ref());
            if cx.out.is_full() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn hlen(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let length = cx.collection(arguments.at(1), Kind::Hash)?.map_or(0, |hash| hash.a);
    cx.out.count(length);
    Ok(())
}

fn hdel(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(mut hash) = Open::existing(cx, arguments.at(1), Kind::Hash)? else {
        cx.out.integer(0);
        return Ok(());
    };
    let mut removed = 0;
    for name in arguments.from(2) {
        let key = cx.keys.layout().hashed_element(cx.space(), hash.now.id, name);
        if cx.keys.writes().get(&key)?.is_some() {
            cx.keys.writes().delete(key);
            removed += 1;
        }
    }
    hash.now.a = hash.now.a.saturating_sub(removed);
    if removed > 0 {
        cx.notify(Class::HASH, "hdel", arguments.at(1));
    }
    hash.save(cx, arguments.at(1), removed > 0)?;
    cx.out.count(removed);
    Ok(())
}

fn hincrby(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let by = arguments.integer(3)?;
    let former = match get(cx, arguments.at(1), arguments.at(2))? {
        Some(value) => number::integer(&value).ok_or(Failure::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = former.checked_add(by).ok_or(Failure::text("ERR increment or decrement would overflow"))?;
    let mut hash = Open::or_new(cx, arguments.at(1), Kind::Hash)?;
    put(cx, &mut hash, arguments.at(2), number::integer_text(sum))?;
    hash.save(cx, arguments.at(1), true)?;
    cx.notify(Class::HASH, "hincrby", arguments.at(1));
    cx.out.integer(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let by = Number::parse(arguments.at(3)).ok_or(Failure::NOT_FLOAT)?;
    if by == Number::Infinite {
        return Err(Failure::text("ERR value is NaN or Infinity"));
    }
    let former = get(cx, arguments.at(1), arguments.at(2))?.unwrap_or(Bytes::from_static(b"0"));
    let former = Number::parse(&former).ok_or(Failure::text("ERR hash value is not a float"))?;
    let sum = former.plus(by).ok_or(Failure::text("ERR increment would produce NaN or Infinity"))?;
    let mut hash = Open::or_new(cx, arguments.at(1), Kind::Hash)?;
    put(cx, &mut hash, arguments.at(2), sum.clone())?;
    hash.save(cx, arguments.at(1), true)?;
    cx.notify(Class::HASH, "hincrbyfloat", arguments.at(1));
    cx.out.bulk(sum);
    Ok(())
}

/// Replies with all fields of a hash.
fn reply_fields(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    header: fn(&mut Reply, usize),
    reply: impl Fn(&mut Reply, &[u8], &[u8]),
) -> Outcome {
    let Some(hash) = cx.collection(key, Kind::Hash)? else {
        header(cx.out, 0);
        return Ok(());
    };
    header(cx.out, usize::try_from(hash.a).unwrap_or(usize::MAX));
    let range = (HASHED.from)(cx.space(), hash.id, 0);
    collections::reply_each(cx, &range, hash.a, |out, key, value| reply(out, (HASHED.element)(key), value))
}

fn hgetall(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply_fields(cx, arguments.at(1), Reply::map, |out, name, value| {
        out.bulk(name);
        out.bulk(value);
    })
}

fn hkeys(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply_fields(cx, arguments.at(1), Reply::array, |out, name, _| out.bulk(name))
}

fn hvals(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply_fields(cx, arguments.at(1), Reply::array, |out, _, value| out.bulk(value))
}

fn hscan(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let from = cursor(arguments.at(2))?;
    let Some(hash) = cx.collection(arguments.at(1), Kind::Hash)? else {
        cx.out.array(2);
        cx.out.bulk("0");
        cx.out.array(0);
        return Ok(());
    };
    let options = scan_options(from, arguments.words(3), false)?;
    let (next, found) = collections::scan_step(cx, hash.id, HASHED, &options)?;
    cx.out.array(2);
    cx.out.bulk(next.to_string());
    cx.out.array(found.len() * 2);
    for (name, value) in found {
        cx.out.bulk(name);
        cx.out.bulk(value);
    }
    Ok(())
}

fn hrandfield(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    if arguments.len() == 2 {
        let chosen = match cx.collection(arguments.at(1), Kind::Hash)? {
            Some(hash) => collections::distinct(cx, hash.id, hash.a, HASHED.with_values(false), 1)?,
            None => Vec::new(),
        };
        cx.out.bulk_or_null(chosen.first().map(|(name, _)| name));
        return Ok(());
    }
    let count = random_count(arguments.at(2))?;
    if arguments.len() > 4 || (arguments.len() == 4 && !arguments.is(3, "WITHVALUES")) {
        return Err(Failure::SYNTAX);
    }
    let with_values = arguments.len() == 4;
    if with_values && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(Failure::text("ERR value is out of range"));
    }
    let Some(hash) = cx.collection(arguments.at(1), Kind::Hash)? else {
        cx.out.array(0);
        return Ok(());
    };
    let hashed = HASHED.with_values(with_values);
    let nested = with_values && cx.out.protocol() == Protocol::Three;
    let replies = if with_values && !nested { 2 } else { 1 };
    collections::random(cx, hash, hashed, count, replies, |out, name, value| {
        if nested {
            out.array(2);
        }
        out.bulk(name);
        if with_values {
            out.bulk(value);
        }
    })
}
