//! Checkpoints in storage: what a database is at one moment, by reference (`docs/decisions/0053`).
//!
//! ```text
//!   NAME/checkpoint/CHECKPOINT       a snapshot of the commits: identity and versions, without logs and memory
//!   NAME/clone/CHECKPOINT/CLONE      a database that began with it, and may read what it names
//!   NAME/dropping/CHECKPOINT         somebody is dropping this backup: no clone begins with it; has its bytes
//!   NAME/backup                      which database the checkpoints here are of, where it does not live (a root, epoch 0)
//! ```
//!
//! A checkpoint is an object of the bytes that a commit has, and the objects that it names stay until it is dropped: the
//! owner knows them ([`Kept`]), and so does each later one, which reads them before it sweeps. It counts once
//! its maker has committed after it was put: an earlier owner, which a later one may not have heard of, cannot.
//!
//! Whoever **drops** a checkpoint says so, then looks for clones, and deletes it last. Whoever clones it begins the clone, then
//! looks whether somebody is dropping it. So one of the two gives way, and a checkpoint that is not dropped was never
//! away. Who fails before anything is deleted takes back what it said.
//!
//! The owner of a database says it in two commits ([`DropStage`]): that it is asked for, and, when no clone needs it, that it
//! is decided. An owner that was deposed can make neither, however late its request arrives. What was decided is carried
//! out by the next owner, too, as the one before may still delete; what was only asked for is forgotten.
//!
//! Where backups lie nobody commits: there an object says it. Whoever copies or drops the next backup takes it back, or, where
//! the checkpoint is away, deletes the rest.
//!
//! A **clone** is a database whose first commit has the versions of a checkpoint. It names objects of the database that
//! they are of, deletes none of those, and writes its own under its own name. A **backup** is a checkpoint with all the
//! objects that it names, under the same names in another storage, the checkpoint last.

use crate::durable::database::{Committed, Place};
use crate::durable::register::{Claimed, Register};
use crate::remote::kept::Kept;
use crate::terms::{Error, Result};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_storage::{BlockCache, BlockCacheOptions, BlockObject, ObjectName, ObjectWriter, PutMode, Storage};
use forebay_table::{DatabaseCommit, DatabaseIdentity, DropStage, Placement, StorageRoot, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a backup copies at once.
const PIECE_BYTES: u64 = 4 << 20;

/// What a backup has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Objects that the checkpoint names.
    pub objects: u64,
    /// Those of them that were copied; the others were there.
    pub objects_copied: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
}

/// Makes a checkpoint of what is committed.
///
/// # Errors
/// `AlreadyExists`; `Fenced`; those of the storage. Unless it was fenced, it may have been made.
pub(crate) fn create(place: &Place, register: &Register, kept: &Kept, name: &str) -> Result<()> {
    let object = place.checkpoint(name)?;
    if kept.checkpoints().iter().any(|other| other == name) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a checkpoint {name:?} already")));
    }
    // Its objects are kept before a later commit can make garbage of them.
    let bytes = register.read(|committed| {
        let checkpoint = without_memory(committed)?;
        kept.add(name, Some(checkpoint.objects()));
        Ok(checkpoint.to_snapshot().encode()?)
    })?;
    let objects = place.storage.objects();
    let put = objects.put_once(&object, bytes.into()).map_err(Error::from);
    put.and_then(|()| register.confirm()).inspect_err(|error| {
        // One that was there stays: it is that of whoever took over. What waits meanwhile is left to the next owner.
        let is_anothers = error.kind() == ErrorKind::AlreadyExists;
        if is_anothers || register.confirm().is_ok() && objects.delete(&object).is_ok() {
            drop(kept.remove(name));
        }
    })
}

/// Drops a checkpoint that is `kept`. Returns the objects that nothing needs any more.
///
/// # Errors
/// `NotFound`; `Busy` while a clone needs it; `Fenced`; those of the storage: call again.
pub(crate) fn drop_one(place: &Place, register: &Register, kept: &Kept, name: &str) -> Result<Vec<String>> {
    if !kept.checkpoints().iter().any(|other| other == name) {
        return Err(no_checkpoint(name));
    }
    // One that was decided may be half deleted.
    if register.read(|committed| Ok(committed.drops.get(name).copied()))? != Some(DropStage::Decided) {
        decide_drop(place, register, name).inspect_err(|_| {
            if let Err(error) = register.record_drop(name, None) {
                tracing::warn!(%error, checkpoint = name, "no clone can begin with a checkpoint until it is dropped");
            }
        })?;
    }
    delete_decided(place, name)?;
    register.record_drop(name, None)?;
    Ok(kept.remove(name))
}

fn decide_drop(place: &Place, register: &Register, name: &str) -> Result<()> {
    register.record_drop(name, Some(DropStage::Asked))?;
    check_no_clone(place, name)?;
    register.record_drop(name, Some(DropStage::Decided))
}

/// Deletes a checkpoint whose drop is decided: no clone needs it, and none can begin with it.
fn delete_decided(place: &Place, name: &str) -> Result<()> {
    place.storage.objects().delete(&place.checkpoint(name)?)?;
    delete_notes(place, name)
}

/// Keeps what the checkpoints of a database name, and ends the drops of its owner before: none is left that `committed`
/// need say. The caller must have claimed the database. While a checkpoint is damaged, all objects are kept.
///
/// # Errors
/// Those of the storage.
pub(crate) fn keep_all(place: &Place, committed: &mut Committed, kept: &Kept) -> Result<()> {
    for (name, stage) in std::mem::take(&mut committed.drops) {
        if stage == DropStage::Decided {
            delete_decided(place, &name)?;
        }
    }
    // Builds before said with such objects that they drop a checkpoint.
    for dropping in place.storage.objects().list(Some(&place.all_dropping()?))? {
        place.storage.objects().delete(&dropping.name)?;
    }
    for name in list(place)? {
        let found = decode(place, &name, &read_object(place, &name)?);
        let found = found.inspect_err(|error| {
            tracing::warn!(%error, "no object is deleted until this checkpoint is dropped");
        });
        kept.add(&name, found.ok().map(|found| found.objects()));
    }
    Ok(())
}

/// Names of the checkpoints that lie at a place, in order.
///
/// # Errors
/// Those of the storage.
pub(crate) fn list(place: &Place) -> Result<Vec<String>> {
    let prefix = place.all_checkpoints()?;
    let listed = place.storage.objects().list(Some(&prefix))?;
    Ok(listed.iter().filter_map(|object| object.name.after(&prefix)).map(str::to_owned).collect())
}

/// Whether checkpoints lie at a place, or an object that belongs to some.
///
/// # Errors
/// Those of the storage.
pub(crate) fn are_at(place: &Place) -> Result<bool> {
    Ok(!list(place)?.is_empty() || backed_up(place)?.is_some())
}

/// Creates a database of the name `clone` that begins as a checkpoint was.
///
/// # Errors
/// `NotFound`; `AlreadyExists`; `Corrupt`; those of the storage.
pub(crate) fn clone(place: &Place, checkpoint: &str, clone: &str) -> Result<()> {
    let target = Place::new(&place.storage, clone)?;
    let bytes = read_object(place, checkpoint)?;
    let found = decode(place, checkpoint, &bytes)?;
    check_free(&target)?;
    let note = place.clone_of(checkpoint, clone)?;
    place.storage.objects().put(&note, Bytes::new(), PutMode::Replace)?;
    let claimed = begin(&target, found)?;
    if let Err(error) = check_stays(place, checkpoint, &bytes, &note) {
        claimed.drop_database()?;
        return Err(error);
    }
    Ok(())
}

/// Checks that nobody drops a checkpoint of these bytes, or has, so that whoever drops it from now on finds the `note`.
fn check_stays(place: &Place, checkpoint: &str, bytes: &Bytes, note: &ObjectName) -> Result<()> {
    // In this order: what says that it is being dropped goes last.
    let is_dropped = match Committed::of(&place.history()?)? {
        Some(committed) => committed.drops.contains_key(checkpoint),
        None => place.is_there(&place.dropping(checkpoint)?)?,
    };
    if is_dropped {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("the checkpoint {checkpoint:?} is being dropped: if nobody does that any more, drop it again"),
        ));
    }
    if !place.is_there(note)? {
        return Err(replaced(checkpoint));
    }
    check_same(place, checkpoint, bytes)
}

/// Checks that a checkpoint is still the one of these bytes.
fn check_same(place: &Place, checkpoint: &str, bytes: &Bytes) -> Result<()> {
    if read_object(place, checkpoint)? == *bytes { Ok(()) } else { Err(replaced(checkpoint)) }
}

fn replaced(checkpoint: &str) -> Error {
    let message = format!("the checkpoint {checkpoint:?} was dropped, and another one has its name: try again");
    Error::new(ErrorKind::Busy, message)
}

/// Creates the database at a place from a checkpoint of another one.
///
/// # Errors
/// `AlreadyExists`; `Busy` when others create it; those of the storage.
pub(crate) fn begin(target: &Place, checkpoint: Committed) -> Result<Claimed> {
    check_free(target)?;
    let database = Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
    let identity = DatabaseIdentity { database, config: checkpoint.identity.config };
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

/// Checks that neither a database nor backups of one lie at a place.
fn check_free(target: &Place) -> Result<()> {
    if Committed::of(&target.history()?)?.is_some() || are_at(target)? {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "there is a database, or backups of one, of that name already",
        ));
    }
    Ok(())
}

/// Copies a checkpoint, and what it names and is not there, to the same place in another storage. All that is copied is
/// verified.
///
/// # Errors
/// `NotFound`; `Busy` when another checkpoint got its name meanwhile; `Corrupt`, naming the object that is damaged or missing;
/// `Invalid` when a database lives at that place, or it has backups of another one; those of the storages: call again, and it
/// goes on.
pub(crate) fn back_up(place: &Place, checkpoint: &str, to: &Storage) -> Result<BackupSummary> {
    let target = place.in_storage(to);
    let (from, to) = (place.storage.objects(), to.objects());
    let bytes = read_object(place, checkpoint)?;
    let committed = decode(place, checkpoint, &bytes)?;
    let number = committed.identity.database;
    if Committed::of(&target.history()?)?.is_some() {
        return Err(Error::invalid("a database of this name lives in that storage: choose another one"));
    }
    match backed_up(&target)? {
        Some(other) if other != number => {
            return Err(Error::invalid(
                "that storage has backups of another database of this name: choose another one",
            ));
        }
        Some(_) => {}
        None => {
            let root = StorageRoot { database: number, epoch: 0 };
            to.put(&target.backup()?, root.encode()?.into(), PutMode::IfAbsent)?;
        }
    }
    end_drops(&target)?;
    target.sweep();
    let mut summary = BackupSummary::default();
    // To open objects; what is copied does not go through it.
    let cache = BlockCache::new(BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() })?;
    for (name, length) in committed.segments().collect::<BTreeMap<_, _>>() {
        let object = ObjectName::new(name)?;
        let stored_bytes = from.size(&object).map_err(|error| missing(place, checkpoint, &bytes, error))?;
        summary.objects += 1;
        // Of other databases' objects, as a clone names them, it is unknown which database of that name they are of.
        if place.owns(&object) && to.size(&object).is_ok_and(|there| there == stored_bytes) {
            continue;
        }
        let opened = from.open(&object).and_then(|reader| cache.open(reader, name, stored_bytes, object.identity()));
        let opened = opened.map_err(|error| missing(place, checkpoint, &bytes, error))?;
        let found = opened.directory().length();
        if found != length {
            return Err(Error::corrupt(format!("the object {name} is of {found} bytes, the segment of {length}")));
        }
        copy(&opened, to.writer(&object)?).map_err(|error| missing(place, checkpoint, &bytes, error))?;
        summary.objects_copied += 1;
        summary.bytes_copied += stored_bytes;
    }
    check_same(place, checkpoint, &bytes)?;
    to.put(&target.checkpoint(checkpoint)?, bytes, PutMode::Replace)?;
    Ok(summary)
}

/// Drops a backup, and the objects that no other backup of the database names.
///
/// # Errors
/// `NotFound`; `Busy` while a clone needs it, or when the database lives here; those of the storage: call again, and it
/// goes on.
pub(crate) fn drop_backup(place: &Place, name: &str) -> Result<()> {
    if Committed::of(&place.history()?)?.is_some() {
        return Err(Error::new(ErrorKind::Busy, "the database lives in this storage: open it to drop its checkpoints"));
    }
    if end_drops(place)?.iter().any(|ended| ended == name) {
        return Ok(());
    }
    let bytes = read_object(place, name)?;
    let others = list(place)?.into_iter().filter(|other| other != name);
    let needed = named_by(place, others)?;
    begin_drop(place, name, bytes.clone())?;
    place.storage.objects().delete(&place.checkpoint(name)?)?;
    end_drop(place, name, &bytes, needed.as_ref())
}

/// Says that a backup is being dropped, by an object of its bytes, and looks whether it may be. Where it fails, nobody drops it
/// any more, unless somebody had begun before, who may have deleted it.
fn begin_drop(place: &Place, name: &str, bytes: Bytes) -> Result<()> {
    let (objects, dropping) = (place.storage.objects(), place.dropping(name)?);
    let said = objects.put(&dropping, bytes, PutMode::IfAbsent);
    let was_said = said.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
    let said = if was_said { Ok(()) } else { said.map_err(Error::from) };
    said.and_then(|()| check_no_clone(place, name)).inspect_err(|_| {
        if !was_said && let Err(error) = objects.delete(&dropping) {
            tracing::warn!(%error, checkpoint = name, "no clone can begin with a backup until it is dropped");
        }
    })
}

/// Ends what others began who dropped backups: where the checkpoint is there, nothing else was deleted, and it stays.
/// Returns the names of those that are dropped now.
///
/// # Errors
/// Those of the storage.
fn end_drops(place: &Place) -> Result<Vec<String>> {
    let (objects, prefix) = (place.storage.objects(), place.all_dropping()?);
    let marks = objects.list(Some(&prefix))?;
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let mut ended = Vec::new();
    let there = list(place)?;
    let needed = named_by(place, there.iter().cloned())?;
    for mark in marks {
        let Some(name) = mark.name.after(&prefix) else { continue };
        if there.iter().any(|other| other == name) {
            objects.delete(&mark.name)?;
            continue;
        }
        end_drop(place, name, &objects.get(&mark.name)?, needed.as_ref())?;
        ended.push(name.to_owned());
    }
    Ok(ended)
}

/// Deletes what is left of a backup whose checkpoint, of these bytes, is deleted, but for objects that are `needed`. Where it
/// was damaged, and may have named any object, none is left that is not needed. Where it is not known what is needed
/// (`None`), all objects stay.
fn end_drop(place: &Place, name: &str, bytes: &[u8], needed: Option<&BTreeSet<String>>) -> Result<()> {
    let objects = place.storage.objects();
    let named = match decode(place, name, bytes) {
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
    delete_notes(place, name)?;
    Ok(objects.delete(&place.dropping(name)?)?)
}

/// Deletes what tells of clones of a checkpoint.
fn delete_notes(place: &Place, name: &str) -> Result<()> {
    let objects = place.storage.objects();
    for note in objects.list(Some(&place.clones(name)?))? {
        objects.delete(&note.name)?;
    }
    Ok(())
}

/// The objects that checkpoints name; `None` when one of them is damaged, and may name any.
fn named_by(place: &Place, checkpoints: impl IntoIterator<Item = String>) -> Result<Option<BTreeSet<String>>> {
    let mut named = BTreeSet::new();
    for name in checkpoints {
        match decode(place, &name, &read_object(place, &name)?) {
            Ok(found) => named.append(&mut found.objects()),
            Err(error) => {
                tracing::warn!(%error, "no object of a backup is deleted until this checkpoint is dropped");
                return Ok(None);
            }
        }
    }
    Ok(Some(named))
}

/// Reads a checkpoint.
///
/// # Errors
/// `NotFound`; `Corrupt`; those of the storage.
pub(crate) fn read(place: &Place, name: &str) -> Result<Committed> {
    decode(place, name, &read_object(place, name)?)
}

fn decode(place: &Place, name: &str, bytes: &[u8]) -> Result<Committed> {
    let object = place.checkpoint(name)?;
    let decoded = DatabaseCommit::decode(bytes).map_err(Error::from).and_then(Committed::of_snapshot);
    let decoded = decoded.and_then(|found| found.ok_or_else(|| Error::corrupt("it names no database")));
    decoded.map_err(|error| error.during(&format!("reading {object}")))
}

/// What it means that an object cannot be found which a checkpoint of these bytes names.
fn missing(place: &Place, checkpoint: &str, bytes: &Bytes, error: forebay_storage::Error) -> Error {
    match error.kind() {
        // Unless the checkpoint was dropped meanwhile.
        ErrorKind::NotFound => check_same(place, checkpoint, bytes).err().unwrap_or_else(|| {
            Error::corrupt(format!("the checkpoint {checkpoint:?} names an object that is not there: {error}"))
        }),
        _ => error.into(),
    }
}

fn read_object(place: &Place, name: &str) -> Result<Bytes> {
    place.storage.objects().get(&place.checkpoint(name)?).map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_checkpoint(name),
        _ => error.into(),
    })
}

fn no_checkpoint(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no checkpoint {name:?}"))
}

/// The number of the database whose backups lie at a place; `None` where none do.
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

/// Checks that no clone needs a checkpoint.
fn check_no_clone(place: &Place, checkpoint: &str) -> Result<()> {
    let prefix = place.clones(checkpoint)?;
    for object in place.storage.objects().list(Some(&prefix))? {
        let Some(clone) = object.name.after(&prefix) else { continue };
        let target = Place::new(&place.storage, clone)?;
        let reads_from = |committed: &Committed| {
            committed.objects().iter().any(|name| ObjectName::new(name.as_str()).is_ok_and(|name| place.owns(&name)))
        };
        let mut needs = Committed::of(&target.history()?)?.is_some_and(|committed| reads_from(&committed));
        for checkpoint in list(&target)? {
            needs |= reads_from(&read(&target, &checkpoint)?);
        }
        if needs {
            let message =
                format!("the database {clone:?} reads what the checkpoint {checkpoint:?} names: drop it first");
            return Err(Error::new(ErrorKind::Busy, message));
        }
    }
    Ok(())
}

/// The same, with what lies in storage alone.
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
