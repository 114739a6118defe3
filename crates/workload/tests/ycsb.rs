//! YCSB against a store in a map.

use forebay_env::SystemClock;
use forebay_workload::ycsb::{self, Settings, Workload};
use forebay_workload::{Cursor, Error, Figures, MapStore, PhaseReport, Run, Store, StoreError};
use std::sync::Mutex;

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

/// A handle that one thread uses.
#[derive(Debug, Default)]
struct Own {
    store: MapStore,
    /// The number of the thread, at the end of its name.
    thread: Mutex<Option<String>>,
}

impl Clone for Own {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), thread: Mutex::default() }
    }
}

impl Own {
    fn used(&self) -> &MapStore {
        let thread = std::thread::current();
        let number = thread.name().unwrap_or_default().rsplit('-').next().unwrap_or_default().to_owned();
        let first = self.thread.lock().unwrap().get_or_insert_with(|| number.clone()).clone();
        assert_eq!(first, number, "two threads use one handle");
        &self.store
    }
}

impl Store for Own {
    type Cursor<'a> = <MapStore as Store>::Cursor<'a>;

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.used().put(key, value)
    }
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.used().delete(key)
    }
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError> {
        self.used().put_batch(records)
    }
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.used().get(key)
    }
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.used().multi_get(keys)
    }
    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError> {
        self.used().cursor()
    }
    fn compact(&self) -> Result<(), StoreError> {
        self.store.compact()
    }
    fn wait_for_compactions(&self) -> Result<(), StoreError> {
        self.store.wait_for_compactions()
    }
    fn figures(&self) -> Result<Figures, StoreError> {
        self.store.figures()
    }
    fn describe(&self) -> Result<String, StoreError> {
        self.store.describe()
    }
    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[test]
fn threads_of_a_client_do_not_share_a_handle() {
    let workloads = ["a".parse().unwrap(), "e".parse().unwrap()];
    let settings = Settings { threads: 3, ..small() };
    for clients in [1, 2] {
        let store = Own::default();
        let mut run = Run { clock: SystemClock::shared(), model: None, progress: &mut |_| () };
        let reports = ycsb::run(&vec![store.clone(); clients], &workloads, &settings, &mut run, &mut |_| ()).unwrap();
        assert!(reports.iter().any(|report| report.name == "e") && store.store.len() >= 1000);
    }
}
