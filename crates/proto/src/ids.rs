//! Names of the objects that a memory node keeps. See `docs/formats/node-messages.md`.

use forebay_fabric::{AccessKey, Rights};
use std::fmt;

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident($type:ty), $word:literal;)*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $type);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A compute node's process as a memory node knows it. Never reused within an incarnation.
    SessionId(u64), "session";
    /// A named store of the node's directory. Never reused within an incarnation.
    StoreId(u64), "store";
    /// A key range of a store.
    ShardId(u32), "shard";
    /// Fencing number of a shard's owner; 0 is before the first.
    Epoch(u64), "epoch";
    /// An extent: its position among the node's extents.
    ExtentId(u32), "extent";
}

/// A shard of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardKey {
    /// The store.
    pub store: StoreId,
    /// The shard in it.
    pub shard: ShardId,
}

impl fmt::Display for ShardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.shard, self.store)
    }
}

/// Part of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentRange {
    /// The extent.
    pub extent: ExtentId,
    /// Bytes from its start.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl fmt::Display for ExtentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} of {}", self.length, self.offset, self.extent)
    }
}

/// An extent with the key that opens it. Offset 0 of the key is offset 0 of the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedExtent {
    /// The extent.
    pub extent: ExtentId,
    /// The rights of the key.
    pub rights: Rights,
    /// The key.
    pub key: AccessKey,
}

/// The purpose of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// New data: memtables' segments and tables.
    Flush = 0,
    /// Garbage collection, which frees more than it takes: may use the headroom.
    Collection = 1,
}

impl Purpose {
    /// The purpose with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Flush),
            1 => Some(Self::Collection),
            _ => None,
        }
    }
}
