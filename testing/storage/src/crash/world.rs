//! The two simulated back ends behind one interface.

use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{
    DiskFault, FileLogOptions, MemoryObjects, ObjectFault, ObjectLogOptions, ObjectStorage, SimDisk, Storage,
    StorageOptions,
};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// A handle on a simulated back end.
pub trait World: Clone + Default + Debug + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Ways in which an operation can fail.
    const FAULTS: usize;
    /// Whether a failed operation may be done later.
    const IS_LATE: bool;

    /// Another handle, with nothing planned.
    #[must_use]
    fn handle(&self) -> Self;
    /// A copy of the contents.
    #[must_use]
    fn duplicate(&self) -> Self;
    /// Storage over this handle, with small segments.
    fn storage(&self) -> Storage;
    /// Operations so far.
    fn steps(&self) -> u64;
    /// Ends the handle before a step.
    fn end_at(&self, step: u64);
    /// Makes a step go wrong in one of [`World::FAULTS`] ways.
    fn fail_at(&self, step: u64, fault: usize);
    /// Calls something before a step.
    fn interrupt_at(&self, step: u64, interrupt: impl FnOnce() + Send + 'static);
    /// Loses power, where that means anything.
    fn lose_power(&self, random: &mut Random);
    /// Flips a bit of an object or file.
    fn flip(&self, object: &str, offset: u64, mask: u8);
    /// Objects or files whose names begin with `prefix`, and their sizes.
    fn list(&self, prefix: &str) -> Vec<(String, u64)>;
}

fn small() -> StorageOptions {
    StorageOptions {
        file_log: FileLogOptions { segment_bytes: 600, reserve_bytes: 256 },
        object_log: ObjectLogOptions { buffer_bytes: 500 },
        ..Default::default()
    }
}

/// A disk that loses power: objects and logs are files.
#[derive(Debug, Clone, Default)]
pub struct DiskWorld(pub SimDisk);

impl World for DiskWorld {
    const NAME: &'static str = "disk";
    const FAULTS: usize = 6;
    const IS_LATE: bool = false;

    fn handle(&self) -> Self {
        Self(self.0.handle())
    }

    fn duplicate(&self) -> Self {
        Self(self.0.duplicate())
    }

    fn storage(&self) -> Storage {
        // Handles differ by a counter, which serves as well as a random number.
        static NONCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let nonce = NONCE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Storage::of_disk(Arc::new(self.0.clone()), nonce, small())
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }

    fn end_at(&self, step: u64) {
        self.0.end_at(step);
    }

    fn fail_at(&self, step: u64, fault: usize) {
        use DiskFault::{Half, Lost, Refused, Reported};
        use ErrorKind::{Full, Io};
        let faults = [Refused(Io), Reported(Io), Half(Io), Lost, Refused(Full), Half(Full)];
        self.0.fail_at(step, faults[fault]);
    }

    fn interrupt_at(&self, step: u64, interrupt: impl FnOnce() + Send + 'static) {
        self.0.interrupt_at(step, interrupt);
    }

    fn lose_power(&self, random: &mut Random) {
        self.0.lose_power(random);
    }

    fn flip(&self, object: &str, offset: u64, mask: u8) {
        self.0.flip(object, offset, mask).expect("it was listed");
    }

    fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        use forebay_storage::Disk;
        let listed = self.0.handle().list(prefix).unwrap_or_default();
        let file = |entry: forebay_storage::DiskEntry| Some((format!("{prefix}/{}", entry.name), entry.length_bytes?));
        listed.into_iter().filter_map(file).collect()
    }
}

/// A service for objects: what it acknowledged exists, but requests and replies are lost or late.
#[derive(Debug, Clone)]
pub struct ObjectWorld(pub MemoryObjects);

impl Default for ObjectWorld {
    fn default() -> Self {
        Self(MemoryObjects::of_service())
    }
}

impl ObjectWorld {
    /// Makes the service answer, at these steps, that nothing exists.
    pub(super) fn find_nothing(&self, steps: Range<u64>) {
        steps.for_each(|step| self.0.fail_at(step, ObjectFault::Refused(ErrorKind::NotFound)));
    }
}

impl World for ObjectWorld {
    const NAME: &'static str = "objects";
    const FAULTS: usize = 6;
    const IS_LATE: bool = true;

    fn handle(&self) -> Self {
        Self(self.0.handle())
    }

    fn duplicate(&self) -> Self {
        Self(self.0.duplicate())
    }

    fn storage(&self) -> Storage {
        Storage::of_objects(Arc::new(self.0.clone()), small())
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }

    fn end_at(&self, step: u64) {
        self.0.end_at(step);
    }

    fn fail_at(&self, step: u64, fault: usize) {
        use ObjectFault::{Late, Refused, ReplyLost};
        let refused = [ErrorKind::Unavailable, ErrorKind::Full, ErrorKind::NotFound].map(Refused);
        let faults = [refused[0], refused[1], refused[2], ReplyLost, Late(1), Late(6)];
        self.0.fail_at(step, faults[fault]);
    }

    fn interrupt_at(&self, step: u64, interrupt: impl FnOnce() + Send + 'static) {
        self.0.interrupt_at(step, interrupt);
    }

    fn lose_power(&self, _random: &mut Random) {}

    fn flip(&self, object: &str, offset: u64, mask: u8) {
        let name = forebay_storage::ObjectName::new(object).expect("it was listed");
        self.0.flip(&name, offset as usize, mask).expect("it was listed");
    }

    fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        let listed = self.0.handle().list(None).unwrap_or_default();
        let is_below = |name: &str| name.starts_with(&format!("{prefix}/"));
        let objects = listed.into_iter().map(|object| (object.name.to_string(), object.size_bytes));
        objects.filter(|(name, _)| is_below(name)).collect()
    }
}
