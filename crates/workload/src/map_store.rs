//! A store in a map of this process: the reference for tests of workloads.

use crate::store::{Cursor, Figures, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in an ordered map.
#[derive(Debug, Clone, Default)]
pub struct MapStore(Arc<RwLock<Map>>);

impl MapStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MapStore {
    type Cursor<'a> = MapCursor;

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.write().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.write().remove(key);
        Ok(())
    }

    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        let mut map = self.write();
        map.extend(records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read().get(key).cloned())
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let map = self.read();
        Ok(keys.iter().map(|key| map.get(*key).cloned()).collect())
    }

    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        Ok(MapCursor { store: self.clone(), at: None })
    }

    fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn figures(&self) -> Result<Figures, StoreError> {
        let map = self.read();
        let bytes = map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        Ok(Figures { memtable_bytes: bytes as u64, ..Figures::default() })
    }

    fn describe(&self) -> Result<String, StoreError> {
        Ok(format!("a map of {} records\n", self.len()))
    }

    /// The contents stay for the holders of a clone.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A position in a [`MapStore`]. It sees later writes.
#[derive(Debug)]
pub struct MapCursor {
    store: MapStore,
    at: Option<(Vec<u8>, Vec<u8>)>,
}

impl MapCursor {
    fn go(&mut self, from: std::ops::Bound<Vec<u8>>) {
        let map = self.store.read();
        let entry = map.range((from, std::ops::Bound::Unbounded)).next();
        let entry = entry.map(|(key, value)| (key.clone(), value.clone()));
        drop(map);
        self.at = entry;
    }
}

impl Cursor for MapCursor {
    fn seek_to_first(&mut self) -> Result<(), StoreError> {
        self.go(std::ops::Bound::Unbounded);
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.go(std::ops::Bound::Included(key.to_vec()));
        Ok(())
    }

    fn next(&mut self) -> Result<(), StoreError> {
        if let Some((key, _)) = self.at.take() {
            self.go(std::ops::Bound::Excluded(key));
        }
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }
}
