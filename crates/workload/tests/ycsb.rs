//! YCSB against a store in a map.

use forebay_env::SystemClock;
use forebay_workload::ycsb::{self, Settings, Workload};
use forebay_workload::{Cursor, Error, MapStore, PhaseReport, Run, Store};

fn run(stores: &[MapStore], workloads: &str, settings: &Settings) -> Result<Vec<PhaseReport>, Error> {
    let workloads: Vec<Workload> = workloads.split(',').map(|name| name.parse().unwrap()).collect();
    let mut run = Run { clock: SystemClock::shared(), model: None, progress: &mut |_| () };
    ycsb::run(stores, &workloads, settings, &mut run, &mut |_| ())
}

fn small() -> Settings {
    Settings { records: 1000, operations: 3000, warm_up: 100, threads: 2, scan_length: 10, ..Settings::default() }
}

#[test]
fn as_many_records_are_loaded_as_asked_for_and_all_reads_find() {
    let store = MapStore::new();
    let clients = vec![store.clone(); 2];
    let reports = run(&clients, "a,b,c,d,e,f,range-only,range-write,update-only", &small()).unwrap();
    let names: Vec<_> = reports.iter().map(|report| report.name.as_str()).collect();
    let workloads = ["a", "b", "c", "d", "e", "f", "range-only", "range-write", "update-only"];
    let expected = [&["load", "waitforcompaction", "warmup"][..], &workloads].concat();
    assert_eq!(names, expected);
    assert_eq!(reports[0].operations, 1000);
    for report in &reports[3..] {
        let calls = |name: &str| {
            let of = report.by_operation.iter().find(|operation| operation.operation == name);
            of.map_or(0, |operation| operation.calls)
        };
        assert_eq!(report.operations, 3000, "{}", report.name);
        match report.name.as_str() {
            "a" => assert!((1200..1800).contains(&calls("update")) && report.found == Some(calls("get"))),
            "c" => assert_eq!(report.found, Some(3000)),
            "d" => assert!((50..300).contains(&calls("insert"))),
            "f" => assert_eq!(report.found, Some(3000)),
            "range-write" => assert!((1200..1800).contains(&calls("scan"))),
            _ => (),
        }
    }
    let inserted = |name: &str| {
        let report = reports.iter().find(|report| report.name == name).unwrap();
        report.by_operation.iter().find(|operation| operation.operation == "insert").map_or(0, |of| of.calls)
    };
    assert_eq!(store.len() as u64, 1000 + inserted("d") + inserted("e") + inserted("range-write"));
}

#[test]
fn a_lost_record_is_found_out() {
    let store = MapStore::new();
    let mut lose_one = |report: &PhaseReport| {
        if report.name == "load" {
            let mut cursor = store.cursor().unwrap();
            cursor.seek_to_first().unwrap();
            let key = cursor.entry().unwrap().0.to_vec();
            store.delete(&key).unwrap();
        }
    };
    let settings = Settings { distribution: Some(ycsb::Distribution::Uniform), operations: 20_000, ..small() };
    let mut run = Run { clock: SystemClock::shared(), model: None, progress: &mut |_| () };
    let workloads = ["c".parse().unwrap()];
    let failed = ycsb::run(std::slice::from_ref(&store), &workloads, &settings, &mut run, &mut lose_one);
    assert!(matches!(failed, Err(Error::Verification { .. })), "{failed:?}");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let wrong = [
        Settings { records: 0, ..small() },
        Settings { key_size: 7, ..small() },
        Settings { theta: 0.0, ..small() },
        Settings { threads: 0, ..small() },
        Settings { scan_length: 0, ..small() },
    ];
    for settings in wrong {
        assert!(matches!(run(&[MapStore::new()], "a", &settings), Err(Error::Invalid(_))), "{settings:?}");
    }
    assert!(matches!(run(&[], "a", &small()), Err(Error::Invalid(_))));
    assert!("g".parse::<Workload>().is_err());
}
