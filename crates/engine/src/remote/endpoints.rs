//! Endpoints, opened once and reused.
//!
//! An endpoint belongs to one thread at a time (dLSM X-B).
//!
//! * [`Endpoints`] are for point reads. The callers are threads that the engine does not know, so endpoints are in
//!   slots. A thread tries its own slot first, and finds it free and warm unless there are more threads than slots.
//! * A [`Pool`] is for longer uses: iterators, flushes, compactions.
//!
//! A broken endpoint is not reused.

use crate::terms::{Error, Result};
use forebay_env::sync::{Mutex, MutexGuard, lock};
use forebay_fabric::{Endpoint, EndpointOptions, Link, Outcome, Slot};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};

/// Maximum number of idle endpoints that a pool keeps.
const MAX_IDLE: usize = 16;

/// Number of threads that can read at the same time without waiting for each other.
const SLOTS: usize = 64;

/// The endpoints of a link.
#[derive(Debug)]
pub(crate) struct Endpoints {
    link: Arc<dyn Link>,
    options: EndpointOptions,
    slots: Box<[Place]>,
}

/// A slot. Its thread writes it with each operation, so no other thread's slot shares its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(Mutex<Option<Endpoint>>);

/// An endpoint in its slot while a call uses it.
pub(crate) struct Taken<'a> {
    endpoints: &'a Endpoints,
    /// Holds an endpoint until dropped.
    slot: MutexGuard<'a, Option<Endpoint>>,
}

impl Endpoints {
    pub(crate) fn new(link: Arc<dyn Link>, options: EndpointOptions) -> Self {
        Self { link, options, slots: (0..SLOTS).map(|_| Place::default()).collect() }
    }

    /// An endpoint for this thread.
    #[inline]
    pub(crate) fn take(&self) -> Result<Taken<'_>> {
        let mut slot = self.free_slot();
        if slot.is_none() {
            *slot = Some(self.link.endpoint(self.options.clone())?);
        }
        Ok(Taken { endpoints: self, slot })
    }

    #[inline]
    fn free_slot(&self) -> MutexGuard<'_, Option<Endpoint>> {
        let mine = thread_number();
        for i in 0..SLOTS {
            match self.slots[(mine + i) % SLOTS].0.try_lock() {
                Ok(slot) => return slot,
                Err(TryLockError::Poisoned(slot)) => return slot.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.slots[mine % SLOTS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

impl Taken<'_> {
    /// Replaces a broken endpoint by a new one.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        *self.slot = Some(self.endpoints.link.endpoint(self.endpoints.options.clone())?);
        Ok(())
    }
}

impl Deref for Taken<'_> {
    type Target = Endpoint;
    #[inline]
    fn deref(&self) -> &Endpoint {
        held(&self.slot)
    }
}

impl DerefMut for Taken<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Endpoint {
        held_mut(&mut self.slot)
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        if !is_clean(self) {
            *self.slot = None;
        }
    }
}

/// Whether the endpoint has nothing left over from its last user. A failed call leaves completions that nobody takes.
#[inline]
fn is_clean(endpoint: &Endpoint) -> bool {
    endpoint.failure().is_none() && endpoint.outstanding() == 0
}

/// The endpoint of a guard.
#[inline]
fn held(endpoint: &Option<Endpoint>) -> &Endpoint {
    match endpoint {
        Some(endpoint) => endpoint,
        None => unreachable!("taken out only when dropped"),
    }
}

#[inline]
fn held_mut(endpoint: &mut Option<Endpoint>) -> &mut Endpoint {
    match endpoint {
        Some(endpoint) => endpoint,
        None => unreachable!("taken out only when dropped"),
    }
}

/// Endpoints that are kept for longer than a call.
#[derive(Debug)]
pub(crate) struct Pool {
    link: Arc<dyn Link>,
    options: EndpointOptions,
    idle: Mutex<Vec<Endpoint>>,
}

/// An endpoint of a pool; it returns there when dropped.
#[derive(Debug)]
pub(crate) struct Pooled {
    pool: Arc<Pool>,
    /// Present until dropped.
    endpoint: Option<Endpoint>,
}

impl Pool {
    pub(crate) fn new(link: Arc<dyn Link>, options: EndpointOptions) -> Arc<Self> {
        Arc::new(Self { link, options, idle: Mutex::default() })
    }

    /// Takes or opens an endpoint.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Pooled> {
        let idle = lock(&self.idle).pop();
        let endpoint = match idle {
            Some(endpoint) => endpoint,
            None => self.link.endpoint(self.options.clone())?,
        };
        Ok(Pooled { pool: Arc::clone(self), endpoint: Some(endpoint) })
    }
}

impl Deref for Pooled {
    type Target = Endpoint;
    fn deref(&self) -> &Endpoint {
        held(&self.endpoint)
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Endpoint {
        held_mut(&mut self.endpoint)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(endpoint) = self.endpoint.take().filter(is_clean) else { return };
        let mut idle = lock(&self.pool.idle);
        if idle.len() < MAX_IDLE {
            idle.push(endpoint);
        }
    }
}

/// Returns what a read brought.
///
/// # Errors
/// `Corrupt` when something other than a read completed.
#[inline]
pub(crate) fn received(outcome: Outcome) -> Result<Slot> {
    match outcome {
        Outcome::Read(slot) => Ok(slot),
        other => Err(Error::corrupt(format!("a read completed with {other:?}"))),
    }
}
