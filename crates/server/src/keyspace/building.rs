//! Elements of a collection that does not exist yet.
//!
//! ```text
//!   elements ─► batches of a megabyte, under an id that no header names ─► the run's own batch: the last elements, the header
//! ```
//!
//! No command looks for elements under an id that no header names. So the elements of a new collection need not be in
//! one batch with its header: the run's batch, which has the header, makes all of them visible at once. The first batch
//! of elements also writes a record that names the id, and the run's batch removes this record. When the store is
//! opened, elements of ids that are still named are removed: a process has ended before the header was written.
//!
//! `docs/formats/redis-keys.md` describes the record. A run whose steps are bounded is short, and writes one batch. So does
//! a run that has emptied the space, because its batch removes all that was written there before.

use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::{self, Range, Space};
use crate::records::batch::Batch;
use crate::records::direction::Direction;
use crate::records::store::Records;
use bytes::{BufMut, Bytes, BytesMut};

/// A batch of elements has about this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// What an element costs beside its bytes.
const ELEMENT_BYTES: usize = 64;
/// The beginning of the names of records that name collections. The space and the id follow.
const PREFIX: &str = "new:";
const END: &str = "new;";

/// Elements of a collection that does not exist yet. Written elements are removed when this is dropped.
#[derive(Debug)]
pub struct NewElements<'s> {
    written: Begun<'s>,
    batches: bool,
    elements: Vec<(Bytes, Bytes)>,
    bytes: usize,
    most_bytes: usize,
}

/// What was written of a collection that does not exist yet. It is removed when this is dropped before the collection
/// exists.
#[derive(Debug)]
pub struct Begun<'s> {
    store: &'s Records,
    space: Space,
    id: u64,
    is_begun: bool,
}

impl<'s> NewElements<'s> {
    /// Begins a collection with this new id and no elements yet. Elements are written in batches, or else held, up to
    /// `most_bytes`.
    #[must_use]
    pub const fn new(store: &'s Records, space: Space, id: u64, batches: bool, most_bytes: usize) -> Self {
        let written = Begun { store, space, id, is_begun: false };
        Self { written, batches, elements: Vec::new(), bytes: 0, most_bytes }
    }

    /// Adds an element that was not added before, by its key in the engine.
    ///
    /// # Errors
    /// Those of the database; when more is held than one batch may be.
    pub fn add(&mut self, key: Bytes, value: Bytes) -> Outcome {
        self.bytes += ELEMENT_BYTES + key.len() + value.len();
        self.elements.push((key, value));
        if self.batches && self.bytes >= BATCH_BYTES {
            return self.write();
        }
        if self.bytes > self.most_bytes { Err(Failure::too_much_written()) } else { Ok(()) }
    }

    fn write(&mut self) -> Outcome {
        let mut batch = self.written.store.batch();
        if !self.written.is_begun {
            batch.put(&record(self.written.space, self.written.id), b"");
        }
        for (key, value) in self.elements.drain(..) {
            batch.put(&key, &value);
        }
        self.bytes = 0;
        // A batch that is not durable may still be in the store.
        self.written.is_begun = true;
        let Begun { store, space, id, .. } = self.written;
        store.write(&batch)?;
        // Removing the elements here, bit by bit, is better than all at once in a command that others wait for.
        let (from, to) = layout::elements(space, id);
        Ok(store.settle(&from, &to)?)
    }

    /// Returns what was written, and what was not.
    pub(super) fn into_parts(self) -> (Begun<'s>, Vec<(Bytes, Bytes)>) {
        (self.written, self.elements)
    }
}

impl Begun<'_> {
    /// Adds what the batch with the header must also write.
    pub(super) fn add_to(&self, batch: &mut Batch) {
        if self.is_begun {
            batch.delete(&record(self.space, self.id));
        }
    }

    /// Records that the collection exists.
    pub(super) const fn end(&mut self) {
        self.is_begun = false;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.is_begun
            && let Err(error) = remove(self.store, self.space, self.id)
        {
            // The next opening of the store removes them.
            tracing::warn!(%error, "removing elements of a collection that did not come to be");
        }
    }
}

fn record(space: Space, id: u64) -> Bytes {
    let name = layout::server_record(PREFIX);
    let mut bytes = BytesMut::with_capacity(name.len() + 9);
    bytes.put_slice(&name);
    bytes.put_u8(space);
    bytes.put_u64(id);
    bytes.freeze()
}

/// The collection that a record names.
fn named(record: &[u8]) -> Option<(Space, u64)> {
    let rest = record.strip_prefix(&layout::server_record(PREFIX)[..])?;
    let (space, id) = rest.split_first()?;
    Some((*space, u64::from_be_bytes(id.try_into().ok()?)))
}

fn remove(store: &Records, space: Space, id: u64) -> Result<(), forebay::Error> {
    let (mut batch, (from, to)) = (store.batch(), layout::elements(space, id));
    batch.delete_range(&from, &to);
    batch.delete(&record(space, id));
    store.write(&batch)
}

/// Removes what is left of collections that were never completed, before the store is used.
///
/// # Errors
/// Those of the database; when a record is damaged.
pub fn remove_left(store: &Records) -> Outcome {
    let range: Range = (layout::server_record(PREFIX), layout::server_record(END));
    let mut records = store.scan(&range.0, &range.1, Direction::Forward)?;
    while records.valid() {
        let damaged = || Failure::damaged("the record of a new collection is damaged");
        let (space, id) = named(records.key()).ok_or_else(damaged)?;
        remove(store, space, id)?;
        records.step()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::events::Wanted;
    use crate::keyspace::header::{Collection, Content, Header, Kind};
    use crate::keyspace::spaces::Spaces;
    use crate::keyspace::transaction::Transaction;
    use crate::records::testing::on_each_engine;

    #[test]
    fn golden_bytes_of_the_record_of_a_new_collection() {
        let bytes = record(3, 0x0102);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((hex.as_str(), named(&bytes)), ("016e65773a030000000000000102", Some((3, 0x0102))));
        for length in 0..bytes.len() {
            assert_eq!(named(&bytes[..length]), None);
        }
    }

    fn add<'s>(keys: &mut Transaction<'s>, count: u32) -> (u64, NewElements<'s>) {
        let id = keys.new_id().unwrap();
        let mut new = keys.new_elements(0, id);
        for number in 0..count {
            let key = keys.layout().hashed_element(0, id, &number.to_be_bytes());
            new.add(key, Bytes::from_static(&[0; 100])).unwrap();
        }
        (id, new)
    }

    #[test]
    fn all_of_a_collection_is_there_or_nothing() {
        for store in on_each_engine(64 << 20) {
            check_all_of_a_collection_is_there_or_nothing(&store);
        }
    }

    fn check_all_of_a_collection_is_there_or_nothing(store: &Records) {
        let spaces = Spaces::open(store).unwrap();
        let begin = || Transaction::new(store, &spaces, 0, Wanted::default(), false);
        let before = store.count();
        // The collection is given up before it is part of a run, and with the run.
        let mut keys = begin();
        let (_, new) = add(&mut keys, 20_000);
        assert!(store.count() > 10_000);
        drop(new);
        assert_eq!(store.count(), before);
        let (_, new) = add(&mut keys, 20_000);
        keys.adopt(new);
        drop(keys);
        assert_eq!(store.count(), before);
        // The collection is completed.
        let mut keys = begin();
        let (id, new) = add(&mut keys, 20_000);
        keys.adopt(new);
        assert!(keys.held_bytes() <= BATCH_BYTES + 1000, "{}", keys.held_bytes());
        let content = Content::Collection(Kind::Hash, Collection { id, a: 20_000, b: 0 });
        keys.set_header(0, b"k", &Header { expires_ms: None, content }).unwrap();
        keys.commit().unwrap();
        drop(keys);
        assert_eq!(store.count(), before + 20_000 + 1);
        // A process ends in between.
        let mut keys = begin();
        let (_, new) = add(&mut keys, 20_000);
        std::mem::forget(new);
        assert!(store.count() > before + 30_000);
        drop(Spaces::open(store).unwrap());
        assert_eq!(store.count(), before + 20_000 + 1);
    }

    #[test]
    fn a_collection_that_comes_after_its_space_was_emptied_stays() {
        on_each_engine(64 << 20).iter().for_each(check_a_collection_that_comes_after_its_space_was_emptied_stays);
    }

    fn check_a_collection_that_comes_after_its_space_was_emptied_stays(store: &Records) {
        let spaces = Spaces::open(store).unwrap();
        let before = store.count();
        let mut keys = Transaction::new(store, &spaces, 0, Wanted::default(), false);
        keys.clear(0);
        // More than a batch of elements.
        let (id, new) = add(&mut keys, 8_000);
        keys.adopt(new);
        let content = Content::Collection(Kind::Hash, Collection { id, a: 8_000, b: 0 });
        keys.set_header(0, b"k", &Header { expires_ms: None, content }).unwrap();
        keys.commit().unwrap();
        drop(keys);
        assert_eq!(store.count(), before + 8_000 + 1);
    }

    #[test]
    fn a_short_run_writes_one_batch() {
        for store in on_each_engine(64 << 20) {
            check_a_short_run_writes_one_batch(&store);
        }
    }

    fn check_a_short_run_writes_one_batch(store: &Records) {
        let spaces = Spaces::open(store).unwrap();
        let mut keys = Transaction::new(store, &spaces, 0, Wanted::default(), false).within(8 << 20);
        keys.reads().allow(1000);
        let before = store.count();
        let (id, mut new) = add(&mut keys, 20_000);
        assert_eq!(store.count(), before);
        let more = (0..40_000_u32).map(|number| keys.layout().hashed_element(0, id, &number.to_le_bytes()));
        let refused = more.map(|key| new.add(key, Bytes::from_static(&[0; 100]))).find(Result::is_err);
        assert!(refused.unwrap().unwrap_err().is_of_batch());
    }
}
