//! Databases in a directory of this machine: the durable default.
//!
//! ```text
//!   PATH/LOCK       locked by the process that has the database open
//!   PATH/default/   the database: its commits, objects and logs
//! ```
//!
//! The memory node is a thread of this process. It begins empty, and what the database needs there is read from the
//! directory. The lock keeps two processes of one machine apart, also where one of them names the directory as storage. The
//! database's commits fence those that do not see the lock, as over a network's file system.

use crate::lock::{DEFAULT_NAME, DirectoryLock, LOCK, failed};
use crate::{Error, Store};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, Storage, StorageOptions, Syncing};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the folder in which the storage has files that it has not finished.
const STORAGE_TEMPORARY: &str = ".tmp";

/// How a database in a directory is opened.
#[derive(Debug, Clone)]
pub struct DirectoryOptions {
    /// Memory that the database may take in this process for what it holds beside its caches. Memory is taken when it is
    /// first used; what does not fit lies in the directory alone. 4 GiB by default.
    pub memory_bytes: u64,
    /// The other options, without a name and a storage: the path says both. By default as [`Options::default`], but
    /// writes are synced once a second: that is [`Durability::Storage`] with [`Syncing::Interval`].
    pub database: Options,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        let durability = Durability::Storage(Syncing::Interval(Duration::from_secs(1)));
        Self { memory_bytes: 4 << 30, database: Options { durability, ..Options::default() } }
    }
}

impl Store {
    /// Opens the database in the directory `path`, or creates directory and database. It survives the process, and the
    /// machine but for the writes of the last second: see [`DirectoryOptions`].
    ///
    /// # Errors
    /// `Busy` while a process has it open; `Corrupt` when what was durable is damaged; `Io` and others of the directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, DirectoryOptions::default())
    }

    /// As [`Store::open`], with options.
    ///
    /// # Errors
    /// Beside those of [`Store::open`], `Invalid` for options that conflict, or have a name or a storage; `NotFound` when
    /// the database must exist and does not; `AlreadyExists`.
    pub fn open_with(path: impl AsRef<Path>, options: DirectoryOptions) -> Result<Self, Error> {
        let DirectoryOptions { memory_bytes, database } = options;
        if database.name.is_some() || database.storage.is_some() {
            let message = "a path is the name and the storage of its database: give it no others";
            return Err(Error::Address(message.to_owned()));
        }
        let path = absolute(path.as_ref())?;
        if !database.create_if_missing && !path.is_dir() {
            return Err(not_there(&path));
        }
        let storage = open_storage(&path)?;
        let lock = DirectoryLock::take(&path)?;
        let options = Options { name: Some(DEFAULT_NAME.to_owned()), storage: Some(storage), ..database };
        Self::embedded_under(Some(lock), memory_bytes, options)
    }

    /// Drops the database in the directory `path`, and the directory if nothing else is in it.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while a process has it open; those of the directory.
    pub fn destroy_path(path: impl AsRef<Path>) -> Result<(), Error> {
        let path = absolute(path.as_ref())?;
        if !path.join(DEFAULT_NAME).is_dir() {
            return Err(not_there(&path));
        }
        let _lock = DirectoryLock::take(&path)?;
        Db::destroy_stored(&open_storage(&path)?, &[], DEFAULT_NAME)?;
        // What is left fences owners that do not know the lock. Whoever destroys a path knows of none.
        remove(&path).map_err(|cause| failed("removing", &path, &cause))
    }
}

fn open_storage(path: &Path) -> Result<Storage, Error> {
    let text = path.to_str().ok_or_else(|| Error::Address(format!("the path {} is no text", path.display())))?;
    let storage = Storage::open(&format!("file://{text}"), StorageOptions::default());
    Ok(storage.map_err(forebay_engine::Error::from)?)
}

/// Removes the database's files, and the directory if nothing else is in it.
fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_dir_all(path.join(DEFAULT_NAME))?;
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        if name != LOCK && name != STORAGE_TEMPORARY {
            return std::fs::remove_file(path.join(LOCK));
        }
    }
    std::fs::remove_dir_all(path)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::Address(format!("the path {:?}: {error}", path.display())))
}

fn not_there(path: &Path) -> Error {
    Error::Below { kind: ErrorKind::NotFound, message: format!("there is no database in {}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::WriteOptions;

    fn options(change: impl FnOnce(&mut Options)) -> DirectoryOptions {
        let mut options = DirectoryOptions { memory_bytes: 64 << 20, ..DirectoryOptions::default() };
        change(&mut options.database);
        options
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_path_is_found_again_until_it_is_destroyed() {
        let folder = folder();
        let path = folder.path().join("some/database");
        let open = |create_if_missing| {
            Store::open_with(&path, options(|options| options.create_if_missing = create_if_missing))
        };
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!path.exists(), "a database that must exist is not begun");
        assert_eq!(Store::destroy_path(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let store = open(true).unwrap();
        store.put(b"key", b"value").unwrap();
        assert!(store.is_embedded());
        assert_eq!(open(true).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(Store::destroy_path(&path).unwrap_err().kind(), ErrorKind::Busy);
        store.close().unwrap();
        drop(store);
        let store = open(false).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(store);
        let again = options(|options| options.error_if_exists = true);
        assert_eq!(Store::open_with(&path, again).unwrap_err().kind(), ErrorKind::AlreadyExists);
        Store::destroy_path(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
        // What else is in a directory stays.
        drop(open(true).unwrap());
        std::fs::write(path.join("else"), "").unwrap();
        Store::destroy_path(&path).unwrap();
        assert!(path.join("else").exists() && !path.join(DEFAULT_NAME).exists());
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_path_is_locked_for_whoever_names_it_as_storage() {
        let folder = folder();
        let stored = |name: &str| {
            let storage = open_storage(folder.path()).unwrap();
            Options { name: Some(name.to_owned()), storage: Some(storage), ..Options::default() }
        };
        let embedded = |name| Store::embedded(64 << 20, stored(name));
        let destroy = || Store::destroy_stored(&open_storage(folder.path()).unwrap(), &[], DEFAULT_NAME);
        // Whoever has a database that no path has named is fenced.
        let fenced = embedded(DEFAULT_NAME).unwrap();
        let other = embedded("other").unwrap();
        drop(embedded(DEFAULT_NAME).unwrap());
        drop(fenced);
        let store = Store::open_with(folder.path(), options(|_| {})).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(embedded(DEFAULT_NAME).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(Store::connect_all(&[], stored(DEFAULT_NAME)).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(destroy().unwrap_err().kind(), ErrorKind::Busy);
        // Other databases in the directory are not the path's.
        drop(embedded("other").unwrap());
        drop(other);
        store.close().unwrap();
        drop(store);
        let store = embedded(DEFAULT_NAME).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(Store::open_with(folder.path(), options(|_| {})).unwrap_err().kind(), ErrorKind::Busy);
        drop(store);
        destroy().unwrap();
    }

    #[test]
    fn the_default_needs_no_setting() {
        let folder = folder();
        let store = Store::open(folder.path()).unwrap();
        store.put(b"key", b"value").unwrap();
        let synced = store.statistics().storage.syncs;
        store.put_with(b"synced", b"value", &store.write_options(true)).unwrap();
        assert!(store.statistics().storage.syncs > synced);
        assert_eq!(store.write_options(false), WriteOptions::default());
        // Dropping closes, and closing keeps everything.
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.multi_get(&[b"key", b"synced"]).unwrap(), [Some(b"value".to_vec()), Some(b"value".to_vec())]);
    }

    #[test]
    fn paths_are_apart() {
        let folder = folder();
        let open = |name: &str| Store::open_with(folder.path().join(name), options(|_| {})).unwrap();
        let (one, other) = (open("one"), open("other"));
        one.put(b"key", b"value").unwrap();
        assert_eq!(other.get(b"key").unwrap(), None);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let folder = folder();
        let named = options(|options| options.name = Some("name".into()));
        assert_eq!(Store::open_with(folder.path(), named).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Store::open("").unwrap_err().kind(), ErrorKind::Invalid);
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        Store::open(&file).unwrap_err();
    }
}
