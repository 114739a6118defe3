//! A newer build has written parts of a database: an older build takes it from nobody.

use crate::common::copied;
use crate::common::process::Process;
use crate::common::stored::{change_object, make_object_newer, of_objects, options};
use crate::common::{Cluster, small_options};
use forebay_base::{ErrorKind, checksum};
use forebay_engine::{Db, Options, Syncing};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use forebay_fabric::{Endpoint, EndpointOptions};
use forebay_memory_client::{Blob, ExtentId, MemoryClient, ShardId, ShardKey, StoreHandle};
use forebay_proto::calls::SetRoot;
use forebay_storage::{MemoryObjects, ObjectName, ObjectStorage, PutMode};
use forebay_table::image::ends_image;
use forebay_table::{ManifestRoot, Placement, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A version that no build knows.
const NEWER: u8 = 9;

fn key(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// Writes and flushes, as only an owner that was not fenced can.
fn go_on(db: &Db, number: &mut u32) {
    *number += 1;
    db.put(&key(*number), b"value").unwrap();
    db.flush().unwrap();
}

fn check(db: &Db, number: u32) {
    (1..=number).for_each(|at| assert_eq!(db.get(&key(at)).unwrap().as_deref(), Some(&b"value"[..]), "{at}"));
}

/// Makes a table image look written by a newer build.
fn make_image_newer(image: &mut [u8]) {
    let (footer, covered) = (image.len() - 32, image.len() - 8);
    let sections = u32::from_le_bytes(image[footer + 16..footer + 20].try_into().unwrap()) as usize;
    image[footer + 20] = NEWER;
    let right = checksum(&image[footer - 24 * sections..covered]);
    image[covered..covered + 4].copy_from_slice(&right.to_le_bytes());
}

/// Makes a frame of this length look written by a newer build.
fn make_frame_newer(frame: &mut [u8]) {
    frame[4] = NEWER;
    let covered = frame.len() - 4;
    let right = checksum(&frame[..covered]);
    frame[covered..].copy_from_slice(&right.to_le_bytes());
}

/// A shard in memory, as its owning process has it.
struct Left {
    client: Arc<MemoryClient>,
    store: StoreHandle,
    endpoint: Endpoint,
}

impl Left {
    fn new(client: &Arc<MemoryClient>) -> Self {
        let endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
        let (name, _) = client.list_stores().unwrap().remove(0);
        Self { client: Arc::clone(client), store: client.open_store(&name).unwrap(), endpoint }
    }

    fn root(&self) -> Vec<u8> {
        self.store.root(ShardId(0)).unwrap().unwrap().1
    }

    /// Replaces the root, as the owner does. Returns whether it could.
    fn try_set_root(&self, root: &[u8]) -> bool {
        let (epoch, _) = self.store.root(ShardId(0)).unwrap().unwrap();
        let shard = ShardKey { store: self.store.id(), shard: ShardId(0) };
        let root = Blob::new(root).unwrap();
        self.client.call(&SetRoot { session: self.client.session(), shard, epoch, root }).is_ok()
    }

    fn set_root(&self, root: &[u8]) {
        assert!(self.try_set_root(root));
    }

    /// Changes bytes of the shard's memory. Returns what they were.
    fn change(&mut self, extent: u32, offset: u64, length: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let at = self.client.resolve(ExtentId(extent), offset).unwrap();
        let mut before = vec![0; length as usize];
        self.endpoint.read(at, &mut before).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        self.endpoint.write(at, &bytes).unwrap();
        before
    }

    /// Makes the root, the manifest, or the newest table's image look written by a newer build, while `then` is called.
    fn with_newer(&mut self, what: &str, then: impl FnOnce()) {
        let before = self.root();
        let root = ManifestRoot::decode(&before).unwrap();
        let (extent, offset, length) = (root.extent, root.offset, root.length);
        match what {
            "root" => {
                let mut newer = before.clone();
                make_frame_newer(&mut newer);
                self.set_root(&newer);
                then();
                self.set_root(&before);
            }
            "manifest" => {
                let mut sum = 0;
                let known = self.change(extent, offset, length, |log| {
                    let first = 16 + u32::from_le_bytes(log[8..12].try_into().unwrap()) as usize;
                    make_frame_newer(&mut log[..first]);
                    sum = checksum(log);
                });
                self.set_root(&ManifestRoot { checksum: sum, ..root }.encode().unwrap());
                then();
                self.change(extent, offset, length, |log| log.copy_from_slice(&known));
                self.set_root(&before);
            }
            _ => {
                let log = self.change(extent, offset, length, |_| ());
                let version = Version::replay(root.edits(&log).unwrap()).unwrap();
                let image = version.levels().iter().flatten().max_by_key(|table| table.id).unwrap().image;
                let place = &version.segment(image.segment).unwrap().placements[0];
                let &Placement::Memory { extent, offset, .. } = place else { panic!("{place:?}") };
                let known = self.change(extent, offset, image.length, make_image_newer);
                then();
                self.change(extent, offset, image.length, |bytes| bytes.copy_from_slice(&known));
            }
        }
    }
}

#[test]
fn an_owner_in_memory_is_not_disturbed() {
    for background_threads in [0, 2] {
        let cluster = Cluster::start(64 << 20);
        let (owner, other) = (Process::start([&cluster]), Process::start([&cluster]));
        let quiet = Options { name: Some("db".into()), background_threads: 0, ..small_options() };
        let taking = Options { takeover: true, background_threads, ..quiet.clone() };
        let db = owner.open(quiet);
        let mut number = 0;
        let mut left = Left::new(&owner.clients[0]);
        for what in ["root", "manifest", "image"] {
            go_on(&db, &mut number);
            left.with_newer(what, || {
                let refused = other.try_open(taking.clone()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Unsupported, "{what}: {refused}");
                db.put(b"log", what.as_bytes()).unwrap();
            });
            go_on(&db, &mut number);
        }
        let taken = other.open(taking);
        check(&taken, number);
        let fenced = db.put(b"log", b"").and_then(|()| db.flush()).unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
        owner.kill(db);
    }
}

/// A clock. At each reading of it something may happen elsewhere, until that returns `false`.
#[derive(Debug)]
struct Interrupting {
    clock: SystemClock,
    readings: AtomicU64,
    interrupt: Mutex<Interrupt>,
}

struct Interrupt(Option<Box<dyn FnMut(u64) -> bool + Send>>);

impl Interrupting {
    fn new(interrupt: impl FnMut(u64) -> bool + Send + 'static) -> Arc<Self> {
        let interrupt = Mutex::new(Interrupt(Some(Box::new(interrupt))));
        Arc::new(Self { clock: SystemClock::new(), readings: AtomicU64::new(0), interrupt })
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("what happens elsewhere")
    }
}

impl Clock for Interrupting {
    fn now(&self) -> Nanos {
        let reading = self.readings.fetch_add(1, Ordering::SeqCst);
        // What happens may read this clock.
        let interrupt = lock(&self.interrupt).0.take();
        if let Some(mut interrupt) = interrupt
            && interrupt(reading)
        {
            lock(&self.interrupt).0 = Some(interrupt);
        }
        self.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

/// The owner replaces the root at any moment while another process opens the database: as this build does, or as a
/// newer one. In one copy, or in two.
#[test]
fn what_replaces_a_root_while_it_is_taken_is_seen() {
    for (copies, is_newer) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut before = 0;
        for at in 0.. {
            let nodes = copied::start(copies);
            let (owner, other) = (Process::start(&nodes), Process::start(&nodes));
            let named = Options { name: Some("db".into()), ..small_options() };
            let options = if copies == 1 { named } else { copied::options(&copied::register(), copies) };
            let quiet = Options { background_threads: 0, ..options };
            let db = Arc::new(owner.open(quiet.clone()));
            let mut number = 0;
            go_on(&db, &mut number);
            let known = Left::new(&owner.clients[0]).root();
            let replaced = Arc::new(Mutex::new(None));
            let replace = {
                let (db, client, replaced) = (Arc::clone(&db), Arc::clone(&owner.clients[0]), Arc::clone(&replaced));
                move |reading| {
                    if reading < at {
                        return true;
                    }
                    let done = if is_newer {
                        let left = Left::new(&client);
                        let mut root = left.root();
                        make_frame_newer(&mut root);
                        left.try_set_root(&root)
                    } else {
                        db.put(b"late", b"value").and_then(|()| db.flush()).is_ok()
                    };
                    *lock(&replaced) = Some(done);
                    false
                }
            };
            let opened = other.try_open(Options { takeover: true, clock: Interrupting::new(replace), ..quiet });
            let Some(done) = lock(&replaced).take() else { break };
            match (opened, done && is_newer) {
                (Ok(taken), false) => {
                    check(&taken, number);
                    // What failed may survive.
                    assert!(!done || taken.get(b"late").unwrap().is_some(), "reading {at}");
                    let fenced = db.put(b"later", b"").and_then(|()| db.flush()).unwrap_err();
                    assert_eq!(fenced.kind(), ErrorKind::Fenced, "reading {at}: {fenced}");
                    before += usize::from(done);
                }
                (Err(refused), true) => {
                    assert_eq!(refused.kind(), ErrorKind::Unsupported, "reading {at}: {refused}");
                    // The owner, which knows this root, continues.
                    let left = Left::new(&owner.clients[0]);
                    ManifestRoot::decode(&left.root()).unwrap_err();
                    left.set_root(&known);
                    go_on(&db, &mut number);
                    check(&db, number);
                    assert_eq!(db.missing_copies(), 0);
                    before += 1;
                }
                (opened, _) => panic!("newer {is_newer}, reading {at}: {:?}, {done}", opened.map(drop)),
            }
        }
        assert!(before > 0);
    }
}

/// An owner of the same build is taken over even if it replaces its root whenever another process is about to take it.
#[test]
fn who_replaces_a_root_again_and_again_is_taken_over() {
    let cluster = Cluster::start(64 << 20);
    let (owner, other) = (Process::start([&cluster]), Process::start([&cluster]));
    let quiet = Options { name: Some("db".into()), background_threads: 0, ..small_options() };
    let db = Arc::new(owner.open(quiet.clone()));
    let number = Arc::new(Mutex::new(0));
    go_on(&db, &mut lock(&number));
    let replace = {
        let (db, number) = (Arc::clone(&db), Arc::clone(&number));
        move |_| {
            let mut number = lock(&number);
            let is_replaced = db.put(&key(*number + 1), b"value").and_then(|()| db.flush()).is_ok();
            *number += u32::from(is_replaced);
            is_replaced
        }
    };
    let taken = other.open(Options { takeover: true, clock: Interrupting::new(replace), ..quiet });
    let number = *lock(&number);
    assert!(number > 16, "{number}");
    check(&taken, number);
    assert_eq!(db.put(b"later", b"").and_then(|()| db.flush()).unwrap_err().kind(), ErrorKind::Fenced);
}

/// The register is in storage, or in the memory nodes.
#[test]
fn an_owner_of_copies_is_not_disturbed() {
    for is_stored in [true, false] {
        let nodes = copied::start(2);
        let register = Some(copied::register()).filter(|_| is_stored);
        let quiet = Options { register, background_threads: 0, ..copied::options(&copied::register(), 2) };
        let taking = Options { takeover: true, ..quiet.clone() };
        let (owner, other) = (Process::start(&nodes), Process::start(&nodes));
        let db = owner.open(quiet);
        let mut number = 0;
        for (client, what) in owner.clients.iter().zip(["root", "manifest"]) {
            go_on(&db, &mut number);
            Left::new(client).with_newer(what, || {
                let refused = other.try_open(taking.clone()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Unsupported, "{what}: {refused}");
            });
            go_on(&db, &mut number);
            assert_eq!(db.missing_copies(), 0);
        }
        let taken = other.open(taking);
        check(&taken, number);
        assert_eq!(taken.missing_copies(), 0);
        owner.kill(db);
    }
}

/// Objects of a database in storage whose owner lives. Each is of a newer build for a while, and then the newest table
/// image.
#[test]
fn an_owner_in_storage_is_not_disturbed() {
    for background_threads in [0, 2] {
        let objects = MemoryObjects::new();
        let storage = of_objects(&objects.handle());
        let cluster = Cluster::start(64 << 20);
        let (owner, other) = (Process::start([&cluster]), Process::with_empty_memory());
        let quiet = Options { storage_lag_memtables: 0, background_threads: 0, ..options(&storage, Syncing::Sync) };
        let taking = Options { takeover: true, background_threads, ..quiet.clone() };
        let db = owner.open(quiet);
        let mut number = 0;
        (0..2).for_each(|_| go_on(&db, &mut number));
        let refuse = |name: &ObjectName, known, number: &mut u32| {
            let before = objects.list(None).unwrap();
            for process in [&other, &Process::start([&cluster])] {
                let refused = process.try_open(taking.clone()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Unsupported, "{name}: {refused}");
                assert!(refused.to_string().contains(name.as_str()), "{refused}");
                assert_eq!(objects.list(None).unwrap(), before);
            }
            objects.put(name, known, PutMode::Replace).unwrap();
            db.put(b"log", name.as_str().as_bytes()).unwrap();
            *number += 1;
            db.put(&key(*number), b"value").unwrap();
        };
        let segments = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap();
        assert!(segments.len() >= 2, "{segments:?}");
        for name in segments.iter().map(|object| &object.name) {
            refuse(name, make_object_newer(&objects, name), &mut number);
        }
        let mut newest = None;
        for name in segments.iter().map(|object| &object.name) {
            change_object(&objects, name, |bytes| newest = ends_image(bytes).then_some(name).or(newest));
        }
        let newest = newest.unwrap();
        refuse(newest, change_object(&objects, newest, make_image_newer), &mut number);
        go_on(&db, &mut number);
        // Nobody needs what memory nodes hold of it.
        Left::new(&owner.clients[0]).set_root(b"no root");
        check(&Process::start([&cluster]).open(taking.clone()), number);
        owner.kill(db);
    }
}

/// The owner writes its first newer object at any moment while an older build opens the database.
#[test]
fn nothing_is_claimed_of_what_became_newer_meanwhile() {
    let mut refusals = 0;
    for step in 0.. {
        let objects = MemoryObjects::new();
        let quiet = |objects: &MemoryObjects| {
            let options = options(&of_objects(objects), Syncing::Sync);
            Options { storage_lag_memtables: 0, background_threads: 0, ..options }
        };
        let (owner, other) = (Process::with_empty_memory(), Process::with_empty_memory());
        let db = Arc::new(owner.open(quiet(&objects.handle())));
        let mut number = 0;
        go_on(&db, &mut number);
        db.put(b"newer", b"value").unwrap();
        let made = Arc::new(Mutex::new(None));
        let (opening, write) = (objects.handle(), (Arc::clone(&db), objects.clone(), Arc::clone(&made)));
        opening.interrupt_at(step, move || {
            let (db, objects, made) = write;
            *lock(&made) = Some(db.flush().map(|()| {
                let newest = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap().pop().unwrap().name;
                (make_object_newer(&objects, &newest), newest)
            }));
        });
        let opened = other.try_open(quiet(&opening));
        let Some(made) = lock(&made).take() else { break };
        match made {
            Ok((known, newest)) => {
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unsupported, "step {step}");
                objects.put(&newest, known, PutMode::Replace).unwrap();
                go_on(&db, &mut number);
                refusals += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Fenced, "step {step}: {error}");
                check(&opened.unwrap(), number);
            }
        }
    }
    assert!(refusals > 5, "{refusals}");
}
