//! Gathers scattered records for a scan: one request and one reply instead of one read per record.

use crate::job::{JobError, JobMemory, JobRunner, Pace};
use crate::state::Job;
use forebay_base::ErrorKind;
use forebay_proto::gather;

/// Most ranges and bytes that are gathered at once while other calls wait.
const MOST_AT_ONCE: usize = 128;
const BYTES_AT_ONCE: usize = 64 << 10;

/// Copies the ranges of its arguments into its result, one after the other.
#[derive(Debug)]
pub(crate) struct Gather;

impl JobRunner for Gather {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let ranges =
            gather::decode(&job.arguments).map_err(|error| JobError::new(ErrorKind::Invalid, error.to_string()))?;
        let total = gather::total_bytes(&ranges).filter(|&total| total <= job.most_result_bytes);
        let total = total.ok_or_else(|| {
            JobError::new(ErrorKind::Invalid, format!("a gather has room for {} bytes", job.most_result_bytes))
        })?;
        let mut result = vec![0; total];
        let mut left = result.as_mut_slice();
        for range in ranges {
            let Some((into, rest)) = left.split_at_mut_checked(range.length as usize) else { break };
            memory.read(range.extent, range.offset, into)?;
            left = rest;
        }
        Ok(result)
    }

    fn pace(&self, arguments: &[u8]) -> Pace {
        // The arguments are a byte and 20 for each range; the total length of the ranges is computed only if there
        // are few.
        let is_little = arguments.len() <= 1 + 20 * MOST_AT_ONCE
            && gather::decode(arguments).ok().and_then(|ranges| gather::total_bytes(&ranges)) <= Some(BYTES_AT_ONCE);
        if is_little { Pace::AtOnce } else { Pace::Soon }
    }
}
