//! The entries that a scan brings at once, with their values.

use crate::cursor::Location;
use crate::read::received;
use crate::{Error, Result};
use forebay_base::record::pad;
use forebay_base::{LogicalAddress, Record};
use forebay_fabric::{Endpoint, RemoteAddress, Slot};
use forebay_table::Direction;
use std::ops::Range;

/// Bytes of one read that joins neighbouring records, at most.
const MAX_READ_BYTES: u64 = 256 << 10;

/// Entries in the order in which the scan meets them, whose values are here once they are read.
#[derive(Default)]
pub(crate) struct ScanBatch {
    /// Keys and local values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    slots: Vec<Slot>,
    value_bytes: usize,
}

struct Entry {
    key: Range<usize>,
    value: Value,
    value_bytes: usize,
}

enum Value {
    /// In the batch's bytes.
    Local(Range<usize>),
    /// In a record that was read.
    Read { slot: usize, value: Range<usize> },
    /// In a record that is to be read.
    Pending { logical: LogicalAddress, address: RemoteAddress, length: u32 },
}

impl ScanBatch {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the values; of those that are yet to be read, the lengths of their records.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The key of an entry.
    pub(crate) fn key(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(self.entries.get(index)?.key.clone())
    }

    /// The value of an entry that was read.
    pub(crate) fn value(&self, index: usize) -> Option<&[u8]> {
        match &self.entries.get(index)?.value {
            Value::Local(range) => self.bytes.get(range.clone()),
            Value::Read { slot, value } => self.slots.get(*slot)?.get(value.clone()),
            Value::Pending { .. } => None,
        }
    }

    /// Removes all entries; what they were read into goes back to `endpoint`.
    pub(crate) fn clear(&mut self, endpoint: &mut Endpoint) {
        self.slots.drain(..).for_each(|slot| endpoint.release(slot));
        self.bytes.clear();
        self.entries.clear();
        self.value_bytes = 0;
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Corrupt` when its value is nowhere.
    pub(crate) fn add(&mut self, key: &[u8], location: Option<Location<'_>>) -> Result<()> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = at..self.bytes.len();
        let (value, value_bytes) = match location {
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
        self.value_bytes += value_bytes;
        self.entries.push(Entry { key, value, value_bytes });
        Ok(())
    }

    /// Removes the entry that was added last.
    pub(crate) fn remove_last(&mut self) {
        if let Some(last) = self.entries.pop() {
            self.bytes.truncate(last.key.start);
            self.value_bytes -= last.value_bytes;
        }
    }

    /// Reads all pending values with one doorbell. Records that follow each other come in one read:
    /// they lie in key order, whichever way the scan goes.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt` when a record is not what it should be.
    pub(crate) fn read(&mut self, endpoint: &mut Endpoint, direction: Direction) -> Result<()> {
        let mut reads: Vec<(RemoteAddress, u64)> = Vec::new();
        // For each pending entry: its index, which read, and where in it.
        let mut places = Vec::new();
        let mut plan = |(index, entry): (usize, &Entry)| {
            let Value::Pending { address, length, .. } = entry.value else { return };
            let length = u64::from(length);
            match reads.last_mut() {
                Some((start, bytes))
                    if start.key == address.key
                        && address.offset == start.offset + pad(*bytes as usize) as u64
                        && *bytes + length <= MAX_READ_BYTES =>
                {
                    *bytes = address.offset - start.offset + length;
                    let at = (address.offset - start.offset) as usize;
                    places.push((index, reads.len() - 1, at));
                }
                _ => {
                    places.push((index, reads.len(), 0));
                    reads.push((address, length));
                }
            }
        };
        match direction {
            Direction::Forward => self.entries.iter().enumerate().for_each(&mut plan),
            Direction::Backward => self.entries.iter().enumerate().rev().for_each(&mut plan),
        }
        let mut posted = Vec::with_capacity(reads.len());
        for (address, length) in reads {
            let slot = endpoint.slot(length as usize)?;
            posted.push(endpoint.post_read(address, slot)?);
        }
        for id in posted {
            self.slots.push(received(endpoint.wait_for(id)?)?);
        }
        places.into_iter().try_for_each(|(index, slot, start)| self.verify(index, slot, start))
    }

    /// Finds the value of an entry in what was read.
    fn verify(&mut self, index: usize, slot: usize, start: usize) -> Result<()> {
        let Some(entry) = self.entries.get_mut(index) else { return Ok(()) };
        let Value::Pending { logical, length, .. } = entry.value else { return Ok(()) };
        let bytes = self.slots.get(slot).and_then(|slot| slot.get(start..start + length as usize));
        let key = self.bytes.get(entry.key.clone()).unwrap_or_default();
        let value =
            value_in(bytes.unwrap_or_default(), key).map_err(|error| error.during(&format!("scanning {logical}")))?;
        entry.value = Value::Read { slot, value: start + value.start..start + value.end };
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
