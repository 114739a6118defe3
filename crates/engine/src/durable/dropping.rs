//! What is left in storage of a database that was dropped.
//!
//! A process that drops a database commits that there is none, and then deletes what it had. If the process ends in the
//! middle, it leaves a register that ends with that commit, a [`Tombstone`], and objects that nobody needs. All of them
//! bear an epoch of an owner, or the number of a commit, up to the tombstone's. A later database of the name has higher
//! ones. So deleting what is left never meets anything of that database, however late.
//!
//! The commit takes room, as does the claim before it. If there is none, as on a full disk, the process that drops the
//! database first says so by an object without bytes, which takes only a name. From then on no build opens the
//! database, and all of it can be deleted, except commits. Then there is room for the claim and the commit. If the
//! process ends in the middle, the database is dropped again.
//!
//! Only backups bear numbers of another register. A process that copies one says so before anything else. So what was
//! listed before a look that found nothing said does not belong to backups.

use crate::durable::checkpoints;
use crate::durable::database::{CheckpointId, Place, Tombstone};
use crate::terms::{Error, Result};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_storage::{History, ObjectName, PutMode};
use forebay_table::{LogName, StorageRoot};

/// See the module.
#[derive(Debug)]
pub(crate) struct Remains {
    logs: Vec<LogName>,
    objects: Vec<ObjectName>,
}

impl Remains {
    /// What is left at a place of the databases up to a tombstone, except seals of logs, which stay.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn of(place: &Place, tombstone: Tombstone) -> Result<Self> {
        let is_old = |log: &LogName| log.epoch <= tombstone.epoch;
        let logs = place.unneeded_logs(is_old)?;
        let mut objects = Vec::new();
        let segments = place.all_segments()?;
        for object in place.storage.objects().list(Some(&segments))? {
            let mut numbers = object.name.after(&segments).unwrap_or_default().split('/').map(str::parse::<u64>);
            if matches!(numbers.nth(1), Some(Ok(epoch)) if epoch <= tombstone.epoch) {
                objects.push(object.name);
            }
        }
        let clones = place.all_clones()?;
        for note in place.storage.objects().list(Some(&clones))? {
            let checkpoint = note.name.after(&clones).and_then(|of| CheckpointId::parse(of.split_once('/')?.0));
            if checkpoint.is_some_and(|checkpoint| checkpoint.commit().is_none_or(|commit| commit <= tombstone.commit))
            {
                objects.push(note.name);
            }
        }
        let bench = place.bench()?;
        match place.storage.objects().get(&bench) {
            Ok(bytes) if StorageRoot::decode(&bytes).is_ok_and(|noted| noted.epoch > tombstone.epoch) => {}
            Ok(_) => objects.push(bench),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let unfinished = place.unfinished()?;
        if place.is_there(&unfinished)? {
            objects.push(unfinished);
        }
        Ok(Self { logs, objects })
    }

    /// The same for a database that still exists, and that nobody can open from here on.
    ///
    /// # Errors
    /// `Busy` when checkpoints or backups exist, which may need it; those of the storage.
    pub(crate) fn of_undropped(place: &Place, last: Tombstone) -> Result<Self> {
        check_unneeded(place)?;
        place.sweep();
        let note = place.unfinished()?;
        match place.storage.objects().put(&note, Bytes::new(), PutMode::IfAbsent) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            noted => noted?,
        }
        let mut remains = Self::of(place, last)?;
        remains.objects.retain(|object| *object != note);
        Ok(remains)
    }

    fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.objects.is_empty()
    }

    /// Deletes what is left.
    ///
    /// # Errors
    /// `Busy` when checkpoints or backups exist, which may need it; those of the storage: list what is left, and
    /// call again.
    pub(crate) fn delete(self, place: &Place) -> Result<()> {
        check_unneeded(place)?;
        for log in self.logs {
            place.storage.delete_log(&place.log(log)?)?;
        }
        for object in self.objects {
            place.storage.objects().delete(&object)?;
        }
        Ok(())
    }
}

/// What is left at a place whose register tells of no living database; `None` when nothing is, when what is there
/// belongs to backups, or when nobody has said that the database was dropped.
///
/// # Errors
/// Those of the storage.
pub(crate) fn left(place: &Place, history: &History) -> Result<Option<Remains>> {
    let Some(tombstone) = Tombstone::of(history)? else { return Ok(None) };
    let remains = Remains::of(place, tombstone)?;
    Ok(if remains.is_empty() || checkpoints::backed_up(place)?.is_some() { None } else { Some(remains) })
}

/// Checks that neither checkpoints nor backups of a database need what is at a place.
///
/// # Errors
/// `Busy`; those of the storage.
pub(crate) fn check_unneeded(place: &Place) -> Result<()> {
    let name = place.root().as_str();
    if let Some(checkpoint) = checkpoints::list(place)?.first() {
        let message = format!("the database {name:?} has checkpoints, as {checkpoint:?}: drop them first");
        return Err(Error::new(ErrorKind::Busy, message));
    }
    if checkpoints::backed_up(place)?.is_some() {
        return Err(Error::new(ErrorKind::Busy, format!("backups of a database {name:?} are there")));
    }
    Ok(())
}
