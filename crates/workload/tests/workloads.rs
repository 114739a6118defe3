//! The workloads against a store in a map: their writes, reads and reports.

use crate::common::{Fault, Faulty};
use forebay_base::ErrorKind;
use forebay_env::{Clock, Nanos, SystemClock};
use forebay_workload::bench::{self, Benchmark, Outcome, Planned, Settings};
use forebay_workload::{Error, MapStore, PhaseReport, Run, Store, Timing};
use std::sync::Arc;
use std::time::Duration;

fn with_run<T>(body: impl FnOnce(&mut Run<'_>) -> T) -> T {
    body(&mut Run { clock: SystemClock::shared(), model: None, progress: &mut |_| () })
}

fn run(names: &str, settings: &Settings) -> Result<(Vec<PhaseReport>, MapStore), Error> {
    let benchmarks: Vec<Benchmark> = names.split(',').map(|name| name.parse().unwrap()).collect();
    let mut last = MapStore::new();
    let mut open = || {
        last = MapStore::new();
        Ok(last.clone())
    };
    let reports = with_run(|run| bench::run(&benchmarks, settings, run, false, &mut open, &mut |_| ()))?;
    Ok((reports, last))
}

fn small() -> Settings {
    Settings { num: 1000, value_size: 100, ..Settings::default() }
}

#[test]
fn every_workload_does_its_number_of_operations() {
    let settings = Settings { reads: Some(300), threads: 3, seek_nexts: 5, ..small() };
    let names: Vec<_> = Benchmark::ALL.iter().map(|benchmark| benchmark.name()).collect();
    let (reports, _) = run(&names.join(","), &settings).unwrap();
    let operations: Vec<_> = reports.iter().map(|report| (report.name.as_str(), report.operations)).collect();
    let expected = [
        ("fillseq", 3000),
        ("fillrandom", 3000),
        ("overwrite", 3000),
        ("readrandom", 900),
        ("multireadrandom", 900),
        ("readmissing", 900),
        ("readseq", 900),
        ("seekrandom", 900),
        ("readrandomwriterandom", 900),
        ("readwhilewriting", 900),
        ("readwhilescanning", 900),
        ("deleterandom", 3000),
        ("compact", 1),
        ("waitforcompaction", 1),
    ];
    assert_eq!(operations, expected);
    for report in &reports {
        assert!(report.seconds > 0.0 && report.latency_us.p50 <= report.latency_us.max, "{report:?}");
    }
}

#[test]
fn what_is_found_is_what_was_written() {
    let (reports, store) = run("fillseq,readrandom,multireadrandom,readmissing,readseq,seekrandom", &small()).unwrap();
    assert_eq!(store.len(), 1000);
    let found: Vec<_> = reports.iter().map(|report| report.found).collect();
    assert_eq!(found, [None, Some(1000), Some(1000), Some(0), Some(1000), Some(1000)]);
}

#[test]
fn workloads_write_as_often_as_they_are_told() {
    for (writes, left) in [(400, 400), (2500, 1000)] {
        let settings = Settings { writes: Some(writes), ..small() };
        let (reports, store) = run("fillseq,readrandom", &settings).unwrap();
        assert_eq!([reports[0].operations, reports[1].operations], [writes, 1000]);
        assert_eq!(store.len(), left);
    }
}

#[test]
fn a_random_fill_leaves_about_a_third_of_the_keys_out() {
    let settings = Settings { num: 20_000, ..small() };
    let (reports, store) = run("fillrandom,readrandom", &settings).unwrap();
    let share = reports[1].found.unwrap() as f64 / 20_000.0;
    assert!((0.61..0.66).contains(&share) && (0.61..0.66).contains(&(store.len() as f64 / 20_000.0)), "{share}");
    // Reads that begin a run draw other keys than the fill that began the previous run.
    let mut open = || Ok(store.clone());
    let read = |run: &mut Run<'_>| bench::run(&[Benchmark::ReadRandom], &settings, run, true, &mut open, &mut |_| ());
    let reports = with_run(read).unwrap();
    let share = reports[0].found.unwrap() as f64 / 20_000.0;
    assert!((0.61..0.66).contains(&share), "{share}");
}

#[test]
fn a_fill_begins_with_an_empty_store_and_overwrite_does_not() {
    let (_, store) = run("fillseq,fillrandom", &small()).unwrap();
    assert!(store.len() < 1000);
    let (_, store) = run("fillseq,overwrite", &small()).unwrap();
    assert_eq!(store.len(), 1000);
}

#[test]
fn reads_and_writes_are_told_apart() {
    let (reports, _) = run("fillseq,readrandomwriterandom", &small()).unwrap();
    let calls: Vec<_> = reports[1].by_operation.iter().map(|each| (each.operation.as_str(), each.calls)).collect();
    assert_eq!(calls, [("get", 900), ("put", 100)]);
    assert!(reports[0].by_operation.is_empty());
}

#[test]
fn what_works_beside_the_readers_ends_with_them_and_is_not_counted() {
    let (reports, store) =
        run("fillseq,readwhilewriting,readwhilescanning", &Settings { num: 300, ..small() }).unwrap();
    assert_eq!(store.len(), 300);
    for report in &reports[1..] {
        assert_eq!((report.operations, report.found), (300, Some(300)), "{report:?}");
        assert!(report.by_operation.is_empty(), "{report:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_keys() {
    let contents = |seed| {
        let (_, store) = run("fillrandom,deleterandom", &Settings { seed, ..small() }).unwrap();
        let mut cursor = store.cursor().unwrap();
        let mut all = Vec::new();
        forebay_workload::Cursor::seek_to_first(&mut cursor).unwrap();
        while let Some((key, value)) = forebay_workload::Cursor::entry(&cursor) {
            all.push((key.to_vec(), value.to_vec()));
            forebay_workload::Cursor::next(&mut cursor).unwrap();
        }
        all
    };
    assert_eq!(contents(7), contents(7));
    assert_ne!(contents(7), contents(8));
}

/// Runs a reading workload on a filled store with one changed value.
fn read_damaged(name: &str, verify: bool) -> Result<(), Error> {
    let settings = Settings { verify, ..small() };
    let store = MapStore::new();
    let mut open = || Ok(store.clone());
    with_run(|run| bench::run(&[Benchmark::FillSeq], &settings, run, true, &mut open, &mut |_| ()))?;
    let key = [&500_u64.to_be_bytes()[..], b"000000000000"].concat();
    let mut value = store.get(&key).unwrap().unwrap();
    value[77] ^= 1;
    store.put(&key, &value).unwrap();
    let settings = Settings { reads: Some(20_000), ..settings };
    let benchmarks: [Benchmark; 1] = [name.parse().unwrap()];
    with_run(|run| bench::run(&benchmarks, &settings, run, true, &mut open, &mut |_| ()))?;
    Ok(())
}

#[test]
fn a_damaged_value_is_found() {
    for name in ["readrandom", "multireadrandom", "readseq", "seekrandom", "readrandomwriterandom", "readwhilescanning"]
    {
        let error = read_damaged(name, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains("500"), "{name}: {error}");
        read_damaged(name, false).unwrap();
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for settings in [
        Settings { num: 0, ..small() },
        Settings { threads: 0, ..small() },
        Settings { key_size: 1, ..small() },
        Settings { batch_size: 0, ..small() },
        Settings { value_size: 1 << 40, ..small() },
        Settings { read_write_percent: 101, ..small() },
    ] {
        assert_eq!(run("fillseq", &settings).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!("fillsec".parse::<Benchmark>().unwrap_err().contains("fillseq"));
}

#[test]
fn results_are_told_as_they_come() {
    let mut told = Vec::new();
    let benchmarks = [Benchmark::FillSeq, Benchmark::Stats, Benchmark::ReadSeq];
    let mut tell = |outcome: Outcome<'_>| {
        told.push(match outcome {
            Outcome::Phase(report) => report.name.clone(),
            Outcome::Stats(text) => text.to_owned(),
        });
    };
    with_run(|run| bench::run(&benchmarks, &small(), run, false, &mut || Ok(MapStore::new()), &mut tell)).unwrap();
    assert_eq!(told, ["fillseq", "a map of 1000 records\n", "readseq"]);
}

/// A store that buffers writes may lose them when it is closed, whether the run or the next store closes it.
#[test]
fn a_store_that_cannot_be_closed_fails_the_run() {
    for closed in [1, 2] {
        let faulty = Faulty::after(closed, Fault::CannotBeClosed);
        let mut told = 0;
        let mut tell = |_: Outcome<'_>| told += 1;
        let fills = [Benchmark::FillSeq, Benchmark::FillRandom];
        let error = with_run(|run| bench::run(&fills, &small(), run, false, &mut || Ok(faulty.clone()), &mut tell))
            .unwrap_err();
        assert_eq!((error.kind(), told), (ErrorKind::Fenced, closed), "{error}");
        assert_eq!(error.to_string(), "closing the store: the last flush was refused");
    }
}

#[test]
fn a_workload_may_have_threads_of_its_own() {
    let benchmarks: Vec<Planned> =
        ["fillseq", "readrandom@3", "multireadrandom"].map(|name| name.parse().unwrap()).to_vec();
    let settings = Settings { num: 300, timing: Timing::Sampled, verify: false, ..small() };
    let mut open = || Ok(MapStore::new());
    let reports = with_run(|run| bench::run(&benchmarks, &settings, run, false, &mut open, &mut |_| ())).unwrap();
    let done: Vec<_> = reports.iter().map(|report| (report.name.as_str(), report.operations)).collect();
    assert_eq!(done, [("fillseq", 300), ("readrandom@3", 900), ("multireadrandom", 300)]);
    assert!(reports.iter().all(|report| report.found.is_none_or(|found| found == report.operations)));
    for wrong in ["readrandom@", "readrandom@0", "readrandom@x", "@2", "readrandm@2"] {
        assert!(wrong.parse::<Planned>().is_err(), "{wrong}");
    }
}

/// The system's clock, for threads that sleep no longer than a second.
#[derive(Debug)]
struct Watchful(SystemClock);

impl Clock for Watchful {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }

    fn sleep(&self, duration: Duration) {
        assert!(duration <= Duration::from_secs(1), "a thread sleeps for {duration:?}");
        self.0.sleep(duration);
    }
}

#[test]
fn a_writer_with_a_low_rate_ends_with_the_readers() {
    let settings = Settings { write_rate: Some(1e-3), reads: Some(300), ..small() };
    let mut run = Run { clock: Arc::new(Watchful(SystemClock::new())), model: None, progress: &mut |_| () };
    let mut open = || Ok(MapStore::new());
    let benchmarks = [Benchmark::ReadWhileWriting];
    let reports = bench::run(&benchmarks, &settings, &mut run, false, &mut open, &mut |_| ()).unwrap();
    assert_eq!(reports[0].operations, 300);
}
