//! Errors of the crate.

use forebay_base::ErrorKind;
use thiserror::Error;

/// Why the ordered index could not be searched or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IndexError {
    /// The arena has no room for another node.
    #[error("the index's arena of {0} nodes is full")]
    Full(usize),
    /// A link points outside the arena.
    #[error("a link of the index leads to node {node}, which there is not")]
    BadLink {
        /// Number of the node.
        node: u32,
    },
    /// A slot does not point to a record.
    #[error("no record at offset {offset} of the block")]
    BadRecord {
        /// Bytes from the block's start.
        offset: u64,
    },
}

impl IndexError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Full(_) => ErrorKind::Full,
            Self::BadLink { .. } | Self::BadRecord { .. } => ErrorKind::Corrupt,
        }
    }
}

/// Why a memtable refused a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MemtableError {
    /// The memory cannot hold a block of that capacity.
    #[error(
        "a block of {capacity} bytes does not fit into {memory} bytes of memory, or is no multiple of 8 above zero"
    )]
    BadCapacity {
        /// The requested capacity in bytes.
        capacity: usize,
        /// The size of the memory in bytes.
        memory: usize,
    },
    /// The memory does not start at a multiple of 8.
    #[error("the block's memory is not aligned to 8 bytes")]
    Misaligned,
    /// The sequence numbers of the memtable would exceed the largest one.
    #[error("sequence numbers are used up")]
    SequenceExhausted,
    /// A reservation that no set of records can have, or one beyond the limits.
    #[error("a reservation of {count} records in {bytes} bytes is not possible")]
    BadReservation {
        /// Number of records.
        count: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The memtable is made for one batch of exactly its capacity, and this is a different batch.
    #[error("an oversize memtable of {capacity} bytes takes one batch of that size, not {bytes} bytes")]
    Oversize {
        /// Capacity in bytes.
        capacity: u64,
        /// The requested bytes.
        bytes: u64,
    },
    /// The key or the value is longer than allowed.
    #[error("a key of {key} bytes with a value of {value} bytes is beyond the limits")]
    TooLong {
        /// Length of the key in bytes.
        key: usize,
        /// Length of the value in bytes.
        value: usize,
    },
    /// The inserted records do not add up to the reservation.
    #[error("a record of {length} bytes does not fit the {left} bytes that are left of its reservation")]
    NotReserved {
        /// Length of the record with padding, in bytes.
        length: usize,
        /// Bytes left in the reservation.
        left: usize,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// An image of an index cannot be decoded.
    #[error(transparent)]
    Image(#[from] forebay_base::DecodeError),
}

impl MemtableError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BadCapacity { .. }
            | Self::Misaligned
            | Self::BadReservation { .. }
            | Self::Oversize { .. }
            | Self::TooLong { .. }
            | Self::NotReserved { .. } => ErrorKind::Invalid,
            Self::SequenceExhausted => ErrorKind::Full,
            Self::Index(error) => error.kind(),
            Self::Image(_) => ErrorKind::Corrupt,
        }
    }
}
