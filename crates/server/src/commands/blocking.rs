//! Commands that wait until a key has something.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{BLOCKING, DENYOOM, FAST, NOSCRIPT, WRITE};
use crate::commands::command::{Command, Context, Family, Run, Wait};
use crate::commands::lists::{self, End};
use crate::commands::sets::positive;
use crate::commands::sorted_sets::pops;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Kind;
use crate::keyspace::writes::Direction;
use crate::protocol::reply::Reply;
use crate::text::decimal::Number;
use crate::text::number;

const LIST: Family = Family::List;
const SORTED: Family = Family::SortedSet;
const WAITS: u32 = WRITE | NOSCRIPT | BLOCKING;
/// The longest time that the server counts: some centuries.
const LONGEST_MS: u64 = (i64::MAX / 1_000_000) as u64;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(LIST, "blmove", 6, WAITS | DENYOOM, blmove)
        .keys(1, 2, 1)
        .doc("6.2.0", "Moves an element to another list, or waits for one."),
    Command::alone(LIST, "blmpop", -5, WRITE | BLOCKING, blmpop)
        .counted_keys(2, false)
        .doc("7.0.0", "Removes elements of the first list that has some, or waits for one."),
    Command::alone(LIST, "blpop", -3, WAITS, blpop)
        .keys(1, -2, 1)
        .doc("2.0.0", "Removes the first element of a list, or waits for one."),
    Command::alone(LIST, "brpop", -3, WAITS, brpop)
        .keys(1, -2, 1)
        .doc("2.0.0", "Removes the last element of a list, or waits for one."),
    Command::alone(LIST, "brpoplpush", 4, WAITS | DENYOOM, brpoplpush)
        .keys(1, 2, 1)
        .doc("2.2.0", "Moves the last element of a list to another, or waits for one."),
    Command::alone(SORTED, "bzmpop", -5, WRITE | BLOCKING, bzmpop)
        .counted_keys(2, false)
        .doc("7.0.0", "Removes members of the first sorted set that has some, or waits for one."),
    Command::alone(SORTED, "bzpopmax", -3, WAITS | FAST, bzpopmax)
        .keys(1, -2, 1)
        .doc("5.0.0", "Removes the member with the highest score, or waits for one."),
    Command::alone(SORTED, "bzpopmin", -3, WAITS | FAST, bzpopmin)
        .keys(1, -2, 1)
        .doc("5.0.0", "Removes the member with the lowest score, or waits for one."),
    Command::with(Family::Generic, "wait", 3, NOSCRIPT, Run::Alone(wait))
        .doc("3.0.0", "Waits for replicas, of which there are none."),
    Command::with(Family::Generic, "waitaof", 4, NOSCRIPT, Run::Alone(wait_for_log))
        .doc("7.2.0", "Waits until what was written is in the storage, and for replicas, of which there are none."),
];

/// Reads seconds with a fraction as milliseconds; zero is forever. A time too large for a word of Redis is negative
/// there.
fn timeout(text: &[u8]) -> Outcome<u64> {
    let seconds = Number::parse(text).ok_or(Failure::text("ERR timeout is not a float or out of range"))?;
    let ms = seconds.thousandths_up().filter(|ms| *ms >= 0).ok_or(Failure::text("ERR timeout is negative"))?;
    // A number with more than 17 decimals may seem to be zero.
    let is_more = ms == 0 && !text.starts_with(b"-") && number::double(text) != Some(0.0);
    Ok(if is_more { 1 } else { ms.unsigned_abs().min(LONGEST_MS) })
}

fn pop_list(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: End) -> Outcome {
    let last = arguments.len() - 1;
    let timeout_ms = timeout(arguments.at(last))?;
    let keys = arguments.range(1, last);
    match lists::pop_first(cx, keys, end, 1)? {
        Some((key, popped)) => {
            cx.out.array(2);
            cx.out.bulk(key);
            cx.out.bulk_or_null(popped.first());
        }
        None => {
            cx.out.null_array();
            cx.wait(keys, Kind::List, timeout_ms);
        }
    }
    Ok(())
}

fn blpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_list(cx, arguments, End::Left)
}

fn brpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_list(cx, arguments, End::Right)
}

fn move_element(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, ends: (End, End), timeout_ms: u64) -> Outcome {
    match lists::move_element(cx, arguments.at(1), arguments.at(2), ends)? {
        Some(value) => cx.out.bulk(value),
        // In a transaction the reply is a missing element. The reply at the end of a wait is no array, whatever was
        // waited for.
        None if cx.session.is_in_transaction => cx.out.null(),
        None => {
            cx.out.null_array();
            cx.wait(arguments.range(1, 2), Kind::List, timeout_ms);
        }
    }
    Ok(())
}

fn blmove(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let ends = (End::parse(arguments.at(3))?, End::parse(arguments.at(4))?);
    let timeout_ms = timeout(arguments.at(5))?;
    move_element(cx, arguments, ends, timeout_ms)
}

fn brpoplpush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let timeout_ms = timeout(arguments.at(3))?;
    move_element(cx, arguments, (End::Right, End::Left), timeout_ms)
}

fn blmpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end, count) = lists::pop_arguments(arguments, 2)?;
    let timeout_ms = timeout(arguments.at(1))?;
    if !lists::reply_popped(cx, keys, end, count)? {
        cx.wait(keys, Kind::List, timeout_ms);
    }
    Ok(())
}

fn pop_sorted(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: Direction) -> Outcome {
    let last = arguments.len() - 1;
    let timeout_ms = timeout(arguments.at(last))?;
    let keys = arguments.range(1, last);
    let head = &|out: &mut Reply, key: &[u8], _: usize| {
        out.array(3);
        out.bulk(key);
    };
    let each = &|out: &mut Reply, member: &[u8], score: f64| {
        out.bulk(member);
        out.double(score);
    };
    if !pops::pop_first(cx, keys, end, 1, pops::Form { head, each })? {
        cx.out.null_array();
        cx.wait(keys, Kind::SortedSet, timeout_ms);
    }
    Ok(())
}

fn bzpopmin(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_sorted(cx, arguments, Direction::Forward)
}

fn bzpopmax(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_sorted(cx, arguments, Direction::Backward)
}

fn bzmpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end, count) = pops::pop_arguments(arguments, 2)?;
    let timeout_ms = timeout(arguments.at(1))?;
    if !pops::reply_popped(cx, keys, end, count)? {
        cx.wait(keys, Kind::SortedSet, timeout_ms);
    }
    Ok(())
}

/// There are no replicas, now or later. So the answer is known, but a client that asked for replicas waits for its
/// time-out.
fn wait(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let replicas = arguments.integer(1)?;
    let timeout_ms = whole_timeout(arguments.at(2))?;
    cx.out.integer(0);
    wait_for_replicas(cx, replicas > 0, timeout_ms);
    Ok(())
}

/// Syncs what was written now, whatever the time-out: a sync cannot be given up.
fn wait_for_log(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    const NO_LOG: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    let is_wanted = match arguments.integer(1)? {
        0 => false,
        1 => true,
        _ => return Err(Failure::text("ERR value is out of range, value must between 0 and 1")),
    };
    let replicas = positive(arguments.at(2))?;
    let timeout_ms = whole_timeout(arguments.at(3))?;
    let has_log = cx.shared.store.has_storage();
    if is_wanted && !has_log {
        return Err(Failure::text(NO_LOG));
    }
    if has_log {
        cx.shared.store.sync()?;
    }
    cx.out.array(2);
    cx.out.integer(i64::from(has_log));
    cx.out.integer(0);
    wait_for_replicas(cx, replicas > 0, timeout_ms);
    Ok(())
}

/// Reads milliseconds; zero is forever.
fn whole_timeout(text: &[u8]) -> Outcome<u64> {
    let timeout_ms = integer(text).map_err(|_| Failure::text("ERR timeout is not an integer or out of range"))?;
    u64::try_from(timeout_ms).map_err(|_| Failure::text("ERR timeout is negative"))
}

fn wait_for_replicas(cx: &mut Context<'_, '_>, are_wanted: bool, timeout_ms: u64) {
    if are_wanted {
        cx.wait = Some(Wait { keys: Vec::new(), kind: None, timeout_ms, request: None });
    }
}
