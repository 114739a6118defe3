//! Databases.

use crate::batch::Batch;
use crate::bytes::{Bytes, Keys, slices, values};
use crate::entries::{Entries, Show};
use crate::errors::{Raised, raise};
use crate::requests::Requests;
use crate::shared::SharedStore;
use crate::snapshot::Snapshot;
use forebay::process::Owned;
use forebay::{
    DirectoryOptions, EngineError, ErrorKind, KeyOrder, NodeAddress, Options, Storage, StorageOptions, Store,
    WriteBatch, WriteOptions,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PySlice};
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// An open database: an ordered map from bytes to bytes. Any number of threads may use it, but only the process that
/// opened it, and none that is forked later.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Database {
    store: RwLock<Option<Owned<SharedStore>>>,
    sync: bool,
}

/// Opens a database.
///
/// Without `nodes`, `path` is a directory, which is created if it does not exist. The database takes up to `memory_bytes`
/// of memory in this process; what does not fit is stored in the directory alone. Writes are on the disk within a second,
/// and when the process exits; a process that is killed loses at most the last few milliseconds. With `nodes`, addresses
/// as `tcp://host:port` or `shm:path`, `path` is the name of a database on these memory nodes; there a process that is
/// killed loses all writes without `sync` that are not flushed yet. With `sync`, writes are on the disk, or in the memory
/// of the nodes, before they return, unless a write says otherwise. A database keeps the number of `shards` that it is
/// created with, by default 1, and opens with no other number. The same holds for the number of `copies`, each on another
/// of the nodes; every write is in all copies before it returns. A `register`, a path or a URL, says who holds the copies. A
/// database that is created with one opens with this one alone; it is also named to drop the database. A database that is
/// created with a `merge_operator` (`counter`, `append`, `append:` and a separator, or `last`) keeps it, and accepts merges.
///
/// Without `create`, the database must exist; with `error_if_exists`, it must not. With `takeover`, it is opened even while
/// another process has it open, whose calls then fail with `FencedError`. With `reverse`, keys are in the reverse order of
/// their bytes; a database opens only in the order that it was created with. A memtable takes `write_buffer_bytes`, by
/// default 64 MiB.
///
/// With `read_only`, a directory is read as it is, and nothing is written there. With a `checkpoint`, it is read as it
/// was at the checkpoint, even while another process has it open. With either, `memory_bytes` alone of the other keywords
/// has an effect.
#[pyfunction]
#[pyo3(signature = (path, *, nodes=None, create=true, error_if_exists=false, takeover=false, memory_bytes=None,
    write_buffer_bytes=None, shards=None, copies=None, register=None, reverse=false, merge_operator=None,
    sync=false, read_only=false, checkpoint=None))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    nodes: Option<Vec<String>>,
    create: bool,
    error_if_exists: bool,
    takeover: bool,
    memory_bytes: Option<u64>,
    write_buffer_bytes: Option<usize>,
    shards: Option<usize>,
    copies: Option<usize>,
    register: Option<String>,
    reverse: bool,
    merge_operator: Option<String>,
    sync: bool,
    read_only: bool,
    checkpoint: Option<String>,
) -> PyResult<Database> {
    let default = DirectoryOptions::default();
    let memory_bytes = memory_bytes.unwrap_or(default.memory_bytes);
    if read_only || checkpoint.is_some() {
        if nodes.is_some() {
            return Err(PyValueError::new_err("a database on nodes cannot be opened to be read alone: name no nodes"));
        }
        let store = py.detach(|| Store::open_to_read(path, checkpoint.as_deref(), memory_bytes)).raised()?;
        return Ok(Database::of(store, false));
    }
    let options = Options {
        create_if_missing: create,
        error_if_exists,
        takeover,
        key_order: if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise },
        merge_operator,
        write_buffer_bytes: write_buffer_bytes.unwrap_or(default.database.write_buffer_bytes),
        ..default.database
    };
    let nodes = nodes.map(addresses).transpose()?;
    let store = py.detach(|| {
        let options = Options { register: opened(register, create)?, ..options };
        match nodes {
            None => {
                let directory = DirectoryOptions { memory_bytes, database: options };
                Store::open_found(path, shards, copies, directory).raised()
            }
            Some(nodes) => Store::connect_found(&nodes, name(path)?, shards, copies, options).raised(),
        }
    })?;
    Ok(Database::of(store, sync))
}

/// Opens a register.
fn opened(register: Option<String>, create_directory: bool) -> PyResult<Option<Storage>> {
    let open = |url: String| Storage::open(&url, StorageOptions { create_directory, ..StorageOptions::default() });
    register.map(open).transpose().map_err(EngineError::from).raised()
}

/// Drops a database and its data: the database in the directory `path`, or the one of that name on `nodes`, with its
/// `register`.
#[pyfunction]
#[pyo3(signature = (path, *, nodes=None, register=None))]
pub(crate) fn destroy(
    py: Python<'_>,
    path: PathBuf,
    nodes: Option<Vec<String>>,
    register: Option<String>,
) -> PyResult<()> {
    let nodes = nodes.map(addresses).transpose()?;
    py.detach(|| match (nodes, opened(register, false)?) {
        (None, _) => Store::destroy_path(path).raised(),
        (Some(nodes), None) => Store::destroy(&nodes, &name(path)?).raised(),
        (Some(nodes), Some(register)) => Store::destroy_copied(&register, &nodes, &name(path)?).raised(),
    })
}

fn addresses(nodes: Vec<String>) -> PyResult<Vec<NodeAddress>> {
    nodes.iter().map(|node| node.parse::<NodeAddress>().raised()).collect()
}

fn name(path: PathBuf) -> PyResult<String> {
    let not_text =
        |path| raise(ErrorKind::Invalid, format!("{path:?} is no name of a database: use letters and digits"));
    path.into_os_string().into_string().map_err(not_text)
}

impl Database {
    fn of(store: Store, sync: bool) -> Self {
        Self { store: RwLock::new(Some(Owned::new(SharedStore::new(store)))), sync }
    }

    pub(crate) fn store(&self) -> PyResult<SharedStore> {
        let store =
            self.store.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|store| store.get().cloned());
        store.ok_or_else(|| raise(ErrorKind::Closed, "the database is closed".into()))?.raised()
    }

    fn entries(&self, py: Python<'_>, keys: &Keys<'_>, reverse: bool, show: Show) -> PyResult<Entries> {
        let store = self.store()?;
        Entries::new(py, &store, keys, None, reverse, show)
    }

    /// Returns options of a write with this value of sync.
    fn writing(&self, store: &Store, sync: Option<bool>) -> WriteOptions {
        store.write_options(sync.unwrap_or(self.sync))
    }
}

#[pymethods]
impl Database {
    /// Whether the database was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.store.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (store, key) = (self.store()?, key.as_slice());
        let value = py.detach(|| store.get(key)).raised()?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// Copies the value of a key to the start of `buffer`, and returns its length; `None` without a value. Fails without
    /// a change if the buffer is too short.
    fn get_into(&self, py: Python<'_>, key: Bytes<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let (store, key) = (self.store()?, key.as_slice());
        let view = PyMemoryView::from(buffer)?;
        let (room, view) = (view.len()?, view.unbind());
        let fill = |value: &[u8]| {
            // The engine's bytes stay until this returns, and it waits only for the interpreter's lock.
            Python::attach(|py| {
                if value.len() > room {
                    let message = format!("the value has {} bytes, the buffer {room}", value.len());
                    return Err(PyValueError::new_err(message));
                }
                let part = view.bind(py).get_item(PySlice::new(py, 0, value.len().try_into()?, 1))?;
                PyBuffer::<u8>::get(&part)?.copy_from_slice(py, value)?;
                Ok(value.len())
            })
        };
        py.detach(|| store.get_with(key, None, fill)).raised()?.transpose()
    }

    /// The values of keys, all as of the same moment, in few round trips.
    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<Vec<Bytes<'_>>>>()?;
        let (store, keys) = (self.store()?, slices(&keys));
        Ok(values(py, &py.detach(|| store.multi_get(&keys)).raised()?))
    }

    /// Sets a key.
    #[pyo3(signature = (key, value, *, sync=None))]
    fn put(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>, sync: Option<bool>) -> PyResult<()> {
        let store = self.store()?;
        let (key, value, options) = (key.as_slice(), value.as_slice(), self.writing(&store, sync));
        py.detach(|| store.put_with(key, value, &options)).raised()
    }

    /// Removes a key, which need not exist.
    #[pyo3(signature = (key, *, sync=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, sync: Option<bool>) -> PyResult<()> {
        let store = self.store()?;
        let (key, options) = (key.as_slice(), self.writing(&store, sync));
        py.detach(|| store.delete_with(key, &options)).raised()
    }

    /// Adds an operand to a key. The database's merge operator makes the value from the operands.
    #[pyo3(signature = (key, operand, *, sync=None))]
    fn merge(&self, py: Python<'_>, key: Bytes<'_>, operand: Bytes<'_>, sync: Option<bool>) -> PyResult<()> {
        let store = self.store()?;
        let (key, operand, options) = (key.as_slice(), operand.as_slice(), self.writing(&store, sync));
        py.detach(|| store.merge_with(key, operand, &options)).raised()
    }

    /// Removes all keys from `start` to before `stop`, at the cost of one record.
    #[pyo3(signature = (start, stop, *, sync=None))]
    fn delete_range(&self, py: Python<'_>, start: Bytes<'_>, stop: Bytes<'_>, sync: Option<bool>) -> PyResult<()> {
        let store = self.store()?;
        let options = self.writing(&store, sync);
        let mut batch = WriteBatch::new();
        batch.delete_range(start.as_slice(), stop.as_slice());
        py.detach(|| store.write_with(&batch, &options)).raised()
    }

    /// A batch of writes that become visible together. As a context manager, it is written at the end of the block,
    /// unless the block raises.
    #[pyo3(signature = (*, sync=None))]
    fn batch(&self, sync: Option<bool>) -> PyResult<Batch> {
        Ok(Batch::new(Owned::new(self.store()?), sync.unwrap_or(self.sync)))
    }

    /// The table of requests whose keys begin with `prefix`, which no other keys may use. A request that is tried again
    /// more than `lifetime` after its client's last request takes effect again; by default a day.
    #[pyo3(signature = (prefix, *, lifetime=None))]
    fn requests(&self, prefix: Bytes<'_>, lifetime: Option<Duration>) -> PyResult<Requests> {
        Ok(Requests::new(self.store()?, prefix.as_slice(), lifetime))
    }

    /// The present moment, to read at. A context manager.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let store = self.store()?;
        let snapshot = py.detach(|| store.snapshot());
        Ok(Snapshot::new(store, snapshot))
    }

    /// Keys and values in order, from `start` to before `stop`, only those with `prefix`, as of now.
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

    /// Keeps the present state of the database in the directory, under a name, until that checkpoint is dropped.
    fn create_checkpoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.create_checkpoint(name)).raised()
    }

    /// Names of the checkpoints, in order.
    fn checkpoints(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let store = self.store()?;
        py.detach(|| store.checkpoints()).raised()
    }

    /// Drops a checkpoint.
    fn drop_checkpoint(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.drop_checkpoint(name)).raised()
    }

    /// Makes all earlier writes durable: when this returns, they are on the disk, or in the memory of the nodes.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.sync()).raised()
    }

    /// Flushes earlier writes to the memory nodes, and waits for it.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.flush()).raised()
    }

    /// Compacts a range down to the last level, and waits for it.
    #[pyo3(signature = (start=None, stop=None))]
    fn compact(&self, py: Python<'_>, start: Option<Bytes<'_>>, stop: Option<Bytes<'_>>) -> PyResult<()> {
        let store = self.store()?;
        let (start, stop) = (start.as_ref().map(Bytes::as_slice), stop.as_ref().map(Bytes::as_slice));
        py.detach(|| store.compact_range(start, stop)).raised()
    }

    /// Approximate bytes of the records in a range, without what memtables hold.
    fn approximate_size(&self, py: Python<'_>, start: Bytes<'_>, stop: Bytes<'_>) -> PyResult<u64> {
        let (store, range) = (self.store()?, (start.as_slice(), stop.as_slice()));
        let sizes = py.detach(|| store.approximate_sizes(&[range])).raised()?;
        Ok(sizes.first().copied().unwrap_or(0))
    }

    /// A property by its name, such as `forebay.levelstats`; `None` for an unknown name.
    fn property(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        let store = self.store()?;
        Ok(py.detach(|| store.property(name)))
    }

    /// All properties.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.store()?;
        let properties = PyDict::new(py);
        for (name, value) in py.detach(|| store.properties()) {
            properties.set_item(name, value)?;
        }
        Ok(properties)
    }

    /// Closes the database, and fails with the error of its last flush, if that failed. Its batches, snapshots and
    /// iterators are of no use then, and need not be gone before its name is opened again. A second call does nothing,
    /// nor does a call in a process that was forked after the database was opened.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.write().unwrap_or_else(PoisonError::into_inner).take();
        match store.map(Owned::into_inner) {
            Some(Ok(store)) => py.detach(|| store.close()).raised(),
            Some(Err(_)) | None => Ok(()),
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (store, bytes) = (self.store()?, key.as_slice());
        match py.detach(|| store.get(bytes)).raised()? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, bytes).unbind())),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(py, key, value, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.delete(py, key, None)
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        let (store, key) = (self.store()?, key.as_slice());
        Ok(py.detach(|| store.get_with(key, None, |_| ())).raised()?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.keys(py, None, None, None, false)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
