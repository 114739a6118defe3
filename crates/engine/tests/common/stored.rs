//! Databases on storage that fails, and processes that end at any moment.

use super::model::{Model, contents};
use super::process::Process;
use super::{Cluster, small_options};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, ShardBounds, Storage, StorageOptions, Syncing, WriteBatch};
use forebay_env::Random;
use forebay_storage::{
    BlockCache, BlockCacheOptions, BlockEncoder, BlockOptions, DiskFault, FileLogOptions, MemoryObjects, ObjectFault,
    ObjectName, ObjectStorage, PutMode, SimDisk,
};
use std::sync::Arc;
use std::time::Duration;

pub fn options(storage: &Storage, syncing: Syncing) -> Options {
    Options {
        name: Some("db".to_owned()),
        storage: Some(storage.clone()),
        durability: Durability::Storage(syncing),
        ..small_options()
    }
}

pub fn of_disk(disk: &SimDisk, nonce: u64) -> Storage {
    // Segments that are trimmed from time to time.
    let file_log = FileLogOptions { segment_bytes: 16 << 10, reserve_bytes: 4 << 10 };
    Storage::of_disk(Arc::new(disk.clone()), nonce, StorageOptions { file_log, ..StorageOptions::default() })
}

pub fn of_objects(objects: &MemoryObjects) -> Storage {
    Storage::of_objects(Arc::new(objects.clone()), StorageOptions::default())
}

/// Makes an object look written by a newer build: the format version at byte 4 is unknown, and the checksum after the
/// `covered` bytes, or at the end, is right.
pub fn make_newer(objects: &MemoryObjects, name: &ObjectName, covered: Option<usize>, checksum: fn(&[u8]) -> u32) {
    let mut bytes = objects.get(name).unwrap().to_vec();
    let covered = covered.unwrap_or(bytes.len() - 4);
    bytes[4] = 9;
    let right = checksum(&bytes[..covered]);
    bytes[covered..covered + 4].copy_from_slice(&right.to_le_bytes());
    objects.put(name, bytes.into(), PutMode::Replace).unwrap();
}

/// Makes the last segment of the only log look written by a newer build. Returns what it was.
pub fn make_log_newer(objects: &MemoryObjects) -> (ObjectName, Bytes) {
    let last = objects.list(Some(&ObjectName::new("db/log").unwrap())).unwrap().pop().unwrap().name;
    let bytes = objects.get(&last).unwrap();
    make_newer(objects, &last, Some(32), forebay_base::checksum);
    (last, bytes)
}

/// Makes the object of a segment look written by a newer build. Returns what it was.
pub fn make_object_newer(objects: &MemoryObjects, name: &ObjectName) -> Bytes {
    let before = objects.get(name).unwrap();
    let mut bytes = before.to_vec();
    let footer = bytes.len() - 12;
    let length = u32::from_le_bytes(bytes[footer..footer + 4].try_into().unwrap()) as usize;
    let (directory, covered) = (&mut bytes[footer - length..footer], length - 4);
    directory[4] = 9;
    let right = forebay_base::envelope_checksum(&directory[..covered]);
    directory[covered..].copy_from_slice(&right.to_le_bytes());
    objects.put(name, bytes.into(), PutMode::Replace).unwrap();
    before
}

/// Changes what the object of a segment holds. Returns what the object was.
pub fn change_object(objects: &MemoryObjects, name: &ObjectName, change: impl FnOnce(&mut [u8])) -> Bytes {
    let before = objects.get(name).unwrap();
    let cache = BlockCache::new(BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() }).unwrap();
    let reader = objects.open(name).unwrap();
    let object = cache.open(reader, name.as_str(), before.len() as u64, name.identity()).unwrap();
    let mut bytes = vec![0; object.directory().length() as usize];
    object.read_at(0, &mut bytes).unwrap();
    change(&mut bytes);
    let mut changed = Vec::new();
    let mut encoder = BlockEncoder::new(BlockOptions::default(), name.identity(), &[]).unwrap();
    encoder.add(&bytes, &mut changed).unwrap();
    encoder.finish(&mut changed).unwrap();
    objects.put(name, changed.into(), PutMode::Replace).unwrap();
    before
}

pub fn four_shards(options: Options) -> Options {
    let bounds = ["00500", "01000", "01500"].map(|key| key.as_bytes().to_vec());
    Options { shards: 4, shard_bounds: ShardBounds::Given(bounds.to_vec()), ..options }
}

/// Where the database is stored, and the handle of the process that runs.
enum Place {
    Disk(SimDisk, SimDisk),
    Objects(MemoryObjects, MemoryObjects),
}

impl Place {
    /// Another process begins.
    fn renew(&mut self) {
        match self {
            Self::Disk(all, handle) => *handle = all.handle(),
            Self::Objects(all, handle) => *handle = all.handle(),
        }
    }

    fn storage(&self, nonce: u64) -> Storage {
        match self {
            Self::Disk(_, handle) => of_disk(handle, nonce),
            Self::Objects(_, handle) => of_objects(handle),
        }
    }

    fn fail(&self, within: u64, random: &mut Random) {
        let after = random.below(within);
        match self {
            Self::Disk(_, handle) => {
                let faults = [DiskFault::Lost, DiskFault::Refused(ErrorKind::Full), DiskFault::Half(ErrorKind::Io)];
                handle.fail_at(handle.steps() + after, faults[random.below(3) as usize]);
            }
            Self::Objects(_, handle) => {
                let refused = ObjectFault::Refused(ErrorKind::Unavailable);
                let faults = [ObjectFault::ReplyLost, ObjectFault::Late(1 + random.below(9)), refused];
                handle.fail_at(handle.steps() + after, faults[random.below(3) as usize]);
            }
        }
    }

    /// The process ends after this many steps, if it does not end before.
    fn end_after(&self, steps: u64) {
        match self {
            Self::Disk(_, handle) => handle.end_at(handle.steps() + steps),
            Self::Objects(_, handle) => handle.end_at(handle.steps() + steps),
        }
    }

    fn lose_power(&self, random: &mut Random) {
        if let Self::Disk(all, _) = self {
            all.lose_power(random);
        }
    }
}

/// Keys and values of one write.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The key that says which write was the last one.
const COUNTER: &[u8] = b"01999";

/// What was written, in order.
#[derive(Default)]
struct History {
    writes: Vec<(u64, Records)>,
    /// All writes up to this one are durable.
    durable: u64,
    next: u64,
}

impl History {
    /// Checks that the database holds what was written up to some moment, and forgets the rest.
    fn check(&mut self, db: &Db, what: &str) {
        let counter = db.get(COUNTER).unwrap().map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()));
        assert!(counter >= self.durable, "{what}: write {} was durable, and {counter} is the last", self.durable);
        self.writes.retain(|(number, _)| *number <= counter);
        let mut expected = Model::new();
        for (key, value) in self.writes.iter().flat_map(|(_, records)| records) {
            expected.insert(key.clone(), value.clone());
        }
        assert!(contents(db) == expected, "{what}: what is there is not what was written up to write {counter}");
        self.durable = counter;
    }
}

/// Processes that write are killed, each at some step of its storage, with faults on the way, and with the loss of
/// power and of the memory node. What is found then must be what was written up to some moment, not before the last
/// durable write.
pub fn torture(seed: u64) {
    let mut random = Random::seeded(seed);
    let on_disk = random.one_in(2, 3);
    let mut place = match on_disk {
        true => Place::Disk(SimDisk::new(), SimDisk::new()),
        false => Place::Objects(MemoryObjects::new(), MemoryObjects::new()),
    };
    let syncing = match random.below(2) {
        0 => Syncing::Sync,
        _ => Syncing::Interval(Duration::from_millis(20)),
    };
    let is_divided = random.one_in(2, 3);
    let adapt = |options| if is_divided { four_shards(options) } else { options };
    let mut history = History { next: 1, ..History::default() };
    let mut cluster = Cluster::start(64 << 20);
    for round in 0..6 {
        let what = format!("seed {seed}, round {round}, {syncing:?}, divided {is_divided}, disk {on_disk}");
        let (process, db) = loop {
            place.renew();
            if random.one_in(1, 4) {
                place.fail(100, &mut random);
            }
            let process = Process::start([&cluster]);
            let storage = place.storage(random.word());
            let takeover = random.one_in(1, 2);
            let storage_lag_memtables = random.below(3) as usize;
            let usual =
                Options { takeover, storage_lag_memtables, background_threads: 0, ..options(&storage, syncing) };
            match process.try_open(adapt(usual)) {
                Ok(db) => break (process, db),
                Err(error) => assert!(
                    !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Invalid),
                    "{what}: it does not open: {error}"
                ),
            }
        };
        history.check(&db, &what);
        for _ in 0..random.below(3) {
            place.fail(1500, &mut random);
        }
        place.end_after(random.below(2000));
        write(&db, &mut history, syncing, &mut random);
        if random.one_in(1, 2) {
            // What compactions replace is not gone before the compactions count.
            place.end_after(random.below(150));
            let _ = db.compact_range(None, None);
        }
        place.end_after(0);
        process.kill(db);
        if random.one_in(1, 2) {
            place.lose_power(&mut random);
        }
        if random.one_in(1, 2) {
            cluster = Cluster::start(64 << 20);
        }
    }
}

/// Writes until nothing works any more, or enough is written.
fn write(db: &Db, history: &mut History, syncing: Syncing, random: &mut Random) {
    let mut failed_in_a_row = 0;
    for _ in 0..300 {
        let number = history.next;
        let mut batch = WriteBatch::new();
        let mut records = vec![(COUNTER.to_vec(), number.to_le_bytes().to_vec())];
        for _ in 0..random.below(6) {
            let value = vec![number as u8; random.below(300) as usize];
            records.push((format!("{:05}", random.below(1900)).into_bytes(), value));
        }
        for (key, value) in &records {
            batch.put(key, value);
        }
        let written = db.write(&batch);
        let Ok(counter) = db.get(COUNTER) else { return };
        let is_there = counter.is_some_and(|counter| counter == number.to_le_bytes());
        if is_there {
            history.writes.push((number, records));
            history.next += 1;
        }
        match written {
            Ok(()) if syncing == Syncing::Sync => history.durable = number,
            Ok(()) => {}
            Err(_) => {
                failed_in_a_row += 1;
                if failed_in_a_row > 10 {
                    return;
                }
                let _ = db.resume();
                continue;
            }
        }
        failed_in_a_row = 0;
        if random.one_in(1, 8) {
            db.run_background_step();
        }
        if random.one_in(1, 40) && db.sync().is_ok() {
            history.durable = number;
        }
    }
}
