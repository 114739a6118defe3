//! Databases in storage that benchmarks have made, which the next benchmark may replace.

use crate::api::db::Db;
use crate::durable::database::Place;
use crate::sharding::open_stored;
use crate::terms::Result;
use forebay_base::ErrorKind;
use forebay_storage::{PutMode, Storage};
use forebay_table::StorageRoot;

impl Db {
    /// Notes in storage that this database holds a benchmark's data: a caller that asks [`Db::is_benchmark_stored`] may
    /// replace it. The note counts until somebody opens the database again. That process may write something of value,
    /// and need not know of the note.
    ///
    /// # Errors
    /// `Invalid` for a database without storage, or one that is open to be read; those of the storage.
    pub fn note_benchmark(&self) -> Result<()> {
        let stored = self.stored()?;
        let note = stored.register.root().encode()?;
        Ok(stored.place.storage.objects().put(&stored.place.bench()?, note.into(), PutMode::Replace)?)
    }

    /// Whether the database `name` in `storage` is a benchmark's ([`Db::note_benchmark`]) and nobody else has opened it
    /// since.
    ///
    /// # Errors
    /// `NotFound` when it is not there; `Corrupt`; those of the storage.
    pub fn is_benchmark_stored(storage: &Storage, name: &str) -> Result<bool> {
        let place = Place::new(storage, name)?;
        let (found, epoch) = open_stored::committed(&place)?;
        let owned = StorageRoot { database: found.identity.database, epoch };
        match storage.objects().get(&place.bench()?) {
            // A note that cannot be read says nothing, so the database stays.
            Ok(bytes) => Ok(StorageRoot::decode(&bytes).is_ok_and(|noted| noted == owned)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
