//! Blocks in memory that is registered with the fabric, so that they leave without a copy.

use crate::Memtable;
use crate::block::BlockMemory;
use forebay_fabric::{Backing, Endpoint, Error, Region, RemoteAddress, WorkId};
use std::ptr::NonNull;

/// Registered memory for one block.
#[derive(Debug)]
pub struct RegisteredBlock(Region);

/// The right to send a block's bytes. It can read them and nothing else.
#[derive(Debug)]
pub struct SealedBlock(Region);

impl RegisteredBlock {
    /// Zeroed registered memory of `length_bytes`, a multiple of 8, and the right to send it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad length, [`Error::Io`] when there is no memory.
    pub fn allocate(length_bytes: usize) -> Result<(Self, SealedBlock), Error> {
        let region = Region::allocate(length_bytes, Backing::Private)?;
        Ok((Self(region.clone()), SealedBlock(region)))
    }
}

// SAFETY: the region was allocated here, is mapped zeroed and writable until the last clone is
// dropped, and starts at a page. It has two clones: this one, which is private, and the one in
// `SealedBlock`, which is never granted and never written.
unsafe impl BlockMemory for RegisteredBlock {
    fn base(&self) -> NonNull<u8> {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.length() as usize
    }
}

impl SealedBlock {
    /// Queues a write of `length` bytes from `offset` of the block of `memtable` to `to`, without a
    /// copy.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the block is another memtable's or the bytes are not complete
    /// ([`Memtable::filled_prefix_bytes`]); as [`Endpoint::post_write_sealed`].
    pub fn post(
        &self,
        memtable: &Memtable,
        endpoint: &mut Endpoint,
        to: RemoteAddress,
        offset: usize,
        length: usize,
    ) -> Result<WorkId, Error> {
        // Reading what is still being written would be a data race.
        let is_complete =
            (offset as u64).checked_add(length as u64).is_some_and(|end| end <= memtable.filled_prefix_bytes());
        if memtable.memory().base() != self.0.as_ptr() || !is_complete {
            return Err(Error::Invalid(format!("{length} bytes at {offset} of a block are not complete")));
        }
        endpoint.post_write_sealed(to, &self.0, offset as u64, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemtableOptions, Reserved};
    use forebay_base::{KeyOrder, Kind, SequenceNumber};
    use forebay_fabric::{EndpointOptions, Event, Listener, Rights, inprocess};
    use std::time::Duration;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such mapping of memory")]
    fn a_block_arrives_as_it_stands() {
        let (mut listener, connector) = inprocess::listen(1).unwrap();
        let link = connector.connect().unwrap();
        let Some(Event::Joined(peer)) = listener.next(Duration::from_secs(5)).unwrap() else { panic!("no link") };
        let target = listener.allocate(4096).unwrap();
        let key = peer.grant(&target, 0, 4096, Rights::ALL).unwrap();
        let (memory, sealed) = RegisteredBlock::allocate(4096).unwrap();
        let options = MemtableOptions {
            order: KeyOrder::Bytewise,
            base: SequenceNumber::ZERO,
            capacity_bytes: 4096,
            piece_bytes: 1024,
            seed: 1,
        };
        let memtable = Memtable::new(options, Box::new(memory)).unwrap();
        let Reserved::Fits(mut reservation) = memtable.reserve(1, 24).unwrap() else { panic!("it fits") };
        reservation.insert(Kind::Put, b"key", b"value", None).unwrap();
        memtable.end_early().unwrap();
        let mut endpoint = link.endpoint(EndpointOptions::background()).unwrap();
        let id = sealed.post(&memtable, &mut endpoint, key.at(8), 0, 24).unwrap();
        endpoint.wait_for(id).unwrap();
        let mut arrived = [0; 24];
        target.read(8, &mut arrived).unwrap();
        assert_eq!(arrived, memtable.filled_prefix());
        assert!(sealed.post(&memtable, &mut endpoint, key.at(8), 4090, 24).is_err());
    }
}
