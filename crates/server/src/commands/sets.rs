//! Sets: members, one record of the engine each.

use crate::commands::arguments::Arguments;
use crate::commands::collections::{self, HASHED, Open, check_element, random_count};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::scan::{cursor, scan_options};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use bytes::Bytes;

const FAMILY: Family = Family::Set;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "sadd", -3, WRITE | DENYOOM | FAST, sadd)
        .keys(1, 1, 1)
        .elements(Kind::Set, 2, -1, 1)
        .doc("1.0.0", "Adds members."),
    Command::new(FAMILY, "scard", 2, READONLY | FAST, scard)
        .keys(1, 1, 1)
        .doc("1.0.0", "Returns the number of members."),
    Command::new(FAMILY, "sismember", 3, READONLY | FAST, sismember)
        .keys(1, 1, 1)
        .elements(Kind::Set, 2, 2, 1)
        .doc("1.0.0", "Says whether a member is there."),
    Command::new(FAMILY, "smembers", 2, READONLY, smembers).keys(1, 1, 1).doc("1.0.0", "Returns all members."),
    Command::new(FAMILY, "smismember", -3, READONLY | FAST, smismember)
        .keys(1, 1, 1)
        .elements(Kind::Set, 2, -1, 1)
        .doc("6.2.0", "Says which members are there."),
    Command::new(FAMILY, "smove", 4, WRITE | FAST, smove)
        .keys(1, 2, 1)
        .elements(Kind::Set, 3, 3, 1)
        .doc("1.0.0", "Moves a member to another set."),
    Command::new(FAMILY, "spop", -2, WRITE | FAST, spop).keys(1, 1, 1).doc("1.0.0", "Removes random members."),
    Command::new(FAMILY, "srandmember", -2, READONLY, srandmember)
        .keys(1, 1, 1)
        .doc("1.0.0", "Returns random members."),
    Command::new(FAMILY, "srem", -3, WRITE | FAST, srem)
        .keys(1, 1, 1)
        .elements(Kind::Set, 2, -1, 1)
        .doc("1.0.0", "Removes members."),
    Command::new(FAMILY, "sscan", -3, READONLY, sscan)
        .keys(1, 1, 1)
        .doc("2.8.0", "Returns some members, and where others are."),
];

/// Adds a member. Returns true when it did not exist.
pub(crate) fn add(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8]) -> Outcome<bool> {
    check_element(&cx.shared.store, member)?;
    let key = cx.keys.layout().hashed_element(cx.space(), set.now.id, member);
    let is_new = cx.keys.writes().get(&key)?.is_none();
    if is_new {
        cx.keys.writes().put(key, Bytes::new());
        set.now.a += 1;
    }
    Ok(is_new)
}

/// Removes a member. Returns true when the set had it.
fn take(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8]) -> Outcome<bool> {
    let key = cx.keys.layout().hashed_element(cx.space(), set.now.id, member);
    let is_there = cx.keys.writes().get(&key)?.is_some();
    if is_there {
        cx.keys.writes().delete(key);
        set.now.a = set.now.a.saturating_sub(1);
    }
    Ok(is_there)
}

fn has(cx: &mut Context<'_, '_>, set: Option<Collection>, member: &[u8]) -> Outcome<bool> {
    let Some(set) = set else { return Ok(false) };
    let key = cx.keys.layout().hashed_element(cx.space(), set.id, member);
    Ok(cx.keys.writes().get(&key)?.is_some())
}

fn fetch(cx: &mut Context<'_, '_>, id: u64, members: &[&[u8]]) -> Outcome {
    let (layout, space) = (cx.keys.layout(), cx.space());
    cx.keys.writes().fetch(members.iter().map(|member| layout.hashed_element(space, id, member)))
}

fn sadd(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let members = arguments.from(2);
    members.iter().try_for_each(|member| check_element(&cx.shared.store, member))?;
    let mut set = Open::or_new(cx, arguments.at(1), Kind::Set)?;
    fetch(cx, set.now.id, members)?;
    let mut added = 0;
    for member in members {
        added += i64::from(add(cx, &mut set, member)?);
    }
    set.save(cx, arguments.at(1), added > 0)?;
    if added > 0 {
        cx.notify(Class::SET, "sadd", arguments.at(1));
    }
    cx.out.integer(added);
    Ok(())
}

fn srem(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut removed = 0;
    if let Some(mut set) = Open::existing(cx, arguments.at(1), Kind::Set)? {
        fetch(cx, set.now.id, arguments.from(2))?;
        for member in arguments.from(2) {
            removed += i64::from(take(cx, &mut set, member)?);
        }
        if removed > 0 {
            cx.notify(Class::SET, "srem", arguments.at(1));
        }
        set.save(cx, arguments.at(1), removed > 0)?;
    }
    cx.out.integer(removed);
    Ok(())
}

fn sismember(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::Set)?;
    let is_there = has(cx, set, arguments.at(2))?;
    cx.out.integer(i64::from(is_there));
    Ok(())
}

fn smismember(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::Set)?;
    if let Some(set) = set {
        fetch(cx, set.id, arguments.from(2))?;
    }
    cx.out.array(arguments.len() - 2);
    for member in arguments.from(2) {
        let is_there = has(cx, set, member)?;
        cx.out.integer(i64::from(is_there));
    }
    Ok(())
}

fn scard(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = cx.collection(arguments.at(1), Kind::Set)?.map_or(0, |set| set.a);
    cx.out.count(count);
    Ok(())
}

fn smembers(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(set) = cx.collection(arguments.at(1), Kind::Set)? else {
        cx.out.set(0);
        return Ok(());
    };
    cx.out.set(usize::try_from(set.a).unwrap_or(usize::MAX));
    let range = (HASHED.from)(cx.space(), set.id, 0);
    collections::reply_each(cx, &range, set.a, |out, key, _| out.bulk((HASHED.element)(key)))
}

fn smove(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (from, to, member) = (arguments.at(1), arguments.at(2), arguments.at(3));
    let Some(mut source) = Open::existing(cx, from, Kind::Set)? else {
        cx.out.integer(0);
        return Ok(());
    };
    let target = cx.collection(to, Kind::Set)?;
    if from == to {
        let is_there = has(cx, target, member)?;
        cx.out.integer(i64::from(is_there));
        return Ok(());
    }
    let is_there = take(cx, &mut source, member)?;
    if is_there {
        cx.notify(Class::SET, "srem", from);
        source.save(cx, from, true)?;
        let mut target = Open::or_new(cx, to, Kind::Set)?;
        let is_new = add(cx, &mut target, member)?;
        target.save(cx, to, is_new)?;
        if is_new {
            cx.notify(Class::SET, "sadd", to);
        }
    }
    cx.out.integer(i64::from(is_there));
    Ok(())
}

fn spop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let key = arguments.at(1);
    let count = match arguments.len() {
        2 => None,
        3 => Some(positive(arguments.at(2))?),
        _ => return Err(Failure::SYNTAX),
    };
    let set = Open::existing(cx, key, Kind::Set)?;
    let chosen = match &set {
        Some(set) => collections::distinct(cx, set.now.id, set.now.a, HASHED, count.unwrap_or(1))?,
        None => Vec::new(),
    };
    if let Some(mut set) = set {
        if !chosen.is_empty() {
            cx.notify(Class::SET, "spop", key);
        }
        if chosen.len() as u64 == set.now.a {
            cx.remove(key)?;
            cx.notify(Class::GENERIC, "del", key);
        } else {
            for (member, _) in &chosen {
                take(cx, &mut set, member)?;
            }
            set.save(cx, key, !chosen.is_empty())?;
        }
    }
    match count {
        None => cx.out.bulk_or_null(chosen.first().map(|(member, _)| member)),
        Some(_) => {
            cx.out.set(chosen.len());
            chosen.iter().for_each(|(member, _)| cx.out.bulk(member));
        }
    }
    Ok(())
}

/// A number that is not negative.
pub(crate) fn positive(text: &[u8]) -> Outcome<u64> {
    let number = crate::text::number::integer(text).and_then(|number| u64::try_from(number).ok());
    number.ok_or(Failure::text("ERR value is out of range, must be positive"))
}

fn srandmember(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = match arguments.len() {
        2 => None,
        3 => Some(random_count(arguments.at(2))?),
        _ => return Err(Failure::SYNTAX),
    };
    let Some(set) = cx.collection(arguments.at(1), Kind::Set)? else {
        match count {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        let chosen = collections::distinct(cx, set.id, set.a, HASHED, 1)?;
        cx.out.bulk_or_null(chosen.first().map(|(member, _)| member));
        return Ok(());
    };
    collections::random(cx, set, HASHED, count, 1, |out, member, _| out.bulk(member))
}

fn sscan(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let from = cursor(arguments.at(2))?;
    let Some(set) = cx.collection(arguments.at(1), Kind::Set)? else {
        cx.out.array(2);
        cx.out.bulk("0");
        cx.out.array(0);
        return Ok(());
    };
    let options = scan_options(from, arguments.words(3), false)?;
    let (next, found) = collections::scan_step(cx, set.id, HASHED, &options)?;
    cx.out.array(2);
    cx.out.bulk(next.to_string());
    cx.out.array(found.len());
    found.iter().for_each(|(member, _)| cx.out.bulk(member));
    Ok(())
}
