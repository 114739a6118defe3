//! Bugs planted in lookups without a point index.

use crate::alone;
use crate::common::Cluster;
use forebay_engine::planted::{Bug, plant};
use forebay_engine::{Db, Delegation, Options};

const KEY: &[u8] = b"key";

/// A database whose lookups are delegated, and which flushes only on request.
fn open(cluster: &Cluster) -> Db {
    cluster.open(Options {
        write_buffer_bytes: 64 << 10,
        // Room for addresses, not for an index.
        cached_index_bytes: Some(2_000),
        delegation: Delegation::Always,
        background_threads: 0,
        ..Options::default()
    })
}

/// Other keys around that key, so many that the index of their table exceeds the budget.
fn write_others(db: &Db) {
    for i in 0..1000u32 {
        db.put(&[b"a", b"z"][i as usize % 2].repeat(i as usize % 20 + 1), &i.to_be_bytes()).unwrap();
        db.put(format!("m{i:09}").as_bytes(), &i.to_be_bytes()).unwrap();
    }
}

/// What a read finds for a key whose older value was looked up and flushed: while the newer value is in a sealed
/// memtable, and when it is also flushed.
fn newest(cluster: &Cluster) -> [Option<Vec<u8>>; 2] {
    let db = open(cluster);
    write_others(&db);
    db.put(KEY, b"old").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get(KEY).unwrap().as_deref(), Some(&b"old"[..]));
    db.put(KEY, b"new").unwrap();
    // This ends the memtable that holds the new value.
    db.put(b"large", &[0; 60 << 10]).unwrap();
    db.put(b"large", &[0; 60 << 10]).unwrap();
    let sealed = db.get(KEY).unwrap();
    write_others(&db);
    db.flush().unwrap();
    [sealed, db.get(KEY).unwrap()]
}

#[test]
fn planted_bugs_of_lookups_are_found() {
    let _alone = alone();
    for bug in [None].into_iter().chain(Bug::OF_LOOKUPS.map(Some)) {
        let cluster = Cluster::start(64 << 20);
        plant(bug);
        let found = newest(&cluster);
        plant(None);
        let is_right = found.iter().all(|value| value.as_deref() == Some(b"new"));
        assert_eq!(is_right, bug.is_none(), "{bug:?}: {found:?}");
    }
}
