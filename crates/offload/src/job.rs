//! Jobs, attempts, and what describes them.

use std::fmt;

/// Number of a scheduler's time in office. Each election gives the next one; zero is that of a scheduler that nobody
/// elected, within a memory node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u32);

/// The name of a job: unique among all databases, and never used for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName {
    /// The database.
    pub database: u128,
    /// The shard in it.
    pub shard: u32,
    /// The epoch of the shard's owner.
    pub epoch: u64,
    /// The job within its shard.
    pub job: u64,
}

/// An attempt at a job. Later ones supersede earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Attempt {
    /// The term of the scheduler that made it.
    pub term: Term,
    /// Its number in that term, from 1.
    pub number: u32,
}

impl Attempt {
    /// As one number, in the same order.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        u64::from(self.term.0) << 32 | u64::from(self.number)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}.{}", self.term.0, self.number)
    }
}

/// Bytes in an extent of the ticket's memory node. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The extent.
    pub extent: u32,
    /// Where the bytes begin, counted from the extent's start.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of the bytes.
    pub checksum: u32,
}

/// What opens a job at the memory node that holds its shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The node.
    pub node: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// The job's number there.
    pub job: u64,
    /// A secret that nobody can guess.
    pub secret: u128,
}

/// One run of a memory node: its number and its incarnation.
pub type Life = (u32, u64);

impl Ticket {
    /// The memory node.
    #[must_use]
    pub const fn life(&self) -> Life {
        (self.node, self.incarnation)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, incarnation, job, .. } = self;
        write!(f, "Ticket({job} at node {node}, incarnation {incarnation})")
    }
}

/// What a job needs of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum StorageNeed {
    /// No storage.
    #[default]
    None = 0,
    /// Its executor must reach the storage with rights of its own.
    Own = 1,
    /// Names that its owner has signed are enough.
    Signed = 2,
}

impl StorageNeed {
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Own,
            2 => Self::Signed,
            _ => return None,
        })
    }
}

/// How an executor reaches storage. The default is not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StorageAccess {
    /// With rights of its own.
    pub own: bool,
    /// By names that a job's owner has signed.
    pub signed: bool,
}

impl StorageAccess {
    /// Whether an executor can run a job that needs this. An executor with rights of its own needs no signed names.
    #[must_use]
    pub const fn suffices_for(self, need: StorageNeed) -> bool {
        match need {
            StorageNeed::None => true,
            StorageNeed::Own => self.own,
            StorageNeed::Signed => self.own || self.signed,
        }
    }
}

/// What an executor and the scheduler must know of a job. Everything else is in the arguments, which the executor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Package {
    /// The kind of job, as memory nodes number it.
    pub kind: u16,
    /// What it needs of the storage.
    pub storage: StorageNeed,
    /// What opens the job.
    pub ticket: Ticket,
    /// The place of the arguments.
    pub arguments: Span,
    /// Bytes of its inputs in memory.
    pub memory_bytes: u64,
    /// Bytes of its inputs in storage.
    pub storage_bytes: u64,
}

impl Package {
    /// Bytes of its inputs.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.storage_bytes)
    }
}

/// What an attempt made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The place of its result; a copy has none.
    pub result: Span,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
}

/// Why an attempt, or a job, is not run in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Its owner runs it with the least cost. There was no attempt.
    Home = 1,
    /// The memory node runs it with the least cost.
    Near = 2,
    /// No executor can run it, or too many jobs wait. There was no attempt.
    Busy = 3,
    /// The executor failed.
    Failed = 4,
    /// Attempts were lost, and there are no more.
    Lost = 5,
    /// Its owner no longer wants it.
    Ended = 6,
}

impl Reason {
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Home,
            2 => Self::Near,
            3 => Self::Busy,
            4 => Self::Failed,
            5 => Self::Lost,
            6 => Self::Ended,
            _ => return None,
        })
    }
}
