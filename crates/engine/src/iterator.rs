//! Forward iteration.
//!
//! The entries of memtables and tables are merged by key; what is shadowed, deleted or too new is
//! left out without reading its value. The values of the next entries are then brought together
//! with one doorbell, neighbours in one read, in batches that grow while the scan goes on: a short
//! scan reads little, a long one streams.

use crate::cursor::{LevelSource, Location, MemtableSource, SharedEndpoint, Source};
use crate::read::received;
use crate::shard::{Shard, View};
use crate::{Error, Result};
use forebay_base::record::pad;
use forebay_base::{InternalKey, Kind, LogicalAddress, Record, SequenceNumber, Tag};
use forebay_env::sync::lock;
use forebay_fabric::{RemoteAddress, Slot};
use forebay_memtable::OwnedCursor;
use forebay_table::{Direction, Merge, SortedStream};
use std::ops::Range;
use std::sync::Arc;

/// Entries of the first batch after a seek.
const FIRST_BATCH: usize = 4;
/// Entries of a batch, at most.
const MAX_BATCH: usize = 512;
/// Bytes of values of a batch, beyond which it ends.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Bytes of one read that joins neighbouring records, at most.
const MAX_READ_BYTES: u64 = 256 << 10;

/// Iterates over the keys and values of a database in key order, as of a moment.
///
/// A new iterator stands nowhere: seek first. It keeps the memory of what it iterates over.
pub struct DbIterator {
    shard: Arc<Shard>,
    merge: Merge<Source>,
    endpoint: SharedEndpoint,
    number: SequenceNumber,
    /// A key that was passed: further entries of it are older.
    passed: Option<Vec<u8>>,
    batch: Batch,
    next_batch: usize,
}

/// Entries whose values are here.
#[derive(Default)]
struct Batch {
    /// Keys and local values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    slots: Vec<Slot>,
    position: usize,
}

struct Entry {
    key: Range<usize>,
    value: Value,
}

enum Value {
    /// In the batch's bytes.
    Local(Range<usize>),
    /// In a record that was read.
    Read { slot: usize, value: Range<usize> },
    /// In a record that is to be read.
    Pending { logical: LogicalAddress, address: RemoteAddress, length: u32 },
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbIterator").field("number", &self.number).finish_non_exhaustive()
    }
}

impl DbIterator {
    pub(crate) fn new(shard: Arc<Shard>, snapshot: Option<SequenceNumber>) -> Result<Self> {
        let view: Arc<View> = Arc::clone(&shard.view.load());
        let number = snapshot.unwrap_or_else(|| shard.publication.published());
        shard.check_open()?;
        let endpoint: SharedEndpoint = Arc::new(shard.remote.scan()?.into());
        let memtables = view
            .buffers()
            .map(|buffer| Source::Memtable(MemtableSource { cursor: OwnedCursor::new(Arc::clone(&buffer.memtable)) }));
        let mut sources: Vec<Source> = memtables.collect();
        for (level, tables) in view.version.levels().iter().enumerate() {
            let mut add = |tables: Range<usize>| {
                let source = LevelSource::new(Arc::clone(&view.version), Arc::clone(&endpoint), level, tables);
                sources.push(Source::Level(Box::new(source)));
            };
            if level == 0 {
                (0..tables.len()).for_each(|i| add(i..i + 1));
            } else if !tables.is_empty() {
                add(0..tables.len());
            }
        }
        let merge = Merge::new(sources, shard.options.key_order, Direction::Forward);
        Ok(Self { shard, merge, endpoint, number, passed: None, batch: Batch::default(), next_batch: FIRST_BATCH })
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone, `Corrupt` when a checksum does not match.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.restart()?;
        self.merge.reposition(Direction::Forward, Source::seek_to_first)?;
        self.refill()
    }

    /// Goes to the first key that is not before `key`.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.restart()?;
        let target = InternalKey { user_key: key, tag: Tag::seek(self.number) };
        self.merge.reposition(Direction::Forward, |source| source.seek(target))?;
        self.refill()
    }

    /// Whether the iterator stands on a key.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.batch.position < self.batch.entries.len()
    }

    /// The current key; empty when the iterator stands nowhere.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        let entry = self.batch.entries.get(self.batch.position);
        entry.and_then(|entry| self.batch.bytes.get(entry.key.clone())).unwrap_or_default()
    }

    /// The current value; empty when the iterator stands nowhere.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let Some(entry) = self.batch.entries.get(self.batch.position) else { return &[] };
        match &entry.value {
            Value::Local(range) => self.batch.bytes.get(range.clone()),
            Value::Read { slot, value } => self.batch.slots.get(*slot).and_then(|slot| slot.get(value.clone())),
            Value::Pending { .. } => None,
        }
        .unwrap_or_default()
    }

    /// Goes to the next key.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        if self.valid() {
            self.batch.position += 1;
            if !self.valid() {
                return self.refill();
            }
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.shard.check_open()?;
        self.passed = None;
        self.next_batch = FIRST_BATCH;
        Ok(())
    }

    /// Collects the next entries and their values.
    fn refill(&mut self) -> Result<()> {
        let mut endpoint = lock(&self.endpoint);
        self.batch.slots.drain(..).for_each(|slot| endpoint.release(slot));
        drop(endpoint);
        self.batch.bytes.clear();
        self.batch.entries.clear();
        self.batch.position = 0;
        let mut bytes = 0;
        while self.batch.entries.len() < self.next_batch && bytes < MAX_BATCH_BYTES {
            let Some((_, source)) = self.merge.current() else { break };
            let Some(key) = source.key() else { break };
            let is_newest = self.passed.as_deref() != Some(key.user_key);
            if is_newest && key.tag.sequence() <= self.number {
                let passed = self.passed.get_or_insert_default();
                passed.clear();
                passed.extend_from_slice(key.user_key);
                if key.tag.kind() == Kind::Put {
                    bytes += self.batch.add(key.user_key, source.location()?)?;
                }
            }
            self.merge.advance()?;
        }
        self.next_batch = (self.next_batch * 2).min(MAX_BATCH);
        let mut endpoint = lock(&self.endpoint);
        self.batch.read(&mut endpoint)
    }
}

impl Batch {
    /// Adds an entry and returns the bytes that its value takes.
    fn add(&mut self, key: &[u8], location: Option<Location<'_>>) -> Result<usize> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = at..self.bytes.len();
        let (value, bytes) = match location {
            Some(Location::Local(value)) => {
                let at = self.bytes.len();
                self.bytes.extend_from_slice(value);
                (Value::Local(at..self.bytes.len()), value.len())
            }
            Some(Location::Remote { logical, address, length }) => {
                (Value::Pending { logical, address, length }, length as usize)
            }
            None => return Err(Error::corrupt("an entry without a place")),
        };
        self.entries.push(Entry { key, value });
        Ok(bytes)
    }

    /// Reads all pending values with one doorbell. Records that follow each other come in one read.
    fn read(&mut self, endpoint: &mut forebay_fabric::Endpoint) -> Result<()> {
        let mut reads: Vec<(RemoteAddress, u64)> = Vec::new();
        // For each pending entry: which read, and where in it.
        let mut places = Vec::new();
        for entry in &self.entries {
            if let Value::Pending { address, length, .. } = entry.value {
                let length = u64::from(length);
                match reads.last_mut() {
                    Some((start, bytes))
                        if start.key == address.key
                            && address.offset == start.offset + pad(*bytes as usize) as u64
                            && *bytes + length <= MAX_READ_BYTES =>
                    {
                        *bytes = address.offset - start.offset + length;
                        let at = (address.offset - start.offset) as usize;
                        places.push((reads.len() - 1, at));
                    }
                    _ => {
                        places.push((reads.len(), 0));
                        reads.push((address, length));
                    }
                }
            }
        }
        let mut posted = Vec::with_capacity(reads.len());
        for (address, length) in reads {
            let slot = endpoint.slot(length as usize)?;
            posted.push(endpoint.post_read(address, slot)?);
        }
        for id in posted {
            self.slots.push(received(endpoint.wait_for(id)?)?);
        }
        let mut places = places.into_iter();
        for entry in &mut self.entries {
            if let Value::Pending { logical, length, .. } = entry.value {
                let Some((slot, start)) = places.next() else { break };
                let bytes = self.slots.get(slot).and_then(|slot| slot.get(start..start + length as usize));
                let key = self.bytes.get(entry.key.clone()).unwrap_or_default();
                let value = value_in(bytes.unwrap_or_default(), key)
                    .map_err(|error| error.during(&format!("scanning {logical}")))?;
                entry.value = Value::Read { slot, value: start + value.start..start + value.end };
            }
        }
        Ok(())
    }
}

/// Where in a record's bytes the value is, once the record is verified.
fn value_in(bytes: &[u8], key: &[u8]) -> Result<Range<usize>> {
    let record = Record::decode(bytes)?;
    if record.key != key {
        return Err(Error::corrupt("the record is another key's"));
    }
    let end = record.length();
    Ok(end - record.value.len()..end)
}
