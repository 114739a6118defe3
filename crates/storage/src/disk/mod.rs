//! What the crate needs from a file system, so that the same code runs on a real one and on a simulated one that loses
//! power.
//!
//! The contract promises only what POSIX leaves certain:
//!
//! - What was written to a file survives a power failure once [`DiskFile::sync`] has returned, and so does its length.
//! - An entry of a folder (created, renamed, linked, removed) survives once [`Disk::sync_folder`] of that folder has returned.
//! - Whatever was not synced survives in part, in any order. Entries change one by one: after a power failure a rename may
//!   show both names or neither.
//! - [`Disk::link`] and [`Disk::create`] are atomic: one of several callers creates the name.
//! - After a failed sync of a file nothing is known about what it covered; a later successful sync says nothing about that.
//!
//! Paths are relative to the disk's root; parts are joined by `/`.

mod careful;
mod os;
mod sim;

pub(crate) use careful::CarefulDisk;
pub use os::OsDisk;
pub use sim::{DiskFault, SimDisk};

use crate::error::Result;
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

/// The operation of an error when a file or folder could not be opened: nothing was done to it.
pub(crate) const OPEN: &str = "open";

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskEntry {
    /// Its name in the folder.
    pub name: String,
    /// Bytes of a file; `None` for a folder.
    pub length_bytes: Option<u64>,
}

/// A file system below some root.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Its name in errors and logs.
    fn describe(&self) -> String;

    /// Creates a file for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` for its folder, `Full`, `AccessDenied`, `Io`.
    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading, and for writing if `writes`.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Io`.
    fn open(&self, path: &str, writes: bool) -> Result<Arc<dyn DiskFile>>;

    /// Whether a file or folder of this name exists.
    ///
    /// # Errors
    /// `AccessDenied`, `Io`.
    fn exists(&self, path: &str) -> Result<bool>;

    /// Renames a file. If another file has the new name, that file loses it.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Io`.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `AlreadyExists` when some file has the name, `NotFound`, `AccessDenied`, `Io`.
    fn link(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a name of a file; a file without names is gone once it is not open.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Io`.
    fn remove(&self, path: &str) -> Result<()>;

    /// Creates a folder; an existing one is fine.
    ///
    /// # Errors
    /// `NotFound` for its parent folder, `Full`, `AccessDenied`, `Io`.
    fn make_folder(&self, path: &str) -> Result<()>;

    /// The entries of a folder by name. The root is the empty path.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `Io`.
    fn list(&self, folder: &str) -> Result<Vec<DiskEntry>>;

    /// Makes the entries of a folder survive a power failure.
    ///
    /// # Errors
    /// `NotFound`, and others of opening the folder: nothing has changed. Those of the sync, as `Io`: then nothing is known
    /// about changes of entries since the last sync.
    fn sync_folder(&self, folder: &str) -> Result<()>;
}

/// An open file. It can be used by several threads.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Writes `bytes` at `offset`, and makes the file longer where they reach after its end.
    ///
    /// # Errors
    /// `Full`, `Io`: some of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes bytes from several places, one after the other, at `offset`. Where possible, without copying them first.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_parts_at(&self, offset: u64, parts: &mut [IoSlice<'_>]) -> Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_at(offset, &bytes)
    }

    /// Reads at `offset` until `out` is full or the file ends; returns the number of bytes read.
    ///
    /// # Errors
    /// `Io`.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// `Io`.
    fn length(&self) -> Result<u64>;

    /// Makes the file at least `length_bytes` long, with zeros, and reserves the room on the disk where possible.
    ///
    /// # Errors
    /// `Full`, `Io`.
    fn reserve(&self, length_bytes: u64) -> Result<()>;

    /// Cuts the file off after `length_bytes`.
    ///
    /// # Errors
    /// `Io`.
    fn truncate(&self, length_bytes: u64) -> Result<()>;

    /// Makes what was written survive a power failure.
    ///
    /// # Errors
    /// `Io`: then nothing is known about what was written since the last sync.
    fn sync(&self) -> Result<()>;

    /// Locks the file for this handle, until the handle is closed or its process ends in any way. False where another handle
    /// has the file, or its name is gone.
    ///
    /// # Errors
    /// `Unsupported` where files cannot be locked, `Io`.
    fn take(&self) -> Result<bool>;

    /// Says that others wait for writes to the file, so they go before writes to other files.
    fn go_first(&self) {}

    /// Says that nobody will read the file soon, so memory need not hold what was synced of it.
    fn let_cool(&self) {}
}

/// Creates a folder and its parents, and makes them survive a power failure. Existing ones are also synced: an earlier
/// process may have ended between creating and syncing them.
pub(crate) fn make_folders(disk: &dyn Disk, folder: &str) -> Result<()> {
    let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
    let mut parent = "";
    for end in ends.filter(|end| *end > 0) {
        let path = folder.get(..end).unwrap_or(folder);
        disk.make_folder(path)?;
        disk.sync_folder(parent)?;
        parent = path;
    }
    Ok(())
}

/// Removes a file; a missing one is fine.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &str) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The entries of a folder; none if the folder does not exist.
pub(crate) fn list_if_there(disk: &dyn Disk, folder: &str) -> Result<Vec<DiskEntry>> {
    match disk.list(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// The bytes of a file.
pub(crate) fn read_file(disk: &dyn Disk, path: &str) -> Result<Bytes> {
    let file = disk.open(path, false)?;
    let mut bytes = vec![0; file.length()? as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes.into())
}

/// `folder/name`, where the root is the empty path.
pub(crate) fn path_in(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
