//! Unions, intersections and differences of sorted sets and of sets, whose members have the score 1.

use super::members::{self, Scored};
use super::ranges::store;
use crate::commands::arguments::{Arguments, Words, integer};
use crate::commands::collections::{self, HASHED};
use crate::commands::command::flags::{DENYOOM, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::set_algebra::cardinality_limit;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Content, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use crate::text::number;
use bytes::Bytes;
use std::collections::BTreeMap;

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
            // Infinities that cancel each other out are nothing.
            Self::Sum => not_nan(a + b),
            Self::Least => a.min(b),
            Self::Most => a.max(b),
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The keys after their number, and the place behind them.
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

/// A set that is combined: its members with their scores, and what they are multiplied by.
type Input = (Vec<Scored>, f64);

fn input(cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome<Vec<Scored>> {
    match cx.header(key)?.map(|header| header.content) {
        None => Ok(Vec::new()),
        Some(Content::Collection(Kind::SortedSet, set)) => {
            let all = layout::all_scored(cx.space(), set.id);
            members::scan(cx.keys.writes(), &all, Direction::Forward, (0, u64::MAX))
        }
        Some(Content::Collection(Kind::Set, set)) => {
            let members = collections::entries(cx, set.id, HASHED)?;
            Ok(members.into_iter().map(|(member, _)| (member, 1.0)).collect())
        }
        Some(_) => Err(Failure::WRONG_TYPE),
    }
}

fn combine(mut inputs: Vec<Input>, operation: Operation, aggregate: Aggregate) -> Vec<Scored> {
    if operation == Operation::Difference {
        let mut inputs = inputs.into_iter();
        let mut result: BTreeMap<Bytes, f64> = inputs.next().unwrap_or_default().0.into_iter().collect();
        for (members, _) in inputs {
            for (member, _) in members {
                result.remove(&member);
            }
        }
        return in_order(result);
    }
    // The smallest first: sums of floating-point numbers depend on the order.
    inputs.sort_by_key(|(members, _)| members.len());
    let mut result: BTreeMap<Bytes, f64> = BTreeMap::new();
    for (place, (members, weight)) in inputs.into_iter().enumerate() {
        // In an intersection only the first set's product is made a number; a sum with another that is none is 0.
        let is_number = place == 0 || operation == Operation::Union;
        let product = |score: f64| if is_number { not_nan(score * weight) } else { score * weight };
        let weighted = members.into_iter().map(|(member, score)| (member, product(score)));
        if place == 0 {
            result.extend(weighted);
        } else if operation == Operation::Union {
            for (member, score) in weighted {
                result.entry(member).and_modify(|sum| *sum = aggregate.of(*sum, score)).or_insert(score);
            }
        } else {
            let found: BTreeMap<Bytes, f64> = weighted.collect();
            result.retain(|member, sum| {
                let score = found.get(member);
                *sum = score.map_or(*sum, |score| aggregate.of(*sum, *score));
                score.is_some()
            });
        }
    }
    in_order(result)
}

fn in_order(members: BTreeMap<Bytes, f64>) -> Vec<Scored> {
    let mut members: Vec<Scored> = members.into_iter().collect();
    members.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.0.cmp(&b.0)));
    members
}

/// Options behind the keys.
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

fn inputs(cx: &mut Context<'_, '_>, keys: &[&[u8]]) -> Outcome<Vec<Vec<Scored>>> {
    // All types are looked at before anything is read.
    for key in keys {
        match cx.header(key)?.map(|header| header.kind()) {
            None | Some(Kind::Set | Kind::SortedSet) => {}
            Some(_) => return Err(Failure::WRONG_TYPE),
        }
    }
    keys.iter().map(|key| input(cx, key)).collect()
}

fn result(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    operation: Operation,
    destination: bool,
    command: &str,
) -> Outcome<(Vec<Scored>, bool)> {
    let (keys, end) = keys(arguments, 1 + usize::from(destination), command)?;
    let sets = inputs(cx, keys)?;
    let options = options(arguments.words(end), keys.len(), operation, destination)?;
    let inputs = sets.into_iter().zip(options.weights).collect();
    Ok((combine(inputs, operation, options.aggregate), options.with_scores))
}

fn reply(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, operation: Operation, command: &str) -> Outcome {
    let (members, with_scores) = result(cx, arguments, operation, false, command)?;
    members::reply(cx.out, &members, with_scores);
    Ok(())
}

fn store_result(
    cx: &mut Context<'_, '_>,
    arguments: Arguments<'_>,
    operation: Operation,
    command: &'static str,
) -> Outcome {
    let (members, _) = result(cx, arguments, operation, true, command)?;
    store(cx, arguments.at(1), &members, command)?;
    cx.out.count(members.len());
    Ok(())
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
    let sets = inputs(cx, keys)?;
    let most = cardinality_limit(arguments, end)?;
    let inputs = sets.into_iter().map(|members| (members, 1.0)).collect();
    let members = combine(inputs, Operation::Intersection, Aggregate::Sum);
    cx.out.count(members.len().min(most));
    Ok(())
}
