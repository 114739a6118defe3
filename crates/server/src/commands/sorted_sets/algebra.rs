//! Unions, intersections and differences of sorted sets and of sets, whose members have the score 1.
//!
//! Members of both kinds are in the same order of hashes, so all sets are read once and together. A stored result is
//! written as it comes. A replied result is held, as far as there is room for the reply, because it must be put in the
//! order of scores.

use super::members::{self, Scored};
use crate::commands::arguments::{Arguments, Words, integer};
use crate::commands::building::Building;
use crate::commands::collections::{self, HASHED, Input, MEMBERS, Merged};
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::set_algebra::cardinality_limit;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Kind};
use crate::keyspace::layout;
use crate::text::number;
use bytes::Bytes;

const FAMILY: Family = Family::SortedSet;
const STORE: u32 = WRITE | DENYOOM;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "zdiff", -3, READONLY, zdiff)
        .counted_keys(1, false)
        .doc("6.2.0", "Returns the members of a sorted set that are not in others."),
    Command::new(FAMILY, "zdiffstore", -4, STORE, zdiffstore)
        .counted_keys(2, true)
        .doc("6.2.0", "Stores the members of a sorted set that are not in others."),
    Command::new(FAMILY, "zinter", -3, READONLY, zinter)
        .counted_keys(1, false)
        .doc("6.2.0", "Returns the members that are in all sorted sets."),
    Command::new(FAMILY, "zintercard", -3, READONLY, zintercard)
        .counted_keys(1, false)
        .doc("7.0.0", "Counts the members that are in all sorted sets."),
    Command::new(FAMILY, "zinterstore", -4, STORE, zinterstore)
        .counted_keys(2, true)
        .doc("2.0.0", "Stores the members that are in all sorted sets."),
    Command::new(FAMILY, "zunion", -3, READONLY, zunion)
        .counted_keys(1, false)
        .doc("6.2.0", "Returns the members that are in any sorted set."),
    Command::new(FAMILY, "zunionstore", -4, STORE, zunionstore)
        .counted_keys(2, true)
        .doc("2.0.0", "Stores the members that are in any sorted set."),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Debug, Clone, Copy)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Infinities that cancel each other out give zero.
            Self::Sum => not_nan(a + b),
            Self::Least => a.min(b),
            Self::Most => a.max(b),
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The keys after their number, and the place after them.
fn keys<'a>(arguments: Arguments<'a>, place: usize, command: &str) -> Outcome<(&'a [&'a [u8]], usize)> {
    let count = integer(arguments.at(place))?;
    if count < 1 {
        return Err(Failure::new(format!("ERR at least 1 input key is needed for '{command}' command")));
    }
    let left = arguments.len().saturating_sub(place + 1);
    let count = usize::try_from(count).ok().filter(|&count| count <= left).ok_or(Failure::SYNTAX)?;
    let end = place + 1 + count;
    Ok((arguments.range(place + 1, end), end))
}

/// A set of the operation, and the factor for its scores.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    kind: Kind,
    id: u64,
    size: u64,
    weight: f64,
}

/// A function that gets members of the result until it returns false.
type Visit<'v> = &'v mut dyn FnMut(&mut Context<'_, '_>, &[u8], f64) -> Outcome<bool>;

/// Passes on the result of an operation on sets, some of which may not exist, in no meaningful order.
fn each(
    cx: &mut Context<'_, '_>,
    mut sets: Vec<Option<Weighted>>,
    operation: Operation,
    aggregate: Aggregate,
    visit: Visit<'_>,
) -> Outcome {
    let which = match operation {
        Operation::Union => Merged::Any,
        Operation::Intersection => Merged::All,
        Operation::Difference => Merged::First,
    };
    let sizes = sets.iter().map(|set| set.map_or(0, |set| set.size));
    let steps = match operation {
        Operation::Union => sizes.sum(),
        Operation::Intersection => sizes.min().unwrap_or(0),
        Operation::Difference => sizes.take(1).sum(),
    };
    cx.keys.reads().expect_steps(steps)?;
    if operation != Operation::Difference {
        // The smallest first: sums of floating-point numbers depend on the order.
        sets.sort_by_key(|set| set.map_or(0, |set| set.size));
    }
    let input = |set: Weighted| (set.id, if set.kind == Kind::Set { HASHED } else { MEMBERS });
    let inputs: Vec<Input> = sets.iter().map(|set| set.map(input)).collect();
    let score = |place: usize, value: &[u8]| {
        let set = sets.get(place).copied().flatten()?;
        // In an intersection only the first set's product is checked for NaN; a sum with another NaN product is 0.
        let is_number = place == 0 || operation == Operation::Union;
        let score = if set.kind == Kind::Set { 1.0 } else { layout::score_of(value)? };
        Some(if is_number { not_nan(score * set.weight) } else { score * set.weight })
    };
    let damaged = || Failure::damaged("the score of a member is damaged");
    collections::merge(cx, &inputs, which, &mut |cx, member, found| {
        if operation == Operation::Difference && found.len() > 1 {
            return Ok(true);
        }
        let mut sum = None;
        for (place, value) in found {
            let score = score(*place, value).ok_or_else(damaged)?;
            sum = Some(sum.map_or(score, |sum| aggregate.of(sum, score)));
        }
        visit(cx, member, sum.unwrap_or_default())
    })
}

/// Options after the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn options(mut words: Words<'_>, inputs: usize, operation: Operation, is_stored: bool) -> Outcome<Options> {
    let mut options = Options { weights: vec![1.0; inputs], aggregate: Aggregate::Sum, with_scores: false };
    let is_weighted = operation != Operation::Difference;
    while !words.is_done() {
        if is_weighted && words.left() > inputs && words.take("WEIGHTS") {
            for weight in &mut options.weights {
                let text = words.word().unwrap_or_default();
                *weight = number::double(text).ok_or(Failure::text("ERR weight value is not a float"))?;
            }
        } else if let Some(name) = is_weighted.then(|| words.take_with_value("AGGREGATE")).flatten() {
            options.aggregate = match name {
                _ if name.eq_ignore_ascii_case(b"sum") => Aggregate::Sum,
                _ if name.eq_ignore_ascii_case(b"min") => Aggregate::Least,
                _ if name.eq_ignore_ascii_case(b"max") => Aggregate::Most,
                _ => return Err(Failure::SYNTAX),
            };
        } else if !is_stored && words.take("WITHSCORES") {
            options.with_scores = true;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok(options)
}

/// The sets of keys, with the weight 1.
fn sets_of(cx: &mut Context<'_, '_>, keys: &[&[u8]]) -> Outcome<Vec<Option<Weighted>>> {
    let set = |key: &&[u8]| match cx.header(key)?.map(|header| header.content) {
        None => Ok(None),
        Some(Content::Collection(kind @ (Kind::SortedSet | Kind::Set), set)) => {
            Ok(Some(Weighted { kind, id: set.id, size: set.a, weight: 1.0 }))
        }
        Some(_) => Err(Failure::WRONG_TYPE),
    };
    keys.iter().map(set).collect()
}

/// The sets of a command with their weights, and its options.
fn request(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    operation: Operation,
    destination: bool,
    command: &str,
) -> Outcome<(Vec<Option<Weighted>>, Options)> {
    let (keys, end) = keys(arguments, 1 + usize::from(destination), command)?;
    let mut sets = sets_of(cx, keys)?;
    let options = options(arguments.words(end), keys.len(), operation, destination)?;
    for (set, weight) in sets.iter_mut().zip(&options.weights) {
        set.iter_mut().for_each(|set| set.weight = *weight);
    }
    Ok((sets, options))
}

fn reply(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, operation: Operation, command: &str) -> Outcome {
    let (sets, options) = request(cx, arguments, operation, false, command)?;
    // The order of the members is known only at the end.
    let (mut members, mut bytes): (Vec<Scored>, usize) = (Vec::new(), 0);
    each(cx, sets, operation, options.aggregate, &mut |cx, member, score| {
        // A reply is a little longer than its contents.
        bytes += member.len() + b"$1\r\n\r\n".len();
        members.push((Bytes::copy_from_slice(member), score));
        cx.make_room(bytes).map(|()| true)
    })?;
    members.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.0.cmp(&b.0)));
    members::reply(cx.out, members, options.with_scores);
    Ok(())
}

fn store_result(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    operation: Operation,
    command: &'static str,
) -> Outcome {
    let (sets, options) = request(cx, arguments, operation, true, command)?;
    let mut result = Building::new(cx, Kind::SortedSet)?;
    each(cx, sets, operation, options.aggregate, &mut |_, member, score| {
        result.add_scored(member, score).map(|()| true)
    })?;
    cx.out.count(result.len());
    result.store(cx, arguments.at(1), Class::SORTED_SET, command)
}

fn zunion(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Operation::Union, "zunion")
}

fn zinter(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Operation::Intersection, "zinter")
}

fn zdiff(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Operation::Difference, "zdiff")
}

fn zunionstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store_result(cx, arguments, Operation::Union, "zunionstore")
}

fn zinterstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store_result(cx, arguments, Operation::Intersection, "zinterstore")
}

fn zdiffstore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    store_result(cx, arguments, Operation::Difference, "zdiffstore")
}

fn zintercard(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end) = keys(arguments, 1, "zintercard")?;
    let sets = sets_of(cx, keys)?;
    let most = cardinality_limit(arguments, end)?;
    let mut count = 0;
    each(cx, sets, Operation::Intersection, Aggregate::Sum, &mut |_, _, _| {
        count += 1;
        Ok(count < most)
    })?;
    cx.out.count(count);
    Ok(())
}
