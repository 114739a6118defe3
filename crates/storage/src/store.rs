//! A place for a database's durable state: objects, and logs, which are files where possible.

use crate::counts::{CountedDisk, CountedObjects, Counters, StorageCounts};
use crate::disk::{Disk, OsDisk};
use crate::error::{Error, Result};
use crate::link::{Link, Rank};
use crate::log::{FileLog, Log, LogReader, ObjectLog, Recovery, Rescued, check_log, delete_log, open_log, rescue_log};
use crate::name::ObjectName;
use crate::objects::{DirectoryObjects, LayeredObjects, MemoryObjects, ObjectStorage};
use crate::options::StorageOptions;
use forebay_base::ErrorKind;
use forebay_env::Random;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a database keeps its durable state.
#[derive(Debug, Clone)]
pub struct Storage {
    objects: Arc<dyn ObjectStorage>,
    /// The objects, for logs.
    logs: Arc<dyn ObjectStorage>,
    disk: Option<Arc<dyn Disk>>,
    counters: Arc<Counters>,
    link: Arc<Link>,
    options: StorageOptions,
}

impl Storage {
    /// Opens what `url` names:
    ///
    /// | URL | storage | feature |
    /// |---|---|---|
    /// | `file:///path`, or a path | a directory, created if it is not there ([`StorageOptions::create_directory`]) | |
    /// | `memory:` | memory of this call's own, for tests | |
    /// | `s3://bucket/prefix` | S3, or what speaks its protocol | `s3` |
    /// | `gs://bucket/prefix` | Google Cloud Storage | `gs` |
    /// | `az://container/prefix` | Azure Blob Storage | `az` |
    /// | `hdfs://host:port/prefix` | HDFS | `hdfs` |
    ///
    /// # Errors
    /// `Invalid` for a URL that names none of these; `Unsupported` without the feature; those of the back end.
    pub fn open(url: &str, options: StorageOptions) -> Result<Self> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "file" => match url.strip_prefix("file://").filter(|path| path.starts_with('/')) {
                Some(path) => Self::of_directory(path, options),
                None => Err(invalid(url, "a URL of a directory is file:///path")),
            },
            "" => Self::of_directory(url, options),
            _ if scheme.contains('/') => Self::of_directory(url, options),
            "memory" => Ok(Self::of_objects(Arc::new(MemoryObjects::new()), options)),
            #[cfg(feature = "remote")]
            "s3" | "gs" | "az" | "hdfs" => {
                let objects = crate::objects::remote::open(scheme, url, &options)?;
                Ok(Self::of_objects(Arc::new(objects), options))
            }
            #[cfg(not(feature = "remote"))]
            "s3" | "gs" | "az" | "hdfs" => Err(Error::not_built(url, scheme)),
            _ => Err(invalid(
                url,
                "storage is named by a path, file:///path, memory:, s3://bucket/prefix, gs://bucket/prefix, \
                 az://container/prefix or hdfs://host:port",
            )),
        }
    }

    fn of_directory(path: &str, options: StorageOptions) -> Result<Self> {
        if path.is_empty() {
            return Err(invalid(path, "name a directory"));
        }
        let nonce = Random::secret().map_err(|cause| Error::io("open", path, &cause))? as u64;
        let disk = if options.create_directory { OsDisk::open(path)? } else { OsDisk::open_existing(path)? };
        Ok(Self::of_disk(Arc::new(disk), nonce, options))
    }

    /// Storage on a disk: objects and logs are files. `nonce` as for [`DirectoryObjects::new`].
    #[must_use]
    pub fn of_disk(disk: Arc<dyn Disk>, nonce: u64, options: StorageOptions) -> Self {
        Self::over_link(Link::new(), disk, nonce, options)
    }

    fn over_link(link: Link, disk: Arc<dyn Disk>, nonce: u64, options: StorageOptions) -> Self {
        let (counters, link) = (Arc::<Counters>::default(), Arc::new(link));
        let disk = CountedDisk { disk, counters: Arc::clone(&counters), link: Arc::clone(&link) };
        let objects = DirectoryObjects::new(Arc::new(disk), nonce);
        let disk = Some(Arc::clone(objects.disk()));
        Self::counted(Arc::new(objects), disk, (counters, link), options)
    }

    /// Storage that has only objects: logs are also objects.
    #[must_use]
    pub fn of_objects(objects: Arc<dyn ObjectStorage>, options: StorageOptions) -> Self {
        Self::counted(objects, None, (Arc::default(), Arc::new(Link::new())), options)
    }

    fn counted(
        objects: Arc<dyn ObjectStorage>,
        disk: Option<Arc<dyn Disk>>,
        (counters, link): (Arc<Counters>, Arc<Link>),
        options: StorageOptions,
    ) -> Self {
        let ranked = |rank| {
            let link = disk.is_none().then(|| Arc::clone(&link));
            Arc::new(CountedObjects { objects: Arc::clone(&objects), counters: Arc::clone(&counters), link, rank })
        };
        let (objects, logs) = (ranked(Rank::Bulk), ranked(Rank::First));
        Self { objects, logs, disk, counters, link, options }
    }

    /// This storage for reading. Writes are kept in memory beside it, and end with the result. Lists show only those writes.
    #[must_use]
    pub fn layered(&self) -> Self {
        Self::of_objects(Arc::new(LayeredObjects::over(Arc::clone(&self.objects))), self.options.clone())
    }

    /// From now on, this and all its clones together move at most this many bytes a second to the storage, and the same from
    /// it. Transfers to logs go first, and the rest take turns. `None`, the default, is no limit.
    pub fn limit(&self, bytes_per_second: Option<NonZeroU64>) {
        self.link.limit(bytes_per_second);
    }

    /// Counts of what was done through this and all its clones.
    #[must_use]
    pub fn counts(&self) -> StorageCounts {
        self.counters.counts()
    }

    /// Its objects.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn ObjectStorage> {
        &self.objects
    }

    /// The directory of this machine that holds the storage; `None` for other storage.
    #[must_use]
    pub fn directory(&self) -> Option<PathBuf> {
        self.disk.as_ref().map(|disk| PathBuf::from(disk.describe())).filter(|path| path.is_dir())
    }

    /// Whether logs are files: what was appended survives the end of the process before it is synced. In objects it does not
    /// exist before it is put.
    #[must_use]
    pub const fn has_log_files(&self) -> bool {
        self.disk.is_some()
    }

    /// Begins a log under `name`, which no log may ever have had: so the name should contain the owner's epoch. `log` is a
    /// random number.
    ///
    /// # Errors
    /// `AlreadyExists`, or `Fenced` once the log is used, where there is or was one; those of the storage.
    pub fn create_log(&self, name: &ObjectName, log: u64) -> Result<Arc<dyn Log>> {
        Ok(match &self.disk {
            Some(disk) => Arc::new(FileLog::create(Arc::clone(disk), name, log, self.options.file_log)?),
            None => Arc::new(ObjectLog::create(Arc::clone(&self.logs), name, log, self.options.object_log)?),
        })
    }

    /// Opens the log under `name` for reading. A log that seems never to have begun has no segments
    /// ([`LogReader::bad_begin`]).
    ///
    /// # Errors
    /// `Corrupt`, naming the place where something that was durable is damaged; those of the storage.
    pub fn open_log(&self, name: &ObjectName, recovery: Recovery) -> Result<LogReader> {
        open_log(&self.objects, self.disk.as_ref(), name, recovery)
    }

    /// Checks that this build knows the version of the log under `name`, if the log exists. Changes nothing, and finds no
    /// damage.
    ///
    /// # Errors
    /// `Unsupported`; those of the storage.
    pub fn check_log(&self, name: &ObjectName) -> Result<()> {
        check_log(&self.objects, self.disk.as_ref(), name)
    }

    /// Reads what is left of the log under `name`, segment by segment, whatever has happened to it; nothing for a log that
    /// does not exist. Changes nothing.
    ///
    /// # Errors
    /// Those of the storage, except `Corrupt`.
    pub fn rescue_log(&self, name: &ObjectName) -> Result<Vec<Rescued>> {
        rescue_log(&self.objects, self.disk.as_ref(), name)
    }

    /// Deletes a log that was recovered and is no longer needed, except its seal.
    ///
    /// # Errors
    /// Those of the storage. Call again.
    pub fn delete_log(&self, name: &ObjectName) -> Result<()> {
        delete_log(&self.objects, self.disk.as_ref(), name)
    }
}

fn invalid(url: &str, detail: &str) -> Error {
    Error::new(ErrorKind::Invalid, "open", url, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskFault, SimDisk};
    use crate::link::Direction;
    use crate::objects::PutMode;
    use bytes::Bytes;
    use forebay_env::{Clock, ManualClock};

    /// The second time, the folder exists and its sync succeeds.
    #[test]
    fn no_log_begins_in_a_folder_whose_sync_failed() {
        let disk = SimDisk::new();
        let logs = ObjectName::new("db/log").unwrap();
        let create = |storage: &Storage, serial| storage.create_log(&logs.numbered(serial).unwrap(), 7).map(drop);
        let kind = |storage: &Storage, serial| create(storage, serial).map_err(|error| error.kind());
        let storage = Storage::of_disk(Arc::new(disk.clone()), 1, StorageOptions::default());
        // Three folders are made, and after each its parent is synced.
        disk.fail_at(disk.steps() + 5, DiskFault::Refused(ErrorKind::Io));
        let cause = create(&storage, 1).unwrap_err().cause();
        let later = create(&storage, 1).unwrap_err().to_string();
        assert!(cause.starts_with("i/o") && later.contains(&format!("({cause})")), "{later}");
        assert_eq!(kind(&storage, 2), Err(ErrorKind::Closed));
        let again = Storage::of_disk(Arc::new(disk), 2, StorageOptions::default());
        assert_eq!(kind(&again, 2), Ok(()));
    }

    /// Each byte goes over the link once, including those of objects that are files.
    #[test]
    fn a_limited_storage_takes_its_time() {
        let clock = Arc::new(ManualClock::new());
        let link = Link::of_clock(Arc::clone(&clock) as _);
        let storage = Storage::over_link(link, Arc::new(SimDisk::new()), 1, StorageOptions::default());
        let seconds = || clock.now() / 1_000_000_000;
        let object = ObjectName::new("object").unwrap();
        let put = || storage.objects().put(&object, Bytes::from(vec![7; 1000]), PutMode::Replace).unwrap();
        put();
        assert_eq!(seconds(), 0);
        storage.clone().limit(NonZeroU64::new(500));
        put();
        assert_eq!(seconds(), 2);
        assert_eq!(storage.objects().get(&object).unwrap().len(), 1000);
        assert_eq!(seconds(), 4);
        storage.limit(NonZeroU64::new(1 << 20));
        storage.link.be_busy(Direction::ToStorage, u64::MAX);
        let log = storage.create_log(&ObjectName::new("logs/1").unwrap(), 7).unwrap();
        let before = clock.now();
        let position = log.append(1, 1, &[7; 1 << 20]).unwrap();
        log.sync(position).unwrap();
        assert_eq!((clock.now() - before) / 1_000_000_000, 1, "a log goes first");
        storage.limit(None);
        let now = clock.now();
        put();
        assert_eq!(clock.now(), now);
    }

    #[test]
    fn urls_that_name_nothing_are_refused() {
        let kind = |url| Storage::open(url, StorageOptions::default()).map(|_| ()).unwrap_err().kind();
        for url in ["", "file://host/path", "file:path", "ftp://host", "S3://bucket"] {
            assert_eq!(kind(url), ErrorKind::Invalid, "{url}");
        }
        Storage::open("memory:", StorageOptions::default()).unwrap();
    }
}
