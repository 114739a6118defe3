//! The register of a database with several copies in memory: who owns it, and which nodes hold the copies of its shards
//! (`docs/decisions/0036`).
//!
//! It is small, and changes only when an owner takes over, and when a member is left out or joins. Its record is
//! replaced as a whole. The process that claims it is the owner: a write of an earlier owner fails with `Fenced` from
//! then on.

use crate::durable::database::Place;
use crate::durable::named::Part;
use crate::remote::members::Membership;
use crate::terms::{Error, Result, Undeleted};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::NodeIdentity;
use forebay_storage::{CommitKind, CommitRegister, History, ObjectName};
use forebay_table::{MemberNode, MembersRecord};
use std::fmt::Debug;
use std::sync::Arc;

/// Where a record is that only its owner replaces.
pub(crate) trait Register: Debug + Send {
    /// Replaces what the register says.
    ///
    /// # Errors
    /// `Fenced` when somebody else has claimed the register: this has no effect, now or later. After other errors, it
    /// may say this or what it said before, until the next call succeeds.
    fn write(&mut self, record: &MembersRecord) -> Result<()>;

    /// Checks whether somebody else has claimed the register, as far as that can be seen now. Changes nothing.
    ///
    /// # Errors
    /// `Fenced` when somebody has; others say nothing about it.
    fn check(&mut self) -> Result<()>;

    /// Notes that a memory node is back, by another session, with this part of the database.
    fn returned(&mut self, _part: &Part) {}

    /// Lets another process claim the register. Nothing is written any more.
    fn release(&mut self) {}
}

/// A register in a directory or a bucket.
#[derive(Debug)]
pub(crate) struct StoredRegister {
    register: CommitRegister,
    /// Earlier commits that could not be deleted.
    undeleted: Undeleted,
}

impl StoredRegister {
    fn name(place: &Place) -> Result<ObjectName> {
        place.members()
    }

    /// What the register says; nothing when nobody has claimed it.
    ///
    /// # Errors
    /// `Corrupt`; those of the storage.
    pub(crate) fn read(place: &Place) -> Result<MembersRecord> {
        said(&History::read(&**place.storage.objects(), &Self::name(place)?)?)
    }

    /// Makes this process the owner of a register that says nothing, or belongs to the database of this number. If it
    /// says nothing, says `first`. Returns what it says now.
    ///
    /// # Errors
    /// `Busy` when others are faster, or the register is another database's; those of the storage.
    pub(crate) fn claim(place: &Place, first: &MembersRecord) -> Result<(Box<dyn Register>, MembersRecord)> {
        let writer =
            Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
        let mut claimed = Err(Error::new(ErrorKind::Busy, "nobody has claimed the register"));
        let payload = |history: &History| {
            claimed = said(history).and_then(|found| match (&found.database, &first.database) {
                (None, _) => Ok(first.clone()),
                (Some(found), Some(known)) if found.database != known.database => {
                    Err(Error::new(ErrorKind::Busy, "another process drops and creates the database: try again"))
                }
                _ => Ok(found),
            });
            let bytes = claimed.as_ref().map_err(Clone::clone).and_then(|record| Ok(record.encode()?));
            bytes.map(|bytes| (CommitKind::Snapshot, bytes.into())).map_err(|error| {
                forebay_storage::Error::new(error.kind(), "claim", "the register of members", error.to_string())
            })
        };
        let objects = Arc::clone(place.storage.objects());
        let (register, _) = CommitRegister::claim(objects, &Self::name(place)?, writer, payload)?;
        Ok((Box::new(Self { register, undeleted: Undeleted::of("a register's commits") }), claimed?))
    }
}

/// What the last commit says.
fn said(history: &History) -> Result<MembersRecord> {
    match history.last() {
        None => Ok(MembersRecord::default()),
        Some(last) => Ok(MembersRecord::decode(&last.payload)
            .map_err(|error| Error::from(error).during("reading the register of members"))?),
    }
}

impl Register for StoredRegister {
    fn write(&mut self, record: &MembersRecord) -> Result<()> {
        self.register.commit(CommitKind::Snapshot, record.encode()?.into())?;
        if let Err(error) = self.register.prune() {
            // The next write deletes it.
            self.undeleted.note(&error);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        Ok(self.register.check()?)
    }
}

/// The members of all shards, as their owner knows them.
#[derive(Debug)]
pub(crate) struct MemberRegister {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    register: Box<dyn Register>,
    record: MembersRecord,
}

impl MemberRegister {
    /// The register that was just claimed, and what it says.
    pub(crate) fn new(register: Box<dyn Register>, record: MembersRecord) -> Self {
        Self { state: Mutex::new(State { register, record }) }
    }

    /// Names the members of all shards.
    ///
    /// # Errors
    /// As [`Register::write`].
    pub(crate) fn name_all(&self, members: Vec<Vec<NodeIdentity>>) -> Result<()> {
        let shards = members.into_iter().map(|members| members.into_iter().map(member).collect()).collect();
        lock(&self.state).change(|record| record.shards = shards)
    }

    /// Notes that a memory node is back, by another session, with this part of the database.
    pub(crate) fn returned(&self, part: &Part) {
        lock(&self.state).register.returned(part);
    }

    /// As [`Register::check`].
    pub(crate) fn check(&self) -> Result<()> {
        lock(&self.state).register.check()
    }

    /// Lets another process claim the register. Nothing is written any more.
    pub(crate) fn release(&self) {
        lock(&self.state).register.release();
    }

    /// Says that there is no database any more.
    ///
    /// # Errors
    /// As [`Register::write`].
    pub(crate) fn drop_database(&self) -> Result<()> {
        lock(&self.state).change(|record| *record = MembersRecord::default())
    }
}

impl State {
    fn change(&mut self, change: impl FnOnce(&mut MembersRecord)) -> Result<()> {
        let mut next = self.record.clone();
        change(&mut next);
        self.register.write(&next)?;
        self.record = next;
        Ok(())
    }
}

impl Membership for MemberRegister {
    fn name(&self, shard: usize, members: &[NodeIdentity]) -> Result<()> {
        let members: Vec<_> = members.iter().copied().map(member).collect();
        lock(&self.state).change(|record| {
            if let Some(named) = record.shards.get_mut(shard) {
                *named = members;
            }
        })
    }

    fn confirm(&self) -> Result<()> {
        // Only the owner can write, even if it repeats what is said already.
        lock(&self.state).change(|_| ())
    }
}

/// How a node is named in the register.
pub(crate) const fn member(node: NodeIdentity) -> MemberNode {
    MemberNode { node: node.node, incarnation: node.incarnation }
}
