//! A job's reads and writes: one-sided, several in flight, with keys that were lent for the attempt.

use crate::Error;
use crate::stored::Stored;
use forebay_base::{ErrorKind, SegmentId};
use forebay_fabric::{Completion, Endpoint, NodeIdentity, Outcome, RemoteAddress};
use forebay_memory_client::{ExtentId, ExtentRange, JoinedTicket};
use forebay_storage::BlockObject;
use forebay_table::job::{AllocatedSegment, GatherRead, JobIo};
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one read or write.
const PIECE_BYTES: usize = 1 << 20;
/// Long reads and writes in flight.
const DEPTH: usize = 8;
/// Reads of records in flight.
const GATHER_DEPTH: usize = 256;

/// Memory of a segment that the attempt may touch.
#[derive(Debug, Clone, Copy)]
struct Place {
    address: RemoteAddress,
    length: u64,
}

impl Place {
    /// Returns the address of a part, if it is within this memory.
    fn part(&self, offset: u64, length: usize) -> Option<RemoteAddress> {
        let end = offset.checked_add(length as u64)?;
        (end <= self.length).then(|| self.address.add(offset))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RemoteIo<'a> {
    node: NodeIdentity,
    pub joined: JoinedTicket,
    endpoint: Endpoint,
    inputs: BTreeMap<SegmentId, Place>,
    stored_inputs: BTreeMap<SegmentId, BlockObject>,
    /// The attempt's objects in storage, if it has any.
    pub stored: Option<Stored>,
    outputs: BTreeMap<SegmentId, Place>,
    /// Numbers that outputs may still take.
    numbers: Range<u64>,
    stop: &'a AtomicBool,
    extent_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl<'a> RemoteIo<'a> {
    pub fn new(
        node: NodeIdentity,
        extent_bytes: u64,
        joined: JoinedTicket,
        endpoint: Endpoint,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            node,
            joined,
            endpoint,
            inputs: BTreeMap::new(),
            stored_inputs: BTreeMap::new(),
            stored: None,
            outputs: BTreeMap::new(),
            numbers: 0..0,
            stop,
            extent_bytes,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Gets keys to the job's inputs, and opens those in storage. Outputs get these numbers.
    pub fn take_inputs(
        &mut self,
        segments: &BTreeMap<SegmentId, SegmentInfo>,
        numbers: Range<u64>,
    ) -> Result<(), Error> {
        let mut ranges = Vec::with_capacity(segments.len());
        let mut in_memory = Vec::with_capacity(segments.len());
        for (&id, info) in segments {
            if let (Some(name), Some(stored)) = (object(info), &self.stored) {
                self.stored_inputs.insert(id, stored.open(name, info.length)?);
                continue;
            }
            in_memory.push((id, info.length));
            let outside = || Error::Unsupported(format!("{id} does not lie in {}", self.node));
            ranges.push(place(info, self.node).ok_or_else(outside)?);
        }
        let addresses = self.joined.read(&ranges)?;
        let places = in_memory.into_iter().zip(addresses);
        self.inputs = places.map(|((id, length), address)| (id, Place { address, length })).collect();
        self.numbers = numbers;
        Ok(())
    }

    /// Reads a range of the ticket's node.
    pub fn read_range(&mut self, range: ExtentRange) -> Result<Vec<u8>, Error> {
        let too_long = || Error::Unsupported(format!("{range} is longer than an extent"));
        let length = usize::try_from(range.length).ok().filter(|_| range.length <= self.extent_bytes);
        let mut bytes = vec![0; length.ok_or_else(too_long)?];
        let addresses = self.joined.read(&[range])?;
        for address in addresses {
            self.read_long(address, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Writes bytes to an output of their own. Returns where they are.
    pub fn write_output(&mut self, bytes: &[u8]) -> Result<ExtentRange, Error> {
        let (range, address) = self.joined.allocate(bytes.len() as u64)?;
        self.write_long(address, bytes)?;
        self.drain()?;
        Ok(ExtentRange { length: bytes.len() as u64, ..range })
    }

    /// Puts an input into storage as it stands, under its own number.
    pub fn copy(&mut self, id: SegmentId, length: u64) -> Result<(), Error> {
        let nowhere = || Error::Unsupported("a copy is made in storage, and none is named".into());
        self.stored.as_mut().ok_or_else(nowhere)?.create(id, length)?;
        let (mut piece, mut offset) = (Vec::new(), 0);
        while offset < length {
            if self.cancelled() {
                return Err(forebay_table::Error::Cancelled.into());
            }
            let bytes = (PIECE_BYTES as u64).min(length - offset);
            piece.resize(bytes as usize, 0);
            self.read(id, offset, &mut piece)?;
            self.write(id, offset, &piece)?;
            offset += bytes;
        }
        Ok(())
    }

    /// Waits until all writes are complete.
    pub fn drain(&mut self) -> Result<(), Error> {
        while self.endpoint.outstanding() > 0 {
            let completion = self.endpoint.wait()?;
            self.finish(completion)?;
        }
        Ok(())
    }

    fn finish(&mut self, completion: Completion) -> Result<(), Error> {
        if let Outcome::Done(Some(slot)) = completion.result? {
            self.endpoint.release(slot);
        }
        Ok(())
    }

    fn read_long(&mut self, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        self.drain()?;
        let mut offset = 0;
        let mut posted = VecDeque::with_capacity(DEPTH);
        let mut pieces = into.chunks_mut(PIECE_BYTES);
        loop {
            while posted.len() < DEPTH
                && let Some(piece) = pieces.next()
            {
                let slot = self.endpoint.slot(piece.len())?;
                let id = self.endpoint.post_read(from.add(offset), slot)?;
                offset += piece.len() as u64;
                self.read_bytes += piece.len() as u64;
                posted.push_back((id, piece));
            }
            let Some((id, piece)) = posted.pop_front() else { return Ok(()) };
            self.endpoint.flush();
            let Outcome::Read(slot) = self.endpoint.wait_for(id)? else {
                return Err(Error::Corrupt("a read gave no bytes".into()));
            };
            piece.copy_from_slice(&slot);
            self.endpoint.release(slot);
        }
    }

    fn write_long(&mut self, to: RemoteAddress, bytes: &[u8]) -> Result<(), Error> {
        let mut offset = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut slot = self.endpoint.slot(piece.len())?;
            slot.copy_from_slice(piece);
            self.endpoint.post_write(to.add(offset), slot)?;
            self.endpoint.flush();
            offset += piece.len() as u64;
            self.written_bytes += piece.len() as u64;
            while self.endpoint.outstanding() >= DEPTH {
                let completion = self.endpoint.wait()?;
                self.finish(completion)?;
            }
        }
        Ok(())
    }

    fn input(&self, segment: SegmentId, offset: u64, length: usize) -> Result<RemoteAddress, Error> {
        let outside = || Error::Corrupt(format!("a read of {length} bytes at {offset} leaves the inputs at {segment}"));
        self.inputs.get(&segment).and_then(|place| place.part(offset, length)).ok_or_else(outside)
    }

    fn read_batch(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<(), Error> {
        // Completions of writes in flight would mix with those of the reads.
        self.drain()?;
        for batch in reads.chunks(GATHER_DEPTH) {
            let mut posted = Vec::with_capacity(batch.len());
            let mut asked = Vec::new();
            for read in batch {
                if let Some(object) = self.stored_inputs.get(&read.address.segment) {
                    let end = read.address.offset.saturating_add(read.length as u64);
                    asked.push((read, object.ask(read.address.offset..end)?));
                    self.read_bytes += read.length as u64;
                    continue;
                }
                let from = self.input(read.address.segment, read.address.offset, read.length)?;
                let slot = self.endpoint.slot(read.length)?;
                posted.push((read, self.endpoint.post_read(from, slot)?));
                self.read_bytes += read.length as u64;
            }
            self.endpoint.flush();
            asked.iter_mut().for_each(|(_, asked)| asked.begin());
            for (read, asked) in asked {
                asked.wait(part(into, read)?)?;
            }
            for (read, id) in posted {
                let Outcome::Read(slot) = self.endpoint.wait_for(id)? else {
                    return Err(Error::Corrupt("a read gave no bytes".into()));
                };
                part(into, read)?.copy_from_slice(&slot);
                self.endpoint.release(slot);
            }
        }
        Ok(())
    }
}

/// The part of the job's buffer that a read fills.
fn part<'b>(into: &'b mut [u8], read: &GatherRead) -> Result<&'b mut [u8], Error> {
    let end = read.destination.checked_add(read.length);
    let part = end.and_then(|end| into.get_mut(read.destination..end));
    part.ok_or(Error::Job(forebay_table::Error::Invalid("a read leaves the job's buffer")))
}

/// Returns the name of the object of a segment that is in storage only.
fn object(info: &SegmentInfo) -> Option<&str> {
    match &info.placements[..] {
        [Placement::Storage { object }] => Some(object),
        _ => None,
    }
}

/// Returns the place of a segment on this node since its last start.
fn place(info: &SegmentInfo, here: NodeIdentity) -> Option<ExtentRange> {
    info.placements.iter().find_map(|placement| match *placement {
        Placement::Memory { node, incarnation, extent, offset } if (NodeIdentity { node, incarnation }) == here => {
            Some(ExtentRange { extent: ExtentId(extent), offset, length: info.length })
        }
        _ => None,
    })
}

fn as_table_error(error: Error) -> forebay_table::Error {
    match error {
        Error::Job(error) => error,
        error => forebay_table::Error::Io { kind: error.kind(), message: error.to_string() },
    }
}

impl JobIo for RemoteIo<'_> {
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> forebay_table::Result<()> {
        if let Some(object) = self.stored_inputs.get(&segment) {
            self.read_bytes += into.len() as u64;
            return object.read_at(offset, into).map_err(|error| as_table_error(error.into()));
        }
        let from = self.input(segment, offset, into.len()).map_err(as_table_error)?;
        self.read_long(from, into).map_err(as_table_error)
    }

    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> forebay_table::Result<()> {
        self.read_batch(reads, into).map_err(as_table_error)
    }

    fn longest_piece(&mut self, wanted: u64) -> u64 {
        let is_stored = self.stored.as_ref().is_some_and(|stored| stored.has_outputs);
        if is_stored { wanted } else { self.joined.longest_bytes().min(wanted) }
    }

    fn allocate(&mut self, _kind: SegmentKind, length: u64) -> forebay_table::Result<AllocatedSegment> {
        let number = self.numbers.next();
        let id = SegmentId(number.ok_or(forebay_table::Error::Invalid("no number is left for an output"))?);
        if let Some(stored) = self.stored.as_mut().filter(|stored| stored.has_outputs) {
            let object = stored.create(id, length).map_err(as_table_error)?;
            return Ok(AllocatedSegment { id, placements: vec![Placement::Storage { object }] });
        }
        let (range, address) = self.joined.allocate(length).map_err(|error| as_table_error(error.into()))?;
        self.outputs.insert(id, Place { address, length });
        let NodeIdentity { node, incarnation } = self.node;
        let placement = Placement::Memory { node, incarnation, extent: range.extent.0, offset: range.offset };
        Ok(AllocatedSegment { id, placements: vec![placement] })
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> forebay_table::Result<()> {
        if let Some(stored) = &mut self.stored
            && stored.write(segment, bytes).map_err(as_table_error)?
        {
            self.written_bytes += bytes.len() as u64;
            return Ok(());
        }
        let to = self.outputs.get(&segment).and_then(|place| place.part(offset, bytes.len()));
        let outside = || forebay_table::Error::Io {
            kind: ErrorKind::Invalid,
            message: format!("{} bytes at {offset} do not fit into {segment}", bytes.len()),
        };
        self.write_long(to.ok_or_else(outside)?, bytes).map_err(as_table_error)
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
