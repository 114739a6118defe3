//! The entries that a scan reads at once, with their values.

use crate::remote::spot::Spot;
use crate::scan::found::{Location, RunRecord};
use crate::scan::scan_endpoint::{Asked, ScanEndpoint};
use crate::terms::{Error, Result};
use forebay_base::{LogicalAddress, Record, SegmentId, Tag};
use forebay_fabric::Slot;
use forebay_memory_client::ExtentRange;
use forebay_proto::gather;
use forebay_table::Direction;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum bytes of one read that joins neighbouring records.
const MAX_READ_BYTES: u64 = 256 << 10;
/// Maximum bytes between two records that one read brings. Leaving them out takes another read, which costs as much.
const MAX_GAP_BYTES: u64 = 1 << 10;
/// The same for a read from storage, where blocks are read as a whole.
const MAX_STORED_GAP_BYTES: u64 = 16 << 10;

/// A batch ends when its values have more bytes than this.
const MAX_VALUE_BYTES: usize = 1 << 20;
/// A batch also ends when it holds more bytes than this: of long keys, or of chunks in which little is shown.
const MAX_HELD_BYTES: usize = 16 << 20;

/// Bytes that a value counts for before it is merged.
const ASSUMED_BYTES: u32 = 16 << 10;

/// Entries in the order in which the scan meets them, with their values once they are read.
#[derive(Default)]
pub(crate) struct ScanBatch {
    entries: Vec<Entry>,
    /// Keys and local values, one after the other: buffer 0.
    bytes: Vec<u8>,
    /// The buffers that records were read into, numbered from 1 on.
    buffers: Vec<Buffer>,
    /// Entries whose records are to be read, in order.
    pending: Vec<Pending>,
    /// The reads that bring the pending records.
    joined: Joined,
    /// Entries whose values are merged, in order.
    merged: Vec<usize>,
    /// The value that was merged last, and its entry.
    made: Option<(usize, Vec<u8>)>,
    /// Entries that expire, in order, each with its expiry.
    expiries: Vec<(usize, u64)>,
    /// How often the batch was cleared.
    generation: u64,
    /// Bytes of the values; for values that are still to be read, the lengths of their records.
    value_bytes: usize,
    /// Bytes of the chunks among the buffers. Each counts once.
    chunk_bytes: usize,
}

/// The generation of the batch in which a chunk was shared, and as which buffer.
pub(crate) type Shared = Option<(u64, usize)>;

struct Entry {
    key: Place,
    /// For a pending entry, a place with the record's length.
    value: Place,
}

/// Part of a buffer. A batch holds some dozens of megabytes at most and one more value, so 32 bits suffice.
#[derive(Clone, Copy)]
struct Place {
    buffer: u32,
    start: u32,
    end: u32,
}

enum Buffer {
    /// Read for the batch.
    Read(Slot),
    /// Read by a source, which may still use it.
    Chunk(Arc<Slot>),
    /// Brought by the memory node.
    Gathered(Vec<u8>),
}

/// A record that is to be read.
struct Pending {
    entry: usize,
    logical: LogicalAddress,
    spot: Spot,
    length: u32,
    tag: Tag,
}

/// A read that brings a record, or several that follow each other.
struct Read {
    spot: Spot,
    length: u64,
}

/// The reads that bring pending records, and for each record, which read and where in it. Batch after batch has about
/// as many, so they stay allocated.
#[derive(Default)]
struct Joined {
    reads: Vec<Read>,
    places: Vec<(usize, usize)>,
    asked: Vec<Asked>,
    /// The last read of each segment.
    open: FxHashMap<SegmentId, usize>,
}

impl Read {
    /// Extends the read to a record after it. Returns where in the read the record is; `None` when the record is too
    /// far away.
    fn reach(&mut self, spot: &Spot, length: u64) -> Option<u64> {
        let at = self.spot.distance_to(spot)?;
        let gap = at.checked_sub(self.length)?;
        let most = match spot {
            Spot::Memory { .. } => MAX_GAP_BYTES,
            Spot::Storage { .. } => MAX_STORED_GAP_BYTES,
        };
        let is_near = gap <= most && at + length <= MAX_READ_BYTES;
        is_near.then(|| {
            self.length = at + length;
            at
        })
    }
}

impl Place {
    const EMPTY: Self = Self { buffer: 0, start: 0, end: 0 };
    /// In no buffer: the value is merged when the iterator reaches it, since it may be of any length.
    const MERGED: Self = Self { buffer: u32::MAX, start: 0, end: ASSUMED_BYTES };

    #[inline]
    const fn new(buffer: usize, range: &Range<usize>) -> Self {
        Self { buffer: buffer as u32, start: range.start as u32, end: range.end as u32 }
    }

    const fn length(self) -> usize {
        (self.end - self.start) as usize
    }
}

impl ScanBatch {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the batch, which should hold `limit` entries, may take another one.
    #[inline]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.entries.len() < limit
            && self.value_bytes < MAX_VALUE_BYTES
            && self.bytes.len() + self.chunk_bytes < MAX_HELD_BYTES
    }

    /// The key of an entry.
    #[inline]
    pub(crate) fn key(&self, index: usize) -> Option<&[u8]> {
        self.at(self.entries.get(index)?.key)
    }

    /// The value of an entry that was read or merged.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Option<&[u8]> {
        self.at(self.entries.get(index)?.value).or_else(|| self.made_for(index))
    }

    #[cold]
    fn made_for(&self, index: usize) -> Option<&[u8]> {
        self.made.as_ref().filter(|(entry, _)| *entry == index).map(|(_, value)| &value[..])
    }

    /// The expiry of an entry.
    pub(crate) fn expiry_ms(&self, index: usize) -> Option<u64> {
        let at = self.expiries.binary_search_by_key(&index, |(entry, _)| *entry).ok()?;
        self.expiries.get(at).map(|(_, expiry_ms)| *expiry_ms)
    }

    #[inline]
    fn at(&self, place: Place) -> Option<&[u8]> {
        let buffer = match (place.buffer as usize).checked_sub(1) {
            None => self.bytes.as_slice(),
            Some(index) => match self.buffers.get(index)? {
                Buffer::Read(slot) => &**slot,
                Buffer::Chunk(chunk) => chunk,
                Buffer::Gathered(bytes) => bytes,
            },
        };
        buffer.get(place.start as usize..place.end as usize)
    }

    /// Removes all entries. The slots that were read for them go back to `endpoint`.
    pub(crate) fn clear(&mut self, endpoint: &mut ScanEndpoint) {
        for buffer in self.buffers.drain(..) {
            match buffer {
                Buffer::Read(slot) => endpoint.release(slot),
                Buffer::Chunk(chunk) => {
                    if let Some(slot) = Arc::into_inner(chunk) {
                        endpoint.release(slot);
                    }
                }
                Buffer::Gathered(_) => {}
            }
        }
        self.generation += 1;
        self.bytes.clear();
        self.entries.clear();
        self.pending.clear();
        self.merged.clear();
        self.made = None;
        self.expiries.clear();
        self.value_bytes = 0;
        self.chunk_bytes = 0;
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Corrupt` when its value is nowhere.
    pub(crate) fn add(&mut self, key: &[u8], location: Option<Location<'_>>) -> Result<()> {
        match location {
            Some(Location::Chunk { chunk, record }) => {
                let buffer = self.share(chunk);
                self.add_shared(buffer, record);
            }
            Some(Location::Local(value)) => self.add_local(key, value),
            Some(Location::Remote { logical, spot, length, tag }) => {
                let key = self.copy(key);
                self.pending.push(Pending { entry: self.entries.len(), logical, spot, length, tag });
                self.push(key, Place { end: length, ..Place::EMPTY });
            }
            None => return Err(Error::corrupt("an entry without a place")),
        }
        Ok(())
    }

    /// Adds an entry whose value is merged when the iterator reaches it.
    #[cold]
    pub(crate) fn add_merged(&mut self, key: &[u8]) {
        self.merged.push(self.entries.len());
        let key = self.copy(key);
        self.push(key, Place::MERGED);
    }

    /// Stores the merged value of an entry, in place of another entry's.
    pub(crate) fn set_merged(&mut self, entry: usize, value: Vec<u8>) {
        self.made = Some((entry, value));
    }

    /// Whether the value of this entry is merged.
    #[inline]
    pub(crate) fn is_merged(&self, entry: usize) -> bool {
        !self.merged.is_empty() && self.merged.binary_search(&entry).is_ok()
    }

    /// Notes the expiry of the entry that was added last.
    #[inline]
    pub(crate) fn expires(&mut self, expiry_ms: Option<u64>) {
        if let (Some(expiry_ms), Some(last)) = (expiry_ms, self.entries.len().checked_sub(1)) {
            self.expiries.push((last, expiry_ms));
        }
    }

    /// Returns the buffer that `chunk` is, for the entries that are added next.
    pub(crate) fn share(&mut self, chunk: &Arc<Slot>) -> usize {
        match self.buffers.last() {
            Some(Buffer::Chunk(last)) if Arc::ptr_eq(last, chunk) => {}
            _ => {
                // Sources that take turns share a chunk again and again. The first time, only its reader has it.
                if Arc::strong_count(chunk) == 1 {
                    self.chunk_bytes += chunk.len();
                }
                self.buffers.push(Buffer::Chunk(Arc::clone(chunk)));
            }
        }
        self.buffers.len()
    }

    /// Does the same for a chunk that was perhaps shared before, between others.
    #[inline]
    pub(crate) fn share_again(&mut self, chunk: &Arc<Slot>, shared: &mut Shared) -> usize {
        match *shared {
            Some((generation, buffer)) if generation == self.generation => buffer,
            _ => {
                let buffer = self.share(chunk);
                *shared = Some((self.generation, buffer));
                buffer
            }
        }
    }

    /// Adds a record of a shared buffer as an entry.
    #[inline]
    pub(crate) fn add_shared(&mut self, buffer: usize, record: &RunRecord) {
        self.push(Place::new(buffer, &record.key), Place::new(buffer, &record.value));
    }

    fn add_local(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = (self.copy(key), self.copy(value));
        self.push(key, value);
    }

    fn copy(&mut self, bytes: &[u8]) -> Place {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Place::new(0, &(start..self.bytes.len()))
    }

    #[inline]
    fn push(&mut self, key: Place, value: Place) {
        self.value_bytes += value.length();
        self.entries.push(Entry { key, value });
    }

    /// Removes the entry that was added last.
    pub(crate) fn remove_last(&mut self) {
        if let Some(last) = self.entries.pop() {
            self.value_bytes -= last.value.length();
            if last.key.buffer == 0 {
                self.bytes.truncate(last.key.start as usize);
            }
            self.pending.pop_if(|pending| pending.entry == self.entries.len());
            self.expiries.pop_if(|(entry, _)| *entry == self.entries.len());
            self.merged.pop_if(|entry| *entry == self.entries.len());
        }
    }

    /// Reads all pending values with one round trip. Records that follow each other come in one read: they are stored
    /// in key order, whichever way the scan goes. Many reads are one request to the memory node, where that is cheaper.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt` when a record is not what it should be.
    pub(crate) fn read(&mut self, endpoint: &mut ScanEndpoint, direction: Direction) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (mut pending, mut joined) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.joined));
        if direction == Direction::Backward {
            pending.reverse();
        }
        joined.join(&pending);
        let first = self.buffers.len();
        let read = self.read_joined(&mut joined, endpoint).and_then(|()| {
            let mut found = pending.iter().zip(&joined.places);
            found.try_for_each(|(pending, &(read, start))| self.verify(pending, first + read, start))
        });
        pending.clear();
        (self.pending, self.joined) = (pending, joined);
        read
    }

    /// Adds the buffers that the reads bring.
    fn read_joined(&mut self, joined: &mut Joined, endpoint: &mut ScanEndpoint) -> Result<()> {
        if let Some((bytes, starts)) = gathered(endpoint, &joined.reads) {
            self.buffers.push(Buffer::Gathered(bytes));
            for (read, start) in &mut joined.places {
                *start += starts.get(*read).copied().unwrap_or_default();
                *read = 0;
            }
            return Ok(());
        }
        let Joined { reads, asked, .. } = joined;
        let mut read = reads.drain(..).try_for_each(|read| {
            asked.push(endpoint.ask(read.spot, read.length as usize)?);
            Ok(())
        });
        for asked in asked.drain(..) {
            if read.is_err() {
                endpoint.give_up(asked);
                continue;
            }
            read = endpoint.wait(asked).map(|slot| self.buffers.push(Buffer::Read(slot)));
        }
        read
    }

    /// Finds the value of an entry in what was read.
    fn verify(&mut self, pending: &Pending, buffer: usize, start: usize) -> Result<()> {
        let whole = Place::new(buffer + 1, &(start..start + pending.length as usize));
        let Some(entry) = self.entries.get(pending.entry) else { return Ok(()) };
        let (bytes, key) = (self.at(whole).unwrap_or_default(), self.at(entry.key).unwrap_or_default());
        let value = value_in(bytes, key, pending.tag)
            .map_err(|error| error.during(&format!("scanning {}", pending.logical)))?;
        if let Some(entry) = self.entries.get_mut(pending.entry) {
            entry.value = Place::new(buffer + 1, &(start + value.start..start + value.end));
        }
        Ok(())
    }
}

impl Joined {
    /// Determines the reads. Records of a segment that nearly follow each other are one read: a table's records are in
    /// several runs, which a scan goes through at the same time.
    fn join(&mut self, pending: &[Pending]) {
        self.reads.clear();
        self.places.clear();
        self.asked.clear();
        self.open.clear();
        for Pending { logical, spot, length, .. } in pending {
            let length = u64::from(*length);
            let number = self.open.entry(logical.segment).or_insert(usize::MAX);
            if let Some(read) = self.reads.get_mut(*number)
                && let Some(at) = read.reach(spot, length)
            {
                self.places.push((*number, at as usize));
                continue;
            }
            *number = self.reads.len();
            self.places.push((self.reads.len(), 0));
            self.reads.push(Read { spot: spot.clone(), length });
        }
    }
}

/// Returns the reads' bytes, if the memory node brings them, and where the bytes of each read begin.
fn gathered(endpoint: &ScanEndpoint, reads: &[Read]) -> Option<(Vec<u8>, Vec<usize>)> {
    if !endpoint.gathers(reads.len()) {
        return None;
    }
    let range = |read: &Read| match read.spot {
        Spot::Memory { address, extent } => Some(ExtentRange { extent, offset: address.offset, length: read.length }),
        Spot::Storage { .. } => None,
    };
    let ranges: Vec<_> = reads.iter().map(range).collect::<Option<_>>()?;
    let (mut starts, mut end) = (Vec::with_capacity(reads.len()), 0);
    for read in reads {
        starts.push(end);
        end += read.length as usize;
    }
    let mut bytes = Vec::new();
    for request in ranges.chunks(gather::MAX_RANGES) {
        let fits = gather::total_bytes(request)? <= gather::MAX_BYTES;
        let part = fits.then(|| endpoint.gather(request))??;
        if bytes.is_empty() {
            bytes = part;
        } else {
            bytes.extend_from_slice(&part);
        }
    }
    (bytes.len() == end).then_some((bytes, starts))
}

/// Verifies a record, and returns where in its bytes the value is.
fn value_in(bytes: &[u8], key: &[u8], tag: Tag) -> Result<Range<usize>> {
    let record = Record::decode(bytes)?;
    if record.key != key {
        return Err(Error::corrupt("the record is another key's"));
    }
    if record.tag != tag {
        return Err(Error::corrupt("the record is of another version of the key"));
    }
    let end = record.length();
    Ok(end - record.value.len()..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{ErrorKind, Kind, SequenceNumber};
    use forebay_fabric::Arena;

    #[test]
    fn a_record_of_another_key_or_version_is_no_value() {
        let of_number = |number| Record::put(SequenceNumber(number), b"key", b"value");
        let (record, mut bytes) = (of_number(7), Vec::new());
        record.encode(&mut bytes);
        let value = value_in(&bytes, b"key", record.tag).unwrap();
        assert_eq!(bytes.get(value), Some(&b"value"[..]));
        for (key, number) in [(b"kex", 7), (b"key", 6), (b"key", 8)] {
            assert_eq!(value_in(&bytes, key, of_number(number).tag).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn long_keys_end_a_batch() {
        let (mut batch, key) = (ScanBatch::default(), vec![7u8; 64 << 10]);
        while batch.has_room(usize::MAX) {
            batch.add(&key, Some(Location::Local(b"value"))).unwrap();
        }
        assert_eq!(batch.len(), MAX_HELD_BYTES / key.len());
    }

    #[test]
    fn chunks_in_which_little_is_shown_end_a_batch() {
        const CHUNK_BYTES: usize = 1 << 20;
        let (mut batch, mut arena) = (ScanBatch::default(), Arena::new());
        let record = RunRecord { tag: Tag::new(SequenceNumber(1), Kind::Put, false), key: 0..1, value: 1..2 };
        let add = |batch: &mut ScanBatch, chunk: &Arc<Slot>| {
            let buffer = batch.share(chunk);
            batch.add_shared(buffer, &record);
        };
        let chunks = [(); 2].map(|()| Arc::new(arena.take(CHUNK_BYTES).unwrap()));
        // Two sources that take turns: each chunk counts once.
        for _ in 0..100 {
            chunks.iter().for_each(|chunk| add(&mut batch, chunk));
        }
        assert!(batch.has_room(usize::MAX));
        let mut more = 0;
        while batch.has_room(usize::MAX) {
            add(&mut batch, &Arc::new(arena.take(CHUNK_BYTES).unwrap()));
            more += 1;
        }
        assert_eq!(chunks.len() + more, MAX_HELD_BYTES / CHUNK_BYTES);
    }
}
