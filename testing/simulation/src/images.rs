//! Images of a database's storage: what is found when power fails before any of its operations, with some of what was not
//! synced. Each image can be verified as it is, opens, and holds what was acknowledged, as do its checkpoints.

use crate::calls::Calls;
use crate::checkpoints::Checkpoints;
use crate::draw::{Drawn, NAME, draw_imaged};
use crate::journal::{Journal, published};
use crate::model::Model;
use crate::run::caught;
use crate::stage::{Process, Stage};
use crate::store::Store;
use forebay_engine::StoredDatabase;
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Random, SeededSecrets};
use std::sync::Arc;

/// Maximum number of operations before an image is taken. Many calls have fewer; most flushes and compactions have more.
const TAKEN_WITHIN: u64 = 24;
/// Memory of each node with which an image is opened.
const MEMORY_BYTES: u64 = 8 << 20;

/// What is found, and what the checkpoints there may hold.
type Image = (Store, Checkpoints);

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageReport {
    /// Images that were taken and opened.
    pub images: u64,
    /// Calls made meanwhile.
    pub calls: u64,
    /// Images with writes in their log that no table had.
    pub replayed: u64,
    /// Images whose log had a torn end.
    pub cut: u64,
}

impl ImageReport {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.calls += other.calls;
        self.replayed += other.replayed;
        self.cut += other.cut;
    }
}

/// Runs a seed until this many images were taken.
///
/// # Errors
/// A description of the failure.
pub fn run_images(seed: u64, images: u64) -> Result<ImageReport, String> {
    let _secrets = SeededSecrets::begin(seed);
    caught(|| Images::new(seed).run(images))
}

struct Images {
    random: Random,
    drawn: Drawn,
    stage: Stage,
    report: ImageReport,
}

impl Drop for Images {
    fn drop(&mut self) {
        self.stage.leave();
    }
}

impl Images {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let drawn = draw_imaged(&mut random);
        let stage = Stage::new(random.word(), drawn.clone());
        Self { random, drawn, stage, report: ImageReport::default() }
    }

    fn run(mut self, images: u64) -> ImageReport {
        let process = self.stage.open();
        let calls = self.calls(&process, Model::default());
        self.stage.set_calls(calls);
        while self.report.images < images {
            self.report.calls += 1;
            let before = self.stage.call(|calls| {
                let journal = calls.journal.clone();
                calls.kept_from = Some(journal.oldest());
                journal
            });
            let taken = self.take_soon(&process);
            self.stage.call(|calls| calls.any_call(&process.db));
            if self.random.one_in(1, 8) {
                self.stage.step(&process.db);
            }
            if let Some(image) = lock(&taken).take() {
                self.check(image, before, &process);
            }
        }
        process.store.iter().for_each(Store::forget_interrupt);
        self.stage.call(Calls::release);
        // Its sessions are renewed until it is closed, which may take longer than a lease.
        process.db.close().expect("nothing goes wrong");
        self.stage.forget();
        self.report
    }

    fn calls(&mut self, process: &Process, model: Model) -> Calls {
        self.stage.new_calls(Random::seeded(self.random.word()), self.drawn.habits, &process.db, model)
    }

    /// Plans that an image is taken before one of the next operations.
    fn take_soon(&mut self, process: &Process) -> Arc<Mutex<Option<Image>>> {
        let taken = Arc::<Mutex<Option<Image>>>::default();
        if let (Some(store), Some(of)) = (&process.store, self.stage.store()) {
            let (into, mut random) = (Arc::clone(&taken), Random::seeded(self.random.word()));
            let checkpoints = Arc::clone(&self.stage.checkpoints);
            let take = move || *lock(&into) = Some((of.image(&mut random), checkpoints.copy()));
            store.interrupt_after(self.random.below(TAKEN_WITHIN), take);
        }
        taken
    }

    /// Opens and checks an image that was taken after the journal was in the state `before`.
    fn check(&mut self, (image, checkpoints): Image, mut before: Journal, process: &Process) {
        self.report.images += 1;
        let looked = StoredDatabase::new(&image.handle().storage(0), NAME).expect("an image has the database");
        let verified = looked.verify(&mut |_| ()).expect("an image can be listed");
        assert!(verified.problems.is_empty(), "an image has problems: {:?}", verified.problems);
        let numbers = published(&process.db);
        let drawn = Drawn { memory_bytes: MEMORY_BYTES, ..self.drawn.clone() };
        let stage =
            Stage::with(self.random.word(), drawn, (Some(image.handle()), checkpoints), self.stage.clock.latest_ms());
        let opened = stage.open();
        let order = self.drawn.habits.order;
        let bounds = opened.db.shard_bounds();
        let model = self.stage.call(|calls| {
            before.wrote(&numbers, calls.model.now());
            before.recovered(&calls.model, order, &bounds, &opened.found, false)
        });
        let mut calls = self.calls(&opened, model);
        calls.check_all(&opened.db);
        let recovery = opened.db.recovery().cloned().unwrap_or_default();
        self.report.replayed += u64::from(recovery.log_groups > 0);
        self.report.cut += u64::from(!recovery.cuts.is_empty());
        stage.checkpoints.expect_names(&opened.db.checkpoints().expect("the database has storage"));
        assert!(stage.read_some_checkpoint(), "a checkpoint in an image can be read");
        assert_eq!(calls.failed, 0, "an image can be read");
        calls.release();
        opened.kill();
        drop(opened);
        stage.leave();
    }
}
