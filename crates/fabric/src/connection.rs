//! An endpoint's connection: what carries out its operations.

use crate::queue::WorkQueue;
use crate::{AccessKey, Error, Region, RemoteAddress, Word};
use std::time::Duration;

/// What arrives at an endpoint without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The immediate of a write to this side.
    Immediate(u32),
    /// A message.
    Message(Vec<u8>),
}

/// An endpoint's connection. Owned by one thread.
///
/// After an operation fails, the transport ends what is rung behind it, then and later, with
/// [`Error::Flushed`]; when the node is lost, everything with [`Error::PeerLost`].
pub trait Transport: Send {
    /// The doorbell was rung for what is in the queue. Some of it may end at once.
    fn flush(&mut self, queue: &mut WorkQueue);
    /// A read or a write of `length` bytes at `target` is about to be posted. A back end where that is a copy by this
    /// thread may have the processor bring the lines near; nothing is counted, and nothing fails.
    fn approach(&mut self, _target: RemoteAddress, _length: usize) {}
    /// Whether the node lives and has not begun to take this grant back. A back end whose target checks each operation has
    /// nothing to add.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when it has, [`Error::PeerLost`] when the link has ended.
    fn confirm(&mut self, _key: &AccessKey) -> Result<(), Error> {
        Ok(())
    }
    /// Writes a range of a region at once, and then a word if there is one, confirms both, and has the processor bring near what
    /// lies behind the range, where a write is a copy by this thread. `None`, and nothing done, where it is not, or nothing goes
    /// over this connection any more. Nothing is pending.
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
    /// Makes progress without waiting: with what was rung, and with what the peer asks of this side.
    fn poll(&mut self, queue: &mut WorkQueue);
    /// Sleeps until something may have happened, for at most `limit`.
    fn block(&mut self, limit: Duration);
    /// The next unasked-for arrival.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nothing can arrive any more.
    fn receive(&mut self) -> Result<Option<Incoming>, Error>;
}
