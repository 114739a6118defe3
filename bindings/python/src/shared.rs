//! Stores that Python's objects share.

use forebay::Store;
use pyo3::prelude::*;
use std::ops::Deref;
use std::sync::Arc;

/// An open store. Dropping the last clone closes it. Closing waits for background work, and other threads of Python
/// continue meanwhile.
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
        let mut last = self.0.take().and_then(Arc::into_inner);
        if last.is_some() {
            // Without an interpreter, at the very end of the process, the store is dropped all the same.
            Python::try_attach(|py| py.detach(|| drop(last.take())));
        }
    }
}
