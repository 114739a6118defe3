//! Checkpoints in storage: what a database is at one moment, by reference (`docs/decisions/0053`).
//!
//! ```text
//!   NAME/checkpoint/CHECKPOINT=N       a snapshot of the commits: identity and versions, without logs and memory
//!   NAME/clone/CHECKPOINT=N/CLONE      a database that began with it, and may read what it names
//!   NAME/dropping/CHECKPOINT=N         somebody is dropping this backup: no clone begins with it; has its bytes
//!   NAME/backup                        which database the checkpoints here are of, where it does not live (a root, epoch 0)
//!   NAME/reader/OTHER                  backups of OTHER, which began as a clone, name objects of this database
//! ```
//!
//! N is the number of the last commit before the checkpoint was made ([`CheckpointId`]). A checkpoint may get the name
//! of one that was dropped, and then has a higher number. So a deletion of the dropped one, however late, does not find
//! the new one. Earlier builds wrote no number; what they made is read and dropped as it is. If there are several of a
//! name, the one with the highest number counts. The others belong to owners that were deposed, or are backups that a
//! clone needs. Their objects stay until the name is dropped.
//!
//! A checkpoint is an object with the bytes that a commit has. The objects that it names stay until it is dropped: the
//! owner knows them ([`Kept`]), and so does each later owner, which reads them before it sweeps. A checkpoint counts
//! once its maker has committed after it was put. An earlier owner, which a later one may not have heard of, cannot
//! commit.
//!
//! A process that **drops** a checkpoint first says so, then looks for clones, and deletes the checkpoint last. A
//! process that clones it first begins the clone, then looks whether somebody is dropping the checkpoint. So one of the
//! two gives way, and a checkpoint that is not dropped was never away. A process that fails before anything is deleted
//! takes back what it said.
//!
//! The owner of a database says it in two commits ([`DropStage`]): that the drop is asked for, and, when no clone needs
//! the checkpoint, that it is decided. A deposed owner can make neither, however late its request arrives. The next
//! owner also carries out what was decided, because the earlier one may still delete. What was only asked for is
//! forgotten.
//!
//! A checkpoint that could not be made is dropped the same way. Its put may arrive after that, and after what it names is
//! gone. So the owner's commits continue to say that the drop is decided.
//!
//! Nobody commits where backups are: there an object says that a backup is being dropped. The next process that copies
//! or drops a backup takes this back, or, if the checkpoint is gone, deletes the rest.
//!
//! A **clone** is a database whose first commit has the versions of a checkpoint. It names objects of the checkpoint's
//! database, deletes none of those, and writes its own under its own name. A **backup** is a checkpoint with all the
//! objects that it names, under the same names in another storage, the checkpoint last. One of a clone also has objects
//! of the databases that the clone came from. They are copied if these databases may have backups there, and stay when
//! such backups are dropped.

use crate::durable::database::{CheckpointId, Committed, Place, Tombstone};
use crate::durable::register::{Claimed, Register};
use crate::remote::kept::Kept;
use crate::terms::{Error, Result};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{BlockCache, BlockCacheOptions, BlockObject, ObjectName, ObjectWriter, PutMode, Storage};
use forebay_table::{DatabaseCommit, DatabaseIdentity, DropStage, Placement, StorageRoot, StoreConfig, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a backup copies at once.
const PIECE_BYTES: u64 = 4 << 20;

/// What a backup has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Objects that the checkpoint names.
    pub objects: u64,
    /// Objects that were copied; the others existed already.
    pub objects_copied: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
}

/// Makes a checkpoint of what is committed.
///
/// # Errors
/// `AlreadyExists`; `Fenced`; those of the storage. Unless it was fenced, it may have been made.
pub(crate) fn create(place: &Place, register: &Register, kept: &Kept, name: &str) -> Result<()> {
    CheckpointId::check_name(name)?;
    if !kept_of(kept, name).is_empty() {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a checkpoint {name:?} already")));
    }
    let objects = place.storage.objects();
    // The checkpoint's objects are kept before a later commit can make garbage of them. The checkpoint exists before such
    // a commit can release what a clone has from another database, whose owner looks at the commits first, and then at
    // the checkpoints.
    let (id, put) = register.read(|committed, commit| {
        let id = CheckpointId::new(name, commit)?;
        let checkpoint = without_memory(committed)?;
        let (object, bytes) = (place.checkpoint(&id)?, checkpoint.to_snapshot().encode()?);
        kept.add(&id.to_string(), Some(checkpoint.objects()));
        let put = objects.put_once(&object, bytes.into());
        Ok((id, put))
    })?;
    put.map_err(Error::from).and_then(|()| register.confirm()).inspect_err(|_| {
        // The object may exist, or arrive later. The commits of this owner continue to say that it is dropped, so no
        // clone begins with it, and the next owner deletes it. What waits meanwhile is left to the next owner.
        if decide_drop(place, register, &id).and_then(|()| delete_decided(place, &id)).is_ok() {
            drop(kept.remove(&id.to_string()));
        }
    })
}

/// Names of the checkpoints that are kept, in order.
pub(crate) fn names(kept: &Kept) -> Vec<String> {
    names_of(kept.checkpoints().iter().filter_map(|id| CheckpointId::parse(id)))
}

/// The checkpoints of a name that are kept.
fn kept_of(kept: &Kept, name: &str) -> Vec<CheckpointId> {
    let ids = kept.checkpoints().into_iter().filter_map(|id| CheckpointId::parse(&id));
    ids.filter(|id| id.name() == name).collect()
}

fn names_of(ids: impl IntoIterator<Item = CheckpointId>) -> Vec<String> {
    let names: BTreeSet<_> = ids.into_iter().map(|id| id.name().to_owned()).collect();
    names.into_iter().collect()
}

/// Drops a checkpoint that is `kept`. Returns the objects that nothing needs any more.
///
/// # Errors
/// `NotFound`; `Busy` while a clone needs it; `Fenced`; those of the storage: call again.
pub(crate) fn drop_one(place: &Place, register: &Register, kept: &Kept, name: &str) -> Result<Vec<String>> {
    let ids = kept_of(kept, name);
    if ids.is_empty() {
        return Err(no_checkpoint(name));
    }
    let mut freed = Vec::new();
    for id in ids {
        // A checkpoint whose drop was decided may be half deleted.
        if register.read(|committed, _| Ok(committed.drops.get(&id.to_string()).copied()))? != Some(DropStage::Decided)
        {
            decide_drop(place, register, &id)?;
        }
        delete_decided(place, &id)?;
        register.record_drop(&id, None)?;
        freed.append(&mut kept.remove(&id.to_string()));
    }
    Ok(freed)
}

/// Says in the commits that a checkpoint is dropped, unless a clone needs it. If that fails, it takes back what it said.
fn decide_drop(place: &Place, register: &Register, id: &CheckpointId) -> Result<()> {
    let asked = register.record_drop(id, Some(DropStage::Asked)).and_then(|()| check_no_clone(place, id));
    asked.and_then(|()| register.record_drop(id, Some(DropStage::Decided))).inspect_err(|_| {
        if let Err(error) = register.record_drop(id, None) {
            let name = id.name();
            tracing::warn!(%error, checkpoint = name, "no clone can begin with a checkpoint until it is dropped");
        }
    })
}

/// Deletes a checkpoint whose drop is decided: no clone needs it, and none can begin with it.
fn delete_decided(place: &Place, id: &CheckpointId) -> Result<()> {
    delete_for_good(place, id)?;
    delete_notes(place, id)
}

/// Deletes the object of a checkpoint, so that it does not come back after a power failure: what it names goes next.
fn delete_for_good(place: &Place, id: &CheckpointId) -> Result<()> {
    place.storage.objects().delete(&place.checkpoint(id)?)?;
    // Once a list no longer shows the object, its deletion survives.
    ids(place).map(drop)
}

/// Keeps what the checkpoints of a database name, and finishes the drops of its earlier owner, so that `committed` need
/// not mention any. The caller must have claimed the database. While a checkpoint is damaged, all objects are kept.
///
/// # Errors
/// Those of the storage.
pub(crate) fn keep_all(place: &Place, committed: &mut Committed, kept: &Kept) -> Result<()> {
    for (id, stage) in std::mem::take(&mut committed.drops) {
        if stage == DropStage::Decided {
            let unknown = || Error::corrupt(format!("a commit drops a checkpoint of no such name: {id:?}"));
            delete_decided(place, &CheckpointId::parse(&id).ok_or_else(unknown)?)?;
        }
    }
    // Earlier builds said with such objects that they drop a checkpoint.
    for dropping in place.storage.objects().list(Some(&place.all_dropping()?))? {
        place.storage.objects().delete(&dropping.name)?;
    }
    for id in ids(place)? {
        let bytes = read_object(place, &id).map_err(|error| match error.kind() {
            // An earlier owner may be deleting it now. The next look sees it, or gets a list without it.
            ErrorKind::NotFound => Error::new(
                ErrorKind::Unavailable,
                format!("a list shows the checkpoint {:?}, and it is not found: open the database again", id.name()),
            ),
            _ => error,
        })?;
        let found = decode(place, &id, &bytes).inspect_err(|error| {
            tracing::warn!(%error, "no object is deleted until this checkpoint is dropped");
        });
        kept.add(&id.to_string(), found.ok().map(|found| found.objects()));
    }
    Ok(())
}

/// Names of the checkpoints at a place, in order.
///
/// # Errors
/// Those of the storage.
pub(crate) fn list(place: &Place) -> Result<Vec<String>> {
    Ok(names_of(ids(place)?))
}

/// The checkpoints at a place.
///
/// # Errors
/// Those of the storage.
pub(crate) fn ids(place: &Place) -> Result<Vec<CheckpointId>> {
    let prefix = place.all_checkpoints()?;
    let listed = place.storage.objects().list(Some(&prefix))?;
    Ok(listed.iter().filter_map(|object| CheckpointId::parse(object.name.after(&prefix)?)).collect())
}

/// The checkpoint of a name, and its bytes.
fn find(place: &Place, name: &str) -> Result<(CheckpointId, Bytes)> {
    let id = newest(place, name)?;
    match read_object(place, &id) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(gone(place, &id)),
        bytes => Ok((id, bytes?)),
    }
}

/// The checkpoint of a name: the newest, if others are left.
fn newest(place: &Place, name: &str) -> Result<CheckpointId> {
    CheckpointId::check_name(name)?;
    ids(place)?.into_iter().filter(|id| id.name() == name).max().ok_or_else(|| no_checkpoint(name))
}

/// Whether a place has checkpoints, or an object that belongs to some.
///
/// # Errors
/// Those of the storage.
pub(crate) fn are_at(place: &Place) -> Result<bool> {
    Ok(!list(place)?.is_empty() || backed_up(place)?.is_some())
}

/// Creates a database named `clone` that begins as a checkpoint was.
///
/// # Errors
/// `NotFound`; `AlreadyExists`; `Corrupt`; those of the storage.
pub(crate) fn clone(place: &Place, checkpoint: &str, clone: &str) -> Result<()> {
    let target = Place::new(&place.storage, clone)?;
    let (id, bytes) = find(place, checkpoint)?;
    let found = decode(place, &id, &bytes)?;
    check_free(&target)?;
    check_undropped(place, &id)?;
    let note = place.clone_of(&id, clone)?;
    place.storage.objects().put(&note, Bytes::new(), PutMode::Replace)?;
    let claimed = begin(&target, found)?;
    if let Err(error) = check_stays(place, &id, &note) {
        claimed.drop_database()?;
        return Err(error);
    }
    Ok(())
}

/// Checks that nobody drops a checkpoint, or has, so that anybody who drops it from now on finds the `note`.
fn check_stays(place: &Place, id: &CheckpointId, note: &ObjectName) -> Result<()> {
    // In this order: the object that says that it is being dropped goes last.
    check_undropped(place, id)?;
    if place.is_there(note)? { check_there(place, id) } else { Err(replaced(id)) }
}

/// Checks that nobody drops a checkpoint.
///
/// # Errors
/// `Busy`; `Unsupported` when a newer build wrote what the commits say; those of the storage.
fn check_undropped(place: &Place, id: &CheckpointId) -> Result<()> {
    let is_dropped = match Committed::of(&place.history()?)? {
        Some(committed) => committed.drops.contains_key(&id.to_string()),
        None => place.is_there(&place.dropping(id)?)?,
    };
    if is_dropped {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("the checkpoint {:?} is being dropped: if nobody does that any more, drop it again", id.name()),
        ));
    }
    Ok(())
}

/// Checks that a checkpoint still exists.
fn check_there(place: &Place, id: &CheckpointId) -> Result<()> {
    if place.is_there(&place.checkpoint(id)?)? { Ok(()) } else { Err(gone(place, id)) }
}

/// The error for a checkpoint that existed and no longer does.
fn gone(place: &Place, id: &CheckpointId) -> Error {
    newest(place, id.name()).map_or_else(|error| error, |_| replaced(id))
}

fn replaced(id: &CheckpointId) -> Error {
    let message = format!("the checkpoint {:?} was dropped, and another one has its name: try again", id.name());
    Error::new(ErrorKind::Busy, message)
}

/// Creates the database at a place from a checkpoint of another one.
///
/// # Errors
/// `AlreadyExists`; `Busy` when others create it; those of the storage.
pub(crate) fn begin(target: &Place, checkpoint: Committed) -> Result<Claimed> {
    check_free(target)?;
    let database = Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
    let config = StoreConfig { to_finish: false, ..checkpoint.identity.config };
    let identity = DatabaseIdentity { database, config };
    let version = |version: &Version| {
        let mut edit = version.to_edit();
        edit.epoch = None;
        if let Some(shard) = &mut edit.identity {
            shard.store = database;
        }
        Version::replay([edit]).map_err(forebay_table::Error::from)
    };
    let versions = checkpoint.versions.iter().map(version).collect::<Result<Vec<_>, _>>()?;
    Claimed::claim(target, None, &identity, &versions)
}

/// Checks that a place has neither a database nor backups of one.
fn check_free(target: &Place) -> Result<()> {
    if Committed::of(&target.history()?)?.is_some() || are_at(target)? {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "there is a database, or backups of one, of that name already",
        ));
    }
    Ok(())
}

/// Copies a checkpoint, with the objects it names that are not there yet, to the same place in another storage.
/// Verifies all that it copies.
///
/// # Errors
/// `NotFound`; `Busy` when another checkpoint got its name meanwhile; `Corrupt`, naming the object that is damaged or
/// missing; `Invalid` when a database lives at that place, or it has backups of another one, or so for a place of whose
/// objects a clone names some; those of the storages: call again, and it continues.
pub(crate) fn back_up(place: &Place, checkpoint: &str, to: &Storage) -> Result<BackupSummary> {
    let target = place.in_storage(to);
    let (from, to) = (place.storage.objects(), to.objects());
    let (id, bytes) = find(place, checkpoint)?;
    let committed = decode(place, &id, &bytes)?;
    let number = committed.identity.database;
    let history = target.history()?;
    if Committed::of(&history)?.is_some() {
        return Err(Error::invalid("a database of this name lives in that storage: choose another one"));
    }
    let origins = origins(place, &committed, &target.storage)?;
    match backed_up(&target)? {
        Some(other) if other != number => {
            return Err(Error::invalid(
                "that storage has backups of another database of this name: choose another one",
            ));
        }
        Some(_) => {}
        None => has_backups_of(&target, number)?,
    }
    for (origin, database) in origins {
        if let Some(database) = database
            && backed_up(&origin)?.is_none()
        {
            has_backups_of(&origin, database)?;
        }
        to.put(&origin.reader(place.root().as_str())?, Bytes::new(), PutMode::Replace)?;
    }
    end_drops(&target)?;
    target.sweep();
    let dropped = Tombstone::of(&history)?.map_or(0, |tombstone| tombstone.epoch);
    let mut summary = BackupSummary::default();
    // To open objects; what is copied does not go through it.
    let cache = BlockCache::new(BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() })?;
    for (name, length) in committed.segments().collect::<BTreeMap<_, _>>() {
        let object = ObjectName::new(name)?;
        let stored_bytes = from.size(&object).map_err(|error| missing(place, &id, error))?;
        summary.objects += 1;
        // For objects of other databases, which a clone names, it is unknown which database of that name they belong
        // to. What a database that was dropped there left has names up to its last epoch.
        let is_known = epoch_of(place, &object)?.is_some_and(|epoch| epoch > dropped);
        if is_known && to.size(&object).is_ok_and(|there| there == stored_bytes) {
            continue;
        }
        let opened = from.open(&object).and_then(|reader| cache.open(reader, name, stored_bytes, object.identity()));
        let opened = opened.map_err(|error| missing(place, &id, error))?;
        let found = opened.directory().length();
        if found != length {
            return Err(Error::corrupt(format!("the object {name} is of {found} bytes, the segment of {length}")));
        }
        copy(&opened, to.writer(&object)?).map_err(|error| missing(place, &id, error))?;
        summary.objects_copied += 1;
        summary.bytes_copied += stored_bytes;
    }
    check_there(place, &id)?;
    to.put(&target.checkpoint(&id)?, bytes, PutMode::Replace)?;
    // Earlier backups of this name. One that a clone needs stays.
    for older in ids(&target)?.into_iter().filter(|other| other.name() == checkpoint && *other < id) {
        match drop_backup_of(&target, &older) {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            dropped => dropped?,
        }
    }
    Ok(summary)
}

/// The epoch in the name of a segment's object; `None` if it is another database's.
fn epoch_of(place: &Place, object: &ObjectName) -> Result<Option<u64>> {
    let segments = place.all_segments()?;
    let epoch = object.after(&segments).and_then(|numbers| numbers.split('/').nth(1));
    Ok(epoch.and_then(|epoch| epoch.parse().ok()))
}

/// The databases of whose objects a checkpoint of a clone names some, where these are copied to, each with its number.
///
/// # Errors
/// `Invalid` when a database of such a name lives there, or another one has backups there; those of the storages.
fn origins(place: &Place, checkpoint: &Committed, to: &Storage) -> Result<Vec<(Place, Option<u128>)>> {
    let mut names = BTreeSet::new();
    for object in checkpoint.objects() {
        if !place.owns(&ObjectName::new(object.as_str())?)
            && let Some((name, _)) = object.rsplit_once("/segment/")
        {
            names.insert(name.to_owned());
        }
    }
    let origin = |name: String| -> Result<(Place, Option<u128>)> {
        let (from, target) = (Place::new(&place.storage, &name)?, Place::new(to, &name)?);
        let database = match Committed::of(&from.history()?)? {
            Some(committed) => Some(committed.identity.database),
            None => backed_up(&from)?,
        };
        let there = backed_up(&target)?;
        if Committed::of(&target.history()?)?.is_some() || there.is_some() && there != database {
            return Err(Error::invalid(format!(
                "the checkpoint names objects of the database {name:?}, and a database of this name lives in that \
                 storage, or another one has backups there: choose another storage"
            )));
        }
        Ok((target, database))
    };
    names.into_iter().map(origin).collect()
}

/// Notes that a place has backups of a database.
fn has_backups_of(place: &Place, database: u128) -> Result<()> {
    let root = StorageRoot { database, epoch: 0 };
    Ok(place.storage.objects().put_once(&place.backup()?, root.encode()?.into())?)
}

/// Drops a backup, and the objects that no other backup of the database, and none of its clones, names.
///
/// # Errors
/// `NotFound`; `Busy` while a clone needs it, or when the database lives here; `Unsupported` when a newer build made
/// it, or another one here; those of the storage: call again, and it continues.
pub(crate) fn drop_backup(place: &Place, name: &str) -> Result<()> {
    if Committed::of(&place.history()?)?.is_some() {
        return Err(Error::new(ErrorKind::Busy, "the database lives in this storage: open it to drop its checkpoints"));
    }
    let ended = end_drops(place)?;
    let named: Vec<_> = ids(place)?.into_iter().filter(|id| id.name() == name).collect();
    if named.is_empty() && ended.iter().all(|id| id.name() != name) {
        return Err(no_checkpoint(name));
    }
    named.iter().try_for_each(|id| drop_backup_of(place, id))
}

fn drop_backup_of(place: &Place, id: &CheckpointId) -> Result<()> {
    let bytes = read_object(place, id)?;
    // Even for a damaged one it is known what to delete: what no other one names.
    decode(place, id, &bytes).map(drop).or_else(unless_newer)?;
    let needed = needed(place, ids(place)?.into_iter().filter(|other| other != id))?;
    begin_drop(place, id, bytes.clone())?;
    delete_for_good(place, id)?;
    end_drop(place, id, &bytes, needed.as_ref())
}

/// Says, by an object with its bytes, that a backup is being dropped, and checks whether it may be. If this fails,
/// nobody drops it any more, unless somebody had begun before and may have deleted it.
fn begin_drop(place: &Place, id: &CheckpointId, bytes: Bytes) -> Result<()> {
    let (objects, dropping) = (place.storage.objects(), place.dropping(id)?);
    // The put cannot tell: one that is sent twice finds what it put itself.
    let was_said = place.is_there(&dropping)?;
    let said = objects.put(&dropping, bytes, PutMode::Replace).map_err(Error::from);
    said.and_then(|()| check_no_clone(place, id)).inspect_err(|_| {
        if !was_said && let Err(error) = objects.delete(&dropping) {
            tracing::warn!(%error, checkpoint = id.name(), "no clone can begin with a backup until it is dropped");
        }
    })
}

/// Finishes drops of backups that others began. If the checkpoint exists, nothing else was deleted, and it stays.
/// Returns those that are dropped now.
///
/// # Errors
/// Those of the storage.
fn end_drops(place: &Place) -> Result<Vec<CheckpointId>> {
    let (objects, prefix) = (place.storage.objects(), place.all_dropping()?);
    let marks = objects.list(Some(&prefix))?;
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let mut ended = Vec::new();
    let there = ids(place)?;
    let needed = needed(place, there.iter().cloned())?;
    for mark in marks {
        let Some(id) = mark.name.after(&prefix).and_then(CheckpointId::parse) else { continue };
        if there.contains(&id) {
            objects.delete(&mark.name)?;
            continue;
        }
        end_drop(place, &id, &objects.get(&mark.name)?, needed.as_ref())?;
        ended.push(id);
    }
    Ok(ended)
}

/// Deletes what is left of a backup whose checkpoint, with these bytes, is deleted, except objects that are `needed`.
/// If the checkpoint was damaged, it may have named any object, so all that are not needed are deleted. If it is
/// unknown what is needed (`None`), all objects stay.
fn end_drop(place: &Place, id: &CheckpointId, bytes: &[u8], needed: Option<&BTreeSet<String>>) -> Result<()> {
    let objects = place.storage.objects();
    let named = match decode(place, id, bytes) {
        Ok(dropped) => dropped.objects(),
        Err(_) => {
            let listed = objects.list(Some(&place.all_segments()?))?;
            listed.into_iter().map(|object| object.name.as_str().to_owned()).collect()
        }
    };
    for object in needed.into_iter().flat_map(|needed| named.difference(needed)) {
        let object = ObjectName::new(object.as_str())?;
        if place.owns(&object) {
            objects.delete(&object)?;
        }
    }
    delete_notes(place, id)?;
    Ok(objects.delete(&place.dropping(id)?)?)
}

/// The clones that began with a checkpoint, and the note that tells of each.
fn clones(place: &Place, id: &CheckpointId) -> Result<Vec<(String, ObjectName)>> {
    let prefix = place.clones(id)?;
    let listed = place.storage.objects().list(Some(&prefix))?;
    Ok(listed.into_iter().filter_map(|note| Some((note.name.after(&prefix)?.to_owned(), note.name))).collect())
}

/// Deletes the notes that tell of clones of a checkpoint.
fn delete_notes(place: &Place, id: &CheckpointId) -> Result<()> {
    for (_, note) in clones(place, id)? {
        place.storage.objects().delete(&note)?;
    }
    Ok(())
}

/// The objects that checkpoints name; `None` when one of them is damaged, and may name any object.
///
/// # Errors
/// `Unsupported` for one of a newer build; those of the storage.
fn named_by(place: &Place, ids: impl IntoIterator<Item = CheckpointId>) -> Result<Option<BTreeSet<String>>> {
    let mut named = BTreeSet::new();
    for id in ids {
        match decode(place, &id, &read_object(place, &id)?) {
            Ok(found) => named.append(&mut found.objects()),
            Err(error) => {
                tracing::warn!(%error, "no object of a backup is deleted until this checkpoint is dropped");
                return unless_newer(error).map(|()| None);
            }
        }
    }
    Ok(Some(named))
}

/// The objects that some backups of a database name, and all backups of its clones; `None` when one of them is damaged.
///
/// # Errors
/// `Unsupported` for one of a newer build; those of the storage.
fn needed(place: &Place, backups: impl IntoIterator<Item = CheckpointId>) -> Result<Option<BTreeSet<String>>> {
    let mut needed = named_by(place, backups)?;
    let prefix = place.all_readers()?;
    for note in place.storage.objects().list(Some(&prefix))? {
        let Some(name) = note.name.after(&prefix) else { continue };
        let reader = Place::new(&place.storage, name)?;
        let named = named_by(&reader, ids(&reader)?)?;
        needed = needed.zip(named).map(|(needed, named)| needed.into_iter().chain(named).collect());
    }
    Ok(needed)
}

/// Ignores what is damaged, but not what a newer build made.
fn unless_newer(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::Unsupported { Err(error) } else { Ok(()) }
}

/// Reads the checkpoint of a name.
///
/// # Errors
/// `NotFound`; `Busy` when another one got the name meanwhile; `Corrupt`; those of the storage.
pub(crate) fn read_named(place: &Place, name: &str) -> Result<Committed> {
    let (id, bytes) = find(place, name)?;
    decode(place, &id, &bytes)
}

/// Reads a checkpoint.
///
/// # Errors
/// `NotFound`; `Corrupt`; those of the storage.
pub(crate) fn read(place: &Place, id: &CheckpointId) -> Result<Committed> {
    decode(place, id, &read_object(place, id)?)
}

fn decode(place: &Place, id: &CheckpointId, bytes: &[u8]) -> Result<Committed> {
    let object = place.checkpoint(id)?;
    let decoded = DatabaseCommit::decode(bytes).map_err(Error::from).and_then(Committed::of_snapshot);
    let decoded = decoded.and_then(|found| found.ok_or_else(|| Error::corrupt("it names no database")));
    decoded.map_err(|error| error.during(&format!("reading {object}")))
}

/// The error for an object that a checkpoint names and that cannot be found.
fn missing(place: &Place, id: &CheckpointId, error: forebay_storage::Error) -> Error {
    match error.kind() {
        // Unless the checkpoint was dropped meanwhile.
        ErrorKind::NotFound => check_there(place, id).err().unwrap_or_else(|| {
            Error::corrupt(format!("the checkpoint {:?} names an object that is not there: {error}", id.name()))
        }),
        _ => error.into(),
    }
}

fn read_object(place: &Place, id: &CheckpointId) -> Result<Bytes> {
    place.storage.objects().get(&place.checkpoint(id)?).map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_checkpoint(id.name()),
        _ => error.into(),
    })
}

fn no_checkpoint(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no checkpoint {name:?}"))
}

/// The number of the database whose backups are at a place; `None` if there are none.
///
/// # Errors
/// `Corrupt`; those of the storage.
pub(crate) fn backed_up(place: &Place) -> Result<Option<u128>> {
    match place.storage.objects().get(&place.backup()?) {
        Ok(bytes) => {
            let root = StorageRoot::decode(&bytes).map_err(|error| Error::from(error).during("reading a backup"))?;
            Ok(Some(root.database))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Checks that no clone needs a checkpoint. A clone does as long as the clone, or a checkpoint of it, names anything
/// that the checkpoint names, of whatever database that is. Where the checkpoint is one of a clone, nothing else keeps
/// what that clone has from others.
fn check_no_clone(place: &Place, id: &CheckpointId) -> Result<()> {
    let clones = clones(place, id)?;
    if clones.is_empty() {
        return Ok(());
    }
    let named = match read(place, id) {
        Ok(checkpoint) => Some(checkpoint.objects()),
        // It may name anything that a clone has from others.
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::NotFound) => None,
        Err(error) => return Err(error),
    };
    for (clone, _) in clones {
        let target = Place::new(&place.storage, &clone)?;
        let is_named = |object: &String| match &named {
            Some(named) => named.contains(object),
            None => ObjectName::new(object.as_str()).is_ok_and(|object| !target.owns(&object)),
        };
        let reads_from = |committed: &Committed| committed.objects().iter().any(is_named);
        let mut needs = Committed::of(&target.history()?)?.is_some_and(|committed| reads_from(&committed));
        for checkpoint in ids(&target)? {
            needs |= reads_from(&read(&target, &checkpoint)?);
        }
        if needs {
            let name = id.name();
            let message = format!("the database {clone:?} reads what the checkpoint {name:?} names: drop it first");
            return Err(Error::new(ErrorKind::Busy, message));
        }
    }
    Ok(())
}

/// The same, with only what is in storage.
fn without_memory(committed: &Committed) -> Result<Committed> {
    let version = |version: &Version| {
        let mut edit = version.to_edit();
        for (_, info) in &mut edit.added_segments {
            info.placements.retain(|placement| matches!(placement, Placement::Storage { .. }));
        }
        edit.log_parts.clear();
        Version::replay([edit]).map_err(forebay_table::Error::from)
    };
    let versions = committed.versions.iter().map(version).collect::<Result<Vec<_>, _>>()?;
    Ok(Committed {
        identity: committed.identity.clone(),
        memory_store: String::new(),
        logs: Vec::new(),
        drops: BTreeMap::new(),
        versions,
    })
}

/// Copies an object as it is stored, and verifies it.
fn copy(from: &BlockObject, mut to: Box<dyn ObjectWriter>) -> forebay_storage::Result<()> {
    from.stored(PIECE_BYTES).try_for_each(|piece| to.write(piece?))?;
    to.finish()
}
