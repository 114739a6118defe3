//! A disk that does not rely on a folder whose sync failed.
//!
//! Entries created there may be gone after a power failure, although later syncs succeed. So nothing more is created in such
//! a folder, and no sync of it succeeds, until the storage is opened again. A folder that could not be opened, as when the
//! process has no file descriptor left, was not synced at all, and can be synced later.

use super::{Disk, DiskEntry, DiskFile, OPEN};
use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct CarefulDisk {
    disk: Arc<dyn Disk>,
    /// Folders whose sync failed, each with the first failure.
    broken: Mutex<HashMap<String, String>>,
}

impl CarefulDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, broken: Mutex::default() }
    }

    fn refuse_broken(&self, folder: &str) -> Result<()> {
        let Some(cause) = lock(&self.broken).get(folder).cloned() else { return Ok(()) };
        let detail = format!(
            "a sync of this folder failed ({cause}), so what is in it may not survive: look for errors of the disk, then open \
             the storage again"
        );
        Err(Error::new(ErrorKind::Closed, "sync", folder, detail))
    }

    /// Refuses to create an entry in a broken folder.
    fn refuse_in_broken(&self, path: &str) -> Result<()> {
        self.refuse_broken(path.rsplit_once('/').map_or("", |(folder, _)| folder))
    }
}

impl Disk for CarefulDisk {
    fn describe(&self) -> String {
        self.disk.describe()
    }

    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>> {
        self.refuse_in_broken(path)?;
        self.disk.create(path)
    }

    fn open(&self, path: &str, writes: bool) -> Result<Arc<dyn DiskFile>> {
        self.disk.open(path, writes)
    }

    fn exists(&self, path: &str) -> Result<bool> {
        self.disk.exists(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.refuse_in_broken(to)?;
        self.disk.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.refuse_in_broken(to)?;
        self.disk.link(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.disk.remove(path)
    }

    fn make_folder(&self, path: &str) -> Result<()> {
        self.refuse_in_broken(path)?;
        self.disk.make_folder(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<DiskEntry>> {
        self.disk.list(folder)
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        self.refuse_broken(folder)?;
        self.disk.sync_folder(folder).inspect_err(|error| {
            if error.kind() != ErrorKind::NotFound && !error.is_of(OPEN) {
                lock(&self.broken).entry(folder.to_owned()).or_insert_with(|| error.cause());
            }
        })?;
        // Another sync of the folder may have failed meanwhile. Then this one says nothing about what that one covered.
        self.refuse_broken(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskFault, OsDisk, SimDisk};

    #[test]
    fn a_sync_beside_one_that_failed_does_not_count() {
        let sim = SimDisk::new();
        let disk = Arc::new(CarefulDisk::new(Arc::new(sim.clone())));
        disk.make_folder("folder").unwrap();
        let (step, other) = (sim.steps(), Arc::clone(&disk));
        sim.fail_at(step + 1, DiskFault::Refused(ErrorKind::Io));
        sim.interrupt_at(step, move || {
            assert_eq!(other.sync_folder("folder").unwrap_err().kind(), ErrorKind::Io);
        });
        assert_eq!(disk.sync_folder("folder").unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn a_folder_that_could_not_be_opened_can_be_synced_later() {
        let root = std::env::temp_dir().join(format!("forebay-careful-{}", std::process::id()));
        let disk = CarefulDisk::new(Arc::new(OsDisk::open(&root).unwrap()));
        disk.make_folder("folder").unwrap();
        let (folder, away) = (root.join("folder"), root.join("away"));
        std::fs::rename(&folder, &away).unwrap();
        // It leads to itself.
        std::os::unix::fs::symlink(&folder, &folder).unwrap();
        assert_eq!(disk.sync_folder("folder").unwrap_err().kind(), ErrorKind::Io);
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(&away, &folder).unwrap();
        disk.create("folder/file").unwrap();
        disk.sync_folder("folder").unwrap();
        std::fs::remove_dir_all(&root).unwrap();
    }
}
