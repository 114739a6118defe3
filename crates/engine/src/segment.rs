//! Segments that this process holds: remote memory that is freed when nothing names it any more.
//!
//! Tables, memtables being flushed and jobs hold a [`Segment`] by `Arc`; versions hold tables,
//! readers hold versions. So a segment lives exactly as long as some version, snapshot or iterator
//! needs it (dLSM V-B), and no list of pins has to be kept.

use crate::endpoints::{Endpoints, Pool, Pooled};
use crate::{Error, Options, Result};
use forebay_base::{ErrorKind, SegmentId};
use forebay_fabric::{EndpointOptions, Link, RemoteAddress, Traffic};
use forebay_memory_client::{Allocation, AllocatorOptions, MemoryClient, Purpose, SubAllocator};
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory node that a shard's segments lie in, as seen from this process.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Arc<MemoryClient>,
    allocator: SubAllocator,
    foreground: Endpoints,
    scans: Arc<Pool>,
    background: Arc<Pool>,
}

impl Remote {
    pub(crate) fn new(client: Arc<MemoryClient>, options: &Options) -> Self {
        let endpoint =
            |traffic| EndpointOptions { traffic, timeout: options.fabric_timeout, clock: Arc::clone(&options.clock) };
        Self {
            allocator: SubAllocator::new(Arc::clone(&client), None, AllocatorOptions::default()),
            foreground: Endpoints::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            scans: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Foreground)),
            background: Pool::new(Arc::clone(client.link()), endpoint(Traffic::Background)),
            client,
        }
    }

    /// The endpoints of callers.
    pub(crate) fn foreground(&self) -> &Endpoints {
        &self.foreground
    }

    /// An endpoint for a background job.
    pub(crate) fn background(&self) -> Result<Pooled> {
        self.background.take()
    }

    /// An endpoint for an iterator.
    pub(crate) fn scan(&self) -> Result<Pooled> {
        self.scans.take()
    }

    pub(crate) fn link(&self) -> &Arc<dyn Link> {
        self.client.link()
    }

    /// Whether what failed may succeed over another endpoint: the node is still there.
    pub(crate) fn may_retry(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
            && self.client.check().is_ok()
            && self.link().is_alive()
    }

    /// Bytes that segments take.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocator.statistics().ranges.allocated_bytes
    }

    /// Returns memory that holds nothing to the memory node.
    pub(crate) fn give_back(&self) {
        if let Err(error) = self.allocator.give_back(0) {
            tracing::debug!(%error, "giving memory back");
        }
    }

    /// Largest record that fits, in bytes.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.client.extent_bytes() / 2
    }

    /// Allocates a segment of at least one byte.
    ///
    /// # Errors
    /// `Full` when the memory node has no memory left; `Invalid` when the segment is larger than
    /// what the node hands out in one piece.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        id: SegmentId,
        kind: SegmentKind,
        length: u64,
        purpose: Purpose,
    ) -> Result<Arc<Segment>> {
        let allocation = self.allocator.allocate_for(purpose, length)?;
        let base = self.allocator.resolve(allocation)?;
        let node = self.client.node();
        let placement = Placement::Memory {
            node: node.node,
            incarnation: node.incarnation,
            extent: allocation.extent.0,
            offset: allocation.offset,
        };
        let info = SegmentInfo::new(kind, length, vec![placement]);
        Ok(Arc::new(Segment {
            id,
            info,
            base,
            allocation: Some(allocation),
            is_abandoned: AtomicBool::new(false),
            remote: Arc::clone(self),
        }))
    }
}

/// A segment of remote memory, freed when dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    id: SegmentId,
    info: SegmentInfo,
    base: RemoteAddress,
    allocation: Option<Allocation>,
    is_abandoned: AtomicBool,
    remote: Arc<Remote>,
}

impl Segment {
    pub(crate) fn id(&self) -> SegmentId {
        self.id
    }

    pub(crate) fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Where `offset` bytes into the segment is.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> RemoteAddress {
        self.base.add(offset)
    }

    /// How much of a read of `length` bytes at `offset` lies within the segment.
    #[inline]
    pub(crate) fn clip(&self, offset: u64, length: u64) -> usize {
        length.min(self.info.length.saturating_sub(offset)) as usize
    }

    /// Keeps the memory from being used again: a write may still reach it. It goes back to the node
    /// with the session.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take()
            && !self.is_abandoned.load(Ordering::Relaxed)
        {
            // On a session that ended the memory is the node's again already.
            if let Err(error) = self.remote.allocator.free(allocation) {
                tracing::debug!(%error, segment = self.id.0, "freeing a segment");
            }
        }
    }
}
