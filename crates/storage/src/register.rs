//! The commit register: numbered commits, each made by claiming its number.
//!
//! A commit is an object whose name ends in its number, put only if it is absent. A writer's next commit claims the number
//! after the last one that it knows. So of two writers one succeeds. The other finds the number taken: it is *fenced* and
//! never commits again. A writer that takes over *claims* the register by a commit of its own. The claim fences the previous
//! writer (however late that one wakes up), and gives the new one the next epoch.
//!
//! A commit is a *snapshot* (the whole state) or an edit (what changed since). A reader begins at the last snapshot;
//! everything before it can be pruned. Two details make that exact:
//!
//! - **A pruned number is absent again.** A writer that slept meanwhile would claim it once more. So after each claim a
//!   writer checks whether there is a higher number: pruned commits are below an existing snapshot, and the highest commit
//!   is never deleted. If there is a higher number, the commit counts if the next one continues it. If the next one was also
//!   pruned, the commit may have counted for the new owner, and its writer is fenced in any case. A commit without a higher
//!   number is the highest, and was never pruned.
//! - **A reply can be lost.** Then the number is taken by this writer's own commit. The writer recognises it by its bytes,
//!   because each writer has a random number. A commit whose put failed in any other way may still arrive, so it is not
//!   withdrawn: the next call puts the same bytes again before it does anything else ([`CommitRegister::settle`]).
//!
//! All of this depends on the condition of a put. A service that accepts the condition but ignores it would let two writers
//! have one number, here and in logs. So a claim is put once more before its writer does anything else, and that put must be
//! refused.
//!
//! ```text
//!  offset  size  field
//!  0       4     magic "FBCM"
//!  4       2     format version, 1
//!  6       2     flags: 1 snapshot, 2 claim; an unknown flag is refused
//!  8       8     number, from 1
//!  16      8     number of the last snapshot, this commit included
//!  24      8     epoch: number of claims so far, this commit included
//!  32      16    the writer's random number
//!  48      4     the checksum at the end of the commit before; zero for the first
//!  52      4     length of the payload in bytes
//!  56            payload
//!  …       4     CRC-32 (ISO-HDLC) of all that precedes
//! ```
//!
//! Purpose and golden test: `docs/formats/commit.md`.

use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::objects::{ObjectStorage, PutMode, listed_and_not_found, taken_by_nothing};
use crate::planted::{Bug, planted};
use bytes::Bytes;
use forebay_base::{DecodeError, ErrorKind, Reader, Writer, envelope_checksum};
use std::sync::Arc;

const MAGIC: u32 = u32::from_le_bytes(*b"FBCM");
const VERSION: u16 = 1;
const SNAPSHOT: u16 = 1;
const CLAIM: u16 = 2;
const HEADER_BYTES: usize = 56;
const CHECKSUM_BYTES: usize = 4;

/// Largest payload of a commit, in bytes.
pub const MAX_COMMIT_BYTES: usize = 1 << 30;

/// How often a claim starts again because another writer was faster.
const CLAIM_ATTEMPTS: u32 = 100;

/// What a commit says about those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitKind {
    /// The whole state: earlier commits are not needed.
    Snapshot,
    /// What changed since the previous commit.
    Edit,
}

/// A commit as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its number, from 1.
    pub number: u64,
    /// Number of the last snapshot, itself included.
    pub base: u64,
    /// Number of claims so far, itself included.
    pub epoch: u64,
    /// Whether it made its writer the owner.
    pub is_claim: bool,
    /// Random number of its writer.
    pub writer: u128,
    /// The writer's payload.
    pub payload: Bytes,
    /// The checksum of the previous commit.
    previous: u32,
    /// Its own checksum.
    checksum: u32,
}

impl Commit {
    /// Whether it is the whole state.
    #[must_use]
    pub const fn kind(&self) -> CommitKind {
        if self.base == self.number { CommitKind::Snapshot } else { CommitKind::Edit }
    }

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.payload.len() + CHECKSUM_BYTES);
        let flags = if self.kind() == CommitKind::Snapshot { SNAPSHOT } else { 0 };
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u16(flags | if self.is_claim { CLAIM } else { 0 });
        for number in [self.number, self.base, self.epoch] {
            out.put_u64(number);
        }
        out.put_u128(self.writer);
        out.put_u32(self.previous);
        // Longer payloads are refused before.
        out.put_u32(self.payload.len() as u32);
        out.extend_from_slice(&self.payload);
        let checksum = envelope_checksum(&out);
        out.put_u32(checksum);
        out.into()
    }

    /// Decodes a commit. Any bytes give a commit or an error.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &Bytes) -> std::result::Result<Self, DecodeError> {
        let bad = |what, found| Err(DecodeError::BadValue { what, found });
        let magic = Reader::new(bytes).u32()?;
        if magic != MAGIC {
            return bad("magic of a commit", magic.into());
        }
        // A commit of any version ends in its checksum.
        let covered = bytes.len().saturating_sub(CHECKSUM_BYTES);
        let checksum = Reader::new(bytes.get(covered..).unwrap_or_default()).u32()?;
        let before = bytes.get(..covered).unwrap_or_default();
        let found = envelope_checksum(before);
        if found != checksum {
            return Err(DecodeError::BadChecksum { what: "a commit", expected: checksum, found });
        }
        let mut reader = Reader::new(before);
        let (_, version, flags) = (reader.u32()?, reader.u16()?, reader.u16()?);
        let unknown =
            |feature, number: u16| Err(DecodeError::Unknown { what: "a commit", feature, number: number.into() });
        if version != VERSION {
            return unknown("format version", version);
        }
        if flags & !(SNAPSHOT | CLAIM) != 0 {
            return unknown("flags", flags);
        }
        let (number, base, epoch) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (writer, previous, length) = (reader.u128()?, reader.u32()?, reader.u32()?);
        reader.bytes(length as usize)?;
        reader.finish()?;
        if base > number || (flags & SNAPSHOT != 0) != (base == number) {
            return bad("last snapshot of a commit", base);
        }
        let payload = bytes.slice(HEADER_BYTES..covered);
        Ok(Self { number, base, epoch, is_claim: flags & CLAIM != 0, writer, payload, previous, checksum })
    }
}

/// The commits from the last snapshot on, in order. Empty for a register that nobody has claimed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The snapshot, and the edits after it.
    pub commits: Vec<Commit>,
    /// The number of the oldest existing commit; below the snapshot's number if some can be pruned, and zero if there is
    /// none.
    pub oldest: u64,
}

impl History {
    /// Reads the register, and changes nothing.
    ///
    /// # Errors
    /// `Corrupt`, naming the commit that is damaged, missing, or does not continue the one before; `Unavailable`, naming one
    /// that is listed but not found; `Unsupported`, naming one that a newer build made; those of the storage.
    pub fn read(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Self> {
        // Commits may be pruned while they are read; then there is a later snapshot.
        let mut newest_before = None;
        loop {
            let listed = numbers(storage, prefix)?;
            let Some(newest) = listed.last().copied() else { return Ok(Self::default()) };
            match Self::up_to(storage, prefix, newest) {
                Ok(commits) => return Ok(Self { commits, oldest: listed.first().copied().unwrap_or_default() }),
                Err(Unread::Failed(error)) => return Err(error),
                Err(Unread::Missing(_)) if newest_before != Some(newest) => newest_before = Some(newest),
                Err(Unread::Missing(number)) => {
                    let name = prefix.numbered(number)?;
                    let is_listed = listed.binary_search(&number).is_ok();
                    let missing = || Error::corrupt(name.as_str(), "a commit is missing that a later one needs");
                    return Err(if is_listed { listed_and_not_found(&name) } else { missing() });
                }
            }
        }
    }

    fn up_to(
        storage: &dyn ObjectStorage,
        prefix: &ObjectName,
        newest: u64,
    ) -> std::result::Result<Vec<Commit>, Unread> {
        let read = |number| match read(storage, prefix, number) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Unread::Missing(number)),
            read => Ok(read?),
        };
        let last = read(newest)?;
        let mut commits: Vec<Commit> = (last.base..newest).map(read).collect::<std::result::Result<_, _>>()?;
        commits.push(last);
        for (before, after) in commits.iter().zip(commits.iter().skip(1)) {
            let epoch = before.epoch.checked_add(u64::from(after.is_claim));
            if after.previous != before.checksum || Some(after.epoch) != epoch || after.base != before.base {
                let detail = "it does not continue the commit before: one of them is not what was committed";
                return Err(Error::corrupt(prefix.numbered(after.number)?.as_str(), detail).into());
            }
        }
        Ok(commits)
    }

    /// The last commit.
    #[must_use]
    pub fn last(&self) -> Option<&Commit> {
        self.commits.last()
    }

    /// The epoch of the owner; zero when there was none.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.last().map_or(0, |commit| commit.epoch)
    }
}

/// Why a history was not read.
#[derive(Debug)]
enum Unread {
    /// The commit of this number was not found.
    Missing(u64),
    Failed(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Numbers of commits, ascending.
fn numbers(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Vec<u64>> {
    let listed = storage.list(Some(prefix))?;
    Ok(listed.iter().filter_map(|object| object.name.number_after(prefix)).collect())
}

fn read(storage: &dyn ObjectStorage, prefix: &ObjectName, number: u64) -> Result<Commit> {
    let name = prefix.numbered(number)?;
    let commit = Commit::decode(&storage.get(&name)?).map_err(|cause| Error::decode(name.as_str(), &cause))?;
    if commit.number == number {
        return Ok(commit);
    }
    Err(Error::corrupt(name.as_str(), format!("it holds commit {}", commit.number)))
}

/// The register, for its owner.
#[derive(Debug)]
pub struct CommitRegister {
    storage: Arc<dyn ObjectStorage>,
    prefix: ObjectName,
    last: Commit,
    /// A commit that may have been made; the register insists on it.
    pending: Option<Commit>,
    is_fenced: bool,
}

impl CommitRegister {
    /// Makes this writer the owner: reads the register and commits what `first` returns for it, with the next epoch. The
    /// very first commit must be a snapshot. When another writer is faster, reads the register and calls `first` again. The
    /// previous writer is fenced when this has returned.
    ///
    /// `writer` is a random number that no other writer has. Where a service judges conditions, one request tests whether it
    /// does ([`ObjectStorage::check_conditions`]).
    ///
    /// # Errors
    /// `Busy` when others were faster each time; `Invalid`; `Unsupported` when the service ignores conditions, and the claim counts;
    /// those of [`History::read`] and of the storage. After an undecided error the claim may have been made; the next claim
    /// continues from there.
    pub fn claim(
        storage: Arc<dyn ObjectStorage>,
        prefix: &ObjectName,
        writer: u128,
        mut first: impl FnMut(&History) -> Result<(CommitKind, Bytes)>,
    ) -> Result<(Self, History)> {
        for _ in 0..CLAIM_ATTEMPTS {
            let history = History::read(&*storage, prefix)?;
            let (kind, payload) = first(&history)?;
            let commit = following(history.last(), prefix, kind, true, writer, payload)?;
            let mut register = Self {
                storage: Arc::clone(&storage),
                prefix: prefix.clone(),
                last: history.last().cloned().unwrap_or_else(|| commit.clone()),
                pending: Some(commit),
                is_fenced: false,
            };
            match register.settle().and_then(|()| register.check_conditions()) {
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                claimed => return claimed.map(|()| (register, history)),
            }
        }
        let detail = "other writers were faster each time: try again when they have settled";
        Err(Error::new(ErrorKind::Busy, "claim", prefix.as_str(), detail))
    }

    /// Makes sure that the storage heeds the condition with which the last commit was put.
    fn check_conditions(&mut self) -> Result<()> {
        let name = self.prefix.numbered(self.last.number)?;
        let checked = self.storage.check_conditions(&name, self.last.encode());
        if checked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported)
            && numbers(&*self.storage, &self.prefix)?.last() > Some(&self.last.number)
        {
            // The number may have been free, because the new owner prunes. The next owner prunes the object that has it now.
            self.is_fenced = true;
            return Err(self.fenced());
        }
        checked
    }

    /// The epoch of this owner.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.last.epoch
    }

    /// Number of the last commit.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last.number
    }

    /// Number of the last snapshot.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.last.base
    }

    /// Makes a commit, and returns its number. The commit counts, and survives, when this has returned.
    ///
    /// A commit that failed, except with `Invalid` and `Fenced`, is not withdrawn: it may count, now or later, and
    /// [`CommitRegister::settle`], or the next commit, insists on it.
    ///
    /// # Errors
    /// `Fenced` when another writer took over: no later commit will have an effect. Nor has this one, unless the new owner
    /// found it, and pruned the evidence; `Invalid` for a payload above [`MAX_COMMIT_BYTES`]; `Corrupt` when it needs
    /// commits that were deleted: it counts once they are back; those of the storage.
    pub fn commit(&mut self, kind: CommitKind, payload: Bytes) -> Result<u64> {
        self.settle()?;
        let next = following(Some(&self.last), &self.prefix, kind, false, self.last.writer, payload)?;
        self.pending = Some(next);
        self.settle()?;
        Ok(self.last.number)
    }

    /// Whether a failed commit may nevertheless count.
    #[must_use]
    pub const fn is_unsettled(&self) -> bool {
        self.pending.is_some()
    }

    /// Insists on a failed commit; does nothing when there is none. Afterwards the commit counts.
    ///
    /// # Errors
    /// As for [`CommitRegister::commit`].
    pub fn settle(&mut self) -> Result<()> {
        if self.is_fenced {
            return Err(self.fenced());
        }
        let Some(pending) = &self.pending else { return Ok(()) };
        let counts = is_made(&*self.storage, &self.prefix, pending)?;
        match self.pending.take() {
            Some(pending) if counts != Standing::Refused => {
                self.last = pending;
                // The next commit would find this out; it is known now.
                self.is_fenced = counts == Standing::CountsAndFollowed;
                Ok(())
            }
            _ => {
                self.is_fenced = true;
                Err(self.fenced())
            }
        }
    }

    /// Checks whether this writer is still the owner, and whether its commits exist. Costs a list, and no commit.
    ///
    /// # Errors
    /// `Corrupt` when commits from the last snapshot on were deleted, and nobody took over; as for [`CommitRegister::commit`].
    pub fn check(&mut self) -> Result<()> {
        self.settle()?;
        match look(&*self.storage, &self.prefix, &self.last)? {
            Seen::All => Ok(()),
            Seen::Followed => {
                self.is_fenced = true;
                Err(self.fenced())
            }
            Seen::Gone => Err(gone(&self.prefix)),
        }
    }

    /// Deletes the commits before the last snapshot, the oldest first, and returns how many. A later call deletes what was
    /// left.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn prune(&self) -> Result<u64> {
        let numbers = numbers(&*self.storage, &self.prefix)?;
        let old: Vec<u64> = numbers.into_iter().take_while(|number| *number < self.last.base).collect();
        for number in &old {
            self.storage.delete(&self.prefix.numbered(*number)?)?;
        }
        Ok(old.len() as u64)
    }

    fn fenced(&self) -> Error {
        let detail = format!("another writer took over after commit {}: stop writing", self.last.number);
        Error::new(ErrorKind::Fenced, "commit", self.prefix.as_str(), detail)
    }
}

/// The commit that follows `last`.
fn following(
    last: Option<&Commit>,
    prefix: &ObjectName,
    kind: CommitKind,
    is_claim: bool,
    writer: u128,
    payload: Bytes,
) -> Result<Commit> {
    let invalid = |detail: &str| Error::new(ErrorKind::Invalid, "commit", prefix.as_str(), detail);
    if payload.len() > MAX_COMMIT_BYTES {
        return Err(invalid("a commit of more than 1 GiB: make the state smaller, or keep parts of it in objects"));
    }
    let exhausted = || invalid("all numbers are used up");
    let number = last.map_or(0, |last| last.number).checked_add(1).ok_or_else(exhausted)?;
    let epoch = last.map_or(0, |last| last.epoch).checked_add(u64::from(is_claim)).ok_or_else(exhausted)?;
    let base = match (kind, last) {
        (CommitKind::Snapshot, _) => number,
        (CommitKind::Edit, Some(last)) => last.base,
        (CommitKind::Edit, None) => return Err(invalid("the first commit must be a snapshot")),
    };
    let previous = last.map_or(0, |last| last.checksum);
    let mut commit = Commit { number, base, epoch, is_claim, writer, payload, previous, checksum: 0 };
    let bytes = commit.encode();
    commit.checksum = bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok(commit)
}

/// The standing of a commit whose number is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It counts.
    Counts,
    /// It counts, and another writer has taken over since.
    CountsAndFollowed,
    /// Another commit has the number, or had it; or the commits that followed it were pruned since.
    Refused,
}

/// Puts `commit` if it is absent, and finds out whether it counts.
fn is_made(storage: &dyn ObjectStorage, prefix: &ObjectName, commit: &Commit) -> Result<Standing> {
    let name = prefix.numbered(commit.number)?;
    let mode = if planted(Bug::CommitReplaces) { PutMode::Replace } else { PutMode::IfAbsent };
    let mut by_nothing = None;
    match storage.put(&name, commit.encode(), mode) {
        Ok(()) => {}
        Err(taken) if taken.kind() == ErrorKind::AlreadyExists => match taken_by(storage, &name, commit)? {
            Taken::Own => {}
            Taken::Foreign => return Ok(Standing::Refused),
            // Pruned since, if there is a later commit.
            Taken::Free => by_nothing = Some(taken_by_nothing(taken)),
        },
        Err(error) => return Err(error),
    }
    match look(storage, prefix, commit)? {
        _ if planted(Bug::PrunedNumberIsFree) => return Ok(Standing::Counts),
        Seen::All => return by_nothing.map_or(Ok(Standing::Counts), Err),
        Seen::Gone => return Err(by_nothing.unwrap_or_else(|| gone(prefix))),
        Seen::Followed => {}
    }
    match commit.number.checked_add(1).map(|next| read(storage, prefix, next)) {
        Some(Ok(next)) if next.previous == commit.checksum => Ok(Standing::CountsAndFollowed),
        Some(Err(error))
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported) =>
        {
            Err(error)
        }
        _ => Ok(Standing::Refused),
    }
}

/// What has the number of a commit.
enum Taken {
    /// The commit.
    Own,
    /// Another writer's.
    Foreign,
    /// It is not there.
    Free,
}

/// Reads what has the number of `commit`. What is damaged is nobody's commit, and may be this one. A read may be wrong
/// once, so only what is found twice is damage.
fn taken_by(storage: &dyn ObjectStorage, name: &ObjectName, commit: &Commit) -> Result<Taken> {
    let mut is_again = false;
    loop {
        let bytes = match storage.get(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Taken::Free),
            bytes => bytes?,
        };
        if bytes == commit.encode() && !planted(Bug::LostReplyFences) {
            return Ok(Taken::Own);
        }
        match Commit::decode(&bytes) {
            Err(cause) if cause.kind() == ErrorKind::Corrupt && is_again => {
                return Err(Error::decode(name.as_str(), &cause));
            }
            Err(cause) if cause.kind() == ErrorKind::Corrupt => is_again = true,
            _ => return Ok(Taken::Foreign),
        }
    }
}

/// What a list of commits shows about one commit.
enum Seen {
    /// It is the last one, and all that it needs exists.
    All,
    /// A later one exists.
    Followed,
    /// Somebody deleted it, or one that it needs.
    Gone,
}

fn look(storage: &dyn ObjectStorage, prefix: &ObjectName, commit: &Commit) -> Result<Seen> {
    // A list does not show one moment: a list without the commits that another writer pruned may also lack that writer's
    // snapshot. The next list has it.
    for _ in 0..2 {
        let numbers = numbers(storage, prefix)?;
        if numbers.last().is_some_and(|last| *last > commit.number) {
            return Ok(Seen::Followed);
        }
        let mut needed = commit.base..=commit.number;
        if needed.all(|number| numbers.binary_search(&number).is_ok()) {
            return Ok(Seen::All);
        }
    }
    Ok(Seen::Gone)
}

/// The error for commits that were deleted.
fn gone(prefix: &ObjectName) -> Error {
    let detail = "commits that this process made are not there any more, and nobody took over: somebody deleted them. Reads go on: \
                  save what they read. Bring the commits back, or restore the database from a checkpoint";
    Error::corrupt(prefix.as_str(), detail)
}

#[cfg(test)]
mod tests;
