//! A register in memory nodes: what more than half of the voting nodes say counts.
//!
//! Each of these nodes, the *voters*, has a cell: the root of a shard beside the database's own in its store. The node refuses to
//! set it at an epoch that has passed, which makes it an acceptor of Paxos:
//!
//! ```text
//!   acquire      at more than half of the voters, again until all have one epoch: the ballot
//!                from here on no earlier ballot can reach more than half
//!   read         what the highest ballot says, and of it the last write
//!   claim        write that again, at the own ballot; the first claim is written to the cells of all founders, or fails
//!   write        to all; it counts when more than half have it
//!
//!   regain       a cell whose node is back by another session, or that may get a write late: its epoch has passed, or must
//!                pass. So acquire, read and claim as above, but take no cell from another process, and continue only if
//!                nobody has said anything at a later ballot than the own one
//!
//!   silent       a cell that did not answer is not waited for again before its node has answered anything, unless too few decide
//!                without it. What it was sent may come late; see `regain`: it is acquired anew before it is written again
//!
//!   replace      a voter whose node came back empty, by the node's next life (`docs/decisions/0065`):
//!     learn      the new one is acquired, too, and gets what is written; it does not count
//!     change     a write that says who votes, and who did before: it counts when more than half of both have it
//!     vote       a write that says who votes: from here on those alone decide
//! ```
//!
//! Two owners cannot have one ballot: any two majorities of the voters share a voter, and that gives an epoch once.
//! What counts was written to more than half, so a process that acquires as many sees it, or has kept it from counting.
//! Who votes is a part of what is written. So a reader follows it to those that vote now, and while that changes, needs
//! more than half of both.

use crate::durable::member_register::{Register, member};
use crate::durable::named::{CELL, Part};
use crate::durable::recovery::acquire_shard;
use crate::terms::{Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_memory_client::{Epoch, ShardHandle, StoreHandle};
use forebay_table::{Ballot, MemberNode, MembersRecord};
use std::sync::Arc;

/// How often to raise epochs that others raise at the same time.
const ATTEMPTS: u32 = 100;

/// Whether two members are lives of one node.
type AreOne = fn(MemberNode, MemberNode) -> bool;

/// The cell of a node that votes, or is about to.
#[derive(Debug)]
struct Cell {
    node: MemberNode,
    store: StoreHandle,
    /// Whether the store is as old as the database. A store that came later says nothing before it votes. If it says
    /// nothing then, it was made again at a node that has forgotten what it said.
    is_first: bool,
    /// The store by another session, for when this session has ended.
    next: Option<StoreHandle>,
    /// The cell as this process acquired it; `None` if it did not by this session, or if somebody else has since.
    shard: Option<ShardHandle>,
    /// How many calls the node had answered when it did not answer the last one.
    silent_at: Option<u64>,
}

/// The cells that can be reached and count, acquired at one epoch.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    /// What the cells say.
    pub(crate) said: MembersRecord,
    /// On how many nodes the database was created.
    founders: usize,
    /// Cells of all nodes that are there, also by the same sessions.
    others: Vec<Cell>,
}

impl Cells {
    /// Acquires the cells of the voters among the nodes that have these parts, and reads what counts.
    ///
    /// # Errors
    /// `Busy` when another process has the database open, and it is not to be taken over; `Unavailable` when not more than
    /// half of the voters can be reached.
    pub(crate) fn acquire<'p>(parts: impl Iterator<Item = &'p Part>, options: &Options) -> Result<Self> {
        let mut founders = 0;
        let known = parts.inspect(|part| founders = founders.max(part.founders()));
        let cells = known.map(Cell::new).collect();
        let mut acquired = Self { cells, said: MembersRecord::default(), founders, others: Vec::new() };
        for _ in 0..ATTEMPTS {
            let highest = acquired.highest()?;
            if acquired.acquire_voters(highest.as_ref(), options)? {
                continue;
            }
            // What was read after the last of them was acquired.
            acquired.keep_voters(highest)?;
            return Ok(acquired);
        }
        Err(Error::new(ErrorKind::Busy, "other processes open the database at the same time: try again"))
    }

    /// What the cells of these parts say, as far as they can be read. Acquires none.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported`.
    pub(crate) fn look<'p>(parts: impl Iterator<Item = &'p Part>) -> Result<MembersRecord> {
        let cells = parts.map(Cell::new).collect();
        let mut found = Self { cells, said: MembersRecord::default(), founders: 0, others: Vec::new() };
        Ok(found.highest()?.unwrap_or_default())
    }

    /// Whether a process has acquired one of the cells of these parts, or may have. If not, nobody has claimed the
    /// register: the first claim needs the cells of all founders.
    ///
    /// # Errors
    /// Those of reading a root.
    pub(crate) fn are_used(parts: &[Part]) -> Result<bool> {
        for part in parts {
            // The nodes of the other parts came after the first claim.
            if !part.is_founder() {
                return Ok(true);
            }
            match part.store.root(CELL).map_err(Error::from) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if !error.is_out_of_reach() => return Err(error),
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// What the highest ballot says, wherever that can be read; `None` when nobody has said anything. Forgets nodes
    /// that cannot be reached, and those that have forgotten what they said.
    fn highest(&mut self) -> Result<Option<MembersRecord>> {
        let mut said = Vec::with_capacity(self.cells.len());
        let mut counts = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            match cell.said() {
                Ok(record) => {
                    counts.push(cell.is_first || record.is_some());
                    said.extend(record);
                }
                Err(error) if error.is_out_of_reach() => counts.push(false),
                Err(error) => return Err(error),
            }
        }
        let mut counts = counts.into_iter();
        self.cells.extract_if(.., |_| counts.next() != Some(true)).for_each(Cell::release);
        Ok(said.into_iter().max_by_key(|record| record.ballot.as_ref().map(|of| (of.epoch, of.write))))
    }

    /// Acquires the voters that are not acquired yet. Returns whether there were any.
    fn acquire_voters(&mut self, highest: Option<&MembersRecord>, options: &Options) -> Result<bool> {
        let is_voter = |cell: &Cell| highest.is_none_or(|record| names(record, cell.node));
        let mut has_acquired = false;
        for cell in self.cells.iter_mut().filter(|cell| is_voter(cell) && cell.shard.is_none()) {
            has_acquired = true;
            match acquire_shard(&cell.store, options, || cell.store.acquire_shard(CELL, options.takeover)) {
                Ok(shard) => cell.shard = Some(shard),
                Err(error) if error.is_out_of_reach() => {}
                Err(error) => return Err(error),
            }
        }
        if !has_acquired {
            return Ok(false);
        }
        self.cells.retain(|cell| !is_voter(cell) || cell.shard.is_some());
        let voters = self.cells.iter_mut().filter(|cell| is_voter(cell));
        let Raised { epoch, failure } = raise(voters, options.takeover)?;
        if let Some(failure) = failure.filter(|failure| !failure.is_out_of_reach()) {
            return Err(failure);
        }
        let is_behind = |cell: &mut Cell| cell.epoch().is_some_and(|of| of != epoch);
        self.cells.extract_if(.., is_behind).for_each(Cell::release);
        Ok(true)
    }

    /// Keeps the cells of the voters, and what they say, if they are enough to decide.
    fn keep_voters(&mut self, highest: Option<MembersRecord>) -> Result<()> {
        let is_voter = |cell: &Cell| highest.as_ref().is_none_or(|record| names(record, cell.node));
        self.cells.extract_if(.., |cell| !is_voter(cell)).for_each(Cell::release);
        let reached: Vec<_> = self.cells.iter().map(|cell| cell.node).collect();
        let ballot = highest.as_ref().and_then(|record| record.ballot.as_ref());
        let is_decided = match ballot {
            Some(ballot) => ballot.is_decided_by(&reached),
            // Nothing was ever claimed, if those that do not say so are not enough to decide.
            None => self.founders.saturating_sub(reached.len()) <= self.founders / 2,
        };
        if !is_decided {
            return Err(too_few(reached.len(), ballot.map_or(self.founders, |ballot| ballot.voters.len())));
        }
        self.said = highest.unwrap_or_default();
        Ok(())
    }

    /// Checks that these cells can claim a register that nobody has claimed.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn check_founders(&self) -> Result<()> {
        if self.said.ballot.is_some() || self.cells.len() >= self.founders {
            return Ok(());
        }
        Err(not_all(self.cells.len(), self.founders))
    }

    /// Adds the nodes that are there by now, which may come to vote.
    pub(crate) fn add<'p>(&mut self, parts: impl Iterator<Item = &'p Part>) {
        self.others.extend(parts.map(Cell::new));
    }

    fn epoch(&self) -> Epoch {
        self.cells.iter().filter_map(Cell::epoch).max().unwrap_or_default()
    }

    /// Makes this process the owner: writes again what is said, or `first` when nothing is.
    ///
    /// # Errors
    /// `Fenced` when another process was faster; `Unavailable`, also when nothing is said, and a founder's cell is missing.
    pub(crate) fn claim(self, first: &MembersRecord) -> Result<(Box<dyn Register>, MembersRecord)> {
        let (register, said) = self.claim_with(first, |one, other| one.node == other.node)?;
        Ok((Box::new(register), said))
    }

    fn claim_with(mut self, first: &MembersRecord, are_one: AreOne) -> Result<(NodeRegister, MembersRecord)> {
        self.check_founders()?;
        let is_first = self.said.ballot.is_none();
        let said = if self.said.database.is_none() { first.clone() } else { self.said.clone() };
        let here = || self.cells.iter().map(|cell| cell.node).collect();
        let first = || Ballot { epoch: 0, write: 0, voters: here(), before: Vec::new() };
        let ballot = self.said.ballot.clone().unwrap_or_else(first);
        let ballot = Ballot { epoch: self.epoch().0, write: 0, ..ballot };
        let (cells, returned) = (std::mem::take(&mut self.cells), std::mem::take(&mut self.others));
        let mut register = NodeRegister { cells, returned, ballot, are_one, ended: None };
        let claimed = if is_first { register.write_first(&said) } else { register.write(&said) };
        match claimed {
            Ok(()) => Ok((register, said)),
            Err(error) => {
                // Others can acquire what is not claimed.
                register.release();
                Err(error)
            }
        }
    }
}

impl Drop for Cells {
    /// Cells that are not claimed can be acquired by others.
    fn drop(&mut self) {
        self.cells.drain(..).for_each(Cell::release);
    }
}

impl Cell {
    /// A cell that was not acquired yet.
    fn new(part: &Part) -> Self {
        let (node, store) = (member(part.store.client().node()), part.store.clone());
        Self { node, store, is_first: part.is_founder(), next: None, shard: None, silent_at: None }
    }

    /// Whether the cell did not answer, and its node has answered nothing since.
    fn is_silent(&self) -> bool {
        self.silent_at.is_some_and(|answers| self.store.client().answers() == answers)
    }

    /// Notes that a call has failed.
    fn note(&mut self, failure: ErrorKind) {
        if matches!(failure, ErrorKind::Unavailable | ErrorKind::TimedOut) {
            self.silent_at = Some(self.store.client().answers());
        }
    }

    /// The epoch at which this process acquired the cell.
    fn epoch(&self) -> Option<Epoch> {
        self.shard.as_ref().map(ShardHandle::epoch)
    }

    /// Whether the session lives, as far as is known.
    fn is_there(&self) -> bool {
        self.store.client().is_there()
    }

    /// Switches to the next session, if there is one and this one has ended.
    fn follow(&mut self) {
        if !self.is_there()
            && let Some(next) = self.next.take()
        {
            (self.store, self.shard, self.silent_at) = (next, None, None);
        }
    }

    /// Returns what the cell says, no matter who owns it.
    fn said(&self) -> Result<Option<MembersRecord>> {
        match self.store.root(CELL) {
            Ok(root) => Ok(root.map(|(_, root)| MembersRecord::decode(&root)).transpose()?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires the cell until its epoch is `least` or later.
    fn raise(&mut self, least: Epoch, takeover: bool) -> Result<()> {
        while self.epoch() < Some(least) {
            self.shard = Some(self.store.acquire_shard(CELL, takeover)?);
        }
        Ok(())
    }

    fn release(self) {
        if let Some(Err(error)) = self.shard.map(|shard| shard.release()) {
            tracing::debug!(%error, "releasing a cell of the register: it ends with the session");
        }
    }
}

fn not_all(reached: usize, founders: usize) -> Error {
    let message = format!(
        "{reached} of the {founders} memory nodes on which the database is being created can be reached, and all of them are needed"
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn too_few(reached: usize, voters: usize) -> Error {
    let message = format!(
        "{reached} of the {voters} memory nodes can be reached that say who holds the database's copies: more than \
         half of them are needed, and one that was started again has forgotten it. Name a register that the database was \
         created with, if there is one"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether a record says that a node votes, or did before.
fn names(record: &MembersRecord, node: MemberNode) -> bool {
    record.ballot.as_ref().is_some_and(|ballot| ballot.names(node))
}

/// Cells that were brought to one epoch.
struct Raised {
    epoch: Epoch,
    /// Why another cell does not have it, if one does not.
    failure: Option<Error>,
}

/// Brings cells to one epoch, except those that fail.
///
/// # Errors
/// `Busy` when others do the same.
fn raise<'c>(cells: impl Iterator<Item = &'c mut Cell>, takeover: bool) -> Result<Raised> {
    let mut cells: Vec<_> = cells.collect();
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        let epoch = cells.iter().filter_map(|cell| cell.epoch()).max().unwrap_or_default();
        let is_behind = |cell: &&mut Cell| cell.epoch() < Some(epoch);
        if !cells.iter().any(is_behind) {
            return Ok(Raised { epoch, failure });
        }
        cells.retain_mut(|cell| match cell.raise(epoch, takeover) {
            Ok(()) => true,
            Err(error) => {
                cell.note(error.kind());
                failure.get_or_insert(error);
                false
            }
        });
    }
    Err(Error::new(ErrorKind::Busy, "other processes open the database at the same time: try again"))
}

/// See the module.
#[derive(Debug)]
struct NodeRegister {
    /// Cells of the voters, and of nodes that are to vote.
    cells: Vec<Cell>,
    /// Cells of nodes that are back, and may vote, or come to.
    returned: Vec<Cell>,
    /// The ballot of the last claim: its epoch was acquired at enough voters to decide, none of which said a later one.
    ballot: Ballot,
    are_one: AreOne,
    /// Why this process no longer writes anything, if so.
    ended: Option<Error>,
}

impl NodeRegister {
    /// Switches to sessions at nodes that are back.
    fn follow(&mut self) {
        for cell in std::mem::take(&mut self.returned) {
            self.take_up(cell);
        }
        self.cells.iter_mut().for_each(Cell::follow);
        self.cells.retain(|cell| cell.is_there() || self.ballot.names(cell.node));
    }

    /// Takes up a cell of a node that is back, or keeps it for later.
    fn take_up(&mut self, mut cell: Cell) {
        let is_same = |known: &Cell| Arc::ptr_eq(known.store.client(), cell.store.client());
        if !cell.is_there() || self.cells.iter().any(is_same) {
            return;
        }
        if cell.is_silent() {
            return self.returned.push(cell);
        }
        if self.ballot.names(cell.node) && !cell.is_first {
            match cell.said() {
                Ok(Some(_)) => {}
                Ok(None) => {
                    tracing::warn!(node = cell.node.node, "a memory node has forgotten who holds the copies");
                    return;
                }
                Err(error) => {
                    cell.note(error.kind());
                    return self.returned.push(cell);
                }
            }
        }
        let is_to_vote = self.ballot.names(cell.node) || self.lost_life(cell.node).is_some();
        // A session at the same node has the cell as long as it lives.
        match self.cells.iter_mut().find(|known| known.node == cell.node) {
            Some(known) => known.next = Some(cell.store),
            None if is_to_vote => self.cells.push(cell),
            None => self.returned.push(cell),
        }
    }

    /// The voter that is an earlier life of this node, and is no longer there.
    fn lost_life(&self, node: MemberNode) -> Option<MemberNode> {
        let is_there = |voter: MemberNode| self.cells.iter().any(|cell| cell.node == voter && cell.is_there());
        self.ballot.voters.iter().copied().find(|voter| (self.are_one)(*voter, node) && !is_there(*voter))
    }

    /// The cells of an epoch.
    fn cells_at(&self, epoch: Epoch) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.epoch() == Some(epoch))
    }

    /// Acquires cells again that are back by another session, or that a late call took away, and claims the register at
    /// an epoch that they also have. Nothing is taken from another process. If this does not succeed, the ballot stays.
    ///
    /// # Errors
    /// `Fenced` when somebody else has claimed the register.
    fn regain(&mut self) -> Result<()> {
        self.follow();
        let present = Some(Epoch(self.ballot.epoch));
        let mut has_more = false;
        for at in 0..self.cells.len() {
            let is_due = |cell: &&Cell| cell.is_there() && !cell.is_silent() && cell.epoch() != present;
            let Some(cell) = self.cells.get(at).filter(is_due) else { continue };
            // What belongs to somebody else is not acquired, even if nobody has it at this moment.
            let said = cell.said();
            self.check_claim(&said)?;
            let Some(cell) = self.cells.get_mut(at) else { continue };
            match said.and_then(|_| cell.raise(Epoch(1), false)) {
                Ok(()) => has_more = true,
                Err(error) => {
                    tracing::debug!(%error, "a cell of the register is not had yet");
                    cell.note(error.kind());
                }
            }
        }
        if !has_more {
            return Ok(());
        }
        let acquired =
            self.cells.iter_mut().filter(|cell| cell.is_there() && !cell.is_silent() && cell.shard.is_some());
        let Ok(Raised { epoch, .. }) = raise(acquired, false) else { return Ok(()) };
        let mut reached = Vec::with_capacity(self.cells.len());
        for cell in self.cells_at(epoch) {
            let said = cell.said();
            self.check_claim(&said)?;
            match said {
                Ok(_) => reached.push(cell.node),
                Err(error) => tracing::debug!(%error, "a cell of the register does not say what it says"),
            }
        }
        // Cells that were behind may have joined the present ballot.
        if self.ballot.is_decided_by(&reached) && Some(epoch) > present {
            (self.ballot.epoch, self.ballot.write) = (epoch.0, 0);
        }
        Ok(())
    }

    /// Checks that what a cell says is not somebody else's.
    ///
    /// # Errors
    /// `Fenced`.
    fn check_claim(&self, said: &Result<Option<MembersRecord>>) -> Result<()> {
        let ballot = said.as_ref().ok().and_then(|said| said.as_ref()?.ballot.as_ref());
        match ballot.is_some_and(|ballot| ballot.epoch > self.ballot.epoch) {
            true => Err(Error::of_register(ErrorKind::Fenced, "another process has taken the database over")),
            false => Ok(()),
        }
    }

    /// Writes to the cells of the present ballot, and returns which of them have it. If this decides a change of who
    /// votes, only those that vote from then on decide.
    ///
    /// # Errors
    /// As [`Register::write`], and `Fenced` also when a call by which this process acquired a cell was late.
    fn put(&mut self, record: &MembersRecord) -> Result<Vec<MemberNode>> {
        let written = self.put_once(record)?;
        if std::mem::take(&mut self.ballot.before).is_empty() {
            return Ok(written);
        }
        Ok(self.put_once(record).unwrap_or_else(|error| {
            // What was written counts, and the next write says again who votes.
            tracing::debug!(%error, "the register has other voters, and may not say so everywhere");
            Vec::new()
        }))
    }

    fn put_once(&mut self, record: &MembersRecord) -> Result<Vec<MemberNode>> {
        self.ballot.write += 1;
        let bytes = MembersRecord { ballot: Some(self.ballot.clone()), ..record.clone() }.encode()?;
        let epoch = Epoch(self.ballot.epoch);
        let mut written = Vec::with_capacity(self.cells.len());
        let mut failure: Option<Error> = None;
        for cell in self.cells.iter_mut().filter(|cell| !cell.is_silent()) {
            let Some(shard) = cell.shard.as_ref().filter(|shard| shard.epoch() == epoch) else { continue };
            let Err(error) = shard.set_root(&bytes) else {
                written.push(cell.node);
                continue;
            };
            // A write that got no reply may arrive when the cell says something newer, unless its epoch has passed by
            // then.
            let is_known = error.is_refusal() && error.kind() != ErrorKind::Fenced;
            cell.shard.take_if(|_| !is_known);
            // Nor need anybody wait for the cell again. It may get this write late and say it. But more than half said
            // it at this ballot or a later one, so the cell is then behind, as a voter may be. Before it is written
            // again, it is acquired at an epoch that refuses whatever is still on its way.
            cell.note(error.kind());
            if !self.ballot.names(cell.node) {
                continue;
            }
            if error.kind() == ErrorKind::Fenced && cell.is_there() {
                // A takeover says more than a node that is gone.
                failure = Some(error.into());
            } else {
                // A lapsed session says nothing about who owns the database.
                failure.get_or_insert(Error::new(ErrorKind::Unavailable, error.to_string()));
            }
        }
        if self.ballot.is_decided_by(&written) {
            return Ok(written);
        }
        let kind = failure.as_ref().map_or(ErrorKind::Unavailable, Error::kind);
        let cause = failure.map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!(
            "{} of {} memory nodes have taken who holds the copies, and more than half must{cause}",
            written.iter().filter(|node| self.ballot.voters.contains(node)).count(),
            self.ballot.voters.len()
        );
        Err(Error::of_register(kind, message))
    }

    /// Claims a register that nobody has claimed. A process that found a cell without a claim, and acquired it since, may
    /// rely on that: so no cell is acquired again, and none may be missing.
    ///
    /// # Errors
    /// As [`Register::write`].
    fn write_first(&mut self, record: &MembersRecord) -> Result<()> {
        let written = self.put(record)?;
        if written.len() < self.ballot.voters.len() {
            return Err(not_all(written.len(), self.ballot.voters.len()));
        }
        Ok(())
    }

    /// Lets nodes that came back empty, and have what was `written` last, vote in place of their earlier lives.
    ///
    /// # Errors
    /// As [`NodeRegister::put`].
    fn replace(&mut self, record: &MembersRecord, mut written: Vec<MemberNode>) -> Result<()> {
        let lost =
            |register: &Self, node: MemberNode| register.lost_life(node).filter(|_| !register.ballot.names(node));
        while let Some((lost, next)) = written.iter().find_map(|node| Some((lost(self, *node)?, *node))) {
            let others = self.ballot.voters.iter().copied().filter(|voter| *voter != lost);
            let voters = others.chain([next]).collect();
            self.ballot.before = std::mem::replace(&mut self.ballot.voters, voters);
            written = self.put(record)?;
            tracing::info!(node = next.node, "a memory node that came back empty votes again");
        }
        Ok(())
    }

    /// Writes to the cells that may answer. Returns which of them have it.
    fn write_once(&mut self, record: &MembersRecord) -> Result<Vec<MemberNode>> {
        self.regain()?;
        let put = self.put(record);
        let may_follow = || self.cells.iter().any(|cell| !cell.is_there() && cell.next.is_some());
        match put {
            // It may have been a late call of this process, or a session whose end was not known.
            Err(failed) if failed.kind() == ErrorKind::Fenced || may_follow() => {
                self.regain()?;
                self.put(record).map_err(|_| failed)
            }
            put => put,
        }
    }

    fn try_write(&mut self, record: &MembersRecord) -> Result<()> {
        // Another caller that waited for a node in vain has waited for this call, too.
        let cells = self.cells.iter_mut().chain(&mut self.returned);
        cells.filter(|cell| cell.store.client().is_silent()).for_each(|cell| cell.note(ErrorKind::TimedOut));
        let is_silent = |cell: &Cell| cell.is_silent().then_some(cell.node);
        let silent: Vec<_> = self.cells.iter().chain(&self.returned).filter_map(is_silent).collect();
        let written = match self.write_once(record) {
            // Too few decide without those that were not asked.
            Err(error) if error.kind() != ErrorKind::Fenced && !silent.is_empty() => {
                let cells = self.cells.iter_mut().chain(&mut self.returned);
                cells.filter(|cell| silent.contains(&cell.node)).for_each(|cell| cell.silent_at = None);
                self.write_once(record)
            }
            written => written,
        }?;
        if let Err(error) = self.replace(record, written) {
            // What was written counts. The change of who votes is tried again with the next write.
            tracing::debug!(%error, "a memory node does not vote again yet");
        }
        Ok(())
    }
}

impl Register for NodeRegister {
    fn write(&mut self, record: &MembersRecord) -> Result<()> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        self.try_write(record).inspect_err(|error| {
            if error.kind() == ErrorKind::Fenced {
                self.release();
                self.ended = Some(error.clone());
            }
        })
    }

    fn check(&mut self) -> Result<()> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        self.follow();
        let asked = self.cells.iter().filter(|cell| cell.is_there() && !cell.is_silent());
        asked.map(Cell::said).try_for_each(|said| self.check_claim(&said))
    }

    fn returned(&mut self, part: &Part) {
        if self.ended.is_none() {
            self.returned.push(Cell::new(part));
        }
    }

    fn release(&mut self) {
        self.returned.clear();
        self.cells.drain(..).for_each(Cell::release);
        self.ended = Some(Error::of_register(ErrorKind::Closed, "the register was released"));
    }
}

#[cfg(test)]
mod tests;
