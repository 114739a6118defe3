//! Commands about members of sorted sets.

use super::members;
use crate::commands::arguments::Arguments;
use crate::commands::collections::{self, MEMBERS, Open, check_element, random_count};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::scan::{cursor, scan_options};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Kind;
use crate::keyspace::layout;
use crate::text::number;

const FAMILY: Family = Family::SortedSet;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "zadd", -4, WRITE | DENYOOM | FAST, zadd)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 3, -1, 2)
        .doc("1.2.0", "Adds members, or changes their scores."),
    Command::new(FAMILY, "zcard", 2, READONLY | FAST, zcard)
        .keys(1, 1, 1)
        .doc("1.2.0", "Returns the number of members."),
    Command::new(FAMILY, "zincrby", 4, WRITE | DENYOOM | FAST, zincrby)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 3, 3, 1)
        .doc("1.2.0", "Increments a score."),
    Command::new(FAMILY, "zmscore", -3, READONLY | FAST, zmscore)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 2, -1, 1)
        .doc("6.2.0", "Returns scores."),
    Command::new(FAMILY, "zrandmember", -2, READONLY, zrandmember)
        .keys(1, 1, 1)
        .doc("6.2.0", "Returns random members."),
    Command::new(FAMILY, "zrank", 3, READONLY | FAST, zrank)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 2, 2, 1)
        .doc("2.0.0", "Returns the rank of a member."),
    Command::new(FAMILY, "zrem", -3, WRITE | FAST, zrem)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 2, -1, 1)
        .doc("1.2.0", "Removes members."),
    Command::new(FAMILY, "zrevrank", 3, READONLY | FAST, zrevrank)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 2, 2, 1)
        .doc("2.0.0", "Returns the rank of a member from the end."),
    Command::new(FAMILY, "zscan", -3, READONLY, zscan)
        .keys(1, 1, 1)
        .doc("2.8.0", "Returns some members, and where others are."),
    Command::new(FAMILY, "zscore", 3, READONLY | FAST, zscore)
        .keys(1, 1, 1)
        .elements(Kind::SortedSet, 2, 2, 1)
        .doc("1.2.0", "Returns a score."),
];

/// Options of `ZADD`.
#[derive(Default)]
pub(crate) struct Options {
    /// Whether existing members stay as they are.
    pub(crate) only_new: bool,
    /// Whether no member is added.
    pub(crate) only_known: bool,
    only_greater: bool,
    only_less: bool,
    /// Whether the reply also counts changed members.
    pub(crate) counts_changes: bool,
    increments: bool,
}

/// What became of a member.
struct Added {
    is_new: bool,
    is_changed: bool,
    /// Its score; `None` when the options left it unchanged.
    score: Option<f64>,
}

fn add(cx: &mut Context<'_, '_>, set: &mut Open, member: &[u8], mut score: f64, options: &Options) -> Outcome<Added> {
    let unchanged = Added { is_new: false, is_changed: false, score: None };
    let former = members::score(cx, set.now.id, member)?;
    match former {
        Some(_) if options.only_new => return Ok(unchanged),
        None if options.only_known => return Ok(unchanged),
        Some(former) => {
            if options.increments {
                score += former;
                if score.is_nan() {
                    return Err(Failure::text("ERR resulting score is not a number (NaN)"));
                }
            }
            if (options.only_less && score >= former) || (options.only_greater && score <= former) {
                return Ok(unchanged);
            }
        }
        None => {}
    }
    let is_changed = former != Some(score);
    if is_changed {
        members::put(cx, set, member, score, former)?;
    }
    Ok(Added { is_new: former.is_none(), is_changed, score: Some(score) })
}

fn zadd(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    add_with(cx, arguments, Options::default())
}

/// Also accepts the options of `ZADD`.
fn zincrby(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    add_with(cx, arguments, Options { increments: true, ..Options::default() })
}

fn add_with(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, mut options: Options) -> Outcome {
    let mut words = arguments.words(2);
    loop {
        match () {
            () if words.take("NX") => options.only_new = true,
            () if words.take("XX") => options.only_known = true,
            () if words.take("GT") => options.only_greater = true,
            () if words.take("LT") => options.only_less = true,
            () if words.take("CH") => options.counts_changes = true,
            () if words.take("INCR") => options.increments = true,
            () => break,
        }
    }
    let (pairs, rest) = words.rest().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return Err(Failure::SYNTAX);
    }
    if options.only_new && options.only_known {
        return Err(Failure::text("ERR XX and NX options at the same time are not compatible"));
    }
    if (options.only_new && (options.only_greater || options.only_less)) || (options.only_greater && options.only_less)
    {
        return Err(Failure::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if options.increments && pairs.len() > 1 {
        return Err(Failure::text("ERR INCR option supports a single increment-element pair"));
    }
    let mut scored = Vec::with_capacity(pairs.len());
    for [score, member] in pairs {
        scored.push((*member, number::double(score).ok_or(Failure::NOT_FLOAT)?));
    }
    add_all(cx, arguments.at(1), &scored, &options)
}

/// Adds members, or changes their scores, and replies how many.
pub(crate) fn add_all(cx: &mut Context<'_, '_>, key: &[u8], scored: &[(&[u8], f64)], options: &Options) -> Outcome {
    scored.iter().try_for_each(|(member, _)| check_element(&cx.shared.store, member))?;
    let mut set = Open::or_new(cx, key, Kind::SortedSet)?;
    members::fetch(cx, set.now.id, scored.iter().map(|(member, _)| *member))?;
    let (mut added, mut changed, mut score) = (0, 0, None);
    for (member, score_given) in scored {
        let result = add(cx, &mut set, member, *score_given, options)?;
        added += i64::from(result.is_new);
        changed += i64::from(result.is_changed);
        score = result.score;
    }
    set.save(cx, key, changed > 0)?;
    if changed > 0 {
        cx.notify(Class::SORTED_SET, if options.increments { "zincr" } else { "zadd" }, key);
    }
    match (options.increments, score) {
        (true, Some(score)) => cx.out.double(score),
        (true, None) => cx.out.null(),
        (false, _) => cx.out.integer(if options.counts_changes { changed } else { added }),
    }
    Ok(())
}

fn zcard(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = cx.collection(arguments.at(1), Kind::SortedSet)?.map_or(0, |set| set.a);
    cx.out.count(count);
    Ok(())
}

fn reply_score(cx: &mut Context<'_, '_>, score: Option<f64>) {
    match score {
        Some(score) => cx.out.double(score),
        None => cx.out.null(),
    }
}

fn zscore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let score = match cx.collection(arguments.at(1), Kind::SortedSet)? {
        Some(set) => members::score(cx, set.id, arguments.at(2))?,
        None => None,
    };
    reply_score(cx, score);
    Ok(())
}

fn zmscore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::SortedSet)?;
    if let Some(set) = set {
        members::fetch(cx, set.id, arguments.from(2).iter().copied())?;
    }
    cx.out.array(arguments.len() - 2);
    for member in arguments.from(2) {
        let score = match set {
            Some(set) => members::score(cx, set.id, member)?,
            None => None,
        };
        reply_score(cx, score);
    }
    Ok(())
}

fn zrem(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let mut removed = 0;
    if let Some(mut set) = Open::existing(cx, arguments.at(1), Kind::SortedSet)? {
        members::fetch(cx, set.now.id, arguments.from(2).iter().copied())?;
        for member in arguments.from(2) {
            if let Some(score) = members::score(cx, set.now.id, member)? {
                members::take(cx, &mut set, member, score);
                removed += 1;
            }
        }
        if removed > 0 {
            cx.notify(Class::SORTED_SET, "zrem", arguments.at(1));
        }
        set.save(cx, arguments.at(1), removed > 0)?;
    }
    cx.out.integer(removed);
    Ok(())
}

/// Replies with the number of members before a member, or after it when `from_end`.
fn rank(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, from_end: bool) -> Outcome {
    let set = cx.collection(arguments.at(1), Kind::SortedSet)?;
    let Some(set) = set else {
        cx.out.null();
        return Ok(());
    };
    let Some(score) = members::score(cx, set.id, arguments.at(2))? else {
        cx.out.null();
        return Ok(());
    };
    let (from, to) = layout::all_scored(cx.space(), set.id);
    let member = layout::scored(cx.space(), set.id, score, arguments.at(2));
    let range = if from_end { (layout::after(&member), to) } else { (from, member) };
    let rank = members::count(cx.keys, set.id, &range)?;
    cx.out.count(rank);
    Ok(())
}

fn zrank(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    rank(cx, arguments, false)
}

fn zrevrank(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    rank(cx, arguments, true)
}

fn zscan(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let from = cursor(arguments.at(2))?;
    let Some(set) = cx.collection(arguments.at(1), Kind::SortedSet)? else {
        cx.out.array(2);
        cx.out.bulk("0");
        cx.out.array(0);
        return Ok(());
    };
    let options = scan_options(from, arguments.words(3), false)?;
    let (next, found) = collections::scan_step(cx, set.id, MEMBERS, &options)?;
    cx.out.array(2);
    cx.out.bulk(next.to_string());
    cx.out.array(found.len() * 2);
    for (member, score) in found {
        cx.out.bulk(member);
        cx.out.bulk(number::double_text(layout::score_of(&score).unwrap_or(0.0)));
    }
    Ok(())
}

fn zrandmember(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = if arguments.len() > 2 { Some(random_count(arguments.at(2))?) } else { None };
    if arguments.len() > 4 || (arguments.len() == 4 && !arguments.is(3, "WITHSCORES")) {
        return Err(Failure::SYNTAX);
    }
    let with_scores = arguments.len() == 4;
    if with_scores && count.is_some_and(|count| count.unsigned_abs() > i64::MAX.unsigned_abs() / 2) {
        return Err(Failure::text("ERR value is out of range"));
    }
    let Some(set) = cx.collection(arguments.at(1), Kind::SortedSet)? else {
        match count {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let hashed = MEMBERS.with_values(with_scores);
    let Some(count) = count else {
        let chosen = collections::distinct(cx, set.id, set.a, hashed, 1)?;
        cx.out.bulk_or_null(chosen.first().map(|(member, _)| member));
        return Ok(());
    };
    let replies = members::replies(cx.out, 1, with_scores);
    collections::random(cx, set, hashed, count, replies, |out, member, score| {
        members::reply_one(out, member, layout::score_of(score).unwrap_or(0.0), with_scores);
    })
}
