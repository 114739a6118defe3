//! Iterators.

use crate::border::{bytes, caught, end, exclusive, failing, give, quiet, shared};
use crate::database::leveldb_t;
use crate::failure::Failure;
use crate::options::{leveldb_readoptions_t, or_default};
use forebay::process::Owned;
use forebay::{DbIterator, EngineError};
use libc::{c_char, size_t};

/// An iterator, or the error that prevented one.
pub struct leveldb_iterator_t {
    iterator: Option<Owned<DbIterator>>,
    failure: Option<Failure>,
}

impl leveldb_iterator_t {
    fn position(&self) -> Option<&DbIterator> {
        let iterator = self.iterator.as_ref()?.get().ok()?;
        (self.failure.is_none() && iterator.valid()).then_some(iterator)
    }

    fn go(&mut self, step: impl FnOnce(&mut DbIterator) -> Result<(), Failure>) -> Result<(), Failure> {
        if let Some(iterator) = &mut self.iterator {
            let moved = iterator.get_mut().map_err(Failure::from);
            // A move that panics has failed, too.
            self.failure = moved.and_then(|iterator| caught(|| step(iterator))).err();
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Fails as the last move did, or because of a fork.
    fn check(&self) -> Result<(), Failure> {
        self.iterator.as_ref().map(Owned::get).transpose()?;
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Moves an iterator. A failure, also of the arguments, stays with the iterator.
///
/// # Safety
/// As [`exclusive`].
unsafe fn go(iterator: *mut leveldb_iterator_t, step: impl FnOnce(&mut DbIterator) -> Result<(), Failure>) {
    // SAFETY: the caller's duty.
    quiet((), || unsafe { exclusive(iterator)? }.go(step));
}

/// Moves an iterator to a key, which may be a part of the entry that the iterator is at. So the key is copied before the
/// iterator gives that entry back.
///
/// # Safety
/// As [`exclusive`] and [`bytes`].
unsafe fn go_to(
    iterator: *mut leveldb_iterator_t,
    (key, length): (*const c_char, size_t),
    seek: impl FnOnce(&mut DbIterator, &[u8]) -> Result<(), EngineError>,
) {
    // SAFETY: the caller's duty.
    unsafe {
        go(iterator, |iterator| {
            let key = bytes(key, length)?.to_vec();
            Ok(seek(iterator, &key)?)
        });
    }
}

/// Moves an iterator from its position, if it has one: a failure stays until the next seek.
///
/// # Safety
/// As [`exclusive`].
unsafe fn go_on(iterator: *mut leveldb_iterator_t, step: impl FnOnce(&mut DbIterator) -> Result<(), EngineError>) {
    // SAFETY: the caller's duty.
    quiet((), || match unsafe { exclusive(iterator)? } {
        iterator if iterator.position().is_some() => iterator.go(|iterator| Ok(step(iterator)?)),
        _ => Ok(()),
    });
}

/// Makes an iterator, as of the options' snapshot or now, without a position. If it cannot be made, the returned
/// iterator has no positions, and [`leveldb_iter_get_error`] says why.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the caller's duty.
        let made = unsafe { shared(db) }.and_then(|db| {
            let default = leveldb_readoptions_t::default();
            // SAFETY: the caller's duty.
            let options = unsafe { or_default(options, &default) };
            Ok(Owned::new(db.store()?.iter_with(&options.iteration()?)?))
        });
        Ok(give(match made {
            Ok(iterator) => leveldb_iterator_t { iterator: Some(iterator), failure: None },
            Err(failure) => leveldb_iterator_t { iterator: None, failure: Some(failure) },
        }))
    })
}

/// Ends an iterator.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the caller's duty.
    unsafe { end(iterator) }
}

/// Whether the iterator is at a key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    // SAFETY: the caller's duty.
    quiet(0, || unsafe { shared(iterator) }.map(|iterator| iterator.position().is_some().into()))
}

/// Goes to the first key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the caller's duty.
    unsafe { go(iterator, |iterator| Ok(iterator.seek_to_first()?)) }
}

/// Goes to the last key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the caller's duty.
    unsafe { go(iterator, |iterator| Ok(iterator.seek_to_last()?)) }
}

/// Goes to the first key that is not before `key`, which may be the iterator's current key or value.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(iterator: *mut leveldb_iterator_t, key: *const c_char, keylen: size_t) {
    // SAFETY: the caller's duty.
    unsafe { go_to(iterator, (key, keylen), DbIterator::seek) }
}

/// Goes to the last key that is not after `key`, which may be the iterator's current key or value.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_seek_for_prev(
    iterator: *mut leveldb_iterator_t,
    key: *const c_char,
    keylen: size_t,
) {
    // SAFETY: the caller's duty.
    unsafe { go_to(iterator, (key, keylen), DbIterator::seek_for_prev) }
}

/// Goes to the next key, if the iterator is at one.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the caller's duty.
    unsafe { go_on(iterator, DbIterator::next) }
}

/// Goes to the previous key, if the iterator is at one.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    // SAFETY: the caller's duty.
    unsafe { go_on(iterator, DbIterator::prev) }
}

/// Returns the current key, which stays until the iterator moves; `NULL` without a position.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(iterator: *const leveldb_iterator_t, klen: *mut size_t) -> *const c_char {
    // SAFETY: the caller's duty.
    unsafe { current(iterator, klen, DbIterator::key) }
}

/// Returns the current value, which stays until the iterator moves; `NULL` without a position.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(iterator: *const leveldb_iterator_t, vlen: *mut size_t) -> *const c_char {
    // SAFETY: the caller's duty.
    unsafe { current(iterator, vlen, DbIterator::value) }
}

/// A part of the current entry, and its length.
///
/// # Safety
/// As [`shared`], and `length` is `NULL` or writable.
unsafe fn current(
    iterator: *const leveldb_iterator_t,
    length: *mut size_t,
    part: impl FnOnce(&DbIterator) -> &[u8],
) -> *const c_char {
    quiet(std::ptr::null(), || {
        // SAFETY: the caller's duty.
        let part = unsafe { shared(iterator)? }.position().map(part);
        // SAFETY: the caller's duty.
        if let Some(length) = unsafe { length.as_mut() } {
            *length = part.map_or(0, <[u8]>::len);
        }
        Ok(part.map_or(std::ptr::null(), |part| part.as_ptr().cast()))
    })
}

/// Gives the error of the iterator's last move, if it failed, or the error that the process was forked after the
/// iterator was made.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(iterator: *const leveldb_iterator_t, errptr: *mut *mut c_char) {
    // SAFETY: the caller's duty.
    unsafe {
        failing(errptr, (), || shared(iterator)?.check());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::{IterOptions, Options, Store};

    #[test]
    fn a_move_that_panics_has_failed() {
        let store = Store::embedded(64 << 20, Options::default()).unwrap();
        store.put(b"key", b"value").unwrap();
        let iterator = Owned::new(store.iter_with(&IterOptions::default()).unwrap());
        let mut iterator = leveldb_iterator_t { iterator: Some(iterator), failure: None };
        for _ in 0..2 {
            iterator.go(|iterator| Ok(iterator.seek_to_first()?)).unwrap();
            assert!(iterator.position().is_some() && iterator.check().is_ok());
            iterator.go(|_| panic!("by hand")).unwrap_err();
            assert!(iterator.position().is_none());
            assert!(iterator.check().unwrap_err().text().contains("by hand"));
        }
    }
}
