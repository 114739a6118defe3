//! A job's objects in storage: ranged reads of its inputs, and puts of its outputs under names of the attempt.
//!
//! What the owner of a job has signed is valid for that job alone, and expires by itself. A worker that uses signed names
//! needs no rights of its own for them. Otherwise it uses the storage that it was started with, which allows it more than
//! one job needs. So the worker checks the names: a job reads and writes objects of segments,
//! `DATABASE/segment/SHARD/EPOCH/NUMBER`, and nothing else in that storage. A job may read another database's objects, as
//! a clone shares objects with the database it was cloned from. A job writes below its own prefix alone, at its owner's
//! epoch.

use crate::Error;
use forebay_base::SegmentId;
use forebay_offload::{SignedName, StorageAccess, StoredPlace};
use forebay_storage::{
    BlockCache, BlockCacheOptions, BlockObject, BlockOptions, BlockWriter, Compression, NumberedObjects, ObjectName,
    ObjectNumber, SignedAccess, SignedUrl, Storage,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The part of a name after which a shard's segments follow.
const SEGMENTS: &str = "segment";

/// The storage that a worker reaches, in one way or two.
#[derive(Debug)]
pub(crate) struct Reached {
    own: Option<Storage>,
    signed: Option<SignedAccess>,
    cache: Arc<BlockCache>,
}

impl Reached {
    /// Storage that is reached by rights of the worker's own, by signed names, or both; `None` if by neither.
    pub fn new(
        own: Option<Storage>,
        signed: Option<SignedAccess>,
        cache: BlockCacheOptions,
    ) -> Result<Option<Self>, Error> {
        if own.is_none() && signed.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { own, signed, cache: Arc::new(BlockCache::new(cache)?) }))
    }

    /// Returns in which ways the storage is reached.
    pub fn access(&self) -> StorageAccess {
        StorageAccess { own: self.own.is_some(), signed: self.signed.is_some() }
    }

    /// Returns the storage of one attempt: what was signed for it, where the worker can use signed names, else all that
    /// the worker may touch.
    fn storage(&self, place: &StoredPlace) -> Result<Storage, Error> {
        let signed = self.signed.as_ref().filter(|_| !place.signed.is_empty()).map(|access| follow(access, place));
        match (signed, &self.own) {
            (Some(Ok(storage)), _) => Ok(storage),
            (_, Some(own)) => Ok(own.clone()),
            (Some(Err(error)), None) => Err(error),
            (None, None) => Err(Error::Unsupported("the job has no signed names, and this worker no storage".into())),
        }
    }
}

/// Returns storage that has what was signed for an attempt.
fn follow(access: &SignedAccess, place: &StoredPlace) -> Result<Storage, Error> {
    let named = |SignedName { name, url }: &SignedName| Ok((ObjectName::new(name)?, SignedUrl::new(url.clone())));
    let all = |names: &[SignedName]| names.iter().map(named).collect::<Result<Vec<_>, Error>>();
    Ok(access.storage(all(&place.signed.reads)?, all(&place.signed.writes)?)?)
}

/// The objects of one attempt.
#[derive(Debug)]
pub(crate) struct Stored {
    storage: Storage,
    cache: Arc<BlockCache>,
    numbered: NumberedObjects,
    epoch: u64,
    layout: BlockOptions,
    /// Whether outputs go there.
    pub has_outputs: bool,
    /// Outputs that are being written, each with how many bytes are missing.
    writing: BTreeMap<SegmentId, (BlockWriter, u64)>,
}

impl Stored {
    pub fn new(reached: &Reached, place: &StoredPlace) -> Result<Self, Error> {
        let compression = match place.compression {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd { level: place.level },
            other => return Err(Error::Unsupported(format!("objects of compression {other} are not known"))),
        };
        let prefix = ObjectName::new(place.prefix.as_str())?;
        if !is_of_segments(&prefix) {
            return Err(foreign(&prefix));
        }
        let storage = reached.storage(place)?;
        let numbered = NumberedObjects::new(Arc::clone(storage.objects()), prefix);
        let layout = BlockOptions { block_bytes: place.block_bytes, compression };
        let (epoch, has_outputs, cache) = (place.epoch, place.has_outputs, Arc::clone(&reached.cache));
        Ok(Self { storage, cache, numbered, epoch, layout, has_outputs, writing: BTreeMap::new() })
    }

    /// Opens an input.
    pub fn open(&self, name: &str, length: u64) -> Result<BlockObject, Error> {
        let name = ObjectName::new(name)?;
        if !is_segment(&name) {
            return Err(foreign(&name));
        }
        let objects = self.storage.objects();
        let reader = objects.open(&name)?;
        let object = self.cache.open(reader, name.as_str(), objects.size(&name)?, name.identity())?;
        if object.directory().length() == length {
            Ok(object)
        } else {
            Err(Error::Corrupt(format!("the object {} is not of {length} bytes", name.as_str())))
        }
    }

    /// Begins an output of `length` bytes. Returns its name.
    pub fn create(&mut self, id: SegmentId, length: u64) -> Result<String, Error> {
        if !self.has_outputs {
            return Err(Error::Unsupported("the job has no outputs in storage".into()));
        }
        let object = ObjectNumber { epoch: self.epoch, number: id.0 };
        let name = self.numbered.name(object)?;
        let writer = BlockWriter::new(self.numbered.writer(object)?, self.layout, name.identity(), &[])?;
        self.writing.insert(id, (writer, length));
        Ok(name.as_str().to_owned())
    }

    /// Adds bytes to an output, which is complete when it has all its bytes. Returns false when there is no such
    /// output.
    pub fn write(&mut self, id: SegmentId, bytes: &[u8]) -> Result<bool, Error> {
        let Some((writer, left)) = self.writing.get_mut(&id) else { return Ok(false) };
        *left = left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| Error::Corrupt(format!("more bytes than {id} has are written")))?;
        writer.write(bytes)?;
        if *left == 0
            && let Some((writer, _)) = self.writing.remove(&id)
        {
            writer.finish()?;
        }
        Ok(true)
    }
}

/// Whether names below this prefix are those of a shard's segments: `DATABASE/segment/SHARD`.
fn is_of_segments(prefix: &ObjectName) -> bool {
    let mut parts = prefix.as_str().rsplit('/');
    let (shard, kind, database) = (parts.next(), parts.next(), parts.next());
    shard.is_some_and(is_number) && kind == Some(SEGMENTS) && database.is_some()
}

/// Whether this is the name of a segment's object: `DATABASE/segment/SHARD/EPOCH/NUMBER`.
fn is_segment(name: &ObjectName) -> bool {
    let mut parts = name.as_str().rsplitn(3, '/');
    let (number, epoch, prefix) = (parts.next(), parts.next(), parts.next());
    let is_below = |prefix: &str| ObjectName::new(prefix).is_ok_and(|prefix| is_of_segments(&prefix));
    number.is_some_and(is_number) && epoch.is_some_and(is_number) && prefix.is_some_and(is_below)
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn foreign(name: &ObjectName) -> Error {
    Error::Unsupported(format!("a job may touch objects of segments alone, and {name} is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;
    use forebay_storage::{MemoryObjects, ObjectStorage, PutMode, StorageOptions};

    fn place(prefix: &str, has_outputs: bool) -> StoredPlace {
        StoredPlace {
            prefix: prefix.to_owned(),
            epoch: 7,
            has_outputs,
            compression: 0,
            level: 0,
            block_bytes: 4096,
            signed: forebay_offload::SignedNames::default(),
        }
    }

    fn reached() -> (MemoryObjects, Reached) {
        let memory = MemoryObjects::new();
        let own = Storage::of_objects(Arc::new(memory.clone()), StorageOptions::default());
        (memory, Reached::new(Some(own), None, BlockCacheOptions::default()).unwrap().unwrap())
    }

    #[test]
    fn outputs_have_names_below_the_prefix_at_the_owners_epoch() {
        let (memory, reached) = reached();
        let mut stored = Stored::new(&reached, &place("db/segment/00000000000000000003", true)).unwrap();
        let name = stored.create(SegmentId(42), 3).unwrap();
        assert!(stored.write(SegmentId(42), b"abc").unwrap() && !stored.write(SegmentId(42), b"d").unwrap());
        assert_eq!(name, "db/segment/00000000000000000003/00000000000000000007/00000000000000000042");
        let listed: Vec<_> = memory.list(None).unwrap().into_iter().map(|object| object.name.to_string()).collect();
        assert_eq!(listed, [name.as_str()]);
        let object = stored.open(&name, 3).unwrap();
        let mut read = [0; 2];
        object.read_at(1, &mut read).unwrap();
        assert_eq!(&read, b"bc");
        let mut reads = Stored::new(&reached, &place("db/segment/00000000000000000003", false)).unwrap();
        assert_eq!(reads.create(SegmentId(43), 3).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_job_names_nothing_but_segments() {
        let (memory, reached) = reached();
        let segments = "db/segment/00000000000000000003";
        for prefix in [
            "../segment/3",
            "/db/segment/3",
            "db/segment/3/..",
            "db//segment/3",
            "db/commit/3",
            "db/segment",
            "segment/3",
        ] {
            assert!(Stored::new(&reached, &place(prefix, true)).is_err(), "{prefix}");
        }
        let stored = Stored::new(&reached, &place(segments, true)).unwrap();
        for name in [
            "../db/segment/3/7/42",
            "/db/segment/3/7/42",
            "db/segment/3/7/../42",
            "db/segment/3/7",
            "db/segment/3/7/42/1",
            "db/log/00000000000000000003/00000000000000000007/00000000000000000042",
            "db/commit/00000000000000000003",
            "00000000000000000003",
        ] {
            if let Ok(name) = ObjectName::new(name) {
                memory.put(&name, bytes::Bytes::from_static(b"secret"), PutMode::Replace).unwrap();
            }
            let kind = stored.open(name, 6).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Unsupported | ErrorKind::Invalid), "{name}: {kind}");
        }
        // A clone reads what it shares with another database.
        let missing = stored.open("other/segment/1/2/3", 6).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    }
}
