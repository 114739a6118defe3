//! One seed from the start to the end.

use crate::calls::Calls;
use crate::stage::Stage;
use forebay_base::KeyOrder;
use forebay_engine::{CompactionPlace, Db, Options, ShardBounds, Statistics};
use forebay_env::Random;
use forebay_fabric::sim::Faults;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Calls made at least.
    pub operations: u64,
}

/// What a run has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Calls.
    pub operations: u64,
    /// Calls that failed, as the faults explain.
    pub failed: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions.
    pub compactions: u64,
    /// Compactions that the memory node ran.
    pub near_data_compactions: u64,
    /// Databases opened after the first one was lost.
    pub losses: u64,
    /// Steps of background work while a call waited.
    pub nested_steps: u64,
    /// Calls while a step of background work waited.
    pub nested_calls: u64,
}

impl Report {
    /// Adds what another run has done.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.failed += other.failed;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.near_data_compactions += other.near_data_compactions;
        self.losses += other.losses;
        self.nested_steps += other.nested_steps;
        self.nested_calls += other.nested_calls;
    }

    fn add_statistics(&mut self, statistics: &Statistics) {
        self.flushes += statistics.flushes;
        self.compactions += statistics.compactions;
        self.near_data_compactions += statistics.near_data_compactions;
    }
}

/// Runs a seed.
///
/// # Errors
/// What was found, in words.
pub fn run_seed(seed: u64, options: &RunOptions) -> Result<Report, String> {
    std::panic::catch_unwind(AssertUnwindSafe(|| Run::new(seed, options).run())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

struct Run {
    random: Random,
    stage: Stage,
    options: Options,
    operations: u64,
    /// The call before which the memory node dies.
    crash_at: u64,
    report: Report,
}

impl Run {
    fn new(seed: u64, options: &RunOptions) -> Self {
        let mut random = Random::seeded(seed);
        let key_order = if random.one_in(1, 8) { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
        let calls_inside = random.one_in(1, 2);
        let faults = match random.below(4) {
            0 => Faults::default(),
            1 => Faults { lose_completion: 100, break_endpoint: 500, ..Faults::default() },
            2 => Faults { close_link: 10, crash_node: 10, ..Faults::default() },
            _ => Faults { lose_completion: 20, break_endpoint: 100, close_link: 5, crash_node: 5 },
        };
        let calls = Calls::new(Random::seeded(random.word()), key_order);
        let stage = Stage::new(random.word(), calls, calls_inside, faults);
        let shards = [1, 1, 2, 4][random.below(4) as usize];
        let engine = Options {
            key_order,
            shards,
            shard_bounds: ShardBounds::Given(bounds(shards, key_order)),
            write_buffer_bytes: 16 << 10,
            target_table_bytes: 16 << 10,
            level1_bytes: 64 << 10,
            level_size_multiplier: 4,
            levels: 5,
            // A call inside of a step cannot wait for the step.
            max_immutable_memtables: if calls_inside { 1000 } else { 1 + random.below(3) as usize },
            level0_slowdown_trigger: if calls_inside { 1000 } else { 12 },
            level0_stop_trigger: if calls_inside { 1000 } else { 16 },
            background_threads: 0,
            compaction_place: [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode][random.below(2) as usize],
            fabric_timeout: Duration::from_millis(100),
            clock: stage.network.clock(),
            ..Options::default()
        };
        let crash_at = options.operations / 4 + random.below(options.operations / 2 + 1);
        Self { random, stage, options: engine, operations: options.operations, crash_at, report: Report::default() }
    }

    fn run(mut self) -> Report {
        let mut db = self.stage.open(&self.options).expect("a database opens");
        let mut made = 0;
        while made < self.operations {
            if made >= self.crash_at {
                self.crash_at = u64::MAX;
                self.stage.crash_node();
            }
            if self.random.one_in(1, 64) {
                self.stage.step(&db);
            }
            made = self.stage.call(|calls| {
                calls.any_call(&db);
                calls.done
            });
            if db.failure().is_some() {
                db = self.replace(db);
            }
        }
        while self.stage.step(&db) {}
        self.stage.call(|calls| {
            calls.check_all(&db);
            calls.release();
        });
        self.stage.call(|calls| {
            calls.compact_all(&db);
            calls.check_all(&db);
        });
        self.end(db);
        self.stage.expect_nothing_in_use();
        self.report.operations = made;
        self.report.failed = self.stage.call(|calls| calls.failed);
        let nested = self.stage.nested();
        (self.report.nested_steps, self.report.nested_calls) = (nested.steps, nested.calls);
        self.report
    }

    /// Opens a database in place of one that has failed for good.
    fn replace(&mut self, db: Db) -> Db {
        self.report.losses += 1;
        self.stage.call(Calls::lost_everything);
        self.end(db);
        if !self.stage.node_runs() {
            self.stage.start_node();
        }
        self.stage.open(&self.options).expect("a database opens again")
    }

    fn end(&mut self, db: Db) {
        self.stage.forget();
        self.report.add_statistics(&db.statistics());
        // It says what it had failed with.
        let _ = db.close();
    }
}

/// Bounds between shards, ascending in the order.
fn bounds(shards: usize, order: KeyOrder) -> Vec<Vec<u8>> {
    let mut bounds: Vec<_> = (1..shards).map(|i| (2 * i).to_string().into_bytes()).collect();
    if order == KeyOrder::ReverseBytewise {
        bounds.reverse();
    }
    bounds
}
