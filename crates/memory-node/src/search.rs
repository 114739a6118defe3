//! Searches tables for readers that do not hold their point indexes (O3-LSM 4.5): the job function of `table`, over the
//! node's own memory.
//!
//! The arguments come from another process. The job reads only memory of the shards that its session owns, and of the
//! session: a read of anything else fails the whole search.

use crate::job::{JobError, JobMemory, JobRunner, Pace};
use crate::state::Job;
use forebay_base::ErrorKind;
use forebay_fabric::rpc::MAX_INLINE_BYTES;
use forebay_proto::ExtentId;
use forebay_table::job::{SearchIo, SearchJob, SearchPlace, run_search};

/// Most bytes of blocks and records that are read while other calls wait.
const BYTES_AT_ONCE: u64 = 64 << 10;

/// Finds the newest records of keys.
#[derive(Debug)]
pub(crate) struct Search;

impl JobRunner for Search {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let wrong = |error: forebay_table::Error| JobError::new(ErrorKind::Invalid, error.to_string());
        let arguments = SearchJob::decode(&job.arguments).map_err(wrong)?;
        let mut result = run_search(&arguments, &mut NodeMemory(memory), job.most_result_bytes)?;
        result.waiting = memory.waiting();
        let mut bytes = Vec::new();
        result.encode(&mut bytes);
        Ok(bytes)
    }

    fn pace(&self, arguments: &[u8]) -> Pace {
        // What the arguments ask for is looked up only if they are short.
        let is_little = arguments.len() <= MAX_INLINE_BYTES
            && SearchJob::decode(arguments)
                .is_ok_and(|job| job.block_bytes().saturating_add(job.record_bytes()) <= BYTES_AT_ONCE);
        if is_little { Pace::AtOnce } else { Pace::Soon }
    }
}

/// The memory that the job may read.
struct NodeMemory<'m>(&'m dyn JobMemory);

impl SearchIo for NodeMemory<'_> {
    fn read(&mut self, place: SearchPlace, into: &mut [u8]) -> forebay_table::Result<()> {
        let failed = |JobError { kind, message }| forebay_table::Error::Io { kind, message };
        self.0.read(ExtentId(place.extent), place.offset, into).map_err(failed)
    }
}
