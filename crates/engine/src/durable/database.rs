//! A database in storage: where its parts are, and what its commits say.
//!
//! ```text
//!   NAME/members/N                     the register of a database that is in memory alone, in several copies
//!   NAME/commit/N                      the commit register: who owns it, its shards' versions, its logs
//!   NAME/segment/SHARD/EPOCH/NUMBER    what the versions name
//!   NAME/log/EPOCH/SERIAL/…            what was written since, of all shards
//!   NAME/checkpoint/…, NAME/clone/…    moments that stay, and who began with them (see `checkpoints`)
//!   NAME/dropping/…                    those of backups that somebody is dropping
//!   NAME/reader/OTHER                  backups of a clone, of another name, that name objects of this database
//!   NAME/unfinished                    what is here is not whole: somebody drops it on a full disk. Earlier builds also said
//!                                      so of what they made; now the commits do
//!   NAME/bench                         a benchmark made this, and nobody else has opened it since (a root: its last epoch)
//! ```
//!
//! All numbers have twenty digits. What a commit says: `docs/formats/database-commit.md`.

use crate::remote::objects::object_of;
use crate::terms::{Error, Result};
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_storage::{CommitKind, History, LogReader, ObjectName, Recovery, SEAL_BYTES, Storage};
use forebay_table::{DatabaseCommit, DatabaseIdentity, DropStage, LogName, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What to say of a database that is unfinished.
pub(crate) const UNFINISHED: &str = "the database is not whole: whoever makes it, as forebay repair and restore do, or drops it on a \
                                     full disk, has not finished, and, if it ended, must begin again";

/// Where a database is in a storage.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) storage: Storage,
    root: ObjectName,
}

impl Place {
    /// The database of this name.
    ///
    /// # Errors
    /// `Invalid` for a name that no object can have.
    pub(crate) fn new(storage: &Storage, name: &str) -> Result<Self> {
        Ok(Self { storage: storage.clone(), root: ObjectName::new(name)? })
    }

    pub(crate) const fn root(&self) -> &ObjectName {
        &self.root
    }

    pub(crate) fn commits(&self) -> Result<ObjectName> {
        Ok(self.root.join("commit")?)
    }

    pub(crate) fn members(&self) -> Result<ObjectName> {
        Ok(self.root.join("members")?)
    }

    pub(crate) fn segments(&self, shard: u64) -> Result<ObjectName> {
        Ok(self.root.join("segment")?.numbered(shard)?)
    }

    pub(crate) fn all_segments(&self) -> Result<ObjectName> {
        Ok(self.root.join("segment")?)
    }

    pub(crate) fn all_logs(&self) -> Result<ObjectName> {
        Ok(self.root.join("log")?)
    }

    pub(crate) fn checkpoint(&self, id: &CheckpointId) -> Result<ObjectName> {
        Ok(id.below(&self.all_checkpoints()?)?)
    }

    pub(crate) fn all_checkpoints(&self) -> Result<ObjectName> {
        Ok(self.root.join("checkpoint")?)
    }

    /// The note that the database `clone` began with a checkpoint.
    pub(crate) fn clone_of(&self, checkpoint: &CheckpointId, clone: &str) -> Result<ObjectName> {
        Ok(self.clones(checkpoint)?.join(clone)?)
    }

    pub(crate) fn clones(&self, checkpoint: &CheckpointId) -> Result<ObjectName> {
        Ok(checkpoint.below(&self.all_clones()?)?)
    }

    pub(crate) fn all_clones(&self) -> Result<ObjectName> {
        Ok(self.root.join("clone")?)
    }

    /// The note that somebody is dropping a backup.
    pub(crate) fn dropping(&self, checkpoint: &CheckpointId) -> Result<ObjectName> {
        Ok(checkpoint.below(&self.all_dropping()?)?)
    }

    pub(crate) fn all_dropping(&self) -> Result<ObjectName> {
        Ok(self.root.join("dropping")?)
    }

    pub(crate) fn backup(&self) -> Result<ObjectName> {
        Ok(self.root.join("backup")?)
    }

    /// The note that backups of another database, which began as a clone, name objects of this one.
    pub(crate) fn reader(&self, other: &str) -> Result<ObjectName> {
        Ok(self.all_readers()?.join(other)?)
    }

    pub(crate) fn all_readers(&self) -> Result<ObjectName> {
        Ok(self.root.join("reader")?)
    }

    pub(crate) fn unfinished(&self) -> Result<ObjectName> {
        Ok(self.root.join("unfinished")?)
    }

    pub(crate) fn bench(&self) -> Result<ObjectName> {
        Ok(self.root.join("bench")?)
    }

    /// Whether somebody began to make the database that the commits tell of, and has not finished.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn is_unfinished(&self, found: Option<&Committed>) -> Result<bool> {
        Ok(found.is_some_and(|found| found.identity.config.to_finish) || self.is_there(&self.unfinished()?)?)
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn is_there(&self, object: &ObjectName) -> Result<bool> {
        match self.storage.objects().size(object) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an object is one of the database's.
    pub(crate) fn owns(&self, object: &ObjectName) -> bool {
        object.after(&self.root).is_some()
    }

    /// The same place in another storage.
    pub(crate) fn in_storage(&self, storage: &Storage) -> Self {
        Self { storage: storage.clone(), root: self.root.clone() }
    }

    pub(crate) fn log(&self, log: LogName) -> Result<ObjectName> {
        Ok(self.root.join("log")?.numbered(log.epoch)?.numbered(log.serial)?)
    }

    /// Opens a log that a commit names, for reading.
    ///
    /// # Errors
    /// `Corrupt`, naming the place, when something that was durable is damaged or missing; those of the storage.
    pub(crate) fn open_log(&self, log: LogName, recovery: Recovery) -> Result<LogReader> {
        let name = self.log(log)?;
        let reader = self.storage.open_log(&name, recovery)?;
        if let Some(damage) = reader.bad_begin() {
            return Err(Error::from(damage.clone()).and("it had begun, as a commit names the log"));
        }
        if reader.segments() == 0 {
            return Err(Error::corrupt(format!(
                "the log {name} is missing: a commit names it, and nothing of it is there"
            )));
        }
        Ok(reader)
    }

    /// Checks that this build knows the version of a log.
    ///
    /// # Errors
    /// `Unsupported`; those of the storage.
    pub(crate) fn check_log(&self, log: LogName) -> Result<()> {
        Ok(self.storage.check_log(&self.log(log)?)?)
    }

    /// The logs of which something is stored.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn stored_logs(&self) -> Result<Vec<StoredLog>> {
        let prefix = self.all_logs()?;
        let mut logs: Vec<StoredLog> = Vec::new();
        for object in self.storage.objects().list(Some(&prefix))? {
            let mut parts = object.name.after(&prefix).unwrap_or_default().split('/').map(str::parse);
            let (Some(Ok(epoch)), Some(Ok(serial))) = (parts.next(), parts.next()) else { continue };
            let (name, bytes) = (LogName { epoch, serial }, object.size_bytes);
            match logs.last_mut() {
                Some(last) if last.name == name => last.bytes += bytes,
                _ => logs.push(StoredLog { name, bytes, first: parts.next().and_then(|number| number.ok()) }),
            }
        }
        Ok(logs)
    }

    /// Logs that earlier owners left and that are not needed, because no commit names them: they ended before all was
    /// deleted.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn unneeded_logs(&self, is_unneeded: impl Fn(&LogName) -> bool) -> Result<Vec<LogName>> {
        let mut unneeded = Vec::new();
        for log in self.stored_logs()?.into_iter().filter(|log| is_unneeded(&log.name)) {
            if log.bytes > SEAL_BYTES || log.may_be_empty() && self.unsealed_bytes(log.name)? > 0 {
                unneeded.push(log.name);
            }
        }
        Ok(unneeded)
    }

    /// Bytes of a log, except its seal, which stays for ever.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn unsealed_bytes(&self, log: LogName) -> Result<u64> {
        match self.storage.rescue_log(&self.log(log)?) {
            Ok(parts) => Ok(parts.iter().filter(|part| !part.is_seal).map(|part| part.bytes).sum()),
            // Its owner has deleted it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what interrupted writes have left, of any database in this storage.
    pub(crate) fn sweep(&self) {
        // What is left takes room, and does no other harm.
        if let Err(error) = self.storage.objects().sweep() {
            tracing::debug!(%error, "removing what interrupted writes left: the next owner does");
        }
    }

    /// Whether a database of which no commit is left is stored there; `history` is what was read of the commits. A
    /// database that was dropped has commits.
    ///
    /// # Errors
    /// Those of the storage.
    pub(crate) fn lacks_commits(&self, history: &History) -> Result<bool> {
        let has_segments = || {
            let prefix = self.all_segments()?;
            let shard = |name: &ObjectName| name.after(&prefix)?.split('/').next()?.parse::<u64>().ok();
            Ok::<_, Error>(
                self.storage.objects().list(Some(&prefix))?.iter().any(|object| shard(&object.name).is_some()),
            )
        };
        let has_parts = || Ok::<_, Error>(has_segments()? || !self.unneeded_logs(|_| true)?.is_empty());
        // Commits come first: if somebody is creating a database now, a commit exists.
        Ok(history.commits.is_empty() && has_parts()? && self.history()?.commits.is_empty())
    }

    /// Reads the commits as they are.
    ///
    /// # Errors
    /// `Corrupt`, naming the commit; those of the storage.
    pub(crate) fn history(&self) -> Result<History> {
        Ok(History::read(&**self.storage.objects(), &self.commits()?)?)
    }
}

/// A log as it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredLog {
    pub(crate) name: LogName,
    pub(crate) bytes: u64,
    /// The number of its first object, where objects have numbers alone.
    first: Option<u64>,
}

impl StoredLog {
    /// Whether it may be a log without frames, which is no longer than a seal. In objects that is only the first
    /// segment, so the seal of a log that was used need not be read.
    const fn may_be_empty(&self) -> bool {
        self.bytes > 0 && matches!(self.first, None | Some(1))
    }
}

/// Identifies a checkpoint: the name that users gave it, and the number of the last commit when it was made. Later ones
/// of the name have higher numbers, so a request to delete one never meets another, however late. Earlier builds gave
/// no number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointId {
    name: String,
    commit: Option<u64>,
}

impl CheckpointId {
    /// # Errors
    /// `Invalid` for a name that no checkpoint can have.
    pub(crate) fn new(name: &str, commit: u64) -> Result<Self> {
        Self::check_name(name)?;
        Ok(Self { name: name.to_owned(), commit: Some(commit) })
    }

    /// # Errors
    /// `Invalid` for a name that no checkpoint can have.
    pub(crate) fn check_name(name: &str) -> Result<()> {
        if name.contains('/') {
            return Err(Error::invalid(format!("{name:?} is no name of a checkpoint: leave out `/`")));
        }
        ObjectName::new(name)?;
        Ok(())
    }

    /// The checkpoint with this written form; `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let with_number = text.rsplit_once('=').and_then(|(name, commit)| {
            let id = Self { name: name.to_owned(), commit: Some(commit.parse().ok()?) };
            (id.to_string() == text).then_some(id)
        });
        let id = with_number.unwrap_or_else(|| Self { name: text.to_owned(), commit: None });
        Self::check_name(&id.name).is_ok().then_some(id)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn commit(&self) -> Option<u64> {
        self.commit
    }

    fn below(&self, folder: &ObjectName) -> forebay_storage::Result<ObjectName> {
        folder.join(&self.to_string())
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commit {
            None => f.write_str(&self.name),
            Some(commit) => write!(f, "{}={commit:020}", self.name),
        }
    }
}

/// The commit that says that the database was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// The epoch of the process that dropped it.
    pub(crate) epoch: u64,
    /// The commit's number.
    pub(crate) commit: u64,
}

impl Tombstone {
    /// The last commit, if it says so; `None` when there is a database, or never was one.
    ///
    /// # Errors
    /// As [`Committed::of`].
    pub(crate) fn of(history: &History) -> Result<Option<Self>> {
        Ok(match (Committed::of(history)?, history.last()) {
            (None, Some(last)) => Some(Self { epoch: last.epoch, commit: last.number }),
            _ => None,
        })
    }
}

/// What the commits up to some moment say.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) identity: DatabaseIdentity,
    /// The stores on memory nodes that placements in memory belong to.
    pub(crate) memory_store: String,
    /// The logs that are needed, oldest first.
    pub(crate) logs: Vec<LogName>,
    /// The checkpoints that are being dropped, as a [`CheckpointId`] is written.
    pub(crate) drops: BTreeMap<String, DropStage>,
    pub(crate) versions: Vec<Version>,
}

impl Committed {
    /// What the commits of a register say; `None` when there is no database.
    ///
    /// # Errors
    /// `Corrupt` when they do not fit each other.
    pub(crate) fn of(history: &History) -> Result<Option<Self>> {
        let mut committed: Option<Self> = None;
        for commit in &history.commits {
            let said = DatabaseCommit::decode(&commit.payload)
                .map_err(|error| Error::from(error).during(&format!("reading commit {}", commit.number)))?;
            match commit.kind() {
                CommitKind::Snapshot => committed = Self::of_snapshot(said)?,
                CommitKind::Edit => committed.iter_mut().try_for_each(|committed| committed.apply(&said))?,
            }
        }
        Ok(committed)
    }

    pub(crate) fn of_snapshot(said: DatabaseCommit) -> Result<Option<Self>> {
        let Some(identity) = said.identity else { return Ok(None) };
        let shards = said.edits.len() as u64;
        if shards != identity.config.shards || said.edits.iter().zip(0..).any(|((shard, _), at)| *shard != at) {
            return Err(Error::corrupt(format!("a snapshot of {} shards has {shards}", identity.config.shards)));
        }
        let version = |(_, edit)| Version::replay([edit]).map_err(forebay_table::Error::from);
        let versions = said.edits.into_iter().map(version).collect::<Result<Vec<_>, _>>()?;
        let (memory_store, logs) = (said.memory_store.unwrap_or_default(), said.logs.unwrap_or_default());
        let drops = said.drops.unwrap_or_default();
        Ok(Some(Self { identity, memory_store, logs, drops, versions }))
    }

    fn apply(&mut self, said: &DatabaseCommit) -> Result<()> {
        if said.identity.is_some() {
            return Err(Error::corrupt("a commit that is no snapshot names a database"));
        }
        if let Some(name) = &said.memory_store {
            self.memory_store.clone_from(name);
        }
        if let Some(logs) = &said.logs {
            self.logs.clone_from(logs);
        }
        if let Some(drops) = &said.drops {
            self.drops.clone_from(drops);
        }
        for (shard, edit) in &said.edits {
            let version = usize::try_from(*shard).ok().and_then(|shard| self.versions.get_mut(shard));
            let version = version.ok_or_else(|| Error::corrupt(format!("a commit names shard {shard}")))?;
            *version = version.apply(edit).map_err(forebay_table::Error::from)?;
        }
        Ok(())
    }

    /// Names of the objects that the versions name.
    pub(crate) fn objects(&self) -> BTreeSet<String> {
        self.segments().map(|(name, _)| name.to_owned()).collect()
    }

    /// The objects that the versions name, with the bytes of the segment that each holds.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&str, u64)> {
        let segments = self.versions.iter().flat_map(|version| version.segments().values());
        segments.filter_map(|entry| Some((object_of(&entry.info.placements)?, entry.info.length)))
    }

    /// All of it, as one commit.
    pub(crate) fn to_snapshot(&self) -> DatabaseCommit {
        let edits = self.versions.iter().zip(0..).map(|(version, shard)| (shard, version.to_edit()));
        DatabaseCommit {
            identity: Some(self.identity.clone()),
            memory_store: Some(self.memory_store.clone()),
            logs: Some(self.logs.clone()),
            drops: Some(self.drops.clone()).filter(|drops| !drops.is_empty()),
            edits: edits.collect(),
        }
    }

    /// For each shard, the number up to which tables hold everything.
    pub(crate) fn flushed(&self) -> Vec<SequenceNumber> {
        self.versions.iter().map(Version::last_sequence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_read_back_as_it_is_written_and_nothing_else_is_one() {
        let written = ["monday", "monday=00000000000000000005", "a.b=c=18446744073709551615", "monday=5", "monday="];
        let ids = written.map(|text| CheckpointId::parse(text).unwrap());
        assert_eq!(ids.each_ref().map(ToString::to_string), written);
        assert_eq!(ids[1], CheckpointId::new("monday", 5).unwrap());
        assert!(ids[0] < ids[1] && ids[1] < CheckpointId::new("monday", 6).unwrap());
        assert_eq!(ids[2], CheckpointId::new("a.b=c", u64::MAX).unwrap());
        for text in ["", "/", "=00000000000000000005", "monday/5", "a/b=00000000000000000005", "a b", ".a"] {
            assert_eq!(CheckpointId::parse(text), None, "{text:?}");
        }
        assert!(CheckpointId::new("a/b", 1).is_err());
    }
}
