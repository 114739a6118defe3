//! Commands that remove the first or last members of sorted sets.

use super::members::{self, Scored};
use crate::commands::arguments::Arguments;
use crate::commands::collections::Open;
use crate::commands::command::flags::{FAST, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::lists::{pop_count, pop_keys};
use crate::commands::sets::positive;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Kind;
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use bytes::Bytes;

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

/// Removes up to `count` members from an end; `None` when there is no such set.
fn pop(cx: &mut Context<'_, '_>, key: &[u8], end: Direction, count: u64) -> Outcome<Option<Vec<Scored>>> {
    let Some(mut set) = Open::existing(cx, key, Kind::SortedSet)? else { return Ok(None) };
    let all = layout::all_scored(cx.space(), set.now.id);
    let popped = members::scan(cx.keys.writes(), &all, end, (0, count))?;
    for (member, score) in &popped {
        members::take(cx, &mut set, member, *score);
    }
    if !popped.is_empty() {
        let event = if end == Direction::Forward { "zpopmin" } else { "zpopmax" };
        cx.notify(Class::SORTED_SET, event, key);
    }
    set.save(cx, key, !popped.is_empty())?;
    Ok(Some(popped))
}

fn pop_some(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: Direction) -> Outcome {
    let count = match arguments.len() {
        2 => None,
        3 => Some(positive(arguments.at(2))?),
        _ => return Err(Failure::SYNTAX),
    };
    let popped = pop(cx, arguments.at(1), end, count.unwrap_or(1))?.unwrap_or_default();
    match (count, popped.first()) {
        (None, Some((member, score))) => {
            cx.out.array(2);
            cx.out.bulk(member);
            cx.out.double(*score);
        }
        _ => members::reply(cx.out, popped, true),
    }
    Ok(())
}

fn zpopmin(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, Direction::Forward)
}

fn zpopmax(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, Direction::Backward)
}

/// Removes members of the first of `keys` that has some.
pub(crate) fn pop_first(
    cx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    end: Direction,
    count: u64,
) -> Outcome<Option<(Bytes, Vec<Scored>)>> {
    for key in keys {
        if cx.looks_at(key)
            && let Some(popped) = pop(cx, key, end, count)?
        {
            return Ok(Some((Bytes::copy_from_slice(key), popped)));
        }
    }
    Ok(None)
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

/// Replies to `ZMPOP`; false when there was nothing.
pub(crate) fn reply_popped(cx: &mut Context<'_, '_>, keys: &[&[u8]], end: Direction, count: u64) -> Outcome<bool> {
    let Some((key, popped)) = pop_first(cx, keys, end, count)? else {
        cx.out.null_array();
        return Ok(false);
    };
    cx.out.array(2);
    cx.out.bulk(key);
    cx.out.array(popped.len());
    for (member, score) in popped {
        cx.out.array(2);
        cx.out.bulk(member);
        cx.out.double(score);
    }
    Ok(true)
}
