//! The border between C and Rust: pointers become references and slices, results become pointers, panics end here.

use crate::failure::Failure;
use forebay::ErrorKind;
use libc::{c_char, c_void, size_t};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// Runs what can fail. On failure, `errptr` gets the error and the caller gets `otherwise`; on success `errptr` stays.
///
/// # Safety
/// `errptr` is `NULL`, or points to `NULL` or to a string that `malloc` gave.
pub(crate) unsafe fn failing<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T {
    let failure = match caught(body) {
        Ok(value) => return value,
        Err(failure) => failure,
    };
    failure.remember();
    let Some(errptr) = NonNull::new(errptr) else { return otherwise };
    // Without memory for the text, an error would look like a success: keeping the old text is better than none.
    let text = text_for_caller(&failure.text()).unwrap_or(std::ptr::null_mut());
    if !text.is_null() {
        // SAFETY: the caller's duty; `free` takes `NULL` too.
        unsafe {
            libc::free(errptr.read().cast());
            errptr.write(text);
        }
    }
    otherwise
}

/// Runs what has no way to report an error. After an error the caller gets `otherwise`, and
/// [`crate::forebay_error_kind`] tells the kind.
pub(crate) fn quiet<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    caught(body).unwrap_or_else(|failure| {
        failure.remember();
        otherwise
    })
}

/// Runs `body`. A panic becomes an error.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // A panic may leave half done the database's own state, which guards itself, or an object of the caller's, any
    // state of which is sound.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // Dropping the panic's payload may itself panic.
        std::mem::forget(panic);
        Err(Failure::new(ErrorKind::Io, format!("an internal error, please report it: {text}")))
    })
}

/// The object behind a handle.
///
/// # Safety
/// `handle` is `NULL` or from [`give`] with this type and not yet taken, and nobody changes the object during `'a`.
pub(crate) unsafe fn shared<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's duty.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid(format!("the {} is NULL", name_of::<T>())))
}

/// The object behind a handle, to change it.
///
/// # Safety
/// As [`shared`], and nobody else uses the object during `'a`.
pub(crate) unsafe fn exclusive<'a, T>(handle: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's duty.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::invalid(format!("the {} is NULL", name_of::<T>())))
}

/// The name of a handle's type in C.
fn name_of<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or_default()
}

/// Bytes of the caller. The pointer is not used if there are none.
///
/// # Safety
/// `start` is `NULL`, or `length` readable bytes are there, which nobody changes during `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const c_char, length: size_t) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Failure::invalid(format!("a pointer to {length} bytes is NULL")));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!("{length} bytes do not fit into memory: is the length negative?")));
    }
    // SAFETY: not null, no longer than any object can be; the rest is the caller's duty.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// Bytes of the caller, where `NULL` says that there are none.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional_bytes<'a>(start: *const c_char, length: size_t) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: the caller's duty.
    if start.is_null() { Ok(None) } else { unsafe { bytes(start, length) }.map(Some) }
}

/// An array of the caller.
///
/// # Safety
/// `start` is `NULL`, or `count` elements are there, which nobody changes during `'a`.
pub(crate) unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array::<T>(start, count)?;
    // SAFETY: checked above; the rest is the caller's duty.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// An array of the caller, to write into.
///
/// # Safety
/// `start` is `NULL`, or `count` elements are there, which nobody else uses during `'a`.
pub(crate) unsafe fn array_mut<'a, T>(start: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_array::<T>(start, count)?;
    // SAFETY: checked above; the rest is the caller's duty.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, count) })
}

fn check_array<T>(start: *const T, count: usize) -> Result<(), Failure> {
    if start.is_null() || !start.is_aligned() {
        return Err(Failure::invalid(format!("an array of {count} elements is NULL or not aligned")));
    }
    let is_possible = count.checked_mul(size_of::<T>()).is_some_and(|length| isize::try_from(length).is_ok());
    is_possible.then_some(()).ok_or_else(|| Failure::invalid(format!("{count} elements do not fit into memory")))
}

/// A string of the caller.
///
/// # Safety
/// `start` is `NULL` or a string that nobody changes during `'a`.
pub(crate) unsafe fn string<'a>(start: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if start.is_null() {
        return Err(Failure::invalid(format!("the {what} is NULL")));
    }
    // SAFETY: the caller's duty.
    Ok(unsafe { CStr::from_ptr(start) })
}

/// Gives an object to the caller as a handle.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes back what was given and drops it; `NULL` is nothing.
///
/// # Safety
/// `handle` is `NULL` or from [`give`] with this type, and nobody uses it any more.
pub(crate) unsafe fn end<T>(handle: *mut T) {
    quiet((), || {
        // SAFETY: the caller's duty.
        drop(unsafe { take(handle) });
        Ok(())
    });
}

/// Takes back what was given.
///
/// # Safety
/// As [`end`].
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's duty.
    NonNull::new(handle).map(|handle| unsafe { Box::from_raw(handle.as_ptr()) })
}

/// Returns a copy of `bytes` that the caller frees. It takes at least one byte, because `NULL` means something else.
pub(crate) fn bytes_for_caller(bytes: &[u8]) -> Result<*mut c_char, Failure> {
    // SAFETY: any size may be asked for.
    let copy: *mut c_void = unsafe { libc::malloc(bytes.len().max(1)) };
    if copy.is_null() {
        return Err(Failure::new(ErrorKind::Full, format!("no memory for {} bytes", bytes.len())));
    }
    // SAFETY: `copy` has room for all of `bytes`, and is new.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len()) };
    Ok(copy.cast())
}

/// A copy of `text` that ends with a zero byte and that the caller frees.
pub(crate) fn text_for_caller(text: &str) -> Result<*mut c_char, Failure> {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes_for_caller(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{forebay_error_kind, leveldb_free, leveldb_t};

    /// Returns what `errptr` says after `body`.
    fn said(body: impl FnOnce() -> Result<(), Failure>) -> String {
        let mut error = std::ptr::null_mut();
        // SAFETY: `error` points to `NULL`, then to what `malloc` gave.
        unsafe {
            failing(&raw mut error, (), body);
            let text = if error.is_null() { String::new() } else { CStr::from_ptr(error).to_str().unwrap().to_owned() };
            leveldb_free(error.cast());
            text
        }
    }

    #[test]
    fn panics_become_errors() {
        assert!(said(|| panic!("by hand")).contains("IO error: an internal error, please report it: by hand"));
        assert_eq!(forebay_error_kind(), i32::from(ErrorKind::Io.code()));
        assert_eq!(quiet(7, || panic!("{}", String::from("made"))), 7);
    }

    #[test]
    fn an_error_replaces_the_one_before_and_success_leaves_it() {
        let mut error = text_for_caller("before").unwrap();
        // SAFETY: `error` points to what `malloc` gave.
        unsafe {
            failing(&raw mut error, (), || Ok(()));
            assert_eq!(CStr::from_ptr(error), c"before");
            failing(&raw mut error, (), || Err(Failure::invalid("zero \0 inside")));
            assert_eq!(CStr::from_ptr(error).to_str().unwrap(), "Invalid argument: zero \u{fffd} inside");
            leveldb_free(error.cast());
            // There is nowhere to put the error.
            failing(std::ptr::null_mut(), (), || Err(Failure::invalid("")));
        }
    }

    #[test]
    fn null_is_refused_with_its_name() {
        // SAFETY: `NULL` is allowed.
        unsafe {
            assert!(shared::<leveldb_t>(std::ptr::null()).err().unwrap().text().contains("leveldb_t is NULL"));
            assert!(exclusive::<leveldb_t>(std::ptr::null_mut()).is_err());
            assert!(bytes(std::ptr::null(), 1).is_err() && bytes(c"a".as_ptr(), usize::MAX).is_err());
            assert_eq!(bytes(std::ptr::null(), 0).unwrap(), b"");
            assert_eq!(optional_bytes(std::ptr::null(), 3).unwrap(), None);
            assert!(array::<u64>(std::ptr::null(), 1).is_err() && array_mut::<u64>(std::ptr::null_mut(), 1).is_err());
            assert!(string(std::ptr::null(), "name").unwrap_err().text().contains("the name is NULL"));
            end::<leveldb_t>(std::ptr::null_mut());
        }
    }
}
