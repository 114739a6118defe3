//! Owners are killed at any point; the next one must find what it should.

use crate::Db;
use crate::remote::segment::place_of;
use crate::terms::options::ShardBounds;
use crate::terms::{CompactionPlace, Options};
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_fabric::sim::{Faults, SimNetwork, SimOptions, Time};
use forebay_fabric::{EndpointOptions, Link};
use forebay_memory_client::{ClientOptions, ExtentId, MemoryClient, Purpose, ShardId};
use forebay_memory_node::{Handle, MemoryNode};
use forebay_table::ManifestRoot;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NODE: u32 = 1;
/// Bounds of databases of three shards.
const BOUNDS: [&[u8]; 2] = [b"050", b"100"];

fn start(seed: u64) -> (SimNetwork, Handle) {
    let network = SimNetwork::new(seed, SimOptions { time: Time::Real, ..SimOptions::default() });
    let options = forebay_memory_node::Options {
        extent_bytes: Some(128 << 10),
        ..forebay_memory_node::Options::with_memory(64 << 20)
    };
    let node = MemoryNode::start(Box::new(network.listen(NODE).unwrap()), options).unwrap();
    (network, node)
}

fn connect(network: &SimNetwork) -> (Arc<dyn Link>, Arc<MemoryClient>) {
    let link: Arc<dyn Link> = network.connect(NODE).unwrap();
    let client = MemoryClient::connect(Arc::clone(&link), "owner", ClientOptions::default()).unwrap();
    (link, client)
}

/// Options of a database of one shard for even seeds and three shards for odd seeds.
fn options(seed: u64, place: CompactionPlace) -> Options {
    let shards = if seed.is_multiple_of(2) { 1 } else { 3 };
    let bounds = BOUNDS.iter().take(shards - 1).map(|bound| bound.to_vec()).collect();
    Options {
        shards,
        shard_bounds: ShardBounds::Given(bounds),
        name: Some("db".to_owned()),
        write_buffer_bytes: 8 << 10,
        target_table_bytes: 8 << 10,
        level1_bytes: 32 << 10,
        level_size_multiplier: 4,
        levels: 4,
        compaction_place: place,
        fabric_timeout: Duration::from_secs(5),
        ..Options::default()
    }
}

/// Everything that was written, in order. Each operation is identified by its number, which is also its value.
#[derive(Debug, Default)]
struct History {
    operations: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// This many of them survive whatever happens.
    flushed: usize,
}

impl History {
    fn write(&mut self, db: &Db, random: &mut Random) -> Result<(), crate::Error> {
        let key = format!("{:03}", random.below(150)).into_bytes();
        let value = (!random.one_in(1, 6)).then(|| {
            let mut value = format!("{}:", self.operations.len()).into_bytes();
            value.resize(value.len() + random.below(120) as usize, b'x');
            value
        });
        // It may take effect even if it fails.
        self.operations.push((key.clone(), value.clone()));
        match value {
            Some(value) => db.put(&key, &value),
            None => db.delete(&key),
        }
    }

    fn state(&self, operations: &[usize]) -> BTreeMap<&[u8], &[u8]> {
        let mut state = BTreeMap::new();
        for (key, value) in operations.iter().map(|&i| &self.operations[i]) {
            match value {
                Some(value) => state.insert(&key[..], &value[..]),
                None => state.remove(&key[..]),
            };
        }
        state
    }

    /// Checks that the contents result from the first operations, the flushed ones at least, and forgets the rest.
    fn check(&mut self, db: &Db, context: &str) {
        let found = contents(db).unwrap();
        for (key, value) in &found {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value), "{context}");
        }
        self.check_found(db, &found, context);
    }

    fn check_found(&mut self, db: &Db, found: &BTreeMap<Vec<u8>, Vec<u8>>, context: &str) {
        // Each shard is flushed separately. Keys that came from another shard were flushed together with everything
        // there.
        let shards = db.shard_bounds();
        let shard_of = |key: &[u8]| shards.partition_point(|bound| &bound[..] <= key);
        let mut kept = vec![true; self.operations.len()];
        for shard in 0..=shards.len() {
            let mine: Vec<usize> =
                (0..self.operations.len()).filter(|&i| shard_of(&self.operations[i].0) == shard).collect();
            let flushed = mine.partition_point(|&i| i < self.flushed);
            let found = found.iter().filter(|(key, _)| shard_of(key) == shard);
            let found: BTreeMap<&[u8], &[u8]> = found.map(|(key, value)| (&key[..], &value[..])).collect();
            let Some(count) = (flushed..=mine.len()).find(|&count| self.state(&mine[..count]) == found) else {
                panic!(
                    "{context}, shard {shard}: {flushed} of {} operations were flushed, found {found:?}",
                    mine.len()
                );
            };
            mine[count..].iter().for_each(|&i| kept[i] = false);
        }
        let mut kept = kept.into_iter();
        self.operations.retain(|_| kept.next() == Some(true));
        self.flushed = self.operations.len();
    }
}

fn contents(db: &Db) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, crate::Error> {
    let mut found = BTreeMap::new();
    let mut iterator = db.iter()?;
    iterator.seek_to_first()?;
    while iterator.valid() {
        found.insert(iterator.key().to_vec(), iterator.value().to_vec());
        iterator.next()?;
    }
    Ok(found)
}

/// Moves a bound between shards, if there is one, to some allowed key.
fn move_bound(db: &Db, random: &mut Random) -> Result<(), crate::Error> {
    let (at, to) = (random.below(2) as usize, format!("{:03}", random.below(150)));
    if db.shards().len() == 1 {
        return Ok(());
    }
    db.move_bound(at, to.as_bytes())
        .or_else(|error| if error.kind() == ErrorKind::Invalid { Ok(()) } else { Err(error) })
}

/// Checks that exactly the segments of the version and the manifest are allocated.
fn check_memory(db: &Db, client: &Arc<MemoryClient>, context: &str) {
    db.wait_for_compactions().unwrap();
    db.shards().iter().for_each(|shard| check_memory_of(shard, client, context));
}

fn check_memory_of(shard: &Shard, client: &Arc<MemoryClient>, context: &str) {
    for _ in 0..100 {
        shard.tree.view.reclaim();
        let version = Arc::clone(&shard.tree.view.load().version);
        let named: u64 =
            version.version.segments().values().map(|segment| place_of(client, &segment.info).unwrap().length).sum();
        let allocated = shard.tree.remote.own_bytes();
        let manifest = shard.manifest_bytes();
        if named + manifest == allocated {
            return;
        }
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{context}: {} bytes are allocated", shard.tree.remote.own_bytes());
}

fn places(seed: u64) -> CompactionPlace {
    if seed.is_multiple_of(2) { CompactionPlace::MemoryNode } else { CompactionPlace::ComputeNode }
}

#[test]
fn owners_are_killed_at_random() {
    for seed in 0..4 {
        let (network, _node) = start(seed);
        let mut random = Random::seeded(seed);
        let mut history = History::default();
        for life in 0..8 {
            let context = format!("seed {seed}, life {life}");
            let (link, client) = connect(&network);
            let db = Db::open(std::slice::from_ref(&client), options(seed, places(seed / 2 + life))).unwrap();
            history.check(&db, &context);
            check_memory(&db, &client, &context);
            for _ in 0..random.below(1500) {
                history.write(&db, &mut random).unwrap();
                if random.one_in(1, 200) {
                    db.flush().unwrap();
                    history.flushed = history.operations.len();
                }
                if random.one_in(1, 500) {
                    db.compact_range(None, None).unwrap();
                    history.flushed = history.operations.len();
                }
                if random.one_in(1, 100) {
                    move_bound(&db, &mut random).unwrap();
                }
            }
            match random.below(3) {
                0 => {
                    db.close().unwrap();
                    history.flushed = history.operations.len();
                }
                // Takeover while the owner lives.
                1 => {
                    let (_link, client) = connect(&network);
                    let taken = Options { takeover: true, ..options(seed, places(seed / 2)) };
                    let taken = Db::open(&[client], taken).unwrap();
                    history.check(&taken, &context);
                    let before = history.flushed;
                    for _ in 0..300 {
                        let _ = db.put(b"zombie", b"zombie");
                    }
                    let _ = db.flush();
                    let bounds = taken.shard_bounds();
                    let _ = move_bound(&db, &mut random);
                    assert_eq!(taken.shard_bounds(), bounds);
                    history.check(&taken, &context);
                    assert_eq!(history.flushed, before);
                    taken.close().unwrap();
                }
                _ => link.close(),
            }
        }
    }
}

/// The owner's link ends after `k` steps of the network, for many `k`: in the middle of every step of a flush, a
/// compaction, a commit or a recovery.
#[test]
fn an_owner_is_killed_after_any_step() {
    let (mut killed, mut round) = (0, 0);
    for seed in 0..2 {
        let (network, _node) = start(seed);
        let mut history = History::default();
        let mut random = Random::seeded(seed);
        for k in (0..3000).step_by(97) {
            let context = format!("seed {seed}, killed after {k} steps");
            let (link, client) = connect(&network);
            let (due, of) = (network.steps() + k, network.clone());
            network.set_progress_hook(move || {
                if of.steps() >= due {
                    link.close();
                }
            });
            round += 1;
            if let Ok(db) = Db::open(&[client], options(seed, places(round))) {
                let mut alive = true;
                for write in 0..200 {
                    alive &= history.write(&db, &mut random).is_ok();
                    if write % 40 == 30 {
                        alive &= move_bound(&db, &mut random).is_ok();
                    }
                }
                if alive && db.flush().is_ok() {
                    history.flushed = history.operations.len();
                    alive = db.compact_range(None, None).is_ok();
                }
                killed += u32::from(!alive);
            } else {
                killed += 1;
            }
            network.set_progress_hook(|| ());
            let (_link, client) = connect(&network);
            let db = Db::open(std::slice::from_ref(&client), options(seed, places(seed / 2))).unwrap();
            history.check(&db, &context);
            check_memory(&db, &client, &context);
            db.close().unwrap();
        }
    }
    println!("{killed} owners were killed in the middle");
    assert!(killed > 5);
}

#[test]
fn a_damaged_manifest_is_reported() {
    let (network, _node) = start(7);
    let (_link, client) = connect(&network);
    let db = Db::open(std::slice::from_ref(&client), options(0, CompactionPlace::MemoryNode)).unwrap();
    let (mut history, mut random) = (History::default(), Random::seeded(7));
    for _ in 0..1000 {
        history.write(&db, &mut random).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let store = client.open_store("db").unwrap();
    let shard = store.acquire_shard(ShardId(0), false).unwrap();
    let (_, bytes) = store.root(ShardId(0)).unwrap().unwrap();
    let root = ManifestRoot::decode(&bytes).unwrap();
    let extent = ExtentId(root.extent);
    shard.map(&[extent]).unwrap();
    let mut endpoint = link_endpoint(&client);
    let open = |context: &str| {
        let shard = store.acquire_shard(ShardId(0), false).unwrap();
        shard.release().unwrap();
        let error = Db::open(std::slice::from_ref(&client), options(0, CompactionPlace::MemoryNode)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
        let shard = store.acquire_shard(ShardId(0), false).unwrap();
        shard.map(&[extent]).unwrap();
        shard
    };
    for _ in 0..40 {
        let offset = root.offset + random.below(root.length);
        let at = client.resolve(extent, offset).unwrap();
        let mut byte = [0];
        endpoint.read(at, &mut byte).unwrap();
        endpoint.write(at, &[byte[0] ^ 1 << random.below(8)]).unwrap();
        open(&format!("byte {offset}"));
        endpoint.write(client.resolve(extent, offset).unwrap(), &byte).unwrap();
    }
    let mut shard = store.acquire_shard(ShardId(0), false).unwrap();
    for bad in [
        ManifestRoot { extent: root.extent + 1, ..root },
        ManifestRoot { extent: u32::MAX, ..root },
        ManifestRoot { offset: u64::MAX, ..root },
        ManifestRoot { offset: root.offset + 8, ..root },
        ManifestRoot { length: root.length - 1, ..root },
        ManifestRoot { edits: root.edits + 1, ..root },
        ManifestRoot { incarnation: 1, ..root },
        ManifestRoot { spare_extent: u32::MAX, ..root },
        ManifestRoot { spare_offset: u64::MAX, ..root },
        ManifestRoot { spare_extent: root.extent, spare_offset: root.offset, ..root },
    ] {
        shard.set_root(&bad.encode().unwrap()).unwrap();
        shard = open(&format!("{bad:?}"));
    }
    for length in 0..bytes.len() {
        shard.set_root(&bytes[..length]).unwrap();
        shard = open(&format!("a root of {length} bytes"));
    }
    shard.set_root(&bytes).unwrap();
    shard.release().unwrap();
    let db = Db::open(&[client], options(0, CompactionPlace::MemoryNode)).unwrap();
    history.flushed = history.operations.len();
    history.check(&db, "mended");
}

fn link_endpoint(client: &Arc<MemoryClient>) -> forebay_fabric::Endpoint {
    client.link().endpoint(EndpointOptions::default()).unwrap()
}

/// Each life begins its own log, and needs no free memory at the node.
#[test]
fn a_database_opens_whatever_the_memory_is_full_of() {
    for seed in 0..4 {
        let (network, node) = start(seed);
        let (mut history, mut random) = (History::default(), Random::seeded(seed));
        let (_other_link, other) = connect(&network);
        for life in 0..6 {
            let context = format!("seed {seed}, life {life}");
            let (link, client) = connect(&network);
            let db = Db::open(std::slice::from_ref(&client), options(seed, places(seed / 2))).unwrap();
            history.check(&db, &context);
            if life == 0 {
                for _ in 0..1000 {
                    history.write(&db, &mut random).unwrap();
                }
                db.close().unwrap();
                history.flushed = history.operations.len();
            }
            link.close();
            while node.statistics().sessions > 1 || node.statistics().recycling_extents > 0 {
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(Duration::from_millis(1));
            }
            // Another session takes all that is left, the headroom too.
            while other.lease(64, Purpose::Collection).is_ok() {}
            assert_eq!(node.statistics().free_extents, 0);
        }
    }
}

/// Replies are lost, endpoints break, and the owner continues or is killed. Everything that a root that may count names
/// is still there.
#[test]
fn answers_to_commits_are_lost() {
    let (mut failures, mut moves, mut undecided) = (0, 0, 0);
    for seed in 0..6 {
        println!("seed {seed}");
        let faults = Faults { lose_completion: 60, break_endpoint: 400, ..Faults::default() };
        let network = SimNetwork::new(seed, SimOptions { faults, time: Time::Real, ..SimOptions::default() });
        let node_options = forebay_memory_node::Options {
            extent_bytes: Some(128 << 10),
            ..forebay_memory_node::Options::with_memory(64 << 20)
        };
        let _node = MemoryNode::start(Box::new(network.listen(NODE).unwrap()), node_options).unwrap();
        let (mut history, mut random) = (History::default(), Random::seeded(seed));
        for life in 0..6 {
            let lossy = || Options { fabric_timeout: Duration::from_millis(100), ..options(seed, places(life)) };
            let opened = (0..200).find_map(|_| {
                let link: Arc<dyn Link> = network.connect(NODE).unwrap();
                let client_options = ClientOptions { timeout: Duration::from_millis(100), ..ClientOptions::default() };
                let client = MemoryClient::connect(Arc::clone(&link), "owner", client_options).ok()?;
                Some((link, Db::open(&[client], Options { takeover: true, ..lossy() }).ok()?))
            });
            let (link, db) = opened.expect("one of 200 opens");
            let found = (0..200).find_map(|_| contents(&db).ok()).expect("one of 200 scans");
            history.check_found(&db, &found, &format!("seed {seed}, life {life}"));
            for _ in 0..600 {
                if let Err(error) = history.write(&db, &mut random) {
                    failures += 1;
                    // Refused before anything was done, while writes to other keys continue.
                    if error.to_string().contains("it is unknown whether it was") {
                        history.operations.pop();
                        undecided += 1;
                    }
                }
                if random.one_in(1, 40) {
                    moves += u32::from(move_bound(&db, &mut random).is_ok());
                }
                if random.one_in(1, 100) && db.flush().is_ok() {
                    history.flushed = history.operations.len();
                }
            }
            link.close();
        }
    }
    println!("{failures} writes failed, {undecided} for a bound that was being recorded; {moves} bounds moved");
    assert!(moves > 100, "bounds move all the same");
}
