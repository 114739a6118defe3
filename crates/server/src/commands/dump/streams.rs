//! Streams in a dump.
//!
//! Described in `docs/formats/redis-dump.md`.
//!
//! ```text
//!   count │ nodes: the first id as a string of 16 │ listpack
//!   entries │ last id │ 19 only: first id, largest deleted id, entries that were ever added
//!   count │ groups: name │ last id │ 19 only: entries read
//!           count │ pending: id 16 │ at 8 │ deliveries
//!           count │ consumers: name │ seen 8 │ count │ pending ids 16
//!
//!   listpack: entries │ deleted ones │ count │ fields │ 0
//!             for each: flags │ ms │ sequence, after the first id │ [count │] fields and values │ values before it
//!   flags:    1 deleted, 2 the fields are those above, so that only values follow
//! ```
//!
//! All numbers are lengths (see `reader`), except those with a number of bytes: ids are big-endian, times little-endian.
//! Written streams have up to a hundred entries a node, and no fields above.

use super::packed::{Listpack, Value, values};
use super::reader::{BAD, Reader, put_length, put_string};
use crate::commands::streams::whole::{WholeGroup, WholePending, WholeStream};
use crate::keyspace::failure::Outcome;
use crate::keyspace::streams::StreamId;
use bytes::Bytes;
use std::collections::BTreeSet;

/// A node ends when it has this many entries, or this many bytes of them.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 1 << 20;
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// An id, and fields with their values.
type Entry = (StreamId, Vec<Bytes>);

fn id_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.sequence)).to_be_bytes()
}

fn put_id(bytes: &mut Vec<u8>, id: StreamId) {
    put_length(bytes, id.ms);
    put_length(bytes, id.sequence);
}

/// Entries by node.
fn nodes(entries: &[Entry]) -> Vec<&[Entry]> {
    let (mut nodes, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, (_, words)) in entries.iter().enumerate() {
        if at - from >= NODE_ENTRIES || size >= NODE_BYTES {
            nodes.extend(entries.get(from..at));
            (from, size) = (at, 0);
        }
        size += words.iter().map(Bytes::len).sum::<usize>();
    }
    nodes.extend(entries.get(from..).filter(|last| !last.is_empty()));
    nodes
}

fn packed_node(node: &[Entry], first: StreamId) -> Vec<u8> {
    let mut pack = Listpack::new();
    [node.len() as i64, 0, 0, 0].into_iter().for_each(|number| pack.integer(number));
    for (id, words) in node {
        pack.integer(0);
        pack.integer(id.ms.wrapping_sub(first.ms) as i64);
        pack.integer(id.sequence.wrapping_sub(first.sequence) as i64);
        pack.integer(words.len() as i64 / 2);
        words.iter().for_each(|word| pack.text(word));
        pack.integer(words.len() as i64 + 4);
    }
    pack.into_bytes()
}

/// Writes a stream, with its type.
pub(super) fn write(stream: &WholeStream) -> Vec<u8> {
    let mut bytes = vec![19];
    let nodes = nodes(&stream.entries);
    put_length(&mut bytes, nodes.len() as u64);
    for node in nodes {
        let first = node.first().map_or(StreamId::LEAST, |(id, _)| *id);
        put_string(&mut bytes, &id_bytes(first));
        put_string(&mut bytes, &packed_node(node, first));
    }
    put_length(&mut bytes, stream.entries.len() as u64);
    put_id(&mut bytes, stream.last);
    put_id(&mut bytes, stream.entries.first().map_or(StreamId::LEAST, |(id, _)| *id));
    put_id(&mut bytes, stream.deleted);
    put_length(&mut bytes, stream.added);
    put_length(&mut bytes, stream.groups.len() as u64);
    for group in &stream.groups {
        put_string(&mut bytes, &group.name);
        put_id(&mut bytes, group.last);
        put_length(&mut bytes, group.read.unwrap_or(u64::MAX));
        put_length(&mut bytes, group.pending.len() as u64);
        for pending in &group.pending {
            bytes.extend_from_slice(&id_bytes(pending.id));
            bytes.extend_from_slice(&pending.at_ms.to_le_bytes());
            put_length(&mut bytes, pending.deliveries);
        }
        put_length(&mut bytes, group.consumers.len() as u64);
        let mut own = vec![Vec::new(); group.consumers.len()];
        for pending in &group.pending {
            if let Some(own) = own.get_mut(pending.consumer) {
                own.push(id_bytes(pending.id));
            }
        }
        for ((name, seen_ms), own) in group.consumers.iter().zip(own) {
            put_string(&mut bytes, name);
            bytes.extend_from_slice(&seen_ms.to_le_bytes());
            put_length(&mut bytes, own.len() as u64);
            own.iter().for_each(|id| bytes.extend_from_slice(id));
        }
    }
    bytes
}

fn raw_id(bytes: [u8; 16]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    StreamId { ms: (number >> 64) as u64, sequence: number as u64 }
}

fn id(reader: &mut Reader<'_>) -> Outcome<StreamId> {
    Ok(StreamId { ms: reader.length()?, sequence: reader.length()? })
}

/// Reads a stream of type 15 or 19.
pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Outcome<WholeStream> {
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..reader.count()? {
        let first = reader.string()?;
        let first = raw_id(first[..].try_into().map_err(|_| BAD)?);
        let values = values(&reader.string()?)?;
        reader.count_parts(values.len())?;
        node(values, first, &mut entries)?;
    }
    let count = reader.length()?;
    let last = id(reader)?;
    let is_in_order = entries.is_sorted_by(|a, b| a.0 < b.0) && entries.last().is_none_or(|(id, _)| *id <= last);
    if !is_in_order || count != entries.len() as u64 {
        return Err(BAD);
    }
    let is_old = kind == 15;
    let (mut deleted, mut added) = (StreamId::LEAST, count);
    if !is_old {
        id(reader)?;
        (deleted, added) = (id(reader)?, reader.length()?);
    }
    let (mut groups, mut names) = (Vec::new(), BTreeSet::new());
    for _ in 0..reader.count()? {
        let group = group(reader, is_old)?;
        if !names.insert(group.name.clone()) {
            return Err(BAD);
        }
        groups.push(group);
    }
    Ok(WholeStream { entries, last, deleted, added, groups })
}

/// Reads the entries of a node.
fn node(values: Vec<Value>, first: StreamId, entries: &mut Vec<Entry>) -> Outcome {
    let mut values = values.into_iter();
    let mut next = || values.next().ok_or(BAD);
    let number = |value: Outcome<Value>| value.and_then(|value| value.number());
    let size = |value: Outcome<Value>| number(value).and_then(|number| usize::try_from(number).map_err(|_| BAD));
    let (live, dead) = (size(next())?, size(next())?);
    let fields = (0..size(next())?).map(|_| next().map(Value::into_bytes)).collect::<Outcome<Vec<_>>>()?;
    next()?;
    let mut alive = 0;
    for _ in 0..live.checked_add(dead).ok_or(BAD)? {
        let flags = number(next())?;
        let (ms, sequence) = (number(next())? as u64, number(next())? as u64);
        let id = StreamId { ms: first.ms.wrapping_add(ms), sequence: first.sequence.wrapping_add(sequence) };
        let mut words = Vec::new();
        if flags & SAME_FIELDS != 0 {
            for field in &fields {
                words.extend([field.clone(), next()?.into_bytes()]);
            }
        } else {
            for _ in 0..size(next())? {
                words.extend([next()?.into_bytes(), next()?.into_bytes()]);
            }
        }
        next()?;
        if flags & DELETED == 0 {
            alive += 1;
            entries.push((id, words));
        }
    }
    if alive == live && values.next().is_none() { Ok(()) } else { Err(BAD) }
}

fn group(reader: &mut Reader<'_>, is_old: bool) -> Outcome<WholeGroup> {
    let (name, last) = (reader.string()?, id(reader)?);
    let read = if is_old { None } else { Some(reader.length()?).filter(|&read| read != u64::MAX) };
    let mut times = std::collections::BTreeMap::new();
    for _ in 0..reader.count()? {
        let (id, at_ms) = (raw_id(reader.array()?), u64::from_le_bytes(reader.array()?));
        if times.insert(id, (at_ms, reader.length()?)).is_some() {
            return Err(BAD);
        }
    }
    let (mut consumers, mut pending): (Vec<(Bytes, u64)>, Vec<WholePending>) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for consumer in 0..reader.count()? {
        let (name, seen_ms) = (reader.string()?, u64::from_le_bytes(reader.array()?));
        if !names.insert(name.clone()) {
            return Err(BAD);
        }
        consumers.push((name, seen_ms));
        for _ in 0..reader.count()? {
            let id = raw_id(reader.array()?);
            // A pending entry has one consumer.
            let (at_ms, deliveries) = times.remove(&id).ok_or(BAD)?;
            pending.push(WholePending { id, at_ms, deliveries, consumer });
        }
    }
    pending.sort_unstable_by_key(|pending| pending.id);
    if times.is_empty() { Ok(WholeGroup { name, last, read, consumers, pending }) } else { Err(BAD) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dump::reader::MAX_PARTS;
    use proptest::prelude::*;

    fn id(ms: u64, sequence: u64) -> StreamId {
        StreamId { ms, sequence }
    }

    #[test]
    fn streams_survive() {
        let words = |count: usize| vec![Bytes::from_static(b"word"); count];
        let entries: Vec<_> =
            (0..250).map(|number| (id(5 + number / 9, number % 9), words(2 + 2 * (number as usize % 3)))).collect();
        let pending = |number, consumer| WholePending { id: id(1, number), at_ms: 7, deliveries: 3, consumer };
        let group = WholeGroup {
            name: Bytes::from_static(b"g"),
            last: id(8, 1),
            read: None,
            consumers: vec![(Bytes::from_static(b"a"), 5), (Bytes::from_static(b"b"), 6)],
            pending: vec![pending(1, 1), pending(2, 0), pending(3, 1)],
        };
        let stream = WholeStream { entries, last: id(99, 9), deleted: id(3, 1), added: 300, groups: vec![group] };
        let bytes = write(&stream);
        let mut reader = Reader::new(&bytes[1..]);
        assert_eq!(read(19, &mut reader).unwrap(), stream);
        assert!(reader.0.is_empty());
        for at in 1..bytes.len() {
            assert!(read(19, &mut Reader::new(&bytes[1..at])).is_err(), "{at}");
        }
        // Its words are counted.
        let mut reader = Reader::new(&bytes[1..]);
        reader.count_parts(MAX_PARTS - 1000).unwrap();
        assert!(read(19, &mut reader).is_err());
    }

    /// To compare each of them with all others, or with all pending entries, would take minutes.
    #[test]
    fn many_consumers_are_told_apart() {
        let mut consumers: Vec<(Bytes, u64)> =
            (0..200_000).map(|number| (Bytes::from(format!("{number:06}")), 5)).collect();
        let stream = |consumers: &[(Bytes, u64)]| {
            let (name, consumers) = (Bytes::from_static(b"g"), consumers.to_vec());
            let pending = |(consumer, place)| WholePending { id: id(1, place), at_ms: 7, deliveries: 1, consumer };
            let pending = (0..consumers.len()).zip(0..).map(pending).collect();
            let group = WholeGroup { name, last: id(1, 0), read: None, consumers, pending };
            WholeStream { entries: Vec::new(), last: id(1, 0), deleted: id(0, 0), added: 0, groups: vec![group] }
        };
        let whole = stream(&consumers);
        assert!(read(19, &mut Reader::new(&write(&whole)[1..])).unwrap() == whole);
        consumers.push(consumers[7].clone());
        assert!(read(19, &mut Reader::new(&write(&stream(&consumers))[1..])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_stream_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = read(19, &mut Reader::new(&bytes));
            let _ = values(&bytes).and_then(|values| node(values, StreamId::LEAST, &mut Vec::new()));
        }
    }
}
