//! The asynchronous runtime of a remote back end. It has one thread and is private to this module. A call hands its future
//! to the runtime and blocks until the answer comes, so it may be made from any thread, even one of another runtime.

use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::thread::spawn;
use std::convert::Infallible;
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: tokio::runtime::Handle,
    /// The thread ends when this is dropped. Nobody waits for it: that may happen on a thread of another runtime.
    _stop: oneshot::Sender<Infallible>,
}

impl Runtime {
    /// The runtime for the service at `url`.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub(super) fn new(url: &str) -> Result<Self> {
        let failed = |cause| Error::io("open", url, &cause);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        // The library panics when the system gives it no thread.
        let run = move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        spawn("storage", run).map_err(|cause| Error::io("start", format!("a thread for {url}"), &cause))?;
        Ok(Self { handle, _stop: stop })
    }

    /// A handle with which a library may run futures of its own.
    #[cfg(feature = "hdfs")]
    pub(super) fn handle(&self) -> tokio::runtime::Handle {
        self.handle.clone()
    }

    /// Runs `work`, and waits for it for at most `timeout`.
    ///
    /// # Errors
    /// `TimedOut`; `Unavailable` when the work ended without an answer.
    pub(super) fn wait<T, W>(&self, operation: &'static str, object: &str, timeout: Duration, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // The caller waits for the answer.
            let _ = sender.send(tokio::time::timeout(timeout, work).await);
        });
        match receiver.recv() {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => {
                let detail = format!("no answer within {} s: it may have been done, or will be", timeout.as_secs_f64());
                Err(Error::new(ErrorKind::TimedOut, operation, object, detail))
            }
            Err(_) => Err(Error::new(ErrorKind::Unavailable, operation, object, "the library gave up")),
        }
    }
}
