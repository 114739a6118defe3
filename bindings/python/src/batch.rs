//! Write batches.

use crate::bytes::Bytes;
use crate::errors::Raised;
use crate::shared::SharedStore;
use forebay::process::Owned;
use forebay::{EngineError, WriteBatch, WriteOptions};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes that become visible together, in the order in which they were added. A context manager writes them at the end
/// of its block, unless the block raises.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Batch {
    store: Owned<SharedStore>,
    sync: bool,
    /// Held for as long as a write is added, never while the engine works.
    writes: Mutex<WriteBatch>,
}

impl Batch {
    pub(crate) fn new(store: Owned<SharedStore>, sync: bool) -> Self {
        Self { store, sync, writes: Mutex::default() }
    }

    /// Whether the batch is of this database.
    pub(crate) fn is_of(&self, store: &SharedStore) -> PyResult<bool> {
        Ok(self.store.get().raised()?.is_same(store))
    }

    /// Writes the batch with `write`, and empties it if that succeeds.
    pub(crate) fn written<T: Send>(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&WriteBatch, &WriteOptions) -> Result<T, EngineError> + Send,
    ) -> PyResult<T> {
        let options = self.store.get().raised()?.write_options(self.sync);
        let mut writes = std::mem::take(&mut *self.writes());
        let written = py.detach(|| write(&writes, &options)).raised();
        if written.is_err() {
            // Writes that another thread added meanwhile come after it.
            let mut now = self.writes();
            writes.append(&now);
            *now = writes;
        }
        written
    }

    fn writes(&self) -> MutexGuard<'_, WriteBatch> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Batch {
    /// Adds a write that sets a key.
    fn put(&self, key: Bytes<'_>, value: Bytes<'_>) {
        self.writes().put(key.as_slice(), value.as_slice());
    }

    /// Adds a write that removes a key.
    fn delete(&self, key: Bytes<'_>) {
        self.writes().delete(key.as_slice());
    }

    /// Adds an operand to a key. The database's merge operator makes the value from the operands.
    fn merge(&self, key: Bytes<'_>, operand: Bytes<'_>) {
        self.writes().merge(key.as_slice(), operand.as_slice());
    }

    /// Adds a write that removes all keys from `start` to before `stop`.
    fn delete_range(&self, start: Bytes<'_>, stop: Bytes<'_>) {
        self.writes().delete_range(start.as_slice(), stop.as_slice());
    }

    /// Makes the batch depend on `key` having no value when it is written. If it has one, nothing is written:
    /// `ConflictError`.
    fn require_absent(&self, key: Bytes<'_>) {
        self.writes().require_absent(key.as_slice());
    }

    /// Makes the batch depend on `key` having a value when it is written. If it has none, nothing is written:
    /// `ConflictError`.
    fn require_present(&self, key: Bytes<'_>) {
        self.writes().require_present(key.as_slice());
    }

    /// Removes all writes and conditions.
    fn clear(&self) {
        self.writes().clear();
    }

    /// Writes the batch, and empties it if that succeeds.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.get().raised()?;
        self.written(py, |writes, options| store.write_with(writes, options))
    }

    fn __len__(&self) -> usize {
        self.writes().len()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.write(py);
        }
        self.clear();
        Ok(())
    }
}
