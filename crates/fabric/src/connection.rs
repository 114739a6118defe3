//! An endpoint's connection: what carries out its operations.

use crate::queue::WorkQueue;
use crate::{AccessKey, Error, Region, RemoteAddress, Word};
use std::time::Duration;

/// What arrives at an endpoint unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The immediate of a write to this side.
    Immediate(u32),
    /// A message.
    Message(Vec<u8>),
}

/// An endpoint's connection. Owned by one thread.
///
/// After an operation fails, the transport ends every later operation, rung before or after the failure, with
/// [`Error::Flushed`]. When the node is lost, it ends everything with [`Error::PeerLost`].
pub trait Transport: Send {
    /// Handles a doorbell for what is in the queue. Some of it may end at once.
    fn flush(&mut self, queue: &mut WorkQueue);
    /// Announces a read or a write of `length` bytes at `target` that is about to be posted. A back end where this thread
    /// does the copy may prefetch the lines; nothing is counted, and nothing fails.
    fn approach(&mut self, _target: RemoteAddress, _length: usize) {}
    /// Checks that the node lives and has not begun to revoke this grant. A back end whose target checks each operation has
    /// nothing to add.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when the node has begun to revoke it, [`Error::PeerLost`] when the link has ended.
    fn confirm(&mut self, _key: &AccessKey) -> Result<(), Error> {
        Ok(())
    }
    /// Where a write is a copy by this thread: writes a range of a region at once, then a word if there is one, confirms
    /// both, and prefetches what follows the range. `None`, and nothing done, where a write is no such copy, or the
    /// connection carries nothing any more. The caller has nothing pending.
    ///
    /// # Errors
    /// Those of the write, and as [`Transport::confirm`].
    fn write_at_once(
        &mut self,
        _to: RemoteAddress,
        _from: &Region,
        _offset: u64,
        _length: usize,
        _then: Option<Word>,
    ) -> Option<Result<(), Error>> {
        None
    }
    /// Makes progress without waiting, with operations that were rung and with what the peer asks of this side.
    fn poll(&mut self, queue: &mut WorkQueue);
    /// Sleeps until something may have happened, for at most `limit`.
    fn block(&mut self, limit: Duration);
    /// The next unasked-for arrival.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nothing can arrive any more.
    fn receive(&mut self) -> Result<Option<Incoming>, Error>;
}
