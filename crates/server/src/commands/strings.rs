//! Strings.

use crate::commands::arguments::{Arguments, Words};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::expire_time::{self, EX, PX, Unit, WORDS};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Header};
use crate::text::decimal::Number;
use crate::text::number;
use bytes::Bytes;

const FAMILY: Family = Family::String;
const SET: u32 = WRITE | DENYOOM;
/// How many keys `MGET` reads together, after those that the run has fetched.
const FETCHED: usize = 256;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "append", 3, SET | FAST, append).keys(1, 1, 1).doc("2.0.0", "Appends to a string."),
    Command::new(FAMILY, "decr", 2, SET | FAST, decr).keys(1, 1, 1).doc("1.0.0", "Decrements an integer by one."),
    Command::new(FAMILY, "decrby", 3, SET | FAST, decrby).keys(1, 1, 1).doc("1.0.0", "Decrements an integer."),
    Command::new(FAMILY, "get", 2, READONLY | FAST, get).keys(1, 1, 1).doc("1.0.0", "Returns a string."),
    Command::new(FAMILY, "getdel", 2, WRITE | FAST, getdel)
        .keys(1, 1, 1)
        .doc("6.2.0", "Returns a string and removes its key."),
    Command::new(FAMILY, "getex", -2, WRITE | FAST, getex)
        .keys(1, 1, 1)
        .doc("6.2.0", "Returns a string and changes when its key expires."),
    Command::new(FAMILY, "getrange", 4, READONLY, getrange).keys(1, 1, 1).doc("2.4.0", "Returns a part of a string."),
    Command::new(FAMILY, "getset", 3, SET | FAST, getset)
        .keys(1, 1, 1)
        .doc("1.0.0", "Sets a string and returns what it was."),
    Command::new(FAMILY, "incr", 2, SET | FAST, incr).keys(1, 1, 1).doc("1.0.0", "Increments an integer by one."),
    Command::new(FAMILY, "incrby", 3, SET | FAST, incrby).keys(1, 1, 1).doc("1.0.0", "Increments an integer."),
    Command::new(FAMILY, "incrbyfloat", 3, SET | FAST, incrbyfloat)
        .keys(1, 1, 1)
        .doc("2.6.0", "Increments a number with a fraction."),
    Command::new(FAMILY, "mget", -2, READONLY | FAST, mget).keys(1, -1, 1).doc("1.0.0", "Returns several strings."),
    Command::new(FAMILY, "mset", -3, SET, mset).keys(1, -1, 2).overwrites().doc("1.0.1", "Sets several strings."),
    Command::new(FAMILY, "msetnx", -3, SET, msetnx)
        .keys(1, -1, 2)
        .overwrites()
        .doc("1.0.1", "Sets several strings if none of the keys is there."),
    Command::new(FAMILY, "psetex", 4, SET, psetex)
        .keys(1, 1, 1)
        .overwrites()
        .doc("2.6.0", "Sets a string that expires, in milliseconds."),
    Command::new(FAMILY, "set", -3, SET, set).keys(1, 1, 1).overwrites().doc("1.0.0", "Sets a string."),
    Command::new(FAMILY, "setex", 4, SET, setex)
        .keys(1, 1, 1)
        .overwrites()
        .doc("2.0.0", "Sets a string that expires, in seconds."),
    Command::new(FAMILY, "setnx", 3, SET | FAST, setnx)
        .keys(1, 1, 1)
        .overwrites()
        .doc("1.0.0", "Sets a string if the key is not there."),
    Command::new(FAMILY, "setrange", 4, SET, setrange).keys(1, 1, 1).doc("2.2.0", "Changes a part of a string."),
    Command::new(FAMILY, "strlen", 2, READONLY | FAST, strlen)
        .keys(1, 1, 1)
        .doc("2.2.0", "Returns the length of a string."),
    Command::new(FAMILY, "substr", 4, READONLY, getrange).keys(1, 1, 1).doc("1.0.0", "Returns a part of a string."),
];

/// Refuses a string of this length if it would be too long.
pub(crate) fn check_length(cx: &Context<'_, '_>, length: u64) -> Outcome {
    if length > cx.shared.config.max_bulk_bytes().unsigned_abs() {
        return Err(Failure::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(())
}

fn get(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (space, key) = (cx.space(), arguments.at(1));
    let value = cx.keys.peek_string(space, key)?;
    let is_found = value.is_some();
    match value {
        Some((record, string)) => cx.out.shared_part(record, string),
        None => cx.out.null(),
    }
    cx.count_look_up(key, is_found);
    Ok(())
}

/// Options of `SET` and `GETEX`.
#[derive(Default)]
struct Options<'a> {
    only_new: bool,
    only_known: bool,
    wants_former: bool,
    keeps_expiry: bool,
    persists: bool,
    expires: Option<(Unit, &'a [u8])>,
}

fn options<'a>(mut words: Words<'a>, is_set: bool) -> Outcome<Options<'a>> {
    let mut options = Options::default();
    while !words.is_done() {
        let unit_before = options.expires.map(|(unit, _)| unit);
        if is_set && !options.only_known && words.take("NX") {
            options.only_new = true;
        } else if is_set && !options.only_new && words.take("XX") {
            options.only_known = true;
        } else if is_set && words.take("GET") {
            options.wants_former = true;
        } else if is_set && unit_before.is_none() && words.take("KEEPTTL") {
            options.keeps_expiry = true;
        } else if !is_set && unit_before.is_none() && words.take("PERSIST") {
            options.persists = true;
        } else {
            let is_free = !options.keeps_expiry && !options.persists;
            let allowed = WORDS.iter().filter(|(_, unit)| is_free && unit_before.is_none_or(|before| before == *unit));
            let mut found = allowed.filter_map(|(word, unit)| words.take_with_value(word).map(|text| (*unit, text)));
            let Some(expires) = found.next() else { return Err(Failure::SYNTAX) };
            options.expires = Some(expires);
        }
    }
    Ok(options)
}

fn set(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (key, value) = (arguments.at(1), arguments.at(2));
    let options = options(arguments.words(3), true)?;
    let expires_ms = options.expires.map(|(unit, text)| expire_time::positive(cx, text, unit, "set")).transpose()?;
    let former = if options.wants_former {
        cx.look_up(key)?
    } else if options.only_new || options.only_known || options.keeps_expiry {
        cx.outline(key)?
    } else {
        None
    };
    let is_known = former.is_some();
    let mut expires = expires_ms;
    if options.keeps_expiry {
        expires = former.as_ref().and_then(|former| former.expires_ms);
    }
    if options.wants_former {
        match former.map(|former| former.content) {
            Some(Content::String(bytes)) => cx.out.shared(&bytes),
            Some(_) => return Err(Failure::WRONG_TYPE),
            None => cx.out.null(),
        }
    }
    if (options.only_new && is_known) || (options.only_known && !is_known) {
        if !options.wants_former {
            cx.out.null();
        }
        return Ok(());
    }
    cx.overwrite(key, value, expires)?;
    cx.notify(Class::STRING, "set", key);
    if expires_ms.is_some() {
        cx.notify(Class::GENERIC, "expire", key);
    }
    if !options.wants_former {
        cx.out.ok();
    }
    Ok(())
}

fn set_expiring(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, unit: Unit, command: &str) -> Outcome {
    let expires_ms = Some(expire_time::positive(cx, arguments.at(2), unit, command)?);
    cx.overwrite(arguments.at(1), arguments.at(3), expires_ms)?;
    cx.notify(Class::STRING, "set", arguments.at(1));
    cx.notify(Class::GENERIC, "expire", arguments.at(1));
    cx.out.ok();
    Ok(())
}

fn setex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    set_expiring(cx, arguments, EX, "setex")
}

fn psetex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    set_expiring(cx, arguments, PX, "psetex")
}

fn setnx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_new = cx.outline(arguments.at(1))?.is_none();
    if is_new {
        cx.overwrite(arguments.at(1), arguments.at(2), None)?;
        cx.notify(Class::STRING, "set", arguments.at(1));
    }
    cx.out.integer(i64::from(is_new));
    Ok(())
}

fn getex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(1);
    let options = options(arguments.words(2), false)?;
    let Some(header) = cx.look_up(key)? else {
        // The time is not checked when there is nothing to expire.
        cx.out.null();
        return Ok(());
    };
    let Content::String(bytes) = &header.content else { return Err(Failure::WRONG_TYPE) };
    let bytes = bytes.clone();
    let expires_ms = options.expires.map(|(unit, text)| expire_time::positive(cx, text, unit, "getex")).transpose()?;
    match expires_ms {
        Some(expires) if expires <= cx.keys.now_ms() => {
            cx.remove(key)?;
            cx.notify(Class::GENERIC, "del", key);
        }
        Some(_) => {
            cx.set_header(key, &Header { expires_ms, ..header })?;
            cx.notify(Class::GENERIC, "expire", key);
        }
        None if options.persists && header.expires_ms.is_some() => {
            cx.set_header(key, &Header { expires_ms: None, ..header })?;
            cx.notify(Class::GENERIC, "persist", key);
        }
        None => {}
    }
    cx.out.shared(&bytes);
    Ok(())
}

fn getdel(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let value = cx.look_up_string(arguments.at(1))?;
    if value.is_some() {
        cx.remove(arguments.at(1))?;
        cx.notify(Class::GENERIC, "del", arguments.at(1));
    }
    cx.out.shared_or_null(value.as_ref());
    Ok(())
}

fn getset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let former = cx.look_up_string(arguments.at(1))?;
    cx.overwrite(arguments.at(1), arguments.at(2), None)?;
    cx.notify(Class::STRING, "set", arguments.at(1));
    cx.out.shared_or_null(former.as_ref());
    Ok(())
}

fn mget(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (layout, space) = (cx.keys.layout(), cx.space());
    cx.out.array(arguments.len() - 1);
    for (place, keys) in arguments.from(1).chunks(FETCHED).enumerate() {
        // The run has fetched the first ones.
        if place > 0 {
            cx.keys.fetch(space, keys.iter().map(|key| (layout.hash(key), *key, false)))?;
        }
        for key in keys {
            match cx.look_up(key)?.map(|header| header.content) {
                Some(Content::String(bytes)) => cx.out.shared(&bytes),
                _ => cx.out.null(),
            }
            if cx.out.is_full() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn pairs<'a>(arguments: Arguments<'a>, command: &str) -> Outcome<&'a [[&'a [u8]; 2]]> {
    let (pairs, rest) = arguments.from(1).as_chunks::<2>();
    if rest.is_empty() {
        return Ok(pairs);
    }
    Err(Failure::new(format!("ERR wrong number of arguments for '{command}' command")))
}

fn mset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    for [key, value] in pairs(arguments, "mset")? {
        cx.overwrite(key, value, None)?;
        cx.notify(Class::STRING, "set", key);
    }
    cx.out.ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let pairs = pairs(arguments, "msetnx")?;
    for [key, _] in pairs {
        if cx.outline(key)?.is_some() {
            cx.out.integer(0);
            return Ok(());
        }
    }
    for [key, value] in pairs {
        cx.overwrite(key, value, None)?;
        cx.notify(Class::STRING, "set", key);
    }
    cx.out.integer(1);
    Ok(())
}

fn append(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (key, more) = (arguments.at(1), arguments.at(2));
    let former = cx.string(key)?.unwrap_or_default();
    let length = former.len() + more.len();
    check_length(cx, length as u64)?;
    cx.set_string(key, [&former, more].concat())?;
    cx.notify(Class::STRING, "append", key);
    cx.out.count(length);
    Ok(())
}

fn strlen(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let length = cx.look_up_string(arguments.at(1))?.map_or(0, |value| value.len());
    cx.out.count(length);
    Ok(())
}

fn setrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (key, value) = (arguments.at(1), arguments.at(3));
    let offset = arguments.integer(2)?;
    let Ok(offset) = usize::try_from(offset) else { return Err(Failure::text("ERR offset is out of range")) };
    let former = cx.string(key)?;
    let length = former.as_ref().map_or(0, Bytes::len);
    if value.is_empty() {
        cx.out.count(length);
        return Ok(());
    }
    check_length(cx, (offset as u64).saturating_add(value.len() as u64))?;
    let mut bytes = former.unwrap_or_default().to_vec();
    let end = offset + value.len();
    bytes.resize(length.max(end), 0);
    if let Some(part) = bytes.get_mut(offset..end) {
        part.copy_from_slice(value);
    }
    cx.out.count(bytes.len());
    cx.set_string(key, bytes)?;
    cx.notify(Class::STRING, "setrange", key);
    Ok(())
}

/// Returns the part of `length` elements from `start` to `end`, both included. Negative numbers count from the end.
/// `None` when it is empty.
pub(crate) fn clamp(start: i64, end: i64, length: usize) -> Option<std::ops::Range<usize>> {
    let length = length as i64;
    let from_end = |place: i64| if place < 0 { place.saturating_add(length).max(0) } else { place };
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    if start > end || length == 0 {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()? + 1)
}

/// As [`clamp`], for lists and ranks: an end before the first element stays before it.
pub(crate) fn clamp_list(start: i64, end: i64, length: usize) -> Option<std::ops::Range<usize>> {
    if end < 0 && end.unsigned_abs() > length as u64 {
        return None;
    }
    clamp(start, end, length)
}

fn getrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (start, end) = (arguments.integer(2)?, arguments.integer(3)?);
    let value = cx.look_up_string(arguments.at(1))?.unwrap_or_default();
    let part = clamp(start, end, value.len()).map_or(&[][..], |part| value.get(part).unwrap_or_default());
    cx.out.shared_part(&value, part);
    Ok(())
}

fn increment(cx: &mut Context<'_, '_>, key: &[u8], by: i64) -> Outcome {
    let former = match cx.string(key)? {
        Some(value) => number::integer(&value).ok_or(Failure::NOT_INTEGER)?,
        None => 0,
    };
    let sum = former.checked_add(by).ok_or(Failure::text("ERR increment or decrement would overflow"))?;
    cx.set_string(key, number::integer_text(sum))?;
    cx.notify(Class::STRING, "incrby", key);
    cx.out.integer(sum);
    Ok(())
}

fn incr(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    increment(cx, arguments.at(1), 1)
}

fn decr(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    increment(cx, arguments.at(1), -1)
}

fn incrby(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    increment(cx, arguments.at(1), arguments.integer(2)?)
}

fn decrby(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let by = arguments.integer(2)?.checked_neg().ok_or(Failure::text("ERR decrement would overflow"))?;
    increment(cx, arguments.at(1), by)
}

fn incrbyfloat(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (key, by) = (arguments.at(1), arguments.at(2));
    let former = cx.string(key)?.unwrap_or(Bytes::from_static(b"0"));
    let (Some(former), Some(by)) = (Number::parse(&former), Number::parse(by)) else { return Err(Failure::NOT_FLOAT) };
    let sum = former.plus(by).ok_or(Failure::text("ERR increment would produce NaN or Infinity"))?;
    cx.set_string(key, sum.clone())?;
    cx.notify(Class::STRING, "incrbyfloat", key);
    cx.out.bulk(sum);
    Ok(())
}
