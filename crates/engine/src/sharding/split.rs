//! A batch divided among shards.

use crate::terms::Result;
use crate::terms::routing::{KeyRange, Routing};
use crate::write::batch::{Write, WriteBatch, Writes, check_bytes};
use crate::write::condition::Condition;
use forebay_base::{CrossingMark, Kind, Record, SequenceNumber};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// The writes of a batch that go to one shard, in their order.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) shard: usize,
    /// The batch's conditions on keys of the shard.
    pub(crate) conditions: Vec<&'a Condition>,
    writes: Vec<Write<'a>>,
    bytes: u64,
    /// The mark that the part begins with, if it has one. Its bytes are known when all parts of the batch have their numbers.
    mark: Option<OnceCell<Vec<u8>>>,
}

/// The shard that the whole batch goes to; `None` if there are several. An empty batch goes to the
/// first shard.
pub(crate) fn sole_owner(batch: &WriteBatch, routing: &Routing) -> Result<Option<usize>> {
    let mut sole = None;
    for write in batch.iter() {
        let owners = owners(write?, routing);
        if owners.len() != 1 || sole.is_some_and(|sole| sole != owners.start) {
            return Ok(None);
        }
        sole = Some(owners.start);
    }
    Ok(Some(sole.unwrap_or(0)))
}

fn owners(write: Write<'_>, routing: &Routing) -> Range<usize> {
    match write.kind {
        Kind::RangeDelete => routing.owners(KeyRange { lower: Some(write.key), upper: Some(write.value) }),
        _ => {
            let owner = routing.owner(write.key);
            owner..owner + 1
        }
    }
}

/// Divides a checked batch and its conditions, in the order of the shards. Range deletions are cut at the bounds.
pub(crate) fn split<'a>(batch: &'a WriteBatch, routing: &'a Routing) -> Result<Vec<Part<'a>>> {
    let mut parts: BTreeMap<usize, Part<'a>> = BTreeMap::new();
    let empty = |shard| Part { shard, conditions: Vec::new(), writes: Vec::new(), bytes: 0, mark: None };
    for condition in batch.conditions() {
        let owner = routing.owner(&condition.key);
        parts.entry(owner).or_insert_with(|| empty(owner)).conditions.push(condition);
    }
    let mut add = |shard: usize, write: Write<'a>| {
        let part = parts.entry(shard).or_insert_with(|| empty(shard));
        part.bytes += write.encoded_length() as u64;
        part.writes.push(write);
    };
    for write in batch.iter() {
        let write = write?;
        let owners = owners(write, routing);
        if write.kind != Kind::RangeDelete || owners.len() == 1 {
            add(owners.start, write);
            continue;
        }
        let whole = KeyRange { lower: Some(write.key), upper: Some(write.value) };
        for shard in owners {
            let cut = routing.range(shard).and_then(|range| range.intersection(routing.order(), whole));
            if let Some(KeyRange { lower: Some(key), upper: Some(value) }) = cut {
                add(shard, Write { kind: Kind::RangeDelete, key, value, expiry_ms: None });
            }
        }
    }
    Ok(parts.into_values().collect())
}

/// Lets the parts of a batch begin with marks, if there are several.
pub(crate) fn begin_with_marks(parts: &mut [Part<'_>]) {
    let count = parts.len();
    if count > 1 {
        parts.iter_mut().for_each(|part| part.begin_with_mark(count));
    }
}

/// Sets the marks of parts whose first numbers are `first`.
pub(crate) fn set_marks(parts: &[Part<'_>], first: &[SequenceNumber]) {
    if !parts.iter().any(|part| part.mark.is_some()) {
        return;
    }
    let last = |(part, first): (&Part<'_>, &SequenceNumber)| {
        (part.shard as u32, SequenceNumber(first.0 + part.count().saturating_sub(1)))
    };
    let bytes = CrossingMark { parts: parts.iter().zip(first).map(last).collect() }.encode();
    for mark in parts.iter().filter_map(|part| part.mark.as_ref()) {
        mark.get_or_init(|| bytes.clone());
    }
}

/// Gives the marks of parts that will not be written their lengths, unless they are set.
pub(crate) fn set_empty_marks(parts: &[Part<'_>]) {
    set_marks(parts, &vec![SequenceNumber::ZERO; parts.len()]);
}

impl Part<'_> {
    /// Gives a part that only asks a write that does nothing, and with it a place in the order of the shard's writes.
    pub(crate) fn write_something(&mut self) {
        if self.writes.is_empty() {
            let nothing = Write { kind: Kind::Nothing, key: &[], value: &[], expiry_ms: None };
            self.bytes = nothing.encoded_length() as u64;
            self.writes.push(nothing);
        }
    }

    /// Whether the part begins with a mark.
    pub(crate) const fn is_marked(&self) -> bool {
        self.mark.is_some()
    }

    /// Lets the part begin with a mark of a batch of `parts` parts.
    fn begin_with_mark(&mut self, parts: usize) {
        let length = CrossingMark::encoded_length(parts);
        self.bytes += Record::encoded_length(0, length, false) as u64;
        self.mark = Some(OnceCell::new());
    }

    /// Checks the length against the largest piece that the shard's memory node can hold.
    pub(crate) fn check_bytes(&self, max_bytes: u64) -> Result<()> {
        check_bytes(self.bytes, max_bytes)
    }
}

impl Writes for Part<'_> {
    fn count(&self) -> u64 {
        self.writes.len() as u64 + u64::from(self.mark.is_some())
    }

    fn record_bytes(&self) -> u64 {
        self.bytes
    }

    fn for_each(&self, mut sink: impl FnMut(Write<'_>) -> Result<()>) -> Result<()> {
        if let Some(mark) = &self.mark {
            let value = mark.get().map_or(&[][..], Vec::as_slice);
            sink(Write { kind: Kind::Crossing, key: &[], value, expiry_ms: None })?;
        }
        self.writes.iter().copied().try_for_each(sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::KeyOrder;

    fn routing() -> Routing {
        Routing::new(KeyOrder::Bytewise, 4, vec![b"g".to_vec(), b"n".to_vec(), b"t".to_vec()]).unwrap()
    }

    #[test]
    fn writes_go_to_their_shards_in_order() {
        let routing = routing();
        let mut batch = WriteBatch::new();
        batch.put(b"p", b"1").put(b"a", b"2").delete(b"p").put(b"g", b"3");
        let parts = split(&batch, &routing).unwrap();
        let keys: Vec<_> = parts.iter().map(|part| (part.shard, part.writes.iter().map(|w| w.key).collect())).collect();
        let expected: Vec<(_, Vec<&[u8]>)> = vec![(0, vec![b"a"]), (1, vec![b"g"]), (2, vec![b"p", b"p"])];
        assert_eq!(keys, expected);
        assert_eq!(parts.iter().map(Writes::record_bytes).sum::<u64>(), batch.record_bytes());
        assert_eq!(sole_owner(&batch, &routing).unwrap(), None);
    }

    /// Otherwise a shard without memory for anything but deletions would refuse the whole batch.
    #[test]
    fn a_part_that_only_asks_takes_no_more_room_than_one_that_deletes() {
        let routing = routing();
        let mut batch = WriteBatch::new();
        batch.delete(b"a").require_present(b"p");
        let frees = |batch: &WriteBatch| {
            let mut parts = split(batch, &routing).unwrap();
            parts.iter_mut().for_each(Part::write_something);
            parts.iter().map(Writes::frees).collect::<Vec<_>>()
        };
        assert_eq!(frees(&batch), [true, true]);
        batch.put(b"b", b"");
        assert_eq!(frees(&batch), [false, true]);
    }

    /// Otherwise a part would leave a hole in its memtable.
    #[test]
    fn parts_that_are_not_written_take_their_bytes() {
        let routing = routing();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete_range(b"h", b"t").put(b"p", b"2");
        let mut parts = split(&batch, &routing).unwrap();
        begin_with_marks(&mut parts);
        set_empty_marks(&parts);
        for part in &parts {
            let (mut count, mut bytes) = (0, 0);
            let add = |write: Write<'_>| {
                count += 1;
                bytes += write.encoded_length() as u64;
                Ok(())
            };
            part.for_each(add).unwrap();
            assert_eq!((count, bytes), (part.count(), part.record_bytes()));
        }
    }

    #[test]
    fn range_deletions_are_cut() {
        let routing = routing();
        let mut batch = WriteBatch::new();
        batch.delete_range(b"h", b"t");
        let parts = split(&batch, &routing).unwrap();
        let ranges: Vec<_> = parts.iter().map(|part| (part.shard, part.writes[0].key, part.writes[0].value)).collect();
        let expected: Vec<(_, &[u8], &[u8])> = vec![(1, b"h", b"n"), (2, b"n", b"t")];
        assert_eq!(ranges, expected);
        batch.clear();
        batch.delete_range(b"g", b"n").put(b"g", b"");
        assert_eq!(sole_owner(&batch, &routing).unwrap(), Some(1));
    }
}
