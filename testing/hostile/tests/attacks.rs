//! Every attack, beside an honest tenant that continues. The attacks count events: none uses a
//! clock.

use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::thread::JoinHandle;
use forebay_hostile::arena::{Arena, code, eventually};
use forebay_memory_client::ShardId;
use forebay_raw_client::body::{Key, Range, Shard};
use forebay_raw_client::client::{RawEndpoint, RawLink};
use forebay_raw_client::socket::read_frame;
use forebay_raw_client::wire::{self, Arguments, kind};
use forebay_raw_client::{calls, jobs};
use std::io::{Read, Write};
use std::time::Duration;

/// No session of the honest tenant lapses, however slow the machine.
const LONG: Duration = Duration::from_secs(120);

fn hostile(arena: &Arena) -> (RawLink, RawEndpoint) {
    let link = RawLink::open(arena.address()).unwrap();
    let endpoint = link.endpoint().unwrap();
    (link, endpoint)
}

#[test]
fn replies_that_nobody_reads() {
    let arena = Arena::start(LONG);
    let attackers: Vec<_> = (0..3)
        .map(|_| {
            let (link, mut endpoint) = hostile(&arena);
            let flood = forebay_env::thread::spawn("floods", move || {
                // Until the node ends the link: without a session each call is refused.
                while endpoint.flood(&calls::get_statistics(1), 4096).is_ok() {}
                drop(link);
            });
            flood.unwrap()
        })
        .collect();
    for _ in 0..20 {
        arena.use_it();
        arena.check();
        // The flood waits at its source: for each connection, 16 messages are at the node.
        let figures = arena.figures("hostile");
        assert!(figures.waiting_calls <= 3 * 16, "{figures:?}");
        assert_eq!((figures.limited_calls, figures.closed_links), (0, 0));
    }
    eventually("who takes no replies is ended", || attackers.iter().all(JoinHandle::is_finished));
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    arena.use_it();
    arena.check();
    eventually("nothing is left of them", || {
        let figures = arena.figures("hostile");
        figures.links == 0 && figures.waiting_calls == 0
    });
}

#[test]
fn arguments_that_nobody_may_pull() {
    let arena = Arena::start(LONG);
    let mut attackers: Vec<_> = (0..8).map(|_| hostile(&arena)).collect();
    for (_, endpoint) in &mut attackers {
        for length in [1500, 16 << 20, 16 << 20, 16 << 20] {
            endpoint.post(calls::SUBMIT_JOB, Arguments::Announced(length)).unwrap();
        }
    }
    for _ in 0..10 {
        arena.use_it();
        arena.check();
    }
    assert_eq!(arena.figures("hostile").jobs, 0);
    // Arguments longer than allowed are refused, and an invented length is not believed.
    let (_link, mut endpoint) = hostile(&arena);
    endpoint.post(calls::SUBMIT_JOB, Arguments::Announced(u32::MAX)).unwrap();
    eventually("what is no request is counted", || arena.figures("hostile").malformed_messages == 1);
    drop(attackers);
    arena.use_it();
    eventually("nothing waits any more", || arena.figures("hostile").waiting_calls == 0);
}

#[test]
fn links_without_a_session() {
    let arena = Arena::start(LONG);
    let mut idle: Vec<RawLink> = (0..400).map(|_| RawLink::open(arena.address()).unwrap()).collect();
    eventually("the oldest have gone", || arena.figures("hostile").closed_links == 400 - 256);
    assert_eq!(arena.figures("hostile").links, 256);
    let another = arena.another();
    another.renew().unwrap();
    arena.use_it();
    arena.check();
    // The oldest link has been told.
    assert!(matches!(idle[0].control.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn sockets_that_never_say_a_word() {
    let arena = Arena::start(LONG);
    let address = arena.address().trim_start_matches("tcp://");
    let sockets: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let halves: Vec<_> = (0..100)
        .map(|at| {
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            socket.write_all(&wire::hello(None)[..at % 48]).unwrap();
            socket
        })
        .collect();
    for _ in 0..5 {
        arena.use_it();
    }
    arena.check();
    assert_eq!(arena.figures("hostile").links, 0);
    drop((sockets, halves));
}

#[test]
fn a_flood_of_gathers() {
    let arena = Arena::start(LONG);
    let (_link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let arguments = jobs::gather(&[Range { extent: shard.extent.extent, offset: 0, length: 2 << 20 }]);
    let (mut reader, socket) = (endpoint.stream.try_clone().unwrap(), endpoint.stream.try_clone().unwrap());
    // It reads all that comes, so that it is served as fast as possible.
    let reads = forebay_env::thread::spawn("reads", move || while read_frame(&mut reader).is_ok() {}).unwrap();
    // It asks as long as the connection exists.
    let asks = forebay_env::thread::spawn("asks", move || {
        (0..).find(|attempt| endpoint.send_call(&shard.job(*attempt, jobs::GATHER, &arguments)).is_err())
    });
    let asks = asks.unwrap();
    eventually("gathers run", || arena.figures("hostile").completed_jobs > 0);
    let before = arena.figures("hostile").completed_jobs;
    let mut calls = 0;
    for _ in 0..10 {
        calls += arena.use_it();
    }
    assert!(!asks.is_finished(), "the flood goes on until here");
    let meanwhile = arena.figures("hostile").completed_jobs - before;
    assert!(meanwhile <= 20 * calls, "{meanwhile} gathers of 2 MiB while the honest one made {calls} calls");
    arena.check();
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    asks.join().unwrap();
    reads.join().unwrap();
}

#[test]
fn results_that_nobody_takes() {
    let arena = Arena::start(LONG);
    let (link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let arguments = jobs::gather(&[Range { extent: shard.extent.extent, offset: 0, length: 2 << 20 }]);
    let mut endpoints: Vec<RawEndpoint> = (0..60).map(|_| link.endpoint().unwrap()).collect();
    for (endpoint, attempt) in endpoints.iter_mut().zip(0..) {
        endpoint.send_call(&shard.job(attempt, jobs::GATHER, &arguments)).unwrap();
    }
    // The node keeps what sockets do not hold, up to a limit; then the tenant's jobs wait.
    for _ in 0..10 {
        arena.use_it();
        arena.check();
    }
    // A client that reads its results gets them all.
    for endpoint in &mut endpoints {
        assert_eq!(endpoint.reply().unwrap().status, 0);
    }
    arena.use_it();
    arena.check();
}

#[test]
fn reads_that_nobody_takes() {
    let arena = Arena::start(LONG);
    let (_link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let key = shard.extent.key;
    for number in 100..5000 {
        let read = wire::frame(kind::READ, number, &wire::target(key, 0, 2 << 20));
        endpoint.stream.set_nonblocking(true).unwrap();
        if endpoint.send(&read).is_err() {
            break;
        }
    }
    for _ in 0..10 {
        arena.use_it();
    }
    arena.check();
}

/// Searches of memory that is not a table, of too much, and of random bytes.
#[test]
fn searches_of_what_is_no_table() {
    let arena = Arena::start(LONG);
    let (_link, mut endpoint) = hostile(&arena);
    let own = endpoint.shard().unwrap();
    let extent = own.extent.extent;
    let mut random = Random::seeded(49);
    let search = |extent, length| jobs::search(extent, b"key", length);
    let mut refused = |attempt: u64, arguments: Vec<u8>| {
        let answer = endpoint.call(&own.job(attempt, jobs::SEARCH, &arguments)).unwrap();
        answer.unwrap_err().0
    };
    for (attempt, length) in [(1, 0), (2, 64)] {
        assert_eq!(refused(attempt, search(extent, length)), code(ErrorKind::Corrupt), "{length}");
    }
    for (attempt, extent, length) in [(3, extent, 4 << 20), (4, extent, u32::MAX), (5, u32::MAX, 64)] {
        assert_eq!(refused(attempt, search(extent, length)), code(ErrorKind::Invalid), "{extent}, {length}");
    }
    let good = search(extent, 64);
    for attempt in 10..300 {
        let mut arguments = good.clone();
        let at = random.below(arguments.len() as u64) as usize;
        arguments[at] = random.word() as u8;
        refused(attempt, arguments);
    }
    arena.use_it();
    arena.check();
}

#[test]
fn names_of_others() {
    let arena = Arena::start(LONG);
    let (_link, mut endpoint) = hostile(&arena);
    for tenant in ["honest", "secret:honest", "anonymous"] {
        let open = calls::open_session(tenant, "me");
        assert_eq!(endpoint.call(&open).unwrap().unwrap_err().0, code(ErrorKind::AccessDenied), "{tenant}");
    }
    let own = endpoint.shard().unwrap();
    let (session, victim) = (own.session, arena.victim.session().0);
    assert!(endpoint.must(&calls::list_stores(session, "")).unwrap().stores.is_empty());
    let stolen = calls::open_store(session, "db");
    assert_eq!(endpoint.call(&stolen).unwrap().unwrap_err().0, code(ErrorKind::NotFound));
    let fenced = endpoint.call(&calls::close_session(victim)).unwrap().unwrap_err();
    assert_eq!(fenced.0, code(ErrorKind::Fenced));
    let (theirs, epoch) = (arena.shard.key(), arena.shard.epoch().0);
    let shard = Shard { store: theirs.store.0, shard: theirs.shard.0 };
    let extents: Vec<u32> = (0..32).filter(|extent| *extent != own.extent.extent).collect();
    let invalid = code(ErrorKind::Invalid);
    for epoch in [0, epoch, u64::MAX] {
        let call = calls::release_extents(session, shard, epoch, &extents);
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
        let call = calls::set_root(session, shard, epoch, b"");
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
    }
    for &extent in &extents {
        let call = calls::map_extents(session, own.shard, true, &[extent]);
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
        let call = calls::return_extents(session, &[extent]);
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
        let gather = jobs::gather(&[Range { extent, offset: 0, length: 64 }]);
        let call = own.job(extent.into(), jobs::GATHER, &gather);
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
        let call = own.job(extent.into(), jobs::SEARCH, &jobs::search(extent, b"key", 64));
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
    }
    for takeover in [true, false] {
        let call = calls::acquire_shard(session, shard, takeover);
        assert_eq!(endpoint.call(&call).unwrap().unwrap_err().0, invalid);
    }
    assert_eq!(endpoint.call(&calls::drop_store(session, shard.store)).unwrap().unwrap_err().0, invalid);
    assert_eq!(endpoint.call(&calls::list_extents(session, shard, 0)).unwrap().unwrap_err().0, invalid);
    let tenants = endpoint.call(&calls::list_tenants(session, "")).unwrap().unwrap_err();
    assert_eq!(tenants.0, code(ErrorKind::AccessDenied));
    let seen = endpoint.must(&calls::get_statistics(session)).unwrap();
    assert_eq!((seen.sessions, seen.stores, seen.leased_extents, seen.shards), (1, 1, 1, 1));
    arena.use_it();
    arena.check();
}

#[test]
fn keys_that_were_guessed_or_withdrawn() {
    let arena = Arena::start(LONG);
    let (link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let own = shard.extent.key;
    let mut random = Random::seeded(19);
    for round in 0..200 {
        let mut endpoint = link.endpoint().unwrap();
        let index = random.below(64) as u32;
        let key = match round % 3 {
            0 => Key { secret: own.secret ^ 1 << random.below(128), ..own },
            1 => Key { index, ..own },
            _ => Key { index, secret: u128::from(random.word()) << 64 | u128::from(random.word()) },
        };
        if key == own {
            continue;
        }
        endpoint.send(&wire::frame(kind::READ, 1, &wire::target(key, 0, 64))).unwrap();
        assert_eq!(read_frame(&mut endpoint.stream).unwrap().0, kind::FAILED);
    }
    let session = shard.session;
    endpoint.must(&calls::return_extents(session, &[shard.extent.extent])).unwrap();
    let mut late = link.endpoint().unwrap();
    late.send(&wire::frame(kind::READ, 1, &wire::target(own, 0, 64))).unwrap();
    assert_eq!(read_frame(&mut late.stream).unwrap().0, kind::FAILED);
    // An endpoint of another client's link.
    let mut other = std::net::TcpStream::connect(arena.address().trim_start_matches("tcp://")).unwrap();
    other.write_all(&wire::hello(Some((1, 0)))).unwrap();
    assert!(read_frame(&mut other).is_ok_and(|(found, ..)| found == kind::FAILED));
    arena.use_it();
    arena.check();
}

#[test]
fn bounds_that_are_left() {
    let arena = Arena::start(LONG);
    let (link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let key = shard.extent.key;
    let extent = 2u64 << 20;
    let ranges =
        [(0, u32::MAX), (extent, 1), (extent - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 64 << 20)];
    for (offset, length) in ranges {
        let mut endpoint = link.endpoint().unwrap();
        endpoint.send(&wire::frame(kind::READ, 1, &wire::target(key, offset, length))).unwrap();
        assert_eq!(read_frame(&mut endpoint.stream).unwrap().0, kind::FAILED, "{offset} {length}");
    }
    for length in [65_573, 1 << 20, u32::MAX] {
        let mut endpoint = link.endpoint().unwrap();
        endpoint.send(&wire::header(kind::MESSAGE, 1, length)).unwrap();
        assert!(read_frame(&mut endpoint.stream).is_err(), "a frame of {length} bytes");
    }
    // Arguments of gathers whose ranges overflow.
    for length in [u64::MAX, extent + 1, 0] {
        let range = Range { extent: shard.extent.extent, offset: u64::MAX, length };
        let call = shard.job(length, jobs::GATHER, &jobs::gather(&[range, range]));
        let refused = endpoint.call(&call).unwrap();
        assert!(refused.is_err(), "{length}");
    }
    arena.use_it();
    arena.check();
}

#[test]
fn all_memory_all_shards_all_sessions() {
    let arena = Arena::start(LONG);
    let (link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let session = shard.session;
    let lease = calls::lease_extents(session, 128, calls::COLLECTION);
    while endpoint.call(&lease).unwrap().is_ok() {}
    let (code_full, text_full) = endpoint.call(&lease).unwrap().unwrap_err();
    assert_eq!(code_full, code(ErrorKind::Full));
    assert!(text_full.contains("tenant hostile"), "{text_full}");
    let figures = arena.node.statistics();
    assert!(figures.kept_extents > 0 && figures.free_extents >= 8, "{figures:?}");
    let mut shards = 1;
    for number in 1.. {
        let shard = Shard { shard: number, ..shard.shard };
        match endpoint.call(&calls::acquire_shard(session, shard, false)).unwrap() {
            Ok(_) => shards += 1,
            Err((refused, text)) => {
                assert_eq!(refused, code(ErrorKind::Full));
                assert!(text.contains("tenant hostile has its most shards: 4096"), "{text}");
                break;
            }
        }
    }
    assert_eq!(shards, 4096);
    let mut stores = 1;
    while endpoint.call(&calls::create_store(session, "", b"")).unwrap().is_ok() {
        stores += 1;
    }
    assert_eq!(stores, 1024);
    let links: Vec<_> =
        (0..255).map(|_| hostile(&arena)).map(|(link, mut end)| end.session().map(|_| (link, end))).collect();
    assert!(links.iter().all(Result::is_ok));
    let refused = RawLink::open(arena.address()).and_then(|link| link.endpoint()).and_then(|mut end| end.session());
    assert!(refused.is_err(), "a link too many");
    let another = arena.another();
    another.create_store("another", b"").and_then(|store| store.acquire_shard(ShardId(7), false)).unwrap();
    another.drop_store(another.open_store("another").unwrap().id()).unwrap();
    arena.use_it();
    arena.check();
    drop((links, endpoint, link));
    eventually("all of it comes back", || {
        let figures = arena.figures("hostile");
        (figures.extents, figures.shards, figures.stores, figures.sessions, figures.keys) == (0, 0, 0, 0, 0)
    });
}

#[test]
fn bytes_at_random() {
    let arena = Arena::start(LONG);
    let mut random = Random::seeded(7);
    let (link, mut endpoint) = hostile(&arena);
    let session = endpoint.session().unwrap();
    for round in 0..600 {
        let mut bytes = vec![0; random.below(200) as usize];
        random.fill(&mut bytes);
        let mut endpoint = match link.endpoint() {
            Ok(endpoint) => endpoint,
            Err(error) => panic!("round {round}: {error}"),
        };
        // Deeper and deeper: bytes, a body, a message, arguments.
        let sent = match round % 4 {
            0 => bytes,
            1 => wire::frame(random.below(14) as u8, 1, &bytes),
            2 if round % 100 == 2 => wire::checked(kind::MESSAGE, 1, &bytes),
            _ => {
                bytes.splice(..0, session.to_le_bytes());
                bytes.insert(0, 1);
                let procedure = calls::PROCEDURES[random.below(calls::PROCEDURES.len() as u64) as usize];
                if procedure == calls::CLOSE_SESSION {
                    continue;
                }
                wire::checked(kind::MESSAGE, 1, &wire::request(procedure, 1, 4096, Arguments::Inline(&bytes)))
            }
        };
        let _ = endpoint.send(&sent);
        if round % 50 == 0 {
            arena.use_it();
        }
    }
    arena.use_it();
    arena.check();
}

#[test]
fn a_session_that_lapses_under_attack_gives_all_back() {
    let arena = Arena::start(Duration::from_secs(3));
    let (_link, mut endpoint) = hostile(&arena);
    let shard = endpoint.shard().unwrap();
    let call = shard.job(1, jobs::ECHO, &[1; 500]);
    endpoint.must(&call).unwrap();
    assert_eq!(arena.figures("hostile").ranges, 1);
    eventually("it lapses", || arena.figures("hostile").lapsed_sessions == 1);
    eventually("all is back", || arena.figures("hostile").extents == 0);
    let fenced = endpoint.call(&calls::renew(shard.session, 0)).unwrap().unwrap_err();
    assert_eq!(fenced.0, code(ErrorKind::Fenced));
    arena.victim.check().unwrap();
}
