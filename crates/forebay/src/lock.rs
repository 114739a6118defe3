//! The lock that keeps a second process out of a directory.

use crate::Error;
use forebay_base::ErrorKind;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Name of the file that is locked.
pub(crate) const LOCK: &str = "LOCK";

/// The lock on a directory, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock on the directory `path`.
    ///
    /// # Errors
    /// `Busy` while somebody has it; `Io`.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let file = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
        let file = file.map_err(|cause| failed("locking", path, &cause))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let message = format!("the database in {} is open already, here or in another process", path.display());
                Err(Error::Below { kind: ErrorKind::Busy, message })
            }
            Err(TryLockError::Error(cause)) => Err(failed("locking", path, &cause)),
        }
    }
}

/// An error of the file system.
pub(crate) fn failed(what: &str, path: &Path, cause: &io::Error) -> Error {
    Error::Below { kind: ErrorKind::Io, message: format!("{what} {}: {cause}", path.display()) }
}
