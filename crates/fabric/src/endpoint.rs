//! A thread's queue of operations on a link.

use crate::connection::{Incoming, Transport};
use crate::operation::{Completion, Operation, Outcome, Payload, WorkId};
use crate::queue::WorkQueue;
use crate::{AccessKey, Arena, Capabilities, CountsCell, Error, Region, RemoteAddress, Slot, Traffic, Word};
use forebay_env::{Clock, Nanos, SystemClock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Polls before an endpoint sleeps.
const SPINS: u32 = 200;

/// How an endpoint behaves.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Whose traffic it carries.
    pub traffic: Traffic,
    /// How long to wait for a completion before the endpoint is given up.
    pub timeout: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self { traffic: Traffic::Foreground, timeout: Duration::from_secs(10), clock: SystemClock::shared() }
    }
}

impl EndpointOptions {
    /// Options for background work.
    #[must_use]
    pub fn background() -> Self {
        Self { traffic: Traffic::Background, ..Self::default() }
    }
}

/// A thread's queue of operations on a link: `Send`, used by one thread at a time.
pub struct Endpoint {
    transport: Box<dyn Transport>,
    capabilities: Capabilities,
    options: EndpointOptions,
    counts: Arc<CountsCell>,
    arena: Arena,
    queue: WorkQueue,
    fence_next: bool,
    /// Last operation of each doorbell for which no wait was counted yet.
    doorbells: VecDeque<u64>,
    /// Last operation of the latest doorbell for which a wait was counted.
    waited: u64,
    broken: Option<Error>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("back_end", &self.capabilities.name)
            .field("outstanding", &self.queue.outstanding())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint over a back end's connection. For back ends; others use
    /// [`Link::endpoint`](crate::Link::endpoint).
    #[must_use]
    pub fn new(
        transport: Box<dyn Transport>,
        capabilities: Capabilities,
        options: EndpointOptions,
        counts: Arc<CountsCell>,
    ) -> Self {
        Self {
            transport,
            capabilities,
            options,
            counts,
            arena: Arena::new(),
            queue: WorkQueue::default(),
            fence_next: false,
            doorbells: VecDeque::new(),
            waited: 0,
            broken: None,
        }
    }

    /// What the back end promises.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The endpoint's counts.
    #[must_use]
    pub fn counts(&self) -> &CountsCell {
        &self.counts
    }

    /// Number of posted operations whose completion was not taken yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// Why the endpoint is broken, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// A slot of `length` bytes, with whatever contents it had last.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory.
    #[inline]
    pub fn slot(&mut self, length: usize) -> Result<Slot, Error> {
        self.arena.take(length)
    }

    /// Gives a slot back.
    #[inline]
    pub fn release(&mut self, slot: Slot) {
        self.arena.put(slot);
    }

    /// Announces a read or a write of `length` bytes at `target` that will be posted soon. Where this thread does the
    /// copy, the processor prefetches the memory; elsewhere nothing happens.
    #[inline]
    pub fn approach(&mut self, target: RemoteAddress, length: usize) {
        self.transport.approach(target, length);
    }

    /// Confirms that the writes under this key that have completed took effect before the node began to revoke the grant,
    /// and before anybody could know of the node's death. Where revocation is enforced, a completion already guarantees
    /// that. Where it is cooperative, a completion alone guarantees nothing: a thread that stalled in the middle of a copy
    /// may end the copy long after, and the memory of a dead node still takes writes.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when the node has begun to revoke the grant, [`Error::PeerLost`].
    #[inline]
    pub fn confirm(&mut self, key: &AccessKey) -> Result<(), Error> {
        self.transport.confirm(key)
    }

    /// Queues a read of `into.len()` bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Broken`].
    #[inline]
    pub fn post_read(&mut self, from: RemoteAddress, into: Slot) -> Result<WorkId, Error> {
        self.check_length(into.len(), self.capabilities.max_operation_bytes)?;
        self.counts.read(into.len());
        Ok(self.post(Operation::Read { from, into }))
    }

    /// Queues a write of a slot.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Broken`].
    #[inline]
    pub fn post_write(&mut self, to: RemoteAddress, from: Slot) -> Result<WorkId, Error> {
        self.post_payload(to, Payload::Slot(from), None)
    }

    /// Queues a write of a slot that wakes the target's endpoint with an immediate.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Broken`].
    pub fn post_write_immediate(&mut self, to: RemoteAddress, from: Slot, immediate: u32) -> Result<WorkId, Error> {
        self.post_payload(to, Payload::Slot(from), Some(immediate))
    }

    /// Queues a write of a range of a registered region, without a copy. Nobody may write the
    /// range until the completion.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfBounds`], [`Error::Broken`].
    pub fn post_write_sealed(
        &mut self,
        to: RemoteAddress,
        region: &Region,
        offset: u64,
        length: usize,
    ) -> Result<WorkId, Error> {
        check_range(region, offset, length)?;
        self.post_payload(to, Payload::Sealed { region: region.clone(), offset, length }, None)
    }

    /// Writes a range of a registered region, then a word if there is one, and returns when both are in place and confirmed.
    /// It does so where a write is a copy by this thread and nothing is outstanding. This equals posts, a wait and a
    /// confirmation, and is counted as those, but nothing is queued, and everything is looked up once. A reader that sees
    /// the word also sees the range. What follows the range is prefetched, as by [`Endpoint::approach`]. Returns false, with
    /// nothing done, where the write has to be posted.
    ///
    /// # Errors
    /// As [`Endpoint::post_write_sealed`]; [`Error::Misaligned`]; the write's failure, which breaks the endpoint; as
    /// [`Endpoint::confirm`].
    #[inline]
    pub fn write_at_once(
        &mut self,
        to: RemoteAddress,
        region: &Region,
        offset: u64,
        length: usize,
        then: Option<Word>,
    ) -> Result<bool, Error> {
        if self.queue.outstanding() > 0 {
            return Ok(false);
        }
        check_range(region, offset, length)?;
        self.check_length(length, self.capabilities.max_operation_bytes)?;
        if let Some(Word { at, .. }) = then.filter(|word| !word.at.offset.is_multiple_of(8)) {
            return Err(Error::Misaligned { offset: at.offset });
        }
        let Some(written) = self.transport.write_at_once(to, region, offset, length, then) else { return Ok(false) };
        self.counts.write(length);
        if then.is_some() {
            self.counts.write(8);
        }
        self.counts.doorbell();
        self.counts.round_trip();
        match written {
            Ok(()) => Ok(true),
            Err(cause) => {
                self.break_with(cause.clone());
                Err(cause)
            }
        }
    }

    fn post_payload(&mut self, to: RemoteAddress, payload: Payload, immediate: Option<u32>) -> Result<WorkId, Error> {
        self.check_length(payload.length(), self.capabilities.max_operation_bytes)?;
        self.counts.write(payload.length());
        Ok(self.post(Operation::Write { to, payload, immediate }))
    }

    /// Queues a compare-and-swap.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::Unsupported`], [`Error::Broken`].
    pub fn post_compare_swap(&mut self, at: RemoteAddress, expected: u64, new: u64) -> Result<WorkId, Error> {
        self.check_atomic(at)?;
        Ok(self.post(Operation::CompareSwap { at, expected, new }))
    }

    /// Queues a fetch-and-add.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::Unsupported`], [`Error::Broken`].
    pub fn post_fetch_add(&mut self, at: RemoteAddress, delta: u64) -> Result<WorkId, Error> {
        self.check_atomic(at)?;
        Ok(self.post(Operation::FetchAdd { at, delta }))
    }

    /// Queues a message to the node.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Broken`].
    pub fn post_message(&mut self, bytes: &[u8]) -> Result<WorkId, Error> {
        self.check_length(bytes.len(), self.capabilities.max_message_bytes)?;
        let mut slot = self.arena.take(bytes.len())?;
        slot.copy_from_slice(bytes);
        self.counts.message(bytes.len());
        Ok(self.post(Operation::Message(slot)))
    }

    /// Makes the next operation start only when all earlier ones are complete.
    pub fn fence(&mut self) {
        self.fence_next = true;
    }

    fn check_length(&self, length: usize, limit: usize) -> Result<(), Error> {
        if let Some(cause) = &self.broken {
            return Err(Error::Broken(Box::new(cause.clone())));
        }
        if length > limit {
            return Err(Error::TooLarge { length: length as u64, limit: limit as u64 });
        }
        Ok(())
    }

    fn check_atomic(&self, at: RemoteAddress) -> Result<(), Error> {
        self.check_length(8, 8)?;
        if self.capabilities.atomics == crate::Atomics::None {
            return Err(Error::Unsupported("atomic operations"));
        }
        if !at.offset.is_multiple_of(8) {
            return Err(Error::Misaligned { offset: at.offset });
        }
        self.counts.atomic();
        Ok(())
    }

    #[inline]
    fn post(&mut self, operation: Operation) -> WorkId {
        let fenced = std::mem::take(&mut self.fence_next);
        self.queue.post(operation, fenced)
    }

    /// Rings the doorbell for all that is queued. Failures show in completions.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(last) = self.queue.ring() {
            self.counts.doorbell();
            self.doorbells.push_back(last.0);
            self.transport.flush(&mut self.queue);
        }
    }

    /// Returns the next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        if self.queue.first_ended().is_none() {
            self.transport.poll(&mut self.queue);
        }
        let id = self.queue.first_ended()?;
        self.take(id)
    }

    /// Waits for the next completion, after ringing the doorbell if anything is queued.
    ///
    /// # Errors
    /// [`Error::Invalid`] when nothing is outstanding; [`Error::TimedOut`], which breaks the
    /// endpoint. An operation's own failure is in its completion.
    #[inline]
    pub fn wait(&mut self) -> Result<Completion, Error> {
        self.flush();
        let Some(id) = self.queue.first_ended() else { return self.wait_any() };
        match self.queue.take_done(id) {
            Some(outcome) => {
                self.count_wait(id);
                Ok(Completion { id, result: Ok(outcome) })
            }
            None => self.wait_any(),
        }
    }

    #[inline(never)]
    fn wait_any(&mut self) -> Result<Completion, Error> {
        let id = self.wait_until(WorkQueue::first_ended)?;
        self.count_wait(id);
        self.take(id).ok_or_else(lost_completion)
    }

    /// Waits for all that is outstanding, after ringing the doorbell if anything is queued, and hands
    /// each outcome to `each`. A slot that `each` returns goes back to the arena.
    ///
    /// # Errors
    /// The first failure of an operation: those after it are dropped. [`Error::TimedOut`], which
    /// breaks the endpoint.
    #[inline]
    pub fn wait_all(&mut self, mut each: impl FnMut(WorkId, Outcome) -> Option<Slot>) -> Result<(), Error> {
        self.flush();
        let mut failed = Ok(());
        while self.outstanding() > 0 {
            while let Some(id) = self.queue.first_ended()
                && let Some(outcome) = self.queue.take_done(id)
            {
                self.count_wait(id);
                if let Some(slot) = each(id, outcome) {
                    self.arena.put(slot);
                }
            }
            if self.outstanding() > 0 {
                let Completion { id, result } = self.wait_any()?;
                match result {
                    Ok(outcome) => each(id, outcome).into_iter().for_each(|slot| self.arena.put(slot)),
                    Err(cause) => failed = failed.and(Err(cause)),
                }
            }
        }
        failed
    }

    /// Waits for the completion of one operation, after ringing the doorbell if anything is queued.
    /// Other completions stay for later.
    ///
    /// # Errors
    /// The operation's failure; [`Error::TimedOut`], which breaks the endpoint; [`Error::Invalid`]
    /// when its completion was taken already.
    #[inline]
    pub fn wait_for(&mut self, id: WorkId) -> Result<Outcome, Error> {
        let outcome = self.wait_uncounted(id);
        self.count_wait(id);
        outcome
    }

    #[inline]
    fn wait_uncounted(&mut self, id: WorkId) -> Result<Outcome, Error> {
        self.flush();
        match self.queue.take_done(id) {
            Some(outcome) => Ok(outcome),
            None => self.wait_one(id),
        }
    }

    #[inline(never)]
    fn wait_one(&mut self, id: WorkId) -> Result<Outcome, Error> {
        self.wait_until(|queue| queue.has_ended(id).then_some(id))?;
        self.take(id).ok_or_else(lost_completion)?.result
    }

    /// Takes a completion. A failure breaks the endpoint.
    #[inline]
    fn take(&mut self, id: WorkId) -> Option<Completion> {
        let result = self.queue.take(id)?;
        if let Err(cause) = &result {
            self.break_with(cause.clone());
        }
        Some(Completion { id, result })
    }

    fn count_wait(&mut self, id: WorkId) {
        if id.0 <= self.waited {
            return;
        }
        while let Some(last) = self.doorbells.pop_front() {
            if last >= id.0 {
                self.waited = last;
                self.counts.round_trip();
                return;
            }
        }
    }

    /// Polls, and then sleeps, until `ended` finds what is waited for.
    fn wait_until(&mut self, mut ended: impl FnMut(&mut WorkQueue) -> Option<WorkId>) -> Result<WorkId, Error> {
        if self.queue.outstanding() == 0 {
            return Err(Error::Invalid("a wait for a completion with nothing outstanding".into()));
        }
        for _ in 0..SPINS {
            if let Some(id) = ended(&mut self.queue) {
                return Ok(id);
            }
            self.transport.poll(&mut self.queue);
            std::hint::spin_loop();
        }
        let deadline = self.deadline(self.options.timeout);
        loop {
            if let Some(id) = ended(&mut self.queue) {
                return Ok(id);
            }
            let now = self.options.clock.now();
            if now >= deadline {
                return Err(self.give_up(self.options.timeout));
            }
            self.transport.block(Duration::from_nanos(deadline - now));
            self.transport.poll(&mut self.queue);
        }
    }

    fn deadline(&self, limit: Duration) -> Nanos {
        self.options.clock.now().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
    }

    fn give_up(&mut self, limit: Duration) -> Error {
        let error = Error::TimedOut(limit);
        self.broken.get_or_insert_with(|| error.clone());
        error
    }

    /// Waits until a message is sent. Counts no round trip: the caller's wait is for the reply.
    pub(crate) fn wait_for_sent(&mut self, id: WorkId) -> Result<(), Error> {
        self.wait_uncounted(id).map(|outcome| {
            if let Outcome::Done(Some(slot)) = outcome {
                self.release(slot);
            }
        })
    }

    /// Breaks the endpoint: for layers that find that what came over it is unusable.
    pub(crate) fn break_with(&mut self, cause: Error) {
        self.broken.get_or_insert(cause);
    }

    /// Gives the back end a chance to make progress: takes in what the peer sent or wrote.
    pub(crate) fn progress(&mut self) {
        self.transport.poll(&mut self.queue);
    }

    /// Sleeps until something may have happened.
    pub(crate) fn block(&mut self, limit: Duration) {
        self.transport.block(limit);
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    /// Counts an RPC: one round trip, and the bytes that the reply wrote here.
    pub(crate) fn count_rpc(&mut self, id: WorkId, reply_bytes: usize) {
        self.count_wait(id);
        self.counts.reply(reply_bytes);
    }

    /// Returns the next unasked arrival, if there is one.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nothing can arrive any more.
    pub fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        self.transport.receive()
    }

    /// Waits for the next unasked-for arrival; `None` after `limit`.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nothing can arrive any more.
    pub fn wait_receive(&mut self, limit: Duration) -> Result<Option<Incoming>, Error> {
        let deadline = self.deadline(limit);
        loop {
            self.transport.poll(&mut self.queue);
            if let Some(incoming) = self.transport.receive()? {
                return Ok(Some(incoming));
            }
            let now = self.options.clock.now();
            if now >= deadline {
                return Ok(None);
            }
            self.transport.block(Duration::from_nanos(deadline - now));
        }
    }

    /// Reads into `into` and waits.
    ///
    /// # Errors
    /// As [`Endpoint::post_read`] and [`Endpoint::wait_for`].
    pub fn read(&mut self, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        let slot = self.slot(into.len())?;
        let id = self.post_read(from, slot)?;
        if let Outcome::Read(slot) = self.wait_for(id)? {
            into.copy_from_slice(&slot);
            self.release(slot);
        }
        Ok(())
    }

    /// Writes `from` and waits.
    ///
    /// # Errors
    /// As [`Endpoint::post_write`] and [`Endpoint::wait_for`].
    pub fn write(&mut self, to: RemoteAddress, from: &[u8]) -> Result<(), Error> {
        let mut slot = self.slot(from.len())?;
        slot.copy_from_slice(from);
        let id = self.post_write(to, slot)?;
        if let Outcome::Done(Some(slot)) = self.wait_for(id)? {
            self.release(slot);
        }
        Ok(())
    }

    /// Compares and swaps, and waits. Returns the word before.
    ///
    /// # Errors
    /// As [`Endpoint::post_compare_swap`] and [`Endpoint::wait_for`].
    pub fn compare_swap(&mut self, at: RemoteAddress, expected: u64, new: u64) -> Result<u64, Error> {
        let id = self.post_compare_swap(at, expected, new)?;
        self.wait_word(id)
    }

    /// Fetches and adds, and waits. Returns the word before.
    ///
    /// # Errors
    /// As [`Endpoint::post_fetch_add`] and [`Endpoint::wait_for`].
    pub fn fetch_add(&mut self, at: RemoteAddress, delta: u64) -> Result<u64, Error> {
        let id = self.post_fetch_add(at, delta)?;
        self.wait_word(id)
    }

    fn wait_word(&mut self, id: WorkId) -> Result<u64, Error> {
        match self.wait_for(id)? {
            Outcome::Word(word) => Ok(word),
            other => Err(Error::Protocol(format!("an atomic operation completed with {other:?}"))),
        }
    }
}

#[inline]
fn check_range(region: &Region, offset: u64, length: usize) -> Result<(), Error> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= region.length() => Ok(()),
        _ => Err(Error::OutOfBounds { offset, length: length as u64 }),
    }
}

#[cold]
fn lost_completion() -> Error {
    Error::Invalid("a lost completion".into())
}
