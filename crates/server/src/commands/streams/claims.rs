//! Commands about pending entries.

use super::entries;
use super::groups::{Open, no_group};
use super::ids;
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{FAST, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{Consumer, Pending, StreamId};
use crate::keyspace::writes::Direction;
use crate::protocol::reply::Reply;
use crate::text::{number, shown};
use bytes::Bytes;

const FAMILY: Family = Family::Stream;
/// How many pending entries `XAUTOCLAIM` looks at, for each that it may claim.
const LOOKS: u64 = 10;
/// Pending entries that are read together.
const AT_A_TIME: u64 = 1000;
/// Largest count of `XAUTOCLAIM`.
const MAX_COUNT: i64 = i64::MAX / 16;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::new(FAMILY, "xautoclaim", -6, WRITE | FAST, xautoclaim)
        .keys(1, 1, 1)
        .doc("6.2.0", "Gives entries to a consumer that are pending for long."),
    Command::new(FAMILY, "xclaim", -6, WRITE | FAST, xclaim)
        .keys(1, 1, 1)
        .doc("5.0.0", "Gives pending entries to a consumer."),
    Command::new(FAMILY, "xpending", -3, READONLY, xpending).keys(1, 1, 1).doc("5.0.0", "Returns what is pending."),
];

/// The stream and the group, which must exist.
fn group(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome<(Stream, Open)> {
    if let Some(stream) = cx.keys.stream(cx.space(), arguments.at(1))?
        && let Some(group) = Open::find(cx, &stream, arguments.at(2))?
    {
        return Ok((stream, group));
    }
    Err(no_group(arguments.at(1), arguments.at(2)))
}

/// Which pending entries are wanted.
struct Query<'a> {
    ids: (StreamId, StreamId),
    most: u64,
    idle_ms: u64,
    consumer: Option<&'a [u8]>,
}

fn query(arguments: Arguments<'_>) -> Outcome<Query<'_>> {
    let (mut place, mut idle_ms) = (3, 0);
    if arguments.is(3, "IDLE") {
        idle_ms = u64::try_from(arguments.integer(4)?).unwrap_or(0);
        if arguments.len() < 8 {
            return Err(Failure::SYNTAX);
        }
        place = 5;
    }
    let most = u64::try_from(arguments.integer(place + 2)?).unwrap_or(0);
    let ids = (ids::first(arguments.at(place))?, ids::last(arguments.at(place + 1))?);
    Ok(Query { ids, most, idle_ms, consumer: arguments.from(place + 3).first().copied() })
}

fn xpending(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let query = match arguments.len() {
        3 => None,
        6..=9 => Some(query(arguments)?),
        _ => return Err(Failure::SYNTAX),
    };
    let (_, group) = group(cx, arguments)?;
    match query {
        Some(query) => list_pending(cx, &group, &query),
        None => summarize(cx, &group),
    }
}

fn summarize(cx: &mut Context<'_, '_>, group: &Open) -> Outcome {
    cx.out.array(4);
    cx.out.count(group.now.pending);
    if group.now.pending == 0 {
        cx.out.null();
        cx.out.null();
        cx.out.null_array();
        return Ok(());
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut edge = StreamId::LEAST;
        group.each_pending(cx, (StreamId::LEAST, StreamId::MOST), direction, |id, _| {
            edge = id;
            false
        })?;
        entries::reply_id(cx, edge);
    }
    let consumers = group.consumers(cx, |name, consumer| (consumer.pending > 0).then_some(name.len()))?;
    cx.out.array(consumers.len());
    for (name, consumer) in consumers {
        cx.out.array(2);
        cx.out.bulk(name);
        cx.out.bulk(consumer.pending.to_string());
    }
    Ok(())
}

fn list_pending(cx: &mut Context<'_, '_>, group: &Open, query: &Query<'_>) -> Outcome {
    let now_ms = cx.keys.now_ms();
    let consumer = query.consumer.map(|name| group.consumer(cx, name)).transpose()?;
    if consumer.as_ref().is_some_and(Option::is_none) {
        cx.out.array(0);
        return Ok(());
    }
    let consumer = consumer.flatten();
    list(cx, group, consumer.as_ref(), query.ids, query.most, query.idle_ms, |out, id, pending| {
        out.array(4);
        out.bulk(id.to_string());
        out.bulk(&pending.name);
        out.count(pending.idle_ms(now_ms));
        out.integer(pending.deliveries as i64);
    })
}

/// Replies with up to `most` pending entries from one id to another, of all consumers or of one, that are idle for long
/// enough. They are read as they are written, by `reply`.
pub(super) fn list(
    cx: &mut Context<'_, '_>,
    group: &Open,
    consumer: Option<&Consumer>,
    (from, to): (StreamId, StreamId),
    most: u64,
    idle_ms: u64,
    reply: impl Fn(&mut Reply, StreamId, &Pending),
) -> Outcome {
    let (start, mut count) = (cx.out.len(), 0);
    let mut next = Some(from).filter(|from| *from <= to);
    while let Some(from) = next.filter(|_| count < most && !cx.out.is_full()) {
        let at_once = (most - count).min(AT_A_TIME);
        let (found, last) = portion(cx, group, consumer, (from, to), at_once, idle_ms)?;
        count += found.len() as u64;
        found.iter().for_each(|(id, pending)| reply(cx.out, *id, pending));
        next = last.and_then(StreamId::next);
    }
    cx.out.array_from(start, usize::try_from(count).unwrap_or(usize::MAX));
    Ok(())
}

/// Pending entries with their ids.
type Listed = Vec<(StreamId, Pending)>;

/// Returns up to `most` pending entries, of all consumers or of one, that are idle for long enough. The id is the last
/// one that was looked at, if there may be more.
fn portion(
    cx: &mut Context<'_, '_>,
    group: &Open,
    consumer: Option<&Consumer>,
    ids: (StreamId, StreamId),
    most: u64,
    idle_ms: u64,
) -> Outcome<(Listed, Option<StreamId>)> {
    let now_ms = cx.keys.now_ms();
    let wants = |pending: &Pending| pending.idle_ms(now_ms) >= idle_ms;
    let mut found = Listed::new();
    let Some(consumer) = consumer else {
        group.each_pending(cx, ids, Direction::Forward, |id, pending| {
            if wants(&pending) {
                found.push((id, pending));
            }
            (found.len() as u64) < most
        })?;
        let last = found.last().map(|(id, _)| *id).filter(|_| found.len() as u64 >= most);
        return Ok((found, last));
    };
    let own = group.own_pending(cx, consumer, ids, most)?;
    group.fetch_pending(cx, own.iter().copied())?;
    for id in &own {
        found.extend(group.pending(cx, *id)?.filter(wants).map(|pending| (*id, pending)));
    }
    Ok((found, own.last().copied().filter(|_| own.len() as u64 >= most)))
}

/// How entries are claimed.
#[derive(Default)]
struct Claim {
    /// When they were delivered, as the client says.
    at_ms: Option<i64>,
    /// How often they were delivered, as the client says.
    deliveries: Option<u64>,
    /// Whether entries that are not pending are also claimed.
    is_forced: bool,
    only_ids: bool,
    last: StreamId,
}

fn claim(arguments: Arguments<'_>, first: usize, now_ms: u64) -> Outcome<Claim> {
    let (mut words, mut claim) = (arguments.words(first), Claim::default());
    let integer = |text, error| number::integer(text).ok_or(Failure::text(error));
    while !words.is_done() {
        if words.take("FORCE") {
            claim.is_forced = true;
        } else if words.take("JUSTID") {
            claim.only_ids = true;
        } else if let Some(text) = words.take_with_value("IDLE") {
            let idle_ms = integer(text, "ERR Invalid IDLE option argument for XCLAIM")?;
            claim.at_ms = Some((now_ms as i64).wrapping_sub(idle_ms));
        } else if let Some(text) = words.take_with_value("TIME") {
            claim.at_ms = Some(integer(text, "ERR Invalid TIME option argument for XCLAIM")?);
        } else if let Some(text) = words.take_with_value("RETRYCOUNT") {
            let deliveries = integer(text, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
            claim.deliveries = u64::try_from(deliveries).ok();
        } else if let Some(text) = words.take_with_value("LASTID") {
            claim.last = ids::exact(text, 0)?;
        } else {
            let option = shown::short(words.word().unwrap_or_default(), 128);
            return Err(Failure::new(format!("ERR Unrecognized XCLAIM option '{option}'")));
        }
    }
    Ok(claim)
}

/// Claimed entries; without their contents when only ids are wanted.
type Claimed = Vec<(StreamId, Option<Bytes>)>;

fn reply(cx: &mut Context<'_, '_>, claimed: Claimed) -> Outcome {
    cx.out.array(claimed.len());
    claimed.into_iter().try_for_each(|(id, value)| match value {
        Some(value) => entries::reply(cx, (id, value)),
        None => {
            entries::reply_id(cx, id);
            Ok(())
        }
    })
}

fn xclaim(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let (stream, mut group) = group(cx, arguments)?;
    let now_ms = cx.keys.now_ms();
    let idle_ms = number::integer(arguments.at(4));
    let idle_ms = idle_ms.ok_or(Failure::text("ERR Invalid min-idle-time argument for XCLAIM"))?;
    let idle_ms = u64::try_from(idle_ms).unwrap_or(0);
    let ids: Vec<StreamId> = arguments.from(5).iter().map_while(|text| ids::exact(text, 0).ok()).collect();
    let claim = claim(arguments, 5 + ids.len(), now_ms)?;
    group.now.last = group.now.last.max(claim.last);
    // An impossible time counts as now.
    let at_ms = claim.at_ms.and_then(|at| u64::try_from(at).ok()).map_or(now_ms, |at_ms| at_ms.min(now_ms));
    let name = Bytes::copy_from_slice(arguments.at(3));
    group.fetch_pending(cx, ids.iter().copied())?;
    entries::fetch(cx, &stream, ids.iter().copied())?;
    let (mut claimed, mut bytes) = (Vec::new(), 0);
    for id in ids {
        let former = group.pending(cx, id)?;
        let Some(entry) = entries::get(cx, &stream, id)? else {
            // The entry was deleted: nobody can handle it.
            if let Some(former) = former {
                group.release(cx, id, &former)?;
            }
            continue;
        };
        if former.is_none() && !claim.is_forced
            || former.as_ref().is_some_and(|former| former.idle_ms(now_ms) < idle_ms)
        {
            continue;
        }
        // A consumer that claims nothing need not exist.
        let consumer = group.see_consumer(cx, arguments.at(1), &name, now_ms)?.number;
        let before = former.as_ref().map_or(1, |former| former.deliveries);
        let deliveries = claim.deliveries.unwrap_or(before.wrapping_add(u64::from(!claim.only_ids)));
        let now = Pending { consumer, at_ms, deliveries, name: name.clone() };
        group.assign(cx, id, former.as_ref(), &now)?;
        let entry = Some(entry).filter(|_| !claim.only_ids);
        bytes += entry.as_ref().map_or(0, Bytes::len);
        cx.make_room(bytes)?;
        claimed.push((id, entry));
    }
    group.save(cx);
    reply(cx, claimed)
}

fn xautoclaim(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let idle_ms = number::integer(arguments.at(4));
    let idle_ms = idle_ms.ok_or(Failure::text("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let idle_ms = u64::try_from(idle_ms).unwrap_or(0);
    let first = ids::first(arguments.at(5))?;
    let (mut words, mut most, mut only_ids) = (arguments.words(6), 100, false);
    while !words.is_done() {
        if let Some(text) = words.take_with_value("COUNT") {
            let count = integer(text).ok().filter(|count| (1..=MAX_COUNT).contains(count));
            most = count.ok_or(Failure::text("ERR COUNT must be > 0"))?.unsigned_abs();
        } else if words.take("JUSTID") {
            only_ids = true;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let (stream, mut group) = group(cx, arguments)?;
    let now_ms = cx.keys.now_ms();
    let name = Bytes::copy_from_slice(arguments.at(3));
    // Where this command looks, how often it may, and where the next command continues.
    let (mut from, mut looks, mut next) = (Some(first), most.saturating_mul(LOOKS), StreamId::LEAST);
    let (mut claimed, mut bytes, mut deleted, mut left) = (Vec::new(), 0, Vec::new(), most);
    'looking: while let Some(at) = from {
        // One more than it may look at, where the next command would continue.
        let at_once = looks.saturating_add(1).min(AT_A_TIME);
        let (candidates, last) = portion(cx, &group, None, (at, StreamId::MOST), at_once, 0)?;
        from = last.and_then(StreamId::next);
        let likely = usize::try_from(left).unwrap_or(usize::MAX);
        entries::fetch(cx, &stream, candidates.iter().take(likely).map(|(id, _)| *id))?;
        for (id, former) in candidates {
            if left == 0 || looks == 0 {
                next = id;
                break 'looking;
            }
            looks -= 1;
            let Some(entry) = entries::get(cx, &stream, id)? else {
                group.release(cx, id, &former)?;
                deleted.push(id);
                left -= 1;
                continue;
            };
            if former.idle_ms(now_ms) < idle_ms {
                continue;
            }
            let consumer = group.see_consumer(cx, arguments.at(1), &name, now_ms)?.number;
            let deliveries = former.deliveries.wrapping_add(u64::from(!only_ids));
            let now = Pending { consumer, at_ms: now_ms, deliveries, name: name.clone() };
            group.assign(cx, id, Some(&former), &now)?;
            let entry = Some(entry).filter(|_| !only_ids);
            bytes += entry.as_ref().map_or(0, Bytes::len);
            cx.make_room(bytes)?;
            claimed.push((id, entry));
            left -= 1;
        }
    }
    group.save(cx);
    cx.out.array(3);
    entries::reply_id(cx, next);
    reply(cx, claimed)?;
    cx.out.array(deleted.len());
    deleted.into_iter().for_each(|id| entries::reply_id(cx, id));
    Ok(())
}
