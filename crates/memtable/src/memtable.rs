//! The memtable: the recent writes of a shard. It combines a block ([`crate::block`]), the counter that hands out its
//! ranges ([`crate::reservation`]), the ordered index ([`crate::index`]) and the counters of complete bytes (`pieces`).
//!
//! # States of a memtable
//!
//! ```text
//!   open ──(a reservation crosses the capacity, or `end`)──► sealed ──(last record counted)──► complete
//! ```
//!
//! | state | reservations | inserts | its block may leave |
//! |---|---|---|---|
//! | open | yes | yes | the complete prefix, in pieces; as a log, record by record ([`Memtable::inserted`]) |
//! | sealed | no | those already reserved | the same |
//! | complete | no | no | whole, with its index |
//!
//! # Steps of an insert, in order
//!
//! 1. reserve: numbers and bytes are the writer's own;
//! 2. write the record into the block;
//! 3. list it (release): readers may find it, but their snapshots do not cover it yet;
//! 4. count its bytes (release): it may leave for remote memory;
//! 5. publish its number ([`crate::publication`], once for the reservation): readers see it.
//!
//! # Finding and order
//!
//! | operation | data structure | filled by |
//! |---|---|---|
//! | a lookup of a key | the chain of its hash (`log`) | the writer, with one compare-and-swap |
//! | a lookup whose chain is long, a cursor | the ordered index ([`crate::index`]) | the readers, from the log, before they search |
//! | a flush, an image | a sorted copy of the log ([`SortedRecords`]) | the flush or image itself |
//!
//! So writers do not pay for an order that nobody may need before the flush. The first cursor over a memtable puts all
//! records into the ordered index, in key order. Later cursors add what was written since. One thread at a time does
//! that, and others that need it wait.

use crate::block::{Block, BlockMemory, Published, RecordRef};
use crate::cursor::Cursor;
use crate::error::{IndexError, MemtableError};
use crate::image;
use crate::log::{Answer, Listed};
use crate::lookup::Lookup;
#[cfg(not(any(loom, shuttle)))]
use crate::lookup::LookupPool;
use crate::padded::Padded;
use crate::pieces::Pieces;
use crate::planted::{Bug, planted};
use crate::records::Records;
use crate::reservation::{Extent, MAX_RESERVATION_COUNT, Outcome, Reservations};
use crate::sorted::{SortedRecords, prefix_of, record_of, sort, word};
use crate::target::Target;
use forebay_base::record::ALIGNMENT;
use forebay_base::{InternalKey, KeyOrder, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Record, SequenceNumber, Tag};
use forebay_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use forebay_env::sync::{Mutex, lock, relax};
use xxhash_rust::xxh3::xxh3_64;

#[cfg(not(any(loom, shuttle)))]
use std::sync::{Arc, Weak};

/// Parameters of a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemtableOptions {
    /// Order of the keys.
    pub order: KeyOrder,
    /// The number before the memtable's first: the previous memtable's base plus its final count.
    pub base: SequenceNumber,
    /// Bytes of records that fit; a multiple of 8. Above 256 MiB it must be exactly the size of the one batch that the
    /// memtable is for.
    pub capacity_bytes: usize,
    /// Size of the pieces in which the block may leave before the memtable is sealed.
    pub piece_bytes: usize,
}

impl MemtableOptions {
    /// A piece size that suits one-sided writes: 1 MiB.
    pub const DEFAULT_PIECE_BYTES: usize = 1 << 20;
}

/// See the module.
#[derive(Debug)]
pub struct Memtable {
    options: MemtableOptions,
    block: Block,
    lookup: Lookup,
    /// The gapless prefix of records known to be inserted, and their bytes: a word as in a reservation.
    inserted: AtomicU64,
    /// Ordinals below this are in the ordered index.
    ordered: AtomicU32,
    /// Held by the thread that fills the ordered index.
    ordering: Mutex<()>,
    #[cfg(not(any(loom, shuttle)))]
    pool: Weak<LookupPool>,
    pieces: Pieces,
    /// The end as a word, [`OPEN`] before it is known.
    end: AtomicU64,
    reservations: Padded<Reservations>,
}

const OPEN: u64 = u64::MAX;
/// Bytes of a record that a search prefetches: header, key, and a short value.
const APPROACHED_BYTES: usize = 128;

/// The outcome of a reservation in a memtable.
#[derive(Debug)]
#[must_use]
pub enum Reserved<'m> {
    /// Insert the records.
    Fits(Reservation<'m>),
    /// This caller ended the memtable at this count, and must install the next one, based at [`Memtable::base`] plus
    /// this count.
    Crossed(Extent),
    /// Wait until another memtable is current, and try there.
    Full,
}

impl Memtable {
    /// An empty memtable over `memory`.
    ///
    /// # Errors
    /// [`MemtableError`] if the options or the memory are unusable.
    pub fn new(options: MemtableOptions, memory: Box<dyn BlockMemory>) -> Result<Self, MemtableError> {
        let make = || Ok(Lookup::new(options.order, options.capacity_bytes)?);
        Self::with_lookup(options, memory, make)
    }

    /// An empty memtable over `memory`. It reuses the lookup memory of earlier memtables, and leaves it to later ones.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(not(any(loom, shuttle)))]
    pub fn of_pool(
        options: MemtableOptions,
        memory: Box<dyn BlockMemory>,
        pool: &Arc<LookupPool>,
    ) -> Result<Self, MemtableError> {
        let make = || Ok(pool.take(options.order, options.capacity_bytes)?);
        let mut memtable = Self::with_lookup(options, memory, make)?;
        memtable.pool = Arc::downgrade(pool);
        Ok(memtable)
    }

    fn with_lookup(
        options: MemtableOptions,
        memory: Box<dyn BlockMemory>,
        make: impl FnOnce() -> Result<Lookup, MemtableError>,
    ) -> Result<Self, MemtableError> {
        if options.base.checked_add(MAX_RESERVATION_COUNT).is_none() {
            return Err(MemtableError::SequenceExhausted);
        }
        let capacity = options.capacity_bytes;
        let reservations = Padded(Reservations::new(capacity as u64)?);
        Ok(Self {
            options,
            block: Block::new(memory, capacity)?,
            lookup: make()?,
            inserted: AtomicU64::new(0),
            ordered: AtomicU32::new(0),
            ordering: Mutex::new(()),
            #[cfg(not(any(loom, shuttle)))]
            pool: Weak::new(),
            pieces: Pieces::new(capacity as u64, options.piece_bytes as u64),
            end: AtomicU64::new(OPEN),
            reservations,
        })
    }

    /// The number before the memtable's first.
    #[must_use]
    pub const fn base(&self) -> SequenceNumber {
        self.options.base
    }

    /// The parameters of the memtable.
    #[must_use]
    pub const fn options(&self) -> &MemtableOptions {
        &self.options
    }

    /// The memory of the block, as passed to [`new`](Self::new).
    #[must_use]
    pub fn memory(&self) -> &dyn BlockMemory {
        self.block.memory()
    }

    /// Bytes of lookup memory: log, chains, and the ordered index as far as it was needed.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.lookup.log.used_bytes(self.reserved_count()) + self.lookup.ordered.used_bytes()
    }

    /// Records reserved so far; those of the end once it is known.
    fn reserved_count(&self) -> usize {
        self.end().unwrap_or_else(|| self.reservations.0.reserved()).count as usize
    }

    /// Reserves room and numbers for `count` records whose padded lengths ([`Record::encoded_length`]) add up to
    /// `bytes`. An unfilled reservation prevents the memtable from ever being complete, and later numbers from being
    /// published. So check keys and values first.
    ///
    /// # Errors
    /// [`MemtableError::BadReservation`], [`MemtableError::Oversize`]: nothing was reserved.
    #[inline]
    pub fn reserve(&self, count: u64, bytes: u64) -> Result<Reserved<'_>, MemtableError> {
        Ok(match self.reservations.0.reserve(count, bytes)? {
            Outcome::Fits(before) => Reserved::Fits(Reservation {
                memtable: self,
                ordinal: before.count as u32,
                records_left: count as u32,
                offset: before.bytes as usize,
                end: (before.bytes + bytes) as usize,
            }),
            Outcome::Crossed(end) => self.set_end(end),
            Outcome::Full => Reserved::Full,
        })
    }

    /// Ends the memtable although it has room left, for instance for a requested flush. `None` if it has ended already;
    /// otherwise the caller must install the next one.
    pub fn end_early(&self) -> Option<Extent> {
        match self.reservations.0.end() {
            Outcome::Crossed(end) => {
                let _ = self.set_end(end);
                Some(end)
            }
            _ => None,
        }
    }

    fn set_end(&self, end: Extent) -> Reserved<'_> {
        // Pairs with `end`.
        self.end.store(end.to_word(), Release);
        Reserved::Crossed(end)
    }

    /// Final records and bytes of the sealed memtable; `None` while it is open.
    #[must_use]
    pub fn end(&self) -> Option<Extent> {
        // Pairs with `set_end`.
        match self.end.load(Acquire) {
            OPEN => None,
            word => Some(Extent::from_word(word)),
        }
    }

    /// The memtable's last number; `None` while it is open.
    #[must_use]
    pub fn last_sequence(&self) -> Option<SequenceNumber> {
        self.end().map(|end| SequenceNumber(self.options.base.0 + end.count))
    }

    /// The last number of a memtable that has ended; the next memtable is based at it. A thread that finds the memtable
    /// [`Reserved::Full`] may be faster than the thread that ended it, which is about to store the end. This waits for
    /// that.
    #[must_use]
    pub fn wait_last_sequence(&self) -> SequenceNumber {
        let mut round = 0;
        loop {
            match self.last_sequence() {
                Some(last) => return last,
                None => relax(&mut round),
            }
        }
    }

    /// Whether every record of the memtable's range is inserted. A thread that sees this sees all records and the whole
    /// index.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end().is_some_and(|end| self.pieces.all_filled(end))
    }

    /// Bytes reserved so far, for statistics; those of the end once it is known.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        match self.end() {
            Some(end) => end.bytes,
            None => self.reservations.0.reserved().bytes.min(self.block.capacity() as u64),
        }
    }

    /// The complete bytes from the block's start: whole pieces, or everything once the memtable is complete. They never
    /// change again, so they can be sent as they are.
    #[must_use]
    pub fn filled_prefix(&self) -> &[u8] {
        let length = self.pieces.filled_prefix_bytes(self.end());
        // SAFETY: at most the capacity; the records there were counted after they were written,
        // and the counters acquire (invariant 1 of `pieces`).
        unsafe { self.block.prefix(length as usize) }
    }

    /// Length of [`filled_prefix`](Self::filled_prefix).
    #[must_use]
    pub fn filled_prefix_bytes(&self) -> u64 {
        self.pieces.filled_prefix_bytes(self.end())
    }

    /// The gapless prefix of inserted records up to number `limit`: their count, and their bytes from the block's
    /// start. These bytes never change again, so they can be sent as they are. If `limit` is a published number, the
    /// prefix reaches it and ends with a batch.
    ///
    /// # Errors
    /// Only if memory was overwritten.
    pub fn inserted(&self, limit: SequenceNumber) -> Result<Extent, IndexError> {
        let wanted = limit.0.saturating_sub(self.options.base.0);
        // Acquire: pairs with the release below.
        let known = Extent::from_word(self.inserted.load(Acquire));
        let mut last = None;
        for ordinal in known.count..wanted {
            // Acquires: a thread that finds a record listed sees its bytes.
            let Some(record) = self.lookup.log.record(ordinal as usize) else { break };
            last = Some((ordinal + 1, record));
        }
        let Some((count, record)) = last else { return Ok(known) };
        let found = self.published().record(record)?;
        let bytes = found.offset.saturating_add(found.padded_length.into());
        let inserted = Extent { count, bytes };
        // Release: a thread that learns that these records are inserted sees them. Words grow with the records that
        // they count.
        self.inserted.fetch_max(inserted.to_word(), AcqRel);
        Ok(inserted)
    }

    /// The bytes of the records that [`inserted`](Self::inserted) has found.
    #[must_use]
    pub fn inserted_prefix(&self) -> &[u8] {
        // SAFETY: at most the capacity; the records there were listed after they were written, and were found to be
        // by acquiring loads, which the load below acquires in turn.
        unsafe { self.block.prefix(self.known_inserted_bytes() as usize) }
    }

    /// Bytes from the block's start that [`inserted`](Self::inserted) has found to be complete.
    pub(crate) fn known_inserted_bytes(&self) -> u64 {
        // Acquire: pairs with the release there.
        Extent::from_word(self.inserted.load(Acquire)).bytes
    }

    /// The index as bytes that can be searched elsewhere, over the same records; `None` unless the memtable is
    /// complete.
    ///
    /// # Errors
    /// Only if memory was overwritten.
    pub fn index_image(&self) -> Result<Option<Vec<u8>>, IndexError> {
        let Some(words) = self.sorted_words()? else { return Ok(None) };
        let slots = words.iter().map(|word| (prefix_of(*word), record_of(*word)));
        Ok(Some(image::encode(self.options.order, slots)))
    }

    /// All records in order; `None` unless the memtable is complete.
    ///
    /// # Errors
    /// Only if memory was overwritten.
    pub fn sorted(&self) -> Result<Option<SortedRecords<'_>>, IndexError> {
        Ok(self.sorted_words()?.map(|words| SortedRecords::new(words, self.published())))
    }

    fn sorted_words(&self) -> Result<Option<Vec<u128>>, IndexError> {
        if !self.is_complete() {
            return Ok(None);
        }
        let count = self.reserved_count();
        let mut words = Vec::with_capacity(count);
        words.extend((0..count).filter_map(|at| self.lookup.log.listed(at)).map(word));
        sort(&mut words, self.options.order, self.published())?;
        Ok(Some(words))
    }

    fn published(&self) -> Published<'_> {
        // SAFETY: the offsets come from the log and the ordered index of this memtable. `Reservation::insert` put them
        // into the log after the record was written, and they were reached by acquiring loads. Everything in the index
        // was in the log.
        unsafe { Published::new(&self.block) }
    }

    /// Puts listed records into the ordered index, up to the first record that is not listed. So all records that a
    /// published number covers are in it.
    fn put_in_order(&self) -> Result<(), IndexError> {
        let log = &self.lookup.log;
        // Acquire: pairs with the release below.
        if log.record(self.ordered.load(Acquire) as usize).is_none() {
            return Ok(());
        }
        let ordering = lock(&self.ordering);
        let from = self.ordered.load(Relaxed) as usize;
        let known = (from..).take_while(|ordinal| log.record(*ordinal).is_some()).count();
        let mut words: Vec<_> = (from..from + known).filter_map(|ordinal| log.listed(ordinal)).map(word).collect();
        // Neighbours share the path to their leaf.
        words.sort_unstable();
        let records = self.published();
        for (at, word) in words.iter().enumerate() {
            if let Some(ahead) = words.get(at + AHEAD as usize) {
                records.prefetch(record_of(*ahead), 1);
            }
            let record = record_of(*word);
            self.lookup.ordered.insert(records, records.key_at(record)?, record)?;
        }
        self.ordered.store((from + known) as u32, Release);
        drop(ordering);
        Ok(())
    }

    /// The newest record of `key` that `snapshot` covers, of any kind.
    ///
    /// # Errors
    /// Only if memory was overwritten ([`forebay_base::ErrorKind::Corrupt`]).
    #[inline]
    pub fn get(&self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<RecordRef<'_>>, IndexError> {
        self.get_hashed(key, KeyHash::of(key), snapshot)
    }

    /// As [`Memtable::get`], for a caller that asks several memtables.
    ///
    /// # Errors
    /// As [`Memtable::get`].
    #[inline]
    pub fn get_hashed(
        &self,
        key: &[u8],
        hash: KeyHash,
        snapshot: SequenceNumber,
    ) -> Result<Option<RecordRef<'_>>, IndexError> {
        let records = self.published();
        let newest = snapshot.0.saturating_sub(self.options.base.0);
        if newest == 0 {
            // All records have later numbers, so the chain, a likely cache miss, need not be read.
            return Ok(None);
        }
        let is_key = |record| Ok(records.record(record)?.record.key == key);
        match self.lookup.log.find(hash.0, newest, is_key)? {
            Answer::Record(record) => records.record(record).map(Some),
            Answer::Absent => Ok(None),
            Answer::TooLong => self.get_in_order(key, snapshot),
        }
    }

    /// As [`Memtable::get`], from the ordered index.
    #[cold]
    fn get_in_order(&self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<RecordRef<'_>>, IndexError> {
        self.put_in_order()?;
        let records = self.published();
        let target = InternalKey { user_key: key, tag: Tag::seek(snapshot) };
        let Some(record) = self.lookup.ordered.seek(records, target)? else { return Ok(None) };
        let found = records.record(record)?;
        Ok((found.record.key == key).then_some(found))
    }

    /// Prefetches where the search for a key begins. Searches for several keys wait for memory together if each takes this
    /// step, then [`Memtable::approach_newest`] and [`Memtable::approach_record`], before the first one is carried out.
    #[inline]
    pub fn approach(&self, hash: KeyHash) {
        self.lookup.log.prefetch(hash.0);
    }

    /// After [`Memtable::approach`]: prefetches the first step of the search.
    #[inline]
    pub fn approach_newest(&self, hash: KeyHash) {
        self.lookup.log.prefetch_newest(hash.0);
    }

    /// After [`Memtable::approach_newest`]: prefetches the record that the search is likely to find.
    #[inline]
    pub fn approach_record(&self, hash: KeyHash) {
        if let Some(record) = self.lookup.log.newest(hash.0) {
            self.published().prefetch(record, APPROACHED_BYTES);
        }
    }

    /// A cursor without a position. It covers all records that were inserted when it was last moved by a key or to an
    /// end, and perhaps later ones.
    #[must_use]
    pub fn cursor(&self) -> MemtableCursor<'_> {
        let records = self.published();
        MemtableCursor { memtable: self, cursor: self.lookup.ordered.cursor(records), records }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for Memtable {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            let lookup = std::mem::replace(&mut self.lookup, Lookup::without_memory(self.options.order));
            pool.give_back(lookup, self.options.capacity_bytes, self.reserved_count());
        }
    }
}

/// The hash by which memtables find a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The hash of a key.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }
}

/// Numbers and bytes that belong to one writer until it has filled them.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'m> {
    memtable: &'m Memtable,
    /// Number of records in the memtable before the next one.
    ordinal: u32,
    records_left: u32,
    offset: usize,
    end: usize,
}

impl Reservation<'_> {
    /// Number of the next record.
    #[must_use]
    pub const fn next_sequence(&self) -> SequenceNumber {
        SequenceNumber(self.memtable.options.base.0 + self.ordinal as u64 + 1)
    }

    /// Number of the last record.
    #[must_use]
    pub const fn last_sequence(&self) -> SequenceNumber {
        SequenceNumber(self.memtable.options.base.0 + self.ordinal as u64 + self.records_left as u64)
    }

    /// Records still to be inserted.
    #[must_use]
    pub const fn records_left(&self) -> u32 {
        self.records_left
    }

    /// Inserts the next record and returns its place.
    ///
    /// # Errors
    /// [`MemtableError::TooLong`], [`MemtableError::NotReserved`]: nothing was inserted. Others
    /// only if memory was overwritten.
    #[inline]
    pub fn insert(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<RecordAt, MemtableError> {
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            return Err(MemtableError::TooLong { key: key.len(), value: value.len() });
        }
        let length = Record::encoded_length(key.len(), value.len(), expiry_ms.is_some());
        let left = self.end - self.offset;
        let fits = match self.records_left {
            0 => false,
            1 => length == left,
            _ => length <= left,
        };
        if !fits {
            return Err(MemtableError::NotReserved { length, left });
        }
        let sequence = self.next_sequence();
        let tag = Tag::new(sequence, kind, expiry_ms.is_some());
        // All records of a reservation are one batch.
        let tag = if self.records_left > 1 { tag.going_on() } else { tag };
        let record = Record { tag, expiry_ms, key, value };
        let offset = self.offset;
        self.ordinal += 1;
        self.records_left -= 1;
        self.offset += length;
        self.memtable.insert(&record, offset, length)?;
        Ok(RecordAt { sequence, offset: offset as u64, padded_length: length as u32 })
    }
}

/// The place of an inserted record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordAt {
    /// The record's number.
    pub sequence: SequenceNumber,
    /// Bytes from the block's start.
    pub offset: u64,
    /// Length with padding, in bytes.
    pub padded_length: u32,
}

impl Memtable {
    /// Steps 2 to 4. Called once for each record of a reservation, with the next bytes.
    #[inline]
    fn insert(&self, record: &Record<'_>, offset: usize, length: usize) -> Result<(), IndexError> {
        let target = Target::new(self.options.order, InternalKey { user_key: record.key, tag: record.tag });
        let listed = Listed { prefix: target.prefix, tail: target.tail, record: (offset / ALIGNMENT) as u32 };
        let ordinal = (record.tag.sequence().0 - self.options.base.0 - 1) as u32;
        if record.tag.kind().is_void() {
            return self.insert_void(record, ordinal, offset, length);
        }
        let hash = KeyHash::of(record.key).0;
        self.lookup.log.prefetch(hash);
        let link = || self.lookup.log.add(ordinal, hash, listed);
        // SAFETY: `offset … offset + length` lies within the reservation of the one caller, which
        // lies within the capacity; no record is listed there before the step below.
        let write = || unsafe { self.block.write(offset, record) };
        if planted(Bug::LinkBeforeWrite) {
            link()?;
            forebay_env::sync::thread::yield_now();
            write();
        } else {
            write();
            link()?;
        }
        self.pieces.add(offset as u64, length as u64);
        Ok(())
    }
}

impl Memtable {
    /// As [`Memtable::insert`], for a record that nobody should find.
    #[cold]
    fn insert_void(&self, record: &Record<'_>, ordinal: u32, offset: usize, length: usize) -> Result<(), IndexError> {
        // SAFETY: as in `insert`.
        unsafe { self.block.write(offset, record) };
        self.lookup.log.add_void(ordinal, (offset / ALIGNMENT) as u32)?;
        self.pieces.add(offset as u64, length as u64);
        Ok(())
    }
}

/// Number of steps ahead of a cursor at which records are prefetched, so that a walk does not wait for each. Records
/// are stored in the order of writing.
const AHEAD: u32 = 8;

/// A place in a memtable, or no position. Records of one key come newest first.
#[derive(Debug, Clone)]
pub struct MemtableCursor<'m> {
    memtable: &'m Memtable,
    cursor: Cursor<'m, Published<'m>>,
    records: Published<'m>,
}

impl<'m> MemtableCursor<'m> {
    /// Goes to the first record.
    ///
    /// # Errors
    /// As for all moves, only if memory was overwritten.
    pub fn seek_to_first(&mut self) -> Result<(), IndexError> {
        self.memtable.put_in_order()?;
        self.cursor.seek_to_first()
    }

    /// Goes to the last record.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<(), IndexError> {
        self.memtable.put_in_order()?;
        self.cursor.seek_to_last()
    }

    /// Goes to the first record whose key is not before `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.memtable.put_in_order()?;
        self.cursor.seek(key)
    }

    /// Goes to the last record whose key is not after `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.memtable.put_in_order()?;
        self.cursor.seek_for_prev(key)
    }

    /// Goes one record forward. There is no position after the last record.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<(), IndexError> {
        if let Some(record) = self.cursor.record_ahead(AHEAD) {
            self.records.prefetch(record, 1);
        }
        self.cursor.next()
    }

    /// Goes one record back, in O(log n). There is no position before the first record.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<(), IndexError> {
        self.cursor.prev()
    }

    /// The current record; `None` without a position.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn record(&self) -> Result<Option<RecordRef<'m>>, IndexError> {
        match self.cursor.record() {
            None => Ok(None),
            Some(record) => self.records.record(record).map(Some),
        }
    }
}

/// A cursor that keeps its memtable alive.
#[cfg(not(any(loom, shuttle)))]
pub struct OwnedCursor {
    /// Borrows from `memtable`, and is declared first so that it is dropped first.
    cursor: MemtableCursor<'static>,
    memtable: Arc<Memtable>,
}

#[cfg(not(any(loom, shuttle)))]
impl OwnedCursor {
    /// A cursor over all records of `memtable`, without a position.
    #[must_use]
    pub fn new(memtable: Arc<Memtable>) -> Self {
        let borrowed: *const Memtable = Arc::as_ptr(&memtable);
        // SAFETY: the memtable lies behind an `Arc` that this value holds until after the cursor is
        // dropped, so it neither moves nor ends before. The invented lifetime leaves this type
        // nowhere: what `record` returns borrows from `self`.
        let cursor = unsafe { &*borrowed }.cursor();
        Self { cursor, memtable }
    }

    /// The memtable.
    #[must_use]
    pub const fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// As [`MemtableCursor::seek_to_first`].
    ///
    /// # Errors
    /// As all moves, only if memory was overwritten.
    pub fn seek_to_first(&mut self) -> Result<(), IndexError> {
        self.cursor.seek_to_first()
    }

    /// As [`MemtableCursor::seek_to_last`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<(), IndexError> {
        self.cursor.seek_to_last()
    }

    /// As [`MemtableCursor::seek`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.cursor.seek(key)
    }

    /// As [`MemtableCursor::seek_for_prev`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.cursor.seek_for_prev(key)
    }

    /// As [`MemtableCursor::prev`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<(), IndexError> {
        self.cursor.prev()
    }

    /// As [`MemtableCursor::next`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<(), IndexError> {
        self.cursor.next()
    }

    /// As [`MemtableCursor::record`].
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn record(&self) -> Result<Option<RecordRef<'_>>, IndexError> {
        self.cursor.record()
    }
}

#[cfg(not(any(loom, shuttle)))]
impl std::fmt::Debug for OwnedCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedCursor").finish_non_exhaustive()
    }
}
