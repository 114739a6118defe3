//! A faulty store, for tests that its faults are noticed.
#![allow(dead_code)]

use forebay_base::ErrorKind;
use forebay_workload::{Figures, MapStore, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    LosesAWrite,
    LosesAllOfABatchButOne,
    SwapsAnswers,
    FlipsABit,
    CannotBeClosed,
}

/// A store with one fault after some calls: a planted bug that the model must notice.
#[derive(Debug, Clone)]
pub struct Faulty {
    inner: MapStore,
    fault: Fault,
    countdown: Arc<AtomicU64>,
}

impl Faulty {
    /// A store whose fault occurs at the call of this number among the affected calls.
    pub fn after(calls: u64, fault: Fault) -> Self {
        Self { inner: MapStore::new(), fault, countdown: Arc::new(AtomicU64::new(calls)) }
    }

    fn due(&self) -> bool {
        self.countdown.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl Store for Faulty {
    type Cursor<'a> = <MapStore as Store>::Cursor<'a>;

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if self.fault == Fault::LosesAWrite && self.due() { Ok(()) } else { self.inner.put(key, value) }
    }
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.inner.delete(key)
    }
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        let lost = self.fault == Fault::LosesAllOfABatchButOne && records.len() > 1 && self.due();
        self.inner.put_batch(if lost { &records[..1] } else { records })
    }
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = self.inner.get(key)?;
        if let Some(last) = value.as_mut().and_then(|value| value.last_mut())
            && self.fault == Fault::FlipsABit
            && self.due()
        {
            *last ^= 0x80;
        }
        Ok(value)
    }
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut values = self.inner.multi_get(keys)?;
        let distinct = values.len() > 1 && values.first() != values.last();
        if self.fault == Fault::SwapsAnswers && distinct && self.due() {
            values.reverse();
        }
        Ok(values)
    }
    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        self.inner.cursor()
    }
    fn compact(&self) -> Result<(), StoreError> {
        self.inner.compact()
    }
    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        self.inner.wait_for_compactions()
    }
    fn figures(&self) -> Result<Figures, StoreError> {
        self.inner.figures()
    }
    fn describe(&self) -> Result<String, StoreError> {
        self.inner.describe()
    }
    fn close(&self) -> Result<(), StoreError> {
        let lost = self.fault == Fault::CannotBeClosed && self.due();
        if lost { Err(StoreError::new(ErrorKind::Fenced, "the last flush was refused")) } else { self.inner.close() }
    }
}
