//! Snapshots.

use crate::bytes::{Bytes, Keys, slices, values};
use crate::entries::{Entries, Show};
use crate::errors::{Raised, raise};
use crate::shared::SharedStore;
use forebay::ErrorKind;
use forebay::process::Owned;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, PoisonError, RwLock};

/// A moment of a database. Reads through it see what had been written by that moment.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Snapshot(RwLock<Option<Owned<Arc<Pinned>>>>);

struct Pinned {
    // Dropped in this order.
    snapshot: forebay::Snapshot,
    store: SharedStore,
}

impl Snapshot {
    pub(crate) fn new(store: SharedStore, snapshot: forebay::Snapshot) -> Self {
        Self(RwLock::new(Some(Owned::new(Arc::new(Pinned { snapshot, store })))))
    }

    fn pinned(&self) -> PyResult<Arc<Pinned>> {
        let pinned = self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|pinned| pinned.get().cloned());
        pinned.ok_or_else(|| raise(ErrorKind::Closed, "the snapshot was released".into()))?.raised()
    }

    fn entries(&self, py: Python<'_>, keys: &Keys<'_>, reverse: bool, show: Show) -> PyResult<Entries> {
        let pinned = self.pinned()?;
        Entries::new(py, &pinned.store, keys, Some(&pinned.snapshot), reverse, show)
    }
}

#[pymethods]
impl Snapshot {
    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (pinned, key) = (self.pinned()?, key.as_slice());
        let value = py.detach(|| pinned.store.get_at(key, &pinned.snapshot)).raised()?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of keys, in few round trips.
    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<Vec<Bytes<'_>>>>()?;
        let (pinned, keys) = (self.pinned()?, slices(&keys));
        Ok(values(py, &py.detach(|| pinned.store.multi_get_at(&keys, &pinned.snapshot)).raised()?))
    }

    /// Keys and values in order, from `start` to before `stop`, only those with `prefix`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn items<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(py, &Keys { start, stop, prefix }, reverse, Show::Items)
    }

    /// As `items`, the keys alone.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(py, &Keys { start, stop, prefix }, reverse, Show::Keys)
    }

    /// As `items`, the values alone.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn values<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(py, &Keys { start, stop, prefix }, reverse, Show::Values)
    }

    /// Releases the moment. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        let pinned = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(pinned));
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (pinned, bytes) = (self.pinned()?, key.as_slice());
        match py.detach(|| pinned.store.get_at(bytes, &pinned.snapshot)).raised()? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, bytes).unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        let (pinned, key) = (self.pinned()?, key.as_slice());
        Ok(py.detach(|| pinned.store.get_with(key, Some(&pinned.snapshot), |_| ())).raised()?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.keys(py, None, None, None, false)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.release(py);
    }
}
