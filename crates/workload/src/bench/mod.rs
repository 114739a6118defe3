//! db_bench's workloads.
//!
//! The names, the numbers and their defaults have the same meaning as in RocksDB's `db_bench`:
//!
//! | name | what each thread does |
//! |---|---|
//! | `fillseq` | on an empty store, writes keys 0 … num - 1 in order |
//! | `fillrandom` | on an empty store, writes num keys drawn at random from num |
//! | `overwrite` | the same on the store in its current state |
//! | `readrandom` | reads `reads` keys drawn at random from num |
//! | `multireadrandom` | the same, `batch_size` keys per call, `multiread_stride` apart if that is given |
//! | `readmissing` | reads `reads` keys that were never written: one byte longer than keys that may exist |
//! | `readseq` | reads the first `reads` records in key order |
//! | `seekrandom` | seeks to `reads` keys drawn at random from num, and takes `seek_nexts` steps after each |
//! | `readrandomwriterandom` | of each 100 operations, `read_write_percent` are reads and the rest are writes |
//! | `readwhilewriting` | like `readrandom`; one more thread writes keys drawn at random until the others end |
//! | `readwhilescanning` | like `readrandom`; one more thread reads all records in key order, again and again, until the others end |
//! | `deleterandom` | deletes num keys drawn at random from num |
//! | `compact` | (once, not per thread) merges everything |
//! | `waitforcompaction` | (once) returns when nothing is left to flush or compact |
//! | `stats` | (once) prints the store's own statistics |
//!
//! `num` and `reads` apply to each thread. The additional thread is not counted. Keys are drawn with replacement, so
//! `fillrandom` writes about 63 % of the keys, and a later `readrandom` finds about as many. Unlike in `db_bench`, a
//! batch has 16 keys by default, and values verify themselves.
//!
//! After a name, `@` and a number run the workload with that many threads instead of the usual number:
//! `fillrandom,compact,readrandom,readrandom@2` ([`Planned`]).

mod point;
mod scan;
mod settings;

pub use settings::Settings;

use crate::measure::{Call, Phase, Run, Timing, run_phase};
use crate::mix::mix_two;
use crate::report::PhaseReport;
use crate::{Error, Store};
use settings::{Inputs, MAX_THREADS};
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
    ReadWhileWriting,
    ReadWhileScanning,
    DeleteRandom,
    Compact,
    WaitForCompaction,
    Stats,
}

impl Benchmark {
    /// All workloads and steps.
    pub const ALL: [Self; 15] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::Overwrite,
        Self::ReadRandom,
        Self::MultiReadRandom,
        Self::ReadMissing,
        Self::ReadSeq,
        Self::SeekRandom,
        Self::ReadRandomWriteRandom,
        Self::ReadWhileWriting,
        Self::ReadWhileScanning,
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
            Self::ReadWhileWriting => "readwhilewriting",
            Self::ReadWhileScanning => "readwhilescanning",
            Self::DeleteRandom => "deleterandom",
            Self::Compact => "compact",
            Self::WaitForCompaction => "waitforcompaction",
            Self::Stats => "stats",
        }
    }

    /// Whether the workload starts with an empty store.
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
                | Self::ReadWhileWriting
                | Self::ReadWhileScanning
        )
    }

    /// Whether an additional thread works beside those that are counted.
    const fn has_background(self) -> bool {
        matches!(self, Self::ReadWhileWriting | Self::ReadWhileScanning)
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
    /// Number of threads, in place of the usual number.
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

impl Settings {
    /// Operations of each thread.
    fn operations_per_thread(&self, benchmark: Benchmark) -> u64 {
        match benchmark {
            Benchmark::FillSeq | Benchmark::FillRandom | Benchmark::Overwrite | Benchmark::DeleteRandom => {
                self.writes.unwrap_or(self.num)
            }
            Benchmark::Compact | Benchmark::WaitForCompaction | Benchmark::Stats => 1,
            _ => self.reads.unwrap_or(self.num),
        }
    }
}

/// A result of a run, reported as soon as it exists.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// A phase is done.
    Phase(&'a PhaseReport),
    /// The step `stats`: the store's own statistics.
    Stats(&'a str),
}

/// Runs `benchmarks` in order. `open` returns an empty store. It is called once before the first benchmark, and again
/// for each benchmark that needs an empty store and follows writes; with `keep`, only once. Each store is closed.
///
/// # Errors
/// The first error. Earlier results were reported to `tell`.
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
            // Closes the old store before the new one takes its place.
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
        has_background: benchmark.has_background(),
        planned: operations.saturating_mul(threads as u64),
        tells_found: benchmark.tells_found(),
        timing: if step { Timing::Each } else { settings.timing },
    };
    // The first phases of two runs also draw different keys, if the phases are not the same.
    let inputs = Arc::new(Inputs { operations, ..Inputs::new(settings, mix_two(number, benchmark as u64))? });
    run_phase(store, &|| store.figures(), run, phase, move |store: &S, worker| match benchmark {
        Benchmark::FillSeq => point::write(store, worker, &inputs, point::Order::Ascending),
        Benchmark::FillRandom | Benchmark::Overwrite => point::write(store, worker, &inputs, point::Order::Random),
        Benchmark::ReadRandom => point::read(store, worker, &inputs),
        Benchmark::MultiReadRandom => point::multi_read(store, worker, &inputs),
        Benchmark::ReadMissing => point::read_missing(store, worker, &inputs),
        Benchmark::ReadRandomWriteRandom => point::read_and_write(store, worker, &inputs),
        Benchmark::ReadWhileWriting if worker.is_background() => point::write_meanwhile(store, worker, &inputs),
        Benchmark::ReadWhileScanning if worker.is_background() => scan::scan_meanwhile(store, worker, &inputs),
        Benchmark::ReadWhileWriting | Benchmark::ReadWhileScanning => point::read(store, worker, &inputs),
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
