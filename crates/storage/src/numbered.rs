//! Objects under numbers: tables, for instance. Each is written once, by the owner of an epoch, and never changed.
//!
//! A name is `prefix/EPOCH/NUMBER`. A deposed owner may still write, but under its own epoch. So it never touches an
//! object of its successor, and the successor recognises its garbage by the epoch.

use crate::error::{Error, Result};
use crate::name::{ObjectName, number};
use crate::objects::{ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter};
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::sync::Arc;

/// The number of an object: the epoch of its writer, and a number that this writer used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectNumber {
    /// The epoch.
    pub epoch: u64,
    /// The number.
    pub number: u64,
}

impl ObjectNumber {
    /// The number of an object whose name is `prefix/EPOCH/NUMBER`.
    #[must_use]
    pub fn of(name: &ObjectName, prefix: &ObjectName) -> Option<Self> {
        let (epoch, numbered) = name.after(prefix)?.split_once('/')?;
        Some(Self { epoch: number(epoch)?, number: number(numbered)? })
    }
}

/// Objects under numbers.
#[derive(Debug, Clone)]
pub struct NumberedObjects {
    storage: Arc<dyn ObjectStorage>,
    prefix: ObjectName,
}

impl NumberedObjects {
    /// The objects whose names begin with `prefix`.
    #[must_use]
    pub const fn new(storage: Arc<dyn ObjectStorage>, prefix: ObjectName) -> Self {
        Self { storage, prefix }
    }

    /// The name of an object.
    ///
    /// # Errors
    /// `Invalid` when the prefix is too long.
    pub fn name(&self, object: ObjectNumber) -> Result<ObjectName> {
        self.prefix.numbered(object.epoch)?.numbered(object.number)
    }

    /// Writes an object. It is fine if the object already has these bytes: a reply may have been lost.
    ///
    /// # Errors
    /// `Corrupt` when the object has other bytes: nobody else writes it, so what was put is damaged. Those of
    /// [`ObjectStorage::put`].
    pub fn put(&self, object: ObjectNumber, bytes: Bytes) -> Result<()> {
        self.storage.put_once(&self.name(object)?, bytes).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                let detail = "it is not what its writer put: delete it, and it is put again";
                Error::corrupt(error.object(), detail)
            }
            _ => error,
        })
    }

    /// Begins an object whose bytes are written as a stream. The caller makes sure that the number is new: an object
    /// that has it is replaced.
    ///
    /// # Errors
    /// As for [`ObjectStorage::writer`].
    pub fn writer(&self, object: ObjectNumber) -> Result<Box<dyn ObjectWriter>> {
        self.storage.writer(&self.name(object)?)
    }

    /// Opens an object for reads by ranges.
    ///
    /// # Errors
    /// As for [`ObjectStorage::open`].
    pub fn open(&self, object: ObjectNumber) -> Result<Arc<dyn ObjectReader>> {
        self.storage.open(&self.name(object)?)
    }

    /// Deletes an object; a missing one is fine.
    ///
    /// # Errors
    /// As for [`ObjectStorage::delete`].
    pub fn delete(&self, object: ObjectNumber) -> Result<()> {
        self.storage.delete(&self.name(object)?)
    }

    /// All objects, ascending, with their sizes in bytes.
    ///
    /// # Errors
    /// As for [`ObjectStorage::list`].
    pub fn list(&self) -> Result<Vec<(ObjectNumber, u64)>> {
        let listed = self.storage.list(Some(&self.prefix))?;
        let found = |object: &ObjectInfo| Some((ObjectNumber::of(&object.name, &self.prefix)?, object.size_bytes));
        Ok(listed.iter().filter_map(found).collect())
    }

    /// Returns the objects of epochs before `epoch`, the caller's own, that no version needs, with their sizes in
    /// bytes. The caller deletes those of its own epoch itself, because some are being written. Those of later epochs
    /// belong to others.
    ///
    /// The caller must have claimed its epoch before it decides what is needed: no earlier owner can then commit a version
    /// that needs more. `is_needed` must also know what readers and checkpoints of older versions need.
    ///
    /// # Errors
    /// As for [`ObjectStorage::list`].
    pub fn garbage(&self, epoch: u64, is_needed: impl Fn(ObjectNumber) -> bool) -> Result<Vec<(ObjectNumber, u64)>> {
        let mut found = self.list()?;
        found.retain(|(object, _)| object.epoch < epoch && !is_needed(*object));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{MemoryObjects, ObjectFault, PutMode};

    const fn at(epoch: u64, number: u64) -> ObjectNumber {
        ObjectNumber { epoch, number }
    }

    #[test]
    fn garbage_is_what_earlier_owners_left() {
        let storage = MemoryObjects::new();
        let tables = NumberedObjects::new(Arc::new(storage.clone()), ObjectName::new("table").unwrap());
        for object in [at(1, 1), at(1, 2), at(2, 1), at(3, 1)] {
            tables.put(object, Bytes::from(vec![7; object.number as usize])).unwrap();
        }
        storage.put(&ObjectName::new("table/other").unwrap(), Bytes::new(), PutMode::Replace).unwrap();
        assert_eq!(tables.list().unwrap(), [(at(1, 1), 1), (at(1, 2), 2), (at(2, 1), 1), (at(3, 1), 1)]);
        let garbage = tables.garbage(3, |object| object == at(1, 1)).unwrap();
        assert_eq!(garbage, [(at(1, 2), 2), (at(2, 1), 1)]);
        garbage.iter().for_each(|(object, _)| tables.delete(*object).unwrap());
        assert!(tables.garbage(3, |object| object == at(1, 1)).unwrap().is_empty());
    }

    #[test]
    fn an_object_is_written_once() {
        let storage = MemoryObjects::new();
        let tables = NumberedObjects::new(Arc::new(storage.clone()), ObjectName::new("table").unwrap());
        storage.fail_at(0, ObjectFault::ReplyLost);
        assert!(tables.put(at(1, 1), Bytes::from_static(b"one")).unwrap_err().is_undecided());
        tables.put(at(1, 1), Bytes::from_static(b"one")).unwrap();
        storage.rot_read(0, 7);
        let damaged = tables.put(at(1, 1), Bytes::from_static(b"one"));
        assert_eq!(damaged.unwrap_err().kind(), ErrorKind::Corrupt);
        tables.put(at(1, 1), Bytes::from_static(b"one")).unwrap();
        storage.flip(&tables.name(at(1, 1)).unwrap(), 0, 1).unwrap();
        let damaged = tables.put(at(1, 1), Bytes::from_static(b"one")).unwrap_err();
        assert!(damaged.kind() == ErrorKind::Corrupt && damaged.object().contains("table/"), "{damaged}");
        tables.delete(at(1, 1)).unwrap();
        tables.put(at(1, 1), Bytes::from_static(b"one")).unwrap();
    }
}
