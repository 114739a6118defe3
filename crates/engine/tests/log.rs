//! The log of writes: what it promises survives the process.

use crate::common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, ShardBounds, WriteBatch, WriteOptions};
use forebay_env::Random;
use forebay_fabric::Link;
use forebay_memory_client::{ClientOptions, MemoryClient};
use std::collections::BTreeMap;
use std::sync::Arc;

fn durable() -> Options {
    Options { name: Some("db".to_owned()), durability: Durability::Memory { copies: 1 }, ..small_options() }
}

/// A process: what ends when it is killed.
struct Process {
    link: Arc<dyn Link>,
    client: Arc<MemoryClient>,
}

impl Process {
    fn start(cluster: &Cluster) -> Self {
        let link = cluster.connect();
        let client = MemoryClient::connect(Arc::clone(&link), "process", ClientOptions::default()).unwrap();
        Self { link, client }
    }

    fn open(&self, options: Options) -> Db {
        Db::open(std::slice::from_ref(&self.client), options).unwrap()
    }

    fn kill(self, db: Db) {
        self.link.close();
        drop(db);
    }
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut entries = db.iter().unwrap();
    entries.seek_to_first().unwrap();
    let mut contents = BTreeMap::new();
    while entries.valid() {
        contents.insert(entries.key().to_vec(), entries.value().to_vec());
        entries.next().unwrap();
    }
    contents
}

/// Writes of all kinds, in batches and one by one, also to a model.
fn write(db: &Db, model: &mut BTreeMap<Vec<u8>, Vec<u8>>, random: &mut Random, writes: u64) {
    let key = |number: u64| format!("{number:05}").into_bytes();
    for _ in 0..writes {
        let at = random.below(2000);
        match random.below(10) {
            0 => {
                db.delete(&key(at)).unwrap();
                model.remove(&key(at));
            }
            1 => {
                let end = at + random.below(20);
                db.delete_range(&key(at), &key(end)).unwrap();
                model.retain(|found, _| *found < key(at) || *found >= key(end));
            }
            2 => {
                let mut batch = WriteBatch::new();
                for number in at..at + random.below(30) {
                    let value = vec![random.below(256) as u8; random.below(300) as usize];
                    batch.put(&key(number), &value);
                    model.insert(key(number), value);
                }
                db.write(&batch).unwrap();
            }
            _ => {
                let value = vec![random.below(256) as u8; random.below(300) as usize];
                db.put(&key(at), &value).unwrap();
                model.insert(key(at), value);
            }
        }
    }
}

#[test]
fn acknowledged_writes_survive_kills() {
    for (seed, background_threads) in [(1, 0), (2, 2)] {
        let cluster = Cluster::start(64 << 20);
        let mut random = Random::seeded(seed);
        let mut model = BTreeMap::new();
        for round in 0..12 {
            let process = Process::start(&cluster);
            let db = process.open(Options { background_threads, ..durable() });
            assert_eq!(contents(&db), model, "round {round}");
            let writes = [0, 1, 30, 3000][random.below(4) as usize];
            write(&db, &mut model, &mut random, writes);
            if random.one_in(1, 4) {
                db.flush().unwrap();
            }
            if random.one_in(1, 4) {
                db.close().unwrap();
            }
            process.kill(db);
        }
        let process = Process::start(&cluster);
        let db = process.open(durable());
        db.compact_range(None, None).unwrap();
        assert_eq!(contents(&db), model);
        db.close().unwrap();
        drop(db);
        Db::destroy(std::slice::from_ref(&process.client), "db").unwrap();
        drop(process);
        cluster.expect_nothing_leased();
    }
}

#[test]
fn a_write_says_what_it_survives() {
    let cluster = Cluster::start(64 << 20);
    let of = |durability| WriteOptions { durability: Some(durability) };
    for (options, expected) in [
        (durable(), [true, true, false, true]),
        (Options { durability: Durability::None, ..durable() }, [true, true, true, true]),
    ] {
        let process = Process::start(&cluster);
        let db = process.open(options.clone());
        db.put_with(b"a", b"", &of(Durability::None)).unwrap();
        db.put(b"b", b"").unwrap();
        if options.durability == Durability::None {
            db.put_with(b"c", b"", &of(Durability::Memory { copies: 1 })).unwrap();
            db.put(b"d", b"").unwrap();
            db.sync().unwrap();
        } else {
            db.put_with(b"c", b"", &of(Durability::None)).unwrap();
        }
        process.kill(db);
        let process = Process::start(&cluster);
        let db = process.open(options);
        let found = [b"a", b"b", b"c", b"d"].map(|key| db.get(key).unwrap().is_some());
        assert_eq!(found[..3], expected[..3]);
        assert_eq!(found[3], expected[3] && expected[2]);
        db.delete_range(b"a", b"z").unwrap();
        db.close().unwrap();
    }
    let process = Process::start(&cluster);
    let db = process.open(small_options());
    assert_eq!(db.put_with(b"a", b"", &of(Durability::Memory { copies: 1 })).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Invalid);
    let nameless = Options { name: None, ..durable() };
    assert_eq!(Db::open(std::slice::from_ref(&process.client), nameless).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn several_shards_write_their_logs_again() {
    let cluster = Cluster::start(64 << 20);
    let bounds = ["00500", "01000", "01500"].map(|key| key.as_bytes().to_vec());
    let options = Options { shards: 4, shard_bounds: ShardBounds::Given(bounds.to_vec()), ..durable() };
    let mut random = Random::seeded(3);
    let mut model = BTreeMap::new();
    for _ in 0..4 {
        let process = Process::start(&cluster);
        let db = process.open(options.clone());
        assert_eq!(contents(&db), model);
        write(&db, &mut model, &mut random, 1000);
        db.move_bound(1, format!("{:05}", 900 + random.below(200)).as_bytes()).unwrap();
        process.kill(db);
    }
}
