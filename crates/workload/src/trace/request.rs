//! A request of a trace, and its size limits.

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 512;
/// Bytes of the largest block request.
pub const MAX_REQUEST_BYTES: u64 = 16 << 20;
/// Maximum number of pages of one line.
pub const MAX_PAGES: u64 = 1 << 20;

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A reference to a page.
    Page(u64),
    /// A read of consecutive blocks.
    ReadBlocks {
        /// The first block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
    /// A write of consecutive blocks.
    WriteBlocks {
        /// The first block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
}
