//! Databases in a directory of this machine: the durable default.
//!
//! ```text
//!   PATH/LOCK       locked by the process that has the database open
//!   PATH/default/   the database: its commits, objects and logs
//! ```
//!
//! The memory node is a thread of this process. It begins empty, and what the database needs in it is read from the
//! directory. The lock keeps two processes of one machine apart, however they name the directory (see [`crate::lock`]).
//! The database's commits fence processes that do not see the lock, for example over a network file system.

use crate::embedded::Node;
use crate::lock::{DEFAULT_NAME, DirectoryLock, LOCK, failed};
use crate::store::{if_found, in_copies};
use crate::{Error, Store};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, Storage, StorageOptions, Syncing};
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the folder for files that the storage has not finished.
const STORAGE_TEMPORARY: &str = ".tmp";

/// What a database has in its folder (`docs/concepts/storage.md`).
const PARTS: [&str; 11] = [
    "backup",
    "bench",
    "checkpoint",
    "clone",
    "commit",
    "dropping",
    "log",
    "members",
    "reader",
    "segment",
    "unfinished",
];

/// The parts in which all names are numbers of twenty digits.
const NUMBERED: [&str; 4] = ["commit", "log", "members", "segment"];

/// How a database in a directory is opened.
#[derive(Debug, Clone)]
pub struct DirectoryOptions {
    /// Memory that the database may take in this process for what it holds beside its caches. Memory is taken when it is
    /// first used; what does not fit is stored in the directory alone. 4 GiB by default.
    pub memory_bytes: u64,
    /// The other options, without a name and a storage: the path gives both. The default is [`Options::default`] with
    /// [`Durability::Storage`] and [`Syncing::Interval`]: writes are synced once a second, and reach the system some
    /// milliseconds after they were made.
    pub database: Options,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        let durability = Durability::Storage(Syncing::Interval(Duration::from_secs(1)));
        Self { memory_bytes: 4 << 30, database: Options { durability, ..Options::default() } }
    }
}

impl Store {
    /// Opens the database in the directory `path`, with the number of shards that it has, or creates directory and
    /// database. The database survives process and machine, except for the writes of the last second if the machine
    /// fails, and of the last few milliseconds if the process is killed: see [`DirectoryOptions`].
    ///
    /// # Errors
    /// `Invalid` for a URL, and for a path that is not UTF-8; `Busy` while a process has the database open, unless it is to
    /// be taken over; `Corrupt` when durable data is damaged; `Io` and other errors of the directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_found(path, None, None, DirectoryOptions::default())
    }

    /// Returns how many shards the database in the directory `path` has, if it exists. It does not open with any other
    /// number.
    ///
    /// # Errors
    /// `Invalid` for a URL; `Corrupt`; those of the directory.
    pub fn shards_in(path: impl AsRef<Path>) -> Result<Option<usize>, Error> {
        let path = absolute(path.as_ref())?;
        if !has_database(&path)? {
            return Ok(None);
        }
        let found = if_found(Self::options_of_stored(&open_storage(&path)?, DEFAULT_NAME))?;
        Ok(found.map(|options| options.shards))
    }

    /// As [`Store::open_with`], for the database as it is: with the number of shards that it has, unless another is given. A
    /// new database has the shards of the options. A database in a directory has one copy, and opens with no other
    /// number of `copies`.
    ///
    /// # Errors
    /// Those of [`Store::open_with`] and [`Store::shards_in`].
    pub fn open_found(
        path: impl AsRef<Path>,
        shards: Option<usize>,
        copies: Option<usize>,
        options: DirectoryOptions,
    ) -> Result<Self, Error> {
        let DirectoryOptions { memory_bytes, database } = options;
        let found = shards.map_or_else(|| Self::shards_in(&path), |shards| Ok(Some(shards)))?;
        let durability = in_copies(copies.unwrap_or(1), database.durability);
        let database = Options { shards: found.unwrap_or(database.shards), durability, ..database };
        Self::open_with(path, DirectoryOptions { memory_bytes, database })
    }

    /// As [`Store::open`], with options.
    ///
    /// # Errors
    /// Besides those of [`Store::open`], `Invalid` for options that conflict, or have a name or a storage, and for a
    /// directory that has a database of LevelDB or RocksDB; `NotFound` when the database must exist and does not;
    /// `AlreadyExists`.
    pub fn open_with(path: impl AsRef<Path>, options: DirectoryOptions) -> Result<Self, Error> {
        let DirectoryOptions { memory_bytes, database } = options;
        if database.name.is_some() || database.storage.is_some() {
            let message = "a path is the name and the storage of its database: give it no others";
            return Err(Error::Address(message.to_owned()));
        }
        let path = absolute(path.as_ref())?;
        // A refused open leaves nothing behind: the directory is created only for valid options.
        let node = Node::start(memory_bytes, &database.clock)?;
        let storage = Storage::open("memory:", StorageOptions::default()).map_err(forebay_engine::Error::from)?;
        let options = Options { name: Some(DEFAULT_NAME.to_owned()), storage: Some(storage), ..database };
        options.check()?;
        if !options.create_if_missing && !has_database(&path)? {
            return Err(not_there(&path));
        }
        refuse_other_engines(&path)?;
        let options = Options { storage: Some(open_storage(&path)?), ..options };
        let lock = DirectoryLock::take(&path, DEFAULT_NAME, options.takeover)?;
        Self::embedded_on(node, options, Some(lock))
    }

    /// Opens the database in the directory `path` for reading, as it is now or as it was at a checkpoint
    /// ([`Db::create_checkpoint`]). Nothing is written there, so the directory may be read-only. Writes fail with
    /// `Invalid`. The database takes up to `memory_bytes` of memory in this process. Without a checkpoint, no process of
    /// this machine can open the database to write meanwhile, unless by a takeover, if the directory has its lock file: a
    /// clone or a copy has none before it is first opened, and whoever opens it then may delete what is still to be read. A
    /// checkpoint can be read while another process has the database open.
    ///
    /// # Errors
    /// `NotFound` when there is no such database or checkpoint; `Busy`, without a checkpoint, while a process of this machine has the
    /// database open; `Invalid` for a URL, and for a directory that has a database of LevelDB or RocksDB; `Corrupt`; those of
    /// the directory.
    pub fn open_to_read(path: impl AsRef<Path>, checkpoint: Option<&str>, memory_bytes: u64) -> Result<Self, Error> {
        let path = absolute(path.as_ref())?;
        if !has_database(&path)? {
            return Err(not_there(&path));
        }
        let options = Self::options_of_stored(&open_storage(&path)?, DEFAULT_NAME)?;
        Self::embedded_to_read(memory_bytes, options, checkpoint)
    }

    /// Drops the database in the directory `path`, and the directory if nothing else is in it and the system allows it.
    /// Files that are not the database's stay.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while a process has it open; `Invalid` for a URL, and for a directory that has a
    /// database of LevelDB or RocksDB; those of the directory.
    pub fn destroy_path(path: impl AsRef<Path>) -> Result<(), Error> {
        let path = absolute(path.as_ref())?;
        if !has_database(&path)? {
            return Err(not_there(&path));
        }
        let _lock = DirectoryLock::take(&path, DEFAULT_NAME, false)?;
        let storage = open_storage(&path)?;
        Db::destroy_stored(&storage, &[], DEFAULT_NAME)?;
        storage.objects().sweep().map_err(forebay_engine::Error::from)?;
        // The remaining files fence owners that do not know the lock. A caller that destroys a path knows of no such
        // owner.
        remove(&path).map_err(|cause| failed("removing", &path, &cause))
    }
}

fn open_storage(path: &Path) -> Result<Storage, Error> {
    let text = path.to_str().ok_or_else(|| Error::Address(format!("the path {} is no text", path.display())))?;
    let storage = Storage::open(&format!("file://{text}"), StorageOptions::default());
    Ok(storage.map_err(forebay_engine::Error::from)?)
}

/// Whether the directory `path` has a database, as far as its folder shows.
///
/// # Errors
/// When the system does not show it: then there may be one.
fn has_database(path: &Path) -> Result<bool, Error> {
    match std::fs::metadata(path.join(DEFAULT_NAME)) {
        Ok(found) => Ok(found.is_dir()),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(cause) => Err(failed("opening", path, &cause)),
    }
}

/// Refuses a directory that has the files of a LevelDB or RocksDB database, and none of Forebay's: an empty database in there
/// would look as if all data were gone.
fn refuse_other_engines(path: &Path) -> Result<(), Error> {
    if path.join(DEFAULT_NAME).exists() || !path.join("CURRENT").is_file() {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|cause| failed("reading", path, &cause))?;
    for entry in entries {
        let name = entry.map_err(|cause| failed("reading", path, &cause))?.file_name();
        if name.as_encoded_bytes().starts_with(b"MANIFEST-") {
            return Err(Error::Address(format!(
                "{} has a database of LevelDB or RocksDB (CURRENT, {}), which Forebay does not read: dump it with that engine, and \
                 load it into another directory",
                path.display(),
                name.display()
            )));
        }
    }
    Ok(())
}

/// Removes the database's files, and the directory if nothing else is in it and the system allows it.
fn remove(path: &Path) -> io::Result<()> {
    let database = path.join(DEFAULT_NAME);
    for entry in std::fs::read_dir(&database)? {
        let entry = entry?;
        let is_one_of = |parts: &[&str]| parts.iter().any(|part| entry.file_name() == *part);
        if is_one_of(&NUMBERED) && entry.file_type()?.is_dir() {
            remove_numbered(&entry.path())?;
        } else if is_one_of(&PARTS) {
            remove_all(&entry)?;
        }
    }
    remove_if_empty(&database)?;
    let temporary = path.join(STORAGE_TEMPORARY);
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        if name != LOCK && name != STORAGE_TEMPORARY {
            return std::fs::remove_file(path.join(LOCK));
        }
    }
    if temporary.is_dir() {
        remove_if_empty(&temporary)?;
    }
    std::fs::remove_file(path.join(LOCK))?;
    // The directory stays where the path is a link to it, where a file system is mounted, and where this process may not
    // change the folder around it. Nothing of the database is left all the same.
    let _ = std::fs::remove_dir(path);
    Ok(())
}

/// Removes entries whose name is a number, and the folder if nothing else is in it.
fn remove_numbered(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.len() == 20 && name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            remove_all(&entry)?;
        }
    }
    remove_if_empty(folder)
}

fn remove_all(entry: &DirEntry) -> io::Result<()> {
    let path = entry.path();
    if entry.file_type()?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    if path.as_os_str().as_encoded_bytes().windows(3).any(|bytes| bytes == b"://") {
        let what = "is a URL and no directory: name storage in Options::storage, and open it with Store::embedded";
        return Err(Error::Address(format!("{} {what}", path.display())));
    }
    std::path::absolute(path).map_err(|error| Error::Address(format!("the path {:?}: {error}", path.display())))
}

/// Why a directory has no database: there is none, or one of another engine.
fn not_there(path: &Path) -> Error {
    let message = format!("there is no database in {}", path.display());
    refuse_other_engines(path).err().unwrap_or(Error::Below { kind: ErrorKind::NotFound, message })
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
        let without_shards = options(|options| options.shards = 0);
        let without_memory = DirectoryOptions { memory_bytes: 1, ..options(|_| {}) };
        let by_nobody = options(|options| options.merge_operator = Some("nobody".to_owned()));
        for wrong in [without_shards, without_memory, by_nobody] {
            Store::open_with(&path, wrong).unwrap_err();
            assert!(!path.exists(), "nothing is made for wrong options");
        }
        std::fs::create_dir_all(&path).unwrap();
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nor in a directory that is there");
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
        // Other files in a directory stay.
        drop(open(true).unwrap());
        std::fs::write(path.join("else"), "").unwrap();
        Store::destroy_path(&path).unwrap();
        assert!(path.join("else").exists() && !path.join(DEFAULT_NAME).exists());
        std::fs::create_dir(path.join(DEFAULT_NAME)).unwrap();
        std::fs::write(path.join(DEFAULT_NAME).join("foreign"), "").unwrap();
        drop(open(true).unwrap());
        Store::destroy_path(&path).unwrap();
        assert_eq!(std::fs::read_dir(path.join(DEFAULT_NAME)).unwrap().count(), 1);
        assert_eq!(open(false).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_behind_a_link_stays_when_its_database_is_destroyed() {
        let folder = folder();
        let (path, link) = (folder.path().join("database"), folder.path().join("link"));
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let store = Store::open_with(&link, options(|_| {})).unwrap();
        store.put(b"key", b"value").unwrap();
        drop(store);
        Store::destroy_path(&link).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing of the database is left");
        assert_eq!(Store::destroy_path(&link).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_that_cannot_be_looked_into_is_not_one_without_a_database() {
        let folder = folder();
        let path = folder.path().join("loop");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let must_exist = options(|options| options.create_if_missing = false);
        let refused = [
            Store::destroy_path(&path).err(),
            Store::shards_in(&path).err(),
            Store::open_with(&path, must_exist).err(),
            Store::open_to_read(&path, None, 64 << 20).err(),
        ];
        for refused in refused {
            assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Io));
        }
    }

    #[test]
    fn who_says_no_number_of_shards_opens_what_is_there() {
        let folder = folder();
        let path = folder.path().join("database");
        let with_shards = |shards| Store::open_with(&path, options(|options| options.shards = shards));
        assert_eq!(Store::shards_in(&path).unwrap(), None);
        assert!(!path.exists(), "looking makes nothing");
        let store = with_shards(2).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(Store::shards_in(&path).unwrap(), Some(2));
        drop(store);
        let refused = with_shards(1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("a number of shards of 2, not 1"), "{refused}");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(store);
        std::fs::create_dir_all(folder.path().join("other").join(DEFAULT_NAME)).unwrap();
        assert_eq!(Store::shards_in(folder.path().join("other")).unwrap(), None);
    }

    #[test]
    fn files_among_those_of_a_database_stay_if_they_have_other_names() {
        let folder = folder();
        let path = folder.path().join("database");
        drop(Store::open_with(&path, options(|_| {})).unwrap());
        let foreign = [".tmp/mine", "default/log/mine", "default/commit/00000000000000000001.bak"];
        for name in foreign.map(|name| path.join(name)) {
            std::fs::create_dir_all(name.parent().unwrap()).unwrap();
            std::fs::write(name, "").unwrap();
        }
        drop(Store::open_with(&path, options(|_| {})).unwrap());
        Store::destroy_path(&path).unwrap();
        for name in foreign {
            assert!(path.join(name).exists(), "{name}");
        }
        let count = |folder: &str| std::fs::read_dir(path.join(folder)).unwrap().count();
        assert_eq!([count(""), count(".tmp"), count("default"), count("default/log")], [2, 1, 2, 1]);
    }

    fn stored(folder: &Path, name: &str) -> Options {
        let storage = open_storage(folder).unwrap();
        Options { name: Some(name.to_owned()), storage: Some(storage), ..Options::default() }
    }

    #[test]
    fn a_database_in_a_directory_is_locked_by_its_name() {
        let folder = folder();
        let embedded = |name| Store::embedded(64 << 20, stored(folder.path(), name));
        let destroy = |name| Store::destroy_stored(&open_storage(folder.path()).unwrap(), &[], name);
        let other = embedded("other").unwrap();
        assert_eq!(embedded("other").unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(destroy("other").unwrap_err().kind(), ErrorKind::Busy);
        for by_path in [true, false] {
            let by_path = || match by_path {
                true => Store::open_with(folder.path(), options(|_| {})),
                false => embedded(DEFAULT_NAME),
            };
            let store = by_path().unwrap();
            store.put(b"key", b"value").unwrap();
            assert_eq!(embedded(DEFAULT_NAME).unwrap_err().kind(), ErrorKind::Busy);
            assert_eq!(Store::open_with(folder.path(), options(|_| {})).unwrap_err().kind(), ErrorKind::Busy);
            let connected = Store::connect_all(&[], stored(folder.path(), DEFAULT_NAME));
            assert_eq!(connected.unwrap_err().kind(), ErrorKind::Busy);
            assert_eq!(destroy(DEFAULT_NAME).unwrap_err().kind(), ErrorKind::Busy);
            store.close().unwrap();
            drop(store);
            assert_eq!(by_path().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        other.put(b"key", b"value").unwrap();
        other.flush().unwrap();
        destroy(DEFAULT_NAME).unwrap();
    }

    #[test]
    fn a_database_in_a_directory_has_no_name_of_a_lock_file() {
        let folder = folder();
        let embedded = |name: &str| Store::embedded(64 << 20, stored(folder.path(), name));
        for name in ["LOCK", "LOCK.", "LOCK.other"] {
            let refused = embedded(name).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains("no name for a database in a directory"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is begun");
        for other in ["LOCKS", "other"] {
            drop(embedded(other).unwrap());
        }
        let memory = Storage::open("memory:", StorageOptions::default()).unwrap();
        let elsewhere = Options { storage: Some(memory), ..stored(folder.path(), "LOCK") };
        drop(Store::embedded(64 << 20, elsewhere).unwrap());
        // Somebody has made its folder: it opens, and nothing else can be locked there.
        std::fs::create_dir(folder.path().join("LOCK")).unwrap();
        drop(embedded("LOCK").unwrap());
        let refused = Store::open_with(folder.path(), options(|_| {})).unwrap_err();
        assert!(refused.to_string().contains(&folder.path().join("LOCK").display().to_string()), "{refused}");
    }

    #[test]
    fn a_closed_database_lets_go_of_its_directory() {
        let folder = folder();
        let open = || Store::open_with(folder.path(), options(|_| {}));
        let closed = open().unwrap();
        closed.put(b"key", b"value").unwrap();
        let (snapshot, entries, clone) = (closed.snapshot(), closed.entries().unwrap(), closed.db().clone());
        closed.close().unwrap();
        let store = open().unwrap();
        store.put(b"other", b"value").unwrap();
        for refused in [clone.put(b"key", b"late"), closed.get_at(b"key", &snapshot).map(|_| ())] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
        }
        closed.close().unwrap();
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Busy, "what is closed twice lets nothing go");
        drop((snapshot, entries, clone, closed));
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(store);
        let keys = open().unwrap().entries().unwrap().map(|entry| entry.unwrap().0).collect::<Vec<_>>();
        assert_eq!(keys, ["key", "other"]);
    }

    #[test]
    fn a_takeover_takes_the_lock_and_fences() {
        let folder = folder();
        let taking = |takeover| Options { takeover, ..stored(folder.path(), "name") };
        let first = Store::embedded(64 << 20, taking(false)).unwrap();
        let second = Store::embedded(64 << 20, taking(true)).unwrap();
        first.put(b"key", b"first").unwrap();
        assert_eq!(first.flush().unwrap_err().kind(), ErrorKind::Fenced);
        // The store that took over has the lock, also when the first store has ended.
        drop(first);
        assert_eq!(Store::embedded(64 << 20, taking(false)).unwrap_err().kind(), ErrorKind::Busy);
        drop(second);
        drop(Store::embedded(64 << 20, taking(false)).unwrap());
        // The path opens the same database.
        let _first = Store::open_with(folder.path(), options(|_| {})).unwrap();
        drop(Store::open_with(folder.path(), options(|options| options.takeover = true)).unwrap());
    }

    #[test]
    fn a_directory_that_may_not_be_written_is_told_as_such() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        drop(Store::embedded(64 << 20, stored(folder.path(), "name")).unwrap());
        std::fs::remove_file(folder.path().join("LOCK.name")).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
        // Root may do everything, so there it is no test.
        if std::fs::write(folder.path().join("x"), "").is_err() {
            let refused = Store::embedded(64 << 20, stored(folder.path(), "name")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AccessDenied);
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn nothing_is_begun_where_it_could_not_be_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        let allow = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o333);
        // Root may do everything, so there it is no test.
        if std::fs::read_dir(folder.path()).is_err() {
            for path in [folder.path().to_owned(), folder.path().join("new/database")] {
                let refused = Store::open_with(&path, options(|_| {})).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::AccessDenied, "{refused}");
            }
            allow(0o755);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        allow(0o755);
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
    fn what_is_opened_to_be_read_is_not_written() {
        let folder = folder();
        let path = folder.path().join("database");
        let open = |checkpoint| Store::open_to_read(&path, checkpoint, 64 << 20);
        assert_eq!(open(None).unwrap_err().kind(), ErrorKind::NotFound);
        let store = Store::open_with(&path, options(|options| options.shards = 2)).unwrap();
        store.put(b"key", b"before").unwrap();
        store.create_checkpoint("monday").unwrap();
        store.put(b"key", b"after").unwrap();
        let monday = open(Some("monday")).unwrap();
        assert_eq!(monday.get(b"key").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(open(Some("tuesday")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(open(None).unwrap_err().kind(), ErrorKind::Busy);
        drop(store);
        let (now, beside) = (open(None).unwrap(), open(None).unwrap());
        assert_eq!(now.put(b"key", b"never").unwrap_err().kind(), ErrorKind::Invalid);
        for now in [now, beside] {
            assert_eq!(now.get(b"key").unwrap().as_deref(), Some(&b"after"[..]));
        }
        assert_eq!(monday.get(b"key").unwrap().as_deref(), Some(&b"before"[..]));
        drop(Store::open_with(&path, options(|options| options.shards = 2)).unwrap());
    }

    #[test]
    fn a_database_is_closed_with_its_store() {
        let folder = folder();
        let store = Store::open_with(folder.path(), options(|_| {})).unwrap();
        let left = store.db().clone();
        left.put(b"key", b"value").unwrap();
        drop(store);
        assert_eq!(left.put(b"key", b"late").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(left.get(b"key").unwrap_err().kind(), ErrorKind::Closed);
        let store = Store::open_with(folder.path(), options(|_| {})).unwrap();
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    #[test]
    fn a_directory_of_another_engine_is_refused() {
        let folder = folder();
        let path = folder.path();
        let open = || Store::open_with(path, options(|_| {}));
        std::fs::write(path.join("CURRENT"), "MANIFEST-000004\n").unwrap();
        std::fs::write(path.join("MANIFEST-000004"), "").unwrap();
        let must_exist = options(|options| options.create_if_missing = false);
        let refused = [
            open().err(),
            Store::open_with(path, must_exist).err(),
            Store::open_to_read(path, None, 64 << 20).err(),
            Store::destroy_path(path).err(),
        ];
        for refused in refused.map(Option::unwrap) {
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains("LevelDB or RocksDB (CURRENT, MANIFEST-000004)"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 2, "nothing is begun in there");
        // One of these files alone may be from any program, and an existing database is opened.
        std::fs::remove_file(path.join("CURRENT")).unwrap();
        drop(open().unwrap());
        std::fs::write(path.join("CURRENT"), "").unwrap();
        drop(open().unwrap());
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
        for url in ["s3://bucket/prefix", "file:///nowhere"] {
            assert_eq!(Store::open(url).unwrap_err().kind(), ErrorKind::Invalid);
            assert_eq!(Store::destroy_path(url).unwrap_err().kind(), ErrorKind::Invalid);
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(Store::open(&file).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
