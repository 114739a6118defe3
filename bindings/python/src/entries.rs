//! Iterators. They read ahead, so that the interpreter's lock is released and taken once for many entries.

use crate::bytes::Keys;
use crate::errors::{Raised, raise};
use crate::shared::{SharedStore, drop_detached};
use forebay::process::Owned;
use forebay::{DbIterator, EngineError, ErrorKind, IterOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, TryLockError};

/// Read ahead at most this many entries,
const MAX_ENTRIES: usize = 256;
/// and at most this many bytes, but at least one entry.
const MAX_BYTES: usize = 64 << 10;

/// A key and its value; a part that the iterator does not give is empty.
type Entry = (Vec<u8>, Vec<u8>);

/// What an iterator gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Items,
    Keys,
    Values,
}

/// An iterator over entries of a database, as of the moment at which it was made. Until its end it keeps the database
/// open, unless somebody closes that.
#[pyclass(frozen, generic, module = "forebay")]
pub(crate) struct Entries {
    show: Show,
    state: Owned<Mutex<State>>,
}

/// What an iterator reads.
struct Reading {
    // Dropped in this order.
    iterator: DbIterator,
    _store: SharedStore,
}

struct State {
    /// `None` once the end was reached, or the iterator was closed.
    reading: Option<Reading>,
    is_reverse: bool,
    has_position: bool,
    /// Why reading ahead failed. It is told after the entries that were read before.
    failure: Option<EngineError>,
    /// How many entries to read ahead next: one at first, because many iterations end soon.
    ahead: usize,
    entries: VecDeque<Entry>,
}

impl State {
    /// Takes the next entry.
    fn next(&mut self, show: Show) -> Result<Option<Entry>, EngineError> {
        if self.entries.is_empty()
            && let Some(mut reading) = self.reading.take()
        {
            // On failure the iterator is gone, and the iteration is over after the failure.
            match self.fill(&mut reading.iterator, show) {
                Ok(true) => self.reading = Some(reading),
                Ok(false) => {}
                Err(error) => self.failure = Some(error),
            }
        }
        match self.entries.pop_front() {
            None => self.failure.take().map_or(Ok(None), Err),
            entry => Ok(entry),
        }
    }

    /// Reads ahead. Returns whether there may be more.
    fn fill(&mut self, iterator: &mut DbIterator, show: Show) -> Result<bool, EngineError> {
        let mut bytes = 0;
        for _ in 0..self.ahead {
            match (std::mem::replace(&mut self.has_position, true), self.is_reverse) {
                (false, false) => iterator.seek_to_first()?,
                (false, true) => iterator.seek_to_last()?,
                (true, false) => iterator.next()?,
                (true, true) => iterator.prev()?,
            }
            if !iterator.valid() {
                return Ok(false);
            }
            let key = if show == Show::Values { Vec::new() } else { iterator.key().to_vec() };
            let value = if show == Show::Keys { Vec::new() } else { iterator.value().to_vec() };
            bytes += key.len() + value.len();
            self.entries.push_back((key, value));
            if bytes >= MAX_BYTES {
                break;
            }
        }
        self.ahead = (self.ahead * 2).min(MAX_ENTRIES);
        Ok(true)
    }
}

impl Entries {
    pub(crate) fn new(
        py: Python<'_>,
        store: &SharedStore,
        keys: &Keys<'_>,
        snapshot: Option<&forebay::Snapshot>,
        is_reverse: bool,
        show: Show,
    ) -> PyResult<Self> {
        let options = IterOptions { snapshot, ..keys.options() };
        let iterator = py.detach(|| store.iter_with(&options)).raised()?;
        let reading = Some(Reading { iterator, _store: store.clone() });
        let (failure, entries) = (None, VecDeque::new());
        let state = State { reading, is_reverse, has_position: false, failure, ahead: 1, entries };
        Ok(Self { show, state: Owned::new(Mutex::new(state)) })
    }

    /// Returns the next entry, if it was read ahead and no other thread uses the iterator.
    fn at_hand(state: &Mutex<State>) -> PyResult<Option<Entry>> {
        match state.try_lock() {
            Ok(mut state) => Ok(state.entries.pop_front()),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(raise(ErrorKind::Io, "the iterator failed before".into())),
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // What was begun before a fork is forgotten.
        let Ok(state) = self.state.get_mut() else { return };
        if let Some(reading) = state.get_mut().unwrap_or_else(PoisonError::into_inner).reading.take() {
            drop_detached(reading);
        }
    }
}

#[pymethods]
impl Entries {
    /// Ends the iteration, and releases what it holds.
    fn close(&self, py: Python<'_>) {
        // Another thread may have used the iterator at the moment of a fork.
        let Ok(state) = self.state.get() else { return };
        py.detach(|| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.reading = None;
            state.failure = None;
            state.entries.clear();
        });
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.state.get().raised()?;
        let entry = match Self::at_hand(state)? {
            Some(entry) => Some(entry),
            // C code that consumes an iterator, such as `list`, does not check for signals.
            None => {
                py.check_signals()?;
                py.detach(|| state.lock().unwrap_or_else(PoisonError::into_inner).next(self.show)).raised()?
            }
        };
        let Some((key, value)) = entry else { return Ok(None) };
        Ok(Some(match self.show {
            Show::Keys => PyBytes::new(py, &key).into_any(),
            Show::Values => PyBytes::new(py, &value).into_any(),
            Show::Items => PyTuple::new(py, [PyBytes::new(py, &key), PyBytes::new(py, &value)])?.into_any(),
        }))
    }
}
