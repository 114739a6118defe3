//! The endpoint of a scan: reads are asked for ahead of their use, and survive a break of the endpoint.
//!
//! The sources of a scan share one endpoint, to one member of the shard. If an endpoint breaks, its reads are asked for
//! again over the next one, as long as the link lives. A read that was asked for and is no longer wanted must be given
//! up, so that the endpoint is clean when it goes back to its pool.

use crate::remote::endpoints::Pooled;
use crate::remote::members::Members;
use crate::remote::segment::Remote;
use crate::remote::spot::{Posted, Spot};
use crate::terms::Result;
use crate::terms::error::Error;
use forebay_env::sync::Mutex;
use forebay_fabric::Slot;
use forebay_memory_client::ExtentRange;
use std::sync::Arc;

/// How often a broken endpoint is replaced before a read succeeds.
const REOPENS: u32 = 3;

/// The endpoint that the sources of a scan share.
pub(crate) type SharedEndpoint = Arc<Mutex<ScanEndpoint>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct ScanEndpoint {
    members: Arc<Members>,
    /// The member where the scan reads.
    at: Arc<Remote>,
    endpoint: Pooled,
    /// The number of endpoints before this one.
    generation: u32,
    /// How many of them were replaced since the last read that succeeded.
    reopens: u32,
}

/// A read that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    from: Spot,
    length: usize,
    posted: Posted,
    generation: u32,
}

impl ScanEndpoint {
    /// # Errors
    /// When the memory node is gone.
    pub(crate) fn new(members: Arc<Members>, at: Arc<Remote>) -> Result<Self> {
        Ok(Self { endpoint: at.scan()?, members, at, generation: 0, reopens: 0 })
    }

    /// The member where the scan reads.
    pub(crate) fn member(&self) -> usize {
        self.at.member()
    }

    /// Asks for `length` bytes. The next [`ScanEndpoint::flush`] or wait starts the read.
    ///
    /// # Errors
    /// Those of the fabric that another endpoint does not mend.
    pub(crate) fn ask(&mut self, from: Spot, length: usize) -> Result<Asked> {
        loop {
            match from.post_read(&mut self.endpoint, length) {
                Ok(mut posted) => {
                    posted.begin();
                    return Ok(Asked { from, length, posted, generation: self.generation });
                }
                Err(error) => self.reopen(error)?,
            }
        }
    }

    /// Starts the reads that were asked for.
    pub(crate) fn flush(&mut self) {
        self.endpoint.flush();
    }

    /// Waits for a read.
    ///
    /// # Errors
    /// Those of the fabric that another endpoint does not mend.
    pub(crate) fn wait(&mut self, mut asked: Asked) -> Result<Slot> {
        loop {
            if asked.generation == self.generation || matches!(asked.posted, Posted::Storage(_)) {
                match asked.posted.wait(&mut self.endpoint) {
                    Ok(slot) => {
                        self.reopens = 0;
                        return Ok(slot);
                    }
                    Err(error) => self.reopen(error)?,
                }
            }
            asked = self.ask(asked.from, asked.length)?;
        }
    }

    /// Whether this many records that are apart should be gathered.
    pub(crate) fn gathers(&self, records: usize) -> bool {
        self.at.gathers(records)
    }

    /// Asks the memory node for `ranges` in one piece. Returns `None` when the node does not bring them, whatever the
    /// cause.
    pub(crate) fn gather(&self, ranges: &[ExtentRange]) -> Option<Vec<u8>> {
        self.at.gather(ranges)
    }

    /// Takes back a slot.
    pub(crate) fn release(&mut self, slot: Slot) {
        self.endpoint.release(slot);
    }

    /// Gives up a read that is no longer wanted. Waits for a read from memory, unless its endpoint broke: a broken
    /// endpoint is not used again.
    pub(crate) fn give_up(&mut self, asked: Asked) {
        if asked.generation == self.generation
            && self.endpoint.failure().is_none()
            && matches!(asked.posted, Posted::Memory(_))
            && let Ok(slot) = asked.posted.wait(&mut self.endpoint)
        {
            self.endpoint.release(slot);
        }
    }

    /// Switches to another endpoint after a failure, or returns the failure when that would not help.
    fn reopen(&mut self, failure: Error) -> Result<()> {
        if self.reopens == REOPENS || !self.members.may_read_again(&self.at, &failure) {
            return Err(failure);
        }
        tracing::debug!(%failure, "scanning on over a new endpoint");
        self.reopens += 1;
        self.endpoint = self.at.scan()?;
        self.generation += 1;
        Ok(())
    }
}
