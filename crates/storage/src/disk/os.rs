//! The operating system's files.

use super::{Disk, DiskEntry, DiskFile, OPEN};
use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, StatVfsMountFlags, fadvise, fallocate, flock, fstatvfs};
use rustix::io::{Errno, pwritev, retry_on_intr};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A write of at least this length begins to go to the device at once. The device works meanwhile, and the later sync waits
/// only for the rest: 1.9 GB a second in place of 0.6 to 1.1, for half of the processor time (a log of frames of a mebibyte,
/// synced each 64 MiB).
const BEGUN_AT_ONCE_BYTES: usize = 256 << 10;

/// The files below a folder of a local file system.
#[derive(Debug)]
pub struct OsDisk {
    root: PathBuf,
}

impl OsDisk {
    /// The files below `root`, which is created if it does not exist.
    ///
    /// # Errors
    /// `AccessDenied`, `Full`, `Invalid` when it is not a folder, `Io`.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let disk = Self { root: root.into() };
        let failed = |cause: &io::Error| Error::io("open", disk.describe(), cause);
        let missing: Vec<&Path> = disk.root.ancestors().take_while(|path| !path.exists()).collect();
        let parent_of = |path: &Path| path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_owned);
        let parents: Vec<PathBuf> = missing.into_iter().map(|path| parent_of(path).unwrap_or(".".into())).collect();
        // The root's own name must also survive. Where it could not, nothing is created.
        if let Some(parent) = parents.last() {
            readable(parent)?;
        }
        match std::fs::create_dir_all(&disk.root) {
            Ok(()) => {}
            // The name belongs to something that is not a folder.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => return disk.checked(),
            Err(cause) => return Err(failed(&cause)),
        }
        // Folders that existed before are not synced here.
        for parent in parents {
            File::open(parent).and_then(|folder| folder.sync_all()).map_err(|cause| failed(&cause))?;
        }
        disk.checked()
    }

    /// The files below `root`, which must exist.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when it is not a folder; `AccessDenied`, `Io`.
    pub fn open_existing(root: impl Into<PathBuf>) -> Result<Self> {
        let disk = Self { root: root.into() };
        match disk.root.metadata() {
            Ok(_) => disk.checked(),
            Err(cause) => Err(Error::io("open", disk.describe(), &cause)),
        }
    }

    fn checked(self) -> Result<Self> {
        if self.root.is_dir() {
            return readable(&self.root).map(|()| self);
        }
        let detail = "it is not a folder: name one, or none to create it";
        Err(Error::new(ErrorKind::Invalid, "open", self.describe(), detail))
    }

    fn path(&self, path: &str) -> PathBuf {
        // Joining an empty path would end in a slash.
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    fn failed(&self, operation: &'static str, path: &str) -> impl FnOnce(io::Error) -> Error {
        let object = self.path(path).display().to_string();
        move |cause| Error::io(operation, object, &cause)
    }

    fn file(&self, file: File, path: &str) -> Arc<dyn DiskFile> {
        Arc::new(OsFile { file, path: self.path(path).display().to_string(), failed_sync: Mutex::default() })
    }
}

/// Checks that a folder's entries can be listed and synced, before something is created there.
fn readable(folder: &Path) -> Result<()> {
    File::open(folder).map(drop).map_err(|cause| {
        let detail =
            format!("{cause}: a database needs a folder that it may read, as what is in it is listed and synced");
        Error::new(ErrorKind::of_file(cause.kind()), "open", folder.display().to_string(), detail)
    })
}

impl Disk for OsDisk {
    fn describe(&self) -> String {
        self.root.display().to_string()
    }

    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>> {
        let options = OpenOptions::new().read(true).write(true).create_new(true).open(self.path(path));
        Ok(self.file(options.map_err(self.failed("create", path))?, path))
    }

    fn open(&self, path: &str, writes: bool) -> Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(writes).open(self.path(path));
        Ok(self.file(file.map_err(self.failed("open", path))?, path))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        self.path(path).try_exists().map_err(self.failed("look", path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        std::fs::rename(self.path(from), self.path(to)).map_err(self.failed("rename", to))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        std::fs::hard_link(self.path(from), self.path(to)).map_err(self.failed("link", to))
    }

    fn remove(&self, path: &str) -> Result<()> {
        std::fs::remove_file(self.path(path)).map_err(self.failed("remove", path))
    }

    fn make_folder(&self, path: &str) -> Result<()> {
        match std::fs::create_dir(self.path(path)) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && self.path(path).is_dir() => Ok(()),
            made => made.map_err(self.failed("create", path)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<DiskEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.path(folder)).map_err(self.failed("list", folder))? {
            let entry = entry.map_err(self.failed("list", folder))?;
            // Nothing that this crate writes has such a name.
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) => {
                    entries.push(DiskEntry { name, length_bytes: metadata.is_file().then_some(metadata.len()) });
                }
                // Removed since the folder was read.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(self.failed("list", folder)(cause)),
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        let opened = File::open(self.path(folder)).map_err(self.failed(OPEN, folder))?;
        match opened.sync_all() {
            // SquashFS and ISO 9660, for instance, have no sync of folders. Nothing changes there.
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput && is_read_only(&opened) => Ok(()),
            synced => synced.map_err(self.failed("sync", folder)),
        }
    }
}

/// Whether the file system can only be read.
fn is_read_only(file: &File) -> bool {
    fstatvfs(file).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

#[derive(Debug)]
struct OsFile {
    file: File,
    path: String,
    /// The error of a sync that failed. The system tells one sync of a handle what it could not write, and the next ones, also
    /// those that have begun, succeed. So syncs go one at a time, and after one that failed, none succeeds.
    failed_sync: Mutex<Option<Error>>,
}

impl OsFile {
    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |cause| Error::io(operation, &self.path, &cause)
    }

    /// Makes a long write begin to go to the device.
    fn begin(&self, offset: u64, length: usize) {
        if length >= BEGUN_AT_ONCE_BYTES {
            // The advice also drops pages from memory, but not those that are on their way to the device. Where the system
            // ignores it, the sync does everything.
            let _ = fadvise(&self.file, offset, NonZeroU64::new(length as u64), Advice::DontNeed);
        }
    }
}

impl DiskFile for OsFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(self.failed("write"))?;
        self.begin(offset, bytes.len());
        Ok(())
    }

    fn write_parts_at(&self, offset: u64, parts: &mut [IoSlice<'_>]) -> Result<()> {
        let mut rest = parts;
        let mut end = offset;
        while rest.iter().any(|part| !part.is_empty()) {
            match pwritev(&self.file, rest, end) {
                Ok(0) => return Err(self.failed("write")(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    end = end.saturating_add(written as u64);
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(self.failed("write")(cause.into())),
            }
        }
        self.begin(offset, end.saturating_sub(offset) as usize);
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.failed("read")(cause)),
            }
        }
        Ok(done)
    }

    fn length(&self) -> Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(self.failed("look"))
    }

    fn reserve(&self, length_bytes: u64) -> Result<()> {
        let length = self.length()?;
        if length >= length_bytes {
            return Ok(());
        }
        // A signal interrupts this on some file systems, such as those in memory.
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), length, length_bytes - length)) {
            Ok(()) => Ok(()),
            // Not every file system can reserve room. Then a write may find the disk full, and
            // reports that.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(length_bytes).map_err(self.failed("reserve")),
            Err(cause) => Err(self.failed("reserve")(cause.into())),
        }
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.file.set_len(length_bytes).map_err(self.failed("truncate"))
    }

    fn take(&self) -> Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            // A previous holder may have removed the file.
            Ok(()) => self.file.metadata().map(|metadata| metadata.nlink() > 0).map_err(self.failed("take")),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => {
                Err(Error::new(ErrorKind::Unsupported, "take", &*self.path, "the file system has no locks"))
            }
            Err(cause) => Err(self.failed("take")(cause.into())),
        }
    }

    fn let_cool(&self) {
        // The system may keep it in memory nevertheless.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn sync(&self) -> Result<()> {
        let mut failed = lock(&self.failed_sync);
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let synced = self.file.sync_data().map_err(self.failed("sync"));
        *failed = synced.clone().err();
        synced
    }
}
