//! Where a segment is, and where a part of it begins, for reads: in remote memory, or in an object in storage.
//!
//! A read is posted and waited for in both cases. A read from memory is one-sided. A read from storage comes through
//! the cache of blocks. If the cache has no block for it, it takes a request, which the first thread that waits for it
//! makes, or the cache's threads before that ([`Posted::begin`]). Both reads return a slot of the endpoint.

use crate::remote::endpoints::received;
use crate::terms::Result;
use forebay_fabric::{Endpoint, RemoteAddress, Slot, WorkId};
use forebay_memory_client::{ExtentId, ExtentRange, MemoryClient};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_storage::{Asked, BlockObject};
use forebay_table::{Placement, SegmentInfo};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Spot {
    /// In remote memory.
    Memory {
        /// For reads.
        address: RemoteAddress,
        /// The same place, for requests to the node.
        extent: ExtentId,
    },
    /// In storage.
    Storage {
        /// The segment's object.
        object: Arc<BlockObject>,
        /// Bytes from the segment's start.
        offset: u64,
    },
}

/// A read that was posted.
#[derive(Debug)]
pub(crate) enum Posted {
    Memory(WorkId),
    Storage(Asked),
}

impl Spot {
    /// Posts a read of `length` bytes.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt` when an object ends before.
    #[inline]
    pub(crate) fn post_read(&self, endpoint: &mut Endpoint, length: usize) -> Result<Posted> {
        match self {
            Self::Memory { address, .. } => {
                let slot = endpoint.slot(length)?;
                Ok(Posted::Memory(endpoint.post_read(*address, slot)?))
            }
            Self::Storage { object, offset } => {
                Ok(Posted::Storage(object.ask(*offset..offset.saturating_add(length as u64))?))
            }
        }
    }

    /// Returns how many bytes `other` is after this spot; `None` when it is before it, or in another segment.
    pub(crate) fn distance_to(&self, other: &Self) -> Option<u64> {
        match (self, other) {
            (Self::Memory { address, .. }, Self::Memory { address: other, .. }) if address.key == other.key => {
                other.offset.checked_sub(address.offset)
            }
            (Self::Storage { object, offset }, Self::Storage { object: other, offset: behind })
                if Arc::ptr_eq(object, other) =>
            {
                behind.checked_sub(*offset)
            }
            _ => None,
        }
    }
}

impl Posted {
    /// Starts a read from storage before somebody waits for it. A read from memory starts with the next doorbell.
    pub(crate) fn begin(&mut self) {
        if let Self::Storage(asked) = self {
            asked.begin();
        }
    }

    /// Waits for what was read.
    ///
    /// # Errors
    /// Those of the fabric and of the storage.
    #[inline]
    pub(crate) fn wait(self, endpoint: &mut Endpoint) -> Result<Slot> {
        match self {
            Self::Memory(id) => received(endpoint.wait_for(id)?),
            Self::Storage(asked) => {
                let mut slot = endpoint.slot((asked.range().end - asked.range().start) as usize)?;
                match asked.wait(&mut slot) {
                    Ok(()) => Ok(slot),
                    Err(error) => {
                        endpoint.release(slot);
                        Err(error.into())
                    }
                }
            }
        }
    }
}

/// The range that a segment occupies, if it is in one piece in the current life of the client's node.
pub(crate) fn place_of(client: &MemoryClient, info: &SegmentInfo) -> Option<ExtentRange> {
    let here = client.node();
    info.placements.iter().find_map(|placement| match *placement {
        Placement::Memory { node, incarnation, extent, offset }
            if (node, incarnation) == (here.node, here.incarnation) =>
        {
            range_of(client, extent, offset, info.length)
        }
        _ => None,
    })
}

/// The range of an allocation of `length` bytes; `None` if no extent has room for it.
pub(crate) fn range_of(client: &MemoryClient, extent: u32, offset: u64, length: u64) -> Option<ExtentRange> {
    let length = length.max(1).checked_next_multiple_of(GRANULARITY_BYTES)?;
    let end = offset.checked_add(length)?;
    (end <= client.extent_bytes()).then_some(ExtentRange { extent: ExtentId(extent), offset, length })
}
