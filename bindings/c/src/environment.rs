//! The environment, memory for the caller, and versions.

use crate::border::{end, give, quiet, shared, text_for_caller};
use crate::failure::Failure;
use forebay::ErrorKind;
use libc::{c_char, c_int, c_void};

/// The version of LevelDB whose interface this is.
const MAJOR: c_int = 1;
const MINOR: c_int = 23;

/// The environment. There is one.
pub struct leveldb_env_t(());

/// A logger. Nothing makes one.
pub struct leveldb_logger_t(());

/// The environment.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    quiet(std::ptr::null_mut(), || Ok(give(leveldb_env_t(()))))
}

/// Ends a handle of the environment.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    // SAFETY: the caller's duty.
    unsafe { end(env) }
}

/// Returns a folder for tests of this user, which is made if it is missing. The caller frees the name; `NULL` if there
/// is none.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(env: *mut leveldb_env_t) -> *mut c_char {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the caller's duty.
        unsafe { shared(env)? };
        // SAFETY: it reads no memory, and cannot fail.
        let user = unsafe { libc::geteuid() };
        let folder = std::env::temp_dir().join(format!("forebay-test-{user}"));
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::new(ErrorKind::Io, format!("{}: {error}", folder.display())))?;
        text_for_caller(&folder.to_string_lossy())
    })
}

/// Frees what a function of this library returned.
///
/// # Safety
/// See the [crate](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(memory: *mut c_void) {
    // SAFETY: `NULL` or from `malloc`, which is the caller's duty.
    unsafe { libc::free(memory) }
}

/// The major version of LevelDB whose interface this is.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_major_version() -> c_int {
    MAJOR
}

/// The minor version of LevelDB whose interface this is.
#[unsafe(no_mangle)] // SAFETY: the name is LevelDB's.
pub extern "C" fn leveldb_minor_version() -> c_int {
    MINOR
}
