//! Layout of a block object, as its writer chooses it.

use super::compression::Compression;

/// Shortest block, in bytes before compression.
pub const MIN_BLOCK_BYTES: u32 = 1 << 10;
/// Longest block, in bytes before compression.
pub const MAX_BLOCK_BYTES: u32 = 1 << 20;
/// Most bytes that a writer may say of its object.
pub const MAX_ABOUT_BYTES: usize = 64 << 10;

/// Layout of a block object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockOptions {
    /// Bytes of a block before compression: a power of two from [`MIN_BLOCK_BYTES`] to [`MAX_BLOCK_BYTES`]. Longer blocks
    /// shrink more; a point read fetches and decompresses at least one.
    pub block_bytes: u32,
    /// How blocks are compressed.
    pub compression: Compression,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { block_bytes: 16 << 10, compression: Compression::default() }
    }
}

impl BlockOptions {
    /// Whether objects may be written with these options.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        Self::allows(self.block_bytes)
    }

    /// Whether blocks may have `block_bytes` bytes.
    pub(super) const fn allows(block_bytes: u32) -> bool {
        block_bytes.is_power_of_two() && block_bytes >= MIN_BLOCK_BYTES && block_bytes <= MAX_BLOCK_BYTES
    }
}
