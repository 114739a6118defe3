//! A floor below the cache: slower than it, faster than the storage.

use forebay_env::Nanos;
use std::fmt;
use std::ops::Range;

/// Most blocks of a request whose blocks are kept below: those of point reads. What a scan reads would only wash them out.
pub(super) const MOST_BLOCKS: usize = 4;

/// Memory that keeps blocks as they are stored, for when the cache has let them go. It may let go of any block at any
/// time, and may be gone: nothing depends on it but speed. Objects are known by the numbers that the cache gives them, which
/// are used once.
pub trait LowerFloor: fmt::Debug + Send + Sync {
    /// These blocks of an object, one behind the other, which are `bytes` long together. `None` when it does not have all of
    /// them. Whoever asks checks what comes.
    fn bring(&self, object: u64, blocks: Range<u32>, bytes: usize) -> Option<Vec<u8>>;

    /// Keeps blocks of an object, from `first` on, which have these lengths in bytes and lie one behind the other in `stored`;
    /// or does not. The storage took so long to bring them.
    fn keep(&self, object: u64, first: u32, lengths: &[u32], stored: &[u8], took: Nanos);

    /// The time by which that is told.
    fn now(&self) -> Nanos;

    /// Lets go of half of what it has: the memory is needed.
    fn let_go(&self);

    /// Bytes of blocks that it keeps now.
    fn held_bytes(&self) -> u64;
}
