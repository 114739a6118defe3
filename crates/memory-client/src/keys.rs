//! The keys to a node's extents, with lock-free lookup.
//!
//! There is one slot per extent. A slot is a sequence lock: its version is odd while the writer
//! changes it (`writing` excludes other writers).
//!
//! ```text
//!  writer                               reader
//!   version ← odd           (relaxed)    before ← version        (acquire) ─┐ pairs with
//!   fence                   (release)    words                   (relaxed)  │ `version ← even`
//!   words                   (relaxed)    fence                   (acquire) ─┤ pairs with the
//!   version ← even          (release)    again  ← version        (relaxed)  │ writer's fence
//!                                        before = again, even: the words are of one key
//! ```
//!
//! Because of the two fences, a reader that sees any word of a change also sees the odd version
//! before it, and retries. Readers never wait long: a change is five stores.

use forebay_env::sync::atomic::{AtomicU64, Ordering, fence};
use forebay_env::sync::{Mutex, lock, relax};
use forebay_fabric::{AccessKey, RemoteAddress, Rights};
use forebay_proto::{ExtentId, GrantedExtent};

#[derive(Debug, Default)]
struct Slot {
    version: AtomicU64,
    /// Index of the key, rights, and whether there is a key: `index << 16 | rights << 8 | present`.
    head: AtomicU64,
    secret: [AtomicU64; 2],
}

/// The keys to a node's extents.
#[derive(Debug)]
pub(crate) struct KeyTable {
    slots: Box<[Slot]>,
    writing: Mutex<()>,
}

impl KeyTable {
    pub fn new(extents: u32) -> Self {
        Self { slots: (0..extents).map(|_| Slot::default()).collect(), writing: Mutex::new(()) }
    }

    /// The address of `offset` in the extent, and the rights of its key.
    #[inline]
    pub fn resolve(&self, extent: ExtentId, offset: u64) -> Option<(RemoteAddress, Rights)> {
        let slot = self.slots.get(extent.0 as usize)?;
        let mut round = 0;
        loop {
            let before = slot.version.load(Ordering::Acquire);
            let head = slot.head.load(Ordering::Relaxed);
            let secret = slot.secret.each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let again = slot.version.load(Ordering::Relaxed);
            if before == again && before.is_multiple_of(2) {
                if head & 1 == 0 {
                    return None;
                }
                let key = AccessKey::new((head >> 16) as u32, u128::from(secret[0]) | u128::from(secret[1]) << 64);
                return Some((key.at(offset), Rights::from_bits((head >> 8) as u8)?));
            }
            relax(&mut round);
        }
    }

    /// Remembers a key. Returns false when the node names an extent that it does not have.
    pub fn set(&self, granted: &GrantedExtent) -> bool {
        let head = u64::from(granted.key.index) << 16 | u64::from(granted.rights.bits()) << 8 | 1;
        self.store(granted.extent, head, granted.key.secret())
    }

    /// Forgets a key and returns it.
    pub fn take(&self, extent: ExtentId) -> Option<GrantedExtent> {
        let (address, rights) = self.resolve(extent, 0)?;
        self.store(extent, 0, 0);
        Some(GrantedExtent { extent, rights, key: address.key })
    }

    /// Forgets all keys.
    pub fn clear_all(&self) {
        for index in 0..self.slots.len() as u32 {
            self.store(ExtentId(index), 0, 0);
        }
    }

    fn store(&self, extent: ExtentId, head: u64, secret: u128) -> bool {
        let Some(slot) = self.slots.get(extent.0 as usize) else { return false };
        let _writing = lock(&self.writing);
        let version = slot.version.load(Ordering::Relaxed);
        slot.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        slot.head.store(head, Ordering::Relaxed);
        slot.secret[0].store(secret as u64, Ordering::Relaxed);
        slot.secret[1].store((secret >> 64) as u64, Ordering::Relaxed);
        slot.version.store(version + 2, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_key_is_never_half_another() {
        let table = Arc::new(KeyTable::new(1));
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|i| {
                let (table, stop) = (Arc::clone(&table), Arc::clone(&stop));
                forebay_env::thread::spawn(format!("reader {i}"), move || {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some((address, _)) = table.resolve(ExtentId(0), 8) {
                            let n = u128::from(address.key.index);
                            assert_eq!(address.key.secret(), n | n << 64);
                            assert_eq!(address.offset, 8);
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        for n in 0..50_000u32 {
            let key = AccessKey::new(n, u128::from(n) | u128::from(n) << 64);
            assert!(table.set(&GrantedExtent { extent: ExtentId(0), rights: Rights::ALL, key }));
            if n.is_multiple_of(7) {
                table.clear_all();
            }
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let key = AccessKey::new(0, 0);
        assert!(!table.set(&GrantedExtent { extent: ExtentId(1), rights: Rights::ALL, key }));
        assert!(table.resolve(ExtentId(1), 0).is_none());
    }
}
