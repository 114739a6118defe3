//! Counts operations on storage as they pass: objects and their bytes, and syncs of a disk. The operations go over the
//! [link](crate::link) here. A missing place for objects is distinguished from a missing object, and a read that finds
//! nothing asks once more.

use crate::disk::{Disk, DiskEntry, DiskFile};
use crate::error::Result;
use crate::link::{Direction, Link, Rank};
use crate::name::ObjectName;
use crate::objects::{
    ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, Permit, PutMode, ReadRequest, SignedUrl, Unfinished,
    no_place,
};
use bytes::Bytes;
use forebay_base::ErrorKind;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What was done to storage: monotonic counts of successes, and of failed deletions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageCounts {
    /// Objects that were read: gets as a whole, and objects opened for ranges.
    pub objects_read: u64,
    /// Objects written: puts, and streamed objects that were finished.
    pub objects_written: u64,
    /// Objects deleted, including those that did not exist.
    pub objects_deleted: u64,
    /// Failed deletions of objects: such an object takes room until somebody deletes it.
    pub failed_deletions: u64,
    /// Bytes of objects that were read.
    pub bytes_read: u64,
    /// Bytes of objects that were written.
    pub bytes_written: u64,
    /// Syncs of files and of folders, including those of logs; zero where there is no disk.
    pub syncs: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    objects_read: AtomicU64,
    objects_written: AtomicU64,
    objects_deleted: AtomicU64,
    failed_deletions: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn counts(&self) -> StorageCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StorageCounts {
            objects_read: get(&self.objects_read),
            objects_written: get(&self.objects_written),
            objects_deleted: get(&self.objects_deleted),
            failed_deletions: get(&self.failed_deletions),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            syncs: get(&self.syncs),
        }
    }
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// The result of a read. If it finds nothing it asks once more, because a service may say so by
/// mistake.
fn asked_twice<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => read(),
        read => read,
    }
}

/// Objects, counted.
#[derive(Debug)]
pub(crate) struct CountedObjects {
    pub(crate) objects: Arc<dyn ObjectStorage>,
    pub(crate) counters: Arc<Counters>,
    /// `None` where the objects are files, which go over the link themselves.
    pub(crate) link: Option<Arc<Link>>,
    /// The rank of writes.
    pub(crate) rank: Rank,
}

/// Waits until the link, if there is one, has carried `bytes`.
fn carry(link: Option<&Arc<Link>>, direction: Direction, rank: Rank, bytes: usize) {
    if let Some(link) = link {
        link.carry(direction, rank, bytes);
    }
}

impl ObjectStorage for CountedObjects {
    fn describe(&self) -> String {
        self.objects.describe()
    }

    fn keeps_conditions(&self) -> bool {
        self.objects.keeps_conditions()
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        let length = bytes.len();
        carry(self.link.as_ref(), Direction::ToStorage, self.rank, length);
        self.objects.put(name, bytes, mode).map_err(no_place)?;
        add(&self.counters.objects_written, 1);
        add(&self.counters.bytes_written, length);
        Ok(())
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        let writer = self.objects.writer(name).map_err(no_place)?;
        Ok(Box::new(CountedWriter { writer, bytes: 0, counters: Arc::clone(&self.counters), link: self.link.clone() }))
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        let bytes = asked_twice(|| self.objects.get(name))?;
        carry(self.link.as_ref(), Direction::FromStorage, Rank::Bulk, bytes.len());
        add(&self.counters.objects_read, 1);
        add(&self.counters.bytes_read, bytes.len());
        Ok(bytes)
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let reader = asked_twice(|| self.objects.open(name))?;
        add(&self.counters.objects_read, 1);
        Ok(Arc::new(CountedReader { reader, counters: Arc::clone(&self.counters), link: self.link.clone() }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        asked_twice(|| self.objects.size(name))
    }

    fn sign(&self, permit: Permit, names: &[ObjectName], lifetime: Duration) -> Result<Vec<SignedUrl>> {
        self.objects.sign(permit, names, lifetime)
    }

    fn let_cool(&self, name: &ObjectName) {
        self.objects.let_cool(name);
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        let deleted = self.objects.delete(name).map_err(no_place);
        let Counters { objects_deleted, failed_deletions, .. } = &*self.counters;
        add(if deleted.is_ok() { objects_deleted } else { failed_deletions }, 1);
        deleted
    }

    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        self.objects.list(prefix).map_err(no_place)
    }

    fn unfinished(&self) -> Result<Vec<Unfinished>> {
        self.objects.unfinished()
    }

    fn sweep(&self) -> Result<u64> {
        self.objects.sweep()
    }
}

#[derive(Debug)]
struct CountedWriter {
    writer: Box<dyn ObjectWriter>,
    bytes: usize,
    counters: Arc<Counters>,
    link: Option<Arc<Link>>,
}

impl ObjectWriter for CountedWriter {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.bytes += bytes.len();
        carry(self.link.as_ref(), Direction::ToStorage, Rank::Bulk, bytes.len());
        self.writer.write(bytes).map_err(no_place)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.writer.finish().map_err(no_place)?;
        add(&self.counters.objects_written, 1);
        add(&self.counters.bytes_written, self.bytes);
        Ok(())
    }
}

#[derive(Debug)]
struct CountedReader {
    reader: Arc<dyn ObjectReader>,
    counters: Arc<Counters>,
    link: Option<Arc<Link>>,
}

impl ObjectReader for CountedReader {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        asked_twice(|| self.reader.read_at(offset, out))?;
        carry(self.link.as_ref(), Direction::FromStorage, Rank::Bulk, out.len());
        add(&self.counters.bytes_read, out.len());
        Ok(())
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        asked_twice(|| self.reader.read_many(requests))?;
        let bytes = requests.iter().map(|request| request.out.len()).sum();
        carry(self.link.as_ref(), Direction::FromStorage, Rank::Bulk, bytes);
        add(&self.counters.bytes_read, bytes);
        Ok(())
    }
}

/// A disk, counted.
#[derive(Debug)]
pub(crate) struct CountedDisk {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) link: Arc<Link>,
}

impl CountedDisk {
    fn counted(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountedFile {
            file,
            counters: Arc::clone(&self.counters),
            link: Arc::clone(&self.link),
            goes_first: AtomicBool::new(false),
        })
    }
}

impl Disk for CountedDisk {
    fn describe(&self) -> String {
        self.disk.describe()
    }

    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>> {
        Ok(self.counted(self.disk.create(path)?))
    }

    fn open(&self, path: &str, writes: bool) -> Result<Arc<dyn DiskFile>> {
        Ok(self.counted(self.disk.open(path, writes)?))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        self.disk.exists(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.disk.link(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.disk.remove(path)
    }

    fn make_folder(&self, path: &str) -> Result<()> {
        self.disk.make_folder(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<DiskEntry>> {
        self.disk.list(folder)
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        self.disk.sync_folder(folder)?;
        add(&self.counters.syncs, 1);
        Ok(())
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn DiskFile>,
    counters: Arc<Counters>,
    link: Arc<Link>,
    goes_first: AtomicBool,
}

impl CountedFile {
    fn rank(&self) -> Rank {
        if self.goes_first.load(Ordering::Relaxed) { Rank::First } else { Rank::Bulk }
    }
}

impl DiskFile for CountedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.link.carry(Direction::ToStorage, self.rank(), bytes.len());
        self.file.write_at(offset, bytes)
    }

    fn write_parts_at(&self, offset: u64, parts: &mut [IoSlice<'_>]) -> Result<()> {
        self.link.carry(Direction::ToStorage, self.rank(), parts.iter().map(|part| part.len()).sum());
        self.file.write_parts_at(offset, parts)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let read = self.file.read_at(offset, out)?;
        self.link.carry(Direction::FromStorage, self.rank(), read);
        Ok(read)
    }

    fn length(&self) -> Result<u64> {
        self.file.length()
    }

    fn reserve(&self, length_bytes: u64) -> Result<()> {
        self.file.reserve(length_bytes)
    }

    fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.file.truncate(length_bytes)
    }

    fn take(&self) -> Result<bool> {
        self.file.take()
    }

    fn go_first(&self) {
        self.goes_first.store(true, Ordering::Relaxed);
        self.file.go_first();
    }

    fn let_cool(&self) {
        self.file.let_cool();
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()?;
        add(&self.counters.syncs, 1);
        Ok(())
    }
}
