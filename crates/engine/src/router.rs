//! The shards of a database behind one interface (dLSM VII, IX).
//!
//! ```text
//!   key ──► plan: routing ──► shard i ──► memory node i mod m
//! ```
//!
//! A database of one shard goes straight to it. Otherwise a call loads the plan, which is replaced
//! as a whole when bounds move (see `move_bound`), and keeps it until its record is published or its
//! views are taken.
//!
//! What spans shards, that is snapshots, iterators and reads of several keys, reads the shards'
//! published numbers through one [`Cut`], and again if the plan was replaced meanwhile. A batch
//! that crosses shards is divided; first there must be room in each shard, as back-pressure demands,
//! while nothing is reserved; then its parts are placed in the order of the shards without waiting
//! for background work, and published under the cut. So a stall in one shard keeps no other shard
//! from publishing, and a batch that is refused was written nowhere.
//!
//! Two gets, one after another, are no snapshot: between them a batch may appear.

use crate::batch::{WriteBatch, Writes};
use crate::cut::{Cut, Turn};
use crate::move_bound::Held;
use crate::multi_get::{self, Source};
use crate::planted::{Bug, planted};
use crate::routing::Routing;
use crate::shard::Shard;
use crate::split::{Part, sole_owner, split};
use crate::stall::Stall;
use crate::statistics::{MoveCounters, StallCause};
use crate::write::Placed;
use crate::{Error, Result};
use forebay_base::{KeyOrder, SequenceNumber};
use forebay_env::sync::{Condvar, Mutex, lock};
use forebay_memtable::{Guard, Switch};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep of a writer that is held up without a look at the plan.
const NAP: Duration = Duration::from_millis(100);
/// Between two looks at whether a call still uses an earlier plan.
const PAUSE: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug)]
pub(crate) struct Router {
    shards: Arc<[Arc<Shard>]>,
    order: KeyOrder,
    plan: Switch<Plan>,
    /// The number of the present plan; who is held up sleeps here.
    present: Mutex<u64>,
    replaced: Condvar,
    /// Held while a bound moves: one at a time.
    pub(crate) moving: Mutex<()>,
    pub(crate) moves: MoveCounters,
    cut: Cut,
}

/// Who owns what now.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Counts plans.
    number: u64,
    routing: Arc<Routing>,
    /// Keys that nobody writes: they are on their way to another shard.
    held: Option<Held>,
}

/// Published numbers, one a shard, under one cut, and the routing that they belong to.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) routing: Arc<Routing>,
    pub(crate) numbers: Vec<SequenceNumber>,
}

impl Moment {
    /// The number of a shard; the caller knows that there is one.
    pub(crate) fn number(&self, shard: usize) -> SequenceNumber {
        self.numbers.get(shard).copied().unwrap_or(SequenceNumber::ZERO)
    }
}

impl Router {
    pub(crate) fn new(shards: Arc<[Arc<Shard>]>, routing: Routing) -> Self {
        let order = routing.order();
        let plan = Switch::new(Arc::new(Plan { number: 0, routing: Arc::new(routing), held: None }));
        Self {
            shards,
            order,
            plan,
            present: Mutex::default(),
            replaced: Condvar::new(),
            moving: Mutex::default(),
            moves: MoveCounters::default(),
            cut: Cut::default(),
        }
    }

    pub(crate) fn shards(&self) -> &Arc<[Arc<Shard>]> {
        &self.shards
    }

    pub(crate) fn order(&self) -> KeyOrder {
        self.order
    }

    /// The shard, if there is only one.
    #[inline]
    fn only(&self) -> Option<&Shard> {
        match &*self.shards {
            [only] => Some(only),
            _ => None,
        }
    }

    /// # Errors
    /// `Invalid` when there is none.
    #[inline]
    pub(crate) fn shard(&self, at: usize) -> Result<&Arc<Shard>> {
        self.shards.get(at).ok_or_else(|| Error::invalid("a snapshot is used with a database that is not its own"))
    }

    /// The present routing.
    pub(crate) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.plan.load().routing)
    }

    /// The present routing, if a bound may move.
    ///
    /// # Errors
    /// Why the last move did not end.
    pub(crate) fn free_routing(&self) -> Result<Arc<Routing>> {
        let plan = self.plan.load();
        match plan.held.as_ref().and_then(|held| held.failure.clone()) {
            Some(failure) => Err(failure),
            None => Ok(Arc::clone(&plan.routing)),
        }
    }

    /// Makes another plan the present one, and waits until no call is directed by an earlier one.
    pub(crate) fn replace(&self, routing: Arc<Routing>, held: Option<Held>) {
        let number = *lock(&self.present) + 1;
        let mut earlier = self.plan.replace(Arc::new(Plan { number, routing, held }));
        *lock(&self.present) = number;
        self.replaced.notify_all();
        // Calls hold a plan by a guard: when the switch has dropped it, nobody does.
        while Arc::get_mut(&mut earlier).is_none() {
            self.plan.reclaim();
            if let Some(shard) = self.shards.first() {
                shard.options.clock.sleep(PAUSE);
            }
        }
    }

    /// Waits until keys that a call is to write are let go of.
    ///
    /// # Errors
    /// `Closed`; why they are not let go of.
    #[cold]
    fn wait_let_go(&self, plan: Guard<'_, Plan>) -> Result<()> {
        let (number, held) = (plan.number, plan.held.as_ref());
        let Some((source, failure)) = held.map(|held| (held.source, held.failure.clone())) else { return Ok(()) };
        // Whoever holds them waits for the calls of earlier plans.
        drop(plan);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let shard = self.shard(source)?;
        let mut stall = Stall::new(&shard.counters, &shard.options);
        stall.begin(StallCause::MovedBound);
        let mut present = lock(&self.present);
        while *present == number {
            shard.check_open()?;
            present = self.replaced.wait_timeout(present, NAP).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Hands the value of `key`, at a moment or now, to `found`.
    #[inline]
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        moment: Option<&Moment>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        if let Some(only) = self.only() {
            return only.get(key, moment.map(|moment| moment.number(0)), found);
        }
        if let Some(moment) = moment {
            let owner = moment.routing.owner(key);
            return self.shard(owner)?.get(key, Some(moment.number(owner)), found);
        }
        let plan = self.plan.load();
        self.shard(plan.routing.owner(key))?.get(key, None, found)
    }

    /// Writes one record.
    #[inline]
    pub(crate) fn write_one(&self, key: &[u8], write: &impl Writes) -> Result<()> {
        if let Some(only) = self.only() {
            return only.write(write);
        }
        loop {
            let plan = self.plan.load();
            if plan.held.as_ref().is_some_and(|held| held.holds(self.order, key)) {
                self.wait_let_go(plan)?;
                continue;
            }
            let shard = self.shard(plan.routing.owner(key))?;
            write.check(self.order, shard.remote.max_record_bytes())?;
            let Some(ended) = shard.try_write(write)? else { return Ok(()) };
            drop(plan);
            shard.switch(&ended, write.need())?;
        }
    }

    /// Writes a batch, which becomes visible at once.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        if let Some(only) = self.only() {
            return only.write(batch);
        }
        batch.check(self.order, u64::MAX)?;
        loop {
            let plan = self.plan.load();
            if let Some(held) = &plan.held
                && held.holds_any(self.order, batch)?
            {
                self.wait_let_go(plan)?;
                continue;
            }
            let Some(owner) = sole_owner(batch, &plan.routing)? else {
                let (number, routing) = (plan.number, Arc::clone(&plan.routing));
                drop(plan);
                if self.write_across(batch, number, &routing)? {
                    return Ok(());
                }
                continue;
            };
            let shard = self.shard(owner)?;
            batch.check_bytes(shard.remote.max_record_bytes())?;
            let Some(ended) = shard.try_write(batch)? else { return Ok(()) };
            drop(plan);
            shard.switch(&ended, batch.need())?;
        }
    }

    /// Writes a batch to several shards, as the plan of this number says. Whether it did: not if the
    /// plan was replaced meanwhile.
    fn write_across(&self, batch: &WriteBatch, number: u64, routing: &Routing) -> Result<bool> {
        let parts = split(batch, routing)?;
        for part in &parts {
            part.check_bytes(self.shard(part.shard)?.remote.max_record_bytes())?;
        }
        for part in &parts {
            let shard = self.shard(part.shard)?;
            shard.check_open()?;
            shard.make_room(part.need())?;
        }
        let plan = self.plan.load();
        if plan.number != number {
            return Ok(false);
        }
        self.place_and_publish(&parts)?;
        Ok(true)
    }

    fn place_and_publish(&self, parts: &[Part<'_>]) -> Result<()> {
        let crossing = self.cut.cross();
        let mut placed = Vec::with_capacity(parts.len());
        if let Err(error) =
            self.place(parts, &mut (!planted(Bug::ReserveOutOfTurn)).then(|| crossing.take_turn()), &mut placed)
        {
            // What was placed can never be published: nobody writes to these shards any more.
            let error = error.during("placing a batch that crosses shards");
            placed.iter().for_each(|(shard, _)| shard.failed(error.clone()));
            return Err(error);
        }
        placed.reverse();
        crossing.publish(|| {
            for (shard, numbers) in &placed {
                shard.publication.publish(numbers.first, numbers.last);
            }
            for (shard, numbers) in &placed {
                shard.publication.wait_published(numbers.last);
            }
        });
        Ok(())
    }

    /// Reserves in each shard, ends the turn, and inserts: the last part first.
    fn place<'a>(
        &'a self,
        parts: &[Part<'_>],
        turn: &mut Option<Turn<'_>>,
        placed: &mut Vec<(&'a Shard, Placed)>,
    ) -> Result<()> {
        let Some((part, others)) = parts.split_first() else {
            drop(turn.take());
            return Ok(());
        };
        let shard = self.shard(part.shard)?;
        let numbers = shard.place(part, &mut || self.place(others, turn, placed))?;
        placed.push((shard, numbers));
        Ok(())
    }

    /// Runs `read` on the present routing, under one cut, so that no write is seen that a routing after
    /// it directed.
    fn now<T>(&self, mut read: impl FnMut(&Arc<Routing>) -> T) -> T {
        loop {
            let plan = self.plan.load();
            let result = self.cut.through(|| read(&plan.routing));
            if !plan.is_replaced() {
                return result;
            }
        }
    }

    /// Pins this moment. To be ended by [`Router::unpin`].
    pub(crate) fn pin(self: &Arc<Self>) -> Pins {
        self.now(|routing| Pins {
            moment: Moment {
                routing: Arc::clone(routing),
                numbers: self.shards.iter().map(|shard| shard.pin()).collect(),
            },
            router: Arc::clone(self),
        })
    }

    /// The moment's or the present routing, and of the shards that `range` names in it the views and
    /// numbers.
    pub(crate) fn views(
        &self,
        moment: Option<&Moment>,
        range: impl Fn(&Routing) -> std::ops::Range<usize>,
    ) -> Result<(Arc<Routing>, Vec<ShardView>)> {
        let of = |routing: &Arc<Routing>| {
            let shards = range(routing).filter_map(|at| Some((at, self.shards.get(at)?)));
            let views: Vec<_> = shards
                .map(|(at, shard)| {
                    let (view, present) = shard.present();
                    let number = moment.map_or(present, |moment| moment.number(at));
                    ShardView { at, shard: Arc::clone(shard), view: Arc::clone(&view), number }
                })
                .collect();
            (Arc::clone(routing), views)
        };
        let (routing, views) = match moment {
            Some(moment) => of(&moment.routing),
            None => self.now(of),
        };
        views.iter().try_for_each(|view| view.shard.check_open())?;
        Ok((routing, views))
    }

    /// The values of `keys`, all at one moment, or now.
    pub(crate) fn multi_get(&self, keys: &[&[u8]], moment: Option<&Moment>) -> Result<Vec<Option<Vec<u8>>>> {
        if let Some(only) = self.only() {
            let source = Source::of(only, moment.map(|moment| moment.number(0)))?;
            return multi_get::fetch(&[source], keys, |_| 0);
        }
        let of = |routing: &Arc<Routing>| -> Result<_> {
            let owners: Vec<usize> = keys.iter().map(|key| routing.owner(key)).collect();
            let mut involved = owners.clone();
            involved.sort_unstable();
            involved.dedup();
            let source = |&at: &usize| Source::of(self.shard(at)?, moment.map(|moment| moment.number(at)));
            let sources = involved.iter().map(source).collect::<Result<Vec<_>>>()?;
            Ok((owners, involved, sources))
        };
        let (owners, involved, sources) = match moment {
            Some(moment) => of(&moment.routing),
            None => self.now(of),
        }?;
        multi_get::fetch(&sources, keys, |key| {
            owners.get(key).and_then(|owner| involved.binary_search(owner).ok()).unwrap_or(0)
        })
    }
}

/// What an iterator needs of a shard.
#[derive(Debug)]
pub(crate) struct ShardView {
    /// Which shard it is.
    pub(crate) at: usize,
    pub(crate) shard: Arc<Shard>,
    pub(crate) view: Arc<crate::shard::View>,
    pub(crate) number: SequenceNumber,
}

/// A pinned moment, until dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) moment: Moment,
    router: Arc<Router>,
}

impl Pins {
    /// Whether it is a moment of the database of `router`.
    pub(crate) fn are_of(&self, router: &Arc<Router>) -> bool {
        Arc::ptr_eq(&self.router, router)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for (shard, number) in self.router.shards.iter().zip(&self.moment.numbers) {
            shard.unpin(*number);
        }
    }
}
