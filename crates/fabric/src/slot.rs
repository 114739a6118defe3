//! The registered buffers that an endpoint's operations use.

use crate::{Backing, Error, Region};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Slots come in powers of two from 64 B.
const MIN_CLASS_SHIFT: u32 = 6;
/// Size of the regions from which smaller slots are cut.
const CHUNK_BYTES: usize = if cfg!(miri) { 16 << 10 } else { 1 << 20 };

/// Slots cut from a chunk at a time: a short-lived endpoint does not pay for a whole chunk.
const SLOTS_AT_ONCE: usize = 64;

/// Registered memory of an endpoint, cut into slots. It grows when all slots are in use.
#[derive(Debug)]
pub struct Arena {
    /// Dropped before `free`, whose slots then need not be put into it.
    returned: Arc<Returned>,
    /// By class: free slots.
    free: Vec<Vec<Slot>>,
    /// By class: the chunk that slots are cut from, and how many of its bytes are cut.
    chunks: Vec<Option<(Arc<Chunk>, usize)>>,
}

/// Slots that were dropped instead of given back.
type Returned = Mutex<Vec<Box<RawSlot>>>;

/// A buffer in registered memory, owned like a `Box<[u8]>`. It starts with whatever it held last.
///
/// A slot that is dropped goes back to its arena; giving it back through
/// [`Endpoint::release`](crate::Endpoint::release) is cheaper.
#[derive(Debug)]
pub struct Slot {
    /// None only while dropping.
    raw: Option<Box<RawSlot>>,
}

/// What a slot is. Made once and boxed, because slots are moved several times with every operation.
#[derive(Debug)]
struct RawSlot {
    start: NonNull<u8>,
    length: usize,
    class: u32,
    chunk: Arc<Chunk>,
}

/// Memory that slots of one class are cut from: mapped while one of them lives.
#[derive(Debug)]
struct Chunk {
    region: Region,
    arena: Weak<Returned>,
}

const _: () = assert!(size_of::<Slot>() == 8, "slots are moved with every operation");

// SAFETY: a raw slot is the only owner of its range of a region that is granted to nobody.
unsafe impl Send for RawSlot {}
// SAFETY: a shared reference gives only shared references to the bytes.
unsafe impl Sync for RawSlot {}

impl Arena {
    /// An empty arena.
    #[must_use]
    pub fn new() -> Self {
        Self { returned: Arc::default(), free: Vec::new(), chunks: Vec::new() }
    }

    /// A slot of `length` bytes.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<Slot, Error> {
        let class = class_of(length);
        match self.free.get_mut(class as usize).and_then(Vec::pop) {
            Some(slot) => Ok(slot.with_length(length)),
            None => self.refill(class, length),
        }
    }

    #[cold]
    fn refill(&mut self, class: u32, length: usize) -> Result<Slot, Error> {
        while self.free.len() <= class as usize {
            self.free.push(Vec::new());
        }
        let dropped = std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner));
        for raw in dropped {
            self.put(Slot { raw: Some(raw) });
        }
        if self.free.get(class as usize).is_none_or(Vec::is_empty) {
            self.cut(class)?;
        }
        let slot = self.free.get_mut(class as usize).and_then(Vec::pop).ok_or(Error::Unsupported("slot size"))?;
        Ok(slot.with_length(length))
    }

    /// Cuts new slots from the class's chunk, or from a new one.
    fn cut(&mut self, class: u32) -> Result<(), Error> {
        let bytes = 1usize << (class + MIN_CLASS_SHIFT);
        let (chunk, cut) = match self.chunks.get_mut(class as usize).and_then(Option::take) {
            Some(begun) => begun,
            None => {
                let region = Region::allocate(bytes.max(CHUNK_BYTES), Backing::Private)?;
                (Arc::new(Chunk { region, arena: Arc::downgrade(&self.returned) }), 0)
            }
        };
        let length = chunk.region.length() as usize;
        let end = length.min(cut + bytes * SLOTS_AT_ONCE);
        for offset in (cut..end).step_by(bytes) {
            // SAFETY: the offset is within the region, which the slot keeps alive; each range is
            // handed out once.
            let start = unsafe { chunk.region.as_ptr().add(offset) };
            let raw = RawSlot { start, length: 0, class, chunk: Arc::clone(&chunk) };
            self.put(Slot { raw: Some(Box::new(raw)) });
        }
        if end < length {
            self.chunks.resize_with(self.chunks.len().max(class as usize + 1), || None);
            if let Some(place) = self.chunks.get_mut(class as usize) {
                *place = Some((chunk, end));
            }
        }
        Ok(())
    }

    /// Takes a slot back.
    #[inline]
    pub fn put(&mut self, slot: Slot) {
        // A slot of another arena only changes owner: its memory lives as long as the slot.
        let Some(raw) = &slot.raw else { return };
        let class = raw.class as usize;
        if let Some(list) = self.free.get_mut(class) {
            list.push(slot);
        } else {
            self.put_first(class, slot);
        }
    }

    #[cold]
    fn put_first(&mut self, class: usize, slot: Slot) {
        self.free.resize_with(class + 1, Vec::new);
        if let Some(list) = self.free.get_mut(class) {
            list.push(slot);
        }
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn class_of(length: usize) -> u32 {
    (usize::BITS - length.saturating_sub(1).leading_zeros()).saturating_sub(MIN_CLASS_SHIFT)
}

impl Slot {
    /// `length` is at most the size of the slot's class.
    #[inline]
    fn with_length(mut self, length: usize) -> Self {
        if let Some(raw) = &mut self.raw {
            raw.length = length;
        }
        self
    }

    /// Makes the slot shorter.
    pub fn truncate(&mut self, length: usize) {
        if let Some(raw) = &mut self.raw {
            raw.length = raw.length.min(length);
        }
    }
}

impl Deref for Slot {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let Some(raw) = &self.raw else { return &[] };
        // SAFETY: the slot owns `length` bytes at `start`, at most its class's size, initialised
        // since the region was mapped, which `chunk` keeps so.
        unsafe { std::slice::from_raw_parts(raw.start.as_ptr(), raw.length) }
    }
}

impl DerefMut for Slot {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(raw) = &mut self.raw else { return &mut [] };
        // SAFETY: as above, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(raw.start.as_ptr(), raw.length) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take()
            && let Some(returned) = raw.chunk.arena.upgrade()
        {
            returned.lock().unwrap_or_else(PoisonError::into_inner).push(raw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_distinct_and_come_back() {
        let mut arena = Arena::new();
        let mut slots: Vec<Slot> = (0..100).map(|_| arena.take(100).unwrap()).collect();
        for (i, slot) in slots.iter_mut().enumerate() {
            slot.fill(i as u8);
        }
        for (i, slot) in slots.iter().enumerate() {
            assert!(slot.len() == 100 && slot.iter().all(|&b| b == i as u8));
        }
        let first = slots[0].as_ptr();
        drop(slots.remove(0));
        arena.put(slots.remove(0));
        drop(slots);
        let taken: Vec<Slot> = (0..(CHUNK_BYTES / 128)).map(|_| arena.take(128).unwrap()).collect();
        assert!(taken.iter().any(|slot| slot.as_ptr() == first));
    }

    #[test]
    fn a_slot_outlives_its_arena() {
        let mut arena = Arena::new();
        let mut slot = arena.take(5 << 20).unwrap();
        drop(arena);
        slot.fill(7);
        assert_eq!(slot.last(), Some(&7));
        assert_eq!(class_of(0), 0);
        assert_eq!(class_of(64), 0);
        assert_eq!(class_of(65), 1);
    }
}
