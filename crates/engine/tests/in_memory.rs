//! A process looks at a database on memory nodes that it does not own.

use crate::common::copied::{self, register};
use crate::common::model::key;
use crate::common::process::Process;
use crate::common::{Cluster, SetWhenDropped, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Cell, Db, Durability, MemoryDatabase, Options, Report, ShardBounds, Shown};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: u64 = 2000;
const LIMIT: usize = 100_000;

/// A database of two shards without background work.
fn named(durability: Durability) -> Options {
    Options {
        name: Some("db".to_owned()),
        shards: 2,
        shard_bounds: ShardBounds::Given(vec![key(KEYS / 2)]),
        durability,
        background_threads: 0,
        ..small_options()
    }
}

/// Writes to tables on several levels and to what follows them, one record to each shard.
fn fill(db: &Db) {
    (0..KEYS).for_each(|number| db.put(&key(number), &[number as u8; 100]).unwrap());
    db.compact_range(None, None).unwrap();
    (0..KEYS).step_by(7).for_each(|number| db.delete(&key(number)).unwrap());
    db.flush().unwrap();
    db.put(&key(1), b"behind the tables").unwrap();
    db.put(&key(KEYS - 1), b"behind the tables").unwrap();
}

fn look(nodes: &[&Cluster]) -> MemoryDatabase {
    let clients: Vec<_> = nodes.iter().map(|node| node.client()).collect();
    MemoryDatabase::new(&clients, "db").unwrap()
}

/// Rows of a list, each by its columns.
fn rows(report: &Report, name: &str) -> Vec<BTreeMap<&'static str, Cell>> {
    let section = report.sections.iter().find(|section| section.name == name).unwrap();
    section.rows.iter().map(|row| section.columns.iter().copied().zip(row.iter().cloned()).collect()).collect()
}

fn number(cell: &Cell) -> u64 {
    match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn shown(database: &MemoryDatabase, what: &Shown) -> Report {
    let report = database.show(what, LIMIT).unwrap();
    assert_eq!(report.problems, [], "{what:?}");
    report
}

/// All that can be shown of a database, which must be whole.
fn everything(database: &MemoryDatabase) -> Vec<Report> {
    let manifest = shown(database, &Shown::Manifest);
    let mut reports = vec![shown(database, &Shown::Log(None))];
    for table in rows(&manifest, "tables") {
        let [shard, id] = ["shard", "table"].map(|column| number(&table[column]));
        let report = shown(database, &Shown::Table { shard, table: id });
        assert_eq!(rows(&report, "entries").len() as u64, number(&table["entries"]));
        assert_eq!(rows(&report, "segment")[0]["segment"], table["image"]);
        reports.push(report);
    }
    for segment in rows(&manifest, "segments") {
        let name = format!("{}/{}", number(&segment["shard"]), number(&segment["segment"]));
        let report = shown(database, &Shown::Segment(name));
        assert_eq!(rows(&report, "segment")[0]["bytes"], segment["bytes"]);
        let list = if segment["kind"] == Cell::Text("image".to_owned()) { "entries" } else { "records" };
        assert!(!rows(&report, list).is_empty(), "{segment:?}");
        reports.push(report);
    }
    reports.push(manifest);
    reports
}

#[test]
fn all_of_a_database_is_shown_and_its_owner_goes_on() {
    for durability in [Durability::None, Durability::Memory { copies: 1 }] {
        let (one, other) = (Cluster::start(64 << 20), Cluster::start(64 << 20));
        let process = Process::start([&one, &other]);
        let db = process.open(named(durability));
        fill(&db);
        let figures = || {
            [&one, &other].map(|node| {
                let held = node.client().node_statistics().unwrap();
                let extents = [held.free_extents, held.leased_extents, held.adopted_extents, held.job_extents];
                (extents, [held.allocated_bytes, held.live_bytes, held.stores, held.shards, held.owned_shards])
            })
        };
        let before = figures();
        let database = look(&[&other, &one]);
        let reports = everything(&database);
        let manifest = reports.last().unwrap();
        let count = |name| rows(manifest, name).len();
        assert_eq!((count("stores"), count("manifests"), count("shards")), (2, 2, 2), "{durability:?}");
        assert!(count("tables") > 4 && count("segments") > 4);
        let log = rows(&reports[0], "parts");
        match durability {
            // What follows the tables is in memtables, which no node has.
            Durability::None => assert!(log.is_empty()),
            _ => {
                let ends = |part: &BTreeMap<_, Cell>| (part["last"].clone(), part["shipped"].clone());
                let needed: Vec<_> = log.iter().filter(|part| part["needed"] == Cell::Text("yes".to_owned())).collect();
                let published = db.snapshot().sequence_numbers().to_vec();
                let published = published.into_iter().map(|last| Cell::from(last.0)).map(|last| (last.clone(), last));
                assert_eq!(needed.into_iter().map(ends).collect::<Vec<_>>(), published.collect::<Vec<_>>());
            }
        }
        // Nothing was acquired, leased or written.
        assert_eq!(everything(&database), reports);
        assert_eq!(figures(), before);
        db.put(&key(0), b"goes on").unwrap();
        db.flush().unwrap();
        assert!(db.failure().is_none());
        let later = rows(&shown(&look(&[&other, &one]), &Shown::Manifest), "manifests");
        let epochs =
            |manifests: &[BTreeMap<_, Cell>]| manifests.iter().map(|of| of["epoch"].clone()).collect::<Vec<_>>();
        assert_eq!(epochs(&later), epochs(&rows(manifest, "manifests")), "nobody acquired a shard");
        db.close().unwrap();
        everything(&look(&[&one, &other]));
    }
}

#[test]
fn an_owner_that_writes_all_the_time_is_no_damage() {
    let node = Cluster::start(64 << 20);
    let process = Process::start([&node]);
    let db = process.open(Options { background_threads: 2, ..named(Durability::Memory { copies: 1 }) });
    fill(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = SetWhenDropped(&done);
        let (db, done) = (&db, &done);
        scope.spawn(move || {
            for number in (0..KEYS).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                db.put(&key(number), &[number as u8; 400]).unwrap();
            }
        });
        let database = look(&[&node]);
        let mut seen = 0;
        let mut try_to_show = |what: Shown| match database.show(&what, LIMIT) {
            Ok(report) => {
                assert_eq!(report.problems, [], "{what:?}");
                seen += 1;
                Some(report)
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound), "{what:?}: {error}");
                None
            }
        };
        for _ in 0..20 {
            try_to_show(Shown::Log(None));
            let Some(manifest) = try_to_show(Shown::Manifest) else { continue };
            if let Some(table) = rows(&manifest, "tables").first() {
                try_to_show(Shown::Table { shard: number(&table["shard"]), table: number(&table["table"]) });
            }
            for segment in rows(&manifest, "segments").iter().take(3) {
                let name = format!("{}/{}", number(&segment["shard"]), number(&segment["segment"]));
                try_to_show(Shown::Segment(name));
            }
        }
        assert!(seen > 0);
    });
    assert!(db.failure().is_none());
    db.close().unwrap();
}

#[test]
fn damage_is_told() {
    let node = Cluster::start(64 << 20);
    let process = Process::start([&node]);
    let db = process.open(named(Durability::Memory { copies: 1 }));
    fill(&db);
    let database = look(&[&node]);
    let manifest = shown(&database, &Shown::Manifest);
    let table = rows(&manifest, "tables").remove(0);
    let [shard, id] = ["shard", "table"].map(|column| number(&table[column]));
    let image = format!("{shard}/{}", number(&table["image"]));
    let at = rows(&shown(&database, &Shown::Segment(image.clone())), "segment").remove(0);
    let last = number(&at["offset"]) + number(&at["bytes"]) - 20;
    let rot = |extent: &Cell, offset: u64| node.rot(number(extent) as u32, offset as usize, 4);
    rot(&at["extent"], last);
    for what in [Shown::Table { shard, table: id }, Shown::Segment(image.clone())] {
        let report = database.show(&what, LIMIT).unwrap();
        let problem = report.problems.first().unwrap();
        assert_eq!((&problem.object, problem.kind), (&image, ErrorKind::Corrupt), "{what:?}");
    }
    rot(&at["extent"], last);
    shown(&database, &Shown::Table { shard, table: id });
    // The log after its first record.
    let part = rows(&shown(&database, &Shown::Log(None)), "parts").pop().unwrap();
    let name = format!("{}/{}", number(&part["shard"]), number(&part["segment"]));
    let at = rows(&shown(&database, &Shown::Segment(name)), "segment").remove(0);
    rot(&at["extent"], number(&at["offset"]));
    let report = database.show(&Shown::Log(None), LIMIT).unwrap();
    assert_eq!(report.problems.first().unwrap().kind, ErrorKind::Corrupt);
    rot(&at["extent"], number(&at["offset"]));
    // The manifest of one shard is damaged: the other one is shown.
    let of_manifest = rows(&manifest, "manifests").remove(1);
    rot(&of_manifest["extent"], number(&of_manifest["offset"]) + 8);
    let report = database.show(&Shown::Manifest, LIMIT).unwrap();
    assert_eq!(report.problems.first().unwrap().kind, ErrorKind::Corrupt);
    assert_eq!((rows(&report, "manifests").len(), rows(&report, "shards").len()), (2, 1));
    let refused = database.show(&Shown::Table { shard: 1, table: 0 }, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}

#[test]
fn what_is_not_there_is_an_error() {
    let (one, other) = (Cluster::start(64 << 20), Cluster::start(64 << 20));
    let process = Process::start([&one, &other]);
    let db = process.open(named(Durability::None));
    fill(&db);
    let database = look(&[&one]);
    let report = shown(&database, &Shown::Manifest);
    assert_eq!(rows(&report, "shards").len(), 1);
    assert!(report.notes.iter().any(|note| note.object == "shard 1"), "{:?}", report.notes);
    let missing = [
        Shown::Table { shard: 0, table: 77_777 },
        Shown::Table { shard: 1, table: 1 },
        Shown::Segment("0/77777".to_owned()),
        Shown::Segment("9/1".to_owned()),
    ];
    let invalid = [Shown::Log(Some((1, 1))), Shown::Segment("12".to_owned()), Shown::Segment("a/b".to_owned())];
    for (shown, kind) in [(&missing[..], ErrorKind::NotFound), (&invalid[..], ErrorKind::Invalid)] {
        for what in shown {
            assert_eq!(database.show(what, LIMIT).unwrap_err().kind(), kind, "{what:?}");
            assert_eq!(MemoryDatabase::check(what).is_err(), kind == ErrorKind::Invalid, "{what:?}");
        }
    }
    let limited = database.show(&Shown::Segment("0/1".to_owned()), 0);
    assert!(limited.is_err() || limited.is_ok_and(|report| !report.notes.is_empty()));
    let open = |clients: &[_], name| MemoryDatabase::new(clients, name).map(drop).unwrap_err().kind();
    assert_eq!(open(&[one.client()], "another"), ErrorKind::NotFound);
    assert_eq!(open(&[one.client(), one.client()], "db"), ErrorKind::Invalid);
    assert_eq!(open(&[], "db"), ErrorKind::NotFound);
}

#[test]
fn of_several_copies_one_is_shown_and_any_can_be() {
    let (nodes, register) = (copied::start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(Options { background_threads: 0, ..copied::options(&register, 2) });
    fill(&db);
    let both = look(&[&nodes[0], &nodes[1]]);
    let report = shown(&both, &Shown::Manifest);
    let manifests = rows(&report, "manifests");
    let are_shown: Vec<_> = manifests.iter().map(|manifest| manifest["shown"].clone()).collect();
    assert_eq!(are_shown, ["yes", "no"].map(Cell::from), "{manifests:?}");
    assert_eq!(rows(&report, "stores")[0]["copies"], Cell::Number(2));
    let reports = [&nodes[0], &nodes[1]].map(|node| everything(&look(&[node])));
    let records = |reports: &[Report]| reports.iter().map(|report| report.sections.last().cloned()).collect::<Vec<_>>();
    assert_eq!(records(&reports[0][1..]), records(&reports[1][1..]), "each copy has the same");
    // A copy that is left out is behind.
    process.links[0].close();
    (0..KEYS).for_each(|number| db.put(&key(number), b"later").unwrap());
    db.flush().unwrap();
    let manifests = rows(&shown(&both, &Shown::Manifest), "manifests");
    let are_shown: Vec<_> = manifests.iter().map(|manifest| manifest["shown"].clone()).collect();
    assert_eq!(are_shown, ["no", "yes"].map(Cell::from), "{manifests:?}");
}
