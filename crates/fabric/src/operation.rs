//! What endpoints post, and how it ends.

use crate::{Error, Region, RemoteAddress, Slot};

/// Number of a posted operation: ascending within an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// The local side of a write.
#[derive(Debug)]
pub enum Payload {
    /// A slot of the arena; the completion gives it back.
    Slot(Slot),
    /// A range of a registered region that nobody writes until the completion.
    Sealed {
        /// The region.
        region: Region,
        /// Start of the range, bytes.
        offset: u64,
        /// Length of the range, bytes.
        length: usize,
    },
}

impl Payload {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Slot(slot) => slot.len(),
            Self::Sealed { length, .. } => *length,
        }
    }

    /// The slot, if it is one.
    #[must_use]
    pub fn into_slot(self) -> Option<Slot> {
        match self {
            Self::Slot(slot) => Some(slot),
            Self::Sealed { .. } => None,
        }
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a range outside its region.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Slot(slot) => Ok(slot.to_vec()),
            Self::Sealed { region, offset, length } => {
                let mut bytes = vec![0; *length];
                region.read(*offset, &mut bytes).map(|()| bytes)
            }
        }
    }

    /// Copies the bytes to `at` of `region`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a range outside its region.
    #[inline]
    pub fn write_to(&self, region: &Region, at: u64) -> Result<(), Error> {
        match self {
            Self::Slot(slot) => region.write(at, slot),
            Self::Sealed { region: source, offset, length } => region.copy_from(at, source, *offset, *length),
        }
    }
}

/// An operation.
#[derive(Debug)]
pub enum Operation {
    /// Reads `into.len()` bytes.
    Read {
        /// Where from.
        from: RemoteAddress,
        /// Where to.
        into: Slot,
    },
    /// Writes. An immediate wakes the target's endpoint after the bytes are in place.
    Write {
        /// Where to.
        to: RemoteAddress,
        /// What.
        payload: Payload,
        /// Delivered after the bytes.
        immediate: Option<u32>,
    },
    /// Swaps the word for `new` if it is `expected`; completes with the word before.
    CompareSwap {
        /// The word.
        at: RemoteAddress,
        /// What it must be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// Adds to the word, wrapping; completes with the word before.
    FetchAdd {
        /// The word.
        at: RemoteAddress,
        /// What is added.
        delta: u64,
    },
    /// A message to the node.
    Message(Slot),
}

/// An operation that a back end takes away from its endpoint's queue.
#[derive(Debug)]
pub struct Work {
    /// Its number.
    pub id: WorkId,
    /// Whether it starts only when all earlier operations of the endpoint are complete.
    pub fenced: bool,
    /// The operation to carry out.
    pub operation: Operation,
}

/// What a completed operation gives.
#[derive(Debug)]
pub enum Outcome {
    /// A read: the slot with the bytes.
    Read(Slot),
    /// A write or a message: the slot, if it was one.
    Done(Option<Slot>),
    /// An atomic operation: the word before.
    Word(u64),
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub id: WorkId,
    /// What it gives, or why it failed.
    pub result: Result<Outcome, Error>,
}
