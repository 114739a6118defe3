//! Unions, intersections and differences of sets.
//!
//! All sets are in the same order, that of their members' hashes. A union or a difference reads each set once, in
//! order. An intersection reads the smallest set and asks the others for its members, many at a time. Results are
//! replied or written as they come.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::building::Building;
use crate::commands::collections::{self, Elements, HASHED, Input, Merged};
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::writes::PORTION_BYTES;
use bytes::Bytes;

const FAMILY: Family = Family::Set;
const STORE: u32 = WRITE | DENYOOM;
/// How many members other sets are asked for at a time.
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

/// A function that gets members until it returns false.
type Visit<'v> = &'v mut dyn FnMut(&mut Context<'_, '_>, &[u8]) -> Outcome<bool>;

/// The sets of keys.
fn sets_of(cx: &mut Context<'_, '_>, keys: &[&[u8]]) -> Outcome<Vec<Option<Collection>>> {
    keys.iter().map(|key| cx.collection(key, Kind::Set)).collect()
}

/// Passes on the members of an operation's result.
fn each(cx: &mut Context<'_, '_>, operation: Operation, keys: &[&[u8]], visit: Visit<'_>) -> Outcome {
    let sets = sets_of(cx, keys)?;
    let sizes = sets.iter().map(|set| set.map_or(0, |set| set.a));
    let steps = match operation {
        Operation::Union => sizes.sum(),
        Operation::Intersection => sizes.min().unwrap_or(0),
        Operation::Difference => sizes.take(1).sum(),
    };
    cx.keys.reads().expect_steps(steps)?;
    let inputs: Vec<Input> = sets.iter().map(|set| set.map(|set| (set.id, HASHED))).collect();
    match operation {
        Operation::Intersection => intersection(cx, &sets, visit),
        Operation::Union => collections::merge(cx, &inputs, Merged::Any, &mut |cx, member, _| visit(cx, member)),
        Operation::Difference => collections::merge(cx, &inputs, Merged::First, &mut |cx, member, found| {
            if found.len() == 1 { visit(cx, member) } else { Ok(true) }
        }),
    }
}

/// Passes on the members that are in all sets.
fn intersection(cx: &mut Context<'_, '_>, sets: &[Option<Collection>], visit: Visit<'_>) -> Outcome {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<Collection>>>() else { return Ok(()) };
    sets.sort_unstable_by_key(|set| (set.a, set.id));
    sets.dedup_by_key(|set| set.id);
    let Some((smallest, others)) = sets.split_first() else { return Ok(()) };
    let (layout, space) = (cx.keys.layout(), cx.space());
    let mut members = Elements::new(space, Some((smallest.id, HASHED)), PORTION_BYTES);
    loop {
        let mut left = Vec::with_capacity(ASKED);
        while left.len() < ASKED
            && let Some((_, member, _)) = members.next(cx.keys.reads())?
        {
            left.push(member);
        }
        if left.is_empty() {
            return Ok(());
        }
        for other in others {
            let keys: Vec<Bytes> = left.iter().map(|member| layout.hashed_element(space, other.id, member)).collect();
            let mut are_there = Vec::with_capacity(keys.len());
            cx.keys.reads().read_many(&keys, |value| {
                are_there.push(value.is_some());
                Ok(())
            })?;
            let mut is_there = are_there.into_iter();
            left.retain(|_| is_there.next().unwrap_or(false));
        }
        for member in &left {
            if !visit(cx, member)? {
                return Ok(());
            }
        }
    }
}

fn reply(cx: &mut Context<'_, '_>, operation: Operation, arguments: Arguments<'_>) -> Outcome {
    let (start, mut count) = (cx.out.len(), 0);
    each(cx, operation, arguments.from(1), &mut |cx, member| {
        count += 1;
        cx.out.bulk(member);
        Ok(!cx.out.is_full())
    })?;
    cx.out.set_from(start, count);
    Ok(())
}

fn store(cx: &mut Context<'_, '_>, operation: Operation, arguments: Arguments<'_>, event: &'static str) -> Outcome {
    let mut set = Building::new(cx, Kind::Set)?;
    each(cx, operation, arguments.from(2), &mut |_, member| set.add(member, Bytes::new()).map(|()| true))?;
    cx.out.count(set.len());
    set.store(cx, arguments.at(1), Class::SET, event)
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
/// When it is not a number, or more keys are named than follow.
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
    let sets = sets_of(cx, keys)?;
    let mut count = 0;
    intersection(cx, &sets, &mut |_, _| {
        count += 1;
        Ok(count < most)
    })?;
    cx.out.count(count);
    Ok(())
}
