//! Commands that remove the first or last members of sorted sets. They hold one portion of the members, however many
//! there are.

use super::members;
use crate::commands::arguments::Arguments;
use crate::commands::collections::Open;
use crate::commands::command::flags::{FAST, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::lists::{pop_count, pop_keys};
use crate::commands::sets::positive;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use crate::protocol::reply::Reply;

const FAMILY: Family = Family::SortedSet;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "zmpop", -4, WRITE, zmpop)
        .counted_keys(1, false)
        .doc("7.0.0", "Removes the first or last members of the first sorted set that has some."),
    Command::new(FAMILY, "zpopmax", -2, WRITE | FAST, zpopmax)
        .keys(1, 1, 1)
        .doc("5.0.0", "Removes the members with the highest scores."),
    Command::new(FAMILY, "zpopmin", -2, WRITE | FAST, zpopmin)
        .keys(1, 1, 1)
        .doc("5.0.0", "Removes the members with the lowest scores."),
];

/// How popped members are replied: what comes before the members of a key, and how each is written.
#[derive(Clone, Copy)]
pub(crate) struct Form<'f> {
    pub(crate) head: &'f dyn Fn(&mut Reply, &[u8], usize),
    pub(crate) each: &'f dyn Fn(&mut Reply, &[u8], f64),
}

/// Removes up to `count` members from an end, and replies with them as they are read. Returns false when there is no
/// such set.
fn pop(cx: &mut Context<'_, '_>, key: &[u8], end: Direction, count: u64, form: Form<'_>) -> Outcome<bool> {
    let Some(set) = Open::existing(cx, key, Kind::SortedSet)? else { return Ok(false) };
    let popped = count.min(set.now.a);
    (form.head)(cx.out, key, usize::try_from(popped).unwrap_or(usize::MAX));
    if popped > 0 {
        let event = if end == Direction::Forward { "zpopmin" } else { "zpopmax" };
        cx.notify(Class::SORTED_SET, event, key);
    }
    let found = if popped == set.now.a {
        pop_all(cx, key, &set.now, end, form)?
    } else {
        pop_part(cx, key, set, end, popped, form)?
    };
    if found != popped && !cx.out.is_full() {
        return Err(Failure::damaged("a collection has not as many elements as it should"));
    }
    Ok(true)
}

/// Removes all members of a set, which is one deletion however many they are. Returns how many were replied.
fn pop_all(cx: &mut Context<'_, '_>, key: &[u8], set: &Collection, end: Direction, form: Form<'_>) -> Outcome<u64> {
    let (all, out, mut found) = (layout::all_scored(cx.space(), set.id), &mut *cx.out, 0);
    members::each(cx.keys, set.id, &all, end, (0, u64::MAX), &mut |member, score| {
        found += 1;
        (form.each)(out, member, score);
        Ok(!out.is_full())
    })?;
    cx.remove(key)?;
    cx.notify(Class::GENERIC, "del", key);
    Ok(found)
}

/// Removes this many of a set's members, portion by portion. Returns how many were replied.
fn pop_part(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    mut set: Open,
    end: Direction,
    count: u64,
    form: Form<'_>,
) -> Outcome<u64> {
    let (mut rest, mut found) = (layout::all_scored(cx.space(), set.now.id), 0);
    while found < count && !cx.out.is_full() {
        let portion = members::portion(cx.keys, set.now.id, &mut rest, end, count - found)?;
        if portion.is_empty() {
            break;
        }
        for (member, score) in portion {
            found += 1;
            (form.each)(cx.out, &member, score);
            members::take(cx, &mut set, &member, score);
        }
        cx.keys.check_size()?;
    }
    set.save(cx, key, found > 0)?;
    Ok(found)
}

fn pop_some(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: Direction) -> Outcome {
    let (count, form) = match arguments.len() {
        2 => {
            let head = &|out: &mut Reply, _: &[u8], popped: usize| out.array(2 * popped);
            let each = &|out: &mut Reply, member: &[u8], score: f64| {
                out.bulk(member);
                out.double(score);
            };
            (1, Form { head, each })
        }
        3 => {
            let head = &|out: &mut Reply, _: &[u8], popped: usize| out.array(members::replies(out, popped, true));
            let each = &|out: &mut Reply, member: &[u8], score: f64| members::reply_one(out, member, score, true);
            (positive(arguments.at(2))?, Form { head, each })
        }
        _ => return Err(Failure::SYNTAX),
    };
    if !pop(cx, arguments.at(1), end, count, form)? {
        cx.out.array(0);
    }
    Ok(())
}

fn zpopmin(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, Direction::Forward)
}

fn zpopmax(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, Direction::Backward)
}

/// Removes members of the first of `keys` that has some, and replies with them. Returns false when none has.
pub(crate) fn pop_first(
    cx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    end: Direction,
    count: u64,
    form: Form<'_>,
) -> Outcome<bool> {
    for key in keys {
        if cx.looks_at(key) && pop(cx, key, end, count, form)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The keys, the end and the count of `ZMPOP`.
pub(crate) fn pop_arguments(arguments: Arguments<'_>, place: usize) -> Outcome<(&[&[u8]], Direction, u64)> {
    let (keys, place) = pop_keys(arguments, place)?;
    let end = match () {
        () if arguments.is(place, "MIN") => Direction::Forward,
        () if arguments.is(place, "MAX") => Direction::Backward,
        () => return Err(Failure::SYNTAX),
    };
    Ok((keys, end, pop_count(arguments, place + 1)?))
}

fn zmpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end, count) = pop_arguments(arguments, 1)?;
    reply_popped(cx, keys, end, count)?;
    Ok(())
}

/// Replies to `ZMPOP`; returns false when there was nothing.
pub(crate) fn reply_popped(cx: &mut Context<'_, '_>, keys: &[&[u8]], end: Direction, count: u64) -> Outcome<bool> {
    let head = &|out: &mut Reply, key: &[u8], popped: usize| {
        out.array(2);
        out.bulk(key);
        out.array(popped);
    };
    let each = &|out: &mut Reply, member: &[u8], score: f64| {
        out.array(2);
        out.bulk(member);
        out.double(score);
    };
    let is_there = pop_first(cx, keys, end, count, Form { head, each })?;
    if !is_there {
        cx.out.null_array();
    }
    Ok(is_there)
}
