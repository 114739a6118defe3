//! Forebay for Python: the extension module `forebay._forebay`. The package `forebay` around it has the errors and the
//! types.
//!
//! Every call into the engine releases the interpreter's lock (GIL) and takes it back afterwards. So no thread waits for
//! the engine, or for a lock of this module, while it holds the GIL. This crate holds no logic of a database.

#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod database;
mod entries;
mod errors;
mod requests;
mod shared;
mod snapshot;

use pyo3::prelude::*;

/// The extension module.
#[pymodule(gil_used = false)]
mod _forebay {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::database::{Database, destroy, open};
    #[pymodule_export]
    use crate::entries::Entries;
    use crate::errors::Raised;
    #[pymodule_export]
    use crate::requests::{Answer, Requests};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    use pyo3::prelude::*;

    /// Records that this process was forked, so that what its parent has opened is not its own.
    #[pyfunction]
    #[pyo3(name = "_forked")]
    fn forked() {
        forebay::process::forked();
    }

    /// Syncs what this process has open, when it ends.
    #[pyfunction]
    #[pyo3(name = "_sync_open")]
    fn sync_open(py: Python<'_>) -> PyResult<()> {
        py.detach(forebay::process::sync_open).raised()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
