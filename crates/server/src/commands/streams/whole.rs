//! All of a stream, as one value in memory, to move it to another server.

use super::basic::new_stream;
use super::entries;
use super::groups;
use crate::commands::collections::check_element;
use crate::commands::command::Context;
use crate::keyspace::building::NewElements;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{self, Consumer, Group, Pending, StreamId, StreamKeys};
use crate::keyspace::writes::Direction;
use crate::text::number;
use bytes::Bytes;

/// The longest text of an integer, in bytes.
const MAX_INTEGER_BYTES: usize = 20;
/// Bytes of a pending entry in a dump, at least: its id, which occurs twice, and a time.
const PENDING_BYTES: usize = 2 * 16 + 8;

/// Returns how many bytes a word takes in a dump, at least. Integers are packed there.
fn least_bytes(word: &[u8]) -> usize {
    let is_integer = word.len() <= MAX_INTEGER_BYTES && number::integer(word).is_some();
    if is_integer { 1 } else { word.len() }
}

/// An entry that is pending for a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WholePending {
    pub(crate) id: StreamId,
    pub(crate) at_ms: u64,
    pub(crate) deliveries: u64,
    /// The place of the consumer among those of the group.
    pub(crate) consumer: usize,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WholeGroup {
    pub(crate) name: Bytes,
    pub(crate) last: StreamId,
    pub(crate) read: Option<u64>,
    /// Names, and when they last asked for something.
    pub(crate) consumers: Vec<(Bytes, u64)>,
    /// Pending entries, in the order of ids.
    pub(crate) pending: Vec<WholePending>,
}

impl WholeGroup {
    /// Adds the group to the elements of a new stream.
    fn add_to(self, cx: &mut Context<'_, '_>, keys: StreamKeys, elements: &mut NewElements<'_>) -> Outcome {
        check_element(&cx.shared.store, &self.name)?;
        let number = cx.keys.new_id()?;
        let mut consumers = Vec::with_capacity(self.consumers.len());
        for (name, seen_ms) in self.consumers {
            check_element(&cx.shared.store, &name)?;
            consumers.push((name, Consumer { number: cx.keys.new_id()?, seen_ms, pending: 0 }));
        }
        for WholePending { id, at_ms, deliveries, consumer } in self.pending {
            let Some((name, consumer)) = consumers.get_mut(consumer) else { continue };
            consumer.pending += 1;
            let pending = Pending { consumer: consumer.number, at_ms, deliveries, name: name.clone() };
            elements.add(keys.pending(number, id), pending.encode())?;
            elements.add(keys.own_pending(number, consumer.number, id), Bytes::new())?;
        }
        let pending = consumers.iter().map(|(_, consumer)| consumer.pending).sum();
        for (name, consumer) in consumers {
            elements.add(keys.consumer(number, &name), consumer.encode())?;
        }
        let group = Group { number, last: self.last, read: self.read, pending };
        elements.add(keys.group(&self.name), group.encode())
    }
}

/// All of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WholeStream {
    /// Ids with fields and values.
    pub(crate) entries: Vec<(StreamId, Vec<Bytes>)>,
    pub(crate) last: StreamId,
    pub(crate) deleted: StreamId,
    pub(crate) added: u64,
    pub(crate) groups: Vec<WholeGroup>,
}

impl WholeStream {
    /// Number of its entries, and of what belongs to its groups.
    pub(crate) fn elements(&self) -> u64 {
        let of_groups: usize = self.groups.iter().map(|group| group.consumers.len() + group.pending.len()).sum();
        (self.entries.len() + of_groups) as u64
    }

    /// All of a stream. Fails when its dump would be longer than a reply may be.
    pub(crate) fn read(cx: &mut Context<'_, '_>, stream: &Stream) -> Outcome<Self> {
        let (mut entries, mut bytes, room) = (Vec::new(), 0, cx.out.room());
        entries::each(cx, stream, (StreamId::LEAST, StreamId::MOST), Direction::Forward, |id, value| {
            let words = streams::decode_entry(Bytes::copy_from_slice(value))?;
            bytes += words.iter().map(|word| least_bytes(word)).sum::<usize>();
            if bytes > room {
                return Err(Failure::REPLY_TOO_LONG);
            }
            entries.push((id, words));
            Ok(true)
        })?;
        let mut groups = Vec::new();
        for (name, group) in groups::all(cx, stream, least_bytes)? {
            let consumers = group.consumers(cx, |name, _| Some(least_bytes(name)))?;
            let mut pending = Vec::new();
            group.each_pending(cx, (StreamId::LEAST, StreamId::MOST), Direction::Forward, |id, of| {
                // Consumers come in the order of their names.
                let place = consumers.binary_search_by(|(name, _)| name.cmp(&of.name)).ok();
                pending.extend(place.map(|consumer| WholePending {
                    id,
                    at_ms: of.at_ms,
                    deliveries: of.deliveries,
                    consumer,
                }));
                bytes += PENDING_BYTES;
                bytes <= room
            })?;
            if bytes > room {
                return Err(Failure::REPLY_TOO_LONG);
            }
            let consumers = consumers.into_iter().map(|(name, consumer)| (name, consumer.seen_ms)).collect();
            groups.push(WholeGroup { name, last: group.now.last, read: group.now.read, consumers, pending });
        }
        Ok(Self { entries, last: stream.last, deleted: stream.deleted, added: stream.added, groups })
    }

    /// Replaces what a key holds. The key does not expire then.
    pub(crate) fn write(self, cx: &mut Context<'_, '_>, key: &[u8]) -> Outcome {
        let (space, mut stream) = (cx.space(), new_stream(cx)?);
        let (keys, mut elements) = (entries::keys(cx, &stream), cx.keys.new_elements(space, stream.id));
        for (id, words) in &self.entries {
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            elements.add(keys.entry(*id), streams::encode_entry(&words))?;
        }
        stream = Stream {
            entries: self.entries.len() as u64,
            last: self.last,
            deleted: self.deleted,
            added: self.added,
            ..stream
        };
        for group in self.groups {
            group.add_to(cx, keys, &mut elements)?;
        }
        cx.keys.adopt(elements);
        cx.keys.set_stream(space, key, stream)
    }
}
