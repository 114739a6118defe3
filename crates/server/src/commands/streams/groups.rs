//! Groups, their consumers, and pending entries.

use super::entries;
use crate::commands::command::Context;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Stream;
use crate::keyspace::streams::{self, Consumer, Group, Pending, StreamId, StreamKeys};
use crate::keyspace::writes::Direction;
use crate::text::shown;
use bytes::Bytes;

/// The least id of an entry.
const FIRST: StreamId = StreamId { ms: 0, sequence: 1 };

/// A group that a command reads or changes.
pub(super) struct Open {
    keys: StreamKeys,
    name: Bytes,
    former: Option<Group>,
    /// The group as it will be.
    pub(super) now: Group,
}

/// The error for a missing group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (shown::short(key, 128), shown::short(group, 128));
    Failure::new(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

impl Open {
    /// The group of a name.
    pub(super) fn find(cx: &mut Context<'_, '_>, stream: &Stream, name: &[u8]) -> Outcome<Option<Self>> {
        let keys = entries::keys(cx, stream);
        let Some(bytes) = cx.keys.writes().get(&keys.group(name))? else { return Ok(None) };
        let now = Group::decode(&bytes)?;
        Ok(Some(Self { keys, name: Bytes::copy_from_slice(name), former: Some(now), now }))
    }

    /// Makes a group that does not exist yet.
    pub(super) fn new(
        cx: &mut Context<'_, '_>,
        stream: &Stream,
        name: &[u8],
        last: StreamId,
        read: Option<u64>,
    ) -> Outcome<Self> {
        let now = Group { number: cx.keys.new_id()?, last, read, pending: 0 };
        Ok(Self { keys: entries::keys(cx, stream), name: Bytes::copy_from_slice(name), former: None, now })
    }

    /// Writes the group if it has changed.
    pub(super) fn save(self, cx: &mut Context<'_, '_>) {
        if self.former != Some(self.now) {
            cx.keys.writes().put(self.keys.group(&self.name), self.now.encode());
        }
    }

    /// Removes the group with everything that belongs to it.
    pub(super) fn destroy(self, cx: &mut Context<'_, '_>) -> Outcome {
        // Each pending entry has two records.
        cx.keys.reads().take_removal(self.now.pending.saturating_mul(2))?;
        cx.keys.writes().delete(self.keys.group(&self.name));
        self.keys.of_group(self.now.number).into_iter().try_for_each(|range| cx.keys.remove_range(range))
    }

    /// Returns a consumer, if it exists.
    pub(super) fn consumer(&self, cx: &mut Context<'_, '_>, name: &[u8]) -> Outcome<Option<Consumer>> {
        let bytes = cx.keys.writes().get(&self.keys.consumer(self.now.number, name))?;
        bytes.map(|bytes| Consumer::decode(&bytes)).transpose()
    }

    fn put_consumer(&self, cx: &mut Context<'_, '_>, name: &[u8], consumer: &Consumer) {
        cx.keys.writes().put(self.keys.consumer(self.now.number, name), consumer.encode());
    }

    /// Adds a consumer unless it exists. Returns true when it did not.
    pub(super) fn add_consumer(&self, cx: &mut Context<'_, '_>, key: &[u8], name: &[u8]) -> Outcome<bool> {
        let is_new = self.consumer(cx, name)?.is_none();
        if is_new {
            let now_ms = cx.keys.now_ms();
            self.see_consumer(cx, key, name, now_ms)?;
        }
        Ok(is_new)
    }

    /// Records that a consumer asks for something at a time, for the stream at a key. A new consumer is an event.
    pub(super) fn see_consumer(
        &self,
        cx: &mut Context<'_, '_>,
        key: &[u8],
        name: &[u8],
        seen_ms: u64,
    ) -> Outcome<Consumer> {
        let former = self.consumer(cx, name)?;
        let consumer = match former {
            Some(consumer) => Consumer { seen_ms, ..consumer },
            None => {
                crate::commands::collections::check_element(&cx.shared.store, name)?;
                Consumer { number: cx.keys.new_id()?, seen_ms, pending: 0 }
            }
        };
        self.put_consumer(cx, name, &consumer);
        if former.is_none() {
            cx.notify(Class::STREAM, "xgroup-createconsumer", key);
        }
        Ok(consumer)
    }

    /// Removes a consumer with its pending entries, and returns how many these were; `None` when there is no such
    /// consumer.
    pub(super) fn remove_consumer(&mut self, cx: &mut Context<'_, '_>, name: &[u8]) -> Outcome<Option<u64>> {
        let Some(consumer) = self.consumer(cx, name)? else { return Ok(None) };
        let all = (StreamId::LEAST, StreamId::MOST);
        let ids = self.own_pending(cx, &consumer, all, u64::MAX)?;
        cx.keys.reads().take_removal((ids.len() as u64).saturating_mul(2))?;
        if !ids.is_empty() {
            cx.keys.remove_range(self.keys.all_own_pending(self.now.number, consumer.number, all.0, all.1))?;
        }
        // Those of other consumers are between them.
        for id in ids {
            self.remove_pending(cx, id);
            cx.keys.check_size()?;
        }
        cx.keys.writes().delete(self.keys.consumer(self.now.number, name));
        self.now.pending = self.now.pending.saturating_sub(consumer.pending);
        Ok(Some(consumer.pending))
    }

    /// Passes all consumers, with their names, to `visit`.
    pub(super) fn each_consumer(
        &self,
        cx: &mut Context<'_, '_>,
        mut visit: impl FnMut(&[u8], Consumer) -> Outcome,
    ) -> Outcome {
        cx.keys.writes().scan(&self.keys.consumers(self.now.number), Direction::Forward, |key, value| {
            visit(streams::consumer_name(key), Consumer::decode(value)?)?;
            Ok(true)
        })
    }

    /// Returns consumers with their names, for a reply: those for which `least_bytes` says how many bytes the name
    /// takes there, at least. Fails when the reply would be too long.
    pub(super) fn consumers(
        &self,
        cx: &mut Context<'_, '_>,
        least_bytes: impl Fn(&[u8], &Consumer) -> Option<usize>,
    ) -> Outcome<Vec<(Bytes, Consumer)>> {
        let (mut found, mut bytes, room) = (Vec::new(), 0, cx.out.room());
        self.each_consumer(cx, |name, consumer| {
            let Some(least) = least_bytes(name, &consumer) else { return Ok(()) };
            bytes += least;
            if bytes > room {
                return Err(Failure::REPLY_TOO_LONG);
            }
            found.push((Bytes::copy_from_slice(name), consumer));
            Ok(())
        })?;
        Ok(found)
    }

    /// A pending entry.
    pub(super) fn pending(&self, cx: &mut Context<'_, '_>, id: StreamId) -> Outcome<Option<Pending>> {
        let bytes = cx.keys.writes().get(&self.keys.pending(self.now.number, id))?;
        bytes.map(|bytes| Pending::decode(&bytes)).transpose()
    }

    /// Reads pending entries together, so that later reads find them.
    pub(super) fn fetch_pending(&self, cx: &mut Context<'_, '_>, ids: impl Iterator<Item = StreamId>) -> Outcome {
        cx.keys.writes().fetch(ids.map(|id| self.keys.pending(self.now.number, id)))
    }

    /// Passes pending entries in a direction to `visit` until it returns false.
    pub(super) fn each_pending(
        &self,
        cx: &mut Context<'_, '_>,
        (from, to): (StreamId, StreamId),
        direction: Direction,
        mut visit: impl FnMut(StreamId, Pending) -> bool,
    ) -> Outcome {
        if self.now.pending == 0 {
            return Ok(());
        }
        let range = self.keys.all_pending(self.now.number, from, to);
        cx.keys.scan((self.keys.id, self.now.number), &range, direction, |key, value| {
            Ok(visit(StreamId::of_key(key), Pending::decode(value)?))
        })
    }

    /// Returns a consumer's pending entries from one id to another, up to `most`.
    pub(super) fn own_pending(
        &self,
        cx: &mut Context<'_, '_>,
        consumer: &Consumer,
        (from, to): (StreamId, StreamId),
        most: u64,
    ) -> Outcome<Vec<StreamId>> {
        let mut found = Vec::new();
        if consumer.pending == 0 {
            return Ok(found);
        }
        let range = self.keys.all_own_pending(self.now.number, consumer.number, from, to);
        cx.keys.scan((self.keys.id, consumer.number), &range, Direction::Forward, |key, _| {
            found.push(StreamId::of_key(key));
            Ok((found.len() as u64) < most)
        })?;
        Ok(found)
    }

    /// Makes an entry pending, or changes who has it.
    pub(super) fn assign(
        &mut self,
        cx: &mut Context<'_, '_>,
        id: StreamId,
        former: Option<&Pending>,
        now: &Pending,
    ) -> Outcome {
        if former.map(|former| former.consumer) != Some(now.consumer) {
            match former {
                Some(former) => self.take_from(cx, id, former)?,
                None => {
                    self.now.pending += 1;
                    cx.keys.fronts().widen((self.keys.id, self.now.number), &self.keys.pending(self.now.number, id));
                }
            }
            if let Some(consumer) = self.consumer(cx, &now.name)? {
                self.put_consumer(cx, &now.name, &Consumer { pending: consumer.pending + 1, ..consumer });
            }
            let own = self.keys.own_pending(self.now.number, now.consumer, id);
            cx.keys.fronts().widen((self.keys.id, now.consumer), &own);
            cx.keys.writes().put(own, Bytes::new());
        }
        cx.keys.writes().put(self.keys.pending(self.now.number, id), now.encode());
        cx.keys.check_size()
    }

    /// Makes an entry no longer pending.
    pub(super) fn release(&mut self, cx: &mut Context<'_, '_>, id: StreamId, former: &Pending) -> Outcome {
        self.remove_pending(cx, id);
        self.now.pending = self.now.pending.saturating_sub(1);
        self.take_from(cx, id, former)
    }

    fn remove_pending(&self, cx: &mut Context<'_, '_>, id: StreamId) {
        let (keys, group) = (self.keys, self.now.number);
        cx.keys.writes().delete(keys.pending(group, id));
        cx.keys.fronts().remember((keys.id, group), || keys.all_pending(group, FIRST, StreamId::MOST));
    }

    fn take_from(&self, cx: &mut Context<'_, '_>, id: StreamId, former: &Pending) -> Outcome {
        let (keys, group, consumer) = (self.keys, self.now.number, former.consumer);
        cx.keys.writes().delete(keys.own_pending(group, consumer, id));
        let whole = || keys.all_own_pending(group, consumer, FIRST, StreamId::MOST);
        cx.keys.fronts().remember((keys.id, consumer), whole);
        if let Some(consumer) = self.consumer(cx, &former.name)? {
            let pending = consumer.pending.saturating_sub(1);
            self.put_consumer(cx, &former.name, &Consumer { pending, ..consumer });
        }
        cx.keys.check_size()
    }
}

/// Returns all groups of a stream with their names, for a reply in which names take at least as many bytes as
/// `least_bytes` says. Fails when the reply would be too long.
pub(super) fn all(
    cx: &mut Context<'_, '_>,
    stream: &Stream,
    least_bytes: impl Fn(&[u8]) -> usize,
) -> Outcome<Vec<(Bytes, Open)>> {
    let keys = entries::keys(cx, stream);
    let (mut found, mut bytes, room) = (Vec::new(), 0, cx.out.room());
    cx.keys.writes().scan(&keys.groups(), Direction::Forward, |key, value| {
        let name = streams::group_name(key);
        bytes += least_bytes(name);
        if bytes > room {
            return Err(Failure::REPLY_TOO_LONG);
        }
        let (name, now) = (Bytes::copy_from_slice(name), Group::decode(value)?);
        found.push((name.clone(), Open { keys, name, former: Some(now), now }));
        Ok(true)
    })?;
    Ok(found)
}

/// Number of groups of a stream.
pub(super) fn count(cx: &mut Context<'_, '_>, stream: &Stream) -> Outcome<u64> {
    let (range, mut count) = (entries::keys(cx, stream).groups(), 0);
    cx.keys.writes().scan(&range, Direction::Forward, |_, _| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}
