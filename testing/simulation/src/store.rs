//! The storage of a simulated database: a disk that loses power, or an object store that loses requests and replies on
//! the way.
//!
//! Each process has its own handle. The handle ends with the process, goes wrong where the run says so, and may be the
//! place where the process is struck.

use crate::draw::Kept;
use forebay_base::ErrorKind;
use forebay_engine::{Storage, StorageOptions};
use forebay_env::Random;
use forebay_storage::{
    Disk, DiskFault, FileLogOptions, MemoryObjects, ObjectFault, ObjectLogOptions, ObjectName, ObjectStorage, SimDisk,
};
use std::sync::Arc;

/// Maximum number of operations before a planned fault shows.
const SOON: u64 = 60;

/// A handle on a storage.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    Disk(SimDisk),
    Objects(MemoryObjects),
}

impl Store {
    /// Returns an empty storage of this kind, for a database or for a register; `None` for a database that needs none.
    pub(crate) fn new(kept: Kept) -> Option<Self> {
        match kept {
            Kept::OnDisk => Some(Self::Disk(SimDisk::new())),
            Kept::InObjects | Kept::InCopies { is_registered: true } => Some(Self::Objects(MemoryObjects::new())),
            Kept::InMemory | Kept::InCopies { is_registered: false } => None,
        }
    }

    /// Returns the handle of another process.
    pub(crate) fn handle(&self) -> Self {
        match self {
            Self::Disk(disk) => Self::Disk(disk.handle()),
            Self::Objects(objects) => Self::Objects(objects.handle()),
        }
    }

    /// Returns the storage that a database is opened with. `nonce` tells processes apart.
    pub(crate) fn storage(&self, nonce: u64) -> Storage {
        let options = StorageOptions {
            // Small segments, so that some are trimmed now and then.
            file_log: FileLogOptions { segment_bytes: 16 << 10, reserve_bytes: 4 << 10 },
            object_log: ObjectLogOptions { buffer_bytes: 8 << 10 },
            ..StorageOptions::default()
        };
        match self {
            Self::Disk(disk) => Storage::of_disk(Arc::new(disk.clone()), nonce, options),
            Self::Objects(objects) => Storage::of_objects(Arc::new(objects.clone()), options),
        }
    }

    /// Makes one of the next operations go wrong.
    pub(crate) fn fail_soon(&self, random: &mut Random) {
        let after = random.below(SOON);
        let kind = [ErrorKind::Full, ErrorKind::Io][random.below(2) as usize];
        match self {
            Self::Disk(disk) => {
                let faults =
                    [DiskFault::Lost, DiskFault::Refused(kind), DiskFault::Half(kind), DiskFault::Reported(kind)];
                disk.fail_at(disk.steps() + after, faults[random.below(4) as usize]);
            }
            Self::Objects(objects) => {
                let late = ObjectFault::Late(1 + random.below(30));
                let refused = ObjectFault::Refused([ErrorKind::Unavailable, kind][random.below(2) as usize]);
                let faults = [ObjectFault::ReplyLost, late, refused];
                objects.fail_at(objects.steps() + after, faults[random.below(3) as usize]);
            }
        }
    }

    /// The names of all objects and files.
    pub(crate) fn names(&self) -> Vec<String> {
        let storage = self.handle().storage(0);
        let listed = storage.objects().list(None).unwrap_or_default();
        listed.into_iter().map(|object| object.name.as_str().to_owned()).collect()
    }

    /// Returns the contents of an object or a file.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        match self.handle() {
            Self::Disk(disk) => {
                let file = disk.open(name, false).ok()?;
                let mut bytes = vec![0; file.length().ok()? as usize];
                file.read_at(0, &mut bytes).ok()?;
                Some(bytes)
            }
            Self::Objects(objects) => Some(objects.get(&ObjectName::new(name).ok()?).ok()?.to_vec()),
        }
    }

    /// Replaces the bytes `from` at rest by `to`, if they are there. Returns whether they were.
    pub(crate) fn rot(&self, name: &str, offset: u64, from: &[u8], to: &[u8]) -> bool {
        let replaced = match self {
            Self::Disk(disk) => disk.rot(name, offset, from, to).ok(),
            Self::Objects(objects) => {
                ObjectName::new(name).ok().and_then(|name| objects.rot(&name, offset, from, to).ok())
            }
        };
        replaced.unwrap_or(false)
    }

    /// Makes one read of this handle, after `reads` others, return a flipped bit.
    pub(crate) fn rot_read(&self, reads: u64, bit: u64) {
        match self {
            Self::Disk(disk) => disk.rot_read(reads, bit),
            Self::Objects(objects) => objects.rot_read(reads, bit),
        }
    }

    /// Returns what this handle has read with a flipped bit.
    pub(crate) fn rotten_reads(&self) -> Vec<String> {
        match self {
            Self::Disk(disk) => disk.rotten_reads(),
            Self::Objects(objects) => objects.rotten_reads(),
        }
    }

    /// Calls `interrupt` before one of the next operations, in place of any call that was planned earlier.
    pub(crate) fn interrupt_after(&self, operations: u64, interrupt: impl FnOnce() + Send + 'static) {
        match self {
            Self::Disk(disk) => disk.interrupt_at(disk.steps().saturating_add(operations), interrupt),
            Self::Objects(objects) => objects.interrupt_at(objects.steps().saturating_add(operations), interrupt),
        }
    }

    /// Forgets the planned call.
    pub(crate) fn forget_interrupt(&self) {
        self.interrupt_after(u64::MAX, || ());
    }

    /// Ends the process: none of its operations does anything any more.
    pub(crate) fn end(&self) {
        match self {
            Self::Disk(disk) => disk.end_at(0),
            Self::Objects(objects) => objects.end_at(0),
        }
    }

    /// Returns what is found when power fails now, as a storage of its own.
    pub(crate) fn image(&self, random: &mut Random) -> Self {
        let image = match self {
            Self::Disk(disk) => Self::Disk(disk.duplicate()),
            Self::Objects(objects) => Self::Objects(objects.duplicate()),
        };
        image.lose_power(random);
        image
    }

    /// Loses power. The processes that used it must have ended.
    pub(crate) fn lose_power(&self, random: &mut Random) {
        if let Self::Disk(disk) = self {
            disk.lose_power(random);
        }
    }
}
