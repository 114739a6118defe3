//! YCSB: load, warm-up, and mixes of operations.
//!
//! | workload | reads | updates | inserts | scans | read, then write | records |
//! |---|---|---|---|---|---|---|
//! | `a` | 50 % | 50 % | | | | zipfian |
//! | `b` | 95 % | 5 % | | | | zipfian |
//! | `c` | 100 % | | | | | zipfian |
//! | `d` | 95 % | | 5 % | | | latest |
//! | `e` | | | 5 % | 95 % | | zipfian |
//! | `f` | 50 % | | | | 50 % | zipfian |
//! | `range-only` | | | | 100 % | | uniform |
//! | `range-write` | | | 50 % | 50 % | | uniform |
//! | `update-only` | | 100 % | | | | zipfian |
//!
//! The `range` workloads are Dolphin's (Dolphin V-A), the last one is O3-LSM's W100 (O3-LSM 5.2). A [`Profile`] is a
//! mix of reads and updates from published statistics.
//!
//! Record i has the key `mix(i)`, a bijection of 64-bit words. So keys are scattered, and exactly
//! the requested number of records is loaded. Inserts continue after the loaded records: of `n`
//! threads, the t-th inserts every n-th record from the t-th on. A record counts as present when
//! all earlier records are. A read of a present record must find it; otherwise the run fails.

mod draw;
mod profile;

pub use draw::{Distribution, YCSB_THETA, Zipf};
pub use profile::Profile;

use crate::keys::KeyBuffer;
use crate::measure::{Call, Phase, Run, Timing, Worker, run_phase};
use crate::mix::{mix, mix_two};
use crate::report::PhaseReport;
use crate::values::Values;
use crate::{Error, Figures, Store, StoreError};
use draw::Chooser;
use forebay_env::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shares of the operations; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mix {
    /// Reads of one record.
    pub read: f64,
    /// Writes of an existing record.
    pub update: f64,
    /// Writes of a new record.
    pub insert: f64,
    /// Scans that start at a record.
    pub scan: f64,
    /// Reads of a record, followed by a write of it.
    pub read_modify_write: f64,
}

/// A workload: its name, its operations, and its records.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The phase's name in the report.
    pub name: String,
    /// Its operations.
    pub mix: Mix,
    /// The distribution of records unless the settings give another.
    pub distribution: Distribution,
}

const NONE: Mix = Mix { read: 0.0, update: 0.0, insert: 0.0, scan: 0.0, read_modify_write: 0.0 };

/// The named workloads.
const NAMED: [(&str, Mix, Distribution); 9] = [
    ("a", Mix { read: 0.5, update: 0.5, ..NONE }, Distribution::Zipfian),
    ("b", Mix { read: 0.95, update: 0.05, ..NONE }, Distribution::Zipfian),
    ("c", Mix { read: 1.0, ..NONE }, Distribution::Zipfian),
    ("d", Mix { read: 0.95, insert: 0.05, ..NONE }, Distribution::Latest),
    ("e", Mix { scan: 0.95, insert: 0.05, ..NONE }, Distribution::Zipfian),
    ("f", Mix { read: 0.5, read_modify_write: 0.5, ..NONE }, Distribution::Zipfian),
    ("range-only", Mix { scan: 1.0, ..NONE }, Distribution::Uniform),
    ("range-write", Mix { scan: 0.5, insert: 0.5, ..NONE }, Distribution::Uniform),
    ("update-only", Mix { update: 1.0, ..NONE }, Distribution::Zipfian),
];

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMED.iter().find(|(known, ..)| *known == name);
        let &(name, mix, distribution) = found.ok_or_else(|| {
            let names: Vec<_> = NAMED.iter().map(|(name, ..)| *name).collect();
            format!("there is no workload `{name}`; there are {}", names.join(", "))
        })?;
        Ok(Self { name: name.into(), mix, distribution })
    }
}

/// Sizes and lengths of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of records to load.
    pub records: u64,
    /// Operations of each workload, over all threads.
    pub operations: u64,
    /// Operations before the first workload, reported separately.
    pub warm_up: u64,
    /// The distribution of records; by default the workload's.
    pub distribution: Option<Distribution>,
    /// Skew.
    pub theta: f64,
    /// Threads of each client.
    pub threads: usize,
    /// Length of a key in bytes, at least 8.
    pub key_size: usize,
    /// Length of a value in bytes.
    pub value_size: usize,
    /// Length of the longest scan. Lengths are drawn from 1 to this; with `fixed_scans` all scans
    /// have this length.
    pub scan_length: u64,
    /// Whether all scans have the same length, as in Dolphin.
    pub fixed_scans: bool,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether reads are checked.
    pub verify: bool,
    /// Which calls are timed.
    pub timing: Timing,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            operations: 1_000_000,
            warm_up: 100_000,
            distribution: None,
            theta: YCSB_THETA,
            threads: 1,
            key_size: 8,
            value_size: 8,
            scan_length: 100,
            fixed_scans: false,
            seed: 1,
            verify: true,
            timing: Timing::Each,
        }
    }
}

/// Threads of all clients together, at most.
pub const MAX_THREADS: usize = 4096;
/// More records than fit into the memory of a 64-bit machine.
const MAX_RECORDS: u64 = 1 << 48;

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what would be valid.
    pub fn check(&self) -> Result<(), Error> {
        let rule = |holds: bool, text: String| if holds { Ok(()) } else { Err(Error::Invalid(text)) };
        rule(
            (1..=MAX_RECORDS).contains(&self.records),
            format!("records {}: 1 to {MAX_RECORDS} are possible", self.records),
        )?;
        rule(self.operations <= MAX_RECORDS, format!("operations {}: at most {MAX_RECORDS}", self.operations))?;
        rule((1..=MAX_THREADS).contains(&self.threads), format!("threads {}: 1 to {MAX_THREADS}", self.threads))?;
        rule(self.key_size >= 8, format!("key size {}: at least 8 bytes, for scattered keys", self.key_size))?;
        rule(self.scan_length >= 1, "scan length 0: at least 1 is possible".into())?;
        rule(self.theta > 0.0 && self.theta < 16.0, format!("theta {}: above 0 and below 16", self.theta))?;
        KeyBuffer::new(self.key_size, u64::MAX).and(Values::new(self.value_size)).map(|_| ())
    }
}

/// Loads, warms up, and runs the workloads in order, with `settings.threads` threads on each of
/// `clients`, which all use the same store.
///
/// # Errors
/// The first error. Earlier results were reported to `tell`.
pub fn run<S: Store>(
    clients: &[S],
    workloads: &[Workload],
    settings: &Settings,
    run: &mut Run<'_>,
    tell: &mut dyn FnMut(&PhaseReport),
) -> Result<Vec<PhaseReport>, Error> {
    settings.check()?;
    let threads = settings.threads.saturating_mul(clients.len());
    if threads == 0 || threads > MAX_THREADS {
        return Err(Error::Invalid(format!("{} clients: 1 to {MAX_THREADS} threads are possible", clients.len())));
    }
    let shared = Arc::new(Shared {
        keys: KeyBuffer::new(settings.key_size, u64::MAX)?,
        values: Values::new(settings.value_size)?,
        settings: settings.clone(),
        threads: threads as u64,
        inserted: (0..threads).map(|_| Inserted::default()).collect(),
    });
    let handles = clients.iter().cycle().take(threads).cloned().collect();
    let mut driver = Driver { handles, clients: clients.len(), shared, run, tell, reports: Vec::new() };
    driver.load()?;
    driver.settle()?;
    if let Some(first) = workloads.first().filter(|_| settings.warm_up > 0) {
        driver.workload("warmup", first, settings.warm_up)?;
    }
    for workload in workloads {
        driver.workload(&workload.name, workload, settings.operations)?;
    }
    Ok(driver.reports)
}

/// Number of records that a thread inserted after the loaded ones, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Inserted(AtomicU64);

/// The state that all threads of all phases share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    keys: KeyBuffer,
    values: Values,
    threads: u64,
    inserted: Vec<Inserted>,
}

impl Shared {
    /// Number of records present, without a gap from the first.
    #[inline]
    fn there(&self) -> u64 {
        // Pairs with the release in `insert`: a thread that sees the count sees the record.
        let fewest = self.inserted.iter().map(|inserted| inserted.0.load(Ordering::Acquire)).min();
        self.settings.records + fewest.unwrap_or(0) * self.threads
    }
}

struct Driver<'a, 'b, S> {
    /// A handle for each thread: those that share one may wait for each other. The first ones are of all clients.
    handles: Arc<[S]>,
    clients: usize,
    shared: Arc<Shared>,
    run: &'a mut Run<'b>,
    tell: &'a mut dyn FnMut(&PhaseReport),
    reports: Vec<PhaseReport>,
}

impl<S: Store> Driver<'_, '_, S> {
    fn phase(
        &mut self,
        (name, planned, tells_found, threads): (&str, u64, bool, usize),
        body: impl Fn(&S, &mut Worker) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let timing = if planned > 1 { self.shared.settings.timing } else { Timing::Each };
        let phase = Phase { name: name.into(), threads, has_background: false, planned, tells_found, timing };
        let read = || figures(self.handles.get(..self.clients).unwrap_or_default());
        let body = move |handles: &Arc<[S]>, worker: &mut Worker| match handles.get(worker.index) {
            Some(handle) => body(handle, worker),
            None => Ok(()),
        };
        let report = run_phase(&self.handles, &read, self.run, phase, body)?;
        (self.tell)(&report);
        self.reports.push(report);
        Ok(())
    }

    fn threads(&self) -> usize {
        self.shared.threads as usize
    }

    fn load(&mut self) -> Result<(), Error> {
        let (shared, records) = (Arc::clone(&self.shared), self.shared.settings.records);
        self.phase(("load", records, false, self.threads()), move |store, worker| {
            let mut caller = Caller::new(&shared, worker.index, 0);
            let mut record = worker.index as u64;
            while record < records && !worker.stopped() {
                caller.write(store, record)?;
                worker.finish(Call::Insert, 1)?;
                record += shared.threads;
            }
            Ok(())
        })
    }

    /// Waits for the background work of the load, so that it does not affect later phases.
    fn settle(&mut self) -> Result<(), Error> {
        self.phase(("waitforcompaction", 1, false, 1), |store, worker| {
            store.wait_for_compactions().map_err(Error::store("waitforcompaction"))?;
            worker.finish(Call::Step, 1)
        })
    }

    fn workload(&mut self, name: &str, workload: &Workload, operations: u64) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let distribution = shared.settings.distribution.unwrap_or(workload.distribution);
        let chooser = Chooser::new(distribution, shared.there(), shared.settings.theta);
        let (mix, number) = (workload.mix, self.reports.len() as u64);
        self.phase((name, operations, mix.read + mix.read_modify_write > 0.0, self.threads()), move |store, worker| {
            let mut caller = Caller::new(&shared, worker.index, number);
            let (index, threads) = (worker.index as u64, shared.threads);
            let mine = operations / threads + u64::from(index < operations % threads);
            for _ in 0..mine {
                if worker.stopped() {
                    break;
                }
                caller.one(store, worker, &mix, &chooser)?;
            }
            Ok(())
        })
    }
}

/// The combined counts of a phase's clients. They share the memory nodes.
fn figures<S: Store>(clients: &[S]) -> Result<Figures, StoreError> {
    let mut clients = clients.iter();
    let Some(first) = clients.next() else { return Ok(Figures::default()) };
    let mut all = first.figures()?;
    for client in clients {
        let more = client.figures()?;
        all.foreground += more.foreground;
        all.background += more.background;
        all.cached_index_bytes += more.cached_index_bytes;
        all.memtable_bytes += more.memtable_bytes;
    }
    Ok(all)
}

/// A thread's part of a phase.
struct Caller<'a> {
    shared: &'a Shared,
    random: Random,
    keys: KeyBuffer,
    value: Vec<u8>,
    thread: usize,
    version: u64,
}

impl<'a> Caller<'a> {
    fn new(shared: &'a Shared, thread: usize, phase: u64) -> Self {
        let seed = mix_two(shared.settings.seed, mix_two(phase, thread as u64));
        Self {
            shared,
            random: Random::seeded(seed),
            keys: shared.keys.clone(),
            value: shared.values.buffer(),
            thread,
            version: mix(seed),
        }
    }

    fn one<S: Store>(&mut self, store: &S, worker: &mut Worker, mix: &Mix, chooser: &Chooser) -> Result<(), Error> {
        let mut at = self.random.unit();
        let mut is = |share: f64| {
            at -= share;
            at < 0.0
        };
        if is(mix.read) {
            let record = chooser.draw(self.shared.there(), &mut self.random);
            self.read(store, worker, record)?;
            return worker.finish(Call::Get, 1);
        }
        if is(mix.update) {
            let record = chooser.draw(self.shared.there(), &mut self.random);
            self.write(store, record)?;
            return worker.finish(Call::Update, 1);
        }
        if is(mix.insert) {
            self.insert(store)?;
            return worker.finish(Call::Insert, 1);
        }
        if is(mix.scan) {
            let record = chooser.draw(self.shared.there(), &mut self.random);
            self.scan(store, record)?;
            return worker.finish(Call::Scan, 1);
        }
        let record = chooser.draw(self.shared.there(), &mut self.random);
        self.read(store, worker, record)?;
        self.write(store, record)?;
        worker.finish(Call::ReadModifyWrite, 1)
    }

    fn read<S: Store>(&mut self, store: &S, worker: &mut Worker, record: u64) -> Result<(), Error> {
        let (shared, number) = (self.shared, mix(record));
        let verify = shared.settings.verify;
        let fail = |found| Error::Verification { what: "get", key: number, found };
        let check = |value: &[u8]| if verify { shared.values.check(number, value).map(|_| ()) } else { Ok(()) };
        match store.get_with(self.keys.set(number), check).map_err(Error::store("get"))? {
            Some(checked) => checked.map_err(fail)?,
            None if verify => return Err(fail("no value, and it was written".into())),
            None => return Ok(()),
        }
        worker.found += 1;
        Ok(())
    }

    fn write<S: Store>(&mut self, store: &S, record: u64) -> Result<(), Error> {
        let number = mix(record);
        self.version = self.version.wrapping_add(1);
        self.shared.values.fill(number, self.version, &mut self.value);
        store.put(self.keys.set(number), &self.value).map_err(Error::store("put"))
    }

    fn insert<S: Store>(&mut self, store: &S) -> Result<(), Error> {
        let Some(inserted) = self.shared.inserted.get(self.thread) else { return Ok(()) };
        // Only this thread changes it.
        let before = inserted.0.load(Ordering::Relaxed);
        self.write(store, self.shared.settings.records + before * self.shared.threads + self.thread as u64)?;
        // Pairs with the acquire in `there`.
        inserted.0.store(before + 1, Ordering::Release);
        Ok(())
    }

    fn scan<S: Store>(&mut self, store: &S, record: u64) -> Result<(), Error> {
        let settings = &self.shared.settings;
        let length =
            if settings.fixed_scans { settings.scan_length } else { 1 + self.random.below(settings.scan_length) };
        let (mut last, mut wrong) = (None, None);
        let mut visit = |key: &[u8], value: &[u8]| {
            if settings.verify {
                wrong = check_record(self.shared, &mut last, key, value).err();
            }
            wrong.is_none()
        };
        store.scan(self.keys.set(mix(record)), length, &mut visit).map_err(Error::store("scan"))?;
        wrong.map_or(Ok(()), |found| Err(Error::Scan { what: "scan", found }))
    }
}

/// Checks a record of a scan: it is whole, and after the previous one.
fn check_record(shared: &Shared, last: &mut Option<u64>, key: &[u8], value: &[u8]) -> Result<(), String> {
    let number = shared.keys.number_of(key).ok_or("a key of somebody else")?;
    if last.is_some_and(|last| last >= number) {
        return Err(format!("key {number} behind {last:?}"));
    }
    *last = Some(number);
    shared.values.check(number, value).map(|_| ())
}
