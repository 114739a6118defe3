//! Writes of a background job, several in flight (dLSM X-C).
//!
//! Buffers are reused in the order in which the fabric finishes them. The job waits only when the maximum number of
//! writes is in flight.
//!
//! A job may fail while writes are in flight. Memory that such a write may still reach must not be reused: it is freed
//! after the writes are done, and never if that cannot be known.

use crate::remote::endpoints::{Pooled, received};
use crate::remote::segment::Segment;
use crate::remote::spot::Spot;
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_fabric::{Endpoint, RemoteAddress, Slot};
use forebay_memtable::{Memtable, SealedBlock};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes per write.
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of writes in flight.
const DEPTH: usize = 8;

/// An endpoint that writes without waiting for each write.
#[derive(Debug)]
pub(crate) struct Pipeline {
    endpoint: Pooled,
    written_bytes: u64,
    /// Segments that writes may be in flight to.
    targets: Vec<Arc<Segment>>,
}

impl Pipeline {
    pub(crate) fn new(endpoint: Pooled) -> Self {
        Self { endpoint, written_bytes: 0, targets: Vec::new() }
    }

    /// The endpoint, for reads between writes.
    pub(crate) fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Bytes posted so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Registered memory for [`Pipeline::write_slot`].
    pub(crate) fn slot(&mut self, length: usize) -> Result<Slot> {
        Ok(self.endpoint.slot(length)?)
    }

    /// Writes the bytes in registered memory to a segment, without a copy.
    pub(crate) fn write_slot(&mut self, segment: &Arc<Segment>, offset: u64, slot: Slot) -> Result<()> {
        let length = slot.len();
        self.aim(segment, offset, length)?;
        self.endpoint.post_write(segment.at(offset)?, slot)?;
        self.posted(length)
    }

    /// Writes bytes to a segment, with one copy into registered memory.
    pub(crate) fn write(&mut self, segment: &Arc<Segment>, offset: u64, bytes: &[u8]) -> Result<()> {
        self.aim(segment, offset, bytes.len())?;
        for (i, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let mut slot = self.endpoint.slot(piece.len())?;
            slot.copy_from_slice(piece);
            self.endpoint.post_write(segment.at(offset + (i * PIECE_BYTES) as u64)?, slot)?;
            self.posted(piece.len())?;
        }
        Ok(())
    }

    /// Writes part of a memtable's block to the start of a segment, without a copy.
    pub(crate) fn write_block(
        &mut self,
        segment: &Arc<Segment>,
        memtable: &Memtable,
        block: &SealedBlock,
        part: Range<usize>,
    ) -> Result<()> {
        self.aim(segment, 0, part.len())?;
        for offset in part.clone().step_by(PIECE_BYTES) {
            let piece = PIECE_BYTES.min(part.end - offset);
            let target = segment.at((offset - part.start) as u64)?;
            block.post(memtable, &mut self.endpoint, target, offset, piece)?;
            self.posted(piece)?;
        }
        Ok(())
    }

    /// Checks that a write fits, and remembers its target.
    fn aim(&mut self, segment: &Arc<Segment>, offset: u64, length: usize) -> Result<()> {
        if offset.checked_add(length as u64).is_none_or(|end| end > segment.info().length) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{length} bytes at {offset} do not fit into {} of {} bytes",
                    segment.id(),
                    segment.info().length
                ),
            ));
        }
        if self.targets.last().is_none_or(|last| !Arc::ptr_eq(last, segment)) {
            self.targets.push(Arc::clone(segment));
        }
        Ok(())
    }

    fn posted(&mut self, bytes: usize) -> Result<()> {
        self.written_bytes += bytes as u64;
        self.endpoint.flush();
        while let Some(completion) = self.endpoint.poll() {
            self.finish(completion)?;
        }
        while self.endpoint.outstanding() >= DEPTH {
            let completion = self.endpoint.wait()?;
            self.finish(completion)?;
        }
        Ok(())
    }

    fn finish(&mut self, completion: forebay_fabric::Completion) -> Result<()> {
        if let forebay_fabric::Outcome::Done(Some(slot)) = completion.result? {
            self.endpoint.release(slot);
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(crate) fn drain(&mut self) -> Result<()> {
        while self.endpoint.outstanding() > 0 {
            let completion = self.endpoint.wait()?;
            self.finish(completion)?;
        }
        self.targets.clear();
        Ok(())
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let failed = self.endpoint.failure().is_some();
        if failed || self.drain().is_err() {
            self.targets.iter().for_each(|segment| segment.abandon());
        }
    }
}

/// Reads `length` bytes with several reads in flight.
///
/// # Errors
/// Errors of the fabric.
pub(crate) fn read_range(endpoint: &mut Endpoint, from: RemoteAddress, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length as usize);
    let take = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        true
    };
    read_while(endpoint, from, length, take)?;
    Ok(bytes)
}

/// Reads at most `length` bytes with several reads in flight, and passes them on piece by piece, until `wants_more` says
/// that it does not.
///
/// # Errors
/// Errors of the fabric.
pub(crate) fn read_while(
    endpoint: &mut Endpoint,
    from: RemoteAddress,
    length: u64,
    mut wants_more: impl FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut posted = VecDeque::with_capacity(DEPTH);
    let (mut next, mut goes_on) = (0, true);
    loop {
        while goes_on && next < length && posted.len() < DEPTH {
            let piece = (PIECE_BYTES as u64).min(length - next);
            let slot = endpoint.slot(piece as usize)?;
            posted.push_back(endpoint.post_read(from.add(next), slot)?);
            next += piece;
        }
        let Some(id) = posted.pop_front() else { return Ok(()) };
        let slot = received(endpoint.wait_for(id)?)?;
        goes_on = goes_on && wants_more(&slot);
        endpoint.release(slot);
    }
}

/// Does the same for a part of a segment, in memory or storage.
///
/// # Errors
/// Errors of the fabric and of the storage.
pub(crate) fn read_spot(endpoint: &mut Endpoint, spot: &Spot, length: u64) -> Result<Vec<u8>> {
    match spot {
        Spot::Memory { address, .. } => read_range(endpoint, *address, length),
        Spot::Storage { object, offset } => {
            let mut bytes = vec![0; length as usize];
            object.read_at(*offset, &mut bytes)?;
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::segment::{Node, Remote};
    use crate::terms::Options;
    use forebay_base::SegmentId;
    use forebay_fabric::EndpointOptions;
    use forebay_fabric::sim::{SimNetwork, SimOptions, Time};
    use forebay_memory_client::{ClientOptions, MemoryClient, Purpose, ShardId};
    use forebay_memory_node::{Handle, MemoryNode};
    use forebay_table::SegmentKind;
    use std::time::Duration;

    const BYTES: usize = PIECE_BYTES;

    fn start() -> (SimNetwork, Handle, Arc<Remote>) {
        let network = SimNetwork::new(1, SimOptions { time: Time::Real, ..SimOptions::default() });
        let options = forebay_memory_node::Options::with_memory(16 << 20);
        let node = MemoryNode::start(Box::new(network.listen(1).unwrap()), options).unwrap();
        let client = MemoryClient::connect(network.connect(1).unwrap(), "pipeline", ClientOptions::default()).unwrap();
        let options = Options { fabric_timeout: Duration::from_millis(50), ..Options::default() };
        (network, node, Arc::new(Remote::new(&Node::new(0, client, &options, None), None, ShardId(0)).unwrap()))
    }

    fn write_and_give_up(remote: &Arc<Remote>, before_the_end: impl FnOnce()) -> Arc<Segment> {
        let segment = remote.allocate(SegmentId(1), SegmentKind::Run, BYTES as u64, Purpose::Flush).unwrap();
        let mut pipeline = Pipeline::new(remote.background().unwrap());
        pipeline.write(&segment, 0, &[1; BYTES]).unwrap();
        assert!(pipeline.endpoint().outstanding() > 0);
        before_the_end();
        segment
    }

    #[test]
    fn no_write_is_in_flight_when_a_job_has_failed() {
        let (_network, _node, remote) = start();
        let segment = write_and_give_up(&remote, || ());
        let mut found = vec![0; BYTES];
        let mut endpoint = remote.memory_node().link().endpoint(EndpointOptions::default()).unwrap();
        endpoint.read(segment.at(0).unwrap(), &mut found).unwrap();
        assert!(found == [1; BYTES]);
        drop(segment);
        assert_eq!(remote.memory_node().allocated_bytes(), 0);
    }

    #[test]
    fn what_a_lost_write_may_reach_is_not_used_again() {
        let (network, _node, remote) = start();
        let segment = write_and_give_up(&remote, || network.partition(1));
        network.heal(1);
        drop(segment);
        assert_eq!(remote.memory_node().allocated_bytes(), BYTES as u64);
    }
}
