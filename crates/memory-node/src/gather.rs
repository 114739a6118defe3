//! Records that lie apart, brought together for a scan: one request and one reply for what would be a read each.

use crate::job::{JobError, JobMemory, JobRunner};
use crate::state::Job;
use forebay_base::ErrorKind;
use forebay_proto::gather;

/// Copies the ranges of its arguments into its result, one behind the other.
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

    fn is_short(&self) -> bool {
        true
    }
}
