//! Block objects: objects whose bytes are compressed in blocks and read by ranges, through a cache of blocks.
//!
//! ```text
//!   BlockWriter ── BlockEncoder ──▸ ObjectWriter          written once, as a stream
//!
//!   BlockObject ──▸ BlockCache ──▸ Fetch ──▸ ObjectReader  read by ranges of the bytes before compression
//!        │             │             │
//!    directory    blocks held    one request for adjacent blocks, for which all that want one of them wait
//!                      ┆
//!                  LowerFloor      blocks as they are stored, in memory elsewhere
//! ```
//!
//! A range is asked for ([`BlockObject::ask`]), begun and waited for later, so that several requests are in flight and a
//! reader works while the next range is on its way. A thread that waits for a request that no thread has begun carries it
//! out itself. So a single read costs no change of threads, and a cache without threads works like one with them.

mod block;
mod cache;
mod compression;
mod directory;
mod encoder;
mod fetch;
mod floor;
mod object;
mod options;
mod shared;
#[cfg(test)]
mod tests;
mod writer;

pub use cache::BlockCache;
pub use compression::Compression;
pub use directory::BlockDirectory;
pub use encoder::BlockEncoder;
pub use floor::LowerFloor;
pub use object::{Asked, BlockObject};
pub use options::{BlockOptions, MAX_ABOUT_BYTES, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
pub use shared::{BlockCacheCounts, BlockCacheOptions};
pub use writer::BlockWriter;
