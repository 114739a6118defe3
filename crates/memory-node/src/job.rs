//! Jobs that a memory node runs near its data.
//!
//! A [`JobRunner`] runs one kind of job: bytes in, bytes out. It reaches memory only through [`JobMemory`], which lets
//! it read the memory of its session and of the shards that the session owns, and write what it allocated. The node checks the shard's epoch when
//! the job is offered and when it ends. If the owner was fenced meanwhile, the job learns it from [`JobMemory::may_go_on`],
//! and its outputs are freed.

use crate::core::Core;
use crate::state::{Job, JobId, Refusal};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_fabric::NodeIdentity;
use forebay_proto::{ExtentId, ExtentRange};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// An error of the given kind.
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
    /// [`JobError`], which goes to the caller.
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError>;
    /// How long the job takes, as far as its arguments show.
    fn pace(&self, _arguments: &[u8]) -> Pace {
        Pace::Long
    }
}

/// How long a job takes, which decides where it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Microseconds: it runs where its request was received.
    AtOnce,
    /// At most a few milliseconds: it waits for others of its kind, not for long jobs.
    Soon,
    /// Any time.
    Long,
}

/// The memory that a job may touch.
pub trait JobMemory: Sync {
    /// Length of the longest possible output in bytes.
    fn extent_bytes(&self) -> u64;
    /// The node that holds the memory, and its incarnation.
    fn node(&self) -> NodeIdentity;
    /// Checks that the job may read the range. Its extent then stays in place until the job ends.
    ///
    /// # Errors
    /// As [`JobMemory::read`].
    fn check(&self, range: ExtentRange) -> Result<(), JobError>;
    /// Copies bytes from memory of the job's session, or of a shard that the session owns.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for other memory, [`ErrorKind::Fenced`].
    fn read(&self, extent: ExtentId, offset: u64, into: &mut [u8]) -> Result<(), JobError>;
    /// Allocates an output in the node's own part (dLSM V-A). It is zeroed, or holds the bytes of an earlier output of
    /// the same shard.
    ///
    /// # Errors
    /// [`ErrorKind::Full`], [`ErrorKind::Busy`], [`ErrorKind::Invalid`], [`ErrorKind::Fenced`].
    fn allocate(&self, length: u64) -> Result<ExtentRange, JobError>;
    /// Bytes of the longest output that fits into one free piece, at most `wanted`.
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
    /// Number of calls and jobs that wait at the node, so that callers can reduce its load.
    fn waiting(&self) -> u32;
    /// Number of threads that the job may use: the calling one and those without another job.
    fn threads(&self) -> usize;
    /// False when the job's session or epoch has ended. Its result will then not count.
    fn may_go_on(&self) -> bool;
}

/// A job's access to the node's memory. What was checked once stays valid until the job ends: its extents are pinned,
/// and nobody else frees its outputs.
pub(crate) struct PinnedMemory<'a> {
    core: &'a Core,
    job: JobId,
    threads: usize,
    /// For each extent, whether the job may read it. A thread that finds true needs no other data from the thread that
    /// checked.
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

    fn waiting(&self) -> u32 {
        self.core.with_state(|state| state.waiting())
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn may_go_on(&self) -> bool {
        self.core.with_state(|state| state.job_may_go_on(self.job))
    }
}
