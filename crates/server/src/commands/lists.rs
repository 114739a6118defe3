//! Lists: elements at contiguous positions, one record of the engine each.
//!
//! Both ends grow and shrink at the cost of one record. A change in the middle moves the elements on its shorter side.

use crate::commands::arguments::{Arguments, integer};
use crate::commands::collections::{self, Check, Open};
use crate::commands::command::flags::{DENYOOM, FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::set_algebra::counted_keys;
use crate::commands::sets::positive;
use crate::commands::strings::clamp_list;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Collection, Kind};
use crate::keyspace::layout;
use crate::keyspace::writes::Direction;
use bytes::Bytes;

const FAMILY: Family = Family::List;
const PUSH: u32 = WRITE | DENYOOM;
/// From this many elements on, a part is read in order instead of element by element, and removed as a range.
const MANY: u64 = 64;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "lindex", 3, READONLY, lindex).keys(1, 1, 1).doc("1.0.0", "Returns an element."),
    Command::new(FAMILY, "linsert", 5, PUSH, linsert)
        .keys(1, 1, 1)
        .doc("2.2.0", "Inserts an element before or after another."),
    Command::new(FAMILY, "llen", 2, READONLY | FAST, llen)
        .keys(1, 1, 1)
        .doc("1.0.0", "Returns the number of elements."),
    Command::new(FAMILY, "lmove", 5, PUSH, lmove).keys(1, 2, 1).doc("6.2.0", "Moves an element to another list."),
    Command::new(FAMILY, "lmpop", -4, WRITE, lmpop)
        .counted_keys(1, false)
        .doc("7.0.0", "Removes elements of the first list that has some."),
    Command::new(FAMILY, "lpop", -2, WRITE | FAST, lpop).keys(1, 1, 1).doc("1.0.0", "Removes the first elements."),
    Command::new(FAMILY, "lpos", -3, READONLY, lpos).keys(1, 1, 1).doc("6.0.6", "Finds an element."),
    Command::new(FAMILY, "lpush", -3, PUSH | FAST, lpush).keys(1, 1, 1).doc("1.0.0", "Adds elements in front."),
    Command::new(FAMILY, "lpushx", -3, PUSH | FAST, lpushx)
        .keys(1, 1, 1)
        .doc("2.2.0", "Adds elements in front of a list that is there."),
    Command::new(FAMILY, "lrange", 4, READONLY, lrange).keys(1, 1, 1).doc("1.0.0", "Returns a part of a list."),
    Command::new(FAMILY, "lrem", 4, WRITE, lrem).keys(1, 1, 1).doc("1.0.0", "Removes elements that are equal."),
    Command::new(FAMILY, "lset", 4, PUSH, lset).keys(1, 1, 1).doc("1.0.0", "Changes an element."),
    Command::new(FAMILY, "ltrim", 4, WRITE, ltrim).keys(1, 1, 1).doc("1.0.0", "Removes all but a part of a list."),
    Command::new(FAMILY, "rpop", -2, WRITE | FAST, rpop).keys(1, 1, 1).doc("1.0.0", "Removes the last elements."),
    Command::new(FAMILY, "rpoplpush", 3, PUSH, rpoplpush)
        .keys(1, 2, 1)
        .doc("1.2.0", "Moves the last element of a list to the front of another."),
    Command::new(FAMILY, "rpush", -3, PUSH | FAST, rpush).keys(1, 1, 1).doc("1.0.0", "Adds elements at the end."),
    Command::new(FAMILY, "rpushx", -3, PUSH | FAST, rpushx)
        .keys(1, 1, 1)
        .doc("2.2.0", "Adds elements at the end of a list that is there."),
];

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The front.
    Left,
    /// The end.
    Right,
}

impl End {
    /// Returns the event when something is added at this end.
    const fn pushed(self) -> &'static str {
        match self {
            Self::Left => "lpush",
            Self::Right => "rpush",
        }
    }

    /// Returns the event when something is removed at this end.
    const fn popped(self) -> &'static str {
        match self {
            Self::Left => "lpop",
            Self::Right => "rpop",
        }
    }

    /// Reads `LEFT` or `RIGHT`.
    pub(crate) fn parse(text: &[u8]) -> Outcome<Self> {
        match text {
            _ if text.eq_ignore_ascii_case(b"left") => Ok(Self::Left),
            _ if text.eq_ignore_ascii_case(b"right") => Ok(Self::Right),
            _ => Err(Failure::SYNTAX),
        }
    }
}

const fn length(list: &Collection) -> u64 {
    list.b.wrapping_sub(list.a)
}

/// The engine's key of the element at a place counted from the front.
fn element_key(cx: &Context<'_, '_>, list: &Collection, place: u64) -> Bytes {
    layout::list_element(cx.space(), list.id, list.a.wrapping_add(place) as i64)
}

fn missing() -> Failure {
    Failure::damaged("an element of a list is missing")
}

fn element(cx: &mut Context<'_, '_>, list: &Collection, place: u64) -> Outcome<Bytes> {
    let key = element_key(cx, list, place);
    cx.keys.writes().get(&key)?.ok_or_else(missing)
}

/// The elements of a part. Fails when `check` does, which is asked about the bytes that are held.
fn part(cx: &Context<'_, '_>, list: &Collection, from: u64, to: u64, check: Check<'_>) -> Outcome<Vec<Bytes>> {
    cx.keys.reads().expect_steps(to.saturating_sub(from))?;
    let (mut elements, mut bytes) = (Vec::new(), 0);
    let mut hold = |element: Bytes| {
        bytes += element.len() + 1;
        elements.push(element);
        check(bytes)
    };
    if to.saturating_sub(from) > MANY {
        let range = (element_key(cx, list, from), element_key(cx, list, to));
        cx.keys
            .reads()
            .scan(&range, Direction::Forward, |_, value| hold(Bytes::copy_from_slice(value)).map(|()| true))?;
    } else {
        let keys: Vec<Bytes> = (from..to).map(|place| element_key(cx, list, place)).collect();
        cx.keys.reads().read_many(&keys, |value| hold(value.ok_or_else(missing)?))?;
    }
    Ok(elements)
}

/// All elements.
pub(crate) fn elements(cx: &Context<'_, '_>, list: &Collection, check: Check<'_>) -> Outcome<Vec<Bytes>> {
    part(cx, list, 0, length(list), check)
}

/// Removes the elements of a part; the header is not changed.
fn remove_part(cx: &mut Context<'_, '_>, list: &Collection, from: u64, to: u64) -> Outcome {
    if to.saturating_sub(from) > MANY {
        let range = (element_key(cx, list, from), element_key(cx, list, to));
        cx.keys.reads().take_removal(to.saturating_sub(from))?;
        cx.keys.writes().delete_range(range);
    } else {
        for place in from..to {
            let key = element_key(cx, list, place);
            cx.keys.writes().delete(key);
        }
    }
    Ok(())
}

/// Adds an element.
pub(crate) fn push(cx: &mut Context<'_, '_>, list: &mut Open, end: End, value: Bytes) {
    let place = match end {
        End::Left => {
            list.now.a = list.now.a.wrapping_sub(1);
            0
        }
        End::Right => {
            list.now.b = list.now.b.wrapping_add(1);
            length(&list.now) - 1
        }
    };
    let key = element_key(cx, &list.now, place);
    cx.keys.writes().put(key, value);
}

/// Removes up to `count` elements from an end, and returns them in the order in which they were removed.
fn pop(cx: &mut Context<'_, '_>, list: &mut Open, end: End, count: u64) -> Outcome<Vec<Bytes>> {
    let size = length(&list.now);
    let count = count.min(size);
    let (from, to) = match end {
        End::Left => (0, count),
        End::Right => (size - count, size),
    };
    let reads = &*cx;
    let mut elements = part(reads, &list.now, from, to, &|bytes| reads.make_room(bytes))?;
    remove_part(cx, &list.now, from, to)?;
    match end {
        End::Left => list.now.a = list.now.a.wrapping_add(count),
        End::Right => {
            list.now.b = list.now.b.wrapping_sub(count);
            elements.reverse();
        }
    }
    Ok(elements)
}

fn push_all(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: End, only_known: bool) -> Outcome {
    let key = arguments.at(1);
    if only_known && cx.collection(key, Kind::List)?.is_none() {
        cx.out.integer(0);
        return Ok(());
    }
    let mut list = Open::or_new(cx, key, Kind::List)?;
    for value in arguments.from(2) {
        push(cx, &mut list, end, Bytes::copy_from_slice(value));
    }
    cx.out.count(length(&list.now));
    list.save(cx, key, true)?;
    cx.notify(Class::LIST, end.pushed(), key);
    Ok(())
}

fn lpush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    push_all(cx, arguments, End::Left, false)
}

fn rpush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    push_all(cx, arguments, End::Right, false)
}

fn lpushx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    push_all(cx, arguments, End::Left, true)
}

fn rpushx(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    push_all(cx, arguments, End::Right, true)
}

fn pop_some(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, end: End, command: &str) -> Outcome {
    if arguments.len() > 3 {
        return Err(Failure::new(format!("ERR wrong number of arguments for '{command}' command")));
    }
    let count = if arguments.len() == 3 { Some(positive(arguments.at(2))?) } else { None };
    let Some(mut list) = Open::existing(cx, arguments.at(1), Kind::List)? else {
        match count {
            Some(_) => cx.out.null_array(),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let popped = pop(cx, &mut list, end, count.unwrap_or(1))?;
    if !popped.is_empty() {
        cx.notify(Class::LIST, end.popped(), arguments.at(1));
    }
    list.save(cx, arguments.at(1), !popped.is_empty())?;
    match count {
        None => cx.out.shared_or_null(popped.first()),
        Some(_) => {
            cx.out.array(popped.len());
            popped.iter().for_each(|value| cx.out.shared(value));
        }
    }
    Ok(())
}

fn lpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, End::Left, "lpop")
}

fn rpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    pop_some(cx, arguments, End::Right, "rpop")
}

/// Pops from the first of `keys` that has elements, and replies with them; returns false when none has.
pub(crate) fn pop_first(
    cx: &mut Context<'_, '_>,
    keys: &[&[u8]],
    end: End,
    count: u64,
) -> Outcome<Option<(Bytes, Vec<Bytes>)>> {
    for key in keys {
        if cx.looks_at(key)
            && let Some(mut list) = Open::existing(cx, key, Kind::List)?
        {
            let popped = pop(cx, &mut list, end, count)?;
            cx.notify(Class::LIST, end.popped(), key);
            list.save(cx, key, true)?;
            return Ok(Some((Bytes::copy_from_slice(key), popped)));
        }
    }
    Ok(None)
}

/// The keys, the end and the count of `LMPOP`.
pub(crate) fn pop_arguments(arguments: Arguments<'_>, place: usize) -> Outcome<(&[&[u8]], End, u64)> {
    let (keys, at) = pop_keys(arguments, place)?;
    let end = End::parse(arguments.at(at))?;
    Ok((keys, end, pop_count(arguments, at + 1)?))
}

/// As [`counted_keys`], but something must follow.
pub(crate) fn pop_keys(arguments: Arguments<'_>, place: usize) -> Outcome<(&[&[u8]], usize)> {
    let too_few = counted_keys(arguments, place).map_err(|failure| {
        let is_number = crate::text::number::integer(arguments.at(place)).is_some_and(|count| count > 0);
        if is_number { Failure::SYNTAX } else { failure }
    })?;
    if too_few.1 >= arguments.len() { Err(Failure::SYNTAX) } else { Ok(too_few) }
}

/// `COUNT` and a positive number, once, or nothing.
pub(crate) fn pop_count(arguments: Arguments<'_>, place: usize) -> Outcome<u64> {
    let mut words = arguments.words(place);
    let mut count = None;
    while !words.is_done() {
        let text = words.take_with_value("COUNT").filter(|_| count.is_none()).ok_or(Failure::SYNTAX)?;
        let number = integer(text).ok().and_then(|number| u64::try_from(number).ok()).filter(|&number| number > 0);
        count = Some(number.ok_or(Failure::text("ERR count should be greater than 0"))?);
    }
    Ok(count.unwrap_or(1))
}

fn lmpop(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (keys, end, count) = pop_arguments(arguments, 1)?;
    reply_popped(cx, keys, end, count)?;
    Ok(())
}

/// Replies to `LMPOP`; returns false when there was nothing.
pub(crate) fn reply_popped(cx: &mut Context<'_, '_>, keys: &[&[u8]], end: End, count: u64) -> Outcome<bool> {
    let Some((key, popped)) = pop_first(cx, keys, end, count)? else {
        cx.out.null_array();
        return Ok(false);
    };
    cx.out.array(2);
    cx.out.bulk(key);
    cx.out.array(popped.len());
    popped.iter().for_each(|value| cx.out.bulk(value));
    Ok(true)
}

fn llen(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let length = cx.collection(arguments.at(1), Kind::List)?.map_or(0, |list| length(&list));
    cx.out.count(length);
    Ok(())
}

/// The place of an index that counts from the end when it is negative.
fn place_of(index: i64, length: u64) -> Option<u64> {
    let place = if index < 0 { index.checked_add_unsigned(length)? } else { index };
    u64::try_from(place).ok().filter(|&place| place < length)
}

fn lindex(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let Some(list) = cx.collection(arguments.at(1), Kind::List)? else {
        cx.out.null();
        return Ok(());
    };
    let place = place_of(arguments.integer(2)?, length(&list));
    let value = place.map(|place| element(cx, &list, place)).transpose()?;
    cx.out.shared_or_null(value.as_ref());
    Ok(())
}

fn lset(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let list = cx.collection(arguments.at(1), Kind::List)?.ok_or(Failure::NO_SUCH_KEY)?;
    let index = arguments.integer(2)?;
    let place = place_of(index, length(&list)).ok_or(Failure::OUT_OF_RANGE)?;
    let key = element_key(cx, &list, place);
    cx.keys.writes().put(key, Bytes::copy_from_slice(arguments.at(3)));
    let space = cx.space();
    cx.keys.touch(space, arguments.at(1));
    cx.notify(Class::LIST, "lset", arguments.at(1));
    cx.out.ok();
    Ok(())
}

/// The part from `start` to `end`, as places.
fn places(start: i64, end: i64, list: &Collection) -> Option<(u64, u64)> {
    let part = clamp_list(start, end, usize::try_from(length(list)).unwrap_or(usize::MAX))?;
    Some((part.start as u64, part.end as u64))
}

fn lrange(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (start, end) = (arguments.integer(2)?, arguments.integer(3)?);
    let list = cx.collection(arguments.at(1), Kind::List)?;
    let chosen = list.and_then(|list| places(start, end, &list).map(|places| (list, places)));
    let Some((list, (from, to))) = chosen else {
        cx.out.array(0);
        return Ok(());
    };
    let count = to.saturating_sub(from);
    cx.out.array(usize::try_from(count).unwrap_or(usize::MAX));
    if count > MANY {
        let range = (element_key(cx, &list, from), element_key(cx, &list, to));
        return collections::reply_each(cx, &range, count, |out, _, value| out.bulk(value));
    }
    let reads = &*cx;
    let elements = part(reads, &list, from, to, &|bytes| reads.make_room(bytes))?;
    elements.iter().for_each(|value| cx.out.shared(value));
    Ok(())
}

fn ltrim(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (start, end) = (arguments.integer(2)?, arguments.integer(3)?);
    if let Some(mut list) = Open::existing(cx, arguments.at(1), Kind::List)? {
        cx.notify(Class::LIST, "ltrim", arguments.at(1));
        match places(start, end, &list.now) {
            None => {
                cx.remove(arguments.at(1))?;
                cx.notify(Class::GENERIC, "del", arguments.at(1));
            }
            Some((from, to)) => {
                let size = length(&list.now);
                remove_part(cx, &list.now, 0, from)?;
                remove_part(cx, &list.now, to, size)?;
                list.now.b = list.now.a.wrapping_add(to);
                list.now.a = list.now.a.wrapping_add(from);
                list.save(cx, arguments.at(1), true)?;
            }
        }
    }
    cx.out.ok();
    Ok(())
}

/// The elements of a part that stay, for another place. They are held until they are written there.
fn moving(
    cx: &Context<'_, '_>,
    list: &Collection,
    from: u64,
    to: u64,
    mut stays: impl FnMut(u64) -> bool,
) -> Outcome<Vec<Bytes>> {
    let range = (element_key(cx, list, from), element_key(cx, list, to));
    let (mut elements, mut bytes, mut place) = (Vec::new(), 0, from);
    cx.keys.reads().scan(&range, Direction::Forward, |_, value| {
        if stays(place) {
            bytes += value.len();
            cx.keys.make_room(bytes)?;
            elements.push(Bytes::copy_from_slice(value));
        }
        place += 1;
        Ok(true)
    })?;
    Ok(elements)
}

/// Writes the elements of a list from a place on.
fn write(cx: &mut Context<'_, '_>, list: &Collection, from: u64, elements: Vec<Bytes>) {
    for (place, value) in (from..).zip(elements) {
        let key = element_key(cx, list, place);
        cx.keys.writes().put(key, value);
    }
}

/// Inserts an element before the one at a place, or at the end. The elements on the shorter side move.
fn insert(cx: &mut Context<'_, '_>, list: &mut Open, place: u64, value: Bytes) -> Outcome {
    let size = length(&list.now);
    let moves_front = place < size.saturating_sub(place);
    let (from, to) = if moves_front { (0, place) } else { (place, size) };
    let mut elements = moving(cx, &list.now, from, to, |_| true)?;
    if moves_front {
        list.now.a = list.now.a.wrapping_sub(1);
        elements.push(value);
    } else {
        list.now.b = list.now.b.wrapping_add(1);
        elements.insert(0, value);
    }
    write(cx, &list.now, from, elements);
    Ok(())
}

/// Removes the elements at these places, which ascend. Of the others, those on the shorter side move.
fn remove(cx: &mut Context<'_, '_>, list: &mut Open, places: &[u64]) -> Outcome {
    let ([first, ..], [.., last]) = (places, places) else { return Ok(()) };
    let (former, size, fewer) = (list.now, length(&list.now), places.len() as u64);
    let moves_front = *last < size.saturating_sub(*first);
    let (from, to) = if moves_front { (0, last + 1) } else { (*first, size) };
    let mut gone = places.iter().peekable();
    let elements = moving(cx, &former, from, to, |place| gone.next_if(|gone| **gone == place).is_none())?;
    if moves_front {
        list.now.a = list.now.a.wrapping_add(fewer);
        remove_part(cx, &former, 0, fewer)?;
    } else {
        list.now.b = list.now.b.wrapping_sub(fewer);
        remove_part(cx, &former, size.saturating_sub(fewer), size)?;
    }
    write(cx, &list.now, from, elements);
    Ok(())
}

fn linsert(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let after = match () {
        () if arguments.is(2, "AFTER") => 1,
        () if arguments.is(2, "BEFORE") => 0,
        () => return Err(Failure::SYNTAX),
    };
    let Some(mut list) = Open::existing(cx, arguments.at(1), Kind::List)? else {
        cx.out.integer(0);
        return Ok(());
    };
    let Some(pivot) = positions(cx, &list.now, arguments.at(3), 1, 1, u64::MAX)?.pop() else {
        cx.out.integer(-1);
        return Ok(());
    };
    insert(cx, &mut list, pivot + after, Bytes::copy_from_slice(arguments.at(4)))?;
    let size = length(&list.now);
    list.save(cx, arguments.at(1), true)?;
    cx.notify(Class::LIST, "linsert", arguments.at(1));
    cx.out.count(size);
    Ok(())
}

fn lrem(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let count = arguments.integer(2)?;
    let Some(mut list) = Open::existing(cx, arguments.at(1), Kind::List)? else {
        cx.out.integer(0);
        return Ok(());
    };
    let (rank, most) = (if count < 0 { -1 } else { 1 }, if count == 0 { u64::MAX } else { count.unsigned_abs() });
    let mut places = positions(cx, &list.now, arguments.at(3), rank, most, u64::MAX)?;
    places.sort_unstable();
    if !places.is_empty() {
        remove(cx, &mut list, &places)?;
        cx.notify(Class::LIST, "lrem", arguments.at(1));
        list.save(cx, arguments.at(1), true)?;
    }
    cx.out.count(places.len());
    Ok(())
}

fn lpos(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (mut rank, mut count, mut most) = (1, None, 0);
    let mut words = arguments.words(3);
    let not_negative = |text: &[u8], what: &str| {
        let number = integer(text).ok().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| Failure::new(format!("ERR {what} can't be negative")))
    };
    while !words.is_done() {
        if let Some(text) = words.take_with_value("RANK") {
            rank = integer(text)?;
            if rank == 0 {
                return Err(Failure::text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                     negative to start from the end of the list",
                ));
            }
        } else if let Some(text) = words.take_with_value("COUNT") {
            count = Some(not_negative(text, "COUNT")?);
        } else if let Some(text) = words.take_with_value("MAXLEN") {
            most = not_negative(text, "MAXLEN")?;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let found = match cx.collection(arguments.at(1), Kind::List)? {
        Some(list) => {
            let wanted = if count == Some(0) { u64::MAX } else { count.unwrap_or(1) };
            positions(cx, &list, arguments.at(2), rank, wanted, if most == 0 { u64::MAX } else { most })?
        }
        None => Vec::new(),
    };
    match count {
        Some(_) => {
            cx.out.array(found.len());
            found.into_iter().for_each(|place| cx.out.count(place));
        }
        None => match found.first() {
            Some(&place) => cx.out.count(place),
            None => cx.out.null(),
        },
    }
    Ok(())
}

/// Returns up to `count` places of an element, from match `rank` on, among the first `most` elements.
fn positions(
    cx: &mut Context<'_, '_>,
    list: &Collection,
    element: &[u8],
    rank: i64,
    count: u64,
    most: u64,
) -> Outcome<Vec<u64>> {
    let size = length(list);
    let range = (element_key(cx, list, 0), element_key(cx, list, size));
    let direction = if rank < 0 { Direction::Backward } else { Direction::Forward };
    // The least number has no negation, and Redis takes it for the first match.
    let first = if rank == i64::MIN { 1 } else { rank.unsigned_abs() };
    let (mut seen, mut skipped, mut found) = (0, first - 1, Vec::new());
    cx.keys.writes().scan(&range, direction, |_, value| {
        let place = if rank < 0 { size - 1 - seen } else { seen };
        seen += 1;
        if value == element {
            if skipped > 0 {
                skipped -= 1;
            } else {
                found.push(place);
            }
        }
        Ok(seen < most && (found.len() as u64) < count)
    })?;
    Ok(found)
}

/// Moves an element from an end of a list to an end of another. `None` when there is none.
pub(crate) fn move_element(
    cx: &mut Context<'_, '_>,
    from: &[u8],
    to: &[u8],
    ends: (End, End),
) -> Outcome<Option<Bytes>> {
    let Some(mut source) = Open::existing(cx, from, Kind::List)? else { return Ok(None) };
    cx.collection(to, Kind::List)?;
    let popped = pop(cx, &mut source, ends.0, 1)?;
    let Some(value) = popped.into_iter().next() else { return Ok(None) };
    if from == to {
        push(cx, &mut source, ends.1, value.clone());
        source.save(cx, from, true)?;
        cx.notify(Class::LIST, ends.1.pushed(), to);
        cx.notify(Class::LIST, ends.0.popped(), from);
    } else {
        let mut target = Open::or_new(cx, to, Kind::List)?;
        push(cx, &mut target, ends.1, value.clone());
        target.save(cx, to, true)?;
        cx.notify(Class::LIST, ends.1.pushed(), to);
        cx.notify(Class::LIST, ends.0.popped(), from);
        source.save(cx, from, true)?;
    }
    Ok(Some(value))
}

fn lmove(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let ends = (End::parse(arguments.at(3))?, End::parse(arguments.at(4))?);
    let value = move_element(cx, arguments.at(1), arguments.at(2), ends)?;
    cx.out.bulk_or_null(value);
    Ok(())
}

fn rpoplpush(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let value = move_element(cx, arguments.at(1), arguments.at(2), (End::Right, End::Left))?;
    cx.out.bulk_or_null(value);
    Ok(())
}
