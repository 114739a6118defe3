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
//! ```
//!
//! Two owners cannot have one ballot: more than half of the voters share one, and that gives an epoch once. What counts was
//! written to more than half, so whoever acquires as many sees it, or has kept it from counting.

use crate::durable::member_register::{Register, member};
use crate::durable::named::Part;
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
    shard: ShardHandle,
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
                Ok(shard) => {
                    let voter = member(part.store.client().node());
                    acquired.cells.push(Cell { voter, store: part.store.clone(), shard });
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
            }
        }
        acquired.read(nodes, options)?;
        Ok(acquired)
    }

    fn read(&mut self, founders: usize, options: &Options) -> Result<()> {
        self.raise(options)?;
        let mut said = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            if let Some((_, root)) = cell.store.root(CELL)? {
                said.push(MembersRecord::decode(&root)?);
            }
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

    /// Brings all cells to one epoch.
    fn raise(&mut self, options: &Options) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let highest = self.epoch();
            let mut behind = self.cells.iter_mut().filter(|cell| cell.shard.epoch() < highest).peekable();
            if behind.peek().is_none() {
                return Ok(());
            }
            for cell in behind {
                while cell.shard.epoch() < highest {
                    cell.shard = cell.store.acquire_shard(CELL, options.takeover)?;
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "other processes open the database at the same time: try again"))
    }

    fn epoch(&self) -> Epoch {
        self.cells.iter().map(|cell| cell.shard.epoch()).max().unwrap_or_default()
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
        let mut register = NodeRegister { cells: std::mem::take(&mut self.cells), ballot };
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
    fn release(self) {
        if let Err(error) = self.shard.release() {
            tracing::debug!(%error, "releasing a cell of the register: it ends with the session");
        }
    }
}

/// See the module.
#[derive(Debug)]
struct NodeRegister {
    cells: Vec<Cell>,
    ballot: Ballot,
}

impl Register for NodeRegister {
    fn write(&mut self, record: &MembersRecord) -> Result<()> {
        self.ballot.write += 1;
        let bytes = MembersRecord { ballot: Some(self.ballot.clone()), ..record.clone() }.encode()?;
        let mut written = 0;
        let mut failure: Option<Error> = None;
        for cell in &self.cells {
            match cell.shard.set_root(&bytes).map_err(Error::from) {
                Ok(()) => written += 1,
                // That somebody took over says more than that a node is gone.
                Err(error) if error.kind() == ErrorKind::Fenced => failure = Some(error),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        let voters = self.ballot.voters.len();
        if written * 2 > voters {
            return Ok(());
        }
        let kind = failure.as_ref().map_or(ErrorKind::Unavailable, Error::kind);
        let cause = failure.map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!(
            "{written} of {voters} memory nodes have taken who holds the copies, and more than half must{cause}"
        );
        Err(Error::of_register(kind, message))
    }

    fn release(&mut self) {
        self.cells.drain(..).for_each(Cell::release);
    }
}
