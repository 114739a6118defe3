//! The shared tree with batches and ranges, for one server alone.
//!
//! The tree changes one key at a time. Nobody sees half of a batch, because the writer has its keys locked, and a
//! command that looks for keys that it does not name locks all keys. The locks are in this process, so no other process
//! may use the tree ([`OwnedTree`]). The end of the process leaves no half of a batch, because the batch is in a
//! journal first ([`journal`]).
//!
//! ```text
//!   one put or deletion ─► the tree
//!   more ─► journal ─► the batch counts ─► its changes, one by one ─► the journal ends
//!              │                                │ the nodes are full
//!              └─ full: nothing was written     └─► unfinished: reads find it, and each write tries to finish it before
//! ```
//!
//! *Full nodes.* A journal that finds no room is taken back; the journal of a batch that only removes goes into a
//! reserve. A batch whose changes find no room counts all the same: it is unfinished. Until it is finished, writes that
//! may need memory are refused, as when the nodes are full. Batches that only remove other keys are carried out, to
//! make room again.
//!
//! *Other failures.* A write that is lost on its way may take effect later, as long as the session lives. So after an
//! error that does not rule out that something was done, nothing more is written. The server ends, and the session with
//! it, and the process that opens the tree next finds all of a batch or nothing.

use crate::records::changes::{self, Change, Changes};
use crate::records::direction::Direction;
use crate::records::journal::{self, Journal, RESERVE_RECORDS, RESERVE_SLOT, RESERVE_USED, Slot};
use crate::records::unfinished::{self, Batch, Unfinished};
use forebay::tree::{Entry, MAX_KEY_BYTES, Range};
use forebay::{Error, ErrorKind, OwnedTree, TreeClient};
use forebay_env::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of a piece of a journal: they fit, with their overhead, into a block of four chunks of the tree.
const PIECE_BYTES: usize = (256 << 10) - 256;
/// Lengths of heads that are padded beyond their changes: a block of each of the tree's sizes holds one of them.
const LONGER_HEADS: [usize; 8] =
    [256 - 32, 512 - 32, 1024 - 32, 2048 - 32, 4096 - 32, 8192 - 32, 16_384 - 32, 32_768 - 32];
/// How often a write that finds no room is tried. Freed memory is available again two rounds of the tree later, and
/// each attempt ends a round.
const ATTEMPTS: u32 = 4;
/// How many keys are removed at a time when a range is removed.
const REMOVED_AT_A_TIME: usize = 512;
/// Records of the first page of a cursor, and of the longest page.
const FIRST_PAGE: usize = 16;
const MAX_PAGE: usize = 1024;
/// Bytes that a page should bring, judged by the page before.
const PAGE_BYTES: usize = 1 << 20;
/// A page ends when it has this many bytes, although fewer were expected.
const MOST_PAGE_BYTES: usize = 4 << 20;

/// What the memory of a tree is used for, and what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeFigures {
    /// Bytes of the nodes' memory that were ever used.
    pub used_bytes: u64,
    /// The part of these bytes in nodes and values.
    pub live_bytes: u64,
    /// Bytes of this process for inner nodes that it remembers.
    pub cached_bytes: u64,
    /// Batches that had a journal.
    pub journals: u64,
    /// Batches that count but are not applied.
    pub unfinished: u64,
}

/// Slots of journals.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<Slot>,
    next: Slot,
}

/// See the module.
#[derive(Debug)]
pub struct TreeRecords {
    /// Clients that nobody uses now. They return what they have to the tree, so they are dropped before it.
    idle: Mutex<Vec<TreeClient>>,
    tree: OwnedTree,
    slots: Mutex<Slots>,
    /// Whether the reserve exists and has no journal.
    is_reserve_free: Mutex<bool>,
    unfinished: Unfinished,
    /// Held by the thread that finishes unfinished batches.
    finishing: Mutex<()>,
    /// Why nothing is written any more.
    failed: OnceLock<Error>,
    piece_bytes: usize,
    journals: AtomicU64,
    /// The used bytes when they were last asked for.
    used_bytes: AtomicU64,
}

fn invalid(message: String) -> Error {
    Error::Below { kind: ErrorKind::Invalid, message }
}

/// Whether an error leaves open whether something was done.
const fn is_unclear(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Full | ErrorKind::Invalid | ErrorKind::Busy | ErrorKind::Corrupt)
}

impl TreeRecords {
    /// Makes the records of this tree.
    #[must_use]
    pub fn new(tree: OwnedTree) -> Self {
        let most = usize::try_from(tree.tree().most_bytes()).unwrap_or(usize::MAX);
        Self {
            piece_bytes: PIECE_BYTES.min(most.saturating_sub(journal::KEY_BYTES)),
            tree,
            idle: Mutex::default(),
            slots: Mutex::default(),
            is_reserve_free: Mutex::new(false),
            unfinished: Unfinished::default(),
            finishing: Mutex::new(()),
            failed: OnceLock::new(),
            journals: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
        }
    }

    /// The tree.
    #[must_use]
    pub const fn tree(&self) -> &OwnedTree {
        &self.tree
    }

    /// Makes a call with a client that no other thread uses meanwhile.
    fn with<T>(&self, call: impl FnOnce(&mut TreeClient) -> Result<T, forebay::tree::Error>) -> Result<T, Error> {
        let idle = lock(&self.idle).pop();
        let mut client = match idle {
            Some(client) => client,
            None => self.tree.client()?,
        };
        let result = call(&mut client);
        lock(&self.idle).push(client);
        Ok(result?)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(state) = self.unfinished.state(key) {
            return Ok(state);
        }
        if key.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        self.with(|client| client.get(key))
    }

    /// The values of the first keys, in few round trips: as many as have at most `budget_bytes`, and at least one. Values
    /// of unfinished batches, which this process holds anyway, do not count.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn multi_get(&self, keys: &[&[u8]], budget_bytes: usize) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let states: Vec<_> = keys.iter().map(|key| self.unfinished.state(key)).collect();
        let is_in_tree = |(key, state): &(&&[u8], &Option<_>)| state.is_none() && key.len() <= MAX_KEY_BYTES;
        let wanted: Vec<&[u8]> = keys.iter().zip(&states).filter(is_in_tree).map(|(key, _)| *key).collect();
        let mut found = self.with(|client| client.multi_get_within(&wanted, budget_bytes))?.into_iter();
        let value = |(key, state): (&&[u8], Option<Option<Vec<u8>>>)| match state {
            Some(state) => Some(state),
            None if key.len() > MAX_KEY_BYTES => Some(None),
            None => found.next(),
        };
        Ok(keys.iter().zip(states).map_while(value).collect())
    }

    /// Writes changes. The caller has their keys locked, and sees all of them or, after an error, none, unless the
    /// server ends after the error ([`TreeRecords::failure`]).
    ///
    /// # Errors
    /// `Invalid` for a key or a record that is too long, or too many changes; `Full`; those of the tree.
    pub fn write(&self, changes: &Changes) -> Result<(), Error> {
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        self.check(changes)?;
        self.finish_before(changes)?;
        let mut all = changes::read(changes.bytes());
        match (all.next().transpose()?, all.next()) {
            (None, _) => Ok(()),
            (Some(change @ (Change::Put(..) | Change::Delete(_))), None) => {
                patiently(|| self.with(|client| make(client, change))).map_err(|error| self.judged(error))
            }
            _ => self.write_with_journal(changes),
        }
    }

    /// Refuses what the tree cannot hold, before anything is written.
    fn check(&self, changes: &Changes) -> Result<(), Error> {
        if changes.longest_key() > MAX_KEY_BYTES {
            return Err(invalid(format!(
                "a key, field or member is too long for the shared tree: with what is added to it it has {} bytes, and at most \
                 {MAX_KEY_BYTES} are possible",
                changes.longest_key()
            )));
        }
        let most = self.tree.tree().most_bytes();
        if changes.longest_record() as u64 > most {
            return Err(invalid(format!(
                "a value is too long for the shared tree: with its key it has {} bytes, and at most {most}, what an extent of the memory \
                 node and one operation over the connection to it hold, are possible",
                changes.longest_record()
            )));
        }
        if changes.bytes().len() as u64 > forebay::MAX_BATCH_BYTES {
            return Err(invalid(format!(
                "too much is written at once: at most {} MiB",
                forebay::MAX_BATCH_BYTES >> 20
            )));
        }
        Ok(())
    }

    /// Takes note of an error after which nothing more may be written.
    fn judged(&self, error: Error) -> Error {
        if is_unclear(&error) {
            tracing::error!(%error, "a write to the shared tree has failed, and nobody knows whether it takes effect: nothing more is written");
            let _ = self.failed.set(error.clone());
        }
        error
    }

    fn write_with_journal(&self, changes: &Changes) -> Result<(), Error> {
        let (slot, pieces) = match self.begin(changes.bytes()) {
            Err(error) if error.kind() == ErrorKind::Full && changes.only_removes() => {
                (self.begin_in_reserve(changes.bytes()).map_err(|_| error)?, 0)
            }
            begun => begun?,
        };
        self.journals.fetch_add(1, Ordering::Relaxed);
        // The batch counts from here on.
        let changes = changes.bytes();
        match patiently(|| self.with(|client| finish(client, slot, pieces, changes))) {
            Ok(()) => self.give_slot(slot),
            Err(error) => {
                let error = self.judged(error);
                tracing::warn!(%error, "a batch counts, and is not applied yet");
                self.unfinished.add(Batch::new(slot, pieces, changes.to_vec())?);
            }
        }
        Ok(())
    }

    /// Writes the journal of changes. Returns its slot, and the number of its pieces. If blocks of its size are used
    /// up, a larger block holds it.
    fn begin(&self, changes: &[u8]) -> Result<(Slot, u16), Error> {
        let many = || invalid("too much is written at once".to_owned());
        let mut journal = Journal::of(changes, self.piece_bytes).ok_or_else(many)?;
        let slot = self.take_slot()?;
        let length = journal.head.len();
        let longer = LONGER_HEADS.iter().copied().filter(|longer| journal.count == 0 && *longer > length);
        let lengths: Vec<usize> = std::iter::once(length).chain(longer).collect();
        let mut begun = Ok(());
        for length in lengths.iter().chain(&lengths) {
            journal.head.resize(*length, 0);
            begun = self.with(|client| begin(client, slot, &journal));
            if !begun.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
                break;
            }
        }
        if let Err(error) = begun {
            let error = self.judged(error);
            // The slot of a journal that may still exist is not used again.
            if !is_unclear(&error) {
                self.give_slot(slot);
            }
            return Err(error);
        }
        Ok((slot, journal.count))
    }

    /// Writes the journal into the reserve.
    fn begin_in_reserve(&self, changes: &[u8]) -> Result<Slot, Error> {
        let busy = || Error::Below { kind: ErrorKind::Full, message: "the reserve is used, or too short".to_owned() };
        let values = journal::reserved(changes).ok_or_else(busy)?;
        if !std::mem::take(&mut *lock(&self.is_reserve_free)) {
            return Err(busy());
        }
        let written = self.with(|client| {
            (1..)
                .zip(&values)
                .try_for_each(|(number, value)| client.put(&journal::reserve_key(number), value).map(drop))?;
            client.put(&journal::head_key(RESERVE_SLOT), RESERVE_USED).map(drop)
        });
        written.map(|()| RESERVE_SLOT).map_err(|error| {
            let error = self.judged(error);
            *lock(&self.is_reserve_free) = !is_unclear(&error);
            error
        })
    }

    fn take_slot(&self) -> Result<Slot, Error> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.free.pop() {
            return Ok(slot);
        }
        let slot = slots.next;
        let used_up = || Error::Below { kind: ErrorKind::Busy, message: "too many batches are unfinished".to_owned() };
        slots.next = slot.checked_add(1).filter(|next| *next < RESERVE_SLOT).ok_or_else(used_up)?;
        Ok(slot)
    }

    fn give_slot(&self, slot: Slot) {
        match slot {
            RESERVE_SLOT => *lock(&self.is_reserve_free) = true,
            slot => lock(&self.slots).free.push(slot),
        }
    }

    /// Finishes unfinished batches before other changes. If that is not possible, only changes that remove other keys
    /// may proceed.
    fn finish_before(&self, changes: &Changes) -> Result<(), Error> {
        if !self.unfinished.any() {
            return Ok(());
        }
        match self.finish_all() {
            Err(_) if changes.only_removes() && !self.unfinished.touches(changes.bytes())? => Ok(()),
            finished => finished,
        }
    }

    fn finish_all(&self) -> Result<(), Error> {
        let _finishing = lock(&self.finishing);
        for batch in self.unfinished.all() {
            let finished = patiently(|| self.with(|client| finish(client, batch.slot, batch.pieces, &batch.changes)));
            finished.map_err(|error| self.judged(error))?;
            self.unfinished.remove(batch.slot);
            self.give_slot(batch.slot);
        }
        Ok(())
    }

    /// Finishes the batches of an earlier process. Nobody uses the records yet.
    ///
    /// # Errors
    /// `Corrupt` when a journal is damaged; those of the tree, except `Full`: batches without room stay unfinished.
    pub fn recover(&self) -> Result<(), Error> {
        let mut slots: BTreeMap<Slot, BTreeMap<u16, Vec<u8>>> = BTreeMap::new();
        let (from, to) = journal::area();
        let range = Range { from: Bound::Included(&from), to: Bound::Excluded(&to), ..Range::all() };
        for (key, value) in self.with(|client| client.scan(range))? {
            let (slot, piece) = journal::named(&key).ok_or_else(|| changes::damaged("the name of a journal"))?;
            slots.entry(slot).or_default().insert(piece, value);
        }
        lock(&self.slots).next = slots.keys().last().map_or(0, |last| last.saturating_add(1));
        for (slot, mut pieces) in slots {
            let keys: Vec<_> = pieces.keys().map(|piece| journal::key(slot, *piece)).collect();
            match pieces.remove(&0).filter(|head| !head.is_empty()) {
                Some(head) => {
                    let pieces: Vec<_> = pieces.into_values().collect();
                    let changes = journal::changes(&head, &pieces)?;
                    let count = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
                    self.unfinished.add(Batch::new(slot, count, changes)?);
                }
                // The journal was not begun, or it has ended.
                None => {
                    self.with(|client| keys.iter().try_for_each(|key| client.delete(key).map(drop)))?;
                    self.give_slot(slot);
                }
            }
        }
        self.recover_reserve()?;
        if self.unfinished.any() {
            tracing::info!(batches = self.unfinished.all().len(), "batches of the process before are finished");
        }
        match self.finish_all() {
            Err(error) if error.kind() == ErrorKind::Full => {
                tracing::warn!(%error, "batches of the process before are not applied yet");
                Ok(())
            }
            finished => finished,
        }
    }

    /// Reads the reserve, or creates it.
    fn recover_reserve(&self) -> Result<(), Error> {
        let (from, to) = journal::reserve_area();
        let range = Range { from: Bound::Included(&from), to: Bound::Excluded(&to), ..Range::all() };
        let records: Vec<Vec<u8>> =
            self.with(|client| client.scan(range))?.into_iter().map(|(_, value)| value).collect();
        if let Some((RESERVE_USED, values)) = records.split_first().map(|(first, values)| (&first[..], values)) {
            self.unfinished.add(Batch::new(RESERVE_SLOT, 0, journal::changes_of_reserve(values)?)?);
            return Ok(());
        }
        let is_whole = records.len() > RESERVE_RECORDS as usize;
        // The first record is created last, and says that all of them exist.
        let mut missing = (0..=RESERVE_RECORDS).rev().filter(|_| !is_whole);
        let made =
            self.with(|client| missing.try_for_each(|number| client.put(&journal::reserve_key(number), b"").map(drop)));
        match made {
            Err(error) if error.kind() == ErrorKind::Full => {
                tracing::warn!(%error, "there is no room for the reserve: what removes several keys may find none, either");
                Ok(())
            }
            made => {
                *lock(&self.is_reserve_free) = made.is_ok();
                made
            }
        }
    }

    /// Returns why the tree is of no use any more, if that is so: nobody knows what failed writes did, or the session
    /// at a node has ended.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.tree.failure().or_else(|| self.failed.get().cloned())
    }

    /// Bytes of the nodes' memory that the tree has.
    pub fn used_bytes(&self) -> u64 {
        if let Ok(used) = self.with(TreeClient::used_bytes) {
            self.used_bytes.store(used, Ordering::Relaxed);
        }
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The figures. They read lists of free memory at the nodes.
    pub fn figures(&self) -> TreeFigures {
        let memory = self.with(TreeClient::memory).unwrap_or_default();
        TreeFigures {
            used_bytes: memory.used_bytes,
            live_bytes: memory.live_bytes(),
            cached_bytes: self.tree.tree().cached_bytes() as u64,
            journals: self.journals.load(Ordering::Relaxed),
            unfinished: self.unfinished.all().len() as u64,
        }
    }

    /// Releases the tree to other processes. All calls fail from here on.
    ///
    /// # Errors
    /// What made the tree of no use, or why batches were not finished: the process that opens the tree next finishes
    /// them.
    pub fn close(&self) -> Result<(), Error> {
        let failure = self.failure();
        let finished = if failure.is_none() { self.finish_all() } else { Ok(()) };
        let _ = self.failed.set(Error::Below { kind: ErrorKind::Closed, message: "the tree is closed".to_owned() });
        lock(&self.idle).clear();
        self.tree.close();
        failure.map_or(finished, Err)
    }

    /// Returns the records of a page, from a bound on, and the last key that the tree gave, if there may be more. The
    /// next page follows that key.
    fn page(&self, at: &TreeCursor<'_>) -> Result<(Vec<Entry>, Option<Vec<u8>>), Error> {
        let (from, to) = (at.from.as_ref().map(Vec::as_slice), at.to.as_ref().map(Vec::as_slice));
        let backward = at.direction == Direction::Backward;
        let batches = self.unfinished.all();
        let (mut entries, mut bytes) = (Vec::<Entry>::new(), 0);
        let take = |key: &[u8], value: &[u8]| {
            bytes += key.len() + value.len();
            entries.push((key.to_vec(), value.to_vec()));
            bytes < MOST_PAGE_BYTES
        };
        self.with(|client| client.scan_while(Range { from, to, backward, limit: at.portion }, take))?;
        let is_cut = entries.len() >= at.portion || bytes >= MOST_PAGE_BYTES;
        let last = entries.last().filter(|_| is_cut).map(|(key, _)| key.clone());
        let covered = match (&last, backward) {
            (None, _) => (from, to),
            (Some(last), false) => (from, Bound::Included(&last[..])),
            (Some(last), true) => (Bound::Included(&last[..]), to),
        };
        unfinished::amend(&batches, &mut entries, covered, at.direction);
        Ok((entries, last))
    }

    /// A cursor before the first record of a range.
    #[must_use]
    pub fn cursor(&self, from: &[u8], to: &[u8], direction: Direction) -> TreeCursor<'_> {
        TreeCursor {
            records: self,
            from: Bound::Included(from.to_vec()),
            to: Bound::Excluded(to.to_vec()),
            direction,
            portion: FIRST_PAGE,
            page: Vec::new().into_iter(),
            here: None,
            is_last: from >= to,
        }
    }
}

/// Tries again when there is no room.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Full => {}
            done => return done,
        }
    }
    attempt()
}

/// Writes a journal. Takes it back when something is known to have failed; then the head does not exist.
fn begin(client: &mut TreeClient, slot: Slot, journal: &Journal<'_>) -> Result<(), forebay::tree::Error> {
    let keys: Vec<_> = (1..).map(|piece| journal::key(slot, piece)).take(journal.pieces.len()).collect();
    let mut pieces = keys.iter().zip(&journal.pieces);
    let written = pieces.try_for_each(|(key, piece)| client.put(key, piece).map(drop));
    let begun = written.and_then(|()| client.put(&journal::key(slot, 0), &journal.head).map(drop));
    if begun.is_err() {
        // Pieces that cannot be removed have no head, so they mean nothing.
        keys.iter().for_each(|key| _ = client.delete(key));
    }
    begun
}

/// Makes the changes of a journal, and ends it.
fn finish(client: &mut TreeClient, slot: Slot, pieces: u16, changes: &[u8]) -> Result<(), forebay::tree::Error> {
    for change in changes::read(changes).map_while(Result::ok) {
        make(client, change)?;
    }
    client.put(&journal::head_key(slot), b"")?;
    (1..=pieces).try_for_each(|piece| client.delete(&journal::key(slot, piece)).map(drop))
}

/// Makes a change. Removing a range takes several bounded steps.
fn make(client: &mut TreeClient, change: Change<'_>) -> Result<(), forebay::tree::Error> {
    match change {
        Change::Put(key, value) => client.put(key, value).map(drop),
        Change::Delete(key) => client.delete(key).map(drop),
        Change::DeleteRange(from, to) => loop {
            let (from, to) = (Bound::Included(from), Bound::Excluded(to));
            let (range, mut keys) = (Range { from, to, backward: false, limit: REMOVED_AT_A_TIME }, Vec::new());
            client.scan_with(range, |key, _| keys.push(key.to_vec()))?;
            keys.iter().try_for_each(|key| client.delete(key).map(drop))?;
            if keys.len() < REMOVED_AT_A_TIME {
                return Ok(());
            }
        },
    }
}

/// A place among the records of a range of the tree.
#[derive(Debug)]
pub struct TreeCursor<'s> {
    records: &'s TreeRecords,
    /// The range that was not read yet.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    /// Records of the next page.
    portion: usize,
    page: std::vec::IntoIter<Entry>,
    here: Option<Entry>,
    /// Whether there are no more pages.
    is_last: bool,
}

impl TreeCursor<'_> {
    /// The record here; `None` at the end, and before the first step.
    #[must_use]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.here.as_ref().map(|(key, value)| (&key[..], &value[..]))
    }

    /// Goes to the next record.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn step(&mut self) -> Result<(), Error> {
        self.here = self.page.next();
        while self.here.is_none() && !self.is_last {
            self.turn()?;
            self.here = self.page.next();
        }
        Ok(())
    }

    /// Reads the next page.
    fn turn(&mut self) -> Result<(), Error> {
        let (entries, last) = self.records.page(self)?;
        let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let fitting = entries.len().max(1).saturating_mul(PAGE_BYTES) / bytes.max(1);
        self.portion = fitting.clamp(1, self.portion.saturating_mul(4).min(MAX_PAGE));
        self.is_last = last.is_none();
        match (last, self.direction) {
            (None, _) => {}
            (Some(last), Direction::Forward) => self.from = Bound::Excluded(last),
            (Some(last), Direction::Backward) => self.to = Bound::Excluded(last),
        }
        self.page = entries.into_iter();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
