//! One seed from start to end.

use crate::calls::Calls;
use crate::checkpoints::CheckpointCounts;
use crate::damage::DamageCounts;
use crate::draw::{Drawn, NAME, draw};
use crate::model::Model;
use crate::stage::{Process, Stage, Strike};
use crate::store::Store;
use crate::swarm::{Call, Event};
use forebay_base::ErrorKind;
use forebay_engine::{Cell, Db, MemoryDatabase, Shown, Statistics};
use forebay_env::thread::set_turn;
use forebay_env::{Random, SeededSecrets};
use forebay_storage::{ObjectInfo, SEAL_BYTES};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// From this many calls on, a run must have exercised everything that it is for.
const WHOLE_RUN: u64 = 20_000;
/// Calls of a process after its database was taken over.
const ZOMBIE_CALLS: u64 = 300;
/// Maximum number of compactions per flushed memtable, requested compactions included. Every run needs fewer. A run that
/// picks the same compaction again and again has more.
const MOST_COMPACTIONS: u64 = 50;
/// Maximum bytes of memory that a shard holds for its next flush and merge while memory is short.
const RESERVE_BYTES: u64 = 64 << 10;
/// The same of a database on storage, with what its version in storage still names and with what the block cache has not
/// filled.
const RESERVE_BYTES_OF_STORED: u64 = 512 << 10;

/// Tries to read a checkpoint.
const TRIES_TO_READ: usize = 200;
/// Tries to drop a clone, one a second.
const TRIES_TO_DROP: usize = 20;
/// Time within which failed background work is tried again.
const UNTIL_TRIED_AGAIN: Duration = Duration::from_millis(400);
/// Tries to repair damaged copies.
const TRIES_TO_MEND: usize = 50;
/// Ordinary maximum number of deliberate faults, and of those of a database with copies.
const MOST_FAULTS: u64 = 3;
const MOST_FAULTS_OF_COPIES: u64 = 12;
/// Maximum number of waits, and of operations of the storage, before a strike.
const STRIKES_WITHIN: u64 = 60;
/// Memtables that a database has room for when everything is deleted.
const MEMTABLES_AFTER: usize = 4;

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Minimum number of calls.
    pub operations: u64,
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// A hash of the network's whole schedule: equal for equal runs.
    pub fingerprint: u64,
    /// Calls.
    pub operations: u64,
    /// Failed calls that the faults explain.
    pub failed: u64,
    /// Of the failed calls, those that failed because the memory was full.
    pub full: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions.
    pub compactions: u64,
    /// Compactions that the memory node ran.
    pub near_data_compactions: u64,
    /// Compactions that workers ran.
    pub offloaded_compactions: u64,
    /// Segments in memory whose copies workers put into storage.
    pub offloaded_copies: u64,
    /// Workers killed.
    pub worker_kills: u64,
    /// Memory nodes crashed deliberately.
    pub crashes: u64,
    /// Compute nodes killed deliberately.
    pub kills: u64,
    /// Of these kills, those whose storage lost power.
    pub power_losses: u64,
    /// Databases taken over while their process lived.
    pub takeovers: u64,
    /// Databases reopened with the flushed data.
    pub recoveries: u64,
    /// Databases lost with their memory node, or because they had no name.
    pub losses: u64,
    /// Steps of background work while a call waited.
    pub nested_steps: u64,
    /// Calls while a step of background work waited.
    pub nested_calls: u64,
    /// What was damaged, and what became of it.
    pub damage: DamageCounts,
    /// Checkpoints.
    pub checkpoints: CheckpointCounts,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.fingerprint ^= other.fingerprint;
        self.operations += other.operations;
        self.failed += other.failed;
        self.full += other.full;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.near_data_compactions += other.near_data_compactions;
        self.offloaded_compactions += other.offloaded_compactions;
        self.offloaded_copies += other.offloaded_copies;
        self.worker_kills += other.worker_kills;
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.power_losses += other.power_losses;
        self.takeovers += other.takeovers;
        self.recoveries += other.recoveries;
        self.losses += other.losses;
        self.nested_steps += other.nested_steps;
        self.nested_calls += other.nested_calls;
        self.damage.add(&other.damage);
        self.checkpoints.add(&other.checkpoints);
    }

    fn add_statistics(&mut self, statistics: &Statistics) {
        self.flushes += statistics.flushes;
        self.compactions += statistics.compactions;
        self.near_data_compactions += statistics.near_data_compactions;
        self.offloaded_compactions += statistics.offloaded_compactions;
        self.offloaded_copies += statistics.offloaded_copies;
        self.damage.found += statistics.copies.damaged;
        self.damage.mended += statistics.copies.mended;
    }

    fn add_calls(&mut self, calls: &Calls) {
        self.operations += calls.done;
        self.failed += calls.failed;
        self.full += calls.full;
    }
}

/// Runs a seed.
///
/// # Errors
/// A description of the failure.
pub fn run_seed(seed: u64, options: &RunOptions) -> Result<Report, String> {
    let _secrets = SeededSecrets::begin(seed);
    caught(|| Run::new(seed, options).run()).map_err(|why| {
        let Drawn { kept, habits, nodes, .. } = draw(&mut Random::seeded(seed));
        format!("{why}\n{nodes} memory nodes, {kept:?}, {habits:?}")
    })
}

/// Runs `body`; a panic is an error with its text.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    CrashNode,
    Strike(Strike),
}

/// A process whose database was taken over.
struct Zombie {
    process: Process,
    calls: Calls,
    calls_left: u64,
    /// The process that took it over found a group cut that may have been acknowledged.
    may_lack_a_group: bool,
    /// The numbers that the process found which took it over.
    found: Vec<u64>,
}

struct Run {
    random: Random,
    stage: Stage,
    drawn: Drawn,
    operations: u64,
    /// Faults, each with the number of calls before it, the last one first.
    faults: Vec<(u64, Fault)>,
    zombie: Option<Zombie>,
    /// Draws when something is damaged.
    chance: Random,
    report: Report,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stage.leave();
    }
}

impl Run {
    fn new(seed: u64, options: &RunOptions) -> Self {
        // What ran on this thread before may have set another turn.
        set_turn(0);
        let mut random = Random::seeded(seed);
        let drawn = draw(&mut random);
        let stage = Stage::new(random.word(), drawn.clone());
        let operations = options.operations;
        let (is_named, has_copies) = (drawn.habits.is_named, drawn.kept.has_copies());
        let planned = 1 + random.below(if has_copies { MOST_FAULTS_OF_COPIES } else { MOST_FAULTS });
        let mut faults: Vec<_> = (0..planned * drawn.habits.swarm.factor(Event::Strike))
            .map(|_| {
                let at = operations / 8 + random.below(operations * 3 / 4 + 1);
                let fault = match random.below(if is_named { 8 } else { 2 }) {
                    0..3 if has_copies => Fault::Strike(Strike::LoseNode),
                    3 if has_copies => Fault::Strike(Strike::CutOff),
                    0 => Fault::CrashNode,
                    1..5 => Fault::Strike(Strike::Kill),
                    _ => Fault::Strike(Strike::TakeOver),
                };
                (at, fault)
            })
            .collect();
        let chance = Random::seeded(random.clone().word());
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.0));
        Self { random, stage, drawn, operations, faults, zombie: None, chance, report: Report::default() }
    }

    fn run(mut self) -> Report {
        let mut process = self.stage.open();
        self.begin(&process, Model::default());
        let mut made = 0;
        while made < self.operations {
            if self.faults.last().is_some_and(|fault| fault.0 <= made) {
                self.fault();
            }
            if self.happens(Event::Step) {
                self.stage.step(&process.db);
            }
            if self.drawn.habits.storage_fails && self.happens(Event::StorageFault) {
                process.store.iter().for_each(|store| store.fail_soon(&mut self.random));
            }
            self.stage.call(|calls| calls.any_call(&process.db));
            made += 1;
            if self.drawn.kept.is_stored() && self.happens(Event::CheckpointIsRead) {
                self.stage.read_some_checkpoint();
            }
            self.let_zombie_act();
            process = self.go_on(process);
            if self.drawn.rots {
                self.rot(&process);
            }
            if self.drawn.kept.has_copies() && self.happens(Event::NodesReturn) {
                self.stage.bring_nodes_back(&mut process);
            }
        }
        self.finish(process);
        let nested = self.stage.nested();
        (self.report.nested_steps, self.report.nested_calls) = (nested.steps, nested.calls);
        self.report.damage.add(&self.stage.damage.counts());
        self.report.checkpoints = self.stage.checkpoints.counts();
        self.report.fingerprint = self.stage.network.fingerprint();
        self.expect_whole_run();
        self.report
    }

    fn happens(&mut self, event: Event) -> bool {
        self.drawn.habits.swarm.happens(event, &mut self.random)
    }

    /// Begins calls on a database that was opened with the contents of the model.
    fn begin(&mut self, process: &Process, model: Model) -> Option<Calls> {
        let calls = self.stage.new_calls(Random::seeded(self.random.word()), self.drawn.habits, &process.db, model);
        self.stage.set_calls(calls)
    }

    /// Applies the next fault: now, or while somebody waits.
    fn fault(&mut self) {
        let Some((_, fault)) = self.faults.pop() else { return };
        match fault {
            Fault::CrashNode => {
                self.report.crashes += 1;
                self.stage.crash_node();
            }
            Fault::Strike(strike) if self.random.one_in(1, 3) => self.stage.strike(strike),
            Fault::Strike(strike) => {
                let after = self.random.below(STRIKES_WITHIN);
                if self.random.one_in(1, 2) || !self.stage.arm_in_storage(strike, after) {
                    self.stage.arm(strike, after, self.random.one_in(1, 2));
                }
            }
        }
    }

    /// Continues with the process that has the database open now.
    fn go_on(&mut self, process: Process) -> Process {
        if self.stage.has_successor() {
            // Nobody else is struck until the strike is taken.
            self.end_zombie();
        }
        match self.stage.take_struck() {
            Some((Strike::TakeOver, Some(successor))) => {
                self.report.takeovers += 1;
                self.taken_over(process, successor)
            }
            Some(_) => {
                self.report.kills += 1;
                if self.stage.store().is_some() && self.random.one_in(1, 2) {
                    self.lose_power(&process);
                }
                self.open_again(process)
            }
            None if process.db.failure().is_some() || self.is_given_up(&process) || self.is_restarted() => {
                self.open_again(process)
            }
            None => process,
        }
    }

    /// Begins damage. While something is damaged, strikes the process so that the database is opened, or ends the damage.
    fn rot(&mut self, process: &Process) {
        let swarm = self.drawn.habits.swarm;
        if !self.stage.damage.is_under_way() {
            if swarm.happens(Event::Damage, &mut self.chance) {
                self.stage.damage.come_soon();
            }
        } else if swarm.happens(Event::DamageEnds, &mut self.chance) {
            match self.chance.below(4) {
                0 => self.stage.strike(Strike::Kill),
                1 => self.stage.strike(Strike::TakeOver),
                _ => {
                    self.end_damage(process);
                }
            }
        }
    }

    /// Restores what is damaged in storage, or repairs damaged copies. Then nothing is damaged. Returns whether that
    /// could be done now.
    fn end_damage(&mut self, process: &Process) -> bool {
        if self.stage.damage.node().is_some() && !self.mend_copies(process) {
            return false;
        }
        let is_of_storage = self.stage.damage.is_of_storage();
        if is_of_storage {
            // The zombie may remember damage for ever, because nothing that it tries succeeds.
            self.end_zombie();
        }
        self.stage.damage.end(self.stage.store().as_ref());
        if is_of_storage {
            self.stage.network.clock().sleep(UNTIL_TRIED_AGAIN);
            self.stage.settle(&process.db);
        }
        if self.chance.one_in(1, 4) {
            self.stage.call(|calls| calls.check_all(&process.db));
        }
        true
    }

    /// Checks and repairs all copies. Afterwards none is damaged.
    fn mend_copies(&mut self, process: &Process) -> bool {
        let looked = process.db.mend_copies(&mut |_| ());
        let Some(report) = self.stage.call(|calls| calls.answered(looked)) else { return false };
        assert!(report.problems.is_empty(), "damage of one copy is not mended: {:?}", report.problems);
        let found = process.db.statistics().copies.damaged;
        let looked = process.db.mend_copies(&mut |_| ());
        let is_looked_at = self.stage.call(|calls| calls.answered(looked)).is_some();
        assert_eq!(process.db.statistics().copies.damaged, found, "copies are damaged after they were mended");
        is_looked_at
    }

    /// Whether somebody gives up a process that lost a node or lacks copies. A database may not notice the loss of a node
    /// that holds little or nothing of it.
    fn is_given_up(&mut self, process: &Process) -> bool {
        self.happens(Event::GivingUp) && (!self.stage.lives_on(process) || process.db.missing_copies() > 0)
    }

    /// Whether somebody reopens a storage that fails. That may be necessary.
    fn is_restarted(&mut self) -> bool {
        self.drawn.habits.storage_fails && self.happens(Event::Reopening)
    }

    fn taken_over(&mut self, process: Process, successor: Process) -> Process {
        // A strike that comes where the zombie uses its storage would meet the successor.
        process.store.iter().for_each(Store::forget_interrupt);
        self.stage.set_process(&successor);
        let calls = self.recover(&successor);
        let (found, may_lack_a_group) = (successor.found.clone(), successor.may_lack_a_group);
        self.zombie = Some(Zombie { process, calls, calls_left: ZOMBIE_CALLS, may_lack_a_group, found });
        successor
    }

    /// Cuts the power of the machine on which all processes run.
    fn lose_power(&mut self, process: &Process) {
        self.report.power_losses += 1;
        process.kill();
        self.zombie.iter().for_each(|zombie| zombie.process.kill());
        self.end_zombie();
        self.stage.lose_power(&mut self.random);
    }

    /// Reopens the database after it has failed for good.
    fn open_again(&mut self, process: Process) -> Process {
        if self.drawn.rots {
            // The zombie would remember damage that is undone meanwhile.
            self.end_zombie();
        }
        self.stage.call(Calls::release);
        self.end(process.db.clone());
        let next = self.successor().unwrap_or_else(|| self.stage.open());
        let has_outlived = self.drawn.kept.outlives_nodes() || next.has_nodes_of(&process);
        if self.drawn.habits.is_named && has_outlived {
            drop(process);
            let calls = self.recover(&next);
            self.report.add_calls(&calls);
        } else {
            drop(process);
            self.report.losses += 1;
            let calls = self.begin(&next, Model::default());
            calls.iter().for_each(|calls| self.report.add_calls(calls));
        }
        next
    }

    /// Returns the process that took the database over while the last one was being ended, if any.
    fn successor(&mut self) -> Option<Process> {
        let (_, successor) = self.stage.take_struck()?;
        let successor = successor?;
        self.report.takeovers += 1;
        self.stage.set_process(&successor);
        Some(successor)
    }

    /// Continues with the expected contents of a reopened database, and returns the earlier calls.
    fn recover(&mut self, process: &Process) -> Calls {
        self.report.recoveries += 1;
        let bounds = process.db.shard_bounds();
        let order = self.drawn.habits.order;
        let may_lack_a_group = process.may_lack_a_group;
        let model = self.stage.call(|calls| {
            if may_lack_a_group && calls.journal.lacks(&process.found) {
                self.stage.damage.group_was_cut();
            }
            calls.journal.recovered(&calls.model, order, &bounds, &process.found, may_lack_a_group)
        });
        let calls = self.begin(process, model).expect("there were calls before");
        self.stage.call(|calls| calls.check_all(&process.db));
        calls
    }

    /// Lets a process whose database was taken over continue as if nothing had happened.
    fn let_zombie_act(&mut self) {
        let Some(zombie) = &mut self.zombie else { return };
        if !self.random.one_in(1, 4) {
            return;
        }
        zombie.calls.any_call(&zombie.process.db);
        if self.random.one_in(1, 8) {
            zombie.process.db.run_background_step();
        }
        zombie.calls_left -= 1;
        if zombie.calls_left == 0 {
            self.end_zombie();
        }
    }

    /// Ends the zombie. What it says is durable was so before it was taken over, even if it flushes now.
    fn end_zombie(&mut self) {
        let Some(Zombie { process, mut calls, may_lack_a_group, found, .. }) = self.zombie.take() else { return };
        calls.flush(&process.db);
        let is_there = may_lack_a_group || !calls.journal.lacks(&found);
        assert!(is_there, "a process flushed what another one had taken over: {found:?}, {:?}", calls.journal);
        calls.release();
        self.report.add_calls(&calls);
        self.report.add_statistics(&process.db.statistics());
        let closed = process.db.close();
        process.kill();
        if let Err(error) = closed {
            let explained = [ErrorKind::Fenced, ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Closed];
            let is_of_storage = self.drawn.habits.storage_fails || self.stage.damage.explains(error.kind());
            let is_explained = explained.contains(&error.kind()) || is_of_storage;
            assert!(is_explained, "{}: {error}", error.kind());
        }
    }

    fn finish(&mut self, mut process: Process) {
        // A process that took over later would own the database, and nobody would continue with that process.
        self.stage.disarm();
        process.store.iter().for_each(Store::forget_interrupt);
        process = self.go_on(process);
        self.end_zombie();
        self.stage.damage.come_no_more();
        for tries in 0.. {
            if self.end_damage(&process) {
                break;
            }
            assert!(tries < TRIES_TO_MEND, "damaged copies are not mended");
            self.stage.bring_nodes_back(&mut process);
            self.stage.settle(&process.db);
            process = self.go_on(process);
        }
        self.stage.call(|calls| calls.release());
        self.stage.neighbour.iter().for_each(|neighbour| neighbour.leave());
        if self.drawn.habits.may_be_full {
            process = self.make_room(process);
        }
        self.stage.settle(&process.db);
        self.stage.call(|calls| calls.check_all(&process.db));
        self.stage.call(|calls| {
            calls.compact_all(&process.db);
            calls.check_all(&process.db);
        });
        if self.drawn.habits.is_named {
            process = self.leave_and_return(process);
        }
        self.end(process.db.clone());
        if self.drawn.habits.is_named {
            self.destroy(&process);
        }
        process.kill();
        drop(process);
        self.stage.call(|calls| self.report.add_calls(calls));
        self.report.worker_kills += self.stage.workers.leave();
        self.report.crashes += self.stage.losses();
        self.stage.expect_nothing_in_use();
    }

    /// Deletes everything. Whatever filled the memory, there must be room for several memtables then.
    fn make_room(&mut self, mut process: Process) -> Process {
        let much = MEMTABLES_AFTER * self.drawn.engine.write_buffer_bytes;
        for _ in 0..100 {
            if self.stage.call(|calls| calls.delete_all(&process.db)) {
                self.stage.call(|calls| calls.compact_all(&process.db));
                if self.stage.call(|calls| calls.put_much(&process.db, much)) {
                    return process;
                }
            }
            process = if self.drawn.habits.storage_fails { self.open_again(process) } else { self.go_on(process) };
            self.stage.settle(&process.db);
            self.stage.network.clock().sleep(Duration::from_millis(100));
        }
        panic!("the memory stays full: {:?}", process.db.statistics());
    }

    /// Closes a named database properly and reopens it. All of its contents exist, and nothing else takes memory.
    fn leave_and_return(&mut self, process: Process) -> Process {
        self.stage.call(|calls| calls.flush(&process.db));
        let next = self.open_again(process);
        self.stage.settle(&next.db);
        self.stage.call(|calls| calls.check_all(&next.db));
        let figures = next.db.statistics();
        if next.db.failure().is_none() && self.drawn.is_faultless() {
            let own = self.own_bytes(&figures);
            assert!(
                figures.remote_bytes <= figures.named_bytes + own,
                "more memory than the versions name, and {own} bytes: {figures:?}"
            );
        }
        self.drop_checkpoints(&next);
        next
    }

    /// Maximum bytes of memory that the shards hold and no version names: their manifests, with a spare each, and reserves.
    /// Manifests of one shard may differ in length: the longest counts. The block cache has at most twice the memory of the
    /// blocks that it holds there: it writes a block again only from the older half of its memory.
    fn own_bytes(&self, figures: &Statistics) -> u64 {
        let shards = self.drawn.engine.shards as u64;
        if self.drawn.kept.is_stored() {
            return shards * RESERVE_BYTES_OF_STORED + 2 * figures.block_cache.below_bytes;
        }
        let shown = self.stage.look(|clients| MemoryDatabase::new(clients, NAME)?.show(&Shown::Manifest, usize::MAX));
        let report = shown.expect("a session that owns nothing can look at the database");
        let mut longest = BTreeMap::new();
        for section in report.sections.iter().filter(|section| section.name == "manifests") {
            for row in &section.rows {
                let number = |column| match section.columns.iter().zip(row).find(|(name, _)| **name == column) {
                    Some((_, Cell::Number(number))) => *number,
                    _ => 0,
                };
                let capacity = longest.entry(number("shard")).or_insert(0);
                *capacity = number("capacity").max(*capacity);
            }
        }
        longest.into_values().map(|capacity| 2 * capacity).sum::<u64>() + shards * RESERVE_BYTES
    }

    /// Checks that all checkpoints are what they were, and drops them: a database with checkpoints cannot be dropped.
    fn drop_checkpoints(&self, process: &Process) {
        for name in self.stage.checkpoints.sure() {
            let is_read = (0..TRIES_TO_READ).any(|_| {
                self.stage.start_again();
                self.stage.read_checkpoint(&name)
            });
            assert!(is_read, "the checkpoint {name:?} cannot be read");
        }
        if self.drawn.kept.is_stored() {
            let has_none = (0..TRIES_TO_DROP).any(|_| {
                // The lease of the process that had the clone open runs out.
                self.stage.network.clock().sleep(Duration::from_secs(1));
                self.stage.drop_clone(process)
            });
            let are_dropped = has_none && self.stage.call(|calls| calls.drop_checkpoints(&process.db));
            assert!(are_dropped || !self.drawn.is_faultless(), "checkpoints cannot be dropped");
        }
    }

    fn destroy(&mut self, process: &Process) {
        let clients = process.clients();
        let storage = process.store.as_ref().map(|store| store.storage(self.random.word()));
        let destroy = || match &storage {
            Some(storage) if self.drawn.kept.has_copies() => Db::destroy_copied(storage, clients, NAME),
            Some(storage) => Db::destroy_stored(storage, clients, NAME),
            None => Db::destroy(clients, NAME),
        };
        let is_gone = (0..20).any(|_| match destroy() {
            Err(error) => error.kind() == ErrorKind::NotFound,
            Ok(()) => true,
        });
        if let Some(storage) = storage.filter(|_| is_gone && self.drawn.is_faultless()) {
            let left = storage.objects().list(None).expect("storage that does not fail");
            let is_left = |object: &&ObjectInfo| {
                let is_of = |folder| object.name.as_str().contains(folder);
                is_of("/segment/") || (is_of("/log/") && object.size_bytes > SEAL_BYTES)
            };
            let left: Vec<_> = left.iter().filter(is_left).collect();
            assert!(left.is_empty(), "a database that was dropped is left in storage: {left:?}");
        }
        let may_remain = !self.drawn.is_faultless() || !self.stage.lives_on(process);
        assert!(is_gone || may_remain, "a database that nobody has open cannot be dropped");
        if !is_gone {
            // A link broke, or a node was lost with its part: all nodes are crashed, with everything that they hold.
            self.stage.crash_nodes();
        }
    }

    fn end(&mut self, db: Db) {
        self.stage.forget();
        self.report.add_statistics(&db.statistics());
        // A failed database returns the error that it had failed with.
        let _ = db.close();
    }

    fn expect_whole_run(&self) {
        if self.operations < WHOLE_RUN {
            return;
        }
        let Report { operations, flushes, compactions, crashes, kills, takeovers, recoveries, losses, .. } =
            self.report;
        assert!(operations >= self.operations);
        assert!(flushes >= 2 && compactions >= 3, "too little went on: {:?}", self.report);
        assert!(compactions <= MOST_COMPACTIONS * flushes, "compactions without end: {:?}", self.report);
        let CheckpointCounts { made, dropped, read } = self.report.checkpoints;
        let Drawn { habits, kept, .. } = &self.drawn;
        let has_checkpoints = made > 0 && dropped > 0;
        let wants_checkpoints = kept.is_stored() && habits.swarm.makes(Call::Checkpoint);
        assert!(has_checkpoints || !wants_checkpoints, "no checkpoints: {:?}", self.report);
        let wants_readers = wants_checkpoints && habits.swarm.factor(Event::CheckpointIsRead) > 0;
        assert!(read > 0 || !wants_readers, "no checkpoint was read: {:?}", self.report);
        // A storage that fails may be reopened before a planned fault comes. One of several copies may be lost.
        let has_faults = crashes + kills + takeovers > 0 || habits.storage_fails || kept.has_copies();
        let wants_faults = habits.swarm.factor(Event::Strike) > 0;
        assert!(has_faults && recoveries + losses > 0 || !wants_faults, "nothing went wrong: {:?}", self.report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_ended_frees_its_nodes() {
        let run = Run::new(3, &RunOptions { operations: 50 });
        let nodes = run.stage.weak_nodes();
        assert!(nodes.upgrade().is_some());
        run.run();
        assert!(nodes.upgrade().is_none(), "the network and its nodes hold each other");
    }
}
