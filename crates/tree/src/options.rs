//! The geometry of a tree, and how a process uses it.

use crate::Error;
use crate::layout::{Geometry, MAX_BUCKETS, MAX_SLOTS, MIN_BUCKETS};
use forebay_env::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// The geometry of a tree, and how this process uses it.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Slots of a leaf's bucket, 2 to 15; a get reads 8 bytes and 16 for each slot. For new trees.
    pub slots: usize,
    /// Buckets of a leaf before it is split, 2 to 12. For new trees.
    pub most_buckets: usize,
    /// Maximum fill of a new leaf, 30 to 80 percent. For new trees.
    pub fill_percent: usize,
    /// Memory for cached inner nodes of this process, bytes.
    pub cache_bytes: usize,
    /// Bytes of free blocks of one size that this process hands over or gets together. Larger batches take fewer
    /// round trips; a process that dies loses at most two batches of each size.
    pub batch_bytes: usize,
    /// How long a one-sided operation may take.
    pub timeout: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Default for TreeOptions {
    /// A get reads 248 bytes. A key and value of 8 bytes take some 25 bytes of remote memory and 0.35 of local
    /// memory.
    fn default() -> Self {
        Self {
            slots: 15,
            most_buckets: 8,
            fill_percent: 67,
            cache_bytes: 256 << 20,
            batch_bytes: 16 << 10,
            timeout: Duration::from_secs(10),
            clock: SystemClock::shared(),
        }
    }
}

impl TreeOptions {
    /// A get reads 152 bytes, at the cost of some more remote and local memory.
    #[must_use]
    pub fn small_reads() -> Self {
        Self { slots: 9, most_buckets: 12, fill_percent: 60, ..Self::default() }
    }

    /// The geometry of leaves.
    pub(crate) fn geometry(&self) -> Result<Geometry, Error> {
        let &Self { slots, most_buckets, fill_percent, .. } = self;
        let wrong = |what: &str| Err(Error::Invalid(what.into()));
        if !(2..=MAX_SLOTS).contains(&slots) {
            return wrong("a bucket has 2 to 15 slots");
        }
        if !(MIN_BUCKETS..=MAX_BUCKETS - 3).contains(&most_buckets) {
            return wrong("a leaf has at most 2 to 12 buckets");
        }
        if !(30..=80).contains(&fill_percent) || slots * most_buckets * fill_percent < 200 {
            return wrong("a new leaf is filled 30 to 80 percent, and holds at least two keys");
        }
        Ok(Geometry { slots, most_buckets, fill_percent })
    }
}
