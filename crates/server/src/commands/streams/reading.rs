//! Commands that read from several streams, or wait for entries.

use super::counters;
use super::entries::{self, Entry};
use super::groups::Open;
use super::ids;
use crate::commands::arguments::{Arguments, integer};
use crate::commands::command::flags::{BLOCKING, READONLY, WRITE};
use crate::commands::command::{Command, Context, Family, Wait};
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::{Kind, Stream};
use crate::keyspace::streams::{Pending, StreamId};
use crate::keyspace::writes::Direction;
use crate::protocol::reply::Protocol;
use crate::text::shown;
use bytes::Bytes;

const FAMILY: Family = Family::Stream;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command::alone(FAMILY, "xread", -4, READONLY | BLOCKING, xread)
        .keys_of_streams(1)
        .doc("5.0.0", "Returns entries of several streams, or waits for some."),
    Command::alone(FAMILY, "xreadgroup", -7, WRITE | BLOCKING, xreadgroup)
        .keys_of_streams(4)
        .doc("5.0.0", "Returns entries of several streams to a consumer of a group, or waits for some."),
];

/// What a client asks for.
struct Request<'a> {
    /// Group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    needs_no_acknowledgement: bool,
    most: u64,
    /// How long to wait; zero is forever.
    timeout_ms: Option<u64>,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
}

/// Where reading a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// After an id.
    After(StreamId),
    /// After the last entry that the group has read.
    Group,
}

fn request<'a>(arguments: Arguments<'a>, is_group: bool, is_in_script: bool) -> Outcome<Request<'a>> {
    let mut words = arguments.words(1);
    let (mut group, mut needs_no_acknowledgement, mut most, mut timeout_ms) = (None, false, 0, None);
    while !words.is_done() {
        if let Some(text) = words.take_with_value("BLOCK") {
            if is_in_script {
                let name = shown::short(arguments.at(0), 128);
                return Err(Failure::new(format!("ERR {name} command is not allowed with BLOCK option from scripts")));
            }
            let timeout = integer(text).map_err(|_| Failure::text("ERR timeout is not an integer or out of range"))?;
            let timeout = u64::try_from(timeout).map_err(|_| Failure::text("ERR timeout is negative"))?;
            timeout_ms = Some(timeout);
        } else if let Some(text) = words.take_with_value("COUNT") {
            most = u64::try_from(integer(text)?).unwrap_or(0);
        } else if words.left() > 1 && words.take("STREAMS") {
            let (count, place) = (words.left(), words.place());
            if !count.is_multiple_of(2) {
                return Err(Failure::text(
                    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                ));
            }
            if is_group && group.is_none() {
                return Err(Failure::text("ERR Missing GROUP option for XREADGROUP"));
            }
            let half = place + count / 2;
            let (keys, ids) = (arguments.range(place, half), arguments.from(half));
            // A count of zero means no limit.
            let most = if most == 0 { u64::MAX } else { most };
            return Ok(Request { group, needs_no_acknowledgement, most, timeout_ms, keys, ids });
        } else if let Some([name, consumer]) = words.take_with_values("GROUP") {
            if !is_group {
                return Err(Failure::text(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            group = Some((name, consumer));
        } else if words.take("NOACK") {
            if !is_group {
                return Err(Failure::text(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            needs_no_acknowledgement = true;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Err(Failure::SYNTAX)
}

/// Returns where to begin to read a stream.
fn from(stream: Option<&Stream>, text: &[u8], is_group: bool) -> Outcome<From> {
    match text {
        b"$" if is_group => Err(Failure::text(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
             specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
        )),
        b"$" => Ok(From::After(stream.map_or(StreamId::LEAST, |stream| stream.last))),
        b">" if is_group => Ok(From::Group),
        b">" => Err(Failure::text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        _ => match ids::exact(text, 0)? {
            // To Redis, both are the same.
            StreamId::MOST if is_group => Ok(From::Group),
            id => Ok(From::After(id)),
        },
    }
}

/// Entries read from a stream. A pending entry may have been deleted.
type Read = Vec<(StreamId, Option<Bytes>)>;

fn read(cx: &mut Context<'_, '_>, stream: &Stream, after: StreamId, most: u64) -> Outcome<Vec<Entry>> {
    match after.next() {
        Some(from) => entries::range(cx, stream, (from, StreamId::MOST), Direction::Forward, most),
        None => Ok(Vec::new()),
    }
}

/// Delivers new entries to a consumer.
fn deliver(
    cx: &mut Context<'_, '_>,
    (key, stream): (&[u8], &Stream),
    group: &mut Open,
    consumer: &[u8],
    request: &Request<'_>,
) -> Outcome<Read> {
    let found = read(cx, stream, group.now.last, request.most)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = cx.keys.now_ms();
    let number = group.see_consumer(cx, key, consumer, now_ms)?.number;
    // Where the stream begins matters if an entry was deleted, or if it is not known what the group has read.
    let is_counted = stream.deleted == StreamId::LEAST && group.now.read.is_some();
    let first = if is_counted { StreamId::LEAST } else { entries::edge_id(cx, stream, Direction::Forward)? };
    for (id, _) in &found {
        group.now.read = match group.now.read.filter(|_| !counters::has_gap_from(stream, first, *id)) {
            Some(read) => Some(read.saturating_add(1)),
            None => counters::added_up_to(stream, first, *id),
        };
        group.now.last = *id;
    }
    if !request.needs_no_acknowledgement {
        let name = Bytes::copy_from_slice(consumer);
        let now = Pending { consumer: number, at_ms: now_ms, deliveries: 1, name };
        // Some entries may be pending already, if the group was set back.
        group.fetch_pending(cx, found.iter().map(|(id, _)| *id))?;
        for (id, _) in &found {
            let former = group.pending(cx, *id)?;
            group.assign(cx, *id, former.as_ref(), &now)?;
        }
    }
    Ok(found.into_iter().map(|(id, value)| (id, Some(value))).collect())
}

/// Delivers a consumer's pending entries again.
fn deliver_again(
    cx: &mut Context<'_, '_>,
    (key, stream): (&[u8], &Stream),
    group: &mut Open,
    consumer: &[u8],
    after: StreamId,
    most: u64,
) -> Outcome<Read> {
    let now_ms = cx.keys.now_ms();
    let consumer = group.see_consumer(cx, key, consumer, now_ms)?;
    let Some(from) = after.next() else { return Ok(Vec::new()) };
    let ids = group.own_pending(cx, &consumer, (from, StreamId::MOST), most)?;
    group.fetch_pending(cx, ids.iter().copied())?;
    entries::fetch(cx, stream, ids.iter().copied())?;
    let (mut found, mut bytes) = (Vec::with_capacity(ids.len()), 0);
    for id in ids {
        let entry = entries::get(cx, stream, id)?;
        if entry.is_some()
            && let Some(former) = group.pending(cx, id)?
        {
            let now = Pending { at_ms: now_ms, deliveries: former.deliveries.wrapping_add(1), ..former.clone() };
            group.assign(cx, id, Some(&former), &now)?;
        }
        bytes += entry.as_ref().map_or(0, Bytes::len);
        cx.make_room(bytes)?;
        found.push((id, entry));
    }
    Ok(found)
}

fn reply(cx: &mut Context<'_, '_>, served: Vec<(&[u8], Read)>) -> Outcome {
    let is_map = cx.out.protocol() == Protocol::Three;
    if is_map {
        cx.out.map(served.len());
    } else {
        cx.out.array(served.len());
    }
    for (key, entries) in served {
        if !is_map {
            cx.out.array(2);
        }
        cx.out.bulk(key);
        cx.out.array(entries.len());
        for (id, value) in entries {
            match value {
                Some(value) => entries::reply(cx, (id, value))?,
                None => {
                    cx.out.array(2);
                    entries::reply_id(cx, id);
                    cx.out.null_array();
                }
            }
        }
    }
    Ok(())
}

/// Returns the stream of a group, which must exist.
fn stream_of_group(cx: &mut Context<'_, '_>, key: &[u8], name: &[u8]) -> Outcome<Stream> {
    let stream = cx.keys.stream(cx.space(), key);
    if cx.session.woken_by.is_some() && !matches!(stream, Ok(Some(_))) {
        return Err(Failure::text("UNBLOCKED the stream key no longer exists"));
    }
    if let Some(stream) = stream?
        && Open::find(cx, &stream, name)?.is_some()
    {
        return Ok(stream);
    }
    if cx.session.woken_by.is_some() {
        return Err(Failure::text("NOGROUP the consumer group this client was blocked on no longer exists"));
    }
    let (key, name) = (shown::short(key, 128), shown::short(name, 128));
    Err(Failure::new(format!("NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP option")))
}

fn read_all(cx: &mut Context<'_, '_>, arguments: Arguments<'_>, is_group: bool) -> Outcome {
    let request = request(arguments, is_group, cx.session.is_in_script)?;
    let mut wanted = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids) {
        if !cx.looks_at(key) {
            continue;
        }
        let stream = match request.group {
            Some((group, _)) => Some(stream_of_group(cx, key, group)?),
            None => cx.keys.stream(cx.space(), key)?,
        };
        wanted.push((*key, stream, from(stream.as_ref(), id, is_group)?));
        // Who waits for a stream that the request names twice gets it once, after the first of its ids.
        if cx.session.woken_by.is_some() {
            break;
        }
    }
    let (mut served, mut bytes) = (Vec::new(), 0);
    for (key, stream, from) in &wanted {
        let Some(stream) = stream else { continue };
        let group = match request.group {
            Some((name, consumer)) => Open::find(cx, stream, name)?.map(|group| (group, consumer)),
            None => None,
        };
        let read = match (group, *from) {
            (Some((mut group, consumer)), From::Group) => {
                let read = deliver(cx, (key, stream), &mut group, consumer, &request)?;
                group.save(cx);
                Some(read).filter(|read| !read.is_empty())
            }
            (Some((mut group, consumer)), From::After(id)) => {
                let read = deliver_again(cx, (key, stream), &mut group, consumer, id, request.most)?;
                group.save(cx);
                Some(read)
            }
            (None, From::After(id)) => {
                let found = read(cx, stream, id, request.most)?;
                Some(found.into_iter().map(|(id, value)| (id, Some(value))).collect())
                    .filter(|read: &Read| !read.is_empty())
            }
            (None, From::Group) => None,
        };
        let Some(read) = read else { continue };
        let held = |(id, value): &(StreamId, Option<Bytes>)| size_of_val(id) + value.as_ref().map_or(0, Bytes::len);
        bytes += read.iter().map(held).sum::<usize>();
        cx.make_room(bytes)?;
        served.push((*key, read));
    }
    if !served.is_empty() {
        return reply(cx, served);
    }
    cx.out.null_array();
    if let Some(timeout_ms) = request.timeout_ms {
        // The client wants later entries, so the latest ids are those of now.
        let first_id = arguments.len() - request.ids.len();
        let mut request_again: Vec<Bytes> =
            arguments.range(0, first_id).iter().map(|word| Bytes::copy_from_slice(word)).collect();
        request_again.extend(wanted.iter().map(|(_, _, from)| match from {
            From::After(id) => Bytes::from(id.to_string()),
            From::Group => Bytes::from_static(b">"),
        }));
        // A client that reads for a group is told when the stream goes.
        let kind = (!is_group).then_some(Kind::Stream);
        let keys = request.keys.iter().map(|key| Bytes::copy_from_slice(key)).collect();
        cx.wait = Some(Wait { keys, kind, timeout_ms, request: Some(request_again) });
    }
    Ok(())
}

fn xread(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    read_all(cx, arguments, false)
}

fn xreadgroup(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    read_all(cx, arguments, true)
}
