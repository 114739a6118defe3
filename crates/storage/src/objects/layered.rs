//! Objects for reading, with writes kept in memory beside them.
//!
//! Lists show only what was written here, so a register or a log that begins here sees none below.

use super::{MemoryObjects, ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, PutMode};
use crate::error::Result;
use crate::name::ObjectName;
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct LayeredObjects {
    written: MemoryObjects,
    below: Arc<dyn ObjectStorage>,
}

impl LayeredObjects {
    pub(crate) fn over(below: Arc<dyn ObjectStorage>) -> Self {
        Self { written: MemoryObjects::new(), below }
    }

    /// The layer from which to read an object. A back end may open an object without checking whether it
    /// exists.
    fn layer(&self, name: &ObjectName) -> Result<&dyn ObjectStorage> {
        match self.written.size(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(&*self.below),
            found => found.map(|_| &self.written as &dyn ObjectStorage),
        }
    }
}

impl ObjectStorage for LayeredObjects {
    fn describe(&self) -> String {
        format!("{}, to be read", self.below.describe())
    }

    fn keeps_conditions(&self) -> bool {
        self.written.keeps_conditions()
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.written.put(name, bytes, mode)
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        self.written.writer(name)
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        self.layer(name)?.get(name)
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        self.layer(name)?.open(name)
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        self.layer(name)?.size(name)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.written.delete(name)
    }

    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        self.written.list(prefix)
    }
}
