//! The database does not trust what an executor says of copies in storage; a planted bug that trusts it is caught.

mod common;

use common::{Cluster, Folder, Stored, check, key, open_stored, value};
use forebay_engine::CompactionPlace;
use forebay_engine::planted::{Bug, plant};
use std::panic::catch_unwind;

const KEYS: u32 = 3000;

/// A worker was started with the storage of another database, and puts copies there. All copies must be in the
/// database's own storage all the same.
fn with_a_worker_that_is_astray(name: &str) {
    let (folder, other) = (Folder::new(name), Folder::new(&format!("{name}-other")));
    let cluster = Cluster::start(0);
    let worker = cluster.worker_on(8, Some(other.storage()));
    let stored = Stored { compacts: false, ..Stored::at(CompactionPlace::Pool) };
    let db = open_stored(&cluster, &folder, stored);
    for i in 0..KEYS {
        db.put(&key(i), &value(i, 2)).unwrap();
    }
    db.flush().unwrap();
    check(&db, KEYS);
    assert!(worker.statistics().completed > 0, "the worker did nothing");
    drop((db, worker));
    check(&open_stored(&Cluster::start(0), &folder, stored), KEYS);
}

#[test]
fn copies_that_went_elsewhere_do_not_count() {
    with_a_worker_that_is_astray("astray");
    plant(Some(Bug::TrustCopies));
    let found = catch_unwind(|| with_a_worker_that_is_astray("believed")).is_err();
    plant(None);
    assert!(found, "copies that are not there are believed");
}
