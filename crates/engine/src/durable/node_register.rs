//! A register that lies in memory nodes: what more than half of those say that found the database counts.
//!
//! Each of these nodes, the *voters*, has a cell: the root of a shard beside the database's own in its store. The node refuses to
//! set it at an epoch that has passed, which makes it an acceptor of Paxos:
//!
//! ```text
//!   acquire      at more than half of the voters, again until all have one epoch: the ballot
//!                from here on no earlier ballot can reach more than half
//!   read         what the highest ballot says, and of it the last write
//!   claim        write that again, at the own ballot
//!   write        to all; it counts when more than half have it
//!
//!   regain       a cell whose node is there again by another session, or that may get a write late: its epoch has passed, or must
//!                pass. So acquire, read and claim as above, but take no cell from another process, and go on only if nobody
//!                has said anything at a later ballot than the own one
//! ```
//!
//! Two owners cannot have one ballot: more than half of the voters share one, and that gives an epoch once. What counts was
//! written to more than half, so whoever acquires as many sees it, or has kept it from counting.

use crate::durable::member_register::{Register, member};
use crate::durable::named::{FOUNDER, Part};
use crate::durable::recovery::acquire_shard;
use crate::terms::{Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_memory_client::{Epoch, ShardHandle, ShardId, StoreHandle};
use forebay_table::{Ballot, MemberNode, MembersRecord};

/// The shard whose root is the cell.
const CELL: ShardId = ShardId(u32::MAX);
/// How often epochs are raised that others raise at the same time.
const ATTEMPTS: u32 = 100;

/// A voter's cell.
#[derive(Debug)]
struct Cell {
    voter: MemberNode,
    store: StoreHandle,
    /// By another session, for when this one has ended.
    next: Option<StoreHandle>,
    /// As this process acquired it; `None` where it has not by this session, or where somebody else has since.
    shard: Option<ShardHandle>,
}

/// The cells that can be reached, acquired at one epoch.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    /// What they say.
    pub(crate) said: MembersRecord,
}

impl Cells {
    /// Acquires the cells of the stores that founded the database, and reads what counts.
    ///
    /// # Errors
    /// `Busy` when another process has the database open, and it is not to be taken over; `Unavailable` when not more than
    /// half of the voters can be reached.
    pub(crate) fn acquire<'p>(founders: impl Iterator<Item = &'p Part>, options: &Options) -> Result<Self> {
        let mut acquired = Self { cells: Vec::new(), said: MembersRecord::default() };
        let mut nodes = 0;
        for part in founders {
            nodes = nodes.max(part.config.part.map_or(0, |part| part.nodes as usize));
            match acquire_shard(&part.store, CELL, options) {
                Ok(shard) => acquired.cells.push(Cell { shard: Some(shard), ..Cell::new(&part.store) }),
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
            }
        }
        acquired.read(nodes, options)?;
        Ok(acquired)
    }

    fn read(&mut self, founders: usize, options: &Options) -> Result<()> {
        if let Raised { failure: Some(failure), .. } = raise(self.cells.iter_mut(), options.takeover)? {
            return Err(failure);
        }
        let mut said = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            said.extend(cell.said()?);
        }
        let highest = said.into_iter().max_by_key(|record| record.ballot.as_ref().map(|of| (of.epoch, of.write)));
        let (reached, voters) = match &highest {
            Some(record) => {
                let voters = record.ballot.as_ref().map(|ballot| ballot.voters.clone()).unwrap_or_default();
                self.cells.retain(|cell| voters.contains(&cell.voter));
                (self.cells.len(), voters.len())
            }
            // Nothing was ever claimed, if all say so.
            None if self.cells.len() == founders => return Ok(()),
            None => (0, founders),
        };
        if reached * 2 <= voters {
            let message = format!(
                "{reached} of the {voters} memory nodes can be reached that say who holds the database's copies: more than \
                 half of them are needed, and one that was started again has forgotten it"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.said = highest.unwrap_or_default();
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        self.cells.iter().filter_map(Cell::epoch).max().unwrap_or_default()
    }

    /// Makes this process the owner: writes again what is said, or `first` when nothing is.
    ///
    /// # Errors
    /// `Fenced` when another process was faster; `Unavailable`.
    pub(crate) fn claim(mut self, first: &MembersRecord) -> Result<(Box<dyn Register>, MembersRecord)> {
        let said = if self.said.database.is_none() { first.clone() } else { self.said.clone() };
        let here = || self.cells.iter().map(|cell| cell.voter).collect();
        let voters = self.said.ballot.as_ref().map_or_else(here, |ballot| ballot.voters.clone());
        let ballot = Ballot { epoch: self.epoch().0, write: 0, voters };
        let mut register = NodeRegister { cells: std::mem::take(&mut self.cells), ballot, ended: None };
        register.write(&said)?;
        Ok((Box::new(register), said))
    }
}

impl Drop for Cells {
    /// Cells that are not claimed can be acquired by others.
    fn drop(&mut self) {
        self.cells.drain(..).for_each(Cell::release);
    }
}

impl Cell {
    /// One that was not acquired yet.
    fn new(store: &StoreHandle) -> Self {
        Self { voter: member(store.client().node()), store: store.clone(), next: None, shard: None }
    }

    /// The epoch at which this process acquired it.
    fn epoch(&self) -> Option<Epoch> {
        self.shard.as_ref().map(ShardHandle::epoch)
    }

    /// Whether the session is there, as far as is known.
    fn is_there(&self) -> bool {
        self.store.client().is_there()
    }

    /// Goes over to the next session, if there is one and this one has ended.
    fn follow(&mut self) {
        if !self.is_there()
            && let Some(next) = self.next.take()
        {
            (self.store, self.shard) = (next, None);
        }
    }

    /// What it says, to whomever it belongs.
    fn said(&self) -> Result<Option<MembersRecord>> {
        match self.store.root(CELL) {
            Ok(root) => Ok(root.map(|(_, root)| MembersRecord::decode(&root)).transpose()?),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires it until its epoch is `least` or later.
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

/// Cells that were brought to one epoch.
struct Raised {
    epoch: Epoch,
    /// How many have it.
    count: usize,
    /// Why another one does not, if one does not.
    failure: Option<Error>,
}

/// Brings cells to one epoch, but for those that fail.
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
            return Ok(Raised { epoch, count: cells.len(), failure });
        }
        cells.retain_mut(|cell| match cell.raise(epoch, takeover) {
            Ok(()) => true,
            Err(error) => {
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
    cells: Vec<Cell>,
    /// Of the last claim: its epoch was acquired at more than half of the voters, none of which said a later one.
    ballot: Ballot,
    /// Why this process writes nothing any more, if it does not.
    ended: Option<Error>,
}

impl NodeRegister {
    /// Whether so many are more than half of the voters.
    fn are_most(&self, cells: usize) -> bool {
        cells * 2 > self.ballot.voters.len()
    }

    /// Acquires cells again that are there by another session than before, or that a call took away that was late, and claims the
    /// register at an epoch that they have, too. Nothing is taken from another process. Where that does not go, the ballot stays.
    ///
    /// # Errors
    /// `Fenced` when somebody else has claimed the register.
    fn regain(&mut self) -> Result<()> {
        self.cells.iter_mut().for_each(Cell::follow);
        let present = Some(Epoch(self.ballot.epoch));
        let mut has_more = false;
        for at in 0..self.cells.len() {
            let Some(cell) = self.cells.get(at).filter(|cell| cell.is_there() && cell.epoch() != present) else {
                continue;
            };
            // What belongs to somebody else is not acquired, even where nobody has it at this moment.
            let said = cell.said();
            self.check_claim(&said)?;
            let acquired = said.and_then(|_| self.cells.get_mut(at).map_or(Ok(()), |cell| cell.raise(Epoch(1), false)));
            match acquired {
                Ok(()) => has_more = true,
                Err(error) => tracing::debug!(%error, "a cell of the register is not had yet"),
            }
        }
        if !has_more {
            return Ok(());
        }
        let acquired = self.cells.iter_mut().filter(|cell| cell.is_there() && cell.shard.is_some());
        let Ok(raised) = raise(acquired, false) else { return Ok(()) };
        if !self.are_most(raised.count) {
            return Ok(());
        }
        for cell in self.cells.iter().filter(|cell| cell.epoch() == Some(raised.epoch)) {
            let said = cell.said();
            self.check_claim(&said)?;
            if let Err(error) = said {
                tracing::debug!(%error, "the register is not claimed again yet");
                return Ok(());
            }
        }
        // Cells that were behind may have joined the present ballot.
        if Some(raised.epoch) > present {
            self.ballot = Ballot { epoch: raised.epoch.0, write: 0, voters: self.ballot.voters.clone() };
        }
        Ok(())
    }

    /// Checks that what a cell says is not of somebody else.
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

    /// Writes to the cells of the present ballot.
    ///
    /// # Errors
    /// As [`Register::write`], and `Fenced` also when a call was late by which this process acquired a cell.
    fn put(&mut self, record: &MembersRecord) -> Result<()> {
        self.ballot.write += 1;
        let bytes = MembersRecord { ballot: Some(self.ballot.clone()), ..record.clone() }.encode()?;
        let epoch = Epoch(self.ballot.epoch);
        let mut written = 0;
        let mut failure: Option<Error> = None;
        for cell in &mut self.cells {
            let Some(shard) = cell.shard.as_ref().filter(|shard| shard.epoch() == epoch) else { continue };
            let Err(error) = shard.set_root(&bytes) else {
                written += 1;
                continue;
            };
            // What got no reply may come when the cell says something newer, unless its epoch has passed by then.
            let is_known = error.is_refusal() && error.kind() != ErrorKind::Fenced;
            cell.shard.take_if(|_| !is_known);
            if error.kind() == ErrorKind::Fenced && cell.is_there() {
                // That somebody took over says more than that a node is gone.
                failure = Some(error.into());
            } else {
                // A session that lapsed says nothing of who owns the database.
                failure.get_or_insert(Error::new(ErrorKind::Unavailable, error.to_string()));
            }
        }
        if self.are_most(written) {
            return Ok(());
        }
        let kind = failure.as_ref().map_or(ErrorKind::Unavailable, Error::kind);
        let cause = failure.map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!(
            "{written} of {} memory nodes have taken who holds the copies, and more than half must{cause}",
            self.ballot.voters.len()
        );
        Err(Error::of_register(kind, message))
    }

    fn try_write(&mut self, record: &MembersRecord) -> Result<()> {
        self.regain()?;
        let put = self.put(record);
        let may_follow = || self.cells.iter().any(|cell| !cell.is_there() && cell.next.is_some());
        match put {
            // It may have been a call of this process that came late, or a session whose end was not known.
            Err(failed) if failed.kind() == ErrorKind::Fenced || may_follow() => {
                self.regain()?;
                self.put(record).map_err(|_| failed)
            }
            put => put,
        }
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
        self.cells.iter_mut().for_each(Cell::follow);
        self.cells.iter().filter(|cell| cell.is_there()).try_for_each(|cell| self.check_claim(&cell.said()))
    }

    fn returned(&mut self, part: &Part) {
        let cell = Cell::new(&part.store);
        // A store that was made later is that of a node that has forgotten what its cell said.
        let is_founder = part.config.part.is_some_and(|part| part.place == FOUNDER);
        if self.ended.is_some() || !is_founder || !self.ballot.voters.contains(&cell.voter) {
            return;
        }
        // A session at the same node has the cell as long as it goes on.
        match self.cells.iter_mut().find(|known| known.voter == cell.voter) {
            Some(known) => known.next = Some(cell.store),
            None => self.cells.push(cell),
        }
    }

    fn release(&mut self) {
        self.cells.drain(..).for_each(Cell::release);
        self.ended = Some(Error::of_register(ErrorKind::Closed, "the register was released"));
    }
}

#[cfg(test)]
mod tests;
