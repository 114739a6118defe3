//! A block object on its way to storage.

use super::directory::BlockDirectory;
use super::encoder::BlockEncoder;
use super::options::BlockOptions;
use crate::error::Result;
use crate::objects::ObjectWriter;
use bytes::Bytes;

/// Approximate bytes that are handed to the storage at once.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a block object as a stream: no more than a piece of it is held here.
#[derive(Debug)]
pub struct BlockWriter {
    encoder: BlockEncoder,
    writer: Box<dyn ObjectWriter>,
    piece: Vec<u8>,
}

impl BlockWriter {
    /// Begins the object `identity` with `writer`. `about` is what the writer says of the object.
    ///
    /// # Errors
    /// As for [`BlockEncoder::new`].
    pub fn new(writer: Box<dyn ObjectWriter>, options: BlockOptions, identity: u64, about: &[u8]) -> Result<Self> {
        Ok(Self { encoder: BlockEncoder::new(options, identity, about)?, writer, piece: Vec::new() })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// As for [`ObjectWriter::write`]; then no object is made.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(PIECE_BYTES) {
            self.encoder.add(part, &mut self.piece)?;
            if self.piece.len() >= PIECE_BYTES {
                self.writer.write(Bytes::from(std::mem::take(&mut self.piece)))?;
            }
        }
        Ok(())
    }

    /// Makes the object from what was written. Without this call there is no object.
    ///
    /// # Errors
    /// As for [`ObjectWriter::finish`].
    pub fn finish(self) -> Result<BlockDirectory> {
        let Self { encoder, mut writer, mut piece } = self;
        let directory = encoder.finish(&mut piece)?;
        writer.write(Bytes::from(piece))?;
        writer.finish()?;
        Ok(directory)
    }
}
