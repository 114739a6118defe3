//! Operations that span shards: batches, snapshots, reads of several keys, and lost memory nodes.

use crate::common::model::walk;
use crate::common::{Cluster, SetWhenDropped, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, Options, ShardBounds, WriteBatch};
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: u8 = 4;

fn key(shard: u8, name: &str) -> Vec<u8> {
    [&[b'a' + shard][..], name.as_bytes()].concat()
}

/// Shard `i` owns the keys from letter `i` of the alphabet on.
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
    cross_shards(&db, |_| {});
}

/// The same while the bounds move back and forth over the keys of the batches.
#[test]
fn a_batch_is_seen_whole_while_bounds_move() {
    let (_clusters, db) = open(2, Options { max_immutable_memtables: 1, ..options() });
    let mut round = 0u32;
    cross_shards(&db, |db| {
        round += 1;
        let at = (round % (u32::from(SHARDS) - 1)) as u8;
        let to = match round / 3 % 4 {
            0 => key(at, "batch-1"),
            1 => key(at + 1, "c"),
            2 => key(at, "a"),
            _ => key(at + 1, ""),
        };
        match db.move_bound(usize::from(at), &to) {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            moved => moved.unwrap(),
        }
    });
    assert!(db.statistics().bound_moves > 2, "{}", db.statistics().bound_moves);
}

fn cross_shards(db: &Db, mut meanwhile: impl FnMut(&Db) + Send) {
    let done = AtomicBool::new(false);
    let all_equal = |values: &[Option<Vec<u8>>]| values.iter().all(|value| *value == values[0]);
    std::thread::scope(|scope| {
        let ends = SetWhenDropped(&done);
        let mut writers = Vec::new();
        for writer in 0..2u8 {
            let name = format!("batch-{writer}");
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
        writers.push(scope.spawn(move || {
            for round in 0..6000u32 {
                let key = key((round % u32::from(SHARDS)) as u8, &format!("{round}"));
                db.put(&key, &[7; 200]).unwrap();
            }
        }));
        for reader in 0..2u8 {
            let done = &done;
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
        let mover = scope.spawn({
            let done = &done;
            move || {
                while !done.load(Ordering::Relaxed) {
                    meanwhile(db);
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(ends);
        mover.join().unwrap();
    });
    db.close().unwrap();
}

/// Writers read their own writes and deletes while their keys move back and forth among many
/// others.
#[test]
fn writers_lose_nothing_while_their_keys_move() {
    let (_clusters, db) = open(2, options());
    let key = |i: u32| format!("b{i:05}").into_bytes();
    (0..3000).for_each(|i| db.put(&key(i), &[9; 50]).unwrap());
    db.flush().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetWhenDropped(&done);
        for writer in 0..2u32 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let mut round = 0u32;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let key = key(round * 2 % 3000 + writer);
                    let mut batch = WriteBatch::new();
                    match round % 8 {
                        0 => db.delete(&key).unwrap(),
                        1 => db.write(batch.put(&key, &round.to_be_bytes()).put(b"c", &[])).unwrap(),
                        2 => db.delete_range(&key, &[&key[..], &[0]].concat()).unwrap(),
                        _ => db.put(&key, &round.to_be_bytes()).unwrap(),
                    }
                    let expected = (!matches!(round % 8, 0 | 2)).then(|| round.to_be_bytes().to_vec());
                    for _ in 0..3 {
                        assert_eq!(db.get(&key).unwrap(), expected, "writer {writer}, round {round}");
                    }
                }
            });
        }
        for i in 0..30 {
            // The keys belong to shard 1 or to shard 0, in part or all.
            db.move_bound(0, &key([3000, 700, 2000, 0, 1500, 1][i % 6])).unwrap();
        }
        drop(ends);
    });
    db.close().unwrap();
}

#[test]
fn what_was_taken_before_a_move_reads_on() {
    for key_order in [KeyOrder::Bytewise, KeyOrder::ReverseBytewise] {
        let bounds = match key_order {
            KeyOrder::Bytewise => vec![b"k 0100".to_vec(), b"k 0200".to_vec()],
            KeyOrder::ReverseBytewise => vec![b"k 0200".to_vec(), b"k 0100".to_vec()],
        };
        // The last shard owns nothing at first.
        let shard_bounds = ShardBounds::Given(bounds);
        let (_clusters, db) = open(2, Options { key_order, shard_bounds, ..options() });
        let key = |i: u32| format!("k {i:04}").into_bytes();
        (0..300).for_each(|i| db.put(&key(i), &[1; 200]).unwrap());
        db.flush().unwrap();
        (0..300).step_by(7).for_each(|i| db.put(&key(i), &[2; 200]).unwrap());
        (0..300).step_by(11).for_each(|i| db.delete(&key(i)).unwrap());
        let before = walk(db.iter().unwrap());
        let (snapshot, mut iterator) = (db.snapshot(), db.iter().unwrap());
        iterator.seek_to_first().unwrap();
        let moves: [(usize, u32); 8] = [(0, 50), (1, 110), (2, 250), (0, 105), (1, 240), (1, 120), (0, 119), (0, 1)];
        for (at, to) in moves {
            let to = if key_order == KeyOrder::Bytewise { to } else { 300 - to };
            db.move_bound(at, &key(to)).unwrap();
            assert_eq!(db.shard_bounds()[at], key(to));
            assert!(walk(db.iter().unwrap()) == before, "bound {at} to {to}");
            for (key, value) in before.iter().step_by(17) {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
                assert_eq!(db.get_at(key, &snapshot).unwrap().as_ref(), Some(value));
            }
        }
        (0..300).step_by(3).for_each(|i| db.delete(&key(i)).unwrap());
        (0..300).step_by(5).for_each(|i| db.put(&key(i), &[3; 10]).unwrap());
        db.compact_range(None, None).unwrap();
        let mut first = Vec::new();
        while iterator.valid() {
            first.push((iterator.key().to_vec(), iterator.value().to_vec()));
            iterator.next().unwrap();
        }
        assert!(first == before, "an iterator from before");
        assert!(walk(db.iter_at(&snapshot).unwrap()) == before, "a snapshot from before");
        let keys: Vec<_> = (0..300).map(key).collect();
        let now = db.multi_get(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        for (i, value) in now.into_iter().enumerate() {
            let expected = match i {
                _ if i % 5 == 0 => Some(vec![3; 10]),
                _ if i % 3 == 0 || i % 11 == 0 => None,
                _ if i % 7 == 0 => Some(vec![2; 200]),
                _ => Some(vec![1; 200]),
            };
            assert_eq!(value, expected, "key {i}");
        }
    }
}

#[test]
fn bounds_that_cannot_be_are_refused() {
    let (_clusters, db) = open(1, Options { shards: 6, ..options() });
    let kind = |at: usize, to: &[u8]| db.move_bound(at, to).unwrap_err().kind();
    assert_eq!(kind(0, b"c"), ErrorKind::Invalid, "not before the next one");
    assert_eq!(kind(1, b"a"), ErrorKind::Invalid, "not after the one before");
    assert_eq!(kind(4, b"z"), ErrorKind::Invalid, "the shard before it owns nothing");
    assert_eq!(kind(5, b"z"), ErrorKind::Invalid, "there is no shard behind it");
    db.move_bound(3, b"x").unwrap();
    db.move_bound(4, b"z").unwrap();
    assert_eq!(db.shard_bounds().len(), 5);
    db.close().unwrap();
    assert_eq!(kind(3, b"w"), ErrorKind::Closed);
}

#[test]
fn shards_are_balanced() {
    let shard_bounds = ShardBounds::Uniform;
    let (_clusters, db) = open(2, Options { shard_bounds, ..options() });
    let key = |i: u32| format!("user{i:06}").into_bytes();
    // All in one shard.
    (0..8000).for_each(|i| db.put(&key(i), &[(i % 251) as u8; 300]).unwrap());
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
    let sizes = || {
        let bounds = db.shard_bounds();
        let mut edges = vec![b"".to_vec()];
        edges.extend(bounds);
        edges.push(vec![255; 9]);
        let ranges: Vec<_> = edges.windows(2).map(|pair| (&pair[0][..], &pair[1][..])).collect();
        db.approximate_sizes(&ranges).unwrap()
    };
    let whole: u64 = sizes().iter().sum();
    assert!(sizes().iter().filter(|size| **size > 0).count() == 1, "{:?}", sizes());
    let mut moves = 0;
    while let moved @ 1.. = db.rebalance().unwrap() {
        moves += moved;
        assert!(moves < 50, "it does not end");
        db.wait_for_compactions().unwrap();
    }
    let after = sizes();
    assert!(after.iter().all(|size| *size > whole / 16), "{after:?} of {whole}");
    assert!(db.statistics().bound_moved_bytes > 0);
    (0..8000).for_each(|i| assert_eq!(db.get(&key(i)).unwrap().unwrap(), [(i % 251) as u8; 300]));
    db.compact_range(None, None).unwrap();
    let live = db.statistics().live_bytes;
    assert!(live < whole + whole / 8, "what was moved is not kept twice: {live} of {whole}");
}

#[test]
fn a_thread_balances_shards() {
    let interval = Some(std::time::Duration::from_millis(5));
    let (_clusters, db) =
        open(2, Options { shard_bounds: ShardBounds::Uniform, rebalance_interval: interval, ..options() });
    let key = |i: u32| format!("user{:06}", i * 7919 % 20_000).into_bytes();
    for i in 0..20_000 {
        db.put(&key(i), &i.to_be_bytes()).unwrap();
        if i % 500 == 499 {
            assert_eq!(db.get(&key(i / 2)).unwrap().unwrap(), (i / 2).to_be_bytes());
        }
    }
    db.flush().unwrap();
    crate::common::eventually("bounds have moved", || db.statistics().bound_moves > 2);
    (0..20_000).for_each(|i| assert_eq!(db.get(&key(i)).unwrap().unwrap(), i.to_be_bytes()));
    assert_eq!(walk(db.iter().unwrap()).len(), 20_000);
    db.close().unwrap();
    let cluster = Cluster::start(64 << 20);
    let threadless = Options { rebalance_interval: interval, background_threads: 0, ..options() };
    assert_eq!(Db::open(&[cluster.client()], threadless).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn sizes_are_about_right() {
    let (_clusters, db) = open(1, options());
    let key = |i: u32| key((i / 1000) as u8, &format!("{:03}", i % 1000));
    for i in 0..4000 {
        db.put(&key(i), &[1; 100]).unwrap();
    }
    let expect = |from: u32, to: u32| {
        let size = db.approximate_sizes(&[(&key(from), &key(to))]).unwrap()[0];
        let records = u64::from(to - from) * 120;
        assert!(size.abs_diff(records) < records / 8 + 20_000, "{from} to {to}: {size}, not {records}");
    };
    for _ in 0..2 {
        expect(0, 3999);
        expect(500, 1500);
        expect(2100, 2400);
        expect(7, 7);
        db.compact_range(None, None).unwrap();
    }
    assert_eq!(db.approximate_sizes(&[(b"b", b"a")]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.approximate_sizes(&[]).unwrap().is_empty());
}

#[test]
fn properties_are_found_by_name() {
    let (_clusters, db) = open(1, options());
    let number = |name: &str| db.property(name).unwrap().parse::<u64>().unwrap();
    assert_eq!(number("forebay.num-shards"), 4);
    assert_eq!((number("forebay.estimate-num-keys"), number("forebay.num-snapshots")), (0, 0));
    (0..100).for_each(|i| db.put(&key(i % SHARDS, &i.to_string()), &[1; 100]).unwrap());
    assert!(number("forebay.cur-size-all-mem-tables") > 10_000);
    let snapshot = db.snapshot();
    db.compact_range(None, None).unwrap();
    assert_eq!((number("forebay.estimate-num-keys"), number("forebay.num-snapshots")), (100, 4));
    drop(snapshot);
    let tables = (0..5).map(|level| number(&format!("forebay.num-files-at-level{level}"))).sum::<u64>();
    assert!(tables >= 4);
    for absent in ["forebay.num-files-at-level5", "forebay.num-files-at-level", "forebay.", "rocksdb.num-shards", ""] {
        assert_eq!(db.property(absent), None, "{absent:?}");
    }
    let all = db.properties();
    assert!(all.iter().all(|(name, value)| db.property(name).as_ref() == Some(value)));
    let page = include_str!("../../../docs/reference/properties.md");
    for (name, _) in &all {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
        assert!(page.contains(&format!("`{name}")), "{name} is in docs/reference/properties.md");
    }
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
    // One doorbell per node, all rung before any wait.
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
    // Shards of the remaining node continue to flush and compact.
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

#[test]
fn a_bound_moves_while_a_caller_looks_at_a_value() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(options());
    db.put(&key(0, "1"), b"value").unwrap();
    db.flush().unwrap();
    let seen = db.get_with(&key(0, "1"), None, |value| {
        std::thread::scope(|scope| scope.spawn(|| db.move_bound(0, b"a").unwrap()).join().unwrap());
        value.to_vec()
    });
    assert_eq!(seen.unwrap().unwrap(), b"value");
    assert_eq!(db.get(&key(0, "1")).unwrap().unwrap(), b"value");
    db.close().unwrap();
}
