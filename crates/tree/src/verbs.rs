//! Posting one-sided operations to the tree's nodes, and waiting for them.
//!
//! Every operation passes through [`Verbs::step`], where a test can stop the client, or run
//! something else first.

use crate::Error;
use forebay_fabric::{Endpoint, Outcome, RemoteAddress, Slot, WorkId};

/// A kind of one-sided operation, as a test's hook sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
}

/// Called before each operation that is posted; `false` stops the client there.
pub type Hook = Box<dyn FnMut(Verb) -> bool + Send>;

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Posted {
    node: usize,
    id: WorkId,
}

impl Posted {
    /// The node that it was posted to.
    pub const fn node(self) -> usize {
        self.node
    }
}

/// A thread's endpoints to the tree's nodes.
pub struct Verbs {
    endpoints: Vec<Endpoint>,
    ordered: bool,
    hook: Option<Hook>,
    stopped: bool,
}

impl Verbs {
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        let ordered = endpoints.iter().all(|endpoint| endpoint.capabilities().ordered);
        Self { endpoints, ordered, hook: None, stopped: false }
    }

    pub fn set_hook(&mut self, hook: Option<Hook>) {
        self.hook = hook;
        self.stopped = false;
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether an operation was posted that is not known to have ended.
    pub fn left_something(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.outstanding() > 0 || endpoint.failure().is_some())
    }

    /// Waits for whatever is under way, so that nothing takes effect later. What fails still may. A client that a test
    /// stopped leaves everything under way.
    pub fn settle(&mut self) {
        if self.stopped {
            return;
        }
        for endpoint in self.endpoints.iter_mut().filter(|endpoint| endpoint.failure().is_none()) {
            // A failure stays known to the endpoint.
            let _ = endpoint.wait_all(|_, outcome| match outcome {
                Outcome::Read(slot) => Some(slot),
                Outcome::Done(slot) => slot,
                Outcome::Word(_) => None,
            });
        }
    }

    fn endpoint(&mut self, node: usize) -> Result<&mut Endpoint, Error> {
        self.endpoints.get_mut(node).ok_or_else(|| Error::corrupt(format!("an address at node {node}")))
    }

    #[inline]
    fn step(&mut self, node: usize, verb: Verb) -> Result<(), Error> {
        if self.hook.is_some() { self.step_hooked(node, verb) } else { Ok(()) }
    }

    /// With a hook, each operation has a doorbell of its own, so that the hook runs between them.
    #[cold]
    fn step_hooked(&mut self, node: usize, verb: Verb) -> Result<(), Error> {
        self.endpoint(node)?.flush();
        self.stopped = self.stopped || self.hook.as_mut().is_some_and(|hook| !hook(verb));
        if self.stopped { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Whether operations take effect as they were posted.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Makes the next operation to this node take effect after all that were posted before. Later ones
    /// need not.
    #[inline]
    pub fn then(&mut self, node: usize) -> Result<(), Error> {
        if !self.ordered {
            self.endpoint(node)?.fence();
        }
        Ok(())
    }

    #[inline]
    pub fn post_read(&mut self, node: usize, from: RemoteAddress, length: usize) -> Result<Posted, Error> {
        self.step(node, Verb::Read)?;
        let endpoint = self.endpoint(node)?;
        let slot = endpoint.slot(length)?;
        Ok(Posted { node, id: endpoint.post_read(from, slot)? })
    }

    pub fn post_write(&mut self, node: usize, to: RemoteAddress, bytes: &[u8]) -> Result<Posted, Error> {
        self.step(node, Verb::Write)?;
        let endpoint = self.endpoint(node)?;
        let mut slot = endpoint.slot(bytes.len())?;
        slot.copy_from_slice(bytes);
        Ok(Posted { node, id: endpoint.post_write(to, slot)? })
    }

    #[inline]
    pub fn post_swap(&mut self, node: usize, at: RemoteAddress, expected: u64, new: u64) -> Result<Posted, Error> {
        self.step(node, Verb::CompareSwap)?;
        Ok(Posted { node, id: self.endpoint(node)?.post_compare_swap(at, expected, new)? })
    }

    #[inline]
    pub fn post_add(&mut self, node: usize, at: RemoteAddress, delta: u64) -> Result<Posted, Error> {
        self.step(node, Verb::FetchAdd)?;
        Ok(Posted { node, id: self.endpoint(node)?.post_fetch_add(at, delta)? })
    }

    #[inline]
    fn outcome(&mut self, posted: Posted) -> Result<Outcome, Error> {
        if self.endpoints.len() > 1 {
            // Operations posted to other nodes are under way meanwhile.
            self.endpoints.iter_mut().for_each(Endpoint::flush);
        }
        Ok(self.endpoint(posted.node)?.wait_for(posted.id)?)
    }

    /// Waits for a read. The caller must [release](Verbs::release) the slot.
    #[inline]
    pub fn bytes(&mut self, posted: Posted) -> Result<Slot, Error> {
        match self.outcome(posted)? {
            Outcome::Read(slot) => Ok(slot),
            _ => Err(Error::corrupt("a read that completed as something else")),
        }
    }

    /// Waits for an atomic operation; returns what it found.
    #[inline]
    pub fn word(&mut self, posted: Posted) -> Result<u64, Error> {
        match self.outcome(posted)? {
            Outcome::Word(word) => Ok(word),
            _ => Err(Error::corrupt("an atomic that completed as something else")),
        }
    }

    /// Waits for a write.
    pub fn done(&mut self, posted: Posted) -> Result<(), Error> {
        if let Outcome::Done(Some(slot)) = self.outcome(posted)? {
            self.release(posted.node, slot);
        }
        Ok(())
    }

    /// Waits for any operation whose result does not matter.
    pub fn finish(&mut self, posted: Posted) -> Result<(), Error> {
        if let Outcome::Done(Some(slot)) | Outcome::Read(slot) = self.outcome(posted)? {
            self.release(posted.node, slot);
        }
        Ok(())
    }

    #[inline]
    pub fn release(&mut self, node: usize, slot: Slot) {
        if let Some(endpoint) = self.endpoints.get_mut(node) {
            endpoint.release(slot);
        }
    }
}

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verbs").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}
