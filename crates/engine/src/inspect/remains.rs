//! What is left of an object: the blocks that can be read, and zeros for the others.

use crate::terms::Error;
use forebay_storage::BlockObject;
use forebay_table::CachedTable;
use forebay_table::image::tail_offset;

/// The bytes of an object, and where they are missing.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) bytes: Vec<u8>,
    /// Where a block is missing, and why.
    pub(crate) holes: Vec<(u64, Error)>,
}

impl Remains {
    /// Reads an object block by block.
    pub(crate) fn read(object: &BlockObject) -> Self {
        let directory = object.directory();
        // The directory was verified, and an object that it describes is there.
        let mut bytes = vec![0; directory.length() as usize];
        let mut holes = Vec::new();
        let mut offset = 0;
        for block in bytes.chunks_mut(directory.block_bytes() as usize) {
            if let Err(error) = object.read_at(offset, block) {
                holes.push((offset, error.into()));
                block.fill(0);
            }
            offset += block.len() as u64;
        }
        Self { bytes, holes }
    }

    /// The table whose image this is; `None` when it is no image, or not one that can be read.
    pub(crate) fn table(&self) -> Option<CachedTable> {
        let tail = self.bytes.get(tail_offset(&self.bytes)?..)?;
        CachedTable::parse(tail).ok()
    }
}
