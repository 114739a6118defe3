//! A job's objects in storage: ranged reads of its inputs, and puts of its outputs under names of the attempt.

use crate::Error;
use forebay_base::SegmentId;
use forebay_offload::StoredPlace;
use forebay_storage::{
    BlockCache, BlockCacheOptions, BlockObject, BlockOptions, BlockWriter, Compression, NumberedObjects, ObjectName,
    ObjectNumber, Storage,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The storage that a worker reaches.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    storage: Storage,
    cache: Arc<BlockCache>,
}

impl Reached {
    pub fn new(storage: Storage) -> Result<Self, Error> {
        Ok(Self { storage, cache: Arc::new(BlockCache::new(BlockCacheOptions::default())?) })
    }
}

/// The objects of one attempt.
#[derive(Debug)]
pub(crate) struct Stored {
    reached: Reached,
    numbered: NumberedObjects,
    epoch: u64,
    layout: BlockOptions,
    /// Whether outputs go there.
    pub has_outputs: bool,
    /// Outputs that are being written, each with what is missing.
    writing: BTreeMap<SegmentId, (BlockWriter, u64)>,
}

impl Stored {
    pub fn new(reached: Reached, place: &StoredPlace) -> Result<Self, Error> {
        let compression = match place.compression {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd { level: place.level },
            other => return Err(Error::Unsupported(format!("objects of compression {other} are not known"))),
        };
        let prefix = ObjectName::new(place.prefix.as_str())?;
        let numbered = NumberedObjects::new(Arc::clone(reached.storage.objects()), prefix);
        let layout = BlockOptions { block_bytes: place.block_bytes, compression };
        let (epoch, has_outputs) = (place.epoch, place.has_outputs);
        Ok(Self { reached, numbered, epoch, layout, has_outputs, writing: BTreeMap::new() })
    }

    /// Opens an input.
    pub fn open(&self, name: &str, length: u64) -> Result<BlockObject, Error> {
        let name = ObjectName::new(name)?;
        let objects = self.reached.storage.objects();
        let reader = objects.open(&name)?;
        let object = self.reached.cache.open(reader, name.as_str(), objects.size(&name)?, name.identity())?;
        if object.directory().length() == length {
            Ok(object)
        } else {
            Err(Error::Corrupt(format!("the object {} is not of {length} bytes", name.as_str())))
        }
    }

    /// Begins an output of so many bytes. Returns its name.
    pub fn create(&mut self, id: SegmentId, length: u64) -> Result<String, Error> {
        let object = ObjectNumber { epoch: self.epoch, number: id.0 };
        let name = self.numbered.name(object)?;
        let writer = BlockWriter::new(self.numbered.writer(object)?, self.layout, name.identity(), &[])?;
        self.writing.insert(id, (writer, length));
        Ok(name.as_str().to_owned())
    }

    /// Adds bytes to an output, which is there when it has all of them. False when it is none.
    pub fn write(&mut self, id: SegmentId, bytes: &[u8]) -> Result<bool, Error> {
        let Some((writer, left)) = self.writing.get_mut(&id) else { return Ok(false) };
        *left = left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| Error::Corrupt(format!("more bytes than {id} has are written")))?;
        writer.write(bytes)?;
        if *left == 0
            && let Some((writer, _)) = self.writing.remove(&id)
        {
            writer.finish()?;
        }
        Ok(true)
    }
}
