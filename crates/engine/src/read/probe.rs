//! Where a key's records may be: the walk of a point lookup over the tables.

use crate::remote::segment::Remote;
use crate::tree::learnt::{Address, Learnt};
use crate::tree::table::{Places, Table};
use crate::tree::version::LiveVersion;
use forebay_base::{Record, SequenceNumber};
use forebay_fabric::prefetch;
use forebay_table::{Candidate, PointIndex, TableId, key_hash};
use std::sync::Arc;

/// Candidates for a key, newest first: the tables of level 0 from newest to oldest, then one table of each further
/// level. Costs no fabric operation where the point indexes are held.
///
/// If a range deletion of a table hides the key, the walk ends with this table: everything after it is older.
pub(crate) struct Probe<'v> {
    /// The member where the tables are read.
    at: &'v Remote,
    version: &'v LiveVersion,
    learnt: &'v Learnt,
    user_key: &'v [u8],
    hash: u64,
    number: SequenceNumber,
    walk: Walk,
    /// The next table of the walk, if it was already determined.
    ahead: Option<&'v Arc<Table>>,
    current: Option<(&'v Arc<Table>, Places<'v>)>,
    /// The table that the walk has reached.
    visited: Option<&'v Arc<Table>>,
    /// A table whose point index is not held and that was not looked up yet.
    waiting: Option<&'v Arc<Table>>,
    /// Results of lookups in tables whose point index is not held.
    looked_up: Vec<(TableId, Answer)>,
    /// The record that the walk has reached, if it came with an answer.
    delivered: Option<(&'v Arc<Table>, Delivered)>,
    /// The number of the record that the walk goes to because its address was learnt.
    trusted: Option<SequenceNumber>,
    /// Whether this walk ignores learnt addresses, because a record turned out not to be the one that was learnt.
    distrusts: bool,
    /// Number of the newest range deletion over the key, once the walk has reached it.
    hidden: Option<SequenceNumber>,
}

/// What a lookup says of a table whose point index is not held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has no record of the key that the read may see.
    Absent,
    /// The newest one is at this place.
    At(Candidate),
    /// The newest one came with the answer, and is verified.
    Here(Delivered),
}

/// A record that came with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) record: Arc<[u8]>,
    pub(crate) sequence: SequenceNumber,
    /// Where the record is.
    pub(crate) place: Candidate,
}

/// The next step of a walk.
#[derive(Clone, Copy)]
pub(crate) enum Step<'v> {
    /// There may be a record of the key here.
    Record(&'v Arc<Table>, Candidate),
    /// The newest record of the key that the read may see came with an answer: [`Probe::take_delivered`].
    Delivered,
    /// The walk has reached a table whose point index is not held. [`Probe::look_up`] continues it.
    Index,
}

/// Which tables of a version may hold a key.
#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    level: usize,
    /// Number of tables of level 0 visited so far.
    position: usize,
}

impl Walk {
    fn next<'v>(&mut self, version: &'v LiveVersion, user_key: &[u8]) -> Option<&'v Arc<Table>> {
        let levels = version.levels();
        if self.level == 0 {
            let level0 = levels.first().map_or(&[][..], Vec::as_slice);
            while let Some(table) = level0.get(self.position) {
                self.position += 1;
                if table.properties().may_contain(user_key) {
                    return Some(table);
                }
            }
            self.level = 1;
        }
        while self.level < levels.len() {
            let found = version.find(self.level, user_key);
            self.level += 1;
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl<'v> Probe<'v> {
    /// Returns a walk through a version, read at a member.
    pub(crate) fn new(
        at: &'v Remote,
        learnt: &'v Learnt,
        version: &'v LiveVersion,
        user_key: &'v [u8],
        number: SequenceNumber,
    ) -> Self {
        Self {
            at,
            version,
            learnt,
            user_key,
            hash: key_hash(user_key),
            number,
            walk: Walk::default(),
            ahead: None,
            current: None,
            visited: None,
            waiting: None,
            looked_up: Vec::new(),
            delivered: None,
            trusted: None,
            distrusts: false,
            hidden: None,
        }
    }

    /// Goes to the first table, and prefetches the part of its point index that locates the key's entries.
    #[inline]
    pub(crate) fn approach(&mut self) {
        self.ahead = self.walk.next(self.version, self.user_key);
        if let Some(index) = self.index_ahead() {
            prefetch(index.bucket_bytes(self.hash));
        }
    }

    /// After [`Probe::approach`]: prefetches those entries. Returns whether there is a table.
    #[inline]
    pub(crate) fn approach_entries(&self) -> bool {
        if let Some(index) = self.index_ahead() {
            prefetch(index.entries_bytes(self.hash));
        }
        self.ahead.is_some()
    }

    #[inline]
    fn index_ahead(&self) -> Option<&'v PointIndex> {
        self.ahead?.cached().point_index()
    }

    /// The member where the tables are read.
    #[inline]
    pub(crate) fn at(&self) -> &'v Remote {
        self.at
    }

    /// The key.
    #[inline]
    pub(crate) fn user_key(&self) -> &'v [u8] {
        self.user_key
    }

    /// The sequence number of the read.
    #[inline]
    pub(crate) fn number(&self) -> SequenceNumber {
        self.number
    }

    /// Number of the range deletion that hides the key's older records, if the current candidate's
    /// table has one.
    #[inline]
    pub(crate) fn hidden(&self) -> Option<SequenceNumber> {
        self.hidden
    }

    /// The next step; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Step<'v>> {
        loop {
            if let Some((table, places)) = &mut self.current
                && let Some(candidate) = places.next()
            {
                return Some(Step::Record(table, candidate));
            }
            if self.waiting.is_some() {
                return Some(Step::Index);
            }
            if self.trusted.is_some() && (self.delivered.is_some() || self.hidden.is_some()) {
                self.start_anew();
                continue;
            }
            if self.delivered.is_some() {
                return Some(Step::Delivered);
            }
            if self.hidden.is_some() {
                return None;
            }
            let table = match self.ahead.take() {
                Some(table) => table,
                None => self.walk.next(self.version, self.user_key)?,
            };
            if self.version.has_range_deletions() {
                self.hidden = table.range_deletions().newest_over(self.user_key, self.number);
            }
            self.visit(table);
        }
    }

    /// Goes to the places of the key in a table, if they are known.
    #[inline]
    fn visit(&mut self, table: &'v Arc<Table>) {
        (self.current, self.waiting, self.visited) = (None, None, Some(table));
        match self.known(table).cloned() {
            Some(Answer::Absent) => {}
            Some(Answer::At(place)) => self.current = Some((table, Places::Copied(vec![place].into_iter()))),
            Some(Answer::Here(delivered)) => self.delivered = Some((table, delivered)),
            None => match table.places(self.hash) {
                Some(places) => self.current = Some((table, places)),
                None => self.waiting = Some(table),
            },
        }
    }

    /// Takes the record of [`Step::Delivered`]. It is known to be the newest only once the walk has reached it and
    /// passed all tables before it, those with indexes included.
    pub(crate) fn take_delivered(&mut self) -> Option<Arc<[u8]>> {
        let (table, Delivered { record, sequence, place }) = self.delivered.take()?;
        self.learn(table, place, sequence);
        Some(record)
    }

    /// What lookups have said of the table.
    fn known(&self, table: &Table) -> Option<&Answer> {
        self.looked_up.iter().find(|(id, _)| *id == table.id()).map(|(_, answer)| answer)
    }

    /// Makes the walk go from a record to older ones ([`Probe::go_behind`]). It ignores learnt addresses, as they are
    /// those of newest records.
    pub(crate) fn towards_older(mut self) -> Self {
        self.distrusts = true;
        self
    }

    /// Continues to records up to `number`. All of them are older than the one that the walk has reached.
    pub(crate) fn go_behind(&mut self, number: SequenceNumber) {
        self.number = number;
        // A lookup in a table returns only its newest record.
        self.looked_up.clear();
        if !matches!(self.current, Some((_, Places::Cached(_)))) {
            (self.current, self.delivered, self.waiting) = (None, None, self.visited);
        }
    }

    /// Whether the walk has reached a table whose point index is not held.
    pub(crate) fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// The remaining tables of the walk whose point indexes are not held, starting with the one it waits for.
    pub(crate) fn without_index(&self) -> Vec<&'v Arc<Table>> {
        let Some(waiting) = self.waiting else { return Vec::new() };
        let mut tables = vec![waiting];
        let mut walk = self.walk;
        while self.hidden.is_none()
            && let Some(table) = walk.next(self.version, self.user_key)
        {
            if !table.has_places() && self.known(table).is_none() {
                tables.push(table);
            }
        }
        tables
    }

    /// Continues with results for tables of [`Probe::without_index`]. Without a result for the table that the walk
    /// waits for, it continues to wait.
    pub(crate) fn look_up(&mut self, found: Vec<(TableId, Answer)>) {
        self.looked_up.extend(found);
        if let Some(table) = self.waiting
            && self.known(table).is_some()
        {
            self.visit(table);
        }
    }

    /// Continues with an address that an earlier lookup learnt, if there is one.
    pub(crate) fn look_up_learnt(&mut self) {
        if self.distrusts || self.waiting.is_none() {
            return;
        }
        let tables = self.without_index();
        let Some(address) = self.learnt.find(self.hash, self.number, tables.iter().map(|table| &***table)) else {
            return;
        };
        let before = tables.iter().take_while(|table| table.id() != address.table);
        let mut found: Vec<_> = before.map(|table| (table.id(), Answer::Absent)).collect();
        found.push((address.table, Answer::At(address.place)));
        self.trusted = Some(address.sequence);
        self.look_up(found);
    }

    /// Whether a record that was read is the newest of the key that the read may see.
    pub(crate) fn accepts(&mut self, table: &Table, place: Candidate, record: &Record<'_>) -> bool {
        let sequence = record.tag.sequence();
        let is_visible = record.key == self.user_key && sequence <= self.number;
        let is_looked_up = self.known(table).is_some();
        match self.trusted {
            None if is_visible && is_looked_up => self.learn(table, place, sequence),
            // It was learnt before.
            Some(trusted) if is_visible && is_looked_up && trusted == sequence => {}
            Some(_) if is_visible || is_looked_up => {
                self.start_anew();
                return false;
            }
            _ => {}
        }
        is_visible
    }

    /// Starts the walk again, without the address that was learnt. Until the record there has turned out to be the
    /// key's, the address may be that of another key with the same hash. Then the tables that were passed because of it
    /// may have the key's newest record, whatever the walk has met in other tables since.
    #[cold]
    fn start_anew(&mut self) {
        self.learnt.forget(self.hash);
        let anew = Self::new(self.at, self.learnt, self.version, self.user_key, self.number);
        *self = Self { distrusts: true, ..anew };
    }

    /// Remembers the place of a record that a lookup found and that the walk has reached.
    fn learn(&self, table: &Table, place: Candidate, sequence: SequenceNumber) {
        self.learnt.learn(self.hash, Address { table: table.id(), place, sequence, newest_to: self.number });
    }
}

#[cfg(test)]
mod tests;
