//! db_bench's workloads.
//!
//! The names, the numbers and their defaults mean what they mean in RocksDB's `db_bench`:
//!
//! | name | what each thread does |
//! |---|---|
//! | `fillseq` | on an empty store, writes keys 0 … num - 1 in order |
//! | `fillrandom` | on an empty store, writes num keys drawn from num |
//! | `overwrite` | the same on the store as it is |
//! | `readrandom` | reads `reads` keys drawn from num |
//! | `multireadrandom` | the same, `batch_size` keys a call, `multiread_stride` apart if that is given |
//! | `readmissing` | reads `reads` keys that nobody wrote: one byte longer than keys that may exist |
//! | `readseq` | walks over the first `reads` records in key order |
//! | `seekrandom` | seeks to `reads` keys drawn from num, and takes `seek_nexts` steps after each |
//! | `readrandomwriterandom` | of each 100 operations, reads `read_write_percent` and writes the others |
//! | `deleterandom` | deletes num keys drawn from num |
//! | `compact` | (once, not per thread) merges everything |
//! | `waitforcompaction` | (once) returns when nothing is left to flush or compact |
//! | `stats` | (once) the store's own account of itself |
//!
//! `num` and `reads` are for each thread. Keys are drawn with replacement, so `fillrandom` writes
//! about 63 % of the keys, and `readrandom` after it finds about as many. Unlike in `db_bench`, a
//! batch has 16 keys unless asked otherwise, and values verify themselves.
//!
//! Behind a name, `@` and a number give a workload that many threads instead of the usual number:
//! `fillrandom,compact,readrandom,readrandom@2` ([`Planned`]).

mod point;
mod scan;

use crate::keys::KeyBuffer;
use crate::measure::{Call, Phase, Run, Timing, run_phase};
use crate::mix::mix_two;
use crate::report::PhaseReport;
use crate::values::Values;
use crate::{Error, Store};
use forebay_env::Random;
use std::str::FromStr;
use std::sync::Arc;

/// A workload or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what each does")]
pub enum Benchmark {
    FillSeq,
    FillRandom,
    Overwrite,
    ReadRandom,
    MultiReadRandom,
    ReadMissing,
    ReadSeq,
    SeekRandom,
    ReadRandomWriteRandom,
    DeleteRandom,
    Compact,
    WaitForCompaction,
    Stats,
}

impl Benchmark {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::Overwrite,
        Self::ReadRandom,
        Self::MultiReadRandom,
        Self::ReadMissing,
        Self::ReadSeq,
        Self::SeekRandom,
        Self::ReadRandomWriteRandom,
        Self::DeleteRandom,
        Self::Compact,
        Self::WaitForCompaction,
        Self::Stats,
    ];

    /// The name in `db_bench`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::Overwrite => "overwrite",
            Self::ReadRandom => "readrandom",
            Self::MultiReadRandom => "multireadrandom",
            Self::ReadMissing => "readmissing",
            Self::ReadSeq => "readseq",
            Self::SeekRandom => "seekrandom",
            Self::ReadRandomWriteRandom => "readrandomwriterandom",
            Self::DeleteRandom => "deleterandom",
            Self::Compact => "compact",
            Self::WaitForCompaction => "waitforcompaction",
            Self::Stats => "stats",
        }
    }

    /// Whether it begins with an empty store.
    #[must_use]
    pub const fn needs_empty_store(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    const fn tells_found(self) -> bool {
        matches!(
            self,
            Self::ReadRandom
                | Self::MultiReadRandom
                | Self::ReadMissing
                | Self::ReadSeq
                | Self::SeekRandom
                | Self::ReadRandomWriteRandom
        )
    }
}

impl FromStr for Benchmark {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|benchmark| benchmark.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|benchmark| benchmark.name()).collect();
            format!("there is no benchmark `{name}`; there are {}", names.join(", "))
        })
    }
}

/// A workload of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The workload.
    pub benchmark: Benchmark,
    /// Threads of this one, in place of the usual number.
    pub threads: Option<usize>,
}

impl From<Benchmark> for Planned {
    fn from(benchmark: Benchmark) -> Self {
        Self { benchmark, threads: None }
    }
}

impl FromStr for Planned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, threads)) = text.split_once('@') else { return Ok(text.parse::<Benchmark>()?.into()) };
        let number = threads.parse().ok().filter(|number| (1..=MAX_THREADS).contains(number));
        let wrong = || format!("`{text}`: behind `@` comes a number of threads, from 1 to {MAX_THREADS}");
        Ok(Self { benchmark: name.parse()?, threads: Some(number.ok_or_else(wrong)?) })
    }
}

/// What the workloads are to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Keys are numbers below this one; writes of each thread.
    pub num: u64,
    /// Reads of each thread; as many as `num` if not given.
    pub reads: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Length of a key, bytes.
    pub key_size: usize,
    /// Length of a value, bytes.
    pub value_size: usize,
    /// Where randomness begins.
    pub seed: u64,
    /// Keys of a `multireadrandom` call.
    pub batch_size: usize,
    /// Whether such a call is one call of the store; if not, it is a loop.
    pub multiread_batched: bool,
    /// Distance of the keys of such a call; drawn one by one if zero.
    pub multiread_stride: u64,
    /// Steps after each seek.
    pub seek_nexts: u64,
    /// Reads of 100 operations of `readrandomwriterandom`.
    pub read_write_percent: u32,
    /// Whether what is read is checked. If not, values are cheap and verify nothing.
    pub verify: bool,
    /// Which calls are timed.
    pub timing: Timing,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            reads: None,
            threads: 1,
            key_size: 20,
            value_size: 400,
            seed: 1,
            batch_size: 16,
            multiread_batched: true,
            multiread_stride: 0,
            seek_nexts: 0,
            read_write_percent: 90,
            verify: true,
            timing: Timing::Each,
        }
    }
}

/// Largest number of threads.
const MAX_THREADS: usize = 4096;
/// Largest number of keys of one call.
const MAX_BATCH: usize = 1 << 16;

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] that says what would be right.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if self.num == 0 || self.num > 1 << 48 {
            return invalid(format!("num {}: 1 to {} are possible", self.num, 1_u64 << 48));
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            return invalid(format!("threads {}: 1 to {MAX_THREADS} are possible", self.threads));
        }
        if self.batch_size == 0 || self.batch_size > MAX_BATCH {
            return invalid(format!("batch size {}: 1 to {MAX_BATCH} are possible", self.batch_size));
        }
        if self.read_write_percent > 100 {
            return invalid(format!("readwritepercent {}: 0 to 100 are possible", self.read_write_percent));
        }
        Inputs::new(self, 0).map(|_| ())
    }

    /// Operations of each thread.
    fn operations_per_thread(&self, benchmark: Benchmark) -> u64 {
        match benchmark {
            Benchmark::FillSeq | Benchmark::FillRandom | Benchmark::Overwrite | Benchmark::DeleteRandom => self.num,
            Benchmark::Compact | Benchmark::WaitForCompaction | Benchmark::Stats => 1,
            _ => self.reads.unwrap_or(self.num),
        }
    }
}

/// What a phase's threads draw from.
#[derive(Debug)]
struct Inputs {
    settings: Settings,
    keys: KeyBuffer,
    values: Values,
    /// Number of the phase in its run, so that phases draw different keys.
    phase: u64,
    operations: u64,
}

impl Inputs {
    fn new(settings: &Settings, phase: u64) -> Result<Self, Error> {
        Ok(Self {
            keys: KeyBuffer::new(settings.key_size, settings.num)?,
            values: Values::new(settings.value_size)?,
            settings: settings.clone(),
            phase,
            operations: 0,
        })
    }

    /// The random numbers of a thread.
    fn random(&self, thread: usize) -> Random {
        Random::seeded(mix_two(self.settings.seed, mix_two(self.phase, thread as u64)))
    }

    /// The version of the values that a thread's `operation`-th write of this phase writes.
    fn version(&self, thread: usize, operation: u64) -> u64 {
        mix_two(self.phase, thread as u64) ^ operation
    }

    fn check_value(&self, what: &'static str, key: u64, value: &[u8]) -> Result<(), Error> {
        if self.settings.verify {
            self.values.check(key, value).map_err(|found| Error::Verification { what, key, found })?;
        }
        Ok(())
    }
}

/// A result of a run, as soon as it is there.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// A phase is done.
    Phase(&'a PhaseReport),
    /// The step `stats`: the store's account of itself.
    Stats(&'a str),
}

/// Runs `benchmarks` in order. `open` gives an empty store: it is called once before the first, and
/// again for each that needs an empty store and comes after writes; with `keep`, only once. Each
/// is closed.
///
/// # Errors
/// The first that occurs. What was done before was told to `tell`.
pub fn run<S: Store>(
    benchmarks: &[impl Into<Planned> + Copy],
    settings: &Settings,
    run: &mut Run<'_>,
    keep: bool,
    open: &mut dyn FnMut() -> Result<S, Error>,
    tell: &mut dyn FnMut(Outcome<'_>),
) -> Result<Vec<PhaseReport>, Error> {
    settings.check()?;
    let mut store = Some(open()?);
    let mut untouched = true;
    let mut reports = Vec::new();
    for (number, &planned) in benchmarks.iter().enumerate() {
        let planned: Planned = planned.into();
        let benchmark = planned.benchmark;
        if benchmark.needs_empty_store() && !untouched && !keep {
            // Before the new one takes its place.
            close(store.take())?;
        }
        let opened = match store.take() {
            Some(store) => store,
            None => open()?,
        };
        untouched = false;
        if benchmark == Benchmark::Stats {
            tell(Outcome::Stats(&opened.describe().map_err(Error::store("reading statistics"))?));
        } else {
            let report = run_one(planned, settings, number as u64, &opened, run)?;
            tell(Outcome::Phase(&report));
            reports.push(report);
        }
        store = Some(opened);
    }
    close(store)?;
    Ok(reports)
}

fn close(store: Option<impl Store>) -> Result<(), Error> {
    store.map_or(Ok(()), |store| store.close().map_err(Error::store("closing the store")))
}

fn run_one<S: Store>(
    Planned { benchmark, threads }: Planned,
    settings: &Settings,
    number: u64,
    store: &S,
    run: &mut Run<'_>,
) -> Result<PhaseReport, Error> {
    let operations = settings.operations_per_thread(benchmark);
    let step = matches!(benchmark, Benchmark::Compact | Benchmark::WaitForCompaction);
    let name = threads.map_or(benchmark.name().into(), |threads| format!("{}@{threads}", benchmark.name()));
    let threads = if step { 1 } else { threads.unwrap_or(settings.threads) };
    let phase = Phase {
        name,
        threads,
        planned: operations.saturating_mul(threads as u64),
        tells_found: benchmark.tells_found(),
        timing: if step { Timing::Each } else { settings.timing },
    };
    let inputs = Arc::new(Inputs { operations, ..Inputs::new(settings, number)? });
    run_phase(store, &|| store.figures(), run, phase, move |store: &S, worker| match benchmark {
        Benchmark::FillSeq => point::write(store, worker, &inputs, point::Order::Ascending),
        Benchmark::FillRandom | Benchmark::Overwrite => point::write(store, worker, &inputs, point::Order::Random),
        Benchmark::ReadRandom => point::read(store, worker, &inputs),
        Benchmark::MultiReadRandom => point::multi_read(store, worker, &inputs),
        Benchmark::ReadMissing => point::read_missing(store, worker, &inputs),
        Benchmark::ReadRandomWriteRandom => point::read_and_write(store, worker, &inputs),
        Benchmark::DeleteRandom => point::delete(store, worker, &inputs),
        Benchmark::ReadSeq => scan::sequential(store, worker, &inputs),
        Benchmark::SeekRandom => scan::seek(store, worker, &inputs),
        Benchmark::Compact => {
            store.compact().map_err(Error::store("compact"))?;
            worker.finish(Call::Step, 1)
        }
        Benchmark::WaitForCompaction => {
            store.wait_for_compactions().map_err(Error::store("waitforcompaction"))?;
            worker.finish(Call::Step, 1)
        }
        Benchmark::Stats => Ok(()),
    })
}
