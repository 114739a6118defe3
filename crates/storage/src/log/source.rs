//! Where the segments of a log are stored, and which of them exist.

use crate::disk::{Disk, list_if_there, read_file};
use crate::error::Result;
use crate::name::{ObjectName, number};
use crate::objects::{ObjectStorage, listed_and_not_found};
use crate::planted::{Bug, planted};
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::sync::Arc;

/// Suffix of the name of a segment's file.
pub(super) const LOG: &str = ".log";

/// Where the segments of a log are stored.
#[derive(Debug)]
pub(super) enum Source {
    /// In files of a folder.
    Files(Arc<dyn Disk>, String),
    /// In objects below a prefix.
    Objects(Arc<dyn ObjectStorage>, ObjectName),
}

impl Source {
    /// Reads a segment that existed. `None` when it was trimmed since.
    ///
    /// A read that does not find the segment does not prove that, because a service may say so by mistake. A trimmed segment
    /// is also absent from the list. An earlier segment may be listed: its put was requested twice, and the first request
    /// arrived late.
    ///
    /// # Errors
    /// `Unavailable` when it is listed but not found.
    pub fn read(&self, number: u64, object: &str) -> Result<Option<Bytes>> {
        match self.get(object) {
            Err(error) if error.kind() == ErrorKind::NotFound && !planted(Bug::NotFoundIsTrimmed) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => return read.map(Some),
        }
        if !self.numbers()?.contains(&number) {
            return Ok(None);
        }
        match self.get(object) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(listed_and_not_found(&ObjectName::new(object)?)),
            read => read.map(Some),
        }
    }

    fn get(&self, object: &str) -> Result<Bytes> {
        match self {
            Self::Files(disk, _) => read_file(&**disk, object),
            Self::Objects(storage, _) => storage.get(&ObjectName::new(object)?),
        }
    }

    /// Numbers of the segments, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        match self {
            Self::Files(disk, folder) => files(&**disk, folder),
            Self::Objects(storage, prefix) => {
                Ok(objects(&**storage, prefix)?.into_iter().map(|(number, _)| number).collect())
            }
        }
    }
}

/// Numbers of the segments in files of a folder, ascending.
pub(super) fn files(disk: &dyn Disk, folder: &str) -> Result<Vec<u64>> {
    let entries = list_if_there(disk, folder)?;
    Ok(entries.iter().filter_map(|entry| number(entry.name.strip_suffix(LOG)?)).collect())
}

/// Numbers of the segments in objects, ascending, with their sizes; the seal is among them.
pub(super) fn objects(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Vec<(u64, u64)>> {
    let listed = storage.list(Some(prefix))?;
    Ok(listed.iter().filter_map(|object| Some((object.name.number_after(prefix)?, object.size_bytes))).collect())
}
