//! Commands about ranges of sorted sets.

use super::bounds::{Choice, Part};
use super::members::{self, Scored};
use crate::commands::arguments::{Arguments, Words, integer};
use crate::commands::building::Building;
use crate::commands::collections::Open;
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::writes::Direction;
use bytes::Bytes;

const FAMILY: Family = Family::SortedSet;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "zcount", 4, READONLY | FAST, zcount)
        .keys(1, 1, 1)
        .doc("2.0.0", "Counts members by their scores."),
    Command::new(FAMILY, "zlexcount", 4, READONLY | FAST, zlexcount)
        .keys(1, 1, 1)
        .doc("2.8.9", "Counts members of the same score."),
    Command::new(FAMILY, "zrange", -4, READONLY, zrange).keys(1, 1, 1).doc("1.2.0", "Returns a range of members."),
    Command::new(FAMILY, "zrangebylex", -4, READONLY, zrangebylex)
        .keys(1, 1, 1)
        .doc("2.8.9", "Returns members of the same score."),
    Command::new(FAMILY, "zrangebyscore", -4, READONLY, zrangebyscore)
        .keys(1, 1, 1)
        .doc("1.0.5", "Returns members by their scores."),
    Command::new(FAMILY, "zrangestore", -5, WRITE | DENYOOM, zrangestore)
        .keys(1, 2, 1)
        .doc("6.2.0", "Stores a range of members."),
    Command::new(FAMILY, "zremrangebylex", 4, WRITE, zremrangebylex)
        .keys(1, 1, 1)
        .doc("2.8.9", "Removes members of the same score."),
    Command::new(FAMILY, "zremrangebyrank", 4, WRITE, zremrangebyrank)
        .keys(1, 1, 1)
        .doc("2.0.0", "Removes members by their ranks."),
    Command::new(FAMILY, "zremrangebyscore", 4, WRITE, zremrangebyscore)
        .keys(1, 1, 1)
        .doc("1.2.0", "Removes members by their scores."),
    Command::new(FAMILY, "zrevrange", -4, READONLY, zrevrange)
        .keys(1, 1, 1)
        .doc("1.2.0", "Returns a range of members from the end."),
    Command::new(FAMILY, "zrevrangebylex", -4, READONLY, zrevrangebylex)
        .keys(1, 1, 1)
        .doc("2.8.9", "Returns members of the same score from the end."),
    Command::new(FAMILY, "zrevrangebyscore", -4, READONLY, zrevrangebyscore)
        .keys(1, 1, 1)
        .doc("2.2.0", "Returns members by their scores from the end."),
];

/// What the bounds of a range mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// What the command fixes, and what its options may say.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    direction: Option<Direction>,
    is_stored: bool,
}

/// The members that a command asks for, and whether it wants their scores.
fn query(arguments: Arguments<'_>, place: usize, form: Form) -> Outcome<(Choice, bool)> {
    let (mut by, mut direction) = (form.by, form.direction);
    let (mut limit, mut with_scores) = (None, false);
    let mut words: Words<'_> = arguments.words(place + 2);
    while !words.is_done() {
        match () {
            () if !form.is_stored && words.take("WITHSCORES") => with_scores = true,
            () if words.left() >= 3 && words.take("LIMIT") => {
                let (skip, most) = (words.word().unwrap_or_default(), words.word().unwrap_or_default());
                limit = Some((integer(skip)?, integer(most)?));
            }
            () if direction.is_none() && words.take("REV") => direction = Some(Direction::Backward),
            () if by.is_none() && words.take("BYLEX") => by = Some(By::Member),
            () if by.is_none() && words.take("BYSCORE") => by = Some(By::Score),
            () => return Err(Failure::SYNTAX),
        }
    }
    let (by, direction) = (by.unwrap_or(By::Rank), direction.unwrap_or(Direction::Forward));
    if limit.is_some_and(|(_, most)| most != -1) && by == By::Rank {
        return Err(Failure::text(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == By::Member {
        return Err(Failure::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let (first, second) = (arguments.at(place), arguments.at(place + 1));
    // The larger bound comes first when the order is reversed.
    let (from, to) = if direction == Direction::Backward { (second, first) } else { (first, second) };
    let part = match by {
        By::Rank => Part::ranks(first, second)?,
        By::Score => Part::scores(from, to)?,
        By::Member => Part::members(from, to)?,
    };
    // A negative number to skip skips everything, a negative number of members is no limit.
    let (skip, most) = limit.unwrap_or((0, -1));
    let (skip, most) = (u64::try_from(skip).unwrap_or(u64::MAX), u64::try_from(most).unwrap_or(u64::MAX));
    Ok((Choice { part, direction, skip, most }, with_scores))
}

/// Replies with members as they are read, and stops when there is no more room for replies.
fn reply(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, by: Option<By>, direction: Option<Direction>) -> Outcome {
    let (choice, with_scores) = query(arguments, 2, Form { by, direction, is_stored: false })?;
    let (start, space, mut count) = (cx.out.len(), cx.space(), 0);
    if let Some(set) = cx.collection(arguments.at(1), Kind::SortedSet)? {
        let out = &mut *cx.out;
        choice.each(cx.keys, space, &set, &mut |member, score| {
            count += 1;
            members::reply_one(out, member, score, with_scores);
            Ok(!out.is_full())
        })?;
    }
    let replies = members::replies(cx.out, count, with_scores);
    cx.out.array_from(start, replies);
    Ok(())
}

fn zrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, None, None)
}

fn zrevrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Some(By::Rank), Some(Direction::Backward))
}

fn zrangebyscore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Some(By::Score), Some(Direction::Forward))
}

fn zrevrangebyscore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Some(By::Score), Some(Direction::Backward))
}

fn zrangebylex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Some(By::Member), Some(Direction::Forward))
}

fn zrevrangebylex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    reply(cx, arguments, Some(By::Member), Some(Direction::Backward))
}

fn zrangestore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (choice, _) = query(arguments, 3, Form { by: None, direction: None, is_stored: true })?;
    let (source, space) = (cx.collection(arguments.at(2), Kind::SortedSet)?, cx.space());
    let mut result = Building::new(cx, Kind::SortedSet)?;
    if let Some(set) = source {
        choice.each(cx.keys, space, &set, &mut |member, score| result.add_scored(member, score).map(|()| true))?;
    }
    cx.out.count(result.len());
    result.store(cx, arguments.at(1), Class::SORTED_SET, "zrangestore")
}

/// Makes a new sorted set of these members. Each member is dropped once it is written.
pub(crate) fn of_members<'s>(cx: &mut Context<'_, 's>, found: Vec<Scored>) -> Outcome<Building<'s>> {
    let mut set = Building::new(cx, Kind::SortedSet)?;
    for (member, score) in found {
        set.add_scored(&member, score)?;
    }
    Ok(set)
}

/// Replaces what a key holds by these members, with an event of this name.
pub(crate) fn store(cx: &mut Context<'_, '_>, key: &[u8], found: Vec<Scored>, event: &'static str) -> Outcome {
    of_members(cx, found)?.store(cx, key, Class::SORTED_SET, event)
}

fn count(cx: &mut Context<'_, '_>, key: &[u8], part: Part) -> Outcome {
    let space = cx.space();
    let count = match cx.collection(key, Kind::SortedSet)? {
        Some(set) => Choice::all(part).count(cx.keys, space, &set)?,
        None => 0,
    };
    cx.out.count(count);
    Ok(())
}

fn zcount(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let part = Part::scores(arguments.at(2), arguments.at(3))?;
    count(cx, arguments.at(1), part)
}

fn zlexcount(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let part = Part::members(arguments.at(2), arguments.at(3))?;
    count(cx, arguments.at(1), part)
}

fn remove(cx: &mut Context<'_, '_>, key: &[u8], part: Part, event: &'static str) -> Outcome {
    let Some(mut set) = Open::existing(cx, key, Kind::SortedSet)? else {
        cx.out.integer(0);
        return Ok(());
    };
    let (count, found) = read_to_remove(cx, &Choice::all(part), &set.now)?;
    if count > 0 {
        cx.notify(Class::SORTED_SET, event, key);
    }
    if count == set.now.a {
        cx.remove(key)?;
        cx.notify(Class::GENERIC, "del", key);
    } else {
        for (member, score) in found? {
            members::take(cx, &mut set, &member, score);
        }
        set.save(cx, key, count > 0)?;
    }
    cx.out.count(count);
    Ok(())
}

/// Returns how many members are chosen, and which, unless removing them one by one would write more than one batch holds.
/// Removing all never does.
fn read_to_remove(cx: &mut Context<'_, '_>, choice: &Choice, set: &Collection) -> Outcome<(u64, Outcome<Vec<Scored>>)> {
    let (space, keys) = (cx.space(), &*cx.keys);
    let (mut count, mut bytes, mut found) = (0, 0, Ok(Vec::new()));
    choice.each(keys, space, set, &mut |member, score| {
        count += 1;
        // Two keys are removed for each member.
        bytes += 2 * (size_of::<Scored>() + member.len());
        if let Ok(held) = &mut found {
            match keys.make_room(bytes) {
                Ok(()) => held.push((Bytes::copy_from_slice(member), score)),
                Err(failure) => found = Err(failure),
            }
        }
        Ok(true)
    })?;
    Ok((count, found))
}

fn zremrangebyrank(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let part = Part::ranks(arguments.at(2), arguments.at(3))?;
    remove(cx, arguments.at(1), part, "zremrangebyrank")
}

fn zremrangebyscore(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let part = Part::scores(arguments.at(2), arguments.at(3))?;
    remove(cx, arguments.at(1), part, "zremrangebyscore")
}

fn zremrangebylex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let part = Part::members(arguments.at(2), arguments.at(3))?;
    remove(cx, arguments.at(1), part, "zremrangebylex")
}
