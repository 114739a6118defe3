//! Who may touch what: checked at the target, for every operation.

use crate::prefetch::LINE_BYTES;
use crate::{AccessKey, Error, Region, RemoteAddress, Rights};
use forebay_env::Random;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Bytes of an operation that are prefetched. A record of 1 KiB takes 17 lines, and often crosses two pages: the
/// second page is looked up while the first page's lines are on their way.
const PREFETCH_BYTES: u64 = 24 * LINE_BYTES as u64;

/// Grants of one side of one link to the other. A slot of the table is used again after a
/// revocation, under a new secret.
#[derive(Debug, Default)]
pub struct GrantTable {
    slots: RwLock<Slots>,
    /// No grant is entered any more. Changed and read while `slots` is held.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Slots {
    grants: Vec<Option<Grant>>,
    /// Slots whose grants were revoked. A new grant takes one without a search: a table may have very many grants.
    free: BTreeSet<u32>,
}

#[derive(Debug, Clone)]
struct Grant {
    key: AccessKey,
    region: Region,
    offset: u64,
    length: u64,
    rights: Rights,
}

/// The table while a batch of operations uses it: no grant is revoked meanwhile.
#[derive(Debug)]
pub struct Granted<'a>(RwLockReadGuard<'a, Slots>);

impl GrantTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Grants `rights` to `length` bytes of `region` from `offset`; both must be multiples of 8.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Invalid`]; [`Error::Io`] without entropy.
    pub fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if offset.checked_add(length).is_none_or(|end| end > region.length()) {
            return Err(Error::OutOfBounds { offset, length });
        }
        if !offset.is_multiple_of(8) || !length.is_multiple_of(8) || length == 0 {
            return Err(Error::Invalid(format!("a grant of {length} bytes at {offset}: both must be multiples of 8")));
        }
        let secret = Random::secret().map_err(|e| Error::io("drawing an access key", e))?;
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = match slots.free.pop_first() {
            Some(index) => index,
            None => u32::try_from(slots.grants.len())
                .map_err(|_| Error::Invalid("more than 2^32 grants on a link".into()))?,
        };
        let key = AccessKey::new(index, secret);
        *slots.at(index) = Some(Grant { key, region: region.clone(), offset, length, rights });
        Ok(key)
    }

    /// Enters a grant that another process made under `key`: all of `region`. The caller bounds the
    /// key's index, because the table grows to hold it.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the index is in use, or the table has ended.
    pub(crate) fn enter(&self, key: AccessKey, region: Region, rights: Rights) -> Result<(), Error> {
        let length = region.length();
        self.place(Grant { key, region, offset: 0, length, rights })
    }

    /// Copies the grant of `key` from another table. False when that table has no such grant, or this
    /// one has ended.
    ///
    /// This table's lock is held while the other is read, so that a revocation first there and then
    /// here leaves the grant in neither.
    pub(crate) fn learn(&self, key: AccessKey, from: &Self) -> bool {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let known = from.slots.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(grant)) = known.grants.get(key.index as usize) else { return false };
        if !grant.key.same_secret(&key) || self.ended.load(Ordering::Relaxed) {
            return false;
        }
        *slots.at(key.index) = Some(grant.clone());
        true
    }

    fn place(&self, grant: Grant) -> Result<(), Error> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = grant.key.index;
        match slots.at(index) {
            slot @ None if !self.ended.load(Ordering::Relaxed) => *slot = Some(grant),
            _ => return Err(Error::Protocol(format!("grant {index} exists already"))),
        }
        Ok(())
    }

    /// Takes a grant back. When this returns, no operation under the key is in progress and none
    /// can begin. False when there is no such grant.
    pub fn revoke(&self, key: AccessKey) -> bool {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.grants.get_mut(key.index as usize);
        let revoked = slot.and_then(|slot| slot.take_if(|grant| grant.key.same_secret(&key))).is_some();
        if revoked {
            slots.free.insert(key.index);
        }
        revoked
    }

    /// Takes all grants back.
    pub fn revoke_all(&self) {
        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = Slots::default();
    }

    /// Takes back all grants that others made, and accepts none any more.
    pub(crate) fn end(&self) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::Relaxed);
        *slots = Slots::default();
    }

    /// Bytes that are granted, all grants together.
    pub(crate) fn bytes(&self) -> u64 {
        self.hold().0.grants.iter().flatten().map(|grant| grant.length).sum()
    }

    /// The table, held for a batch of operations.
    pub fn hold(&self) -> Granted<'_> {
        Granted(self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Slots {
    /// A slot that is about to be filled. The table grows to hold it.
    fn at(&mut self, index: u32) -> &mut Option<Grant> {
        self.free.remove(&index);
        let index = index as usize;
        if self.grants.len() <= index {
            self.grants.resize_with(index + 1, || None);
        }
        &mut self.grants[index]
    }
}

impl Grant {
    #[inline]
    fn check(&self, offset: u64, length: u64, needs: Rights) -> Result<(&Region, u64), Error> {
        if !self.rights.contain(needs) {
            return Err(Error::AccessDenied);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(Error::OutOfBounds { offset, length });
        }
        if needs.contain(Rights::ATOMIC) && !offset.is_multiple_of(8) {
            return Err(Error::Misaligned { offset });
        }
        Ok((&self.region, self.offset + offset))
    }
}

impl Granted<'_> {
    /// Checks an operation of `length` bytes and returns the region and the offset in it.
    ///
    /// # Errors
    /// [`Error::AccessDenied`], [`Error::OutOfBounds`], [`Error::Misaligned`] (atomics).
    #[inline]
    pub fn check(&self, address: RemoteAddress, length: u64, needs: Rights) -> Result<(&Region, u64), Error> {
        match self.0.grants.get(address.key.index as usize) {
            Some(Some(grant)) if grant.key.same_secret(&address.key) => grant.check(address.offset, length, needs),
            _ => Err(Error::AccessDenied),
        }
    }

    /// As [`Granted::check`], for a table of one's own rights: the time it takes depends on the
    /// secret.
    ///
    /// # Errors
    /// As [`Granted::check`].
    #[inline]
    pub(crate) fn check_own(
        &self,
        address: RemoteAddress,
        length: u64,
        needs: Rights,
    ) -> Result<(&Region, u64), Error> {
        match self.0.grants.get(address.key.index as usize) {
            Some(Some(grant)) if grant.key == address.key => grant.check(address.offset, length, needs),
            _ => Err(Error::AccessDenied),
        }
    }

    /// Whether there is a grant of this key. For tables of one's own rights: the time it takes
    /// depends on the secret.
    #[inline]
    pub(crate) fn knows(&self, key: &AccessKey) -> bool {
        matches!(self.0.grants.get(key.index as usize), Some(Some(grant)) if grant.key == *key)
    }

    /// Asks the processor to load what an operation of `length` bytes is about to touch, or only
    /// its start: the processor then detects the pattern and loads the rest by itself.
    #[inline]
    pub fn prefetch(&self, address: RemoteAddress, length: usize) {
        if let Some(Some(grant)) = self.0.grants.get(address.key.index as usize)
            && address.offset < grant.length
        {
            let length = (length as u64).min(grant.length - address.offset).min(PREFETCH_BYTES);
            grant.region.prefetch(grant.offset + address.offset, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backing;

    #[test]
    fn only_the_granted_is_allowed() {
        let region = Region::allocate(4096, Backing::Private).unwrap();
        let table = GrantTable::new();
        let key = table.grant(&region, 1024, 64, Rights::READ).unwrap();
        {
            let held = table.hold();
            assert_eq!(held.check(key.at(8), 56, Rights::READ).unwrap().1, 1032);
            assert_eq!(
                held.check(key.at(8), 57, Rights::READ).unwrap_err(),
                Error::OutOfBounds { offset: 8, length: 57 }
            );
            assert!(held.check(key.at(u64::MAX), 8, Rights::READ).is_err());
            assert_eq!(held.check(key.at(0), 8, Rights::WRITE).unwrap_err(), Error::AccessDenied);
            let forged = AccessKey::new(key.index, key.secret() ^ 1);
            assert_eq!(held.check(forged.at(0), 8, Rights::READ).unwrap_err(), Error::AccessDenied);
            let absent = AccessKey::new(77, key.secret());
            assert_eq!(held.check(absent.at(0), 8, Rights::READ).unwrap_err(), Error::AccessDenied);
        }
        assert!(table.revoke(key));
        assert!(!table.revoke(key));
        let again = table.grant(&region, 0, 64, Rights::ALL).unwrap();
        assert_eq!(again.index, key.index);
        assert_eq!(table.hold().check(key.at(0), 8, Rights::READ).unwrap_err(), Error::AccessDenied);
        assert_eq!(table.hold().check(again.at(4), 8, Rights::ATOMIC).unwrap_err(), Error::Misaligned { offset: 4 });
    }

    #[test]
    fn slots_are_used_again_and_no_others() {
        let region = Region::allocate(4096, Backing::Private).unwrap();
        let table = GrantTable::new();
        let grant = || table.grant(&region, 0, 64, Rights::READ).unwrap();
        let keys: Vec<_> = (0..100).map(|_| grant()).collect();
        assert!(keys.iter().map(|key| key.index).eq(0..100));
        for round in 1..5 {
            assert!(keys.iter().skip(round).step_by(7).all(|key| table.revoke(*key)));
            let again: Vec<_> = keys.iter().skip(round).step_by(7).map(|_| grant().index).collect();
            assert!(again.into_iter().eq((round as u32..100).step_by(7)));
        }
        assert_eq!(grant().index, 100);
        // An entered slot is not free, and a revoked slot is free once.
        let entered = AccessKey::new(3, 1);
        let before = table.hold().0.grants[3].as_ref().unwrap().key;
        for _ in 0..2 {
            let key = table.hold().0.grants[3].as_ref().unwrap().key;
            assert!(table.revoke(key));
            table.enter(entered, region.clone(), Rights::READ).unwrap();
        }
        assert!(before != entered && grant().index == 101);
        table.revoke_all();
        assert_eq!(grant().index, 0);
    }

    #[test]
    fn grants_stay_within_their_region() {
        let region = Region::allocate(64, Backing::Private).unwrap();
        let table = GrantTable::new();
        assert!(table.grant(&region, 0, 72, Rights::ALL).is_err());
        assert!(table.grant(&region, 4, 8, Rights::ALL).is_err());
        assert!(table.grant(&region, 8, u64::MAX - 7, Rights::ALL).is_err());
        assert!(table.grant(&region, 0, 0, Rights::ALL).is_err());
    }
}
