//! Writes of a background job, several in flight (dLSM X-C).
//!
//! Buffers that the fabric is done with are used again, in the order in which it finishes them; the
//! job waits only when as many are in flight as it may have.

use crate::endpoints::Pooled;
use crate::memory::Buffer;
use crate::segment::Segment;
use crate::{Error, Result};
use forebay_base::ErrorKind;
use forebay_fabric::Endpoint;

/// Bytes of one write.
const PIECE_BYTES: usize = 1 << 20;
/// Writes in flight.
const DEPTH: usize = 8;

/// An endpoint that writes without waiting for each write.
#[derive(Debug)]
pub(crate) struct Pipeline {
    endpoint: Pooled,
    written_bytes: u64,
}

impl Pipeline {
    pub(crate) fn new(endpoint: Pooled) -> Self {
        Self { endpoint, written_bytes: 0 }
    }

    /// The endpoint, for reads between writes.
    pub(crate) fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Bytes posted so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Writes bytes to a segment: one copy, into registered memory.
    pub(crate) fn write(&mut self, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(segment, offset, bytes.len())?;
        for (i, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let mut slot = self.endpoint.slot(piece.len())?;
            slot.copy_from_slice(piece);
            self.endpoint.post_write(segment.at(offset + (i * PIECE_BYTES) as u64), slot)?;
            self.posted(piece.len())?;
        }
        Ok(())
    }

    /// Writes the first `length` bytes of a memtable's block to the same offsets of a segment:
    /// without a copy.
    pub(crate) fn write_block(&mut self, segment: &Segment, buffer: &Buffer, length: usize) -> Result<()> {
        self.check(segment, 0, length)?;
        let Buffer { memtable, block } = buffer;
        for offset in (0..length).step_by(PIECE_BYTES) {
            let piece = PIECE_BYTES.min(length - offset);
            block.post(memtable, &mut self.endpoint, segment.at(offset as u64), offset, piece)?;
            self.posted(piece)?;
        }
        Ok(())
    }

    fn check(&self, segment: &Segment, offset: u64, length: usize) -> Result<()> {
        if offset.checked_add(length as u64).is_none_or(|end| end > segment.info().length) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{length} bytes at {offset} do not fit into {} of {} bytes",
                    segment.id(),
                    segment.info().length
                ),
            ));
        }
        Ok(())
    }

    fn posted(&mut self, bytes: usize) -> Result<()> {
        self.written_bytes += bytes as u64;
        self.endpoint.flush();
        while let Some(completion) = self.endpoint.poll() {
            self.finish(completion)?;
        }
        while self.endpoint.outstanding() >= DEPTH {
            let completion = self.endpoint.wait()?;
            self.finish(completion)?;
        }
        Ok(())
    }

    fn finish(&mut self, completion: forebay_fabric::Completion) -> Result<()> {
        if let forebay_fabric::Outcome::Done(Some(slot)) = completion.result? {
            self.endpoint.release(slot);
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(crate) fn drain(&mut self) -> Result<()> {
        while self.endpoint.outstanding() > 0 {
            let completion = self.endpoint.wait()?;
            self.finish(completion)?;
        }
        Ok(())
    }
}
