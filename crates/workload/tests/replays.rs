//! Replay of traces: the model, and that it notices a faulty store.

use crate::common::{Fault, Faulty};
use forebay_base::ErrorKind;
use forebay_env::{Random, SystemClock};
use forebay_workload::replay::{Settings, replay};
use forebay_workload::{Error, MapStore, PhaseReport, Run, Store};
use std::path::{Path, PathBuf};

fn run(settings: &Settings, store: &impl Store) -> Result<PhaseReport, Error> {
    replay(settings.open()?, store, &mut Run { clock: SystemClock::shared(), model: None, progress: &mut |_| () })
}

fn trace(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn block_trace(name: &str) -> PathBuf {
    let mut random = Random::seeded(3);
    let mut text = String::from("version,time,op,size,lbn\n");
    for time in 0..2000 {
        let op = if random.one_in(1, 2) { "28" } else { "2a" };
        text += &format!("1,{time},{op},{},{}\n", 512 * (1 + random.below(20)), random.below(500));
    }
    trace(name, &text)
}

fn page_trace(name: &str) -> PathBuf {
    let mut random = Random::seeded(4);
    let lines = (0..3000).map(|request| format!("{} {} 0 {request}\n", random.below(200), 1 + random.below(3)));
    trace(name, &lines.collect::<String>())
}

#[test]
fn blocks_are_batches_and_multi_gets() {
    let path = trace(
        "blocks.csv",
        "version,time,op,size,lbn\n1,1,2a,2048,10\n1,2,28,1024,12\n1,3,28,1024,13\n1,4,2a,512,11\n1,5,28,512,11\n",
    );
    let store = MapStore::new();
    let report = run(&Settings::new(path), &store).unwrap();
    assert_eq!((report.operations, report.found, store.len()), (5, Some(4), 4));
    let calls: Vec<_> = report.by_operation.iter().map(|each| (each.operation.as_str(), each.calls)).collect();
    assert_eq!(calls, [("multiget", 3), ("batch", 2)]);
    assert_eq!(report.name, "replay blocks.csv");
}

#[test]
fn pages_are_written_when_new_and_in_a_share_of_cases() {
    let store = MapStore::new();
    let path = page_trace("pages.lis");
    let report = run(&Settings::new(&path), &store).unwrap();
    let calls: Vec<_> = report.by_operation.iter().map(|each| each.calls).collect();
    let again = report.operations - store.len() as u64;
    let share = 1.0 - calls[0] as f64 / again as f64;
    assert!((0.27..0.33).contains(&share), "{share}");
    assert_eq!(report.found, Some(calls[0]));
    let limited = run(&Settings { limit: Some(100), ..Settings::new(path) }, &MapStore::new()).unwrap();
    assert_eq!(limited.operations, 100);
}

#[test]
fn a_malformed_line_ends_the_replay() {
    let error = run(&Settings::new(trace("bad.lis", "1 1 0 0\n2 one 0 0\n")), &MapStore::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().ends_with("bad.lis, line 2: the count `one` is not a number"), "{error}");
    let missing = run(&Settings::new("/nowhere.lis"), &MapStore::new()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io);
}

#[test]
fn planted_faults_are_noticed() {
    let (pages, blocks) = (page_trace("faulty.lis"), block_trace("faulty.csv"));
    run(&Settings::new(&pages), &MapStore::new()).unwrap();
    run(&Settings::new(&blocks), &MapStore::new()).unwrap();
    for (fault, path) in [
        (Fault::LosesAWrite, &pages),
        (Fault::FlipsABit, &pages),
        (Fault::LosesAllOfABatchButOne, &blocks),
        (Fault::SwapsAnswers, &blocks),
    ] {
        let store = Faulty::after(150, fault);
        let error = run(&Settings::new(path), &store).expect_err(&format!("{fault:?} was not noticed"));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{fault:?}: {error}");
    }
}

/// A trace may read what it writes only later, and an earlier replay has written that.
#[test]
fn what_a_store_had_before_is_no_fault() {
    let path = trace("again.csv", "version,time,op,size,lbn\n1,1,28,512,5\n1,2,2a,512,5\n1,3,28,512,5\n");
    let store = MapStore::new();
    let found = || run(&Settings::new(&path), &store).unwrap().found;
    assert_eq!([found(), found()], [Some(1), Some(2)]);
}
