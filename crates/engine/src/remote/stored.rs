//! A segment that is being written to storage, not to memory: as a stream, from start to end.

use crate::terms::{Error, Result};
use forebay_base::SegmentId;
use forebay_storage::{BlockDirectory, BlockWriter, ObjectName};
use forebay_table::{Placement, SegmentInfo, SegmentKind};

/// See the module.
#[derive(Debug)]
pub(crate) struct StoredWriter {
    id: SegmentId,
    kind: SegmentKind,
    length: u64,
    name: ObjectName,
    writer: BlockWriter,
    written: u64,
}

impl StoredWriter {
    /// Begins a segment of exactly `length` bytes, which `writer` writes to the object `name`.
    pub(crate) const fn new(
        (id, kind, length): (SegmentId, SegmentKind, u64),
        name: ObjectName,
        writer: BlockWriter,
    ) -> Self {
        Self { id, kind, length, name, writer, written: 0 }
    }

    /// The name of its object.
    pub(crate) const fn name(&self) -> &ObjectName {
        &self.name
    }

    /// Where the segment will be.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        vec![Placement::Storage { object: self.name.as_str().to_owned() }]
    }

    /// Adds the bytes at `offset`, which is where the last ones ended.
    ///
    /// # Errors
    /// `Invalid` when `offset` is another one; those of the storage.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if offset != self.written || end > self.length {
            let (id, written, length) = (self.id, self.written, self.length);
            let message = format!("{} bytes at {offset} of {id}: {written} of {length} are written", bytes.len());
            return Err(Error::invalid(message));
        }
        self.written = end;
        Ok(self.writer.write(bytes)?)
    }

    /// Whether all bytes are written.
    pub(crate) const fn is_whole(&self) -> bool {
        self.written == self.length
    }

    /// Makes the object. Without this call there is none.
    ///
    /// # Errors
    /// `Invalid` when bytes are missing; those of the storage.
    pub(crate) fn finish(self) -> Result<(SegmentId, SegmentInfo, BlockDirectory)> {
        if !self.is_whole() {
            let message = format!("{}: {} of {} bytes were written", self.id, self.written, self.length);
            return Err(Error::invalid(message));
        }
        let info = SegmentInfo::new(self.kind, self.length, self.placements());
        Ok((self.id, info, self.writer.finish()?))
    }
}
