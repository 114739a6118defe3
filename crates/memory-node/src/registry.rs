//! The runner of each kind of job, and the kinds that every node has.

use crate::compaction::Compaction;
use crate::gather::Gather;
use crate::job::{JobError, JobMemory, JobRunner, Pace};
use crate::search::{Search, ShortScan};
use crate::state::Job;
use forebay_base::{ErrorKind, checksum_append};
use forebay_proto::field::Field;
use forebay_proto::{ExtentRange, job_kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The runner of each kind of job.
#[derive(Debug, Clone, Default)]
pub struct JobRegistry(BTreeMap<u16, Arc<dyn JobRunner>>);

impl JobRegistry {
    /// The jobs that every node has: [`job_kind::ECHO`] and [`job_kind::CHECKSUM`].
    #[must_use]
    pub fn diagnostic() -> Self {
        Self::default().with(job_kind::ECHO, Arc::new(Echo)).with(job_kind::CHECKSUM, Arc::new(Checksum))
    }

    /// The jobs of a node: the diagnostic ones, [`job_kind::GATHER`], [`job_kind::STORE`], [`job_kind::COMPACTION`],
    /// [`job_kind::SEARCH`] and [`job_kind::SHORT_SCAN`].
    #[must_use]
    pub fn standard() -> Self {
        let diagnostic = Self::diagnostic();
        let short = diagnostic.with(job_kind::GATHER, Arc::new(Gather)).with(job_kind::STORE, Arc::new(Store));
        let short = short.with(job_kind::SEARCH, Arc::new(Search)).with(job_kind::SHORT_SCAN, Arc::new(ShortScan));
        short.with(job_kind::COMPACTION, Arc::new(Compaction))
    }

    /// How long the job takes.
    pub(crate) fn pace(&self, job: &Job) -> Pace {
        self.0.get(&job.kind).map_or(Pace::AtOnce, |runner| runner.pace(&job.arguments))
    }

    /// Adds `runner` for jobs of this kind.
    #[must_use]
    pub fn with(mut self, kind: u16, runner: Arc<dyn JobRunner>) -> Self {
        self.0.insert(kind, runner);
        self
    }

    /// The runner for jobs of this kind, for one that wraps it.
    #[must_use]
    pub fn runner(&self, kind: u16) -> Option<Arc<dyn JobRunner>> {
        self.0.get(&kind).cloned()
    }

    pub(crate) fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let _traced = tracing::debug_span!(target: "forebay_trace", "job", kind = i64::from(job.kind)).entered();
        match self.0.get(&job.kind) {
            Some(runner) => runner.run(job, memory),
            None => Err(JobError::new(ErrorKind::Unsupported, format!("no job of kind {} is known here", job.kind))),
        }
    }
}

/// Copies its arguments into an output, and returns the output's range and the arguments.
#[derive(Debug)]
struct Echo;

impl JobRunner for Echo {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let mut result = Store.run(job, memory)?;
        result.extend_from_slice(&job.arguments);
        Ok(result)
    }
}

/// Copies its arguments into an output, and returns the output's range.
#[derive(Debug)]
struct Store;

impl JobRunner for Store {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let output = memory.allocate(job.arguments.len() as u64)?;
        memory.write(output, 0, &job.arguments)?;
        let mut result = Vec::new();
        output.put(&mut result);
        Ok(result)
    }
}

/// CRC32C of a range.
#[derive(Debug)]
struct Checksum;

impl JobRunner for Checksum {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let range = ExtentRange::take(&mut forebay_base::Reader::new(&job.arguments))
            .map_err(|error| JobError::new(ErrorKind::Invalid, error.to_string()))?;
        let mut piece = vec![0; 64 << 10];
        let (mut done, mut crc) = (0, 0);
        while done < range.length {
            let step = (range.length - done).min(piece.len() as u64) as usize;
            let Some((piece, _)) = piece.split_at_mut_checked(step) else { break };
            let offset = range.offset.checked_add(done);
            let offset = offset.ok_or_else(|| JobError::new(ErrorKind::Invalid, "the range leaves the extent"))?;
            memory.read(range.extent, offset, piece)?;
            crc = checksum_append(crc, piece);
            done += step as u64;
        }
        Ok(crc.to_le_bytes().to_vec())
    }
}
