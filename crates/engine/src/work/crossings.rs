//! Batches that cross shards, in the logs of these shards in memory (`docs/decisions/0040`).
//!
//! ```text
//!   shard 0   [ … │ X, part 1 │ … ▸ published ]   ship ─┐
//!   shard 1   [ … │ X, part 2 │ … ▸ published ]   ship ─┼─► closed: these numbers, of all shards
//!   shard 2   [ …             │ … ▸ published ]   ship ─┘
//! ```
//!
//! Recovery cuts off a batch that is not in all of its shards' logs, and what follows it in any of them
//! (`durable::crossing`). So nothing that follows such a batch is acknowledged, and no table has it, before the batch
//! is in all of them. A shard is *open* if a batch has crossed it since it was closed. A thread that waits for an open
//! shard ships what all shards have published under one cut, for all that wait. A shard that is not open ships alone.
//!
//! # Invariants
//!
//! 1. Up to the closed numbers, each batch is in the logs or tables of all its shards, and so is all that precedes a part.
//! 2. A shard's crossed number is at least that of each part that is published in it.

use crate::durable::lead::Lead;
use crate::terms::planted::{Bug, planted};
use crate::terms::{Error, Result};
use crate::tree::cut::Cut;
use forebay_base::{ErrorKind, SequenceNumber};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A shard with a log in memory.
pub(crate) trait Ships: Debug + Send + Sync {
    /// The published number.
    fn published(&self) -> SequenceNumber;

    /// Returns when all records up to `number`, which is published, are in the log or in tables.
    ///
    /// # Errors
    /// Those of the log.
    fn ship(&self, number: SequenceNumber) -> Result<()>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Crossings {
    shards: Vec<Of>,
    cut: Arc<Cut>,
    lead: Lead,
}

/// What is known of a shard.
#[derive(Debug)]
struct Of {
    shard: Weak<dyn Ships>,
    /// The last number of a part of a batch that crosses shards.
    crossed: AtomicU64,
    closed: AtomicU64,
}

impl Crossings {
    /// The crossings of shards that no batch has crossed.
    pub(crate) fn new(shards: impl IntoIterator<Item = Weak<dyn Ships>>, cut: Arc<Cut>) -> Arc<Self> {
        let of = |shard| Of { shard, crossed: AtomicU64::new(0), closed: AtomicU64::new(0) };
        Arc::new(Self { shards: shards.into_iter().map(of).collect(), cut, lead: Lead::default() })
    }

    /// Notes that a batch crosses shards and that its part in `shard` ends at `last`. To be called before that is
    /// published.
    pub(crate) fn crossed(&self, shard: usize, last: SequenceNumber) {
        if let Some(of) = self.shards.get(shard) {
            // Relaxed: the publication that follows releases it.
            of.crossed.fetch_max(last.0, Ordering::Relaxed);
        }
    }

    /// Whether a batch that may not be in all logs yet crossed the shard. The caller has seen published what it asks
    /// for.
    pub(crate) fn is_open(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|of| of.crossed.load(Ordering::Relaxed) > of.closed.load(Ordering::Acquire))
    }

    /// Returns when all records of an open shard up to `number`, which is published, are in the log or in tables, and with
    /// them all parts of batches that cross shards.
    ///
    /// # Errors
    /// Those of the logs.
    pub(crate) fn close(&self, shard: usize, number: SequenceNumber) -> Result<()> {
        // Acquire: pairs with the release in `close_all`.
        let closed = || self.shards.get(shard).map_or(u64::MAX, |of| of.closed.load(Ordering::Acquire));
        self.lead.reach(|| closed() >= number.0, || (), || self.close_all())
    }

    /// The same, before a table with these records counts.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn lead_table(&self, shard: usize, number: SequenceNumber) -> Result<()> {
        match self.is_open(shard) && !planted(Bug::TablesAheadOfCrossings) {
            true => self.close(shard, number),
            false => Ok(()),
        }
    }

    fn close_all(&self) -> Result<()> {
        let gone = || Error::new(ErrorKind::Closed, "the database was closed");
        let shards: Vec<_> = self.shards.iter().map(|of| of.shard.upgrade().ok_or_else(gone)).collect::<Result<_>>()?;
        let numbers = self.cut.through(|| shards.iter().map(|shard| shard.published()).collect::<Vec<_>>());
        shards.iter().zip(&numbers).try_for_each(|(shard, number)| shard.ship(*number))?;
        for (of, number) in self.shards.iter().zip(numbers) {
            // Release: a thread that learns of the number may acknowledge what it covers.
            of.closed.fetch_max(number.0, Ordering::Release);
        }
        Ok(())
    }
}
