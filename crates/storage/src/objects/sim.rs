//! Objects in memory: the back end `memory:`, and the simulated object store.
//!
//! Handles share the objects. Each handle has its own count of operations (its *steps*), by which faults and its end are
//! planned. A service does not lose what it acknowledged. Faults happen on the way: requests and replies are lost, and a
//! request may arrive late, after its sender has given up. There is also a service that ignores conditions, which must be
//! refused.

use super::{ObjectInfo, ObjectReader, ObjectStorage, ObjectWriter, PutMode, not_found, too_short};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::rot::{RottenRead, replace};
use bytes::{Bytes, BytesMut};
use forebay_base::ErrorKind;
use forebay_env::sync::{Arc, Mutex, lock};
use std::collections::BTreeMap;

/// What goes wrong at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFault {
    /// Nothing is done, and an error is returned.
    Refused(ErrorKind),
    /// Everything is done, and the reply is lost: `TimedOut`.
    ReplyLost,
    /// The caller gets `TimedOut`. The request is carried out after this many more operations of all handles.
    Late(u64),
    /// The request is carried out twice, as when a client that gets no reply sends it again. The second answer is returned.
    Repeated,
}

/// The party that judges the condition of a put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Judge {
    /// This process, so no test is needed.
    #[default]
    Memory,
    /// A service, which heeds the condition.
    Service,
    /// A service, which ignores the condition.
    Nobody,
}

/// A handle on objects in memory. Handles made by [`MemoryObjects::handle`] share the objects.
#[derive(Debug, Clone, Default)]
pub struct MemoryObjects {
    shared: Arc<Mutex<Shared>>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default, Clone)]
struct Shared {
    objects: BTreeMap<ObjectName, Bytes>,
    /// Operations of all handles.
    done: u64,
    /// Requests that arrive late, and when.
    late: Vec<(u64, Request)>,
    judge: Judge,
    /// Why nothing can be deleted, if nothing can.
    undeletable: Option<ErrorKind>,
}

#[derive(Default)]
struct Plan {
    steps: u64,
    ends_at: Option<u64>,
    faults: BTreeMap<u64, ObjectFault>,
    interrupt: Option<(u64, Interrupt)>,
    rotten_read: RottenRead,
}

/// Code that runs elsewhere while a handle is at a step.
type Interrupt = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
enum Request {
    Put(ObjectName, Bytes, PutMode),
    Delete(ObjectName),
}

impl Shared {
    fn carry_out(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Put(name, _, PutMode::IfAbsent)
                if self.judge != Judge::Nobody && self.objects.contains_key(&name) =>
            {
                return Err(Error::new(ErrorKind::AlreadyExists, "put", name.as_str(), "the name is taken"));
            }
            Request::Put(name, bytes, _) => self.objects.insert(name, bytes),
            Request::Delete(name) => match self.undeletable {
                Some(kind) => return Err(Error::new(kind, "delete", name.as_str(), "nobody may delete")),
                None => self.objects.remove(&name),
            },
        };
        Ok(())
    }

    /// Counts one more operation, and carries out late requests that are due.
    fn tick(&mut self) {
        self.done += 1;
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= self.done);
        self.late = later;
        for (_, request) in due {
            // Nobody waits for the answer.
            let _ = self.carry_out(request);
        }
    }
}

impl MemoryObjects {
    /// No objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No objects, in a service that heeds conditions and is tested for that.
    #[must_use]
    pub fn of_service() -> Self {
        Self::judged_by(Judge::Service)
    }

    /// No objects, in a service that accepts conditions but ignores them.
    #[must_use]
    pub fn of_careless_service() -> Self {
        Self::judged_by(Judge::Nobody)
    }

    fn judged_by(judge: Judge) -> Self {
        let shared = Shared { judge, ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)), plan: Arc::default() }
    }

    /// Another handle on the same objects, with nothing planned.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), plan: Arc::default() }
    }

    /// A copy of the objects as they are, with requests that will arrive late.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { shared: Arc::new(Mutex::new(lock(&self.shared).clone())), plan: Arc::default() }
    }

    /// Makes this handle end before its operation number `step`, counted from zero: that one and all later ones fail and do
    /// nothing.
    pub fn end_at(&self, step: u64) {
        lock(&self.plan).ends_at = Some(step);
    }

    /// Makes this handle's operation number `step`, counted from zero, go wrong.
    pub fn fail_at(&self, step: u64, fault: ObjectFault) {
        lock(&self.plan).faults.insert(step, fault);
    }

    /// Calls `interrupt` before this handle's operation number `step`, as if the process had been stopped there.
    pub fn interrupt_at(&self, step: u64, interrupt: impl FnOnce() + Send + 'static) {
        lock(&self.plan).interrupt = Some((step, Box::new(interrupt)));
    }

    /// Refuses all deletions by all handles, like a service whose credentials do not allow them. `None` allows them again.
    pub fn refuse_deletions(&self, kind: Option<ErrorKind>) {
        lock(&self.shared).undeletable = kind;
    }

    /// Operations of this handle so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        lock(&self.plan).steps
    }

    /// Changes one byte of an object: rot.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn flip(&self, name: &ObjectName, offset: usize, mask: u8) -> Result<()> {
        let mut shared = lock(&self.shared);
        let object = shared.objects.get_mut(name).ok_or_else(|| not_found("flip", name))?;
        let mut bytes = object.to_vec();
        bytes.get_mut(offset).into_iter().for_each(|byte| *byte ^= mask);
        *object = bytes.into();
        Ok(())
    }

    /// Replaces the bytes `from` of an object by `to`, if `from` is there now: rot, or its end. Returns whether it was.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rot(&self, name: &ObjectName, offset: u64, from: &[u8], to: &[u8]) -> Result<bool> {
        let mut shared = lock(&self.shared);
        let object = shared.objects.get_mut(name).ok_or_else(|| not_found("rot", name))?;
        let mut bytes = object.to_vec();
        let is_changed = replace(&mut bytes, offset as usize, from, to);
        *object = bytes.into();
        Ok(is_changed)
    }

    /// Makes one read of this handle, after `reads` others, return a flipped bit. The object does not change.
    pub fn rot_read(&self, reads: u64, bit: u64) {
        lock(&self.plan).rotten_read.plan(reads, bit);
    }

    /// Returns the objects that this handle has read with such a bit.
    #[must_use]
    pub fn rotten_reads(&self) -> Vec<String> {
        lock(&self.plan).rotten_read.done()
    }

    fn content(&self, name: &ObjectName) -> Result<Bytes> {
        self.read(name.as_str(), |objects| objects.get(name).cloned().ok_or_else(|| not_found("get", name)))
    }

    /// Passes the bytes of a read, which may get a flipped bit.
    fn pass(&self, name: &ObjectName, bytes: &mut [u8]) {
        lock(&self.plan).rotten_read.pass(name.as_str(), bytes);
    }

    /// Counts a step. Returns the fault that it meets.
    fn step(&self, object: &str) -> Result<Option<ObjectFault>> {
        let mut plan = lock(&self.plan);
        let step = plan.steps;
        plan.steps += 1;
        if let Some((_, interrupt)) = plan.interrupt.take_if(|(at, _)| *at == step) {
            drop(plan);
            interrupt();
            plan = lock(&self.plan);
        }
        if plan.ends_at.is_some_and(|end| step >= end) {
            return Err(Error::new(ErrorKind::Closed, "use", object, "the simulated process has ended"));
        }
        Ok(plan.faults.get(&step).copied())
    }

    fn write(&self, name: &ObjectName, request: Request) -> Result<()> {
        let fault = self.step(name.as_str())?;
        let injected = |kind| Err(Error::new(kind, "use", name.as_str(), "an injected fault"));
        let mut shared = lock(&self.shared);
        shared.tick();
        match fault {
            None => shared.carry_out(request),
            Some(ObjectFault::Refused(kind)) => injected(kind),
            Some(ObjectFault::ReplyLost) => {
                let _ = shared.carry_out(request);
                injected(ErrorKind::TimedOut)
            }
            Some(ObjectFault::Late(operations)) => {
                let at = shared.done + operations;
                shared.late.push((at, request));
                injected(ErrorKind::TimedOut)
            }
            Some(ObjectFault::Repeated) => {
                let _ = shared.carry_out(request.clone());
                shared.carry_out(request)
            }
        }
    }

    fn read<T>(&self, object: &str, work: impl FnOnce(&BTreeMap<ObjectName, Bytes>) -> Result<T>) -> Result<T> {
        let fault = self.step(object)?;
        let mut shared = lock(&self.shared);
        shared.tick();
        match fault {
            None | Some(ObjectFault::Repeated) => work(&shared.objects),
            Some(ObjectFault::Refused(kind)) => Err(Error::new(kind, "use", object, "an injected fault")),
            Some(_) => Err(Error::new(ErrorKind::TimedOut, "use", object, "an injected fault")),
        }
    }
}

impl ObjectStorage for MemoryObjects {
    fn describe(&self) -> String {
        "memory:".to_owned()
    }

    fn keeps_conditions(&self) -> bool {
        lock(&self.shared).judge == Judge::Memory
    }

    fn put(&self, name: &ObjectName, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.write(name, Request::Put(name.clone(), bytes, mode))
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(MemoryWriter { objects: self.clone(), name: name.clone(), bytes: BytesMut::new() }))
    }

    fn get(&self, name: &ObjectName) -> Result<Bytes> {
        let bytes = self.content(name)?;
        if !lock(&self.plan).rotten_read.is_planned() {
            return Ok(bytes);
        }
        let mut bytes = bytes.to_vec();
        self.pass(name, &mut bytes);
        Ok(bytes.into())
    }

    fn open(&self, name: &ObjectName) -> Result<std::sync::Arc<dyn ObjectReader>> {
        Ok(std::sync::Arc::new(MemoryReader { objects: self.clone(), name: name.clone() }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64> {
        self.content(name).map(|bytes| bytes.len() as u64)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.write(name, Request::Delete(name.clone()))
    }

    fn list(&self, prefix: Option<&ObjectName>) -> Result<Vec<ObjectInfo>> {
        let is_below = |name: &ObjectName| prefix.is_none_or(|prefix| name.after(prefix).is_some());
        self.read(prefix.map_or("", ObjectName::as_str), |objects| {
            let found = objects.iter().filter(|(name, _)| is_below(name));
            let info = |(name, bytes): (&ObjectName, &Bytes)| ObjectInfo {
                name: name.clone(),
                size_bytes: bytes.len() as u64,
            };
            Ok(found.map(info).collect())
        })
    }
}

#[derive(Debug)]
struct MemoryWriter {
    objects: MemoryObjects,
    name: ObjectName,
    bytes: BytesMut,
}

impl ObjectWriter for MemoryWriter {
    fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.objects.put(&self.name, self.bytes.freeze(), PutMode::Replace)
    }
}

#[derive(Debug)]
struct MemoryReader {
    objects: MemoryObjects,
    name: ObjectName,
}

impl ObjectReader for MemoryReader {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.objects.content(&self.name)?;
        let end = offset.saturating_add(out.len() as u64) as usize;
        let range = bytes.get(offset as usize..end).ok_or_else(|| too_short(self.name.as_str(), offset, out.len()))?;
        out.copy_from_slice(range);
        self.objects.pass(&self.name, out);
        Ok(())
    }
}
