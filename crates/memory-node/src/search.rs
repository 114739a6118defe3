//! Searches tables for readers that do not hold their point indexes, and merges the first entries of scans (O3-LSM 4.5):
//! job functions of `table`, over the node's own memory.
//!
//! The arguments come from another process. A job reads only memory of the shards that its session owns, and of the
//! session: a read of anything else fails the whole job.

use crate::job::{JobError, JobMemory, JobRunner, Pace};
use crate::state::Job;
use forebay_base::ErrorKind;
use forebay_fabric::rpc::MAX_INLINE_BYTES;
use forebay_proto::ExtentId;
use forebay_table::job::{SearchIo, SearchJob, SearchPlace, ShortScanJob, run_search, run_short_scan};

/// Most bytes of blocks and records that are read at once while other calls wait.
const BYTES_AT_ONCE: u64 = 64 << 10;
/// Bytes of the longest arguments. Decoded, they take several times as much of the node's own memory. A reader whose search
/// is refused reads by itself.
const MOST_ARGUMENT_BYTES: usize = 2 << 20;

/// Finds the newest records of keys.
#[derive(Debug)]
pub(crate) struct Search;

impl JobRunner for Search {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        check(job)?;
        let arguments = SearchJob::decode(&job.arguments).map_err(wrong)?;
        let mut result = run_search(&arguments, &mut NodeMemory(memory), job.most_result_bytes)?;
        result.waiting = memory.waiting();
        let mut bytes = Vec::new();
        result.encode(&mut bytes);
        Ok(bytes)
    }

    fn pace(&self, arguments: &[u8]) -> Pace {
        pace(arguments, |arguments| SearchJob::decode(arguments).map(|job| (job.block_bytes(), job.record_bytes())))
    }
}

/// Finds the first entries from a key on.
#[derive(Debug)]
pub(crate) struct ShortScan;

impl JobRunner for ShortScan {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        check(job)?;
        let arguments = ShortScanJob::decode(&job.arguments).map_err(wrong)?;
        let mut result = run_short_scan(&arguments, &mut NodeMemory(memory), job.most_result_bytes)?;
        result.waiting = memory.waiting();
        let mut bytes = Vec::new();
        result.encode(&mut bytes);
        Ok(bytes)
    }

    fn pace(&self, arguments: &[u8]) -> Pace {
        pace(arguments, |arguments| ShortScanJob::decode(arguments).map(|job| (job.block_bytes(), job.record_bytes())))
    }
}

/// Refuses arguments that are too long. A reader that is told of something unsupported would never ask again.
fn check(job: &Job) -> Result<(), JobError> {
    if job.arguments.len() <= MOST_ARGUMENT_BYTES {
        return Ok(());
    }
    let message = format!("the arguments of a search have at most {MOST_ARGUMENT_BYTES} bytes here");
    Err(JobError::new(ErrorKind::Invalid, message))
}

/// An error of the sender of the arguments.
fn wrong(error: forebay_table::Error) -> JobError {
    JobError::new(ErrorKind::Invalid, error.to_string())
}

/// How long a job takes, by the bytes of blocks and records that it reads. Arguments are examined only if they are
/// short.
fn pace(arguments: &[u8], cost: impl Fn(&[u8]) -> forebay_table::Result<(u64, u64)>) -> Pace {
    let is_little = arguments.len() <= MAX_INLINE_BYTES
        && cost(arguments).is_ok_and(|(blocks, records)| blocks.saturating_add(records) <= BYTES_AT_ONCE);
    if is_little { Pace::AtOnce } else { Pace::Soon }
}

/// The memory that the job may read.
struct NodeMemory<'m>(&'m dyn JobMemory);

impl SearchIo for NodeMemory<'_> {
    fn read(&mut self, place: SearchPlace, into: &mut [u8]) -> forebay_table::Result<()> {
        let failed = |JobError { kind, message }| forebay_table::Error::Io { kind, message };
        self.0.read(ExtentId(place.extent), place.offset, into).map_err(failed)
    }
}
