//! Reading and deleting entries.

use crate::commands::command::Context;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{self, StreamId, StreamKeys};
use crate::keyspace::writes::Direction;
use bytes::Bytes;

/// Up to this many entries are deleted one by one; more are deleted as a range. The engine should have few range
/// deletions.
pub(super) const FEW: usize = 64;

/// An entry as it is stored.
pub(super) type Entry = (StreamId, Bytes);

/// Returns the places of everything that belongs to a stream.
pub(super) fn keys(cx: &Context<'_, '_>, stream: &Stream) -> StreamKeys {
    StreamKeys { space: cx.space(), id: stream.id }
}

/// Passes the entries from one id to another in a direction to `visit` until it returns false.
pub(super) fn each(
    cx: &mut Context<'_, '_>,
    stream: &Stream,
    (from, to): (StreamId, StreamId),
    direction: Direction,
    mut visit: impl FnMut(StreamId, &[u8]) -> Outcome<bool>,
) -> Outcome {
    if from > to {
        return Ok(());
    }
    // What was trimmed need not be passed.
    let range = cx.keys.fronts().narrowed((stream.id, 0), keys(cx, stream).entries(from, to));
    cx.keys.writes().scan(&range, direction, |key, value| visit(StreamId::of_key(key), value))
}

/// Returns the entries from one id to another, up to `most`. Fails when they are longer than a reply may be.
pub(super) fn range(
    cx: &mut Context<'_, '_>,
    stream: &Stream,
    ids: (StreamId, StreamId),
    direction: Direction,
    most: u64,
) -> Outcome<Vec<Entry>> {
    let (mut found, mut bytes, room) = (Vec::new(), 0, cx.out.room());
    if most == 0 {
        return Ok(found);
    }
    each(cx, stream, ids, direction, |id, value| {
        // An entry takes less than its reply.
        bytes += value.len();
        if bytes > room {
            return Err(Failure::REPLY_TOO_LONG);
        }
        found.push((id, Bytes::copy_from_slice(value)));
        Ok((found.len() as u64) < most)
    })?;
    Ok(found)
}

/// The first entry in a direction.
pub(super) fn edge(cx: &mut Context<'_, '_>, stream: &Stream, direction: Direction) -> Outcome<Option<Entry>> {
    if stream.entries == 0 {
        return Ok(None);
    }
    Ok(range(cx, stream, (StreamId::LEAST, StreamId::MOST), direction, 1)?.pop())
}

/// The id of the first entry in a direction; the least one when there is none.
pub(super) fn edge_id(cx: &mut Context<'_, '_>, stream: &Stream, direction: Direction) -> Outcome<StreamId> {
    let mut edge = StreamId::LEAST;
    if stream.entries > 0 {
        each(cx, stream, (StreamId::LEAST, StreamId::MOST), direction, |id, _| {
            edge = id;
            Ok(false)
        })?;
    }
    Ok(edge)
}

/// Returns an entry, if it exists.
pub(super) fn get(cx: &mut Context<'_, '_>, stream: &Stream, id: StreamId) -> Outcome<Option<Bytes>> {
    let key = keys(cx, stream).entry(id);
    cx.keys.writes().get(&key)
}

/// Reads entries together, so that later reads find them.
pub(super) fn fetch(cx: &mut Context<'_, '_>, stream: &Stream, ids: impl Iterator<Item = StreamId>) -> Outcome {
    let keys = keys(cx, stream);
    cx.keys.writes().fetch(ids.map(|id| keys.entry(id)))
}

/// Deletes an entry that exists.
pub(super) fn delete(cx: &mut Context<'_, '_>, stream: &mut Stream, id: StreamId) {
    let key = keys(cx, stream).entry(id);
    cx.keys.writes().delete(key);
    stream.entries = stream.entries.saturating_sub(1);
}

/// Deletes the first entries: this many, of which `few` has the first ids, and `last` is the id of the last one.
pub(super) fn delete_first(
    cx: &mut Context<'_, '_>,
    stream: &mut Stream,
    few: &[StreamId],
    last: StreamId,
    count: u64,
) {
    match few {
        [first, ..] if count > FEW as u64 => {
            let range = keys(cx, stream).entries(*first, last);
            cx.keys.writes().delete_range(range);
            stream.entries = stream.entries.saturating_sub(count);
        }
        _ => few.iter().zip(0..count).for_each(|(id, _)| delete(cx, stream, *id)),
    }
}

/// Replies with an id.
pub(super) fn reply_id(cx: &mut Context<'_, '_>, id: StreamId) {
    cx.out.bulk(id.to_string());
}

/// Replies with an entry.
pub(super) fn reply(cx: &mut Context<'_, '_>, (id, value): Entry) -> Outcome {
    let words = streams::decode_entry(value)?;
    cx.out.array(2);
    reply_id(cx, id);
    cx.out.array(words.len());
    words.iter().for_each(|word| cx.out.bulk(word));
    Ok(())
}

/// Replies with entries.
pub(super) fn reply_all(cx: &mut Context<'_, '_>, entries: Vec<Entry>) -> Outcome {
    cx.out.array(entries.len());
    entries.into_iter().try_for_each(|entry| reply(cx, entry))
}
