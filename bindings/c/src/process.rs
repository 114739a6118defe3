//! What this library does when its process forks.

use std::sync::Once;

/// From here on, a child that is forked does not use what its parent has opened ([`forebay::process`]).
pub(crate) fn watch_forks() {
    extern "C" fn in_child() {
        forebay::process::forked();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function takes nothing, does not unwind, and stays as long as this library, which the system knows.
        // It fails only without memory.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
