//! Commands about entries.

use super::ids::{self, NewId};
use super::trimming::Options;
use super::{entries, trimming::Trim};
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{self, StreamId};
use crate::keyspace::writes::Direction;

const FAMILY: Family = Family::Stream;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "xadd", -5, WRITE | DENYOOM | FAST, xadd).keys(1, 1, 1).doc("5.0.0", "Adds an entry."),
    Command::new(FAMILY, "xdel", -3, WRITE | FAST, xdel).keys(1, 1, 1).doc("5.0.0", "Deletes entries."),
    Command::new(FAMILY, "xlen", 2, READONLY | FAST, xlen).keys(1, 1, 1).doc("5.0.0", "Returns the number of entries."),
    Command::new(FAMILY, "xrange", -4, READONLY, xrange).keys(1, 1, 1).doc("5.0.0", "Returns a range of entries."),
    Command::new(FAMILY, "xrevrange", -4, READONLY, xrevrange)
        .keys(1, 1, 1)
        .doc("5.0.0", "Returns a range of entries from the end."),
    Command::new(FAMILY, "xsetid", -3, WRITE | DENYOOM | FAST, xsetid)
        .keys(1, 1, 1)
        .doc("5.0.0", "Sets what a stream knows of itself."),
    Command::new(FAMILY, "xtrim", -4, WRITE, xtrim).keys(1, 1, 1).doc("5.0.0", "Deletes entries from the beginning."),
];

/// Makes a new stream.
pub(super) fn new_stream(cx: &mut Context<'_, '_>) -> Outcome<Stream> {
    let id = cx.keys.new_id()?;
    Ok(Stream { id, entries: 0, last: StreamId::LEAST, deleted: StreamId::LEAST, added: 0 })
}

/// Returns the id of a new entry; `None` when it would not come after the latest id.
fn next_id(wanted: NewId, last: StreamId, now_ms: u64) -> Option<StreamId> {
    let id = match wanted {
        NewId::Any if now_ms > last.ms => StreamId { ms: now_ms, sequence: 0 },
        NewId::Any => last.next()?,
        NewId::At(ms) if ms == last.ms => StreamId { ms, sequence: last.sequence.checked_add(1)? },
        NewId::At(ms) => StreamId { ms, sequence: 0 },
        NewId::Exactly(id) => id,
    };
    (id > last).then_some(id)
}

fn xadd(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut words, mut options, mut makes_stream) = (arguments.words(2), Options::default(), true);
    let mut wanted = None;
    while wanted.is_none() && !words.is_done() {
        if options.take(&mut words)? {
            continue;
        }
        if words.take("NOMKSTREAM") {
            makes_stream = false;
        } else {
            wanted = words.word().map(ids::new).transpose()?;
        }
    }
    let trim = options.trim()?;
    let Some(wanted) = wanted.filter(|_| words.left() >= 2 && words.left().is_multiple_of(2)) else {
        return Err(Failure::text("ERR wrong number of arguments for 'xadd' command"));
    };
    if wanted == NewId::Exactly(StreamId::LEAST) {
        return Err(Failure::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = arguments.at(1);
    let mut stream = match cx.keys.stream(cx.space(), key)? {
        Some(stream) => stream,
        None if makes_stream => new_stream(cx)?,
        None => {
            cx.out.null();
            return Ok(());
        }
    };
    if stream.last == StreamId::MOST {
        return Err(Failure::text("ERR The stream has exhausted the last possible ID, unable to add more items"));
    }
    let id = next_id(wanted, stream.last, cx.keys.now_ms())
        .ok_or(Failure::text("ERR The ID specified in XADD is equal or smaller than the target stream top item"))?;
    let value = streams::encode_entry(words.rest());
    if value.len() as u64 > cx.shared.config.max_bulk_bytes().unsigned_abs() {
        return Err(Failure::text("ERR Elements are too large to be stored"));
    }
    let place = entries::keys(cx, &stream).entry(id);
    cx.keys.writes().put(place, value);
    stream = Stream { entries: stream.entries + 1, last: id, added: stream.added.wrapping_add(1), ..stream };
    let removed = trim.map_or(Ok(0), |trim| trim.apply(cx, &mut stream))?;
    cx.keys.set_stream(cx.space(), key, stream)?;
    cx.notify(Class::STREAM, "xadd", key);
    if removed > 0 {
        cx.notify(Class::STREAM, "xtrim", key);
    }
    entries::reply_id(cx, id);
    Ok(())
}

fn xlen(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let stream = cx.keys.stream(cx.space(), arguments.at(1))?;
    cx.out.count(stream.map_or(0, |stream| stream.entries));
    Ok(())
}

fn reply_range(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, direction: Direction) -> Outcome {
    let (first, last) = match direction {
        Direction::Forward => (arguments.at(2), arguments.at(3)),
        Direction::Backward => (arguments.at(3), arguments.at(2)),
    };
    let ids = (ids::first(first)?, ids::last(last)?);
    let (mut words, mut most) = (arguments.words(4), None);
    while !words.is_done() {
        let count = words.take_with_value("COUNT").ok_or(Failure::SYNTAX)?;
        most = Some(u64::try_from(integer(count)?).unwrap_or(0));
    }
    match cx.keys.stream(cx.space(), arguments.at(1))? {
        None => cx.out.array(0),
        Some(_) if most == Some(0) => cx.out.null_array(),
        Some(stream) => {
            let found = entries::range(cx, &stream, ids, direction, most.unwrap_or(u64::MAX))?;
            entries::reply_all(cx, found)?;
        }
    }
    Ok(())
}

fn xrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply_range(cx, arguments, Direction::Forward)
}

fn xrevrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply_range(cx, arguments, Direction::Backward)
}

fn xdel(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(1);
    let found = cx.keys.stream(cx.space(), key)?;
    let mut removed = 0;
    if let Some(mut stream) = found {
        let ids = arguments.from(2).iter().map(|text| ids::exact(text, 0)).collect::<Outcome<Vec<_>>>()?;
        entries::fetch(cx, &stream, ids.iter().copied())?;
        for id in ids {
            if entries::get(cx, &stream, id)?.is_some() {
                entries::delete(cx, &mut stream, id);
                stream.deleted = stream.deleted.max(id);
                removed += 1;
            }
        }
        if removed > 0 {
            cx.keys.set_stream(cx.space(), key, stream)?;
            cx.notify(Class::STREAM, "xdel", key);
        }
    }
    cx.out.integer(removed);
    Ok(())
}

fn xtrim(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut words, mut options) = (arguments.words(2), Options::default());
    while !words.is_done() {
        if !options.take(&mut words)? {
            return Err(Failure::SYNTAX);
        }
    }
    let trim: Trim =
        options.trim()?.ok_or(Failure::text("ERR syntax error, XTRIM must be called with MAXLEN or MINID"))?;
    let key = arguments.at(1);
    let mut removed = 0;
    if let Some(mut stream) = cx.keys.stream(cx.space(), key)? {
        removed = trim.apply(cx, &mut stream)?;
        if removed > 0 {
            cx.keys.set_stream(cx.space(), key, stream)?;
            cx.notify(Class::STREAM, "xtrim", key);
        }
    }
    cx.out.count(removed);
    Ok(())
}

fn xsetid(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let last = ids::exact(arguments.at(2), 0)?;
    let (mut words, mut added, mut deleted) = (arguments.words(3), None, StreamId::LEAST);
    while !words.is_done() {
        if let Some(text) = words.take_with_value("ENTRIESADDED") {
            let count = u64::try_from(integer(text)?);
            added = Some(count.map_err(|_| Failure::text("ERR entries_added must be positive"))?);
        } else if let Some(text) = words.take_with_value("MAXDELETEDID") {
            deleted = ids::exact(text, 0)?;
            if last < deleted {
                return Err(Failure::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let key = arguments.at(1);
    let mut stream = cx.keys.stream(cx.space(), key)?.ok_or(Failure::NO_SUCH_KEY)?;
    if last < entries::edge_id(cx, &stream, Direction::Backward)? {
        return Err(Failure::text("ERR The ID specified in XSETID is smaller than the target stream top item"));
    }
    if added.is_some_and(|added| added < stream.entries) {
        return Err(Failure::text(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.last = last;
    stream.added = added.unwrap_or(stream.added);
    if deleted != StreamId::LEAST {
        stream.deleted = deleted;
    }
    cx.keys.fronts().forget((stream.id, 0));
    cx.keys.set_stream(cx.space(), key, stream)?;
    cx.notify(Class::STREAM, "xsetid", key);
    cx.out.ok();
    Ok(())
}
