//! Moving the bound between two neighbouring shards, and the keys in between, while calls continue.
//!
//! ```text
//!   source       [ stays … | chunk | chunk | chunk )( bound
//!                                           ──────►        copied as they are now
//!   destination                                    ( bound … ]
//! ```
//!
//! Keys move in chunks of a few MiB, starting at the bound. For each chunk:
//!
//! 1. An assignment is installed that *holds* the chunk: writers of its keys wait. Once no call follows an earlier
//!    assignment, the chunk no longer changes in the source.
//! 2. The chunk's present contents are copied through the destination's write path. Sequence numbers belong to one
//!    shard, so records cannot be handed over as they are.
//! 3. In a named database, the destination flushes the chunk. Then the bound is recorded as one edit in the manifest of
//!    the shard after it.
//! 4. An assignment with the new bound is installed. It holds nothing.
//!
//! At the end the source deletes what it no longer owns with one range deletion.
//!
//! # Invariants
//!
//! 1. A reader of a chunk reads a shard that has all earlier writes to it: up to step 4 the source, because nobody
//!    writes; from then on the destination.
//! 2. The source's range deletion comes when no call follows an assignment in which the source owns the keys. Snapshots
//!    and iterators read at their own numbers, which precede it.
//! 3. Keys outside a shard's bounds are never read there: gets go to the owner, and iterators stop at bounds. Before a
//!    shard is given keys, its old copies of them are deleted.
//! 4. A bound is recorded after all acknowledged writes of the chunk are in the destination's tables, and before
//!    anybody writes the chunk there. Whatever a kill leaves of both shards, no flushed write is lost and no key has
//!    two owners. Each bound has one record. While it is unknown whether that record counts, the chunk stays held, and
//!    a thread that wants to write the chunk, or to move a bound, records the bound again.

use crate::read::merged::Chain;
use crate::scan::iterator::ShardIterator;
use crate::sharding::held::{Held, Undecided};
use crate::sharding::router::Router;
use crate::terms::bounds::Bounds;
use crate::terms::routing::{KeyRange, Routing};
use crate::terms::statistics;
use crate::terms::time::Horizon;
use crate::terms::{Error, Result};
use crate::work::shard::Shard;
use crate::write::batch::WriteBatch;
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use std::sync::Arc;
use std::time::Duration;

/// Maximum record bytes of a chunk, unless one key has more. Writers of its keys wait while it is copied.
const CHUNK_BYTES: u64 = 1 << 20;
/// The same in a named database, where each chunk is flushed.
const NAMED_CHUNK_BYTES: u64 = 8 << 20;
/// Maximum record bytes of a copied batch.
const BATCH_BYTES: u64 = 64 << 10;
/// How often to retry the recording of a bound while its outcome is unknown.
const RETRIES: u32 = 5;
/// Pause between two of these attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// What to say while it is unknown whether a bound was recorded.
const UNDECIDED: &str =
    "a bound between shards was being recorded, and it is unknown whether it was: writes to its keys try again";

/// A move of a bound.
struct Move<'a> {
    router: &'a Router,
    at: usize,
    source: usize,
    from: &'a Arc<Shard>,
    to: &'a Arc<Shard>,
    /// Whether the bound moves towards larger keys.
    ascends: bool,
}

/// Why a chunk was not moved.
enum Failure {
    /// The chunk still belongs to the source.
    Undone(Error),
    /// It is unknown in which shard the next process would look for it.
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

    /// Records the bound of a move that could not tell whether it was recorded, and releases the keys that it moves.
    /// Does nothing if there is no such bound. The caller holds `moving`.
    ///
    /// # Errors
    /// Why the bound is not recorded yet.
    pub(super) fn decide(&self) -> Result<()> {
        let held = self.assignment.load().held.clone();
        let Some(held) = held else { return Ok(()) };
        let Some(Undecided { at, bound, .. }) = held.undecided.clone() else { return Ok(()) };
        let behind = self.shard(at + 1)?;
        let set = || behind.set_first_key(&bound).map_err(|error| behind.tree.judged(error));
        // The first try may only find that an earlier one counts.
        set().or_else(|_| set()).map_err(|error| error.during(UNDECIDED))?;
        let next = self.routing().with_bound(self.shards().len(), at, bound)?;
        self.replace(Arc::new(next), None);
        self.shard(held.source)?.clear_or_warn(held.range());
        Ok(())
    }

    /// Moves the bound after shard `at`. If it fails, the bound may have moved part of the way.
    ///
    /// # Errors
    /// `Invalid` when there is no such bound, or it would not lie between its neighbours; errors of reads and writes.
    pub(crate) fn move_bound(&self, at: usize, to: &[u8]) -> Result<()> {
        let _moving = lock(&self.moving);
        self.shards().iter().try_for_each(|shard| shard.tree.check_open())?;
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
        let most = if self.to.tree.remote.is_named() { NAMED_CHUNK_BYTES } else { CHUNK_BYTES };
        let most = most.min(self.from.tree.options.write_buffer_bytes as u64 / 2);
        let mut cuts = self.from.tree.cuts(range, most)?.into_iter().map(Some).collect::<Vec<_>>();
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
                    let undecided = Undecided { at: self.at, bound: self.bound(chunk), error: error.clone() };
                    held.undecided = Some(undecided);
                    self.router.replace(routing, Some(held));
                    result = Err(error);
                    break;
                }
            }
            match self.ascends {
                true => moved.upper = chunk.upper,
                false => moved.lower = chunk.lower,
            }
        }
        if moved.lower != moved.upper {
            self.from.clear_or_warn(moved);
            // So that its memory comes back soon.
            self.from.suggest_compaction(moved);
        }
        result
    }

    fn held(&self, chunk: KeyRange<'_>) -> Held {
        Held::new(chunk.lower.map(<[u8]>::to_vec), chunk.upper.map(<[u8]>::to_vec), self.source)
    }

    /// The bound once the chunk has moved.
    fn bound(&self, chunk: KeyRange<'_>) -> Vec<u8> {
        let bound = if self.ascends { chunk.upper } else { chunk.lower };
        bound.unwrap_or_default().to_vec()
    }

    fn move_chunk(&self, routing: &Arc<Routing>, chunk: KeyRange<'_>) -> Result<Arc<Routing>, Failure> {
        let bound = self.bound(chunk);
        let next = routing.with_bound(self.router.shards().len(), self.at, bound.clone())?;
        if self.to.tree.remote.is_named() {
            // While the chunk is held, this flushes the chunk.
            self.to.flush_all()?;
        }
        self.router.replace(Arc::clone(routing), Some(self.held(chunk)));
        self.copy(chunk)?;
        if self.to.tree.remote.is_named() {
            self.to.flush_all()?;
            self.record(&bound)?;
        }
        let next = Arc::new(next);
        self.router.replace(Arc::clone(&next), None);
        Ok(next)
    }

    /// Copies the source's contents of a chunk.
    fn copy(&self, chunk: KeyRange<'_>) -> Result<()> {
        let (view, number) = self.from.tree.present();
        let view = Arc::clone(&view);
        let bounds = Arc::new(Bounds::new(self.router.order(), chunk, None));
        // Expired records are copied too: the next process may begin at an earlier time.
        let horizon = Horizon { number, time_ms: 0 };
        let mut entries = ShardIterator::new(Arc::clone(&self.from.tree), view, horizon, bounds)?;
        let most_bytes = BATCH_BYTES.min(self.to.tree.remote.max_record_bytes() / 2);
        let mut copies = Copies { to: self.to, batch: WriteBatch::new(), most_bytes };
        entries.seek_to_first()?;
        while entries.valid() {
            let (key, value) = (entries.key(), entries.value());
            match entries.chain()? {
                // What operands make of an expiring value depends on when it is read, and may be too long for a record.
                Some(Chain { operands, value: base, expiry_ms, .. })
                    if expiry_ms.is_some() || value.len() as u64 > most_bytes =>
                {
                    if let Some(base) = base {
                        copies.make_room(key, &base)?.set(key, &base, expiry_ms);
                    }
                    for operand in operands.iter().rev() {
                        copies.make_room(key, operand)?.merge(key, operand);
                    }
                }
                _ => {
                    copies.make_room(key, value)?.set(key, value, entries.expiry_ms());
                }
            }
            statistics::add(&self.router.moves.bytes, (key.len() + value.len()) as u64);
            entries.next()?;
        }
        copies.write()
    }

    /// Records the bound in the manifest of the shard after it.
    fn record(&self, bound: &[u8]) -> Result<(), Failure> {
        let behind = self.router.shard(self.at + 1)?;
        let set = || behind.set_first_key(bound).map_err(|error| behind.tree.judged(error));
        let Err(mut error) = set() else { return Ok(()) };
        let is_full = error.kind() == ErrorKind::Full && !error.is_of_storage();
        if is_full || error.kind() == ErrorKind::Fenced {
            return Err(Failure::Undone(error));
        }
        // The record may already count: the next attempt decides.
        for _ in 0..RETRIES {
            behind.tree.options.clock.sleep(PAUSE);
            match set() {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(Failure::Undecided(error.during(UNDECIDED)))
    }
}

/// Records on their way to the destination. Nobody reads them there before all of a chunk have arrived.
struct Copies<'a> {
    to: &'a Shard,
    batch: WriteBatch,
    most_bytes: u64,
}

impl Copies<'_> {
    /// The batch, with room for one more record.
    fn make_room(&mut self, key: &[u8], value: &[u8]) -> Result<&mut WriteBatch> {
        let bytes = (key.len() + value.len()) as u64;
        if self.batch.record_bytes() + bytes > self.most_bytes {
            self.write()?;
        }
        Ok(&mut self.batch)
    }

    fn write(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.to.write(&self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }
}

impl Shard {
    /// Deletes everything that the shard holds in a range.
    ///
    /// # Errors
    /// As [`Shard::write`].
    pub(crate) fn clear_range(&self, range: KeyRange<'_>) -> Result<()> {
        let Some((first, last)) = self.tree.reach(range)? else { return Ok(()) };
        let mut batch = WriteBatch::new();
        batch.delete_range(&first, &last);
        if range.upper != Some(&last) {
            batch.delete(&last);
        }
        self.write(&batch).map(drop)
    }

    /// As [`Shard::clear_range`], where a failure does no harm.
    fn clear_or_warn(&self, range: KeyRange<'_>) {
        if let Err(error) = self.clear_range(range) {
            tracing::warn!(%error, "deleting keys that are another shard's: they take memory until it is done again");
        }
    }
}
