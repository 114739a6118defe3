//! A cache of blocks of objects, within a budget of bytes.

use super::directory::BlockDirectory;
use super::fetch::Object;
use super::floor::LowerFloor;
use super::object::BlockObject;
use super::shared::{BlockCacheCounts, BlockCacheOptions, Shared};
use crate::error::{Error, Result};
use crate::objects::ObjectReader;
use forebay_env::thread;
use std::sync::Arc;

/// Bytes of an object's end that are read first: enough for the directory of an object of about 64 MiB.
const FIRST_TAIL_BYTES: u64 = 16 << 10;

/// See the module.
#[derive(Debug)]
pub struct BlockCache {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl BlockCache {
    /// An empty cache.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn new(options: BlockCacheOptions) -> Result<Self> {
        Self::over(options, None)
    }

    /// As [`BlockCache::new`], over a floor that is asked before the storage.
    ///
    /// # Errors
    /// As [`BlockCache::new`].
    pub fn over(options: BlockCacheOptions, below: Option<Arc<dyn LowerFloor>>) -> Result<Self> {
        let shared = Arc::new(Shared::new(options, below)?);
        let mut cache = Self { shared, threads: Vec::with_capacity(options.threads) };
        for number in 0..options.threads {
            let shared = Arc::clone(&cache.shared);
            let started = thread::spawn(format!("forebay-blocks-{number}"), move || shared.work());
            cache.threads.push(started.map_err(|error| Error::io("start", "a thread of the block cache", &error))?);
        }
        Ok(cache)
    }

    /// Opens a block object of `object_bytes` (as stored) to be read through the cache. Errors call it `name`. Takes one
    /// request, or two when the directory is long.
    ///
    /// # Errors
    /// `Corrupt` when it is no block object, is damaged, or is not the object `identity`; those of
    /// [`ObjectReader::read_at`].
    pub fn open(
        &self,
        reader: Arc<dyn ObjectReader>,
        name: impl Into<String>,
        object_bytes: u64,
        identity: u64,
    ) -> Result<BlockObject> {
        let name = name.into();
        let directory = self.read_directory(&*reader, &name, object_bytes)?;
        if directory.identity != identity {
            let found = directory.identity;
            return Err(Error::corrupt(name, format!("this is the object {found:#x}, not {identity:#x}")));
        }
        Ok(self.open_as(reader, name, directory))
    }

    /// As [`BlockCache::open`], for an object whose directory is known because it was just written. Takes no request.
    pub fn open_as(
        &self,
        reader: Arc<dyn ObjectReader>,
        name: impl Into<String>,
        directory: BlockDirectory,
    ) -> BlockObject {
        let object = Object { id: self.shared.next_object(), name: name.into(), reader, directory };
        BlockObject::new(Arc::clone(&self.shared), Arc::new(object))
    }

    fn read_directory(&self, reader: &dyn ObjectReader, name: &str, object_bytes: u64) -> Result<BlockDirectory> {
        let mut bytes = FIRST_TAIL_BYTES.min(object_bytes);
        for _ in 0..2 {
            let mut tail = vec![0; bytes as usize];
            self.shared.count_directory_request();
            reader.read_at(object_bytes - bytes, &mut tail)?;
            match BlockDirectory::decode(&tail, object_bytes).map_err(|cause| Error::decode(name, &cause))? {
                Ok(directory) => return Ok(directory),
                Err(needed) => bytes = needed as u64,
            }
        }
        Err(Error::corrupt(name, "the object's footer changed while it was read"))
    }

    /// Makes the floor below release half of what it holds.
    pub fn shrink_below(&self) {
        self.shared.shrink_below();
    }

    /// Counts of what the cache has done so far.
    #[must_use]
    pub fn counts(&self) -> BlockCacheCounts {
        self.shared.counts()
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}
