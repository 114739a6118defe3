//! The records of a run, streamed (dLSM VI): large sequential reads, records taken as they lie.
//!
//! ```text
//!   run      [ … seen … | chunk: … record ▸ record … | asked for | asked for | not yet … ]
//!                                  ▲ current
//! ```
//!
//! Reads double from [`FIRST_CHUNK_BYTES`] to [`MAX_CHUNK_BYTES`]: a short scan brings little, a long
//! one streams. Once it streams, [`AHEAD`] reads are kept in flight. Nothing is asked for ahead
//! behind `likely_end`, where the scan's bounds probably end.
//!
//! Records are self-describing, so no index is read. A record is verified when the reader comes to
//! it. One that lies across chunks is put together in a buffer of its own.

use crate::scan_endpoint::{Asked, SharedEndpoint};
use crate::segment::Segment;
use crate::{Error, Result};
use forebay_base::record::MAX_HEADER_BYTES;
use forebay_base::{InternalKey, LogicalAddress, RecordHeader, Tag};
use forebay_env::sync::lock;
use forebay_fabric::Slot;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the first read.
const FIRST_CHUNK_BYTES: u64 = 8 << 10;
/// Bytes of a read, at most. Larger ones are no faster and would not stay in the cache until they
/// are used.
const MAX_CHUNK_BYTES: u64 = 256 << 10;
/// Reads in flight once the scan streams.
const AHEAD: usize = 2;

/// See the module.
pub(crate) struct RunReader {
    segment: Arc<Segment>,
    endpoint: SharedEndpoint,
    /// What was not asked for yet.
    rest: Range<u64>,
    likely_end: u64,
    asked: VecDeque<Asked>,
    next_bytes: u64,
    chunk: Option<Arc<Slot>>,
    /// Bytes of the chunk that were passed, the current record included.
    passed: usize,
    /// The current record, if it lies across chunks.
    assembled: Vec<u8>,
    current: Option<RunRecord>,
}

/// Where a record's parts are, in the chunk or in the buffer for those that lie across chunks.
#[derive(Debug, Clone)]
pub(crate) struct RunRecord {
    pub(crate) tag: Tag,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
    is_assembled: bool,
}

impl RunReader {
    /// A reader of the records in a range of a segment, before the first of them.
    pub(crate) fn new(segment: Arc<Segment>, endpoint: SharedEndpoint, records: Range<u64>, likely_end: u64) -> Self {
        Self {
            segment,
            endpoint,
            rest: records,
            likely_end,
            asked: VecDeque::new(),
            next_bytes: FIRST_CHUNK_BYTES,
            chunk: None,
            passed: 0,
            assembled: Vec::new(),
            current: None,
        }
    }

    /// The current record.
    #[inline]
    pub(crate) fn current(&self) -> Option<&RunRecord> {
        self.current.as_ref()
    }

    /// The chunk that a record lies in; `None` when it lies across chunks.
    #[inline]
    pub(crate) fn chunk_of(&self, record: &RunRecord) -> Option<&Arc<Slot>> {
        if record.is_assembled { None } else { self.chunk.as_ref() }
    }

    /// The bytes that a record's parts are ranges of.
    #[inline]
    pub(crate) fn bytes_of(&self, record: &RunRecord) -> &[u8] {
        if record.is_assembled { &self.assembled } else { self.chunk.as_ref().map_or(&[], |chunk| chunk) }
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        let record = self.current.as_ref()?;
        Some(InternalKey { user_key: self.bytes_of(record).get(record.key.clone())?, tag: record.tag })
    }

    /// Goes to the next record, or behind the last.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt`. The reader is then behind the last record.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        let left = self.chunk.as_ref().and_then(|chunk| chunk.get(self.passed..)).unwrap_or_default();
        match RecordHeader::decode(left) {
            Ok(header) if header.padded_length() <= left.len() => {
                if let Err(error) = header.verify(left) {
                    return Err(self.bad(error.into()));
                }
                self.current = Some(RunRecord::new(&header, self.passed, false));
                self.passed += header.padded_length();
                Ok(())
            }
            Err(error) if left.len() >= MAX_HEADER_BYTES => Err(self.bad(error.into())),
            // The chunk ends within the record; a header that is cut off by it cannot be decoded.
            Ok(_) | Err(_) => self.assemble(),
        }
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
            // It is shorter: the bytes behind it are the next one's. They came from this chunk, for
            // the one before ended within the record.
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
        self.current = Some(RunRecord::new(&header, 0, true));
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

    /// Goes over to the next chunk. Whether there is one.
    fn next_chunk(&mut self) -> Result<bool> {
        let mut endpoint = lock(&self.endpoint);
        self.passed = 0;
        if let Some(slot) = self.chunk.take().and_then(Arc::into_inner) {
            endpoint.release(slot);
        }
        let streams = self.next_bytes >= MAX_CHUNK_BYTES;
        let wanted = if streams { AHEAD + 1 } else { 1 };
        while self.asked.len() < wanted && !self.rest.is_empty() {
            if !self.asked.is_empty() && self.rest.start >= self.likely_end {
                break;
            }
            let likely = self.likely_end.saturating_sub(self.rest.start).max(FIRST_CHUNK_BYTES);
            let bytes = self.next_bytes.min(self.rest.end - self.rest.start).min(likely);
            self.asked.push_back(endpoint.ask(self.segment.at(self.rest.start), bytes as usize)?);
            self.rest.start += bytes;
            self.next_bytes = (self.next_bytes * 2).min(MAX_CHUNK_BYTES);
        }
        endpoint.flush();
        let Some(asked) = self.asked.pop_front() else { return Ok(false) };
        self.chunk = Some(Arc::new(endpoint.wait(asked)?));
        Ok(true)
    }

    #[cold]
    fn bad(&mut self, error: Error) -> Error {
        self.current = None;
        let logical = LogicalAddress { segment: self.segment.id(), offset: self.rest.start };
        error.during(&format!("streaming a run, before {logical}"))
    }
}

impl Drop for RunReader {
    fn drop(&mut self) {
        let mut endpoint = lock(&self.endpoint);
        self.asked.drain(..).for_each(|asked| endpoint.give_up(&asked));
        if let Some(slot) = self.chunk.take().and_then(Arc::into_inner) {
            endpoint.release(slot);
        }
    }
}

impl RunRecord {
    #[inline]
    fn new(header: &RecordHeader, start: usize, is_assembled: bool) -> Self {
        let key = start + header.key_offset..start + header.key_offset + header.key_length;
        let value = key.end..key.end + header.value_length;
        Self { tag: header.tag, key, value, is_assembled }
    }
}
