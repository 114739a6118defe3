//! Encodes a block object: bytes in, bytes out.

use super::block::{Place, encode};
use super::compression::Compressor;
use super::directory::BlockDirectory;
use super::options::{BlockOptions, MAX_ABOUT_BYTES, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
use crate::error::{Error, Result};
use bytes::Bytes;
use forebay_base::ErrorKind;

/// Encodes a block object whose bytes come one after the other.
#[derive(Debug)]
pub struct BlockEncoder {
    compressor: Compressor,
    directory: BlockDirectory,
    /// Bytes of the block that is not full yet.
    pending: Vec<u8>,
}

impl BlockEncoder {
    /// An encoder of the object `identity`, a number that its readers know. `about` is what the writer says of the
    /// object.
    ///
    /// # Errors
    /// `Invalid` for a block length or level that is not allowed, or too long an `about`.
    pub fn new(options: BlockOptions, identity: u64, about: &[u8]) -> Result<Self> {
        let invalid = |detail: String| Error::new(ErrorKind::Invalid, "encode", "a block object", detail);
        let BlockOptions { block_bytes, compression } = options;
        if !BlockOptions::allows(block_bytes) {
            let detail = format!(
                "blocks of {block_bytes} bytes: choose a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}"
            );
            return Err(invalid(detail));
        }
        if about.len() > MAX_ABOUT_BYTES {
            return Err(invalid(format!("more than {MAX_ABOUT_BYTES} bytes are said of the object")));
        }
        let about = Bytes::copy_from_slice(about);
        let directory = BlockDirectory { identity, about, length: 0, block_bytes, ends: Vec::new() };
        Ok(Self { compressor: Compressor::new(compression)?, directory, pending: Vec::new() })
    }

    /// Adds bytes to the object, and the blocks that became full to `out`.
    ///
    /// # Errors
    /// `Invalid` when the object has more blocks than can be counted.
    pub fn add(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let block_bytes = self.directory.block_bytes as usize;
        if !self.pending.is_empty() {
            let (missing, rest) = bytes.split_at(bytes.len().min(block_bytes - self.pending.len()));
            self.pending.extend_from_slice(missing);
            bytes = rest;
            if self.pending.len() == block_bytes {
                let pending = std::mem::take(&mut self.pending);
                self.block(&pending, out)?;
                self.pending = pending;
                self.pending.clear();
            }
        }
        let blocks = bytes.chunks_exact(block_bytes);
        self.pending.extend_from_slice(blocks.remainder());
        for block in blocks {
            self.block(block, out)?;
        }
        Ok(())
    }

    /// Adds the rest of the object to `out`, and returns its directory.
    ///
    /// # Errors
    /// As for [`BlockEncoder::add`].
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<BlockDirectory> {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            self.block(&pending, out)?;
        }
        self.directory.encode(out);
        Ok(self.directory)
    }

    fn block(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let directory = &mut self.directory;
        // The directory's length is a u32.
        let number = u32::try_from(directory.ends.len()).ok().filter(|number| *number < u32::MAX / 8);
        let number = number.ok_or_else(|| {
            let detail = "the object has too many blocks: make several, or choose longer blocks";
            Error::new(ErrorKind::Invalid, "encode", "a block object", detail)
        })?;
        let place = Place { identity: directory.identity, number };
        let stored = encode(place, bytes, &mut self.compressor, out);
        let last = directory.ends.last().copied().unwrap_or(0);
        directory.ends.push(last + u64::from(stored));
        directory.length += bytes.len() as u64;
        Ok(())
    }
}
