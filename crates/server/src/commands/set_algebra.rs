//! Unions, intersections and differences of sets.
//!
//! Sets are in the order of their members' hashes, all in the same. A union or a difference reads each set once, in
//! order. An intersection reads the smallest set and asks the others for its members, many at a time.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::collections::{self, HASHED, Open};
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::sets::add;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use bytes::Bytes;
use std::collections::BTreeSet;

const FAMILY: Family = Family::Set;
const STORE: u32 = WRITE | DENYOOM;
/// Members that other sets are asked for at a time.
const ASKED: usize = 256;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "sdiff", -2, READONLY, sdiff)
        .keys(1, -1, 1)
        .doc("1.0.0", "Returns the members of a set that are not in others."),
    Command::new(FAMILY, "sdiffstore", -3, STORE, sdiffstore)
        .keys(1, -1, 1)
        .doc("1.0.0", "Stores the members of a set that are not in others."),
    Command::new(FAMILY, "sinter", -2, READONLY, sinter)
        .keys(1, -1, 1)
        .doc("1.0.0", "Returns the members that are in all sets."),
    Command::new(FAMILY, "sintercard", -3, READONLY, sintercard)
        .counted_keys(1, false)
        .doc("7.0.0", "Counts the members that are in all sets."),
    Command::new(FAMILY, "sinterstore", -3, STORE, sinterstore)
        .keys(1, -1, 1)
        .doc("1.0.0", "Stores the members that are in all sets."),
    Command::new(FAMILY, "sunion", -2, READONLY, sunion)
        .keys(1, -1, 1)
        .doc("1.0.0", "Returns the members that are in any set."),
    Command::new(FAMILY, "sunionstore", -3, STORE, sunionstore)
        .keys(1, -1, 1)
        .doc("1.0.0", "Stores the members that are in any set."),
];

#[derive(Clone, Copy)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

fn combine(cx: &mut Context<'_, '_>, operation: Operation, keys: &[&[u8]]) -> Outcome<Vec<Bytes>> {
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push(cx.collection(key, Kind::Set)?);
    }
    match operation {
        Operation::Intersection => intersection(cx, &sets, usize::MAX),
        Operation::Union => {
            let mut members = BTreeSet::new();
            for set in sets.into_iter().flatten() {
                members.extend(collections::entries(cx, set.id, HASHED)?.into_iter().map(|(member, _)| member));
            }
            Ok(members.into_iter().collect())
        }
        Operation::Difference => {
            let Some((Some(first), others)) = sets.split_first() else { return Ok(Vec::new()) };
            let mut members: BTreeSet<Bytes> =
                collections::entries(cx, first.id, HASHED)?.into_iter().map(|(member, _)| member).collect();
            for other in others.iter().flatten() {
                for (member, _) in collections::entries(cx, other.id, HASHED)? {
                    members.remove(&member);
                }
            }
            Ok(members.into_iter().collect())
        }
    }
}

/// Up to `most` members that are in all sets.
fn intersection(cx: &mut Context<'_, '_>, sets: &[Option<Collection>], most: usize) -> Outcome<Vec<Bytes>> {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<Collection>>>() else { return Ok(Vec::new()) };
    sets.sort_unstable_by_key(|set| set.a);
    sets.dedup_by_key(|set| set.id);
    let Some((smallest, others)) = sets.split_first() else { return Ok(Vec::new()) };
    let (layout, space) = (cx.keys.layout(), cx.space());
    let mut found = Vec::new();
    for members in collections::entries(cx, smallest.id, HASHED)?.chunks(ASKED) {
        let mut left: Vec<&Bytes> = members.iter().map(|(member, _)| member).collect();
        for other in others {
            let keys: Vec<Bytes> = left.iter().map(|member| layout.hashed_element(space, other.id, member)).collect();
            let values = cx.keys.writes().read_many(&keys)?;
            let mut is_there = values.iter().map(Option::is_some);
            left.retain(|_| is_there.next().unwrap_or(false));
        }
        found.extend(left.into_iter().take(most - found.len()).cloned());
        if found.len() >= most {
            break;
        }
    }
    Ok(found)
}

fn reply(cx: &mut Context<'_, '_>, operation: Operation, arguments: Arguments<'_>) -> Outcome {
    let members = combine(cx, operation, arguments.from(1))?;
    cx.out.set(members.len());
    members.iter().for_each(|member| cx.out.bulk(member));
    Ok(())
}

fn store(cx: &mut Context<'_, '_>, operation: Operation, arguments: Arguments<'_>, event: &'static str) -> Outcome {
    let members = combine(cx, operation, arguments.from(2))?;
    if members.is_empty() {
        cx.delete(arguments.at(1))?;
    } else {
        let mut set = Open::fresh(cx, Kind::Set)?;
        for member in &members {
            add(cx, &mut set, member)?;
        }
        set.save(cx, arguments.at(1), true)?;
        cx.notify(Class::SET, event, arguments.at(1));
    }
    cx.out.count(members.len());
    Ok(())
}

fn sunion(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, Operation::Union, arguments)
}

fn sinter(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, Operation::Intersection, arguments)
}

fn sdiff(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, Operation::Difference, arguments)
}

fn sunionstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store(cx, Operation::Union, arguments, "sunionstore")
}

fn sinterstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store(cx, Operation::Intersection, arguments, "sinterstore")
}

fn sdiffstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store(cx, Operation::Difference, arguments, "sdiffstore")
}

/// The keys that follow their number, and the place after them.
///
/// # Errors
/// When the number is none, or not that of what follows.
pub(crate) fn counted_keys(arguments: Arguments<'_>, place: usize) -> Outcome<(&[&[u8]], usize)> {
    let count = crate::text::number::integer(arguments.at(place)).filter(|&count| count > 0);
    let count = count.ok_or(Failure::text("ERR numkeys should be greater than 0"))?;
    let left = arguments.len().saturating_sub(place + 1);
    let count = usize::try_from(count).ok().filter(|&count| count <= left);
    let count = count.ok_or(Failure::text("ERR Number of keys can't be greater than number of args"))?;
    let end = place + 1 + count;
    Ok((arguments.range(place + 1, end), end))
}

/// The limit of `SINTERCARD` and `ZINTERCARD`.
///
/// # Errors
/// When something else follows.
pub(crate) fn cardinality_limit(arguments: Arguments<'_>, place: usize) -> Outcome<usize> {
    let mut words = arguments.words(place);
    let mut limit = 0;
    while !words.is_done() {
        let Some(text) = words.take_with_value("LIMIT") else { return Err(Failure::SYNTAX) };
        let negative = Failure::text("ERR LIMIT can't be negative");
        limit = integer(text).ok().filter(|&limit| limit >= 0).ok_or(negative)?;
    }
    Ok(usize::try_from(limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX))
}

fn sintercard(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end) = counted_keys(arguments, 1)?;
    let most = cardinality_limit(arguments, end)?;
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push(cx.collection(key, Kind::Set)?);
    }
    let found = intersection(cx, &sets, most)?;
    cx.out.count(found.len());
    Ok(())
}
