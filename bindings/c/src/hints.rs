//! Filter policies and caches: LevelDB needs them to be fast, and Forebay mostly does not.

use crate::border::{end, give, quiet};
use libc::{c_char, c_int, c_void, size_t};

/// A filter policy. Nothing uses it.
pub struct leveldb_filterpolicy_t {
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for leveldb_filterpolicy_t {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the function was given with this state (5), and is called once.
            unsafe { destructor(self.state) }
        }
    }
}

/// A cache: a number of bytes.
pub struct leveldb_cache_t {
    capacity: size_t,
}

impl leveldb_cache_t {
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity as u64
    }
}

/// Makes a filter policy. Of its functions, only `destructor` is called.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _create_filter: Option<
        unsafe extern "C" fn(*mut c_void, *const *const c_char, *const size_t, c_int, *mut size_t) -> *mut c_char,
    >,
    _key_may_match: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t) -> u8>,
    _name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut leveldb_filterpolicy_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_filterpolicy_t { state, destructor })))
}

/// Ends a filter policy, after its destructor was called.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    // SAFETY: the caller's duty.
    unsafe { end(policy) }
}

/// Makes a Bloom filter's policy, which has no effect.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_filterpolicy_create_bloom(_bits_per_key: c_int) -> *mut leveldb_filterpolicy_t {
    let policy = leveldb_filterpolicy_t { state: std::ptr::null_mut(), destructor: None };
    quiet(std::ptr::null_mut(), || Ok(give(policy)))
}

/// A cache of `capacity` bytes.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_cache_create_lru(capacity: size_t) -> *mut leveldb_cache_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_cache_t { capacity })))
}

/// Ends a cache. Databases that were opened with it keep their limits.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    // SAFETY: the caller's duty.
    unsafe { end(cache) }
}
