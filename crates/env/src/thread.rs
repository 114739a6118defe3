//! Threads.

pub use std::thread::JoinHandle;

/// Starts a named thread.
///
/// # Errors
/// When the operating system refuses.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}
