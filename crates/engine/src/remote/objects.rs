//! A shard's objects in storage: the contents of its segments, one object for each, written once.
//!
//! An object is a block object: compressed, checksummed, and read by ranges through the database's cache of blocks. It is
//! named by the epoch of the owner that wrote it and the number of the segment. The versions say which objects are
//! needed. An object that no version names any more is given to [`Objects::discard`], which makes no call, and is
//! deleted in the background. [`Objects::sweep`] finds what a crash left behind. Objects that an executor puts after
//! its job has ended are found by looking again a few times, each time after a number of deletions: see [`Latecomers`].

use crate::remote::kept::Kept;
use crate::remote::stored::StoredWriter;
use crate::terms::{Error, Result, Undeleted};
use bytes::Bytes;
use forebay_base::{ErrorKind, SegmentId};
use forebay_env::HashSet;
use forebay_env::sync::{Mutex, lock};
use forebay_offload::{MAX_SIGNED_NAMES, SignedName, SignedNames, StorageNeed, StoredPlace};
use forebay_storage::{
    BlockCache, BlockEncoder, BlockObject, BlockOptions, BlockWriter, Compression, History, NumberedObjects,
    ObjectName, ObjectNumber, ObjectStorage, Permit, Storage,
};
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// An object up to this long is put as a whole; a longer one in pieces of this length.
const PIECE_BYTES: u64 = 4 << 20;

/// How often, after the first time, the database looks for objects of a job that ended without outputs.
const LOOKS: u32 = 4;
/// Minimum number of deleted objects between two looks. A list longer than 16 times that is made less often.
const DELETIONS_BETWEEN: u64 = 64;
const LISTED_FOR_EACH: u64 = 16;
/// Maximum number of jobs that are looked for: the last ones.
const MOST_ENDED: usize = 256;

/// Jobs that have ended, whose executors may still put outputs that nobody takes over. The numbers of these outputs are
/// used for nothing else. So the cost is one list for many deletions, and only where executors write to storage.
#[derive(Debug, Default)]
struct Latecomers {
    /// The numbers that the outputs would have, and how often they are still looked for.
    ended: VecDeque<(Range<u64>, u32)>,
    /// How many objects were deleted since the last look, and after how many the next one is due.
    deleted: u64,
    due: u64,
}

impl Latecomers {
    fn add(&mut self, numbers: Range<u64>) {
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((numbers, LOOKS));
    }

    /// Counts deletions. Returns the numbers to look for, if it is time.
    fn deleted(&mut self, objects: u64) -> Vec<Range<u64>> {
        self.deleted = self.deleted.saturating_add(objects);
        if self.ended.is_empty() || self.deleted < self.due.max(DELETIONS_BETWEEN) {
            return Vec::new();
        }
        self.deleted = 0;
        self.ended.iter().map(|(numbers, _)| numbers.clone()).collect()
    }

    /// Notes that these numbers were looked for, in a list of `listed` objects.
    fn looked(&mut self, looked_for: &[Range<u64>], listed: u64) {
        self.due = listed / LISTED_FOR_EACH;
        for (_, looks) in self.ended.iter_mut().filter(|(numbers, _)| looked_for.contains(numbers)) {
            *looks = looks.saturating_sub(1);
        }
        self.ended.retain(|(_, looks)| *looks > 0);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Objects {
    storage: Arc<dyn ObjectStorage>,
    prefix: ObjectName,
    /// Where the database's commits are.
    commits: ObjectName,
    numbered: NumberedObjects,
    epoch: u64,
    cache: Arc<BlockCache>,
    layout: BlockOptions,
    kept: Arc<Kept>,
    /// Names of objects that no version needs.
    garbage: Mutex<Vec<String>>,
    latecomers: Mutex<Latecomers>,
    undeleted: Undeleted,
}

impl Objects {
    /// The objects below `prefix` of a database with these commits, and of the owner of this epoch. They are read through
    /// `cache`, and written as `layout` says. Checkpoints need the objects in `kept`.
    pub(crate) fn new(
        storage: &Storage,
        (prefix, commits): (ObjectName, ObjectName),
        epoch: u64,
        cache: Arc<BlockCache>,
        layout: BlockOptions,
        kept: Arc<Kept>,
    ) -> Self {
        let storage = Arc::clone(storage.objects());
        let numbered = NumberedObjects::new(Arc::clone(&storage), prefix.clone());
        let undeleted = Undeleted::of("segments");
        let (garbage, latecomers) = (Mutex::default(), Mutex::default());
        Self { storage, prefix, commits, numbered, epoch, cache, layout, kept, garbage, latecomers, undeleted }
    }

    /// The cache of blocks, which all shards share.
    pub(crate) const fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Begins the object of a segment that is in storage only, not in memory.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn create(&self, id: SegmentId, kind: SegmentKind, length: u64) -> Result<StoredWriter> {
        let object = ObjectNumber { epoch: self.epoch, number: id.0 };
        let name = self.numbered.name(object)?;
        let writer = BlockWriter::new(self.numbered.writer(object)?, self.layout, name.identity(), &[])?;
        Ok(StoredWriter::new((id, kind, length), name, writer))
    }

    /// Finishes the object of a segment from what was written, and opens it.
    ///
    /// # Errors
    /// Those of [`StoredWriter::finish`].
    pub(crate) fn finish(&self, writer: StoredWriter) -> Result<(SegmentId, SegmentInfo, BlockObject)> {
        let name = writer.name().clone();
        let finish = || -> Result<_> {
            let (id, info, directory) = writer.finish()?;
            Ok((id, info, self.cache.open_as(self.storage.open(&name)?, name.as_str(), directory)))
        };
        // The object may exist although the reply was lost, and nothing else ever has its name.
        finish().inspect_err(|_| self.discard(name.as_str()))
    }

    /// Opens the object of a segment of `length` bytes.
    ///
    /// # Errors
    /// `Corrupt` when the object is missing, or is another segment's; `Fenced` when it is gone because another process
    /// took over; those of the storage.
    pub(crate) fn open(&self, object: &str, length: u64) -> Result<BlockObject> {
        let opened = self.open_unknown(object).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.missing(&error),
            _ => error,
        })?;
        match opened.directory().length() {
            found if found == length => Ok(opened),
            found => Err(Error::corrupt(format!("the object {object} is of {found} bytes, the segment of {length}"))),
        }
    }

    /// Returns what it means that an object that a version names is missing: a process that took over may have deleted
    /// it.
    pub(crate) fn missing(&self, error: &Error) -> Error {
        match History::read(&*self.storage, &self.commits) {
            Ok(history) if history.epoch() > self.epoch => {
                let detail = format!("another process took over, and deleted what it does not need: {error}");
                forebay_storage::Error::new(ErrorKind::Fenced, "read", self.prefix.as_str(), detail).into()
            }
            Ok(_) => Error::corrupt(format!("a version names an object that is not there: {error}")),
            Err(unknown) => unknown.into(),
        }
    }

    /// Opens an object of which only the name is known.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when it is no block object, or another one; those of the storage.
    pub(crate) fn open_unknown(&self, object: &str) -> Result<BlockObject> {
        let name = ObjectName::new(object)?;
        Ok(self.cache.open(self.storage.open(&name)?, object, self.storage.size(&name)?, name.identity())?)
    }

    /// Writes the object of a segment. `read` returns the segment's bytes, given an offset and a length. The object has
    /// the name of [`Objects::name_of`], and is durable when this has returned. A call that failed can be repeated.
    ///
    /// # Errors
    /// Those of the storage, and of `read`.
    pub(crate) fn put(
        &self,
        id: SegmentId,
        length: u64,
        mut read: impl FnMut(u64, u64) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let object = ObjectNumber { epoch: self.epoch, number: id.0 };
        let name = self.numbered.name(object)?;
        if length <= PIECE_BYTES {
            let mut encoder = BlockEncoder::new(self.layout, name.identity(), &[])?;
            let mut bytes = Vec::new();
            encoder.add(&read(0, length)?, &mut bytes)?;
            encoder.finish(&mut bytes)?;
            self.numbered.put(object, Bytes::from(bytes))?;
        } else {
            let mut writer = BlockWriter::new(self.numbered.writer(object)?, self.layout, name.identity(), &[])?;
            let mut offset = 0;
            while offset < length {
                let piece = PIECE_BYTES.min(length - offset);
                writer.write(&read(offset, piece)?)?;
                offset += piece;
            }
            writer.finish()?;
        }
        // The object is a copy: reads are served from memory.
        self.storage.let_cool(&name);
        Ok(())
    }

    /// Reads an object of `length` bytes in pieces, each with its offset.
    ///
    /// # Errors
    /// `NotFound`, or `Corrupt` when it is shorter; others of the storage, and of `each`.
    pub(crate) fn get(&self, name: &str, length: u64, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let object = self.open(name, length)?;
        let mut piece = vec![0; PIECE_BYTES.min(length) as usize];
        let mut offset = 0;
        while offset < length {
            let wanted = (length - offset).min(PIECE_BYTES) as usize;
            let piece = piece.get_mut(..wanted).ok_or_else(|| Error::invalid("a piece is longer than the buffer"))?;
            object.read_at(offset, piece)?;
            each(offset, piece)?;
            offset += wanted as u64;
        }
        Ok(())
    }

    /// Returns what an executor of a job must know of this shard's objects. If the storage can sign names, this allows
    /// the executor to read and write the given objects for `lifetime`. Otherwise it needs rights of its own.
    pub(crate) fn place(
        &self,
        has_outputs: bool,
        reads: &[&str],
        writes: impl Iterator<Item = SegmentId>,
        lifetime: Duration,
    ) -> StoredPlace {
        let (compression, level) = match self.layout.compression {
            Compression::None => (0, 0),
            Compression::Lz4 => (1, 0),
            Compression::Zstd { level } => (2, level),
        };
        let (prefix, block_bytes) = (self.prefix.as_str().to_owned(), self.layout.block_bytes);
        let signed = self.signed(reads, writes, lifetime).unwrap_or_else(|error| {
            tracing::debug!(%error, "an executor needs rights of its own");
            SignedNames::default()
        });
        StoredPlace { prefix, epoch: self.epoch, has_outputs, compression, level, block_bytes, signed }
    }

    /// Signs the names of the objects that a job reads and writes.
    fn signed(
        &self,
        reads: &[&str],
        writes: impl Iterator<Item = SegmentId>,
        lifetime: Duration,
    ) -> Result<SignedNames> {
        let sign = |permit, names: Vec<String>| -> Result<Vec<_>> {
            let objects = names.iter().map(ObjectName::new).collect::<forebay_storage::Result<Vec<_>>>()?;
            let urls = self.storage.sign(permit, &objects, lifetime)?;
            Ok(names.into_iter().zip(urls).map(|(name, url)| SignedName { name, url: url.into_secret() }).collect())
        };
        // One name more than the maximum is enough to know that there are too many.
        let writes: Vec<_> = writes.take(MAX_SIGNED_NAMES + 1).map(|id| self.name_of(id)).collect::<Result<_>>()?;
        let too_many = || Error::new(ErrorKind::Unsupported, "a job has more objects than can be signed");
        if reads.len() + writes.len() > MAX_SIGNED_NAMES {
            return Err(too_many());
        }
        let reads = reads.iter().map(|&name| name.to_owned()).collect();
        let signed = SignedNames { reads: sign(Permit::Read, reads)?, writes: sign(Permit::Write, writes)? };
        if signed.are_within_limits() { Ok(signed) } else { Err(too_many()) }
    }

    /// Returns the name of the object of a segment that this owner writes, or that an executor writes for it.
    ///
    /// # Errors
    /// `Invalid` when the prefix is too long.
    pub(crate) fn name_of(&self, id: SegmentId) -> Result<String> {
        Ok(self.numbered.name(ObjectNumber { epoch: self.epoch, number: id.0 })?.as_str().to_owned())
    }

    /// Whether an object of this name exists.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn is_there(&self, object: &str) -> Result<bool> {
        match self.storage.size(&ObjectName::new(object)?) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Discards what executors left of a job that ended without outputs. The outputs would have had the given numbers,
    /// which nothing else ever has. Objects that come later are discarded later, or left to the next owner.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn sweep_job(&self, numbers: &Range<u64>) -> Result<()> {
        lock(&self.latecomers).add(numbers.clone());
        self.discard_numbered(std::slice::from_ref(numbers)).map(drop)
    }

    /// Notes that a job ended that may have used these numbers. The numbers of the attempt whose outputs were taken
    /// over are consecutive. What other attempts have put, or put late, is discarded later.
    pub(crate) fn expect_late(&self, numbers: &Range<u64>, taken: impl Iterator<Item = SegmentId>) {
        let (mut first, mut end) = (numbers.end, numbers.start);
        for id in taken {
            (first, end) = (first.min(id.0), end.max(id.0.saturating_add(1)));
        }
        let others = [numbers.start..first, end.max(first)..numbers.end];
        let mut latecomers = lock(&self.latecomers);
        others.into_iter().filter(|numbers| !numbers.is_empty()).for_each(|numbers| latecomers.add(numbers));
    }

    /// Discards this owner's objects of these numbers. Returns how many objects exist in all.
    fn discard_numbered(&self, numbers: &[Range<u64>]) -> Result<u64> {
        let listed = self.numbered.list()?;
        for (object, _) in &listed {
            if object.epoch == self.epoch && numbers.iter().any(|numbers| numbers.contains(&object.number)) {
                self.discard(self.numbered.name(*object)?.as_str());
            }
        }
        Ok(listed.len() as u64)
    }

    /// Notes that `deleted` objects were deleted. If it is time, discards what executors have put late.
    fn sweep_late(&self, deleted: u64) {
        let numbers = lock(&self.latecomers).deleted(deleted);
        if numbers.is_empty() {
            return;
        }
        match self.discard_numbered(&numbers) {
            Ok(listed) => lock(&self.latecomers).looked(&numbers, listed),
            // The next look is after as many deletions.
            Err(error) => tracing::debug!(%error, "looking for what executors have put late"),
        }
    }

    /// Marks an object to be deleted in the background, unless a checkpoint names it, or it belongs to another
    /// database, such as one that this one is a clone of. No version that counts, or may count, may name it.
    pub(crate) fn discard(&self, name: &str) {
        if ObjectName::new(name).is_ok_and(|name| name.after(&self.prefix).is_some()) {
            lock(&self.garbage).push(name.to_owned());
        }
    }

    /// Whether objects wait to be deleted.
    pub(crate) fn has_garbage(&self) -> bool {
        !lock(&self.garbage).is_empty()
    }

    /// Deletes the objects that wait to be deleted. Objects that cannot be deleted now are left to the next owner.
    pub(crate) fn delete_garbage(&self) {
        let garbage = std::mem::take(&mut *lock(&self.garbage));
        if garbage.is_empty() {
            return;
        }
        self.sweep_late(garbage.len() as u64);
        for name in garbage {
            if self.kept.holds_back(&name) {
                continue;
            }
            let deleted = ObjectName::new(name).and_then(|name| self.storage.delete(&name));
            if let Err(error) = deleted {
                self.undeleted.note(&error);
            }
        }
    }

    /// Discards what earlier owners left and the new owner's version does not name. Returns how many objects.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn sweep(&self, needed: &HashSet<String>) -> Result<u64> {
        let is_needed = |object| self.numbered.name(object).is_ok_and(|name| needed.contains(name.as_str()));
        let garbage = self.numbered.garbage(self.epoch, is_needed)?;
        for (object, _) in &garbage {
            self.discard(self.numbered.name(*object)?.as_str());
        }
        Ok(garbage.len() as u64)
    }
}

/// Whether a segment is in storage only, and has no place in memory.
pub(crate) fn is_stored(info: &SegmentInfo) -> bool {
    info.placements.iter().all(|placement| matches!(placement, Placement::Storage { .. }))
}

/// What an executor needs of the storage to run a job with these objects.
pub(crate) fn need_of(place: &StoredPlace) -> StorageNeed {
    if place.signed.is_empty() { StorageNeed::Own } else { StorageNeed::Signed }
}

/// The name of the object that holds a copy, if one does.
pub(crate) fn object_of(placements: &[Placement]) -> Option<&str> {
    placements.iter().find_map(|placement| match placement {
        Placement::Storage { object } => Some(object.as_str()),
        Placement::Memory { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::{
        BlockCacheOptions, MemoryObjects, ObjectFault, ObjectInfo, ObjectReader, ObjectWriter, PutMode, SignedUrl,
        StorageOptions,
    };

    const EPOCH: u64 = 7;

    /// Objects in memory, whose names are signed. A URL says what it allows, and for how long, after this many other
    /// bytes.
    #[derive(Debug)]
    struct Signing(MemoryObjects, usize);

    impl ObjectStorage for Signing {
        fn describe(&self) -> String {
            self.0.describe()
        }

        fn keeps_conditions(&self) -> bool {
            self.0.keeps_conditions()
        }

        fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> forebay_storage::Result<()> {
            self.0.put(name, bytes, mode)
        }

        fn writer(&self, name: &ObjectName) -> forebay_storage::Result<Box<dyn ObjectWriter>> {
            self.0.writer(name)
        }

        fn get(&self, name: &ObjectName) -> forebay_storage::Result<Bytes> {
            self.0.get(name)
        }

        fn open(&self, name: &ObjectName) -> forebay_storage::Result<Arc<dyn ObjectReader>> {
            self.0.open(name)
        }

        fn size(&self, name: &ObjectName) -> forebay_storage::Result<u64> {
            self.0.size(name)
        }

        fn sign(
            &self,
            permit: Permit,
            names: &[ObjectName],
            lifetime: Duration,
        ) -> forebay_storage::Result<Vec<SignedUrl>> {
            let start = "x".repeat(self.1);
            let url = |name: &ObjectName| SignedUrl::new(format!("{start}{permit:?} {name} {}", lifetime.as_secs()));
            Ok(names.iter().map(url).collect())
        }

        fn delete(&self, name: &ObjectName) -> forebay_storage::Result<()> {
            self.0.delete(name)
        }

        fn list(&self, prefix: Option<&ObjectName>) -> forebay_storage::Result<Vec<ObjectInfo>> {
            self.0.list(prefix)
        }
    }

    /// A shard's objects, its storage, and that of an executor.
    fn objects() -> (Objects, MemoryObjects, NumberedObjects) {
        let memory = MemoryObjects::new();
        let (objects, executor) = objects_in(Arc::new(memory.clone()), &memory);
        (objects, memory, executor)
    }

    fn objects_in(storage: Arc<dyn ObjectStorage>, memory: &MemoryObjects) -> (Objects, NumberedObjects) {
        let storage = Storage::of_objects(storage, StorageOptions::default());
        let (prefix, commits) = (ObjectName::new("db/segment").unwrap(), ObjectName::new("db/commit").unwrap());
        let cache = BlockCache::new(BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() }).unwrap();
        let executor = NumberedObjects::new(Arc::new(memory.handle()), prefix.clone());
        let (layout, kept) = (BlockOptions::default(), Arc::default());
        (Objects::new(&storage, (prefix, commits), EPOCH, Arc::new(cache), layout, kept), executor)
    }

    #[test]
    fn what_a_job_reads_and_writes_is_signed_where_that_is_possible() {
        let place = |signing: Option<usize>, writes: u64| {
            let memory = MemoryObjects::new();
            let storage: Arc<dyn ObjectStorage> = match signing {
                Some(start) => Arc::new(Signing(memory.clone(), start)),
                None => Arc::new(memory.clone()),
            };
            let (objects, _) = objects_in(storage, &memory);
            let reads = ["other/segment/1/2/3"];
            let place = objects.place(true, &reads, (0..writes).map(SegmentId), Duration::from_secs(90));
            let need = need_of(&place);
            (place.signed, need)
        };
        let (signed, need) = place(Some(0), 2);
        let urls = |names: &[SignedName]| names.iter().map(|name| name.url.clone()).collect::<Vec<_>>();
        let written = |number| format!("Write db/segment/{EPOCH:020}/{number:020} 90");
        assert_eq!(urls(&signed.reads), ["Read other/segment/1/2/3 90"]);
        assert_eq!((urls(&signed.writes), need), (vec![written(0), written(1)], StorageNeed::Signed));
        assert_eq!(signed.writes[1].name, format!("db/segment/{EPOCH:020}/{:020}", 1));
        // As many names as there may be, and one more; a URL that is too long; storage that cannot sign.
        let most = MAX_SIGNED_NAMES as u64 - 1;
        assert_eq!(place(Some(0), most).1, StorageNeed::Signed);
        for (signing, writes) in [(Some(0), most + 1), (Some(0), u64::MAX), (Some(9000), 2), (None, 2)] {
            assert_eq!(place(signing, writes), (SignedNames::default(), StorageNeed::Own), "{signing:?} {writes}");
        }
    }

    fn put(executor: &NumberedObjects, number: u64) {
        executor.put(ObjectNumber { epoch: EPOCH, number }, Bytes::from_static(b"bytes")).unwrap();
    }

    fn there(executor: &NumberedObjects) -> Vec<u64> {
        executor.list().unwrap().iter().map(|(object, _)| object.number).collect()
    }

    /// Deletes objects one after the other, as a running database does. Returns how many extra operations this took.
    fn delete(objects: &Objects, memory: &MemoryObjects, some: u64) -> u64 {
        let before = memory.steps();
        for number in 0..some {
            objects.discard(&format!("db/segment/{number}"));
            objects.delete_garbage();
        }
        memory.steps() - before - some
    }

    #[test]
    fn what_an_executor_puts_late_is_deleted_while_the_owner_lives() {
        let (objects, memory, executor) = objects();
        // Objects of another job that is under way, of an installed job, and of another owner.
        put(&executor, 99);
        put(&executor, 110);
        executor.put(ObjectNumber { epoch: EPOCH + 1, number: 105 }, Bytes::from_static(b"bytes")).unwrap();
        // One object is put before the job has ended. Another is sent before then, and arrives later.
        put(&executor, 101);
        memory.fail_at(memory.steps(), ObjectFault::Late(20));
        let late = executor.name(ObjectNumber { epoch: EPOCH, number: 102 }).unwrap();
        memory.put(&late, Bytes::from_static(b"bytes"), PutMode::Replace).unwrap_err();
        objects.sweep_job(&(100..110)).unwrap();
        objects.delete_garbage();
        assert_eq!(there(&executor), [99, 110, 105]);
        assert_eq!(delete(&objects, &memory, DELETIONS_BETWEEN - 2), 0);
        assert_eq!(there(&executor), [99, 102, 110, 105]);
        // The list, and the object.
        assert_eq!(delete(&objects, &memory, 2), 2);
        assert_eq!(there(&executor), [99, 110, 105]);
        // The looking ends at some time.
        put(&executor, 103);
        let more = delete(&objects, &memory, 10 * DELETIONS_BETWEEN);
        assert_eq!((more, there(&executor)), (u64::from(LOOKS), vec![99, 110, 105]));
        put(&executor, 104);
        assert_eq!(delete(&objects, &memory, 10 * DELETIONS_BETWEEN), 0);
        // What other attempts have put of a job that was installed.
        put(&executor, 205);
        objects.expect_late(&(200..210), [206, 207].map(SegmentId).into_iter());
        (206..210).for_each(|number| put(&executor, number));
        delete(&objects, &memory, DELETIONS_BETWEEN + 1);
        assert_eq!(there(&executor), [99, 104, 110, 206, 207, 105]);
    }

    /// Nothing else ever has its number.
    #[test]
    fn an_object_that_was_finished_without_a_reply_is_deleted() {
        let (objects, memory, executor) = objects();
        let mut writer = objects.create(SegmentId(3), SegmentKind::Run, 5).unwrap();
        writer.write(0, b"bytes").unwrap();
        memory.fail_at(memory.steps(), ObjectFault::ReplyLost);
        assert_eq!(objects.finish(writer).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(there(&executor), [3]);
        objects.delete_garbage();
        assert!(there(&executor).is_empty());
    }

    /// Where there are many objects, a list costs more.
    #[test]
    fn long_lists_are_made_less_often() {
        let mut late = Latecomers::default();
        late.add(0..9);
        let looks = |late: &mut Latecomers, deletions| {
            (0..deletions)
                .filter(|_| {
                    let numbers = late.deleted(1);
                    !numbers.is_empty() && {
                        late.looked(&numbers, 100_000);
                        true
                    }
                })
                .count()
        };
        assert_eq!(looks(&mut late, DELETIONS_BETWEEN), 1);
        assert_eq!(looks(&mut late, 100_000 / LISTED_FOR_EACH - 1), 0);
        assert_eq!(looks(&mut late, 1), 1);
        // A list that failed is made again.
        assert!((0..2).all(|_| late.deleted(100_000).len() == 1));
        (0..2 * MOST_ENDED as u64).for_each(|job| late.add(job..job + 1));
        assert_eq!(late.ended.len(), MOST_ENDED);
    }
}
