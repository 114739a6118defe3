//! Objects as files below a folder.
//!
//! ```text
//!  root/
//!    .tmp/NONCE-COUNT      an object that is being written
//!    part/part/name        an object
//! ```
//!
//! An object is written to a file of its own, synced, and only then given its name: by a link, which fails where the name is
//! taken, or by a rename, which takes it over. Then the folder is synced. So a name leads to a whole object or to none, and
//! an error anywhere leaves at most a file in `.tmp`. The writer of such a file has locked it ([`DiskFile::take`]), so files
//! left by a dead process can be distinguished from those that some process is writing.
//!
//! Nothing more is written to a folder whose sync failed (see [`CarefulDisk`]).
//!
//! An object that is read stays open between reads, unless many do: a process may have 1024 files open at most places,
//! and 256 at some, and a large database has thousands of objects.

use super::{
    ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, PutMode, ReadRequest, Unfinished, has_failed, too_short,
};
use crate::disk::{CarefulDisk, Disk, DiskFile, list_if_there, make_folders, path_in, read_file, remove_if_there};
use crate::error::Result;
use crate::name::ObjectName;
use crate::planted::{Bug, planted};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::HashSet;
use forebay_env::sync::{Mutex, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const TEMPORARY: &str = ".tmp";
/// Digits of a nonce.
const NONCE_DIGITS: usize = 16;
/// Objects that stay open between reads. The others are opened for each read.
const MOST_KEPT_OPEN: usize = 128;

/// Objects in a folder of a [`Disk`].
#[derive(Debug, Clone)]
pub struct DirectoryObjects {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Arc<dyn Disk>,
    nonce: u64,
    count: AtomicU64,
    /// Folders that survive a power failure.
    known: Mutex<HashSet<String>>,
    /// Readers that keep their file open, and how many may.
    kept_open: AtomicUsize,
    most_kept_open: usize,
}

impl DirectoryObjects {
    /// Objects on `disk`. Files that are being written are named by `nonce`, which no other process may use at the same time:
    /// a random number.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, nonce: u64) -> Self {
        Self::keeping_open(MOST_KEPT_OPEN, disk, nonce)
    }

    fn keeping_open(most_kept_open: usize, disk: Arc<dyn Disk>, nonce: u64) -> Self {
        let inner = Inner {
            disk: Arc::new(CarefulDisk::new(disk)),
            nonce,
            count: AtomicU64::new(0),
            known: Mutex::default(),
            kept_open: AtomicUsize::new(0),
            most_kept_open,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The disk, for other files there. It relies on no folder on which the objects do not.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.disk
    }

    fn collect(&self, folder: &str, out: &mut Vec<ObjectInfo>) -> Result<()> {
        let disk = &self.inner.disk;
        for entry in list_if_there(&**disk, folder)? {
            let path = path_in(folder, &entry.name);
            match entry.length_bytes {
                // A file without a valid name was not put here by this crate, or is not an object.
                Some(size_bytes) => {
                    out.extend(ObjectName::new(path).ok().map(|name| ObjectInfo { name, size_bytes }));
                }
                None if entry.name.starts_with('.') => {}
                None => {
                    self.inner.disk.sync_folder(&path)?;
                    self.collect(&path, out)?;
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Makes sure that a folder exists and survives.
    fn make(&self, folder: &str) -> Result<()> {
        if lock(&self.known).contains(folder) {
            return Ok(());
        }
        make_folders(&*self.disk, folder)?;
        lock(&self.known).insert(folder.to_owned());
        Ok(())
    }

    fn temporary(&self) -> Result<(String, Arc<dyn DiskFile>)> {
        self.make(TEMPORARY)?;
        loop {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let path = format!("{TEMPORARY}/{:0NONCE_DIGITS$x}-{count}", self.nonce);
            let file = self.disk.create(&path)?;
            match file.take() {
                // A sweep was faster, and removes it.
                Ok(false) => {}
                // Where files cannot be locked, a sweep leaves all of them.
                Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
                _ => return Ok((path, file)),
            }
        }
    }

    /// Whether one more reader may keep its file open. If so, it is counted.
    fn keeps_one_more(&self) -> bool {
        let more = |kept: usize| (kept < self.most_kept_open).then_some(kept + 1);
        self.kept_open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Files that nobody writes, locked, with their paths.
    fn unfinished(&self) -> Result<Vec<(String, Arc<dyn DiskFile>)>> {
        let mut found = Vec::new();
        for entry in list_if_there(&*self.disk, TEMPORARY)?.into_iter().filter(|entry| is_temporary(&entry.name)) {
            let path = path_in(TEMPORARY, &entry.name);
            let taken = self.disk.open(&path, false).and_then(|file| Ok(file.take()?.then_some(file)));
            match taken {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {}
                taken => found.extend(taken?.map(|file| (path, file))),
            }
        }
        Ok(found)
    }

    /// Gives what was written a name.
    fn publish(&self, path: &str, name: &ObjectName, mode: PutMode) -> Result<()> {
        let folder = name.folder();
        self.make(folder)?;
        match mode {
            PutMode::Replace => self.disk.rename(path, name.as_str())?,
            PutMode::IfAbsent => {
                let linked = self.disk.link(path, name.as_str());
                if let Err(error) = &linked
                    && error.kind() == ErrorKind::AlreadyExists
                {
                    // The caller will act on the object that has the name, so that object must survive.
                    self.disk.sync_folder(folder)?;
                }
                linked?;
            }
        }
        if planted(Bug::NameIsNotSynced) { Ok(()) } else { self.disk.sync_folder(folder) }
    }
}

/// Whether a file in [`TEMPORARY`] has a name as [`Inner::temporary`] gives it. Others were not put there by this crate.
fn is_temporary(name: &str) -> bool {
    let is_of = |text: &str, radix| !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
    name.split_once('-')
        .is_some_and(|(nonce, count)| nonce.len() == NONCE_DIGITS && is_of(nonce, 16) && is_of(count, 10))
}

impl ObjectStorage for DirectoryObjects {
    fn describe(&self) -> String {
        self.inner.disk.describe()
    }

    fn keeps_conditions(&self) -> bool {
        // The system's link fails where the name is taken.
        true
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        let mut writer = FileWriter::begin(&self.inner, name, mode)?;
        writer.write(bytes)?;
        Box::new(writer).finish()
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(FileWriter::begin(&self.inner, name, PutMode::Replace)?))
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        read_file(&*self.inner.disk, name.as_str())
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let file = self.inner.disk.open(name.as_str(), false)?;
        let kept = self.inner.keeps_one_more().then_some(file);
        Ok(Arc::new(FileReader { inner: Arc::clone(&self.inner), kept, name: name.clone() }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        self.inner.disk.open(name.as_str(), false)?.length()
    }

    fn let_cool(&self, name: &ObjectName) {
        // An object that is gone, or cannot be opened, takes no memory that this could free.
        if let Ok(file) = self.inner.disk.open(name.as_str(), false) {
            file.let_cool();
        }
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        // Not synced: an object that comes back after a power failure is garbage, and found by a list.
        remove_if_there(&*self.inner.disk, name.as_str())
    }

    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        let folder = prefix.map_or("", ObjectName::as_str);
        let mut objects = Vec::new();
        match self.inner.disk.sync_folder(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(objects),
            synced => synced?,
        }
        self.collect(folder, &mut objects)?;
        objects.sort();
        Ok(objects)
    }

    fn unfinished(&self) -> Result<Vec<Unfinished>> {
        let of = |(path, file): (String, Arc<dyn DiskFile>)| Ok(Unfinished { bytes: file.length()?, path });
        self.inner.unfinished()?.into_iter().map(of).collect()
    }

    fn sweep(&self) -> Result<u64> {
        let unfinished = self.inner.unfinished()?;
        unfinished.iter().try_for_each(|(path, _)| remove_if_there(&*self.inner.disk, path))?;
        Ok(unfinished.len() as u64)
    }
}

/// An object on its way to its name.
#[derive(Debug)]
struct FileWriter {
    inner: Arc<Inner>,
    file: Arc<dyn DiskFile>,
    path: String,
    name: ObjectName,
    mode: PutMode,
    length: u64,
    is_named: bool,
    has_failed: bool,
}

impl FileWriter {
    fn begin(inner: &Arc<Inner>, name: &ObjectName, mode: PutMode) -> Result<Self> {
        let (path, file) = inner.temporary()?;
        Ok(Self {
            inner: Arc::clone(inner),
            file,
            path,
            name: name.clone(),
            mode,
            length: 0,
            is_named: false,
            has_failed: false,
        })
    }
}

impl FileWriter {
    fn refuse_failed(&self) -> Result<()> {
        if self.has_failed { Err(has_failed(self.name.as_str())) } else { Ok(()) }
    }
}

impl ObjectWriter for FileWriter {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.refuse_failed()?;
        self.has_failed = true;
        self.file.write_at(self.length, &bytes)?;
        self.has_failed = false;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.refuse_failed()?;
        if !planted(Bug::ObjectIsNotSynced) {
            self.file.sync()?;
        }
        self.inner.publish(&self.path, &self.name, self.mode)?;
        // A rename has already removed the temporary name.
        self.is_named = self.mode == PutMode::Replace;
        Ok(())
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_named {
            // What cannot be removed now is left to a sweep.
            let _ = self.inner.disk.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct FileReader {
    inner: Arc<Inner>,
    name: ObjectName,
    /// The file; none if each read opens it.
    kept: Option<Arc<dyn DiskFile>>,
}

impl ObjectReader for FileReader {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, out }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let file = match &self.kept {
            Some(file) => Arc::clone(file),
            None => self.inner.disk.open(self.name.as_str(), false)?,
        };
        for request in requests {
            if file.read_at(request.offset, request.out)? != request.out.len() {
                return Err(too_short(self.name.as_str(), request.offset, request.out.len()));
            }
        }
        Ok(())
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        if self.kept.take().is_some() {
            self.inner.kept_open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskFault, OsDisk, SimDisk};

    fn name() -> ObjectName {
        ObjectName::new("table/1").unwrap()
    }

    #[test]
    fn a_streamed_object_that_lacks_a_part_never_gets_its_name() {
        let disk = SimDisk::new();
        let objects = DirectoryObjects::new(Arc::new(disk.clone()), 1);
        let mut writer = objects.writer(&name()).unwrap();
        writer.write(Bytes::from_static(b"one")).unwrap();
        disk.fail_at(disk.steps(), DiskFault::Half(ErrorKind::Full));
        assert_eq!(writer.write(Bytes::from_static(b"two")).unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(writer.write(Bytes::from_static(b"three")).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(objects.get(&name()).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(objects.sweep().unwrap(), 0);
    }

    #[test]
    fn a_folder_whose_sync_failed_is_not_written_to() {
        let disk = SimDisk::new();
        let objects = DirectoryObjects::new(Arc::new(disk.clone()), 1);
        objects.put(&name(), Bytes::from_static(b"one"), PutMode::Replace).unwrap();
        // A put creates, writes, syncs, renames, and syncs the folder.
        disk.fail_at(disk.steps() + 4, DiskFault::Refused(ErrorKind::Io));
        let put = |text: &'static str| objects.put(&name(), Bytes::from_static(text.as_bytes()), PutMode::Replace);
        assert_eq!(put("two").unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(put("three").unwrap_err().kind(), ErrorKind::Closed);
        assert!(objects.get(&name()).is_ok());
        let again = DirectoryObjects::new(Arc::new(disk), 2);
        again.put(&name(), Bytes::from_static(b"four"), PutMode::Replace).unwrap();
    }

    #[test]
    fn only_some_objects_stay_open() {
        let folder = std::env::temp_dir().join(format!("forebay-kept-open-{}", std::process::id()));
        let objects = DirectoryObjects::keeping_open(1, Arc::new(OsDisk::open(&folder).unwrap()), 1);
        let put_and_open = |text: &str| {
            let name = ObjectName::new(format!("table/{text}")).unwrap();
            objects.put(&name, Bytes::copy_from_slice(text.as_bytes()), PutMode::Replace).unwrap();
            objects.open(&name).unwrap()
        };
        let read = |reader: &Arc<dyn ObjectReader>, bytes| {
            let mut out = vec![0; bytes];
            reader.read_at(0, &mut out).map(|()| out)
        };
        let [one, two] = ["one", "two"].map(put_and_open);
        assert_eq!([read(&one, 3), read(&two, 3)].map(Result::unwrap), [b"one", b"two"]);
        let too_much = [read(&one, 4), read(&two, 4)];
        assert_eq!(too_much.map(|read| read.unwrap_err().kind()), [ErrorKind::Corrupt; 2]);
        // What is open can be read without its name.
        let remove = |text: &str| std::fs::remove_file(folder.join("table").join(text)).unwrap();
        ["one", "two"].into_iter().for_each(remove);
        assert_eq!(read(&one, 3).unwrap(), b"one");
        assert_eq!(read(&two, 3).unwrap_err().kind(), ErrorKind::NotFound);
        // A reader that is gone makes room.
        drop(one);
        let three = put_and_open("three");
        remove("three");
        assert_eq!(read(&three, 5).unwrap(), b"three");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_sweep_leaves_what_others_write() {
        let disk = SimDisk::new();
        let objects = |nonce| DirectoryObjects::new(Arc::new(disk.handle()), nonce);
        let [one, other] = [objects(1), objects(2)];
        let mut writer = one.writer(&name()).unwrap();
        writer.write(Bytes::from_static(b"one")).unwrap();
        assert_eq!((other.unfinished().unwrap(), other.sweep().unwrap()), (Vec::new(), 0));
        writer.finish().unwrap();
        assert_eq!(other.get(&name()).unwrap(), Bytes::from_static(b"one"));
    }

    #[test]
    fn a_sweep_of_files_leaves_what_others_write() {
        let folder = std::env::temp_dir().join(format!("forebay-sweep-{}", std::process::id()));
        let objects = |nonce| DirectoryObjects::new(Arc::new(OsDisk::open(&folder).unwrap()), nonce);
        let [one, other] = [objects(1), objects(2)];
        let mut writer = one.writer(&name()).unwrap();
        writer.write(Bytes::from_static(b"one")).unwrap();
        // A file that a killed process left, and files that somebody else has put there.
        let killed = "00000000000000ff-3";
        let foreign = ["left", "notes-2", "0000000000000001-", "0000000000000001-1.bak"];
        for name in foreign.into_iter().chain([killed]) {
            std::fs::write(folder.join(TEMPORARY).join(name), b"four").unwrap();
        }
        let left = Unfinished { path: format!("{TEMPORARY}/{killed}"), bytes: 4 };
        assert_eq!(other.unfinished().unwrap(), [left]);
        assert_eq!((other.sweep().unwrap(), other.sweep().unwrap()), (1, 0));
        assert!(foreign.iter().all(|name| folder.join(TEMPORARY).join(name).exists()));
        writer.finish().unwrap();
        assert_eq!(other.get(&name()).unwrap(), Bytes::from_static(b"one"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_sweep_removes_what_was_interrupted() {
        let disk = SimDisk::new();
        let objects = DirectoryObjects::new(Arc::new(disk.clone()), 1);
        // Two folders are made, which takes two steps each, before the file is created and written.
        disk.end_at(4);
        objects.put(&name(), Bytes::from_static(b"one"), PutMode::Replace).unwrap_err();
        let again = DirectoryObjects::new(Arc::new(disk.handle()), 2);
        assert_eq!((again.sweep().unwrap(), again.sweep().unwrap()), (1, 0));
    }
}
