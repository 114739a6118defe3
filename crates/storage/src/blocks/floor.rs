//! A floor below the cache: slower than the cache, faster than the storage.

use forebay_env::Nanos;
use std::fmt;
use std::ops::Range;

/// Most blocks of a request whose blocks are kept below. Such requests come from point reads; the blocks of a scan would
/// only push those out.
pub(super) const MOST_BLOCKS: usize = 4;

/// Memory that keeps blocks in their stored form after the cache has dropped them. It may drop any block at any time, and
/// may be gone: only speed depends on it. Objects are known by the numbers that the cache gives them, which are used once.
pub trait LowerFloor: fmt::Debug + Send + Sync {
    /// Returns these blocks of an object, one after the other, `bytes` long together. `None` when it does not have all of
    /// them. The caller checks the result.
    fn bring(&self, object: u64, blocks: Range<u32>, bytes: usize) -> Option<Vec<u8>>;

    /// Offers blocks of an object, from `first` on, to be kept. They have these lengths in bytes and are consecutive in
    /// `stored`. The storage took `took` to bring them.
    fn keep(&self, object: u64, first: u32, lengths: &[u32], stored: &[u8], took: Nanos);

    /// The clock's time, for measuring `took`.
    fn now(&self) -> Nanos;

    /// Releases half of what it holds, because the memory is needed.
    fn let_go(&self);

    /// Bytes of blocks that it keeps now.
    fn held_bytes(&self) -> u64;
}
