//! The records of a run, streamed (dLSM VI): large sequential reads, records taken as they are stored.
//!
//! ```text
//!   forward    [ … seen … | chunk: … record ▸ record … | asked for | asked for | not yet … ]
//!   backward   [ … not yet | asked for | asked for | chunk: … record ◂ record … | … seen … ]
//! ```
//!
//! Reads grow and are kept in flight ahead as [`ReadAhead`] says. A record is verified when the reader reaches it. A
//! record that spans chunks is put together in a buffer of its own.
//!
//! Records are self-describing, so no index is read forward. A record does not show where the record before it begins.
//! So backward, the table's index says where each record is.

use crate::remote::segment::Segment;
use crate::scan::found::{Filled, Location, RunRecord, goes_on};
use crate::scan::read_ahead::ReadAhead;
use crate::scan::scan_batch::{ScanBatch, Shared};
use crate::scan::scan_endpoint::SharedEndpoint;
use crate::scan::visibility::{Verdict, Visibility};
use crate::terms::{Error, Result};
use forebay_base::record::MAX_HEADER_BYTES;
use forebay_base::{InternalKey, LogicalAddress, RecordError, RecordHeader};
use forebay_fabric::Slot;
use forebay_table::entry::UNIT_BYTES;
use forebay_table::merge::Rival;
use forebay_table::{Direction, IndexEntry};
use std::ops::Range;
use std::sync::Arc;

/// See the module.
pub(crate) struct RunReader {
    ahead: ReadAhead,
    records: Range<u64>,
    /// Where in the segment the chunk begins.
    chunk_start: u64,
    chunk: Option<Arc<Slot>>,
    /// The batch and buffer as which the chunk was shared last.
    shared: Shared,
    /// Bytes of the chunk that were passed, the current record included. Forward only.
    passed: usize,
    /// The current record, if it spans chunks.
    assembled: Vec<u8>,
    is_assembled: bool,
    current: Option<RunRecord>,
}

impl RunReader {
    /// Returns a reader of the records in a range of a segment, which stands at none of them. The scan needs about
    /// those within `likely`. `pace` has the bytes of the first read and of the longest.
    pub(crate) fn new(
        segment: Arc<Segment>,
        endpoint: SharedEndpoint,
        direction: Direction,
        records: Range<u64>,
        likely: &Range<u64>,
        pace: (u64, u64),
    ) -> Self {
        let ahead = ReadAhead::new(segment, endpoint, direction, records.clone(), likely, pace.0, pace.1);
        Self {
            ahead,
            records,
            chunk_start: 0,
            chunk: None,
            shared: Shared::default(),
            passed: 0,
            assembled: Vec::new(),
            is_assembled: false,
            current: None,
        }
    }

    /// Returns how many bytes were wanted of the last read.
    pub(crate) const fn last_bytes(&self) -> u64 {
        self.ahead.last_bytes()
    }

    /// The current record.
    #[inline]
    pub(crate) fn current(&self) -> Option<&RunRecord> {
        self.current.as_ref()
    }

    /// Where the current record is.
    pub(crate) fn location(&self) -> Option<Location<'_>> {
        let record = self.current.as_ref()?;
        match &self.chunk {
            Some(chunk) if !self.is_assembled => Some(Location::Chunk { chunk, record }),
            _ => Some(Location::Local(self.bytes().get(record.value.clone())?)),
        }
    }

    /// The bytes that the current record's parts are ranges of.
    #[inline]
    fn bytes(&self) -> &[u8] {
        if self.is_assembled { &self.assembled } else { self.chunk.as_ref().map_or(&[], |chunk| chunk) }
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        let record = self.current.as_ref()?;
        Some(InternalKey { user_key: self.bytes().get(record.key.clone())?, tag: record.tag })
    }

    /// The current record's expiry.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        self.current.as_ref()?.expiry_ms(self.bytes())
    }

    /// Goes to the next record, or past the last.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt`. The reader is then past the last record.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        let chunk = self.chunk.as_ref().map_or(&[][..], |chunk| chunk);
        match next_in(chunk, &mut self.passed) {
            Ok(None) => self.assemble(),
            Ok(next) => {
                (self.current, self.is_assembled) = (next, false);
                Ok(())
            }
            Err(error) => Err(self.bad(error.into())),
        }
    }

    /// Goes forward from the current record, and adds what is shown to `batch`, as long as the record comes before the
    /// `rival` and the batch has fewer than `limit` entries.
    ///
    /// # Errors
    /// As [`RunReader::advance`].
    pub(crate) fn fill(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        loop {
            let filled = if self.is_assembled {
                self.fill_assembled(batch, visibility)?
            } else {
                self.fill_from_chunk(batch, visibility, limit, rival)?
            };
            let goes_on = filled == Filled::Some
                && batch.has_room(limit)
                && self.key().is_some_and(|key| goes_on(rival, key.user_key));
            if !goes_on {
                return Ok(filled);
            }
        }
    }

    /// As [`RunReader::fill`], from the chunk that contains the current record. The loop depends on nothing that it
    /// stores, so that the processor verifies several records at a time.
    fn fill_from_chunk(
        &mut self,
        batch: &mut ScanBatch,
        visibility: &mut Visibility<'_>,
        limit: usize,
        rival: Option<Rival>,
    ) -> Result<Filled> {
        let Some(chunk) = self.chunk.take() else { return Ok(Filled::Some) };
        let bytes: &[u8] = &chunk;
        let (mut current, mut passed) = (self.current.take(), self.passed);
        let (mut buffer, mut last) = (None, None);
        let (mut filled, mut is_first) = (Filled::Some, true);
        while let Some(record) = &current
            && batch.has_room(limit)
        {
            let user_key = bytes.get(record.key.clone()).unwrap_or_default();
            if !std::mem::take(&mut is_first) && !goes_on(rival, user_key) {
                break;
            }
            let key = InternalKey { user_key, tag: record.tag };
            let expiry_ms = record.expiry_ms(bytes);
            match visibility.decide_behind(last, key, expiry_ms) {
                Verdict::Shown => {
                    let buffer = *buffer.get_or_insert_with(|| batch.share_again(&chunk, &mut self.shared));
                    batch.add_shared(buffer, record);
                    batch.expires(expiry_ms);
                }
                Verdict::Merged => batch.add_merged(key.user_key),
                Verdict::Hidden => {}
                Verdict::Outside => {
                    filled = Filled::End;
                    break;
                }
            }
            if visibility.covers(key) {
                last = Some(user_key);
            }
            current = next_in(bytes, &mut passed).map_err(|error| self.bad(error.into()))?;
        }
        if let Some(last) = last {
            visibility.pass(last);
        }
        (self.chunk, self.current, self.passed) = (Some(chunk), current, passed);
        if self.current.is_none() {
            self.assemble()?;
        }
        Ok(filled)
    }

    /// As [`RunReader::fill`], for the current record alone, which spans chunks.
    #[cold]
    fn fill_assembled(&mut self, batch: &mut ScanBatch, visibility: &mut Visibility<'_>) -> Result<Filled> {
        if let Some(key) = self.key() {
            let expiry_ms = self.expiry_ms();
            match visibility.decide(key, expiry_ms) {
                Verdict::Shown => {
                    batch.add(key.user_key, self.location())?;
                    batch.expires(expiry_ms);
                }
                Verdict::Merged => batch.add_merged(key.user_key),
                Verdict::Hidden => {}
                Verdict::Outside => return Ok(Filled::End),
            }
        }
        self.advance()?;
        Ok(Filled::Some)
    }

    /// Goes to the next record, which begins at the chunk's end or is cut off by it.
    #[cold]
    fn assemble(&mut self) -> Result<()> {
        self.current = None;
        self.assembled.clear();
        // A record at the run's end may be shorter than the longest header.
        self.take(MAX_HEADER_BYTES)?;
        if self.assembled.is_empty() {
            return Ok(());
        }
        let header = match RecordHeader::decode(&self.assembled) {
            Ok(header) => header,
            Err(error) => return Err(self.bad(error.into())),
        };
        let length = header.padded_length();
        match length.checked_sub(self.assembled.len()) {
            Some(missing) => self.take(missing)?,
            // The record is shorter: the bytes after it are the next record's. They came from this chunk, as the chunk
            // before ended within the record.
            None => {
                self.passed = self.passed.saturating_sub(self.assembled.len() - length);
                self.assembled.truncate(length);
            }
        }
        if self.assembled.len() < length {
            return Err(self.bad(Error::corrupt("the run ends within a record")));
        }
        if let Err(error) = header.verify(&self.assembled) {
            return Err(self.bad(error.into()));
        }
        (self.current, self.is_assembled) = (Some(RunRecord::new(&header, 0)), true);
        Ok(())
    }

    /// Moves the next `count` bytes into the buffer, or as many as there are.
    fn take(&mut self, mut count: usize) -> Result<()> {
        while count > 0 {
            let left = self.chunk.as_ref().and_then(|chunk| chunk.get(self.passed..)).unwrap_or_default();
            if left.is_empty() {
                if !self.next_chunk()? {
                    return Ok(());
                }
                continue;
            }
            let taken = left.get(..count.min(left.len())).unwrap_or_default();
            self.assembled.extend_from_slice(taken);
            self.passed += taken.len();
            count -= taken.len();
        }
        Ok(())
    }

    /// Goes back to the record of an entry, in a run that is read backward and that has all of its table's records.
    ///
    /// # Errors
    /// As [`RunReader::advance`]; also `Corrupt` when the bytes there are not that record.
    pub(crate) fn go_back(&mut self, entry: &IndexEntry<'_>) -> Result<()> {
        self.current = None;
        let (offset, length) = (entry.address.offset_units.saturating_mul(UNIT_BYTES), entry.length as usize);
        let end = offset.saturating_add(length as u64);
        if entry.address.ordinal != 0 || offset < self.records.start || end > self.records.end {
            return Err(self.bad(Error::corrupt("an entry's record lies outside of the run")));
        }
        while (self.chunk.is_none() || self.chunk_start >= end) && self.next_chunk()? {}
        let start = offset.checked_sub(self.chunk_start);
        self.is_assembled = start.is_none();
        if self.is_assembled {
            self.assemble_back(offset, end)?;
        }
        let start = start.unwrap_or_default() as usize;
        let bytes = self.bytes().get(start..).and_then(|bytes| bytes.get(..length)).unwrap_or_default();
        match RecordHeader::decode(bytes).and_then(|header| header.verify(bytes).map(|()| header)) {
            Ok(header) => self.current = Some(RunRecord::new(&header, start)),
            Err(error) => return Err(self.bad(error.into())),
        }
        if self.key() != Some(entry.key) {
            return Err(self.bad(Error::corrupt("an entry's record is another one's")));
        }
        Ok(())
    }

    /// Puts together the record from `offset` up to `end`. The chunk has its last part.
    #[cold]
    fn assemble_back(&mut self, offset: u64, end: u64) -> Result<()> {
        self.assembled.clear();
        self.assembled.resize((end - offset) as usize, 0);
        // Where the part begins that is already put together.
        let mut reached = end;
        while reached > offset {
            if reached < end && !self.next_chunk()? {
                return Err(self.bad(Error::corrupt("the run begins within a record")));
            }
            let start = self.chunk_start;
            let from = offset.max(start);
            let part = reached
                .checked_sub(start)
                .and_then(|to| self.chunk.as_ref()?.get((from - start) as usize..to as usize));
            let place = self.assembled.get_mut((from - offset) as usize..(reached - offset) as usize);
            match (place, part) {
                (Some(place), Some(part)) => place.copy_from_slice(part),
                _ => return Err(self.bad(Error::corrupt("an entry's record overlaps the one behind it"))),
            }
            reached = from;
        }
        Ok(())
    }

    /// Goes to the next chunk. Returns whether there is one.
    fn next_chunk(&mut self) -> Result<bool> {
        self.give_back();
        self.shared = Shared::default();
        self.passed = 0;
        let Some((start, chunk)) = self.ahead.next(|piece| piece)? else { return Ok(false) };
        (self.chunk_start, self.chunk) = (start, Some(Arc::new(chunk)));
        Ok(true)
    }

    /// Releases the chunk. If it is still in use, its last user gives it back.
    fn give_back(&mut self) {
        if let Some(slot) = self.chunk.take().and_then(Arc::into_inner) {
            self.ahead.release(slot);
        }
    }

    #[cold]
    fn bad(&mut self, error: Error) -> Error {
        self.current = None;
        let logical = LogicalAddress { segment: self.ahead.segment().id(), offset: self.chunk_start };
        error.during(&format!("streaming a run, around {logical}"))
    }
}

impl Drop for RunReader {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Returns the record of `chunk` after the first `passed` bytes, verifies it, and passes it. Returns `None` when the
/// chunk ends before the record does. A header that is cut off by the chunk's end cannot be decoded.
///
/// Inlined: otherwise the result would go through memory, and a scan would wait for that with every record.
#[inline(always)]
fn next_in(chunk: &[u8], passed: &mut usize) -> Result<Option<RunRecord>, RecordError> {
    let left = chunk.get(*passed..).unwrap_or_default();
    match RecordHeader::decode(left) {
        Ok(header) if header.padded_length() <= left.len() => {
            header.verify(left)?;
            let record = RunRecord::new(&header, *passed);
            *passed += header.padded_length();
            Ok(Some(record))
        }
        Err(error) if left.len() >= MAX_HEADER_BYTES => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}
