//! A memory node and its clients, over every back end except the simulated one.

use forebay_base::ErrorKind;
use forebay_env::Clock;
use forebay_env::SystemClock;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::{EndpointOptions, Link, Listener, RevocationMode, Rights, inprocess, rpc, shm, tcp};
use forebay_memory_client::{
    AllocatorOptions, ClientOptions, Epoch, Error, ExtentId, MAX_STORED_BYTES, MemoryClient, Purpose, ShardId,
    SubAllocator,
};
use forebay_memory_node::{
    Handle, Identify, Identity, Job, JobError, JobMemory, JobRegistry, JobRunner, Limits, MemoryNode, Options, Pace,
    TenantOptions, TenantsOptions,
};
use forebay_proto::{ExtentRange, job_kind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SHARD: ShardId = ShardId(0);

/// 32 extents of 256 KiB: two of headroom, two for jobs.
fn options() -> Options {
    Options { extent_bytes: Some(256 << 10), ..Options::with_memory(8 * MIB) }
}

#[derive(Debug, Clone, Copy)]
enum BackEnd {
    InProcess,
    Shm,
    Tcp,
}

/// Opens links to a node.
enum Connector {
    InProcess(inprocess::Connector),
    Shm(PathBuf),
    Tcp(String),
}

impl Connector {
    fn connect(&self) -> Result<Arc<dyn Link>, forebay_fabric::Error> {
        match self {
            Self::InProcess(connector) => connector.connect(),
            Self::Shm(path) => shm::connect(path),
            Self::Tcp(address) => tcp::connect(address, tcp::Options::default()),
        }
    }
}

fn listen(back_end: BackEnd) -> (Box<dyn Listener>, Connector) {
    static SOCKETS: AtomicU32 = AtomicU32::new(0);
    match back_end {
        BackEnd::InProcess => {
            let (listener, connector) = inprocess::listen(1).unwrap();
            (Box::new(listener), Connector::InProcess(connector))
        }
        BackEnd::Shm => {
            let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("forebay-node-{}-{number}", std::process::id()));
            (Box::new(shm::listen(&path, 1).unwrap()), Connector::Shm(path))
        }
        BackEnd::Tcp => {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = tcp::listen(any, 1, tcp::Options::default()).unwrap();
            let address = listener.address();
            (Box::new(listener), Connector::Tcp(address))
        }
    }
}

fn start(back_end: BackEnd, options: Options) -> (Handle, Connector) {
    let (listener, connector) = listen(back_end);
    (MemoryNode::start(listener, options).unwrap(), connector)
}

macro_rules! over_every_back_end {
    ($($test:ident,)*) => {
        mod inprocess_back_end {
            $(#[test] fn $test() { super::$test(super::BackEnd::InProcess); })*
        }
        mod shm_back_end {
            $(#[test] fn $test() { super::$test(super::BackEnd::Shm); })*
        }
        mod tcp_back_end {
            $(#[test] fn $test() { super::$test(super::BackEnd::Tcp); })*
        }
    };
}

over_every_back_end! {
    memory_is_leased_until_it_is_full_and_comes_back,
    allocations_are_divided_among_extents,
    what_comes_back_is_zeroed_before_the_next_gets_it,
    a_session_that_ends_frees_what_no_shard_adopted,
    an_owner_has_its_memory_zeroed,
    a_takeover_fences_the_owner_before,
    tenants_do_not_see_each_other,
    jobs_run_near_the_data,
    nonsense_is_refused_and_harms_nobody,
    a_node_that_stops_says_so_to_everybody,
    a_link_has_one_session_at_a_time,
    threads_share_an_allocator,
    a_lost_session_is_noticed_by_its_lease,
}

fn connect(connector: &Connector, name: &str) -> Arc<MemoryClient> {
    MemoryClient::connect(connector.connect().unwrap(), name, ClientOptions::default()).unwrap()
}

/// Waits until other threads make the condition true.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..5000 {
        if holds() {
            return;
        }
        clock.sleep(Duration::from_millis(1));
    }
    panic!("{what}: not within 5 s");
}

fn write(client: &MemoryClient, range: ExtentRange, bytes: &[u8]) -> Result<(), forebay_fabric::Error> {
    let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
    endpoint.write(client.resolve(range.extent, range.offset).unwrap(), bytes)
}

fn read(client: &MemoryClient, range: ExtentRange) -> Vec<u8> {
    let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
    let mut bytes = vec![0; range.length as usize];
    endpoint.read(client.resolve(range.extent, range.offset).unwrap(), &mut bytes).unwrap();
    bytes
}

fn memory_is_leased_until_it_is_full_and_comes_back(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let client = connect(&connector, "one");
    let mut leased = client.lease(20, Purpose::Flush).unwrap();
    leased.extend(client.lease(20, Purpose::Flush).unwrap());
    assert_eq!(leased.len(), 28, "two of headroom and two for jobs are left");
    let error = client.lease(1, Purpose::Flush).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("2 extents are free, of which 2 are kept for garbage collection"), "{error}");
    assert_eq!(client.lease(5, Purpose::Collection).unwrap().len(), 2);
    assert_eq!(client.lease(1, Purpose::Collection).unwrap_err().kind(), ErrorKind::Full);
    client.return_extents(&leased).unwrap();
    assert!(client.return_extents(&leased).is_err());
    eventually("all but two extents are free", || node.statistics().free_extents == 28);
    let figures = client.node_statistics().unwrap();
    assert_eq!((figures.leased_extents, figures.kept_extents, figures.sessions), (2, 2, 1));
    assert_eq!(figures.allocated_bytes, 2 * (256 << 10));
    drop(client);
    eventually("the session is closed", || node.statistics().sessions == 0);
    eventually("all extents are free", || node.statistics().free_extents == 30);
}

fn allocations_are_divided_among_extents(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let client = connect(&connector, "one");
    let allocator = SubAllocator::new(Arc::clone(&client), None, AllocatorOptions::default());
    let extent = client.extent_bytes();
    assert_eq!(
        allocator.allocate(extent + 1).unwrap_err(),
        Error::TooLong { length: extent + 1, extent_bytes: extent }
    );
    let calls = node.statistics().calls;
    let mut taken: Vec<_> = (0..128).map(|_| allocator.allocate(extent / 16).unwrap()).collect();
    assert_eq!(node.statistics().calls - calls, 8, "one call an extent");
    for (i, &range) in taken.iter().enumerate() {
        write(&client, range, &[i as u8; 100]).unwrap();
    }
    for (i, &range) in taken.iter().enumerate() {
        assert_eq!(read(&client, ExtentRange { length: 100, ..range }), [i as u8; 100]);
    }
    // Full is an answer, and nothing is lost by it.
    while let Ok(range) = allocator.allocate(extent) {
        taken.push(range);
    }
    assert_eq!(allocator.allocate(extent).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(allocator.statistics().ranges.allocated_bytes, 28 * extent);
    // Headroom that a collection leased remains reserved for collections.
    let collected = allocator.allocate_for(Purpose::Collection, 4096).unwrap();
    assert_eq!(allocator.allocate(4096).unwrap_err().kind(), ErrorKind::Full);
    allocator.free(collected).unwrap();
    let spare = allocator.allocate_for(Purpose::Collection, extent).unwrap();
    allocator.free(spare).unwrap();
    assert!(allocator.free(spare).is_err());
    allocator.free_all(&taken).unwrap();
    assert!(allocator.has_spare());
    allocator.give_back_spare().unwrap();
    assert!(!allocator.has_spare());
    assert_eq!(allocator.statistics().ranges.extents, 1, "hysteresis keeps half of the spare ones");
    allocator.give_back(0).unwrap();
    eventually("all extents are free", || node.statistics().free_extents == 30);
}

fn what_comes_back_is_zeroed_before_the_next_gets_it(back_end: BackEnd) {
    let (_node, connector) = start(back_end, options());
    let first = connect(&connector, "first");
    let leased = first.lease(28, Purpose::Flush).unwrap();
    let whole = |extent| ExtentRange { extent, offset: 0, length: 256 << 10 };
    for &extent in &leased {
        write(&first, whole(extent), &[0xee; 256 << 10]).unwrap();
    }
    let stale = first.resolve(leased[0], 0).unwrap();
    first.return_extents(&leased).unwrap();
    let mut endpoint = first.link().endpoint(EndpointOptions::default()).unwrap();
    let mut is_refused = || endpoint.write(stale, &[1; 8]).is_err_and(|error| error.kind() == ErrorKind::AccessDenied);
    match first.link().capabilities().revocation {
        // The node waits until the link has released the key, which may be after the reply.
        RevocationMode::Cooperative => eventually("the key is gone", is_refused),
        RevocationMode::Enforced => assert!(is_refused()),
    }
    assert!(matches!(first.resolve(leased[0], 0), Err(Error::NotMapped(_))));
    let second = connect(&connector, "second");
    let allocator = SubAllocator::new(Arc::clone(&second), None, AllocatorOptions::default());
    for _ in 0..28 {
        let range = allocator.allocate(256 << 10).unwrap();
        assert!(read(&second, range).iter().all(|&byte| byte == 0));
    }
}

fn a_session_that_ends_frees_what_no_shard_adopted(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let link = connector.connect().unwrap();
    let client = MemoryClient::connect(Arc::clone(&link), "dies", ClientOptions::default()).unwrap();
    let store = client.create_store("db", b"config").unwrap();
    let shard = store.acquire_shard(SHARD, false).unwrap();
    let allocator = SubAllocator::new(Arc::clone(&client), Some(shard.clone()), AllocatorOptions::default());
    let kept = allocator.allocate(200 << 10).unwrap();
    let lost = allocator.allocate(200 << 10).unwrap();
    assert_ne!(kept.extent, lost.extent);
    write(&client, kept, b"kept").unwrap();
    let calls = node.statistics().calls;
    allocator.adopt(&[kept]).unwrap();
    allocator.adopt(&[kept]).unwrap();
    assert_eq!(node.statistics().calls - calls, 1);
    shard.set_root(b"root").unwrap();
    link.close();
    eventually("the session has ended", || node.statistics().sessions == 0);
    eventually("the client knows", || client.check().is_err());
    assert_eq!(client.lease(1, Purpose::Flush).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.resolve(kept.extent, 0).unwrap_err().kind(), ErrorKind::Unavailable);
    eventually("what was not adopted is free", || node.statistics().free_extents == 29);
    let figures = node.statistics();
    assert_eq!((figures.adopted_extents, figures.owned_shards, figures.lapsed_sessions), (1, 0, 1));

    let next = connect(&connector, "takes over");
    let store = next.open_store("db").unwrap();
    assert_eq!(store.config(), b"config");
    assert_eq!(store.root(SHARD).unwrap().unwrap(), (shard.epoch(), b"root".to_vec()));
    let again = store.acquire_shard(SHARD, false).unwrap();
    assert!(again.epoch() > shard.epoch());
    let options = AllocatorOptions { spare_extents: 0, ..AllocatorOptions::default() };
    let restored = SubAllocator::restore(&store, again, &[kept], options).unwrap();
    assert_eq!(read(&next, ExtentRange { length: 4, ..kept }), b"kept");
    assert_eq!(restored.statistics().ranges.allocated_bytes, kept.length);
    restored.free(kept).unwrap();
    restored.give_back_spare().unwrap();
    eventually("all is free", || node.statistics().free_extents == 30);
}

fn an_owner_has_its_memory_zeroed(back_end: BackEnd) {
    let (_node, connector) = start(back_end, options());
    let (old, other) = (connect(&connector, "old"), connect(&connector, "other"));
    let store = old.create_store("db", b"").unwrap();
    let shard = store.acquire_shard(SHARD, false).unwrap();
    let extents = old.lease(2, Purpose::Flush).unwrap();
    let foreign = other.lease(1, Purpose::Flush).unwrap()[0];
    let bytes = vec![7; old.extent_bytes() as usize];
    for &extent in &extents {
        write(&old, ExtentRange { extent, offset: 0, length: 0 }, &bytes).unwrap();
    }
    // One leased, one adopted.
    shard.adopt(&extents[..1]).unwrap();
    for &extent in &extents {
        let range = ExtentRange { extent, offset: 4096, length: old.extent_bytes() - 8192 };
        shard.zero_range(range).unwrap();
        let found = read(&old, ExtentRange { extent, offset: 0, length: old.extent_bytes() });
        let (start, end) = (4096, found.len() - 4096);
        assert!(found[..start].iter().chain(&found[end..]).all(|byte| *byte == 7));
        assert!(found[start..end].iter().all(|byte| *byte == 0));
    }
    for (extent, offset, length) in [(foreign, 0, 8), (ExtentId(99), 0, 8), (extents[0], old.extent_bytes(), 8)] {
        let refused = shard.zero_range(ExtentRange { extent, offset, length }).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{extent} {offset}");
    }
    // And written.
    let longer = vec![9; 5000];
    for &extent in &extents {
        shard.write_range(extent, 4099, &longer).unwrap();
        let found = read(&old, ExtentRange { extent, offset: 4096, length: 5008 });
        assert!(found[..3] == [0; 3] && found[3..5003] == longer && found[5003..] == [0; 5]);
    }
    for (extent, offset) in [(foreign, 0), (ExtentId(99), 0), (extents[0], old.extent_bytes()), (extents[0], u64::MAX)]
    {
        let refused = shard.write_range(extent, offset, &[1]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{extent} {offset}");
    }
    let _taken = other.open_store("db").unwrap().acquire_shard(SHARD, true).unwrap();
    let range = ExtentRange { extent: extents[0], offset: 0, length: 8 };
    assert_eq!(shard.zero_range(range).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(shard.write_range(range.extent, 0, &[1]).unwrap_err().kind(), ErrorKind::Fenced);
}

fn a_takeover_fences_the_owner_before(back_end: BackEnd) {
    let (_node, connector) = start(back_end, options());
    let old = connect(&connector, "old");
    let store = old.create_store("db", b"").unwrap();
    let shard = store.acquire_shard(SHARD, false).unwrap();
    let extent = old.lease(1, Purpose::Flush).unwrap()[0];
    let range = ExtentRange { extent, offset: 0, length: 8 };
    write(&old, range, &[1; 8]).unwrap();
    shard.adopt(&[extent]).unwrap();
    write(&old, range, &[2; 8]).unwrap();

    let new = connect(&connector, "new");
    assert_eq!(new.create_store("db", b"").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let opened = new.open_store("db").unwrap();
    assert_eq!(opened.acquire_shard(SHARD, false).unwrap_err().kind(), ErrorKind::Busy);
    new.map(shard.key(), &[extent]).unwrap();
    assert_eq!(new.rights(extent), Some(Rights::READ));
    // A session that has seen another root takes over nothing.
    let seen = opened.root(SHARD).unwrap();
    assert_eq!(seen, None);
    shard.set_root(b"next").unwrap();
    for seen in [seen.as_ref(), Some(&(shard.epoch(), b"last".to_vec())), Some(&(Epoch(9), b"next".to_vec()))] {
        assert_eq!(opened.acquire_seen(SHARD, seen, true).unwrap_err().kind(), ErrorKind::Conflict);
    }
    write(&old, range, &[2; 8]).unwrap();
    let seen = opened.root(SHARD).unwrap();
    assert_eq!(opened.acquire_seen(SHARD, seen.as_ref(), false).unwrap_err().kind(), ErrorKind::Busy);
    let taken = opened.acquire_seen(SHARD, seen.as_ref(), true).unwrap();
    for refused in [shard.set_root(b""), shard.adopt(&[extent]), shard.release_extents(&[extent])] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
    }
    assert_eq!(write(&old, range, &[3; 8]).unwrap_err().kind(), ErrorKind::AccessDenied);
    taken.map(&[extent]).unwrap();
    assert_eq!(read(&new, range), [2; 8]);
    write(&new, range, &[4; 8]).unwrap();
    // The old owner may still read.
    old.map(shard.key(), &[extent]).unwrap();
    assert_eq!(read(&old, range), [4; 8]);
    assert_eq!(old.drop_store(store.id()).unwrap_err().kind(), ErrorKind::Busy);
    taken.release().unwrap();
    old.drop_store(store.id()).unwrap();
    assert!(old.list_stores().unwrap().is_empty());
    assert_eq!(new.map(shard.key(), &[extent]).unwrap_err().kind(), ErrorKind::Invalid);
}

fn tenants_do_not_see_each_other(back_end: BackEnd) {
    // Links are numbered as they come.
    let identify = Identify::new(|peer| Identity::new(["b", "a"][peer.id().0 as usize % 2]).unwrap());
    let limits = Limits { memory_bytes: Some(MIB), ..Limits::default() };
    let tenants = TenantsOptions { known: Vec::new(), others: limits };
    let (node, connector) = start(back_end, Options { identify, tenants, ..options() });
    let tenant = |name: &str| {
        let options = ClientOptions { tenant: name.into(), ..ClientOptions::default() };
        MemoryClient::connect(connector.connect().unwrap(), "client", options)
    };
    let (a, b) = (tenant("a").unwrap(), tenant("").unwrap());
    // Claiming a tenant does not make a link belong to it.
    for claimed in ["b", "anonymous", "a\nb"] {
        let error = tenant(claimed).map(drop);
        let _even = connector.connect().unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
    }
    for i in 0..100 {
        a.create_store(&format!("store-{i:03}"), b"").unwrap();
    }
    assert_eq!(a.list_stores().unwrap().len(), 100, "two pages");
    assert!(b.list_stores().unwrap().is_empty());
    assert_eq!(b.open_store("store-000").unwrap_err().kind(), ErrorKind::NotFound);
    let foreign = a.open_store("store-000").unwrap();
    assert_eq!(b.drop_store(foreign.id()).unwrap_err().kind(), ErrorKind::Invalid);
    for name in ["", "a b", "ä", &"x".repeat(129), &"x".repeat(256)] {
        assert_eq!(a.create_store(name, b"").unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(a.lease(10, Purpose::Flush).unwrap().len(), 4);
    let full = a.lease(1, Purpose::Flush).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full);
    assert!(full.to_string().contains("tenant a has its most extents: 4"), "{full}");
    assert_eq!(b.lease(10, Purpose::Flush).unwrap().len(), 4);
    // Each sees its own.
    let (of_a, of_b) = (a.node_statistics().unwrap(), b.node_statistics().unwrap());
    assert_eq!((of_a.stores, of_a.leased_extents, of_a.sessions), (100, 4, 1));
    assert_eq!((of_b.stores, of_b.leased_extents, of_b.free_extents), (0, 4, 0));
    assert_eq!(a.list_tenants().unwrap_err().kind(), ErrorKind::AccessDenied);
    assert_eq!(node.statistics().stores, 100);
    let figures = node.tenants();
    let of = |name: &str| figures.iter().find(|figures| figures.name.as_str() == name).unwrap();
    assert_eq!((of("a").stores, of("a").extents, of("a").denied_calls), (100, 4, 4));
    assert_eq!((of("b").stores, of("b").extents, of("b").limited_calls), (0, 4, 0));
}

fn jobs_run_near_the_data(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let client = connect(&connector, "one");
    assert!(client.runs_jobs());
    let store = client.create_store("db", b"").unwrap();
    let shard = store.acquire_shard(SHARD, false).unwrap();
    let limit = Duration::from_secs(10);
    // Arguments that travel in the request, and arguments that are pulled.
    for length in [10, 100_000] {
        let arguments: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let result = shard.submit_job(length, job_kind::ECHO, &arguments, limit).unwrap();
        let (range, echoed) = result.split_at(20);
        assert_eq!(echoed, arguments);
        let word = |at: usize| u64::from_le_bytes(range[at..at + 8].try_into().unwrap());
        let extent = ExtentId(u32::from_le_bytes(range[..4].try_into().unwrap()));
        let output = ExtentRange { extent, offset: word(4), length: word(12) };
        shard.map(&[extent]).unwrap();
        assert_eq!(client.rights(extent), Some(Rights::READ));
        assert_eq!(read(&client, ExtentRange { length, ..output }), arguments);
        let crc = shard.submit_job(0, job_kind::CHECKSUM, range, limit).unwrap();
        assert_eq!(crc, forebay_base::checksum(&read(&client, output)).to_le_bytes());
        // Pieces of the output in any order; the arguments of many ranges are pulled.
        let piece = |offset: u64, length| ExtentRange { extent, offset: output.offset + offset, length };
        let gathered = shard.gather(u64::MAX, &[piece(7, 3), piece(0, 5), piece(9, 0)]).unwrap();
        assert_eq!(gathered, [&arguments[7..10], &arguments[..5]].concat());
        let many: Vec<_> = (0..1000).map(|i| piece(i % 10, 1)).collect();
        assert_eq!(shard.gather(u64::MAX, &many).unwrap(), (0..1000).map(|i| (i % 10) as u8).collect::<Vec<_>>());
        let stored = shard.store(u64::MAX, &arguments, limit).unwrap();
        shard.map(&[stored.extent]).unwrap();
        assert_eq!(read(&client, ExtentRange { length, ..stored }), arguments);
        shard.adopt_ranges(&[stored]).unwrap();
        shard.free_ranges(&[stored]).unwrap();
        // It arrives, but is longer than an extent there.
        let too_long = shard.store(u64::MAX, &vec![0; MAX_STORED_BYTES], limit).unwrap_err();
        assert!(too_long.to_string().contains("extent"), "{too_long}");
        let outside = ExtentRange { extent: ExtentId(extent.0 + 1), ..output };
        for refused in [outside, piece(client.extent_bytes(), 1), piece(0, 3 << 20)] {
            assert_eq!(shard.gather(1, &[piece(0, 1), refused]).unwrap_err().kind(), ErrorKind::Invalid);
        }
        shard.adopt_ranges(&[output]).unwrap();
        assert_eq!(node.statistics().live_bytes, output.length);
        shard.free_ranges(&[output]).unwrap();
        assert_eq!(shard.free_ranges(&[output]).unwrap_err().kind(), ErrorKind::Invalid);
        eventually("the extent is the node's again", || node.statistics().kept_extents == 2);
        assert_eq!(node.statistics().job_bytes, 0);
    }
    let error = shard.submit_job(9, 999, b"", limit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let elsewhere = [0xff; 20];
    assert_eq!(shard.submit_job(9, job_kind::CHECKSUM, &elsewhere, limit).unwrap_err().kind(), ErrorKind::Invalid);
    for kind in [job_kind::SEARCH, job_kind::SHORT_SCAN] {
        let errors = [2 << 20, (2 << 20) + 1].map(|length| shard.search(9, kind, vec![0xff; length]).unwrap_err());
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Invalid), "{errors:?}");
        // What is too long is not looked at.
        assert_eq!(errors.map(|error| error.to_string().contains("at most 2097152 bytes")), [false, true]);
    }
    // An output that nobody adopts ends with its session.
    shard.submit_job(10, job_kind::ECHO, b"orphan", limit).unwrap();
    assert_eq!(node.statistics().job_extents, 1);
    let taken = store.acquire_shard(SHARD, true).unwrap();
    assert_eq!(shard.submit_job(11, job_kind::ECHO, b"", limit).unwrap_err().kind(), ErrorKind::Fenced);
    eventually("the orphan is gone", || node.statistics().kept_extents == 2);
    assert_eq!(node.statistics().completed_jobs, 11);
    drop(taken);
}

fn nonsense_is_refused_and_harms_nobody(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let victim = connect(&connector, "victim");
    let leased = victim.lease(1, Purpose::Flush).unwrap()[0];
    let mut random = forebay_env::Random::seeded(7);
    let hostile = connector.connect().unwrap();
    let mut endpoint = rpc::Client::new(Arc::clone(&hostile), EndpointOptions::default(), 4096).unwrap();
    for _ in 0..3000 {
        let mut bytes = vec![0; random.below(120) as usize];
        random.fill(&mut bytes);
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        // Half of the bodies name the victim's session, which does not belong to this link.
        if bytes.len() > 9 && random.one_in(1, 2) {
            bytes[1..9].copy_from_slice(&victim.session().0.to_le_bytes());
        }
        let procedure = [2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 32, 33, 34, 35, 48, 49, 50, 51, 64, 80, 99];
        let procedure = procedure[random.below(21) as usize];
        let error = endpoint.call(procedure, &bytes, rpc::Style::Poll, Duration::from_secs(5)).unwrap_err();
        let expected = [ErrorKind::Invalid, ErrorKind::Fenced, ErrorKind::Unsupported];
        assert!(expected.contains(&error.kind()), "seed 7: {error}");
    }
    // Messages that are not requests end the link.
    let mut raw = hostile.endpoint(EndpointOptions::default()).unwrap();
    for _ in 0..16 {
        let id = raw.post_message(b"what?").unwrap();
        raw.wait_for(id).unwrap();
    }
    eventually("the hostile link is closed", || !hostile.is_alive());
    assert_eq!(node.statistics().malformed_messages, 16);
    assert!(victim.check().is_ok());
    write(&victim, ExtentRange { extent: leased, offset: 0, length: 8 }, &[5; 8]).unwrap();
    assert_eq!(node.statistics().leased_extents, 1);
}

fn a_node_that_stops_says_so_to_everybody(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let client = connect(&connector, "one");
    let leased = client.lease(1, Purpose::Flush).unwrap()[0];
    assert!(node.is_running());
    let before = node.identity();
    node.shutdown().unwrap();
    assert!(!node.is_running());
    eventually("the client knows", || client.check().is_err());
    assert_eq!(client.resolve(leased, 0).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.node_statistics().unwrap_err().kind(), ErrorKind::Unavailable);
    let (again, connector) = start(back_end, options());
    assert_ne!(again.identity(), before, "the next life has another incarnation");
    assert_eq!(connect(&connector, "two").open_store("db").unwrap_err().kind(), ErrorKind::NotFound);
}

fn a_link_has_one_session_at_a_time(back_end: BackEnd) {
    let (_node, connector) = start(back_end, options());
    let link: Arc<dyn Link> = connector.connect().unwrap();
    let open = || MemoryClient::connect(Arc::clone(&link), "x", ClientOptions::default());
    let first = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::AlreadyExists);
    drop(first);
    open().unwrap();
}

fn threads_share_an_allocator(back_end: BackEnd) {
    let (node, connector) = start(back_end, options());
    let client = connect(&connector, "one");
    let allocator = Arc::new(SubAllocator::new(Arc::clone(&client), None, AllocatorOptions::default()));
    let threads: Vec<_> = (0..4u64)
        .map(|seed| {
            let allocator = Arc::clone(&allocator);
            forebay_env::thread::spawn(format!("allocates {seed}"), move || {
                let mut random = forebay_env::Random::seeded(seed);
                let client = allocator.client();
                let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
                let mut held = Vec::new();
                for i in 0..400u64 {
                    if held.len() < 12 && random.one_in(2, 3) {
                        let range = allocator.allocate(1 + random.below(100 << 10)).unwrap();
                        let mark = [seed << 32 | i; 1].map(u64::to_le_bytes).concat();
                        let end = ExtentRange { offset: range.offset + range.length - 8, ..range };
                        for at in [range, end] {
                            endpoint.write(allocator.resolve(at).unwrap(), &mark).unwrap();
                        }
                        held.push((range, mark));
                    } else if !held.is_empty() {
                        let (range, mark) = held.swap_remove(random.below(held.len() as u64) as usize);
                        let end = ExtentRange { offset: range.offset + range.length - 8, ..range };
                        for at in [range, end] {
                            let mut found = [0; 8];
                            endpoint.read(allocator.resolve(at).unwrap(), &mut found).unwrap();
                            assert_eq!(found[..], mark, "seed {seed}: somebody else wrote {range}");
                        }
                        allocator.free(range).unwrap();
                    }
                }
                allocator.free_all(&held.iter().map(|(range, _)| *range).collect::<Vec<_>>()).unwrap();
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    allocator.give_back(0).unwrap();
    assert_eq!(allocator.statistics(), Default::default());
    eventually("all extents are free", || node.statistics().free_extents == 30);
}

fn a_lost_session_is_noticed_by_its_lease(back_end: BackEnd) {
    let (node, connector) = start(back_end, Options { lease: Duration::from_millis(600), ..options() });
    // Nobody renews this session, as if its process were suspended.
    let stopped = ClientOptions { renew: false, ..ClientOptions::default() };
    let stopped = MemoryClient::connect(connector.connect().unwrap(), "stopped", stopped).unwrap();
    let alive = connect(&connector, "alive");
    let leased = stopped.lease(28, Purpose::Flush).unwrap();
    let stale = stopped.resolve(leased[0], 0).unwrap();
    eventually("the session has lapsed", || node.statistics().lapsed_sessions == 1);
    eventually("its memory is free", || node.statistics().free_extents == 30);
    let mut endpoint = stopped.link().endpoint(EndpointOptions::default()).unwrap();
    assert_eq!(endpoint.write(stale, &[1; 8]).unwrap_err().kind(), ErrorKind::AccessDenied);
    assert!(stopped.resolve(leased[0], 0).is_ok(), "nothing has told it yet");
    assert_eq!(stopped.lease(1, Purpose::Flush).unwrap_err().kind(), ErrorKind::Fenced);
    assert!(matches!(stopped.renew(), Err(Error::Lapsed { .. })));
    assert!(matches!(stopped.resolve(leased[0], 0), Err(Error::Lapsed { .. })));
    assert_eq!(alive.lease(28, Purpose::Flush).unwrap().len(), 28);
}

/// Simulation runs the node on the caller's thread.
#[test]
fn a_node_without_threads_is_driven_by_steps() {
    let (listener, connector) = listen(BackEnd::InProcess);
    let mut node = MemoryNode::new(listener, options()).unwrap();
    let done = Arc::new(AtomicU32::new(0));
    let client = {
        let done = Arc::clone(&done);
        forebay_env::thread::spawn("client", move || {
            let client = connect(&connector, "one");
            let leased = client.lease(28, Purpose::Flush).unwrap();
            client.return_extents(&leased).unwrap();
            let shard = client.create_store("db", &[7; 3000]).unwrap().acquire_shard(SHARD, false).unwrap();
            let result = shard.submit_job(1, job_kind::ECHO, &[1; 5000], Duration::from_secs(5)).unwrap();
            assert_eq!(result.len(), 5020);
            drop((shard, client));
            done.store(1, Ordering::Release);
        })
        .unwrap()
    };
    while done.load(Ordering::Acquire) == 0 && !client.is_finished() {
        node.step(Duration::from_millis(1)).unwrap();
    }
    client.join().unwrap();
    while node.step(Duration::ZERO).unwrap() {}
    let figures = node.statistics();
    assert_eq!((figures.sessions, figures.free_extents, figures.kept_extents), (0, 30, 2));
}

/// A call that gives back memory, and for which nobody waits any more, still arrives.
#[test]
fn what_may_have_been_given_back_is_not_used_again() {
    for is_adopted in [false, true] {
        let (listener, connector) = listen(BackEnd::InProcess);
        let node = Arc::new(Mutex::new(MemoryNode::new(listener, options()).unwrap()));
        let client = {
            let node = Arc::clone(&node);
            forebay_env::thread::spawn("client", move || {
                let options =
                    ClientOptions { timeout: Duration::from_secs(1), renew: false, ..ClientOptions::default() };
                let client = MemoryClient::connect(connector.connect().unwrap(), "one", options).unwrap();
                let shard = client.create_store("db", b"").unwrap().acquire_shard(SHARD, false).unwrap();
                let allocator = SubAllocator::new(Arc::clone(&client), Some(shard), AllocatorOptions::default());
                let whole = client.extent_bytes();
                let given = allocator.allocate(whole).unwrap();
                if is_adopted {
                    allocator.adopt(&[given]).unwrap();
                }
                allocator.free(given).unwrap();
                let stands_still = lock(&node);
                assert_eq!(allocator.give_back(0).unwrap_err().kind(), ErrorKind::TimedOut);
                assert!(!allocator.contains(given.extent));
                drop(stands_still);

                let mut extents = Vec::new();
                let full = loop {
                    match allocator.allocate(whole) {
                        Ok(range) => extents.push(range.extent),
                        Err(error) => break error,
                    }
                };
                // The node has leased again what it took.
                assert_eq!(full.kind(), ErrorKind::Full, "{full}");
                assert!(extents.contains(&given.extent), "{extents:?}");
            })
            .unwrap()
        };
        while !client.is_finished() {
            lock(&node).step(Duration::ZERO).unwrap();
            SystemClock::new().sleep(Duration::from_micros(100));
        }
        client.join().unwrap();
    }
}

/// Fails as a bug does.
#[derive(Debug)]
struct Panicking(Pace);

impl JobRunner for Panicking {
    fn run(&self, _: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        memory.allocate(4096)?;
        panic!("a job panics, as this test wants it to");
    }

    fn pace(&self, _: &[u8]) -> Pace {
        self.0
    }
}

#[test]
fn a_job_that_panics_fails_its_caller_and_nobody_else() {
    let paces = [(100, Pace::AtOnce), (101, Pace::Soon), (102, Pace::Long)];
    let jobs =
        paces.iter().fold(JobRegistry::standard(), |jobs, &(kind, pace)| jobs.with(kind, Arc::new(Panicking(pace))));
    let (node, connector) = start(BackEnd::InProcess, Options { jobs, ..options() });
    let client = connect(&connector, "compute-1");
    let shard = client.create_store("db", b"").unwrap().acquire_shard(SHARD, false).unwrap();
    for (kind, _) in paces {
        let error = shard.submit_job(1, kind, b"", Duration::from_secs(60)).unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("panicked"), "{error}");
    }
    assert_eq!(shard.submit_job(2, job_kind::ECHO, b"still", Duration::from_secs(60)).unwrap()[20..], *b"still");
    let of_jobs = || {
        let it = node.statistics();
        (it.failed_jobs, it.completed_jobs, it.queued_jobs, it.running_jobs, it.job_bytes)
    };
    // What they allocated is free, and the output of the last one exists. A job runs until its reply is gone.
    eventually("none runs any more", || of_jobs() == (3, 1, 0, 0, 4096));
    node.shutdown().unwrap();
}

#[test]
fn users_of_the_machine_are_tenants_where_the_node_lists_them() {
    let uid = rustix::process::geteuid().as_raw();
    let listed = Identity::new(&format!("uid:{uid}")).unwrap();
    let with = |known| TenantsOptions { known, others: Limits::default() };
    let name = |node: &Handle| node.tenants().iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>();
    let (node, connector) = start(BackEnd::Shm, options());
    let client = connect(&connector, "compute-1");
    assert_eq!(name(&node), ["anonymous"], "the node's own user proves nothing, and shares all of it");
    // From now on the identity belongs to a tenant; a link that came in under another one ends.
    node.configure(&with(vec![TenantOptions::new("local", vec![listed])])).unwrap();
    eventually("the link ends", || client.renew().is_err());
    let client = connect(&connector, "compute-2");
    client.renew().unwrap();
    let of = |tenant: &str| node.tenants().into_iter().find(|it| it.name.as_str() == tenant).unwrap();
    assert_eq!((of("local").sessions, of("anonymous").sessions, of("anonymous").closed_links), (1, 0, 1));
    node.shutdown().unwrap();
}
