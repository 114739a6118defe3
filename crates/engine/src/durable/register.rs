//! The commits of a database on storage, of all its shards: its authority on who owns it and what is current
//! (`docs/decisions/0035`).
//!
//! One register serves all shards, so they have one owner, and what is read of them belongs to one moment. A commit
//! costs one put and one list. When the edits since the last snapshot are longer than that was, the next commit is a
//! snapshot, and what was before is deleted.
//!
//! # When a commit fails
//!
//! A fenced commit may count for the process that took over: what it names is left to that process. Any other failed
//! commit, unless it was refused, may count, or may come to count later. It is not withdrawn then, but insisted on: the
//! next commit, or [`Register::settle`], first puts the same bytes again. Until that has been done, the shard whose
//! commit it was continues with the version before, and keeps all that either version names.
//!
//! A commit that needs commits that somebody deleted is also insisted on, and is [`Register::lost`] until they are
//! back. Nobody would find what is written meanwhile.

use crate::durable::database::{CheckpointId, Committed, Place, Tombstone};
use crate::durable::known::Known;
use crate::terms::{Error, Result, Undeleted};
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_storage::{CommitKind, CommitRegister, History};
use forebay_table::{DatabaseCommit, DatabaseIdentity, DropStage, LogName, StorageRoot, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Edits may always take this many bytes before the next snapshot.
const LEAST_EDIT_BYTES: usize = 64 << 10;
/// Claims since the last snapshot that are left to the next one. Each belongs to a process that came no further.
const MOST_CLAIMS: usize = 16;

/// See the module. The lock is held while a commit is made, so commits follow one another.
#[derive(Debug)]
pub(crate) struct Register {
    state: Mutex<State>,
    /// Why nobody would find what is committed, if that is so. Changed only by the holder of the state.
    lost: Mutex<Option<Error>>,
}

#[derive(Debug)]
struct State {
    register: CommitRegister,
    committed: Committed,
    /// A commit that failed and may count: what it changes.
    pending: Option<Step>,
    /// Bytes of the last snapshot, and of the edits after it.
    snapshot_bytes: usize,
    edit_bytes: usize,
    /// Commits before the last snapshot that could not be deleted.
    undeleted: Undeleted,
}

/// Why a version was not recorded.
#[derive(Debug)]
pub(crate) struct NotRecorded {
    pub(crate) error: Error,
    /// Whether the commit may count, now or later. It is insisted on then.
    pub(crate) may_count: bool,
}

/// What a commit changes.
#[derive(Debug, Clone)]
enum Step {
    Version(usize, Version),
    Logs(Vec<LogName>),
    Drops(BTreeMap<String, DropStage>),
    All(Committed),
    Nothing,
}

/// The ownership of a database that was just claimed, and what earlier commits said of it.
#[derive(Debug)]
pub(crate) struct Claimed {
    register: CommitRegister,
    pub(crate) committed: Committed,
}

impl Claimed {
    /// Makes this process the owner of the database at `place`. When this has returned, the earlier owner is fenced. If
    /// there is no database, `new` is created. If there is one, it must be `known`, neither more nor less finished, and
    /// with the same stores in memory: a process that opened it since may be its owner.
    ///
    /// # Errors
    /// `Busy` when others were faster; `Corrupt`; `Unsupported` when a newer build wrote what it says, or something that it names
    /// since it was looked at, and then nothing is changed; those of the storage.
    pub(crate) fn claim(
        place: &Place,
        known: Option<&Known>,
        new: &DatabaseIdentity,
        empty: &[Version],
    ) -> Result<Self> {
        let writer =
            Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
        let created = Committed {
            identity: new.clone(),
            memory_store: String::new(),
            logs: Vec::new(),
            drops: BTreeMap::new(),
            versions: empty.to_vec(),
        };
        let mut failure = None;
        let is_known = |found: &Committed, Known { committed, .. }: &Known| {
            found.identity == committed.identity && found.memory_store == committed.memory_store
        };
        let first = |history: &History| {
            let payload = match (Committed::of(history), known) {
                (Ok(Some(found)), Some(known)) if is_known(&found, known) => {
                    known.check_again(place, &found, history.epoch()).and_then(|()| {
                        // Starts that fail again and again must not fill the storage.
                        let claims = history.commits.iter().filter(|commit| commit.is_claim).count();
                        let (kind, said) = match claims > MOST_CLAIMS {
                            true => (CommitKind::Snapshot, found.to_snapshot()),
                            false => (CommitKind::Edit, DatabaseCommit::default()),
                        };
                        said.encode().map(|bytes| (kind, bytes)).map_err(Error::from)
                    })
                }
                (Ok(None), None) => {
                    created.to_snapshot().encode().map(|bytes| (CommitKind::Snapshot, bytes)).map_err(Error::from)
                }
                (Ok(_), _) => Err(Error::new(
                    ErrorKind::Busy,
                    "another process creates, opens, finishes or drops the database: try again",
                )),
                (Err(error), _) => Err(error),
            };
            payload.map(|(kind, bytes)| (kind, bytes.into())).map_err(|error| {
                let stopped =
                    forebay_storage::Error::new(error.kind(), "claim", "the commit register", error.to_string());
                failure = Some(error);
                stopped
            })
        };
        let claimed = CommitRegister::claim(Arc::clone(place.storage.objects()), &place.commits()?, writer, first);
        let (register, history) = claimed.map_err(|error| failure.unwrap_or_else(|| error.into()))?;
        let committed = Committed::of(&history)?.unwrap_or(created);
        // The earlier owner ended before it came to it, or this is the snapshot of many claims.
        if (1..register.base()).contains(&history.oldest)
            && let Err(error) = register.prune()
        {
            tracing::debug!(%error, "deleting what was committed before: the next snapshot has it done");
        }
        Ok(Self { register, committed })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.register.epoch()
    }

    /// Makes a commit that says all of `committed`: from here on it is current.
    ///
    /// # Errors
    /// `Fenced`; those of the storage.
    pub(crate) fn begin(self, committed: Committed) -> Result<Register> {
        let mut state = State {
            register: self.register,
            committed: self.committed,
            pending: None,
            snapshot_bytes: 0,
            edit_bytes: 0,
            undeleted: Undeleted::of("commits"),
        };
        state.commit(Step::All(committed), DatabaseCommit::default())?;
        Ok(Register { state: Mutex::new(state), lost: Mutex::default() })
    }

    /// Makes a commit that says that there is no database.
    ///
    /// # Errors
    /// `Fenced`; those of the storage.
    pub(crate) fn drop_database(mut self) -> Result<Tombstone> {
        let nothing = DatabaseCommit::default().encode()?;
        let commit = self.register.commit(CommitKind::Snapshot, nothing.into())?;
        self.register.prune()?;
        Ok(Tombstone { epoch: self.register.epoch(), commit })
    }
}

impl Register {
    /// Does `work`, and notes what its error says of earlier commits.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = lock(&self.state);
        work(&mut state).map_err(|error| {
            if !error.is_of_storage() || error.kind() != ErrorKind::Corrupt {
                return error;
            }
            // Not as an error of storage that may pass: if commits come back, only opening reads them as a whole.
            let lost = Error::corrupt(format!(
                "{error}, and then open the database again, or restart what serves it: until then it takes no writes"
            ));
            *lock(&self.lost) = Some(lost.clone());
            lost
        })
    }

    /// Why nobody would find what is committed, if that is so: somebody deleted commits.
    pub(crate) fn lost(&self) -> Option<Error> {
        lock(&self.lost).clone()
    }

    /// Makes `after` the version of a shard, by an edit of what is committed.
    ///
    /// # Errors
    /// `Fenced` when another process took over, which alone knows whether it counts; `Corrupt`, not as an error of the
    /// storage, when somebody deleted commits; others of the storage. They say whether it may count.
    pub(crate) fn record(&self, shard: usize, after: &Version) -> Result<(), NotRecorded> {
        let mut may_count = false;
        let recorded = self.with(|state| {
            state.settle()?;
            let unknown = || Error::invalid(format!("the database has no shard {shard}"));
            let edit = state.committed.versions.get(shard).ok_or_else(unknown)?.edit_to(after);
            let said = DatabaseCommit { edits: vec![(shard as u64, edit)], ..DatabaseCommit::default() };
            let committed = state.commit(Step::Version(shard, after.clone()), said);
            // Said before anybody else can make it count: then it is pending no more.
            may_count = state.pending.is_some();
            committed
        });
        recorded.map_err(|error| NotRecorded { error, may_count })
    }

    /// The number of the database, and this owner's epoch.
    pub(crate) fn root(&self) -> StorageRoot {
        let state = lock(&self.state);
        StorageRoot { database: state.committed.identity.database, epoch: state.register.epoch() }
    }

    /// For each shard, the number up to which committed tables hold everything.
    pub(crate) fn flushed(&self) -> Vec<SequenceNumber> {
        lock(&self.state).committed.flushed()
    }

    /// Commits which logs are needed.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn record_logs(&self, logs: Vec<LogName>) -> Result<()> {
        let said = DatabaseCommit { logs: Some(logs.clone()), ..DatabaseCommit::default() };
        self.with(|state| state.commit(Step::Logs(logs), said))
    }

    /// Commits how far the drop of a checkpoint is; `None` if nobody drops it.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn record_drop(&self, checkpoint: &CheckpointId, stage: Option<DropStage>) -> Result<()> {
        self.with(|state| {
            state.settle()?;
            let mut drops = state.committed.drops.clone();
            match stage {
                Some(stage) => drops.insert(checkpoint.to_string(), stage),
                None => drops.remove(&checkpoint.to_string()),
            };
            let said = DatabaseCommit { drops: Some(drops.clone()), ..DatabaseCommit::default() };
            state.commit(Step::Drops(drops), said)
        })
    }

    /// What `read` makes of what is committed, and of the number of the last commit. Nothing is committed meanwhile.
    ///
    /// # Errors
    /// As [`Register::record`], and those of `read`.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Committed, u64) -> Result<T>) -> Result<T> {
        self.with(|state| {
            state.settle()?;
            read(&state.committed, state.register.last())
        })
    }

    /// Makes a commit that changes nothing: this process is still the owner when it has returned.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn confirm(&self) -> Result<()> {
        self.with(|state| state.commit(Step::Nothing, DatabaseCommit::default()))
    }

    /// Makes a commit that says that the database is whole, if it was to be finished.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn finish(&self) -> Result<()> {
        self.with(|state| {
            state.settle()?;
            let mut finished = state.committed.clone();
            finished.identity.config.to_finish = false;
            state.commit(Step::All(finished), DatabaseCommit::default())
        })
    }

    /// Checks whether this process is still the owner, and commits nothing.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn check(&self) -> Result<()> {
        self.with(|state| {
            state.settle()?;
            state.register.check()?;
            *lock(&self.lost) = None;
            Ok(())
        })
    }

    /// Insists on a commit that failed, of whatever shard. Afterwards it counts.
    ///
    /// # Errors
    /// As [`Register::record`].
    pub(crate) fn settle(&self) -> Result<()> {
        self.with(State::settle)
    }
}

impl State {
    fn settle(&mut self) -> Result<()> {
        self.register.settle()?;
        if let Some(step) = self.pending.take() {
            self.committed.take(step);
        }
        Ok(())
    }

    fn commit(&mut self, step: Step, said: DatabaseCommit) -> Result<()> {
        self.settle()?;
        let mut next = None;
        let is_due = self.edit_bytes >= self.snapshot_bytes.max(LEAST_EDIT_BYTES);
        let is_snapshot = is_due || matches!(step, Step::All(_));
        let (kind, bytes) = if is_snapshot {
            let mut all = self.committed.clone();
            all.take(step.clone());
            let bytes = all.to_snapshot().encode()?;
            next = Some(all);
            (CommitKind::Snapshot, bytes)
        } else {
            (CommitKind::Edit, said.encode()?)
        };
        let length = bytes.len();
        if let Err(error) = self.register.commit(kind, bytes.into()) {
            if self.register.is_unsettled() {
                self.pending = Some(step);
            }
            return Err(Error::from(error).during("recording a version"));
        }
        match next {
            Some(all) => self.committed = all,
            None => self.committed.take(step),
        }
        if is_snapshot {
            (self.snapshot_bytes, self.edit_bytes) = (length, 0);
            if let Err(error) = self.register.prune() {
                // The next snapshot deletes them.
                self.undeleted.note(&error);
            }
        } else {
            self.edit_bytes += length;
        }
        Ok(())
    }
}

impl Committed {
    fn take(&mut self, step: Step) {
        match step {
            Step::Version(shard, version) => {
                if let Some(current) = self.versions.get_mut(shard) {
                    *current = version;
                }
            }
            Step::Logs(logs) => self.logs = logs,
            Step::Drops(drops) => self.drops = drops,
            Step::All(all) => *self = all,
            Step::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::checkpoints;
    use crate::durable::known::Purpose;
    use crate::remote::kept::Kept;
    use crate::terms::Options;
    use crate::tree::version::identity;
    use forebay_storage::{MemoryObjects, ObjectFault, ObjectStorage, Storage, StorageOptions};
    use forebay_table::{StoreConfig, VersionEdit};

    /// The register of a new database, and the version of its only shard.
    fn owned(objects: &MemoryObjects) -> (Place, Register, Version) {
        let storage = Storage::of_objects(Arc::new(objects.clone()), StorageOptions::default());
        let place = Place::new(&storage, "db").unwrap();
        let options = Options::default();
        let config = StoreConfig {
            key_order: options.key_order,
            shards: 1,
            merge_operator: String::new(),
            bounds: Vec::new(),
            part: None,
            copies: 1,
            to_finish: false,
        };
        let database = DatabaseIdentity { database: 7, config };
        let version = Version::empty(identity(&options, 7, 0));
        let claimed = Claimed::claim(&place, None, &database, std::slice::from_ref(&version)).unwrap();
        let committed = claimed.committed.clone();
        (place, claimed.begin(committed).unwrap(), version)
    }

    /// Both found that the stores in memory were lost, and made others.
    #[test]
    fn of_two_that_open_a_database_the_later_one_does_not_fence_the_earlier() {
        let objects = MemoryObjects::new();
        let (place, register, version) = owned(&objects);
        let found = register.read(|committed, _| Ok(committed.clone())).unwrap();
        let known = Known::new(&place, found.clone(), 1, Purpose::Open { has_threads: false }).unwrap();
        let claim = || Claimed::claim(&place, Some(&known), &found.identity, std::slice::from_ref(&version));
        let owner = claim().unwrap().begin(Committed { memory_store: "db.1".to_owned(), ..found.clone() }).unwrap();
        let refused = claim().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        owner.confirm().unwrap();
    }

    /// Another shard, or the log, may make a commit count before the thread whose commit it was continues.
    #[test]
    fn a_commit_that_failed_and_may_count_is_told_as_such_whoever_makes_it_count() {
        let objects = MemoryObjects::new();
        let (_, register, before) = owned(&objects);
        let after = |last| {
            let edit = VersionEdit { last_sequence: Some(SequenceNumber(last)), ..VersionEdit::default() };
            before.apply(&edit).unwrap()
        };
        for (last, fault) in [(1, ObjectFault::ReplyLost), (2, ObjectFault::Refused(ErrorKind::Unavailable))] {
            objects.fail_at(objects.steps(), fault);
            let failed = register.record(0, &after(last)).unwrap_err();
            register.settle().unwrap();
            assert_eq!(register.flushed(), [SequenceNumber(last)], "{fault:?}");
            assert!(failed.may_count, "{fault:?}: {}", failed.error);
        }
        // What comes before the commit fails: it was not tried.
        objects.fail_at(objects.steps(), ObjectFault::ReplyLost);
        assert!(register.record_logs(Vec::new()).is_err());
        objects.fail_at(objects.steps(), ObjectFault::Refused(ErrorKind::Unavailable));
        assert!(!register.record(0, &after(3)).unwrap_err().may_count);
        register.settle().unwrap();
        assert_eq!(register.flushed(), [SequenceNumber(2)]);
    }

    /// The next commit of a clone may let go of what belongs to another database. From then on, only the checkpoint keeps
    /// it.
    #[test]
    fn a_checkpoint_is_there_before_the_next_commit() {
        let objects = MemoryObjects::new();
        let (place, register, _) = owned(&objects);
        let (register, seen) = (Arc::new(register), Arc::new(Mutex::new(None)));
        let (inner, outcome, other) = (Arc::clone(&register), Arc::clone(&seen), objects.handle());
        let prefix = place.all_checkpoints().unwrap();
        objects.interrupt_at(objects.steps(), move || {
            let is_there = !other.list(Some(&prefix)).unwrap().is_empty();
            *lock(&outcome) = Some((is_there, inner.state.try_lock().is_ok()));
        });
        checkpoints::create(&place, &register, &Kept::default(), "one").unwrap();
        assert_eq!(*lock(&seen), Some((false, false)), "neither is it there, nor can anybody commit");
        assert_eq!(checkpoints::list(&place).unwrap(), ["one"]);
    }
}
