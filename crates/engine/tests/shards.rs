//! What spans shards: batches, snapshots, reads of several keys, and memory nodes that are lost.

mod common;

use common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options, ShardBounds, WriteBatch};
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: u8 = 4;

fn key(shard: u8, name: &str) -> Vec<u8> {
    [&[b'a' + shard][..], name.as_bytes()].concat()
}

/// Shard `i` owns the keys from the letter `i` of the alphabet on.
fn options() -> Options {
    let bounds = (1..SHARDS).map(|shard| vec![b'a' + shard]).collect();
    Options { shards: SHARDS.into(), shard_bounds: ShardBounds::Given(bounds), ..small_options() }
}

fn open(nodes: usize, options: Options) -> (Vec<Cluster>, Db) {
    let clusters: Vec<_> = (0..nodes).map(|_| Cluster::start(256 << 20)).collect();
    let clients: Vec<_> = clusters.iter().map(Cluster::client).collect();
    let db = Db::open(&clients, options).unwrap();
    (clusters, db)
}

/// Writers of batches that cross all shards run against snapshots, iterators and reads of several
/// keys, among writes to single shards and with memtables that end all the time.
#[test]
fn a_batch_that_crosses_shards_is_seen_whole() {
    let (_clusters, db) = open(2, Options { max_immutable_memtables: 1, ..options() });
    let done = AtomicBool::new(false);
    let all_equal = |values: &[Option<Vec<u8>>]| values.iter().all(|value| *value == values[0]);
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for writer in 0..2u8 {
            let (db, name) = (&db, format!("batch-{writer}"));
            writers.push(scope.spawn(move || {
                for round in 0..1500u32 {
                    let mut batch = WriteBatch::new();
                    if round % 16 == 0 {
                        batch.delete_range(b"aaaa", b"eeee");
                    }
                    let value = [&round.to_be_bytes()[..], &[writer; 100]].concat();
                    for shard in 0..SHARDS {
                        batch.put(&key(shard, &name), &value);
                    }
                    db.write(&batch).unwrap();
                    let keys: Vec<_> = (0..SHARDS).map(|shard| key(shard, &name)).collect();
                    let own = db.get(&keys[usize::from(SHARDS) - 1]).unwrap();
                    // The other writer's range deletion may have hidden it.
                    assert!(own.is_none_or(|own| own == value), "own write");
                }
            }));
        }
        let single = &db;
        writers.push(scope.spawn(move || {
            for round in 0..6000u32 {
                let key = key((round % u32::from(SHARDS)) as u8, &format!("{round}"));
                single.put(&key, &[7; 200]).unwrap();
            }
        }));
        for reader in 0..2u8 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let names = (0..SHARDS).map(|shard| key(shard, &format!("batch-{reader}")));
                let keys: Vec<Vec<u8>> = names.collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                while !done.load(Ordering::Relaxed) {
                    assert!(all_equal(&db.multi_get(&keys).unwrap()));
                    let snapshot = db.snapshot();
                    let values: Vec<_> = keys.iter().map(|key| db.get_at(key, &snapshot).unwrap()).collect();
                    assert!(all_equal(&values));
                    let mut iterator = db.iter().unwrap();
                    let walked: Vec<_> = keys
                        .iter()
                        .map(|key| {
                            iterator.seek(key).unwrap();
                            (iterator.valid() && iterator.key() == *key).then(|| iterator.value().to_vec())
                        })
                        .collect();
                    assert!(all_equal(&walked));
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    db.close().unwrap();
}

#[test]
fn keys_of_any_shards_cost_the_same_round_trips() {
    let (_clusters, db) = open(2, options());
    let keys: Vec<_> = (0..64).map(|i| key(i % SHARDS, &format!("{i}"))).collect();
    keys.iter().for_each(|key| db.put(key, &[1; 100]).unwrap());
    db.compact_range(None, None).unwrap();
    let trips = |run: &dyn Fn()| {
        let before = db.statistics().foreground.round_trips;
        run();
        db.statistics().foreground.round_trips - before
    };
    for key in &keys {
        assert_eq!(trips(&|| assert!(db.get(key).unwrap().is_some())), 1);
    }
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // One doorbell a node, all rung before any is waited for.
    assert_eq!(trips(&|| assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some))), 2);
    assert_eq!(trips(&|| assert!(db.get(b"absent").unwrap().is_none())), 0);
}

#[test]
fn a_lost_node_fails_its_own_shards_only() {
    let (mut clusters, db) = open(2, options());
    for shard in 0..SHARDS {
        db.put(&key(shard, "1"), b"value").unwrap();
    }
    db.flush().unwrap();
    clusters[1].stop();
    for shard in 0..SHARDS {
        let got = db.get(&key(shard, "1"));
        if shard % 2 == 0 {
            assert_eq!(got.unwrap().as_deref(), Some(&b"value"[..]));
        } else {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
    // Shards of the node that is left flush and compact on.
    for i in 0..2000u32 {
        db.put(&key(0, &i.to_string()), &[1; 100]).unwrap();
    }
    assert_eq!(db.get(&key(0, "1999")).unwrap().unwrap(), [1; 100]);
    db.put(&key(1, "2"), b"lost").unwrap();
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn range_deletes_cross_shards() {
    let (_clusters, db) = open(1, options());
    for shard in 0..SHARDS {
        (0..10).for_each(|i| db.put(&key(shard, &i.to_string()), b"").unwrap());
    }
    let snapshot = db.snapshot();
    db.delete_range(b"a5", b"d5").unwrap();
    let count = |mut iterator: forebay_engine::DbIterator| {
        let mut count = 0;
        iterator.seek_to_last().unwrap();
        while iterator.valid() {
            count += 1;
            iterator.prev().unwrap();
        }
        count
    };
    assert_eq!(count(db.iter().unwrap()), 10);
    assert_eq!(count(db.iter_at(&snapshot).unwrap()), 40);
}

#[test]
fn options_and_snapshots_are_checked() {
    let cluster = Cluster::start(64 << 20);
    let kind = |clients: &[_], options| Db::open(clients, options).unwrap_err().kind();
    assert_eq!(kind(&[], small_options()), ErrorKind::Invalid);
    let wrong = ShardBounds::Given(vec![b"b".to_vec(), b"a".to_vec()]);
    assert_eq!(
        kind(&[cluster.client()], Options { shards: 3, shard_bounds: wrong, ..small_options() }),
        ErrorKind::Invalid
    );
    assert_eq!(kind(&[cluster.client()], Options { shards: 0, ..small_options() }), ErrorKind::Invalid);
    let (db, other) = (cluster.open(options()), cluster.open(options()));
    assert_eq!(db.get_at(b"a", &other.snapshot()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.shard_bounds().len(), usize::from(SHARDS) - 1);
}
