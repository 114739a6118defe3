//! Jobs that a memory node runs near its data.
//!
//! A [`JobRunner`] runs one kind of job: bytes in, bytes out. It reaches memory only through
//! [`JobMemory`], which lets it read what its shard and its session have, and write what it
//! allocated. The node checks the shard's epoch when the job is offered and when it ends; a job
//! whose owner was fenced meanwhile is told by [`JobMemory::may_go_on`], and its outputs are freed.

use crate::compaction::Compaction;
use crate::core::Core;
use crate::gather::Gather;
use crate::state::{Job, JobId, Refusal};
use forebay_base::{ErrorKind, checksum_append};
use forebay_env::sync::lock;
use forebay_fabric::NodeIdentity;
use forebay_proto::field::Field;
use forebay_proto::{ExtentId, ExtentRange, job_kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct JobError {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
}

impl JobError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl From<Refusal> for JobError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.kind(), refusal.to_string())
    }
}

impl From<forebay_fabric::Error> for JobError {
    fn from(error: forebay_fabric::Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// Runs one kind of job.
pub trait JobRunner: Send + Sync + Debug {
    /// Runs the job and returns its result.
    ///
    /// # Errors
    /// [`JobError`], which is what the caller gets.
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError>;
    /// Takes microseconds, whatever its arguments: it runs at once where its request was taken in, not behind
    /// the jobs that wait.
    fn is_short(&self) -> bool {
        false
    }
}

/// The memory that a job may touch.
pub trait JobMemory: Sync {
    /// Longest possible output, bytes.
    fn extent_bytes(&self) -> u64;
    /// The node that the memory is in, and which life of it.
    fn node(&self) -> NodeIdentity;
    /// Checks that the job may read the range. Its extent then stays in place until the job ends.
    ///
    /// # Errors
    /// As [`JobMemory::read`].
    fn check(&self, range: ExtentRange) -> Result<(), JobError>;
    /// Copies bytes out of memory of the job's shard or session.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for other memory, [`ErrorKind::Fenced`].
    fn read(&self, extent: ExtentId, offset: u64, into: &mut [u8]) -> Result<(), JobError>;
    /// Allocates an output in the node's own part (dLSM V-A). It is zeroed or holds what an earlier
    /// output of the same shard held.
    ///
    /// # Errors
    /// [`ErrorKind::Full`], [`ErrorKind::Busy`], [`ErrorKind::Invalid`], [`ErrorKind::Fenced`].
    fn allocate(&self, length: u64) -> Result<ExtentRange, JobError>;
    /// Bytes of the longest output that there is memory for in one piece, at most `wanted`.
    fn longest_piece(&self, wanted: u64) -> u64;
    /// Writes into an output of this job.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] outside of it.
    fn write(&self, output: ExtentRange, offset: u64, bytes: &[u8]) -> Result<(), JobError>;
    /// Frees an output of this job.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when there is no such output, [`ErrorKind::Fenced`].
    fn free(&self, output: ExtentRange) -> Result<(), JobError>;
    /// Threads that the job may run on, the one that calls it included: those that have no other job.
    fn threads(&self) -> usize;
    /// False when the job's session or epoch has ended: its result will not count.
    fn may_go_on(&self) -> bool;
}

/// What runs which kind of job.
#[derive(Debug, Clone, Default)]
pub struct JobRegistry(BTreeMap<u16, Arc<dyn JobRunner>>);

impl JobRegistry {
    /// The jobs that every node knows: [`job_kind::ECHO`] and [`job_kind::CHECKSUM`].
    #[must_use]
    pub fn diagnostic() -> Self {
        Self::default().with(job_kind::ECHO, Arc::new(Echo)).with(job_kind::CHECKSUM, Arc::new(Checksum))
    }

    /// The jobs of a node: the diagnostic ones, [`job_kind::GATHER`], [`job_kind::STORE`] and
    /// [`job_kind::COMPACTION`].
    #[must_use]
    pub fn standard() -> Self {
        let diagnostic = Self::diagnostic();
        let short = diagnostic.with(job_kind::GATHER, Arc::new(Gather)).with(job_kind::STORE, Arc::new(Store));
        short.with(job_kind::COMPACTION, Arc::new(Compaction))
    }

    /// Whether jobs of this kind are [short](JobRunner::is_short).
    pub(crate) fn is_short(&self, kind: u16) -> bool {
        self.0.get(&kind).is_some_and(|runner| runner.is_short())
    }

    /// These, and `runner` for jobs of this kind.
    #[must_use]
    pub fn with(mut self, kind: u16, runner: Arc<dyn JobRunner>) -> Self {
        self.0.insert(kind, runner);
        self
    }

    pub(crate) fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        match self.0.get(&job.kind) {
            Some(runner) => runner.run(job, memory),
            None => Err(JobError::new(ErrorKind::Unsupported, format!("no job of kind {} is known here", job.kind))),
        }
    }
}

/// Copies its arguments into an output, returns the output's range and the arguments.
#[derive(Debug)]
struct Echo;

impl JobRunner for Echo {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        let mut result = Store.run(job, memory)?;
        result.extend_from_slice(&job.arguments);
        Ok(result)
    }
}

/// Copies its arguments into an output, returns the output's range.
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

/// A job's access to the node's memory. What was checked once stays valid until the job ends: its
/// extents are pinned and its outputs are freed by nobody else.
pub(crate) struct PinnedMemory<'a> {
    core: &'a Core,
    job: JobId,
    threads: usize,
    /// For each extent whether the job may read it. Whoever finds true needs nothing else that the thread
    /// wrote that checked it.
    readable: Box<[AtomicBool]>,
    outputs: Mutex<BTreeSet<ExtentRange>>,
}

impl<'a> PinnedMemory<'a> {
    pub(crate) fn new(core: &'a Core, job: JobId, threads: usize) -> Self {
        let readable = (0..core.extents()).map(|_| AtomicBool::new(false)).collect();
        Self { core, job, threads, readable, outputs: Mutex::default() }
    }
}

impl JobMemory for PinnedMemory<'_> {
    fn extent_bytes(&self) -> u64 {
        self.core.extent_bytes()
    }

    fn node(&self) -> NodeIdentity {
        self.core.node()
    }

    fn check(&self, range: ExtentRange) -> Result<(), JobError> {
        self.core.with_state(|state| state.job_reads(self.job, range))?;
        if let Some(readable) = self.readable.get(range.extent.0 as usize) {
            readable.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, extent: ExtentId, offset: u64, into: &mut [u8]) -> Result<(), JobError> {
        let range = ExtentRange { extent, offset, length: into.len() as u64 };
        if !self.readable.get(extent.0 as usize).is_some_and(|readable| readable.load(Ordering::Relaxed)) {
            self.check(range)?;
        }
        let region = self.core.region(extent).ok_or(Refusal::OutOfBounds(range))?;
        Ok(region.read(offset, into)?)
    }

    fn allocate(&self, length: u64) -> Result<ExtentRange, JobError> {
        let output = self.core.with_state(|state| state.job_allocate(self.job, length))?;
        lock(&self.outputs).insert(output);
        Ok(output)
    }

    fn longest_piece(&self, wanted: u64) -> u64 {
        self.core.with_state(|state| state.job_longest_piece(self.job, wanted))
    }

    fn write(&self, output: ExtentRange, offset: u64, bytes: &[u8]) -> Result<(), JobError> {
        let outside = Refusal::OutOfBounds(output);
        let end = offset.checked_add(bytes.len() as u64);
        if !lock(&self.outputs).contains(&output) || end.is_none_or(|end| end > output.length) {
            return Err(outside.into());
        }
        let region = self.core.region(output.extent).ok_or(outside)?;
        Ok(region.write(output.offset + offset, bytes)?)
    }

    fn free(&self, output: ExtentRange) -> Result<(), JobError> {
        if !lock(&self.outputs).remove(&output) {
            return Err(Refusal::Range(output).into());
        }
        Ok(self.core.with_state(|state| state.job_free(self.job, output))?)
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn may_go_on(&self) -> bool {
        self.core.with_state(|state| state.job_may_go_on(self.job))
    }
}
