//! The shards of a database behind one interface (dLSM VII, IX).
//!
//! ```text
//!   key ──► assignment ──► shard i ──► memory node i mod m
//! ```
//!
//! A database of one shard goes straight to it. Otherwise a call loads the assignment and keeps it until its record is
//! published or its views are taken. The assignment is replaced as a whole when bounds move (see `move_bound`).
//!
//! Calls that span shards (snapshots, iterators, reads of several keys) read the shards' published numbers through one
//! [`Cut`], and again if the assignment was replaced meanwhile. A batch that crosses shards is divided. First, while
//! nothing is reserved, each shard must have room, which is where back-pressure acts. Then its parts are placed in the
//! order of the shards, without a wait for background work, and published under the cut. So a stall in one shard keeps
//! no other shard from publishing, and a refused batch is not written anywhere.
//!
//! Two successive gets are not a snapshot: a batch may appear between them.

use crate::read::multi_get::{self, Source};
use crate::sharding::held::Held;
use crate::sharding::split::{Part, begin_with_marks, set_empty_marks, set_marks, sole_owner, split};
use crate::terms::planted::{Bug, planted};
use crate::terms::routing::Routing;
use crate::terms::statistics::{MoveCounters, StallCause};
use crate::terms::time::{Horizon, ReadTime};
use crate::terms::{Error, Result};
use crate::tree::cut::{Crossing, Cut, Turn};
use crate::tree::shared::{Tree, View};
use crate::work::crossings::Crossings;
use crate::work::shard::Shard;
use crate::work::stall::{Pause, Stall};
use crate::write::batch::{MAX_BATCH_BYTES, WriteBatch, Writes};
use crate::write::put::{Fill, Placed, Tried};
use forebay_base::{KeyOrder, Record, SequenceNumber};
use forebay_env::sync::{Condvar, Mutex, lock};
use forebay_memtable::{Guard, Switch};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep of a held-up writer before it looks at the assignment again.
const NAP: Duration = Duration::from_millis(100);
/// Pause between two checks whether a call still uses an earlier assignment.
const PAUSE: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug)]
pub(crate) struct Router {
    shards: Arc<[Arc<Shard>]>,
    order: KeyOrder,
    pub(super) assignment: Switch<Assignment>,
    /// The number of the current assignment; held-up writers sleep here.
    present: Mutex<u64>,
    replaced: Condvar,
    /// Held while a bound moves, so bounds move one at a time.
    pub(crate) moving: Mutex<()>,
    pub(crate) moves: MoveCounters,
    pub(super) cut: Arc<Cut>,
    /// Batches that cross shards and are to be durable, where the shards' logs are in memory.
    crossings: Option<Arc<Crossings>>,
}

/// The current owners of keys.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// Counts assignments.
    pub(super) number: u64,
    pub(super) routing: Arc<Routing>,
    /// Keys that nobody may write because they are moving to another shard.
    pub(super) held: Option<Held>,
}

/// Published numbers, one per shard, under one cut, with the routing they belong to, and a time that is not before
/// them.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) routing: Arc<Routing>,
    pub(crate) numbers: Vec<SequenceNumber>,
    pub(crate) time_ms: u64,
}

impl Moment {
    /// What a read of a shard sees. The caller knows that the shard exists.
    pub(crate) fn horizon(&self, shard: usize) -> Horizon {
        Horizon { number: self.number(shard), time_ms: self.time_ms }
    }

    /// The number of a shard. The caller knows that the shard exists.
    pub(crate) fn number(&self, shard: usize) -> SequenceNumber {
        self.numbers.get(shard).copied().unwrap_or(SequenceNumber::ZERO)
    }
}

impl Router {
    pub(crate) fn new(shards: Arc<[Arc<Shard>]>, routing: Routing, cut: Arc<Cut>) -> Self {
        let order = routing.order();
        let crossings = Shard::join_crossings(&shards, &cut);
        let assignment = Switch::new(Arc::new(Assignment { number: 0, routing: Arc::new(routing), held: None }));
        Self {
            shards,
            order,
            assignment,
            present: Mutex::default(),
            replaced: Condvar::new(),
            moving: Mutex::default(),
            moves: MoveCounters::default(),
            cut,
            crossings,
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

    /// The current routing.
    pub(crate) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.assignment.load().routing)
    }

    /// The current routing, for a caller that holds `moving`. If it is unknown whether the last move recorded its
    /// bound, the bound is recorded first.
    ///
    /// # Errors
    /// Why it is not recorded yet.
    pub(crate) fn free_routing(&self) -> Result<Arc<Routing>> {
        self.decide()?;
        Ok(self.routing())
    }

    /// Installs another assignment, and waits until no call follows an earlier one.
    pub(crate) fn replace(&self, routing: Arc<Routing>, held: Option<Held>) {
        let number = *lock(&self.present) + 1;
        let mut earlier = self.assignment.replace(Arc::new(Assignment { number, routing, held }));
        *lock(&self.present) = number;
        self.replaced.notify_all();
        // A call holds its assignment by a guard. Once the switch has dropped the earlier assignment, no call holds it.
        while Arc::get_mut(&mut earlier).is_none() {
            self.assignment.reclaim();
            if let Some(shard) = self.shards.first() {
                shard.tree.options.clock.sleep(PAUSE);
            }
        }
    }

    /// Waits until the keys that a call writes are released.
    ///
    /// # Errors
    /// `Closed`; the reason why they are not released.
    #[cold]
    pub(super) fn wait_let_go(&self, assignment: Guard<'_, Assignment>) -> Result<()> {
        let (number, held) = (assignment.number, assignment.held.as_ref());
        let Some((source, undecided)) = held.map(|held| (held.source, held.undecided.clone())) else { return Ok(()) };
        // The move waits for the calls of earlier assignments.
        drop(assignment);
        if let Some(undecided) = undecided {
            // One of the threads that want to write these keys tries again.
            return self.moving.try_lock().map_or(Err(undecided.error), |_moving| self.decide());
        }
        let shard = self.shard(source)?;
        Stall::new(&shard.tree.counters, &shard.tree.options).during(StallCause::MovedBound, || {
            let mut present = lock(&self.present);
            while *present == number {
                shard.tree.check_open()?;
                present = self.replaced.wait_timeout(present, NAP).unwrap_or_else(PoisonError::into_inner).0;
            }
            Ok(())
        })
    }

    /// Passes the record that gives `key` its value, at a moment or now, to `found`, with the number of its shard.
    #[inline]
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        moment: Option<&Moment>,
        found: impl FnOnce(usize, Record<'_>) -> T,
    ) -> Result<Option<T>> {
        if let Some(only) = self.only() {
            return only.tree.get(key, moment.map(|moment| moment.horizon(0)), |record| found(0, record));
        }
        if let Some(moment) = moment {
            let owner = moment.routing.owner(key);
            return self.shard(owner)?.tree.get(key, Some(moment.horizon(owner)), |record| found(owner, record));
        }
        let assignment = self.assignment.load();
        let owner = assignment.routing.owner(key);
        self.shard(owner)?.tree.get(key, None, |record| {
            // The record stays, whatever moves: the move of a bound waits for reads, and not for what callers do.
            drop(assignment);
            found(owner, record)
        })
    }

    /// Writes one record. Returns when it is durable, if that is wanted.
    #[inline]
    pub(crate) fn write_one(&self, key: &[u8], write: &impl Writes, is_durable: bool) -> Result<()> {
        if let Some(only) = self.only() {
            let last = only.write(write)?;
            return if is_durable { make_durable(only, last) } else { Ok(()) };
        }
        let mut pause = Pause::default();
        loop {
            let assignment = self.assignment.load();
            if assignment.held.as_ref().is_some_and(|held| held.holds(self.order, key)) {
                self.wait_let_go(assignment)?;
                continue;
            }
            let shard = self.shard(assignment.routing.owner(key))?;
            write.check(self.order, shard.tree.remote.max_record_bytes())?;
            let tried = shard.try_write(write)?;
            drop(assignment);
            match tried {
                Tried::Written(last) if is_durable => return make_durable(shard, last),
                Tried::Written(_) => return Ok(()),
                Tried::Ended(ended) => shard.switch(&ended, write.need(), &mut pause)?,
            }
        }
    }

    /// Most bytes of records in one write, whatever shards it goes to.
    pub(crate) fn max_write_bytes(&self) -> u64 {
        let most = self.shards().iter().map(|shard| shard.tree.remote.max_record_bytes()).min();
        most.map_or(MAX_BATCH_BYTES, |most| most.min(MAX_BATCH_BYTES))
    }

    /// Writes a batch. All of it becomes visible at once.
    pub(crate) fn write(&self, batch: &WriteBatch, is_durable: bool) -> Result<()> {
        if batch.is_conditional() {
            return self.write_if(batch, is_durable);
        }
        if let Some(only) = self.only() {
            let last = only.write(batch)?;
            return if is_durable { make_durable(only, last) } else { Ok(()) };
        }
        batch.check(self.order, u64::MAX)?;
        let mut pause = Pause::default();
        loop {
            let assignment = self.assignment.load();
            if let Some(held) = &assignment.held
                && held.holds_any(self.order, batch)?
            {
                self.wait_let_go(assignment)?;
                continue;
            }
            let Some(owner) = sole_owner(batch, &assignment.routing)? else {
                let (number, routing) = (assignment.number, Arc::clone(&assignment.routing));
                drop(assignment);
                if self.write_across(batch, number, &routing, is_durable)? {
                    return Ok(());
                }
                continue;
            };
            let shard = self.shard(owner)?;
            batch.check_bytes(shard.tree.remote.max_record_bytes())?;
            let tried = shard.try_write(batch)?;
            drop(assignment);
            match tried {
                Tried::Written(last) if is_durable => return make_durable(shard, last),
                Tried::Written(_) => return Ok(()),
                Tried::Ended(ended) => shard.switch(&ended, batch.need(), &mut pause)?,
            }
        }
    }

    /// Writes a batch to several shards according to assignment `number`. Returns whether it did; it does not if the
    /// assignment was replaced meanwhile.
    fn write_across(&self, batch: &WriteBatch, number: u64, routing: &Routing, is_durable: bool) -> Result<bool> {
        let mut parts = split(batch, routing)?;
        self.mark(&mut parts, is_durable);
        let mut pause = Pause::default();
        self.make_room_for(&parts, &mut pause)?;
        let assignment = self.assignment.load();
        if assignment.number != number {
            return Ok(false);
        }
        let placed = self.place_and_publish(&parts)?;
        drop(assignment);
        if is_durable {
            make_all_durable(&placed)?;
        }
        Ok(true)
    }

    /// Makes the parts of a batch say which other parts there are, if it is to be durable and the logs do not say so.
    pub(super) fn mark(&self, parts: &mut [Part<'_>], is_durable: bool) {
        if is_durable && self.crossings.is_some() {
            begin_with_marks(parts);
        }
    }

    /// Waits until each shard has room for its part.
    pub(super) fn make_room_for<'s>(&'s self, parts: &[Part<'_>], pause: &mut Pause<'s>) -> Result<()> {
        for part in parts {
            part.check_bytes(self.shard(part.shard)?.tree.remote.max_record_bytes())?;
        }
        for part in parts {
            let shard = self.shard(part.shard)?;
            shard.tree.check_open()?;
            shard.make_room(part.need(), pause)?;
        }
        Ok(())
    }

    fn place_and_publish(&self, parts: &[Part<'_>]) -> Result<Vec<(&Shard, Placed)>> {
        let crossing = self.cut.cross();
        let mut placed = Vec::with_capacity(parts.len());
        let mut turn = (!planted(Bug::ReserveOutOfTurn)).then(|| crossing.take_turn());
        let mut first = Vec::with_capacity(parts.len());
        if let Err(error) = self.place(parts, &mut first, &mut turn, &mut placed) {
            return Err(Self::cannot_publish(&placed, error));
        }
        drop(turn);
        placed.reverse();
        self.publish(crossing, parts, &placed);
        Ok(placed)
    }

    /// Publishes parts that are placed, in the order of their shards.
    pub(super) fn publish(&self, crossing: Crossing<'_>, parts: &[Part<'_>], placed: &[(&Shard, Placed)]) {
        if let Some(crossings) = &self.crossings {
            let marked = parts.iter().zip(placed).filter(|(part, _)| part.is_marked());
            marked.for_each(|(part, (_, numbers))| crossings.crossed(part.shard, numbers.last));
        }
        crossing.publish(|| {
            for (shard, numbers) in placed {
                shard.tree.publication.publish(numbers.first, numbers.last);
            }
            for (shard, numbers) in placed {
                shard.tree.publication.wait_published(numbers.last);
            }
        });
    }

    /// Notes that the placed parts can never be published, so nobody may write to these shards any more.
    pub(super) fn cannot_publish(placed: &[(&Shard, Placed)], error: Error) -> Error {
        let error = error.during("placing a batch that crosses shards");
        placed.iter().for_each(|(shard, _)| shard.failed(error.clone()));
        error
    }

    /// Reserves in each shard, ends the turn, and inserts, the last part first.
    fn place<'a>(
        &'a self,
        parts: &[Part<'_>],
        first: &mut Vec<SequenceNumber>,
        turn: &mut Option<Turn<'_>>,
        placed: &mut Vec<(&'a Shard, Placed)>,
    ) -> Result<()> {
        let Some(part) = parts.get(first.len()) else {
            drop(turn.take());
            set_marks(parts, first);
            return Ok(());
        };
        let shard = self.shard(part.shard)?;
        let numbers = shard.place(part, &mut |_, number| {
            first.push(number);
            let rest = self.place(parts, first, turn, placed);
            rest.inspect_err(|_| set_empty_marks(parts)).map(|()| Fill::Records)
        })?;
        placed.push((shard, numbers));
        Ok(())
    }

    /// Runs `read` on the current routing, under one cut. It sees no write that followed a later routing.
    fn now<T>(&self, mut read: impl FnMut(&Arc<Routing>) -> T) -> T {
        loop {
            let assignment = self.assignment.load();
            let result = self.cut.through(|| read(&assignment.routing));
            if !assignment.is_replaced() {
                return result;
            }
        }
    }

    /// Pins the present moment until the result is dropped.
    pub(crate) fn pin(self: &Arc<Self>) -> Pins {
        self.now(|routing| {
            let pins: Vec<_> = self.shards.iter().map(|shard| shard.tree.pin()).collect();
            // The latest of these times: no compaction used a later one, so what expired after it is still there.
            let time_ms = pins.iter().map(|pin| pin.time_ms).max().unwrap_or(0);
            let numbers = pins.iter().map(|pin| pin.number).collect();
            Pins { moment: Moment { routing: Arc::clone(routing), numbers, time_ms }, router: Arc::clone(self) }
        })
    }

    /// The time by which keys expire, in milliseconds since 1970.
    pub(crate) fn time_ms(&self) -> u64 {
        self.shards.first().map_or(0, |shard| shard.tree.time.now_ms())
    }

    /// The routing of the moment, or the current one, the views and numbers of the shards that `range` names in it, and
    /// the time.
    pub(crate) fn views(
        &self,
        moment: Option<&Moment>,
        range: impl Fn(&Routing) -> std::ops::Range<usize>,
    ) -> Result<(Arc<Routing>, Vec<TreeView>, u64)> {
        let of = |routing: &Arc<Routing>| {
            let shards = range(routing).filter_map(|at| Some((at, self.shards.get(at)?)));
            let views: Vec<_> = shards
                .map(|(at, shard)| {
                    let (view, present) = shard.tree.present();
                    let number = moment.map_or(present, |moment| moment.number(at));
                    TreeView { at, tree: Arc::clone(&shard.tree), view: Arc::clone(&view), number }
                })
                .collect();
            (Arc::clone(routing), views)
        };
        let (routing, views) = match moment {
            Some(moment) => of(&moment.routing),
            None => self.now(of),
        };
        views.iter().try_for_each(|view| view.tree.check_open())?;
        // Later than the views: what compactions had dropped by then has expired.
        let time_ms = moment.map_or_else(|| self.time_ms(), |moment| moment.time_ms);
        Ok((routing, views, time_ms))
    }

    /// The values of the first of `keys`, as many as the budget allows, all at one moment or now.
    pub(crate) fn multi_get(
        &self,
        keys: &[&[u8]],
        moment: Option<&Moment>,
        budget_bytes: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        // After the views were taken.
        let time_ms = || moment.map_or_else(|| self.time_ms(), |moment| moment.time_ms);
        let fetch = |sources: &[Source<'_>], source_of: &dyn Fn(usize) -> usize| {
            let time = ReadTime::At(time_ms());
            multi_get::values(sources, keys, source_of, budget_bytes, time)
        };
        if let Some(only) = self.only() {
            let source = Source::of(&only.tree, moment.map(|moment| moment.number(0)))?;
            return fetch(&[source], &|_| 0);
        }
        let of = |routing: &Arc<Routing>| -> Result<_> {
            let owners: Vec<usize> = keys.iter().map(|key| routing.owner(key)).collect();
            let mut involved = owners.clone();
            involved.sort_unstable();
            involved.dedup();
            let source = |&at: &usize| Source::of(&self.shard(at)?.tree, moment.map(|moment| moment.number(at)));
            let sources = involved.iter().map(source).collect::<Result<Vec<_>>>()?;
            Ok((owners, involved, sources))
        };
        let (owners, involved, sources) = match moment {
            Some(moment) => of(&moment.routing),
            None => self.now(of),
        }?;
        let source_of = |key: usize| owners.get(key).and_then(|owner| involved.binary_search(owner).ok()).unwrap_or(0);
        fetch(&sources, &source_of)
    }
}

/// Returns when a write that is published up to this number is durable.
///
/// # Errors
/// Those of the log. They say that the write is published.
pub(super) fn make_durable(shard: &Shard, last: SequenceNumber) -> Result<()> {
    shard.make_durable(last).map_err(Error::of_published)
}

/// The same for the parts of a batch.
///
/// # Errors
/// As [`make_durable`].
pub(super) fn make_all_durable(placed: &[(&Shard, Placed)]) -> Result<()> {
    placed.iter().try_for_each(|(shard, numbers)| make_durable(shard, numbers.last))
}

/// What an iterator needs from a shard's tree.
#[derive(Debug)]
pub(crate) struct TreeView {
    /// The number of the shard.
    pub(crate) at: usize,
    pub(crate) tree: Arc<Tree>,
    pub(crate) view: Arc<View>,
    pub(crate) number: SequenceNumber,
}

/// A pinned moment, until dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) moment: Moment,
    router: Arc<Router>,
}

impl Pins {
    /// Identifies the database that this is a moment of.
    pub(crate) fn database(&self) -> usize {
        self.router.address()
    }

    /// Whether this is a moment of the database of `router`.
    pub(crate) fn are_of(&self, router: &Arc<Router>) -> bool {
        Arc::ptr_eq(&self.router, router)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for (shard, number) in self.router.shards.iter().zip(&self.moment.numbers) {
            shard.tree.unpin(*number);
        }
    }
}
