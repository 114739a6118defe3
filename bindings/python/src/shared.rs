//! Stores that Python's objects share.

use forebay::Store;
use pyo3::prelude::*;
use std::ops::Deref;
use std::sync::Arc;

/// An open store. Dropping the last clone closes it.
#[derive(Clone)]
pub(crate) struct SharedStore(Option<Arc<Store>>);

impl SharedStore {
    pub(crate) fn new(store: Store) -> Self {
        let store = Arc::new(store);
        forebay::process::remember(&store);
        Self(Some(store))
    }

    /// Whether both are the same store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq::<Store>(&**self, &**other)
    }
}

impl Deref for SharedStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        match &self.0 {
            Some(store) => store,
            None => unreachable!("taken out only when dropped"),
        }
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            drop_detached(last);
        }
    }
}

/// Drops something of the engine. That may wait for background work, or for reads that are on their way, and other threads of
/// Python continue meanwhile.
pub(crate) fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    // Without an interpreter, at the very end of the process, the value is dropped all the same.
    Python::try_attach(|py| py.detach(|| drop(value.take())));
}
