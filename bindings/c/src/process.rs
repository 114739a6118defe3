//! What this library does when its process forks or ends ([`forebay::process`]).

use crate::border::quiet;
pub(crate) use forebay::process::remember;
use std::sync::Once;

/// Starts to watch forks and the process's end: a forked child does not use what its parent has opened, and a process
/// that ends syncs what it has open.
pub(crate) fn watch() {
    extern "C" fn in_child() {
        forebay::process::forked();
    }
    extern "C" fn at_end() {
        quiet((), || Ok(forebay::process::sync_open()?));
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions take nothing, do not unwind, and stay as long as this library, which the system knows: it
        // calls the second one before it unloads the library. Without memory for it, nothing is watched.
        let _ = unsafe { (libc::pthread_atfork(None, None, Some(in_child)), libc::atexit(at_end)) };
    });
}
