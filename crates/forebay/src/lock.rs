//! The lock that keeps a second process from opening a database in a directory of this machine.
//!
//! ```text
//!   PATH/LOCK        of the database `default`, which a path names too
//!   PATH/LOCK.NAME   of another database
//! ```
//!
//! The system releases the lock of a process that ends. A child that was forked meanwhile also has the file open, and
//! the lock with it. So only the process that took the lock releases it. A child that knows that it was forked closes
//! the file ([`process`](crate::process)), and then the lock ends with the process that took it. A process that takes a
//! database over removes the file that the other process has locked, and locks a new file of that name: a lock counts
//! as long as its file has the name.

use crate::Error;
use crate::fork::OwnFile;
use forebay_base::ErrorKind;
use forebay_engine::{Options, Storage};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of a database in storage that gets no other name, for example one that a path names.
pub const DEFAULT_NAME: &str = "default";
/// Name of the file that is locked for the database [`DEFAULT_NAME`].
pub(crate) const LOCK: &str = "LOCK";

/// The lock on a database in a directory, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: Arc<OwnFile>,
    /// The process that took the lock.
    process: u32,
}

impl DirectoryLock {
    /// The lock that this process has on a file.
    fn of(file: File) -> Self {
        Self { file: OwnFile::new(file), process: std::process::id() }
    }

    /// Takes the lock on the database `name` in `directory`. With `takeover`, takes it even from a process that has it.
    ///
    /// # Errors
    /// `Busy` while another process has it; `AccessDenied`, `Io`.
    pub(crate) fn take(directory: &Path, name: &str, takeover: bool) -> Result<Self, Error> {
        let path = lock_file(directory, name);
        let refused = |cause: &io::Error| failed("locking", &path, cause);
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(|cause| refused(&cause))?;
            match file.try_lock() {
                Ok(()) if has_name(&file, &path).map_err(|cause| refused(&cause))? => {
                    return Ok(Self::of(file));
                }
                // Another process has removed the file meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if takeover => match std::fs::remove_file(&path) {
                    Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(refused(&cause)),
                    _ => {}
                },
                Err(TryLockError::WouldBlock) => return Err(taken(directory, name)),
                Err(TryLockError::Error(cause)) => return Err(refused(&cause)),
            }
        }
    }

    /// Takes the lock on the database `name` in `storage`, if that is a directory. Owners of databases elsewhere fence each
    /// other.
    ///
    /// # Errors
    /// As [`DirectoryLock::take`]; `Invalid` for an invalid name, and for a new database with the name of a lock file.
    pub(crate) fn take_stored(storage: &Storage, name: &str, takeover: bool) -> Result<Option<Self>, Error> {
        Options::check_name(name)?;
        let Some(directory) = storage.directory() else { return Ok(None) };
        check_apart(&directory, name)?;
        Self::take(&directory, name, takeover).map(Some)
    }

    /// Keeps writers out of the database `name` in `storage`, if that is a directory in which its lock can be seen.
    /// Where nothing may be written, no process of this machine writes.
    ///
    /// # Errors
    /// `Busy` while a writer has the lock; `Invalid` for an invalid name; `Io`.
    pub(crate) fn share_stored(storage: &Storage, name: &str) -> Result<Option<Self>, Error> {
        Options::check_name(name)?;
        let Some(directory) = storage.directory() else { return Ok(None) };
        let Ok(file) = File::open(lock_file(&directory, name)) else { return Ok(None) };
        Self::share(file, &directory, name).map(Some)
    }

    /// Locks the lock file of the database `name` together with other readers. If the file no longer has its name, somebody
    /// takes the database over or drops it.
    fn share(file: File, directory: &Path, name: &str) -> Result<Self, Error> {
        let path = lock_file(directory, name);
        let refused = |cause: &io::Error| failed("locking", &path, cause);
        match file.try_lock_shared() {
            Ok(()) if has_name(&file, &path).map_err(|cause| refused(&cause))? => Ok(Self::of(file)),
            Ok(()) | Err(TryLockError::WouldBlock) => Err(taken(directory, name)),
            Err(TryLockError::Error(cause)) => Err(refused(&cause)),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && self.process == std::process::id()
        {
            // If this fails, the lock ends with the last process that has the file open.
            let _ = file.unlock();
        }
    }
}

/// The file that is locked for the database `name`.
fn lock_file(directory: &Path, name: &str) -> PathBuf {
    match name {
        DEFAULT_NAME => directory.join(LOCK),
        name => directory.join(format!("{LOCK}.{name}")),
    }
}

/// Refuses to begin a database whose folder would have the name of a lock file. A folder that is there is used.
fn check_apart(directory: &Path, name: &str) -> Result<(), Error> {
    let is_of_lock = name.strip_prefix(LOCK).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if !is_of_lock || directory.join(name).is_dir() {
        return Ok(());
    }
    let message = format!("{name:?} is no name for a database in a directory: its lock files have such names");
    Err(Error::Below { kind: ErrorKind::Invalid, message })
}

/// Whether an open file is the one that has this name.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((open.dev(), open.ino()) == (named.dev(), named.ino())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// The error when another process has the lock.
fn taken(directory: &Path, name: &str) -> Error {
    let directory = directory.display();
    let message = format!(
        "the database {name:?} in {directory} is open already, here or in another process: close it there first"
    );
    Error::Below { kind: ErrorKind::Busy, message }
}

/// An error of the file system.
pub(crate) fn failed(what: &str, path: &Path, cause: &io::Error) -> Error {
    let kind = ErrorKind::of_file(cause.kind());
    Error::Below { kind, message: format!("{what} {}: {cause}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_the_lock_releases_it_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let take = || DirectoryLock::take(folder.path(), DEFAULT_NAME, false);
        let lock = take().unwrap();
        // As in a child that was forked now.
        let file = lock.file.take().unwrap();
        let inherited = file.try_clone().unwrap();
        let lock = DirectoryLock::of(file);
        drop(DirectoryLock { file: OwnFile::new(inherited.try_clone().unwrap()), process: 0 });
        assert_eq!(take().unwrap_err().kind(), ErrorKind::Busy);
        drop(lock);
        std::mem::forget(take().unwrap());
        assert_eq!(take().unwrap_err().kind(), ErrorKind::Busy);
    }

    #[test]
    fn a_lock_file_that_was_replaced_lets_no_reader_in() {
        let folder = tempfile::tempdir().unwrap();
        let take = |takeover| DirectoryLock::take(folder.path(), DEFAULT_NAME, takeover);
        let find = || File::open(lock_file(folder.path(), DEFAULT_NAME)).unwrap();
        let share = |file| DirectoryLock::share(file, folder.path(), DEFAULT_NAME);
        let first = take(false).unwrap();
        let found = find();
        let second = take(true).unwrap();
        drop(first);
        assert_eq!(share(found).unwrap_err().kind(), ErrorKind::Busy);
        drop(second);
        let readers = (share(find()).unwrap(), share(find()).unwrap());
        assert_eq!(take(false).unwrap_err().kind(), ErrorKind::Busy);
        drop(readers);
        drop(take(false).unwrap());
    }
}
