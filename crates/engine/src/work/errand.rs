//! Jobs of any kind that run at the executor that the scheduler finds (O3-LSM 4.3).
//!
//! ```text
//!  compute node               memory node             scheduler            executor
//!   arguments ── one-sided ──► leased memory
//!   open ticket ─────────────►
//!   PREPARE ────────────────────────────────────────────► ASSIGN ───────────►
//!                                            keys ◄────── join, read, allocate
//!                              outputs and result ◄────── one-sided
//!   ◄──────────────────────────────────────── COMMIT ◄────────────── COMMIT
//!   take over what was made
//!   close ticket, ACK, install
//! ```
//!
//! Whatever goes wrong, the ticket is closed first, so that no executor can do any harm; then the job runs at the memory
//! node, if that is what the scheduler found, or here.

use crate::remote::offloading::Offloading;
use crate::remote::pipeline::Pipeline;
use crate::remote::segment::{Remote, Segment};
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::work::near_data::NotThere;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, checksum};
use forebay_env::Random;
use forebay_memory_client::{Purpose, ShardHandle};
use forebay_offload::{JobName, Order, Outcome, Package, Reason, Span, StorageNeed, Ticket};
use forebay_table::SegmentKind;
use std::sync::Arc;
use std::time::Duration;

/// A job that an executor is to run.
pub(crate) struct Errand {
    pub(crate) kind: u16,
    /// The job's number within its shard.
    pub(crate) job: u64,
    /// All that the executor must know.
    pub(crate) arguments: Vec<u8>,
    /// What the executor needs from the storage.
    pub(crate) storage: StorageNeed,
    /// Bytes of its inputs, in memory and in storage.
    pub(crate) memory_bytes: u64,
    pub(crate) storage_bytes: u64,
    /// How long it may take.
    pub(crate) patience: Duration,
    /// Whether the job runs here unless an executor has a thread for it now.
    pub(crate) must_not_wait: bool,
}

impl Shard {
    /// Lets an executor run a job, and lets `take` take over what it made; `None` when the memory node is to run it.
    pub(crate) fn offload<T>(
        &self,
        offloading: &Offloading,
        (remote, shard): (&Arc<Remote>, &ShardHandle),
        errand: &Errand,
        take: impl FnMut(&Outcome) -> Result<T>,
    ) -> Result<Option<T>, NotThere> {
        offloading.check().map_err(NotThere::Refused)?;
        let arguments = self.write_arguments(remote, &errand.arguments)?;
        let secret =
            Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("drawing a secret: {error}")))?;
        let opened = shard.open_ticket(secret).map_err(Error::from);
        let number = opened.map_err(|error| self.refused(remote, shard, error))?;
        let name = JobName {
            database: offloading.database(),
            shard: shard.key().shard.0,
            epoch: shard.epoch().0,
            job: errand.job,
        };
        let package = package(remote, errand, &arguments, number, secret);
        let prepared =
            package.and_then(|package| offloading.prepare(name, package, errand.patience, errand.must_not_wait));
        if let Err(error) = prepared {
            close_ticket(remote, shard, number);
            return Err(NotThere::Refused(error));
        }
        await_decision(offloading, name, take, || close_ticket(remote, shard, number))
    }

    /// Writes the arguments to memory where executors read them: to what this session leases, or, if it gets no more,
    /// to where the job's outputs go.
    fn write_arguments(&self, remote: &Arc<Remote>, bytes: &[u8]) -> Result<(Arc<Segment>, u32), NotThere> {
        let length = bytes.len() as u64;
        let refused = |error: Error| match error.kind() {
            ErrorKind::Full | ErrorKind::Busy | ErrorKind::Invalid => NotThere::Refused(error),
            _ => NotThere::Failed(error),
        };
        let segment = match remote.allocate(self.tree.next_segment(), SegmentKind::Run, length, Purpose::Collection) {
            Err(full) if full.kind() == ErrorKind::Full => {
                self.store_near_data(remote, SegmentKind::Run, bytes).map_err(refused)?
            }
            allocated => {
                let segment = allocated.map_err(refused)?;
                let mut pipeline = Pipeline::new(remote.background()?);
                pipeline.write(&segment, 0, bytes)?;
                pipeline.drain()?;
                segment
            }
        };
        statistics::add(&self.tree.counters.compaction_fabric_bytes, length);
        Ok((segment, checksum(bytes)))
    }
}

/// Does what is to be done about the job until it is decided.
fn await_decision<T>(
    offloading: &Offloading,
    name: JobName,
    mut take: impl FnMut(&Outcome) -> Result<T>,
    end_keys: impl Fn(),
) -> Result<Option<T>, NotThere> {
    let mut made = None;
    loop {
        match offloading.next(name) {
            Order::Install { outcome, .. } => match take(&outcome) {
                Ok(taken) => {
                    made = Some(taken);
                    offloading.installed(name);
                }
                Err(error) => {
                    tracing::debug!(%error, "what an executor made is refused");
                    offloading.refused(name);
                }
            },
            Order::EndKeys(_) => end_keys(),
            Order::FreeInputs(_) => {
                let undone = || NotThere::Failed(Error::corrupt("a job was decided before it was done"));
                return made.map(Some).ok_or_else(undone);
            }
            Order::RunElsewhere(_, Reason::Near) => return Ok(None),
            Order::RunElsewhere(_, reason) => {
                let kind = match reason {
                    Reason::Home | Reason::Near | Reason::Busy => ErrorKind::Busy,
                    Reason::Failed | Reason::Lost | Reason::Ended => ErrorKind::Unavailable,
                };
                let cause = format!("no executor did it: {reason:?}");
                return Err(NotThere::Refused(Error::new(kind, cause)));
            }
            // The letters have gone already.
            Order::Send(_) => {}
        }
    }
}

/// What an executor must know of the job.
fn package(
    remote: &Remote,
    errand: &Errand,
    (segment, checksum): &(Arc<Segment>, u32),
    number: u64,
    secret: u128,
) -> Result<Package> {
    let here = remote.memory_node().client().node();
    let length = segment.info().length;
    let place = remote.place_of(segment.info());
    let place = place.ok_or_else(|| Error::corrupt("the arguments of a job are nowhere"))?;
    Ok(Package {
        kind: errand.kind,
        storage: errand.storage,
        ticket: Ticket { node: here.node, incarnation: here.incarnation, job: number, secret },
        arguments: Span { extent: place.extent.0, offset: place.offset, length, checksum: *checksum },
        memory_bytes: errand.memory_bytes,
        storage_bytes: errand.storage_bytes,
    })
}

/// Ends the ticket. If the node cannot be reached, the ticket ends with the session or the epoch, and nobody adopts
/// what was made for it.
fn close_ticket(remote: &Remote, shard: &ShardHandle, number: u64) {
    if let Err(error) = shard.close_ticket(number) {
        tracing::debug!(%error, "a ticket could not be closed: the epoch ends");
        if let Err(error) = remote.end_epoch() {
            tracing::debug!(%error, "the epoch could not be ended");
        }
    }
}
