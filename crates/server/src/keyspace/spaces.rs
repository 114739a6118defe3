//! What a store knows about itself: its seed, ids of collections, which database is which space, and counts.
//!
//! Described in `docs/formats/redis-keys.md`. The record `store`, with little-endian numbers:
//!
//! ```text
//!   offset  size
//!   0       1     version (1)
//!   1       8     seed of hashes
//!   9       8     first id that no process has reserved
//!   17      16    the space of each database
//! ```
//!
//! A process reserves ids in blocks, so that the record is rarely written. Unused ids are lost, which does no harm.

use crate::keyspace::building;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::fronts::Fronts;
use crate::keyspace::header::Header;
use crate::keyspace::layout::{self, DATABASES, Layout, Space};
use crate::keyspace::plain::PlainKeys;
use crate::keyspace::swept::Swept;
use crate::records::direction::Direction;
use crate::records::store::Records;
use bytes::{Buf, BufMut, Bytes};
use forebay::{Db, EngineError, ErrorKind};
use forebay_env::Random;
use forebay_env::sync::{Mutex, MutexGuard, RwLock, lock};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const VERSION: u8 = 1;
const RECORD: &str = "store";
const RECORD_BYTES: usize = 17 + DATABASES;
/// How many ids a process reserves at a time.
const ID_BLOCK: u64 = 1 << 20;

/// The counts of a space, or a change of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Keys.
    pub keys: i64,
    /// Keys that expire.
    pub expiring: i64,
    /// The sum of their expiry times, in seconds since 1970. The sum wraps around.
    pub expires_s: i64,
}

impl Counts {
    /// Adds a key, with its expiry in milliseconds since 1970, if it has one.
    pub fn add(&mut self, expires_ms: Option<u64>) {
        self.keys += 1;
        self.expiring += i64::from(expires_ms.is_some());
        self.expires_s = self.expires_s.wrapping_add(seconds(expires_ms));
    }

    /// Removes such a key.
    pub fn remove(&mut self, expires_ms: Option<u64>) {
        self.keys -= 1;
        self.expiring -= i64::from(expires_ms.is_some());
        self.expires_s = self.expires_s.wrapping_sub(seconds(expires_ms));
    }

    /// Returns the change that takes everything away.
    #[must_use]
    pub const fn negated(self) -> Self {
        Self { keys: -self.keys, expiring: -self.expiring, expires_s: self.expires_s.wrapping_neg() }
    }

    /// Returns the mean time that the expiring keys have left, in milliseconds.
    #[must_use]
    pub fn mean_ttl_ms(self, now_ms: u64) -> u64 {
        let mean_s = self.expires_s.checked_div(self.expiring).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0);
        mean_s.saturating_mul(1000).saturating_sub(now_ms)
    }
}

fn seconds(expires_ms: Option<u64>) -> i64 {
    expires_ms.map_or(0, |expires| i64::try_from(expires / 1000).unwrap_or(i64::MAX))
}

/// Changes of the counts of each space.
pub type Deltas = [Counts; DATABASES];

/// The record of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StoreRecord {
    seed: u64,
    next_id: u64,
    databases: [Space; DATABASES],
}

impl StoreRecord {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.seed);
        bytes.put_u64_le(self.next_id);
        bytes.put_slice(&self.databases);
        bytes
    }

    fn decode(bytes: &[u8]) -> Outcome<Self> {
        let mut rest = bytes;
        if rest.first() != Some(&VERSION) || rest.len() != RECORD_BYTES {
            return Err(Failure::damaged("the store's own record is damaged, or a newer build wrote it"));
        }
        rest.advance(1);
        let (seed, next_id) = (rest.get_u64_le(), rest.get_u64_le());
        let mut databases = [0; DATABASES];
        rest.copy_to_slice(&mut databases);
        let mut sorted = databases;
        sorted.sort_unstable();
        if sorted.iter().enumerate().any(|(at, &space)| at != usize::from(space)) {
            return Err(Failure::damaged("the store's own record names a space twice"));
        }
        Ok(Self { seed, next_id, databases })
    }
}

/// Whether a server keeps the keys of clients in a database. Other programs' records in it would be taken for such keys.
///
/// # Errors
/// Those of the database.
pub fn is_served(database: &Db) -> Result<bool, EngineError> {
    Ok(database.get(&layout::server_record(RECORD))?.is_some())
}

/// Whether a database has keys that no server has written. Clients would not see these keys, and a server would take
/// keys whose first byte is 1 to 4 for its own.
///
/// # Errors
/// Those of the database.
pub fn is_of_others(store: &Records) -> Outcome<bool> {
    if store.get(&layout::server_record(RECORD))?.is_some() {
        return Ok(false);
    }
    // No engine has an empty key, or a key longer than this.
    let last = vec![u8::MAX; store.max_key_bytes() + 1];
    Ok(store.scan(&[], &last, Direction::Forward)?.valid())
}

/// An exchange of databases in progress. No other thread changes the record meanwhile.
#[derive(Debug)]
pub struct Exchange<'s> {
    spaces: &'s Spaces,
    record: MutexGuard<'s, StoreRecord>,
    changed: StoreRecord,
}

impl Exchange<'_> {
    /// Returns what to write: a key of the engine, and its value.
    #[must_use]
    pub fn entry(&self) -> (Bytes, Bytes) {
        (layout::server_record(RECORD), self.changed.encode().into())
    }

    /// Ends the exchange, which is written.
    pub fn end(mut self) {
        *self.record = self.changed;
        *self.spaces.databases.write().unwrap_or_else(PoisonError::into_inner) = self.changed.databases;
    }
}

/// What an open store knows about itself.
#[derive(Debug)]
pub struct Spaces {
    layout: Layout,
    record: Mutex<StoreRecord>,
    databases: RwLock<[Space; DATABASES]>,
    next_id: AtomicU64,
    /// For each space: keys, keys that expire, and the sum of their expiry times.
    counts: [[AtomicI64; 3]; DATABASES],
    plain: PlainKeys,
    fronts: Fronts,
    swept: Swept,
}

impl Spaces {
    /// Reads the record, or begins a new store, and counts the keys.
    ///
    /// # Errors
    /// Those of the database; when the record is damaged.
    pub fn open(store: &Records) -> Outcome<Self> {
        let secret = || Random::secret().map_err(|error| Failure::new(format!("ERR randomness: {error}")));
        store.recover()?;
        let found = store.get(&layout::server_record(RECORD))?;
        let record = match found {
            Some(bytes) => StoreRecord::decode(&bytes)?,
            None => {
                let mut databases = [0; DATABASES];
                databases.iter_mut().zip(0..).for_each(|(space, number)| *space = number);
                let begun = StoreRecord { seed: secret()? as u64, next_id: 1, databases };
                write(store, &begun)?;
                begun
            }
        };
        // A block of ids is reserved only with the first id, so that a full store opens without a write.
        let next_id = record.next_id;
        let spaces = Self {
            layout: Layout::new(record.seed),
            databases: RwLock::new(record.databases),
            next_id: AtomicU64::new(next_id),
            record: Mutex::new(record),
            counts: Default::default(),
            plain: PlainKeys::new(&mut Random::seeded(secret()? as u64)),
            fronts: Fronts::default(),
            swept: Swept::default(),
        };
        building::remove_left(store)?;
        spaces.count(store)?;
        Ok(spaces)
    }

    fn count(&self, store: &Records) -> Outcome {
        let mut counts = Deltas::default();
        for (space, counts) in (0..).zip(&mut counts) {
            let (from, to) = layout::headers_from(space, 0);
            let mut headers = store.scan(&from, &to, Direction::Forward)?;
            while headers.valid() {
                let header = Header::outline(headers.value())?;
                counts.add(header.expires_ms);
                headers.step()?;
            }
        }
        self.add(&counts);
        Ok(())
    }

    /// The keys of this store.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Keys that are known to hold a string that does not expire.
    #[must_use]
    pub const fn plain(&self) -> &PlainKeys {
        &self.plain
    }

    /// Where streams, pending entries and sorted sets begin and end.
    #[must_use]
    pub const fn fronts(&self) -> &Fronts {
        &self.fronts
    }

    /// Where entries of expiring keys begin.
    #[must_use]
    pub const fn swept(&self) -> &Swept {
        &self.swept
    }

    /// The space of each database. It changes only while all keys are locked.
    #[must_use]
    pub fn databases(&self) -> [Space; DATABASES] {
        *self.databases.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to give the databases these spaces, which take effect at [`Exchange::end`]. The caller holds the lock of
    /// all keys.
    #[must_use]
    pub fn exchange(&self, databases: [Space; DATABASES]) -> Exchange<'_> {
        let record = lock(&self.record);
        Exchange { spaces: self, changed: StoreRecord { databases, ..*record }, record }
    }

    /// An id that no collection has had.
    ///
    /// # Errors
    /// Those of the database, when a block must be reserved.
    pub fn new_id(&self, store: &Records) -> Outcome<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut record = lock(&self.record);
        if id >= record.next_id {
            let changed = StoreRecord { next_id: id.saturating_add(ID_BLOCK), ..*record };
            write(store, &changed)?;
            *record = changed;
        }
        Ok(id)
    }

    /// Returns the counts of a space. They include expired keys that have not been removed yet.
    #[must_use]
    pub fn counts(&self, space: Space) -> Counts {
        let Some(counts) = self.counts.get(usize::from(space)) else { return Counts::default() };
        let [keys, expiring, expires_s] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Counts { keys, expiring, expires_s }
    }

    /// Adds to the counts what a run of commands changed.
    pub fn add(&self, deltas: &Deltas) {
        for (counts, delta) in self.counts.iter().zip(deltas) {
            let deltas = [delta.keys, delta.expiring, delta.expires_s];
            for (count, delta) in counts.iter().zip(deltas).filter(|(_, delta)| *delta != 0) {
                count.fetch_add(delta, Ordering::Relaxed);
            }
        }
    }
}

/// Writes the record, and returns when it is as durable as the database can make it. Keys may be in other shards.
/// Without a log, a process that ends would otherwise leave keys whose seed is lost, or collections whose ids are
/// assigned again.
fn write(store: &Records, record: &StoreRecord) -> Outcome {
    store.put(&layout::server_record(RECORD), &record.encode())?;
    match store.sync() {
        // A database without a name ends with its process.
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
        synced => Ok(synced?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::testing::on_each_engine;
    use forebay::{Durability, Options, Storage, StorageOptions, Store};
    use forebay_storage::SimDisk;
    use std::sync::Arc;

    #[test]
    fn golden_bytes_of_the_store_record() {
        let mut databases = [0; DATABASES];
        databases.iter_mut().zip(0..).for_each(|(space, number)| *space = number);
        let record = StoreRecord { seed: 0x0102, next_id: 0x0304, databases };
        let bytes = record.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0102010000000000000403000000000000000102030405060708090a0b0c0d0e0f");
        assert_eq!(StoreRecord::decode(&bytes).unwrap(), record);
        for length in 0..bytes.len() {
            assert!(StoreRecord::decode(&bytes[..length]).is_err());
        }
        let mut twice = bytes;
        twice[20] = 0;
        assert!(StoreRecord::decode(&twice).is_err());
    }

    #[test]
    fn a_store_that_is_opened_again_knows_what_it_held() {
        on_each_engine(64 << 20).iter().for_each(check_that_it_is_known);
    }

    fn check_that_it_is_known(store: &Records) {
        let spaces = Spaces::open(store).unwrap();
        let first = spaces.new_id(store).unwrap();
        let mut databases = spaces.databases();
        databases.swap(0, 3);
        let exchange = spaces.exchange(databases);
        let (key, record) = exchange.entry();
        store.put(&key, &record).unwrap();
        exchange.end();
        assert_eq!(spaces.databases()[..4], [3, 1, 2, 0]);
        let header = Header { expires_ms: Some(5_000), ..Header::string("v") };
        store.put(&spaces.layout().header(5, b"k"), &header.encode()).unwrap();
        let again = Spaces::open(store).unwrap();
        assert_eq!(again.layout().hash(b"k"), spaces.layout().hash(b"k"));
        assert_eq!(again.databases()[..4], [3, 1, 2, 0]);
        assert!(again.new_id(store).unwrap() >= first + ID_BLOCK);
        let one = Counts { keys: 1, expiring: 1, expires_s: 5 };
        assert_eq!((again.counts(5), again.counts(0)), (one, Counts::default()));
        assert_eq!((one.mean_ttl_ms(2_000), one.mean_ttl_ms(9_000), Counts::default().mean_ttl_ms(1)), (3_000, 0, 0));
    }

    #[test]
    fn ids_are_not_given_out_again_when_a_process_without_a_log_is_killed() {
        let disk = SimDisk::new();
        let open = || {
            let options = Options {
                name: Some("db".to_owned()),
                storage: Some(Storage::of_disk(Arc::new(disk.handle()), 1, StorageOptions::default())),
                durability: Durability::None,
                takeover: true,
                background_threads: 0,
                ..Options::default()
            };
            Records::from(Store::embedded(64 << 20, options).unwrap())
        };
        let store = open();
        let spaces = Spaces::open(&store).unwrap();
        let first = spaces.new_id(&store).unwrap();
        // The process ends without closing.
        std::mem::forget(store);
        let store = open();
        let again = Spaces::open(&store).unwrap();
        assert_eq!(again.layout().seed(), spaces.layout().seed());
        assert!(again.new_id(&store).unwrap() > first);
    }
}
