//! Bytes of remote memory change under a database. Each answer is right or `Corrupt`.

use crate::common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{CompactionPlace, Db, Error, Options};
use forebay_env::Random;
use forebay_fabric::{Endpoint, EndpointOptions, Rights};
use forebay_memory_client::{ExtentId, MemoryClient};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Changes bytes of the extents that a session divides. It cannot write to those of the node's own part.
pub struct Rot {
    client: Arc<MemoryClient>,
    endpoint: Endpoint,
    extents: Vec<ExtentId>,
    random: Random,
}

impl Rot {
    pub fn new(client: &Arc<MemoryClient>, seed: u64) -> Self {
        let is_writable =
            |&extent: &ExtentId| client.rights(extent).is_some_and(|rights| rights.contain(Rights::WRITE));
        let extents: Vec<_> = (0..1024).map(ExtentId).filter(is_writable).collect();
        assert!(!extents.is_empty());
        let endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
        Self { client: Arc::clone(client), endpoint, extents, random: Random::seeded(seed) }
    }

    /// Flips a bit within the first `used_bytes` of each extent, calls `then`, and restores the bit.
    pub fn flip(&mut self, bits: usize, used_bytes: u64, then: impl FnOnce()) {
        let mut flipped = Vec::new();
        for _ in 0..bits {
            let extent = self.extents[self.random.below(self.extents.len() as u64) as usize];
            let at = self.client.resolve(extent, self.random.below(used_bytes)).unwrap();
            let mask = 1 << self.random.below(8);
            self.change(at, mask);
            flipped.push((at, mask));
        }
        then();
        flipped.into_iter().for_each(|(at, mask)| self.change(at, mask));
    }

    fn change(&mut self, at: forebay_fabric::RemoteAddress, mask: u8) {
        let mut byte = [0];
        self.endpoint.read(at, &mut byte).unwrap();
        self.endpoint.write(at, &[byte[0] ^ mask]).unwrap();
    }
}

fn open(seed: u64, options: Options) -> (Cluster, Arc<MemoryClient>, Db, Model) {
    let cluster = Cluster::start(64 << 20);
    let client = cluster.client();
    let db = Db::open(std::slice::from_ref(&client), options).unwrap();
    let mut random = Random::seeded(seed);
    let mut model = Model::new();
    for i in 0..2000u64 {
        let key = format!("{:05}", random.below(1000)).into_bytes();
        if random.one_in(1, 5) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let mut value = vec![i as u8; random.below(150) as usize];
            random.fill(&mut value);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    db.flush().unwrap();
    (cluster, client, db, model)
}

/// Checks that the answer is right, or is `Corrupt`, and counts the latter.
fn right_or_corrupt<T>(result: Result<T, Error>, corrupt: &mut u32, is_right: impl FnOnce(T) -> bool) {
    match result {
        Ok(found) => assert!(is_right(found), "a wrong answer"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            *corrupt += 1;
        }
    }
}

fn scan(db: &Db) -> Result<Model, Error> {
    let mut iterator = db.iter()?;
    iterator.seek_to_first()?;
    let mut found = Model::new();
    while iterator.valid() {
        found.insert(iterator.key().to_vec(), iterator.value().to_vec());
        if let Err(error) = iterator.next() {
            assert!(!iterator.valid(), "an iterator that failed stands on {:?}", iterator.key());
            return Err(error);
        }
    }
    Ok(found)
}

fn read_everything(db: &Db, model: &Model) -> u32 {
    let mut corrupt = 0;
    let keys: Vec<_> = (0..1000).map(|i| format!("{i:05}").into_bytes()).collect();
    for key in &keys {
        right_or_corrupt(db.get(key), &mut corrupt, |found| found.as_ref() == model.get(key));
    }
    for keys in keys.chunks(10) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = keys.iter().map(|&key| model.get(key).cloned()).collect();
        right_or_corrupt(db.multi_get(&keys), &mut corrupt, |found| found == expected);
    }
    right_or_corrupt(scan(db), &mut corrupt, |found| &found == model);
    corrupt
}

#[test]
fn reads_notice_flipped_bits() {
    let mut corrupt = 0;
    for seed in 0..4 {
        // Scans request tables with fewer runs. With one run, they cannot cause compactions.
        let options = Options { compaction_place: CompactionPlace::ComputeNode, last_level_runs: 1, ..small_options() };
        let (_cluster, client, db, model) = open(seed, options);
        if seed % 2 == 0 {
            db.compact_range(None, None).unwrap();
        }
        db.wait_for_compactions().unwrap();
        assert_eq!(read_everything(&db, &model), 0);
        let mut rot = Rot::new(&client, seed);
        for _ in 0..20 {
            rot.flip(20, 300 << 10, || corrupt += read_everything(&db, &model));
        }
        assert_eq!(read_everything(&db, &model), 0, "seed {seed}: mended");
    }
    println!("{corrupt} reads were refused");
    assert!(corrupt > 100, "{corrupt}");
}

#[test]
fn compactions_notice_flipped_bits() {
    let mut failed = [0; 2];
    for seed in 0..40 {
        // Near the data, only flushed data can be changed from here, so it must still exist.
        let level0_compaction_trigger = [4, 20][seed as usize % 2];
        let compaction_place = [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode][seed as usize % 2];
        // A shard that has settled leaves nothing to compact.
        let options = Options { settle_after: None, level0_compaction_trigger, ..small_options() };
        let (_cluster, client, db, model) = open(seed, Options { compaction_place, ..options });
        db.wait_for_compactions().unwrap();
        let mut rot = Rot::new(&client, seed);
        rot.flip(1 + seed as usize % 8, 300 << 10, || {
            right_or_corrupt(db.compact_range(None, None), &mut failed[seed as usize % 2], |()| true);
        });
        // Restored bytes were not copied: nothing corrupt may look right now.
        read_everything(&db, &model);
    }
    println!("{failed:?} compactions failed, at the compute node and at the memory node");
    assert!(failed.iter().all(|&failed| failed > 2), "{failed:?}");
}
