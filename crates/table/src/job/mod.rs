//! Jobs: compaction, flush and search as pure functions that run wherever the bytes are; and the arguments of a copy.
//!
//! A job's arguments are complete, and its result names everything that it made. So a compute node, a memory node or a
//! storage worker can run it through its own [`JobIo`]. A job installs nothing: its outputs belong to the attempt that
//! wrote them until the shard's owner names them in a version edit. When a job fails, its runner frees what it
//! allocated.

mod chain;
mod compaction;
mod copy;
mod flush;
mod input;
mod output;
mod parts;
mod records;
mod request;
mod result;
mod retention;
mod search;
mod short_scan;
mod sources;

pub use compaction::{run_compaction, run_compaction_with};
pub use copy::CopyJob;
pub use flush::{Flush, FlushJob, FlushResult, LocatedEntry};
pub use output::{BUILDING_BYTES, LEAST_PIECE_BYTES, PIECES_OF_RUN};
pub use parts::{JobPart, join_results, split_compaction};
pub use request::{Clustering, CompactionJob, JobInput, JobLimits, RecordStretch, Replica, Residents, SizeClasses};
pub use result::{CompactionResult, DeadBytes, JobCounters, OutputTable};
pub use search::{
    MAX_SEARCHED_BYTES, MAX_SEARCHED_KEYS, SearchHit, SearchIo, SearchJob, SearchPlace, SearchResult, SearchedBlock,
    SearchedKey, SearchedTable, run_search,
};
pub use short_scan::{
    MAX_SCANNED_ENTRIES, ScannedBody, ScannedEntry, ScannedSource, ShortScanJob, ShortScanResult, run_short_scan,
};

use crate::error::Result;
use crate::segments::{Placement, SegmentKind};
use forebay_base::{DecodeError, LogicalAddress, Reader, SegmentId, Writer};

/// A job, its attempt, and its owner. The result counts only for this epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobIdentity {
    /// The store.
    pub store: u128,
    /// The shard within the store.
    pub shard: u64,
    /// The epoch of the shard's owner.
    pub epoch: u64,
    /// The job within its shard.
    pub job: u64,
    /// The attempt at the job, which also names the outputs.
    pub attempt: u32,
}

impl JobIdentity {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.store);
        out.put_u64(self.shard);
        out.put_u64(self.epoch);
        out.put_u64(self.job);
        out.put_u32(self.attempt);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(Self {
            store: reader.u128()?,
            shard: reader.u64()?,
            epoch: reader.u64()?,
            job: reader.u64()?,
            attempt: reader.u32()?,
        })
    }
}

/// Bytes to read, and their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherRead {
    /// Where to read.
    pub address: LogicalAddress,
    /// Bytes to read.
    pub length: usize,
    /// The destination in the buffer.
    pub destination: usize,
}

/// A segment allocated for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedSegment {
    /// Its number.
    pub id: SegmentId,
    /// The places of its copies.
    pub placements: Vec<Placement>,
}

/// The I/O of a job. Implementations check every address against the segments that the job may touch. Errors are
/// [`Error::Io`](crate::Error::Io).
pub trait JobIo {
    /// Fills `into` from `offset` of a segment.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Carries out all of `reads` with one doorbell, each into its part of `into`. The parts do not overlap.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<()>;

    /// Bytes of the longest segment that fits into one free piece, as far as this is known without an allocation; at
    /// most `wanted`.
    fn longest_piece(&mut self, wanted: u64) -> u64;

    /// Allocates a segment of exactly `length` bytes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), of kind `Full` when there is no room.
    fn allocate(&mut self, kind: SegmentKind, length: u64) -> Result<AllocatedSegment>;

    /// Writes `bytes` at `offset` of a segment that this job allocated. A segment is written once, from start to end.
    /// All writes must have taken effect before the job's result is used.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Learns how many bytes the job is about to hold in its runner's memory. Called before the job holds them, each time
    /// that they may have grown.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), of kind `Unsupported` when they are more than the runner has for a job. The job then
    /// fails.
    fn hold(&mut self, _held: Held) -> Result<()> {
        Ok(())
    }

    /// Whether the result should include another table's tail of this many bytes. A table without a tail is just as good:
    /// its owner reads the tail.
    fn takes_tail(&mut self, _bytes: u64) -> bool {
        true
    }

    /// Whether the owner asked the job to stop.
    fn cancelled(&self) -> bool;
}

/// Bytes that a job holds in its runner's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// What it works with: parts of its inputs, the index of a table, records on their way.
    pub working_bytes: u64,
    /// Its result so far.
    pub result_bytes: u64,
}

impl Held {
    /// All of them.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.working_bytes.saturating_add(self.result_bytes)
    }
}
