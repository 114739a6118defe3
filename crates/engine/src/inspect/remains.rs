//! What is left of an object: the blocks that can be read, and zeros for the others.

use crate::terms::{Error, Result};
use forebay_storage::BlockObject;
use forebay_table::CachedTable;
use forebay_table::image::tail_offset;
use std::ops::Range;

/// The bytes of an object, and where they are missing.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) bytes: Vec<u8>,
    /// Where a block is missing, and why.
    pub(crate) holes: Vec<(Range<u64>, Error)>,
}

impl Remains {
    /// Bytes of which none is missing.
    pub(crate) const fn whole(bytes: Vec<u8>) -> Self {
        Self { bytes, holes: Vec::new() }
    }

    /// Reads an object block by block.
    pub(crate) fn read(object: &BlockObject) -> Self {
        let directory = object.directory();
        // The directory was verified, and an object that it describes exists.
        let mut bytes = vec![0; directory.length() as usize];
        let mut holes = Vec::new();
        let mut offset = 0;
        for block in bytes.chunks_mut(directory.block_bytes() as usize) {
            let end = offset + block.len() as u64;
            if let Err(error) = object.read_at(offset, block) {
                holes.push((offset..end, error.into()));
                block.fill(0);
            }
            offset = end;
        }
        Self { bytes, holes }
    }

    /// Whether all of a range of bytes can be read.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        range.end <= self.bytes.len() as u64
            && self.holes.iter().all(|(hole, _)| hole.end <= range.start || range.end <= hole.start)
    }

    /// The table whose image this is; `None` when it is no image.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for the image of a newer build.
    pub(crate) fn table(&self) -> Option<Result<CachedTable>> {
        let tail = self.bytes.get(tail_offset(&self.bytes)?..)?;
        Some(CachedTable::parse(tail).map_err(Error::from))
    }
}
