//! The lock that keeps a second process out of a directory.

use crate::Error;
use forebay_base::ErrorKind;
use forebay_engine::Storage;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Name of a database in storage that gets no other, as of one that a path names.
pub const DEFAULT_NAME: &str = "default";
/// Name of the file that is locked.
pub(crate) const LOCK: &str = "LOCK";

/// The lock on a directory, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock on the directory `path`. Its file marks the directory from then on.
    ///
    /// # Errors
    /// `Busy` while somebody has it; `Io`.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let file = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
        let file = file.map_err(|cause| failed("locking", path, &cause))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                let message =
                    format!("the database in {path} is open already, here or in another process: close it there first");
                Err(Error::Below { kind: ErrorKind::Busy, message })
            }
            Err(TryLockError::Error(cause)) => Err(failed("locking", path, &cause)),
        }
    }

    /// Takes the lock on the database `name` in `storage`, if it lies in a directory that a path names. Owners of other
    /// databases fence each other.
    ///
    /// # Errors
    /// As [`DirectoryLock::take`].
    pub(crate) fn take_stored(storage: &Storage, name: &str) -> Result<Option<Self>, Error> {
        // A directory is described by its path. All else is described by an URL, which no file is below.
        let path = PathBuf::from(storage.objects().describe());
        let is_locked = name == DEFAULT_NAME && path.join(LOCK).is_file();
        is_locked.then(|| Self::take(&path)).transpose()
    }
}

/// An error of the file system.
pub(crate) fn failed(what: &str, path: &Path, cause: &io::Error) -> Error {
    Error::Below { kind: ErrorKind::Io, message: format!("{what} {}: {cause}", path.display()) }
}
