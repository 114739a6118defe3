//! Write batches.

use crate::border::{bytes, end, exclusive, failing, give, quiet, shared};
use crate::failure::Failure;
use forebay::{BatchWrite, ErrorKind, WriteBatch};
use libc::{c_char, c_void, size_t};

/// Writes that become visible together.
#[derive(Default)]
pub struct leveldb_writebatch_t {
    writes: WriteBatch,
    /// Why a write could not be added, if one could not: then the batch is not what the caller meant.
    failure: Option<Failure>,
}

impl leveldb_writebatch_t {
    /// Returns the writes, if none is missing.
    pub(crate) fn writes(&self) -> Result<&WriteBatch, Failure> {
        self.failure.clone().map_or(Ok(&self.writes), Err)
    }
}

/// Adds a write. If that fails, the batch is not written any more.
///
/// # Safety
/// As [`exclusive`].
unsafe fn add(batch: *mut leveldb_writebatch_t, write: impl FnOnce(&mut WriteBatch) -> Result<(), Failure>) {
    quiet((), || {
        // SAFETY: the caller's duty.
        let batch = unsafe { exclusive(batch)? };
        let added = write(&mut batch.writes);
        if let Err(failure) = &added {
            batch.failure.get_or_insert_with(|| failure.clone());
        }
        added
    });
}

/// An empty batch.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_writebatch_t::default())))
}

/// Ends a batch.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the caller's duty.
    unsafe { end(batch) }
}

/// Removes all writes from a batch, and the failure to add one.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    quiet((), || {
        // SAFETY: the caller's duty.
        let batch = unsafe { exclusive(batch)? };
        batch.failure = None;
        batch.writes.clear();
        Ok(())
    });
}

/// Adds a write that sets a key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    keylen: size_t,
    val: *const c_char,
    vallen: size_t,
) {
    // SAFETY: the caller's duty.
    unsafe {
        add(batch, |writes| {
            writes.put(bytes(key, keylen)?, bytes(val, vallen)?);
            Ok(())
        });
    }
}

/// Adds a write that removes a key.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    keylen: size_t,
) {
    // SAFETY: the caller's duty.
    unsafe {
        add(batch, |writes| {
            writes.delete(bytes(key, keylen)?);
            Ok(())
        });
    }
}

/// Adds an operand to a key. The database's merge operator makes the value from the operands.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_merge(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    keylen: size_t,
    operand: *const c_char,
    operandlen: size_t,
) {
    // SAFETY: the caller's duty.
    unsafe {
        add(batch, |writes| {
            writes.merge(bytes(key, keylen)?, bytes(operand, operandlen)?);
            Ok(())
        });
    }
}

/// Adds a write that removes all keys from `from` (included) to `to` (excluded).
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_delete_range(
    batch: *mut leveldb_writebatch_t,
    from: *const c_char,
    fromlen: size_t,
    to: *const c_char,
    tolen: size_t,
) {
    // SAFETY: the caller's duty.
    unsafe {
        add(batch, |writes| {
            writes.delete_range(bytes(from, fromlen)?, bytes(to, tolen)?);
            Ok(())
        });
    }
}

/// Passes the writes to `put` and `deleted`, in order. Range deletions and operands have no function in LevelDB's interface: the
/// iteration ends before the first one, and [`crate::forebay_error_kind`] says `Unsupported`. See
/// [`forebay_writebatch_iterate`] for errors.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t)>,
) {
    let nowhere = std::ptr::null_mut();
    // SAFETY: the caller's duty.
    unsafe { forebay_writebatch_iterate(batch, state, put, deleted, nowhere) }
}

/// As [`leveldb_writebatch_iterate`], with errors: `Unsupported` at a range deletion or an operand. If a write could not be
/// added, the iteration fails before the first write.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t)>,
    errptr: *mut *mut c_char,
) {
    let iterate = || -> Result<(), Failure> {
        // SAFETY: the caller's duty.
        let batch = unsafe { shared(batch)? };
        let missing = || Failure::invalid("a function that takes the writes is NULL");
        let (put, deleted) = (put.ok_or_else(missing)?, deleted.ok_or_else(missing)?);
        for write in batch.writes()?.writes() {
            match write? {
                // SAFETY: the function takes bytes of these lengths for the time of the call (5).
                BatchWrite::Put { key, value, .. } => unsafe {
                    put(state, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len());
                },
                // SAFETY: as above.
                BatchWrite::Delete { key } => unsafe { deleted(state, key.as_ptr().cast(), key.len()) },
                _ => {
                    return Err(Failure::new(
                        ErrorKind::Unsupported,
                        "a range deletion, or an operand, has no function to take it",
                    ));
                }
            }
        }
        Ok(())
    };
    // SAFETY: the caller's duty.
    unsafe { failing(errptr, (), iterate) }
}

/// Adds the writes of `source` after those of `destination`.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    // SAFETY: the caller's duty. The copy makes it sound that both may be the same batch.
    let source = unsafe { shared(source) }.and_then(|source| source.writes().cloned());
    // SAFETY: the caller's duty.
    unsafe {
        add(destination, |writes| {
            writes.append(&source?);
            Ok(())
        });
    }
}
