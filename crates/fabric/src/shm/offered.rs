//! Grants that one side of a link made to the other, as their grantor keeps them.
//!
//! ```text
//!            ask               taken                 withdraw              released
//!   free ──────────► asked ──────────► given ──────────────────► revoking ──────────► free
//!    ▲                 │ refused
//!    └─────────────────┘
//! ```
//!
//! A node does not ask: its grants are `given` at once, because the client handles all frames
//! before it treats a key as unknown. An index is used again only when the other side has released
//! the memory. When the other side is gone, everything is released.

use super::frame::MAX_GRANTS;
use crate::{AccessKey, Error, Region, Revocation, Rights};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::sync::lock;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The grantor's table.
#[derive(Debug, Default)]
pub(super) struct Offered {
    slots: Mutex<Vec<Slot>>,
    answered: Condvar,
}

#[derive(Debug)]
enum Slot {
    Free,
    Asked(AccessKey),
    Refused(AccessKey, u8),
    Given(AccessKey),
    Revoking(AccessKey, Revocation),
}

impl Slot {
    const fn key(&self) -> Option<&AccessKey> {
        match self {
            Self::Free => None,
            Self::Asked(key) | Self::Refused(key, _) | Self::Given(key) | Self::Revoking(key, _) => Some(key),
        }
    }
}

impl Offered {
    /// Names a new grant, which is given at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are too many, [`Error::Io`] without entropy.
    pub(super) fn give(&self) -> Result<AccessKey, Error> {
        self.add(Slot::Given)
    }

    /// Names a new grant that the other side must accept first.
    ///
    /// # Errors
    /// As [`Offered::give`].
    pub(super) fn ask(&self) -> Result<AccessKey, Error> {
        self.add(Slot::Asked)
    }

    fn add(&self, state: fn(AccessKey) -> Slot) -> Result<AccessKey, Error> {
        let secret = Random::secret().map_err(|e| Error::io("drawing an access key", e))?;
        let mut slots = lock(&self.slots);
        let free = slots.iter().position(|slot| matches!(slot, Slot::Free)).unwrap_or(slots.len());
        let index = u32::try_from(free).ok().filter(|index| *index < MAX_GRANTS);
        let index = index.ok_or_else(|| Error::Invalid(format!("more than {MAX_GRANTS} grants on a link")))?;
        let key = AccessKey::new(index, secret);
        match slots.get_mut(free) {
            Some(slot) => *slot = state(key),
            None => slots.push(state(key)),
        }
        Ok(key)
    }

    /// Notes the other side's answer: 0, or an error kind's code.
    pub(super) fn answer(&self, key: AccessKey, status: u8) {
        self.change(key, |slot| match slot {
            Slot::Asked(key) if status == 0 => Slot::Given(key),
            Slot::Asked(key) => Slot::Refused(key, status),
            other => other,
        });
        self.answered.notify_all();
    }

    /// Waits for the other side's answer. `None` when there was none within `limit`, or the link
    /// ended.
    pub(super) fn wait_answer(&self, key: AccessKey, limit: Duration) -> Option<Result<(), Error>> {
        let slots = lock(&self.slots);
        let asked =
            |slots: &mut Vec<Slot>| matches!(slots.get(key.index as usize), Some(Slot::Asked(asked)) if *asked == key);
        let (slots, _) = self.answered.wait_timeout_while(slots, limit, asked).unwrap_or_else(PoisonError::into_inner);
        let answer = match slots.get(key.index as usize) {
            Some(Slot::Given(given)) if *given == key => Some(Ok(())),
            Some(Slot::Refused(refused, status)) if *refused == key => Some(Err(Error::Remote {
                kind: ErrorKind::from_code(*status).unwrap_or(ErrorKind::Unsupported),
                message: "the node refused the grant".into(),
            })),
            _ => None,
        };
        drop(slots);
        if !matches!(answer, Some(Ok(()))) {
            self.forget(key);
        }
        answer
    }

    /// Takes back a grant that the other side never learned of.
    pub(super) fn forget(&self, key: AccessKey) {
        self.change(key, |_| Slot::Free);
    }

    /// Begins to take a grant back.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when there is no such grant.
    pub(super) fn withdraw(&self, key: AccessKey) -> Result<Revocation, Error> {
        let revocation = Revocation::pending();
        let mut found = false;
        self.change(key, |slot| match slot {
            Slot::Given(key) => {
                found = true;
                Slot::Revoking(key, revocation.clone())
            }
            other => other,
        });
        if found { Ok(revocation) } else { Err(Error::AccessDenied) }
    }

    /// Notes that the other side has released the memory. False when it was not asked to.
    pub(super) fn released(&self, key: AccessKey) -> bool {
        let mut found = false;
        self.change(key, |slot| match slot {
            Slot::Revoking(_, revocation) => {
                found = true;
                revocation.finish();
                Slot::Free
            }
            other => other,
        });
        found
    }

    /// Releases everything: the other side is gone.
    pub(super) fn end(&self) {
        for slot in std::mem::take(&mut *lock(&self.slots)) {
            if let Slot::Revoking(_, revocation) = slot {
                revocation.finish();
            }
        }
        self.answered.notify_all();
    }

    fn change(&self, key: AccessKey, change: impl FnOnce(Slot) -> Slot) {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get_mut(key.index as usize)
            && slot.key().is_some_and(|known| known.same_secret(&key))
        {
            *slot = change(std::mem::replace(slot, Slot::Free));
        }
    }
}

/// Checks what is to be granted, and returns the file to pass ([`open_file`]).
///
/// # Errors
/// [`Error::OutOfBounds`], [`Error::Invalid`], [`Error::Io`].
pub(super) fn file_for(region: &Region, offset: u64, length: u64, rights: Rights) -> Result<OwnedFd, Error> {
    let end = offset.checked_add(length).filter(|end| *end <= region.length());
    let end = end.ok_or(Error::OutOfBounds { offset, length })?;
    let page = rustix::param::page_size() as u64;
    let whole_pages = offset.is_multiple_of(page) && (end.is_multiple_of(page) || end == region.length());
    if !whole_pages || length == 0 {
        return Err(Error::Invalid(format!(
            "a grant of {length} bytes at {offset}: over shared memory both must be multiples of the page size, {page}"
        )));
    }
    open_file(region, rights)
}

/// A descriptor of the region's memory file that permits no more than the rights allow.
///
/// # Errors
/// [`Error::Invalid`], [`Error::Io`].
pub(super) fn open_file(region: &Region, rights: Rights) -> Result<OwnedFd, Error> {
    let file = region.file().ok_or_else(|| {
        Error::Invalid("a region that is granted over shared memory must be allocated as shareable".into())
    })?;
    if is_written(rights) {
        return file.try_clone_to_owned().map_err(|e| Error::io("copying a memory file's descriptor", e));
    }
    // A new open file that cannot be mapped for writing.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::io("opening a memory file for reading", e))
}

/// Whether memory under these rights is mapped for writing.
pub(super) const fn is_written(rights: Rights) -> bool {
    rights.contain(Rights::WRITE) || rights.contain(Rights::ATOMIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_kept_until_released() {
        let offered = Offered::default();
        let first = offered.give().unwrap();
        let revocation = offered.withdraw(first).unwrap();
        assert_eq!(offered.withdraw(first).unwrap_err(), Error::AccessDenied);
        assert_eq!(offered.give().unwrap().index, 1);
        assert!(!offered.released(AccessKey::new(0, 0)) && !revocation.is_complete());
        assert!(offered.released(first) && revocation.is_complete());
        assert!(!offered.released(first));
        let again = offered.give().unwrap();
        assert_eq!(again.index, 0);
        let revocation = offered.withdraw(again).unwrap();
        offered.end();
        assert!(revocation.is_complete());
    }

    #[test]
    fn an_asked_grant_is_given_or_refused() {
        let offered = Offered::default();
        let limit = Duration::from_millis(1);
        let keys: Vec<_> = (0..3).map(|_| offered.ask().unwrap()).collect();
        offered.answer(keys[0], 0);
        offered.answer(keys[1], ErrorKind::Full.code());
        assert_eq!(offered.wait_answer(keys[0], limit), Some(Ok(())));
        let refused = offered.wait_answer(keys[1], limit).unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full);
        assert_eq!(offered.wait_answer(keys[2], limit), None);
        assert_eq!(offered.ask().unwrap().index, 1);
    }
}
