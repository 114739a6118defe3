//! A memory node that fills up: first slower, then refusals; and how a full database recovers.

use crate::common::Cluster;
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, WriteBatch};
use forebay_env::ManualClock;
use forebay_memory_node::{Identify, Identity, Limits, TenantOptions, TenantsOptions};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 64 * MIB;
/// How often a refused put is tried, as the clock of its database goes on.
const MOST_TRIES: usize = 100;
const VALUE_BYTES: u64 = 400;
/// Key and value, header and its share of the indexes.
const RECORD_BYTES: u64 = 20 + VALUE_BYTES + 48;

fn options() -> Options {
    Options {
        write_buffer_bytes: 512 << 10,
        target_table_bytes: 512 << 10,
        level1_bytes: 2 << 20,
        ..Options::default()
    }
}

fn key(i: u64) -> [u8; 20] {
    let mut key = [b'0'; 20];
    // Independent of the order of writing.
    key[..8].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn value(i: u64, version: u64) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE_BYTES as usize];
    value[..8].copy_from_slice(&i.to_be_bytes());
    value
}

fn report(cluster: &Cluster, dbs: &[&Db]) -> String {
    let statistics: Vec<_> = dbs.iter().map(|db| db.statistics()).collect();
    let client = cluster.client();
    format!("{statistics:#?}\n{:#?}\n{:#?}", client.node_statistics(), client.list_pool())
}

#[test]
fn live_data_that_fits_is_never_refused() {
    let cluster = Cluster::start(MEMORY);
    let db = cluster.open(options());
    let keys = MEMORY * 6 / 10 / RECORD_BYTES;
    for i in 0..keys {
        db.put(&key(i), &value(i, 0)).unwrap();
    }
    let mut versions = vec![Some(0); keys as usize];
    let mut snapshots = std::collections::VecDeque::new();
    for step in 0..2 * keys {
        let i = step.wrapping_mul(0x2545_f491_4f6c_dd1d) % keys;
        let version = 1 + step % 250;
        if step % 10 == 0 {
            db.delete(&key(i)).unwrap();
            versions[i as usize] = None;
        } else {
            let put = db.put(&key(i), &value(i, version));
            assert!(put.is_ok(), "step {step}: {put:?}: {}", report(&cluster, &[&db]));
            versions[i as usize] = Some(version);
        }
        if step % 4000 == 0 {
            snapshots.push_back((i, versions[i as usize], db.snapshot()));
        }
        if snapshots.len() > 2 {
            let (i, version, snapshot) = snapshots.pop_front().unwrap();
            assert_eq!(db.get_at(&key(i), &snapshot).unwrap(), version.map(|version| value(i, version)));
        }
    }
    snapshots.clear();
    for (i, version) in (0..keys).zip(&versions).step_by(17) {
        assert_eq!(db.get(&key(i)).unwrap(), version.map(|version| value(i, version)), "key {i}");
    }
    db.wait_for_compactions().unwrap();
    drop(db);
    cluster.expect_nothing_leased();
}

/// Puts until a put is refused, and then refused again, because on a busy machine background work may free some memory
/// in between. Returns how many were accepted.
fn fill(db: &Db) -> u64 {
    fill_with(db, |i| value(i, 1))
}

fn fill_with(db: &Db, value: impl Fn(u64) -> Vec<u8>) -> u64 {
    let (mut accepted, mut refused) = (0, 0);
    while refused < 2 {
        let value = value(accepted);
        match db.put(&key(accepted), &value) {
            Ok(()) => {
                assert!(accepted * (value.len() as u64) < MEMORY, "more than there is memory");
                (accepted, refused) = (accepted + 1, 0);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                assert!(error.to_string().contains("delete something"), "{error}");
                refused += 1;
            }
        }
    }
    accepted
}

/// Calls until there is room again. On a busy machine, collection may take a while.
fn in_time(cluster: &Cluster, db: &Db, call: impl Fn() -> forebay_engine::Result<()>) {
    for _ in 0..2000 {
        match call() {
            Ok(()) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
        }
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no room: {}", report(cluster, &[db]));
}

/// A tenant that may have half of a node with twice the memory: what fills up is its limit.
fn limited() -> Cluster {
    let identity = Identity::new("secret:limited").unwrap();
    let limits = Limits { memory_bytes: Some(MEMORY), ..Limits::default() };
    let known = vec![TenantOptions { limits, ..TenantOptions::new("limited", vec![identity.clone()]) }];
    Cluster::start_with(forebay_memory_node::Options {
        extent_bytes: Some(forebay_memory_node::Options::default_extent_bytes(MEMORY)),
        tenants: TenantsOptions { known, others: Limits::default() },
        identify: Identify::new(move |_| identity.clone()),
        ..forebay_memory_node::Options::with_memory(2 * MEMORY)
    })
}

#[test]
fn a_full_database_accepts_deletions_and_comes_back() {
    let clusters = [(false, Cluster::start(MEMORY)), (true, Cluster::start(MEMORY)), (false, limited())];
    for (by_range, cluster) in clusters {
        let db = cluster.open(options());
        let filled = fill(&db);
        assert!(filled * RECORD_BYTES > MEMORY / 2, "{filled} records were accepted: {:?}", db.statistics());
        let deleted = |i: u64| if by_range { key(i)[0] < 128 } else { i.is_multiple_of(2) };
        if by_range {
            let mut batch = WriteBatch::new();
            batch.delete_range(b"", &[128]);
            db.write(&batch).unwrap();
        } else {
            for i in (0..filled).filter(|&i| deleted(i)) {
                let result = db.delete(&key(i));
                assert!(result.is_ok(), "delete {i} of {filled}: {result:?}: {}", report(&cluster, &[&db]));
            }
        }
        let expect = |i: u64| (!deleted(i)).then(|| value(i, 1));
        for i in (0..filled).step_by(13) {
            assert_eq!(db.get(&key(i)).unwrap(), expect(i), "key {i}");
        }
        in_time(&cluster, &db, || db.flush());
        // There is room again.
        let again = filled / 50;
        for i in 0..again {
            in_time(&cluster, &db, || db.put(&key(filled + i), &value(filled + i, 2)));
        }
        for i in (0..filled).step_by(13) {
            assert_eq!(db.get(&key(i)).unwrap(), expect(i), "key {i}");
        }
        for i in (0..again).step_by(13) {
            assert_eq!(db.get(&key(filled + i)).unwrap(), Some(value(filled + i, 2)));
        }
        drop(db);
        cluster.expect_nothing_leased();
    }
}

/// All that is deleted fits in one memtable, which nobody asks to be flushed. With a log in memory, its parts also take
/// memory.
#[test]
fn a_full_database_that_was_emptied_takes_writes_again() {
    for durability in [Durability::None, Durability::Memory { copies: 1 }] {
        let node = forebay_memory_node::Options::with_memory(MEMORY);
        let cluster = Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(MIB), ..node });
        let db = cluster.open(Options { name: Some("db".to_owned()), durability, ..options() });
        let value = vec![7; 20_000];
        let filled = fill_with(&db, |_| value.clone());
        for i in 0..filled {
            let result = db.delete(&key(i));
            assert!(result.is_ok(), "delete {i} of {filled}: {result:?}: {}", report(&cluster, &[&db]));
        }
        in_time(&cluster, &db, || db.put(&key(0), &value));
        assert_eq!(db.get(&key(0)).unwrap(), Some(value));
        assert_eq!(db.get(&key(filled - 1)).unwrap(), None);
    }
}

/// Puts once no background work is left, in a database without threads.
fn put_after_background(db: &Db, key: &[u8], value: &[u8]) -> forebay_engine::Result<()> {
    while db.run_background_step() {}
    db.put(key, value)
}

/// Small records have large indexes. The deletions of one memtable are spread over all records, and the indexes of what
/// they are merged with need more memory than there is. Without threads a flush comes before every compaction, as on a
/// busy machine.
#[test]
fn a_small_node_that_was_emptied_of_small_records_takes_writes_again() {
    emptied_and_filled_again(&[(MEMORY / 4, 40), (MEMORY / 4, 100), (MEMORY / 2, 200)]);
}

/// With a log, this does not yet work for records of 16 B (`docs/decisions/0069`).
#[test]
#[ignore = "takes a minute: `cargo xtask space`"]
fn a_larger_node_that_was_emptied_of_small_records_takes_writes_again() {
    emptied_and_filled_again(&[(MEMORY / 2, 8), (MEMORY, 400)]);
    fill_and_empty(MEMORY, 16, Durability::None);
}

/// Nodes of this much memory, with values of this length, without a log and with one.
fn emptied_and_filled_again(nodes: &[(u64, usize)]) {
    for &(memory, value_bytes) in nodes {
        fill_and_empty(memory, value_bytes, Durability::None);
        fill_and_empty(memory, value_bytes, Durability::Memory { copies: 1 });
    }
}

fn fill_and_empty(memory: u64, value_bytes: usize, durability: Durability) {
    let cluster = Cluster::start(memory);
    let clock = Arc::new(ManualClock::new());
    let name = Some("db".to_owned());
    let db = cluster.open(Options { name, durability, background_threads: 0, clock, ..options() });
    let value = vec![7; value_bytes];
    let filled = fill_with(&db, |_| value.clone());
    let what = format!("{filled} records of {value_bytes} B with {durability:?}");
    for i in 0..filled {
        let result = db.delete(&key(i));
        assert!(result.is_ok(), "delete {i} of {what}: {result:?}: {}", report(&cluster, &[&db]));
    }
    for i in 0..filled / 4 {
        let mut tries = (0..MOST_TRIES).map(|_| put_after_background(&db, &key(i), &value));
        let put = db.put(&key(i), &value).ok().or_else(|| tries.find_map(Result::ok));
        assert!(put.is_some(), "put {i} of {what}: {}", report(&cluster, &[&db]));
    }
    assert_eq!(db.get(&key(0)).unwrap(), Some(value));
    assert_eq!(db.get(&key(filled - 1)).unwrap(), None);
}

/// With a log in memory, each deletion takes room in it, beside its memtable.
#[test]
fn a_log_in_memory_takes_all_deletions_of_a_full_database() {
    for extent_bytes in [None, Some(MIB)] {
        let node = forebay_memory_node::Options::with_memory(MEMORY / 4);
        let extent_bytes = extent_bytes.or(node.extent_bytes);
        let cluster = Cluster::start_with(forebay_memory_node::Options { extent_bytes, ..node });
        let durability = Durability::Memory { copies: 1 };
        let db = cluster.open(Options { name: Some("db".to_owned()), durability, ..options() });
        let filled = fill(&db);
        for i in 0..filled {
            let result = db.delete(&key(i));
            assert!(result.is_ok(), "delete {i} of {filled}: {result:?}: {}", report(&cluster, &[&db]));
        }
        assert_eq!(db.get(&key(filled - 1)).unwrap(), None);
    }
}

/// A node whose extents are small compared with shares: the ledger is exact to an extent for each shard. Its lease is
/// the usual one: puts wait that long for what was lent, and a busy machine takes seconds to bring it back.
fn shared() -> Cluster {
    let options = forebay_memory_node::Options::with_memory(MEMORY);
    Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(MIB), ..options })
}

#[test]
fn whoever_rests_finds_memory_beside_a_burst() {
    let cluster = shared();
    let (rests, bursts) = (cluster.open(options()), cluster.open(options()));
    let borrowed = fill(&bursts);
    assert!(borrowed * RECORD_BYTES > MEMORY / 2, "it may have more than half, and took {borrowed} records");
    // A quarter of its share is kept for this database, whatever the other one holds, and it may take the other one's
    // reserve.
    let kept = MEMORY / 16 / RECORD_BYTES;
    for i in 0..kept {
        let put = rests.put(&key(i), &value(i, 0));
        assert!(put.is_ok(), "{i} of {kept}: {put:?}: {}", report(&cluster, &[&rests, &bursts]));
    }
    // The other database cannot give back what lives. That is found out, and reported.
    assert!(fill(&rests) > kept);
    for i in (0..borrowed).step_by(13) {
        assert_eq!(bursts.get(&key(i)).unwrap(), Some(value(i, 1)), "key {i}");
    }
    drop((rests, bursts));
    cluster.expect_nothing_leased();
}

#[test]
fn what_was_borrowed_comes_back() {
    let cluster = shared();
    let (rests, bursts) = (cluster.open(options()), cluster.open(options()));
    let borrowed = fill(&bursts);
    let all = [0xff; 20];
    bursts.delete_range(b"", &all).unwrap();
    in_time(&cluster, &bursts, || bursts.flush());
    let share = MEMORY * 4 / 10 / RECORD_BYTES;
    assert!(borrowed > share);
    for i in 0..share {
        in_time(&cluster, &rests, || rests.put(&key(i), &value(i, 2)));
    }
    for i in (0..share).step_by(13) {
        assert_eq!(rests.get(&key(i)).unwrap(), Some(value(i, 2)), "key {i}");
    }
    drop((rests, bursts));
    cluster.expect_nothing_leased();
}
