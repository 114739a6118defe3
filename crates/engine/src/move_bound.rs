//! Moving the bound between two neighbouring shards, and with it the keys on its way, while calls go on.
//!
//! ```text
//!   source       [ stays … | chunk | chunk | chunk )( bound
//!                                           ──────►        copied as they are now
//!   destination                                    ( bound … ]
//! ```
//!
//! Keys go over in chunks of a few MiB, those at the bound first. For each chunk:
//!
//! 1. A plan is installed that *holds* the chunk: whoever is to write keys of it waits. When no call
//!    is directed by an earlier plan, the chunk no longer changes in the source.
//! 2. It is copied as of now, through the destination's write path: numbers are of one shard, so
//!    records cannot be handed over as they lie.
//! 3. In a named database, the destination flushes it, and then the bound is recorded: in the manifest
//!    of the shard behind it, as one edit.
//! 4. The plan with the new bound is installed, which holds nothing.
//!
//! At the end the source deletes what it no longer owns, by one range deletion.
//!
//! # Invariants
//!
//! 1. Who reads a chunk by a plan reads a shard that has all that was written to it before: the source
//!    up to step 4, as nobody writes; the destination from then on.
//! 2. The source's range deletion comes when no call is directed by a plan in which the source owns the
//!    keys; snapshots and iterators read at their numbers, which are before it.
//! 3. What a shard holds outside of its bounds is not read: gets go to the owner, iterators stop at
//!    bounds. Before a shard is given keys, what it holds of them from earlier is deleted.
//! 4. A bound is recorded when all that was acknowledged of the chunk is in the destination's tables,
//!    and before anybody writes the chunk there: whatever a kill leaves of both, nothing that was
//!    flushed is lost, and no key has two owners. There is one record of each bound.

use crate::batch::{Write, WriteBatch};
use crate::bounds::{Bounds, IterOptions};
use crate::iterator::ShardIterator;
use crate::router::Router;
use crate::routing::{KeyRange, Routing};
use crate::shard::Shard;
use crate::{Error, Result, statistics};
use forebay_base::{ErrorKind, KeyOrder, Kind};
use forebay_env::sync::lock;
use std::sync::Arc;
use std::time::Duration;

/// Record bytes of a chunk, at most, unless one key has more: writers of its keys wait while it is copied.
const CHUNK_BYTES: u64 = 1 << 20;
/// The same in a named database, where each chunk is flushed.
const NAMED_CHUNK_BYTES: u64 = 8 << 20;
/// Record bytes of a batch that is copied, at most.
const BATCH_BYTES: u64 = 64 << 10;
/// How often the recording of a bound is tried again when nobody knows whether it counts.
const RETRIES: u32 = 5;
/// Between two of these attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Keys that nobody writes for now.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The shard that they leave.
    pub(crate) source: usize,
    /// Why they are not let go of, if they are not.
    pub(crate) failure: Option<Error>,
}

impl Held {
    fn range(&self) -> KeyRange<'_> {
        KeyRange { lower: Some(&self.lower), upper: self.upper.as_deref() }
    }

    pub(crate) fn holds(&self, order: KeyOrder, key: &[u8]) -> bool {
        self.range().contains(order, key)
    }

    /// Whether a batch writes any of them.
    pub(crate) fn holds_any(&self, order: KeyOrder, batch: &WriteBatch) -> Result<bool> {
        for write in batch.iter() {
            let Write { kind, key, value } = write?;
            let is_held = match kind {
                Kind::RangeDelete => {
                    let deleted = KeyRange { lower: Some(key), upper: Some(value) };
                    self.range().intersection(order, deleted).is_some()
                }
                _ => self.holds(order, key),
            };
            if is_held {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A bound on its way.
struct Move<'a> {
    router: &'a Router,
    at: usize,
    source: usize,
    from: &'a Arc<Shard>,
    to: &'a Arc<Shard>,
    /// The bound goes towards larger keys.
    ascends: bool,
}

/// Why a chunk was not moved.
enum Failure {
    /// It is the source's as before.
    Undone(Error),
    /// Nobody knows where a next process would look for it.
    Undecided(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Undone(error)
    }
}

impl Router {
    /// Waits until no bound moves.
    pub(crate) fn wait_moved(&self) {
        drop(lock(&self.moving));
    }

    /// Moves the bound behind shard `at`. When that fails, the bound may have moved a part of the way.
    ///
    /// # Errors
    /// `Invalid` when there is no such bound, or it would not lie between its neighbours; those of reads
    /// and writes.
    pub(crate) fn move_bound(&self, at: usize, to: &[u8]) -> Result<()> {
        let _moving = lock(&self.moving);
        self.shards().iter().try_for_each(|shard| shard.check_open())?;
        let routing = self.free_routing()?;
        routing.with_bound(self.shards().len(), at, to.to_vec())?;
        let bound = routing.bounds().get(at).cloned();
        let order = self.order();
        let ascends = match &bound {
            Some(bound) if bound == to => return Ok(()),
            Some(bound) => order.compare(bound, to).is_lt(),
            None => false,
        };
        let (source, destination) = if ascends { (at + 1, at) } else { (at, at + 1) };
        let moved = if ascends { (bound.as_deref(), Some(to)) } else { (Some(to), bound.as_deref()) };
        let range = KeyRange { lower: moved.0, upper: moved.1 };
        let (from, to) = (self.shard(source)?, self.shard(destination)?);
        to.clear_range(range)?;
        Move { router: self, at, source, from, to, ascends }.run(routing, range)?;
        statistics::add(&self.moves.moves, 1);
        Ok(())
    }
}

impl Move<'_> {
    fn run(&self, mut routing: Arc<Routing>, range: KeyRange<'_>) -> Result<()> {
        let most = if self.to.is_named() { NAMED_CHUNK_BYTES } else { CHUNK_BYTES };
        let most = most.min(self.from.options.write_buffer_bytes as u64 / 2);
        let mut cuts = self.from.cuts(range, most)?.into_iter().map(Some).collect::<Vec<_>>();
        cuts.insert(0, range.lower.map(<[u8]>::to_vec));
        cuts.push(range.upper.map(<[u8]>::to_vec));
        let mut chunks: Vec<_> = cuts.windows(2).filter_map(|pair| Some((pair.first()?, pair.last()?))).collect();
        if !self.ascends {
            chunks.reverse();
        }
        let mut moved = KeyRange { lower: range.upper, upper: range.upper };
        if self.ascends {
            moved = KeyRange { lower: range.lower, upper: range.lower };
        }
        let mut result = Ok(());
        for (lower, upper) in chunks {
            let chunk = KeyRange { lower: lower.as_deref(), upper: upper.as_deref() };
            match self.move_chunk(&routing, chunk) {
                Ok(next) => routing = next,
                Err(Failure::Undone(error)) => {
                    self.router.replace(routing, None);
                    self.to.clear_or_warn(chunk);
                    result = Err(error);
                    break;
                }
                Err(Failure::Undecided(error)) => {
                    let mut held = self.held(chunk);
                    held.failure = Some(error.clone());
                    self.router.replace(routing, Some(held));
                    return Err(error);
                }
            }
            match self.ascends {
                true => moved.upper = chunk.upper,
                false => moved.lower = chunk.lower,
            }
        }
        if moved.lower != moved.upper {
            self.from.clear_or_warn(moved);
            // Its memory comes back soon.
            self.from.suggest_compaction(moved);
        }
        result
    }

    fn held(&self, chunk: KeyRange<'_>) -> Held {
        let lower = chunk.lower.unwrap_or_default().to_vec();
        Held { lower, upper: chunk.upper.map(<[u8]>::to_vec), source: self.source, failure: None }
    }

    fn move_chunk(&self, routing: &Arc<Routing>, chunk: KeyRange<'_>) -> Result<Arc<Routing>, Failure> {
        let bound = if self.ascends { chunk.upper } else { chunk.lower };
        let bound = bound.unwrap_or_default().to_vec();
        let next = routing.with_bound(self.router.shards().len(), self.at, bound.clone())?;
        if self.to.is_named() {
            // What is flushed while the chunk is held is then the chunk.
            self.to.flush_all()?;
        }
        self.router.replace(Arc::clone(routing), Some(self.held(chunk)));
        self.copy(chunk)?;
        if self.to.is_named() {
            self.to.flush_all()?;
            self.record(&bound)?;
        }
        let next = Arc::new(next);
        self.router.replace(Arc::clone(&next), None);
        Ok(next)
    }

    /// Copies what the source holds of a chunk.
    fn copy(&self, chunk: KeyRange<'_>) -> Result<()> {
        let (view, number) = self.from.present();
        let view = Arc::clone(&view);
        let options = IterOptions { lower: chunk.lower, upper: chunk.upper, ..IterOptions::default() };
        let bounds = Arc::new(Bounds::new(self.router.order(), &options));
        let mut entries = ShardIterator::new(Arc::clone(self.from), &view, number, bounds)?;
        let mut batch = WriteBatch::new();
        let most = BATCH_BYTES.min(self.to.remote.max_record_bytes() / 2);
        entries.seek_to_first()?;
        while entries.valid() {
            let bytes = (entries.key().len() + entries.value().len()) as u64;
            if !batch.is_empty() && batch.record_bytes() + bytes > most {
                self.to.write(&batch)?;
                batch.clear();
            }
            batch.put(entries.key(), entries.value());
            statistics::add(&self.router.moves.bytes, bytes);
            entries.next()?;
        }
        if batch.is_empty() { Ok(()) } else { self.to.write(&batch) }
    }

    /// Records the bound in the manifest of the shard behind it.
    fn record(&self, bound: &[u8]) -> Result<(), Failure> {
        let behind = self.router.shard(self.at + 1)?;
        let set = || behind.set_first_key(bound).map_err(|error| behind.judged(error));
        let Err(mut error) = set() else { return Ok(()) };
        if matches!(error.kind(), ErrorKind::Full | ErrorKind::Fenced) {
            return Err(Failure::Undone(error));
        }
        // Perhaps it counts: the next attempt decides.
        for _ in 0..RETRIES {
            behind.options.clock.sleep(PAUSE);
            match set() {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        let what =
            "a bound between shards was being recorded, and it is unknown whether it was: open the database again";
        Err(Failure::Undecided(error.during(what)))
    }
}

impl Shard {
    /// Deletes all that the shard holds in a range.
    ///
    /// # Errors
    /// As [`Shard::write`].
    pub(crate) fn clear_range(&self, range: KeyRange<'_>) -> Result<()> {
        let Some((first, last)) = self.reach(range)? else { return Ok(()) };
        let mut batch = WriteBatch::new();
        batch.delete_range(&first, &last);
        if range.upper != Some(&last) {
            batch.delete(&last);
        }
        self.write(&batch)
    }

    /// As [`Shard::clear_range`], where a failure does no harm.
    fn clear_or_warn(&self, range: KeyRange<'_>) {
        if let Err(error) = self.clear_range(range) {
            tracing::warn!(%error, "deleting keys that are another shard's: they take memory until it is done again");
        }
    }
}
