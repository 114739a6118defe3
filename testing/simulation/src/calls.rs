//! Random calls, each checked against a model. A call may fail in ways that the faults of the run allow. A failed write has
//! no effect, unless it should have been durable: then its error says whether it had an effect.

use crate::checkpoints::Checkpoints;
use crate::clock::DayClock;
use crate::damage::Damage;
use crate::habits::Habits;
use crate::journal::{Journal, opened_at, published};
use crate::model::{Model, Moment};
use crate::operands::Operator;
use crate::swarm::{Call, Event};
use crate::walker::Walker;
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, Durability, Error, Snapshot, Syncing, WriteBatch, WriteOptions};
use forebay_env::Random;
use forebay_env::thread::set_turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of snapshots, and of iterators, held at a time.
const HELD: usize = 4;
/// Maximum bytes of an operand.
const OPERAND_BYTES: u64 = 24;
/// Maximum milliseconds that an expiring value lives, and that the time of day jumps by.
const MOST_LIFE_MS: u64 = 10_000;

/// See the module.
pub(crate) struct Calls {
    pub(crate) random: Random,
    pub(crate) habits: Habits,
    pub(crate) model: Model,
    pub(crate) snapshots: Vec<(Snapshot, Moment)>,
    pub(crate) walkers: Vec<Walker>,
    pub(crate) journal: Journal,
    shards: u64,
    clock: Arc<DayClock>,
    /// The model keeps the past from this moment on, whatever else needs it.
    pub(crate) kept_from: Option<Moment>,
    /// Another process may have taken the database over.
    pub(crate) may_be_fenced: Arc<AtomicBool>,
    /// What is damaged.
    damage: Arc<Damage>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// A call is running during which no step may run: it holds something that a step waits for and that only another
    /// thread could release.
    pub(crate) is_alone: Arc<AtomicBool>,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Number of calls refused because the memory was full.
    pub(crate) full: u64,
}

impl Calls {
    /// Calls on a database with the contents of `model`.
    pub(crate) fn new(
        random: Random,
        habits: Habits,
        db: &Db,
        clock: &Arc<DayClock>,
        (damage, checkpoints): (&Arc<Damage>, &Arc<Checkpoints>),
        mut model: Model,
    ) -> Self {
        let numbers = opened_at(db);
        model.pass_time(db.time_ms());
        Self {
            random,
            habits,
            clock: Arc::clone(clock),
            shards: numbers.len() as u64,
            snapshots: Vec::new(),
            walkers: Vec::new(),
            journal: Journal::begin(&numbers, model.now(), habits.has_one_end()),
            model,
            kept_from: None,
            may_be_fenced: Arc::default(),
            damage: Arc::clone(damage),
            checkpoints: Arc::clone(checkpoints),
            is_alone: Arc::default(),
            done: 0,
            failed: 0,
            full: 0,
        }
    }

    /// Releases everything of the database that is held.
    pub(crate) fn release(&mut self) {
        self.snapshots.clear();
        self.walkers.clear();
        self.forget();
    }

    /// Makes the time of day pass, or jump back. A jump back changes nothing for processes that have seen a later time.
    fn pass_time(&mut self, db: &Db) {
        if self.random.one_in(1, 2) {
            self.clock.advance(1 + self.random.below(MOST_LIFE_MS));
            self.look_at_clock(db);
        } else {
            self.clock.go_back(self.random.below(MOST_LIFE_MS));
        }
    }

    /// Notes the time by which keys expire.
    pub(crate) fn look_at_clock(&mut self, db: &Db) {
        if self.model.pass_time(db.time_ms()) {
            let numbers = self.numbers(db);
            self.journal.wrote(&numbers, self.model.now());
        }
    }

    /// Makes one call of any kind, each time as another thread would.
    pub(crate) fn any_call(&mut self, db: &Db) {
        self.make_one_of(|_| true, db);
    }

    /// Makes a call that waits for no background work, unless it is stalled.
    pub(crate) fn short_call(&mut self, db: &Db) {
        self.make_one_of(Call::is_short, db);
    }

    fn make_one_of(&mut self, is_wanted: impl Fn(Call) -> bool, db: &Db) {
        let mut random = Random::seeded(self.random.word());
        let call = self.habits.swarm.call(&mut random, |call| is_wanted(call) && self.may_make(call));
        self.make(call, db);
    }

    /// Whether the database has what the call is about.
    fn may_make(&self, call: Call) -> bool {
        match call {
            Call::Merge => self.habits.operator.is_some(),
            Call::DropSnapshot => !self.snapshots.is_empty(),
            Call::Sync => self.habits.is_named,
            Call::Checkpoint => self.habits.has_storage(),
            Call::MoveBound => self.shards > 1,
            _ => true,
        }
    }

    fn make(&mut self, call: Call, db: &Db) {
        self.done += 1;
        set_turn(self.done as usize);
        self.look_at_clock(db);
        match call {
            Call::Put => self.put(db, None),
            Call::PutExpiring => self.put_expiring(db),
            Call::Merge => self.merge(db),
            Call::PutIf => self.put_if(db),
            Call::Delete => self.delete(db),
            Call::Batch => self.batch(db),
            Call::Get => self.get(db),
            Call::MultiGet => self.multi_get(db),
            Call::Scan => self.scan(db),
            Call::OpenWalker => self.open_walker(db),
            Call::Walk => self.walk(),
            Call::DeleteRange => self.delete_range(db),
            Call::TakeSnapshot => self.take_snapshot(db),
            Call::ReadSnapshot => self.read_snapshot(db),
            Call::DropSnapshot => self.drop_snapshot(),
            Call::Flush => self.flush(db),
            Call::CompactRange => self.compact_range(db),
            // A step that flushes waits for the log.
            Call::Sync => self.alone(|calls| calls.sync(db)),
            Call::PassTime => self.pass_time(db),
            Call::Checkpoint => self.checkpoint(db),
            Call::MoveBound => self.alone(|calls| calls.move_bound(db)),
        }
    }

    /// Makes a call during which no step may run.
    fn alone<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.is_alone.store(true, Ordering::Relaxed);
        let result = call(self);
        self.is_alone.store(false, Ordering::Relaxed);
        result
    }

    /// Returns the result, if there was one. A failure must be one that the run's faults explain.
    pub(crate) fn answered<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(answer) => Some(answer),
            Err(error) => {
                let is_explained = match error.kind() {
                    ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Closed => true,
                    ErrorKind::Full => {
                        self.full += 1;
                        self.habits.may_be_full || self.habits.storage_fails
                    }
                    ErrorKind::Io | ErrorKind::Busy => self.habits.storage_fails,
                    ErrorKind::Fenced => self.may_be_fenced.load(Ordering::Relaxed),
                    kind => self.damage.explains(kind),
                };
                assert!(is_explained, "{}: {error}", error.kind());
                self.failed += 1;
                None
            }
        }
    }

    pub(crate) fn key(&mut self) -> Vec<u8> {
        match self.random.below(self.habits.keys) {
            0 => Vec::new(),
            number => format!("{number:0width$}", width = 1 + (number % 23) as usize).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let (most, large) = (self.habits.value_bytes, self.habits.large_value_bytes);
        let is_large = self.habits.swarm.happens(Event::LargeValue, &mut self.random);
        let length = if is_large { large } else { self.random.below(most) };
        let mut value = vec![0; length as usize];
        self.random.fill(&mut value);
        value
    }

    /// Two keys in order, usually near each other.
    pub(crate) fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        let is_wide = self.habits.swarm.happens(Event::WideRange, &mut self.random);
        let b = match self.random.one_in(1, 2) {
            _ if is_wide => b,
            true => [&a[..], b"5"].concat(),
            false => [&a[..a.len() - a.len() / 8], b"6"].concat(),
        };
        if self.habits.order.compare(&a, &b).is_le() { (a, b) } else { (b, a) }
    }

    /// Puts a value that expires at once, some time, or never.
    fn put_expiring(&mut self, db: &Db) {
        let expiry_ms = match self.random.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.clock.latest_ms() + self.random.below(MOST_LIFE_MS),
        };
        self.put(db, Some(expiry_ms));
    }

    fn put(&mut self, db: &Db, expiry_ms: Option<u64>) {
        let (key, value) = (self.key(), self.value());
        let options = self.write_options();
        self.write(
            db,
            options,
            |options| match expiry_ms {
                Some(expiry_ms) => db.put_expiring_with(&key, &value, expiry_ms, options),
                None => db.put_with(&key, &value, options),
            },
            |model| model.put(&key, &value, expiry_ms),
        );
    }

    fn operand(&mut self) -> Vec<u8> {
        let mut operand = vec![0; self.random.below(OPERAND_BYTES) as usize];
        self.random.fill(&mut operand);
        operand
    }

    fn merge(&mut self, db: &Db) {
        let Some(operator) = self.habits.operator else { return };
        let (key, operand) = (self.key(), self.operand());
        let options = self.write_options();
        self.write(
            db,
            options,
            |options| db.merge_with(&key, &operand, options),
            |model| model.merge(&key, |value| operator.applied(value, &operand)),
        );
    }

    /// Makes a write, and notes its effect on the model if it has one. Returns whether it has.
    fn write(
        &mut self,
        db: &Db,
        options: WriteOptions,
        write: impl FnOnce(&WriteOptions) -> Result<(), Error>,
        effect: impl FnOnce(&mut Model),
    ) -> bool {
        let is_taken_over = self.may_be_fenced.load(Ordering::Relaxed);
        let before = self.numbers(db);
        // Records that moved between shards since the last call took numbers that are not this write's.
        self.journal.wrote(&before, self.model.now());
        // A step that flushes waits for the log.
        self.is_alone.store(self.habits.has_copies(), Ordering::Relaxed);
        let result = write(&options);
        self.is_alone.store(false, Ordering::Relaxed);
        let is_refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
        // Numbers do not tell this. A write to keys that a moving bound holds first records the bound, and then the shard
        // that the keys leave deletes its copies of them. If the write fails afterwards, the deletion has taken numbers.
        let has_effect = result.as_ref().map_or_else(Error::is_published, |()| true);
        let has_failed = !is_refused && self.answered(result).is_none();
        let after = self.numbers(db);
        if has_effect {
            self.model.begin_write();
            effect(&mut self.model);
        }
        self.journal.wrote(&after, self.model.now());
        if self.habits.has_copies() && self.is_durable(&options) {
            self.journal.crossed(&before, &after);
        }
        // An empty batch waits for nothing.
        if has_effect && !has_failed && before != after && self.is_durable(&options) {
            assert!(!is_taken_over, "a process logged a write to what another one had taken over");
            // If each shard has a log, only the shards that were written to are known to be logged.
            let is_logged = |(before, after): (&u64, &u64)| !self.habits.has_copies() || before != after;
            let logged: Vec<u64> =
                before.iter().zip(&after).map(|pair| if is_logged(pair) { *pair.1 } else { 0 }).collect();
            self.journal.survives(&logged);
            self.forget();
        }
        if has_failed && self.habits.has_storage() && self.random.one_in(1, 2) {
            self.resume(db);
        }
        has_effect
    }

    /// Draws the options of the next write.
    fn write_options(&mut self) -> WriteOptions {
        let is_other = self.habits.swarm.happens(Event::OtherDurability, &mut self.random);
        let durability = is_other.then(|| match self.random.one_in(1, 2) {
            true => Durability::None,
            false => Durability::Storage(Syncing::Sync),
        });
        let is_allowed = |durability: &Durability| match durability {
            Durability::None => self.habits.may_fail_late(),
            _ => self.habits.has_storage(),
        };
        WriteOptions { durability: durability.filter(is_allowed) }
    }

    /// Whether a write that succeeded is durable.
    fn is_durable(&self, options: &WriteOptions) -> bool {
        matches!(
            options.durability.unwrap_or(self.habits.durability),
            Durability::Storage(Syncing::Sync) | Durability::Memory { .. }
        )
    }

    /// Makes writes durable again after a failed sync.
    fn resume(&mut self, db: &Db) {
        let result = db.resume();
        self.answered(result);
    }

    /// Makes a write under the condition that another key has a value, or has none.
    fn put_if(&mut self, db: &Db) {
        let (key, value, other) = (self.key(), self.value(), self.key());
        let is_there = self.model.get(&other, self.model.now()).is_some();
        let wants = self.random.one_in(1, 2);
        let mut batch = WriteBatch::new();
        batch.put(&key, &value);
        if wants {
            batch.require_present(&other)
        } else {
            batch.require_absent(&other)
        };
        // Over several shards, a failed write may have taken numbers for nothing.
        let is_lowered = self.habits.may_fail_late() && self.shards > 1;
        let lowered = WriteOptions { durability: Some(Durability::None) };
        let options = if is_lowered { lowered } else { self.write_options() };
        let mut is_refused = false;
        let is_written = self.write(
            db,
            options,
            |options| {
                let result = db.write_with(&batch, options);
                is_refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
                result
            },
            |model| model.put(&key, &value, None),
        );
        assert!(!is_refused || wants != is_there, "a condition holds, and the write was refused");
        assert!(!is_written || wants == is_there, "a condition does not hold");
    }

    fn delete(&mut self, db: &Db) {
        let key = self.key();
        self.delete_key(db, &key);
    }

    fn delete_key(&mut self, db: &Db, key: &[u8]) -> bool {
        let options = self.write_options();
        self.write(db, options, |options| db.delete_with(key, options), |model| model.delete(key))
    }

    fn delete_range(&mut self, db: &Db) {
        let (from, to) = self.range();
        self.delete_from_to(db, &from, &to);
    }

    fn delete_from_to(&mut self, db: &Db, from: &[u8], to: &[u8]) -> bool {
        let (options, order) = (self.write_options(), self.habits.order);
        let mut batch = WriteBatch::new();
        batch.delete_range(from, to);
        self.write(db, options, |options| db.write_with(&batch, options), |model| model.delete_range(from, to, order))
    }

    /// Deletes every key. Returns whether this was done. In reverse order the empty key is the last one, so no range ends
    /// after it.
    pub(crate) fn delete_all(&mut self, db: &Db) -> bool {
        match self.habits.order {
            KeyOrder::Bytewise => self.delete_from_to(db, b"", b"~"),
            KeyOrder::ReverseBytewise => self.delete_from_to(db, b"~", b"") && self.delete_key(db, b""),
        }
    }

    /// Puts a value of `bytes` bytes under each key. Returns whether all of them were accepted.
    pub(crate) fn put_much(&mut self, db: &Db, bytes: usize) -> bool {
        let options = self.write_options();
        let value = vec![b'v'; self.habits.value_bytes as usize];
        (0..bytes.div_ceil(value.len())).all(|number| {
            let key = format!("{number:05}").into_bytes();
            let put = |options: &WriteOptions| db.put_with(&key, &value, options);
            self.write(db, options, put, |model| model.put(&key, &value, None))
        })
    }

    fn batch(&mut self, db: &Db) {
        enum Part {
            Set(Vec<u8>, Option<Vec<u8>>),
            Merge(Operator, Vec<u8>, Vec<u8>),
            DeleteRange(Vec<u8>, Vec<u8>),
        }
        let mut batch = WriteBatch::new();
        let mut parts = Vec::new();
        for _ in 0..self.random.below(8) {
            let key = self.key();
            parts.push(match (self.random.below(10), self.habits.operator) {
                (0..3, _) => Part::Set(key, None),
                (4, Some(operator)) => Part::Merge(operator, key, self.operand()),
                (3, _) => {
                    let (from, to) = self.range();
                    Part::DeleteRange(from, to)
                }
                _ => Part::Set(key, Some(self.value())),
            });
        }
        for part in &parts {
            match part {
                Part::Set(key, Some(value)) => batch.put(key, value),
                Part::Set(key, None) => batch.delete(key),
                Part::Merge(_, key, operand) => batch.merge(key, operand),
                Part::DeleteRange(from, to) => batch.delete_range(from, to),
            };
        }
        let (options, order) = (self.write_options(), self.habits.order);
        self.write(
            db,
            options,
            |options| db.write_with(&batch, options),
            |model| {
                for part in &parts {
                    match part {
                        Part::Set(key, Some(value)) => model.put(key, value, None),
                        Part::Set(key, None) => model.delete(key),
                        Part::Merge(operator, key, operand) => {
                            model.merge(key, |value| operator.applied(value, operand));
                        }
                        Part::DeleteRange(from, to) => model.delete_range(from, to, order),
                    }
                }
            },
        );
    }

    /// Returns each shard's published number, if that tells what outlives the process.
    fn numbers(&self, db: &Db) -> Vec<u64> {
        if self.habits.is_named { published(db) } else { Vec::new() }
    }

    /// Moves a bound between shards, or rebalances shards. Meanwhile no write changes the contents of the database.
    fn move_bound(&mut self, db: &Db) {
        let bounds = db.shard_bounds();
        if self.random.one_in(1, 4) {
            let result = db.rebalance();
            self.answered(result);
        } else {
            let at = self.random.below((bounds.len() as u64 + 1).min(self.shards - 1)) as usize;
            let to = self.key();
            let is_behind = |bound: &Vec<u8>| self.habits.order.compare(bound, &to).is_lt();
            let is_before = |bound: &Vec<u8>| self.habits.order.compare(&to, bound).is_lt();
            if at.checked_sub(1).is_some_and(|at| !is_behind(&bounds[at])) || !bounds.get(at + 1).is_none_or(is_before)
            {
                return;
            }
            let result = db.move_bound(at, &to);
            self.answered(result);
        }
        let numbers = self.numbers(db);
        self.journal.wrote(&numbers, self.model.now());
    }

    /// Flushes. Writes before the call outlive the process once the flush has returned.
    pub(crate) fn flush(&mut self, db: &Db) {
        let numbers = published(db);
        let result = db.flush();
        if self.answered(result).is_some() {
            self.journal.survives(&numbers);
            self.forget();
        }
    }

    /// Compacts the whole database, or a range of it.
    fn compact_range(&mut self, db: &Db) {
        let (lower, upper) = self.range();
        let all = self.random.one_in(1, 2);
        let bounds = if all { (None, None) } else { (Some(&lower[..]), Some(&upper[..])) };
        let result = db.compact_range(bounds.0, bounds.1);
        self.answered(result);
    }

    /// Logs what was written so far, which outlives the process once the call has returned. A process that was taken
    /// over cannot do so.
    fn sync(&mut self, db: &Db) {
        let numbers = published(db);
        let logged = db.statistics().log.bytes;
        let is_taken_over = self.may_be_fenced.load(Ordering::Relaxed);
        let result = db.sync();
        if self.answered(result).is_some() {
            let has_logged = db.statistics().log.bytes > logged;
            assert!(!(is_taken_over && has_logged), "a process logged to what another one had taken over");
            self.journal.survives(&numbers);
            self.forget();
        }
    }

    /// Compacts everything down to the last level.
    pub(crate) fn compact_all(&mut self, db: &Db) {
        let result = db.compact_range(None, None);
        self.answered(result);
    }

    fn take_snapshot(&mut self, db: &Db) {
        if self.snapshots.len() == HELD {
            self.snapshots.remove(0);
        }
        self.snapshots.push((db.snapshot(), self.model.now()));
        self.forget();
    }

    fn drop_snapshot(&mut self) {
        let at = self.random.below(self.snapshots.len() as u64) as usize;
        self.snapshots.swap_remove(at);
        self.forget();
    }

    /// Holds an iterator from now on.
    pub(crate) fn hold(&mut self, walker: Walker) {
        if self.walkers.len() == HELD {
            self.walkers.remove(0);
        }
        self.walkers.push(walker);
        self.forget();
    }

    /// Makes the model forget what can no longer be asked for.
    pub(crate) fn forget(&mut self) {
        let snapshots = self.snapshots.iter().map(|snapshot| snapshot.1);
        let walkers = self.walkers.iter().map(Walker::moment);
        let found = self.habits.is_named.then(|| self.journal.oldest());
        let oldest = snapshots.chain(walkers).chain(found).chain(self.kept_from).min();
        self.model.forget_before(oldest.unwrap_or(self.model.now()));
    }
}
