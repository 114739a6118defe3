//! Writing many entries to a database: large batches, several in flight.
//!
//! ```text
//!   entries ──▸ by a hash of the key ──▸ lane 0: batch ─▸ batch ─▸ a thread that writes them in order
//!                                        lane 1: …
//! ```
//!
//! A key always goes to the same lane, so of several entries of one key the last one stays.

use crate::entry::Entry;
use crate::error::{Error, Result};
use forebay::{Db, ErrorKind, Keyspace, WriteBatch};
use forebay_base::{MAX_KEY_BYTES, Record};
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lanes, each with a batch being written.
const LANES: usize = 4;
/// Batches that wait in a lane.
const WAITING: usize = 2;
/// A batch ends at this many bytes of records, or at half of what the database takes at once, if that is less. A longer
/// entry gets a batch of its own.
const BATCH_BYTES: u64 = 256 << 10;

/// See the module. Without [`Loader::finish`], the last entries are not written.
#[derive(Debug)]
pub struct Loader {
    keyspace: Option<Keyspace>,
    /// What a keyspace puts in front of keys, in bytes.
    prefix_bytes: usize,
    /// The most bytes of records in one write.
    max_write_bytes: u64,
    lanes: Vec<Lane>,
    failure: Arc<Mutex<Option<Error>>>,
}

#[derive(Debug)]
struct Lane {
    batch: WriteBatch,
    sender: SyncSender<WriteBatch>,
    thread: JoinHandle<()>,
}

impl Lane {
    /// Hands the batch to the lane's thread, if there is something in it.
    fn send(&mut self) {
        if !self.batch.is_empty() {
            // A lane that has failed still takes batches, and drops them.
            let _ = self.sender.send(std::mem::take(&mut self.batch));
        }
    }
}

impl Loader {
    /// Makes a loader for a database, or for a keyspace of it.
    ///
    /// # Errors
    /// `Io` when no thread can be started.
    pub fn new(db: &Db, keyspace: Option<&Keyspace>) -> Result<Self> {
        let failure = Arc::<Mutex<Option<Error>>>::default();
        let lane = |number| {
            let (sender, batches) = sync_channel(WAITING);
            let (db, failure) = (db.clone(), Arc::clone(&failure));
            let thread = spawn(format!("forebay-load-{number}"), move || write_all(&db, &batches, &failure));
            let thread = thread.map_err(|cause| Error::new(ErrorKind::Io, format!("starting a thread: {cause}")))?;
            Ok(Lane { batch: WriteBatch::new(), sender, thread })
        };
        let lanes = (0..LANES).map(lane).collect::<Result<Vec<_>>>()?;
        let prefix_bytes = keyspace.map_or(0, |keyspace| keyspace.key(&[]).len());
        Ok(Self { keyspace: keyspace.cloned(), prefix_bytes, max_write_bytes: db.max_write_bytes(), lanes, failure })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Invalid` for an entry that is too large, and then nothing else has happened; the first error of a write.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        self.check(entry)?;
        self.add(entry)
    }

    /// Refuses an entry that the database does not take.
    pub(crate) fn check(&self, entry: &Entry<'_>) -> Result<()> {
        entry.check(MAX_KEY_BYTES - self.prefix_bytes)?;
        let (bytes, most) = (self.record_bytes(entry), self.max_write_bytes);
        if bytes <= most {
            return Ok(());
        }
        let key = entry.key.escape_ascii();
        Err(Error::invalid(format!(
            "{key}: its record has {bytes} bytes, and this database takes {most} at once: raise its memory"
        )))
    }

    fn record_bytes(&self, entry: &Entry<'_>) -> u64 {
        let key_bytes = self.prefix_bytes + entry.key.len();
        Record::encoded_length(key_bytes, entry.value.len(), entry.expiry_ms.is_some()) as u64
    }

    /// Adds an entry that was checked.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        let (bytes, enough) = (self.record_bytes(entry), BATCH_BYTES.min(self.max_write_bytes / 2));
        let lane = self.lanes.get_mut(lane_of(&entry.key)).ok_or_else(|| Error::invalid("there is no lane"))?;
        if bytes >= enough {
            lane.send();
        }
        match (&self.keyspace, entry.expiry_ms) {
            (None, None) => drop(lane.batch.put(&entry.key, &entry.value)),
            (None, Some(expiry_ms)) => drop(lane.batch.put_expiring(&entry.key, &entry.value, expiry_ms)),
            (Some(keyspace), None) => drop(lane.batch.within(keyspace).put(&entry.key, &entry.value)),
            (Some(keyspace), Some(expiry_ms)) => {
                lane.batch.within(keyspace).put_expiring(&entry.key, &entry.value, expiry_ms);
            }
        }
        if lane.batch.record_bytes() < enough {
            return Ok(());
        }
        lane.send();
        self.first_failure()
    }

    /// Writes what is left, and waits for all writes.
    ///
    /// # Errors
    /// The first error of a write.
    pub fn finish(mut self) -> Result<()> {
        for mut lane in self.lanes.drain(..) {
            lane.send();
            let Lane { sender, thread, .. } = lane;
            drop(sender);
            if thread.join().is_err() {
                lock(&self.failure).get_or_insert_with(|| Error::new(ErrorKind::Io, "a thread that loads panicked"));
            }
        }
        self.first_failure()
    }

    fn first_failure(&self) -> Result<()> {
        lock(&self.failure).as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn write_all(db: &Db, batches: &Receiver<WriteBatch>, failure: &Mutex<Option<Error>>) {
    for batch in batches {
        if lock(failure).is_none()
            && let Err(error) = db.write(&batch)
        {
            lock(failure).get_or_insert_with(|| error.into());
        }
    }
}

/// FNV-1a: any hash that spreads keys will do, and this one is the same in each run.
fn lane_of(key: &[u8]) -> usize {
    let hash = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as usize % LANES
}
