//! The TCP back end over loopback, in one process.

// Miri has no such sockets.
#![cfg(not(miri))]

use forebay_base::ErrorKind;
use forebay_fabric::rpc::{Client, MAX_REPLY_BYTES, Request, Style};
use forebay_fabric::tcp::{self, Options, TcpListener};
use forebay_fabric::{
    AccessKey, Completion, Endpoint, EndpointId, EndpointOptions, Error, Event, Incoming, Link, Listener, Outcome,
    Peer, Region, Rights, Traffic, WorkId,
};
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

fn start(options: Options) -> TcpListener {
    tcp::listen("127.0.0.1:0".parse().unwrap(), 7, options).unwrap()
}

fn small_sockets() -> Options {
    Options { socket_bytes: Some(64 << 10), ..Options::default() }
}

/// A node, a link to it, the link as the node knows it, and all of a region.
struct Pair {
    listener: TcpListener,
    link: Arc<dyn Link>,
    peer: Arc<dyn Peer>,
    region: Region,
    key: AccessKey,
}

impl Pair {
    fn new(options: Options, bytes: usize) -> Self {
        let mut listener = start(options.clone());
        let link = tcp::connect(&listener.address(), options).unwrap();
        let peer = joined(&mut listener);
        let region = listener.allocate(bytes).unwrap();
        let key = peer.grant(&region, 0, bytes as u64, Rights::ALL).unwrap();
        Self { listener, link, peer, region, key }
    }

    fn endpoint(&self) -> Endpoint {
        self.link.endpoint(EndpointOptions::default()).unwrap()
    }
}

fn joined(listener: &mut TcpListener) -> Arc<dyn Peer> {
    match listener.next(SOON).unwrap() {
        Some(Event::Joined(peer)) => peer,
        other => panic!("no link but {other:?}"),
    }
}

/// The longest record, read by a length that may be too large by a 32nd.
#[test]
fn the_longest_record_is_read_at_once() {
    let record = forebay_base::MAX_KEY_BYTES + forebay_base::MAX_VALUE_BYTES + 64;
    let length = (record + record / 32).next_multiple_of(4096);
    let pair = Pair::new(Options::default(), length);
    pair.region.write(length as u64 - 8, &[7; 8]).unwrap();
    let mut read = vec![1; length];
    pair.endpoint().read(pair.key.at(0), &mut read).unwrap();
    assert!(read[length - 8..] == [7; 8] && read[..length - 8].iter().all(|byte| *byte == 0));
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn every_operation_and_its_counts() {
    let mut pair = Pair::new(Options::default(), 1 << 16);
    assert_eq!(pair.link.node(), pair.listener.identity());
    let mut endpoint = pair.endpoint();
    endpoint.write(pair.key.at(10), b"hello").unwrap();
    let mut back = [0; 5];
    endpoint.read(pair.key.at(10), &mut back).unwrap();
    assert_eq!(&back, b"hello");
    endpoint.read(pair.key.at(0), &mut []).unwrap();
    endpoint.write(pair.key.at(1 << 16), &[]).unwrap();
    assert_eq!(endpoint.fetch_add(pair.key.at(64), 3).unwrap(), 0);
    assert_eq!(endpoint.compare_swap(pair.key.at(64), 3, 9).unwrap(), 3);
    assert_eq!(endpoint.compare_swap(pair.key.at(64), 3, 11).unwrap(), 9);
    assert_eq!(pair.region.load(64).unwrap(), 9);
    let source = pair.link.allocate(4096).unwrap();
    source.write(5, b"sealed").unwrap();
    endpoint.post_write_sealed(pair.key.at(100), &source, 5, 6).unwrap();
    endpoint.fence();
    let slot = endpoint.slot(6).unwrap();
    let id = endpoint.post_read(pair.key.at(100), slot).unwrap();
    let Outcome::Read(slot) = endpoint.wait_for(id).unwrap() else { panic!("no read") };
    assert_eq!(&*slot, b"sealed");
    let id = endpoint.post_message(b"to the node").unwrap();
    endpoint.wait_for(id).unwrap();
    match pair.listener.next(SOON).unwrap() {
        Some(Event::Message { peer, endpoint: from, bytes, .. }) => {
            assert_eq!((peer.id(), bytes), (pair.peer.id(), b"to the node".to_vec()));
            peer.send(from, b"back").unwrap();
        }
        other => panic!("no message but {other:?}"),
    }
    assert_eq!(endpoint.wait_receive(SOON).unwrap(), Some(Incoming::Message(b"back".to_vec())));
    let counts = pair.link.counts(Traffic::Foreground);
    assert_eq!((counts.round_trips, counts.doorbells), (9, 9));
    assert_eq!((counts.reads, counts.writes, counts.atomics, counts.messages), (3, 3, 3, 1));
    assert_eq!((counts.bytes_read, counts.bytes_written), (5 + 24 + 6, 5 + 24 + 6 + 11));
}

#[test]
fn a_wrong_operation_fails_and_breaks_its_endpoint_only() {
    let pair = Pair::new(Options::default(), 4096);
    let read_only = pair.peer.grant(&pair.region, 1024, 64, Rights::READ).unwrap();
    let revoked = pair.peer.grant(&pair.region, 0, 64, Rights::ALL).unwrap();
    assert!(pair.peer.revoke(revoked).unwrap().is_complete());
    let forged = AccessKey::new(pair.key.index, pair.key.secret() ^ 1 << 77);
    let out = |offset, length| Error::OutOfBounds { offset, length };
    type Attempt<'a> = Box<dyn Fn(&mut Endpoint) -> Result<(), Error> + 'a>;
    let reads = |key: AccessKey, offset, length: usize| -> Attempt<'_> {
        Box::new(move |endpoint: &mut Endpoint| endpoint.read(key.at(offset), &mut vec![0; length]))
    };
    let writes = |key: AccessKey, offset, length: usize| -> Attempt<'_> {
        Box::new(move |endpoint: &mut Endpoint| endpoint.write(key.at(offset), &vec![0xee; length]))
    };
    let attempts: Vec<(Attempt<'_>, Error)> = vec![
        (reads(forged, 0, 8), Error::AccessDenied),
        (reads(revoked, 0, 8), Error::AccessDenied),
        (writes(read_only, 0, 8), Error::AccessDenied),
        (reads(read_only, 8, 57), out(8, 57)),
        (reads(pair.key, u64::MAX, 8), out(u64::MAX, 8)),
        // More than one frame: not one byte of it is written.
        (writes(pair.key, 0, 300_000), out(0, 300_000)),
        (Box::new(|endpoint| endpoint.fetch_add(read_only.at(0), 1).map(drop)), Error::AccessDenied),
        (Box::new(|endpoint| endpoint.compare_swap(pair.key.at(4096), 0, 1).map(drop)), out(4096, 8)),
    ];
    for (attempt, expected) in attempts {
        let mut endpoint = pair.endpoint();
        assert_eq!(attempt(&mut endpoint).unwrap_err(), expected);
        assert!(matches!(endpoint.read(pair.key.at(0), &mut [0; 8]), Err(Error::Broken(_))));
    }
    let mut endpoint = pair.endpoint();
    assert_eq!(endpoint.fetch_add(pair.key.at(4), 1).unwrap_err(), Error::Misaligned { offset: 4 });
    assert!(matches!(endpoint.post_message(&[0; (64 << 10) + 1]), Err(Error::TooLarge { .. })));
    let slot = endpoint.slot(4).unwrap();
    let id = endpoint.post_write_immediate(pair.key.at(0), slot, 5).unwrap();
    assert!(matches!(endpoint.wait_for(id), Err(Error::Unsupported(_))));
    let mut whole = vec![1; 4096];
    pair.region.read(0, &mut whole).unwrap();
    assert!(whole.iter().all(|&byte| byte == 0));
}

#[test]
fn what_is_behind_a_failure_is_flushed_and_has_no_effect() {
    let mut pair = Pair::new(Options::default(), 1 << 20);
    let mut endpoint = pair.endpoint();
    let add = endpoint.post_fetch_add(pair.key.at(0), 1).unwrap();
    let slot = endpoint.slot(16).unwrap();
    let bad = endpoint.post_read(pair.key.at((1 << 20) - 8), slot).unwrap();
    endpoint.post_fetch_add(pair.key.at(0), 1).unwrap();
    endpoint.post_message(b"never").unwrap();
    let slot = endpoint.slot(1 << 20).unwrap();
    endpoint.post_write(pair.key.at(0), slot).unwrap();
    let results: Vec<Completion> = (0..5).map(|_| endpoint.wait().unwrap()).collect();
    assert!(matches!(&results[0], Completion { id, result: Ok(Outcome::Word(0)) } if *id == add));
    assert!(matches!(&results[1], Completion { id, result: Err(Error::OutOfBounds { .. }) } if *id == bad));
    assert!(results[2..].iter().all(|completion| matches!(completion.result, Err(Error::Flushed))));
    assert_eq!(pair.endpoint().fetch_add(pair.key.at(0), 0).unwrap(), 1);
    assert!(pair.listener.next(Duration::ZERO).unwrap().is_none());
}

fn large_operations(options: Options, bytes: usize) {
    let pair = Pair::new(options, 2 * bytes);
    let mut endpoint = pair.endpoint();
    let sent = pattern(bytes);
    endpoint.write(pair.key.at(8), &sent).unwrap();
    let mut found = vec![0; bytes];
    pair.region.read(8, &mut found).unwrap();
    assert!(found == sent);
    found.fill(0);
    endpoint.read(pair.key.at(8), &mut found).unwrap();
    assert!(found == sent);
    // Both ways at once, with more under way than any buffer holds.
    let source = pair.link.allocate(bytes.next_multiple_of(8)).unwrap();
    source.write(0, &sent).unwrap();
    let mut reads = Vec::new();
    for i in 0..4 {
        let slot = endpoint.slot(bytes).unwrap();
        reads.push(endpoint.post_read(pair.key.at(8), slot).unwrap());
        endpoint.post_write_sealed(pair.key.at(8 + 8 * i), &source, 0, bytes).unwrap();
        endpoint.post_write_sealed(pair.key.at(8), &source, 0, bytes).unwrap();
    }
    for id in reads {
        let Outcome::Read(slot) = endpoint.wait_for(id).unwrap() else { panic!("no read") };
        assert!(*slot == sent[..]);
    }
}

#[test]
fn operations_of_64_mib() {
    large_operations(Options::default(), 64 << 20);
    let pair = Pair::new(Options::default(), 4096);
    let mut endpoint = pair.endpoint();
    let slot = endpoint.slot(pair.link.capabilities().max_operation_bytes + 1).unwrap();
    assert!(matches!(endpoint.post_read(pair.key.at(0), slot), Err(Error::TooLarge { .. })));
    // The node keeps nothing longer than a reply for a client that takes nothing.
    let longer = vec![0; MAX_REPLY_BYTES + 4096];
    let posted = pair.peer.post(EndpointId(1), pair.key.at(0), &longer, None);
    assert!(matches!(posted, Err(Error::TooLarge { .. })), "{posted:?}");
}

#[test]
fn operations_through_tiny_socket_buffers() {
    large_operations(small_sockets(), 1_000_008);
}

fn ten_thousand(options: Options) {
    let pair = Pair::new(options, 1 << 20);
    let mut endpoint = pair.endpoint();
    let mut ids = Vec::new();
    for i in 0..10_000u64 {
        let at = pair.key.at(8 * (i % 100));
        ids.push(match i % 3 {
            0 => endpoint.post_fetch_add(at, 1).unwrap(),
            1 => {
                let slot = endpoint.slot(64).unwrap();
                endpoint.post_read(pair.key.at(64 * i), slot).unwrap()
            }
            _ => {
                let mut slot = endpoint.slot(8).unwrap();
                slot.copy_from_slice(&i.to_le_bytes());
                endpoint.post_write(pair.key.at(800 + 8 * i), slot).unwrap()
            }
        });
    }
    let found: Vec<WorkId> = (0..10_000)
        .map(|_| {
            let completion = endpoint.wait().unwrap();
            completion.result.unwrap();
            completion.id
        })
        .collect();
    assert_eq!(found, ids);
    assert_eq!(endpoint.counts().read_all().round_trips, 1);
    assert_eq!(pair.region.load(800 + 8 * 9_998).unwrap(), 9_998);
    let adds: u64 = (0..100).map(|i| pair.region.load(8 * i).unwrap()).sum();
    assert_eq!(adds, 3334);
}

#[test]
fn ten_thousand_operations_in_one_doorbell() {
    ten_thousand(Options::default());
    ten_thousand(small_sockets());
}

#[test]
fn atomics_of_several_endpoints_add_up() {
    let pair = Pair::new(Options::default(), 4096);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (mut endpoint, at) = (pair.endpoint(), pair.key.at(8));
            forebay_env::thread::spawn("adder", move || {
                for _ in 0..500 {
                    endpoint.fetch_add(at, 2).unwrap();
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pair.region.load(8).unwrap(), 3000);
}

/// Serves requests until the listener has nothing more: the reply is the arguments, reversed.
fn serve(mut listener: TcpListener) -> usize {
    let mut left = 0;
    loop {
        match listener.next(SOON).unwrap() {
            Some(Event::Message { peer, endpoint, bytes, .. }) => {
                let request = Request::decode(&bytes).unwrap();
                let mut arguments = request.arguments(&*peer, endpoint).unwrap();
                arguments.reverse();
                let result =
                    if request.procedure == 1 { Ok(&arguments[..]) } else { Err((ErrorKind::Full, "no more")) };
                request.reply(&*peer, endpoint, result).unwrap();
            }
            Some(Event::Left { .. }) => return left + 1,
            Some(_) => left = 0,
            None => panic!("nothing happens"),
        }
    }
}

fn remote_procedures(options: Options) {
    let listener = start(options.clone());
    let address = listener.address();
    let server = forebay_env::thread::spawn("server", move || serve(listener)).unwrap();
    let link = tcp::connect(&address, options).unwrap();
    let mut client = Client::new(Arc::clone(&link), EndpointOptions::default(), 4 << 20).unwrap();
    for length in [0, 1, 1024, 1025, 300_000, 3_000_000, 5000] {
        let arguments = pattern(length);
        let expected: Vec<u8> = arguments.iter().rev().copied().collect();
        for style in [Style::Poll, Style::Sleep] {
            assert!(client.call(1, &arguments, style, SOON).unwrap() == expected);
        }
    }
    let error = client.call(2, b"", Style::Sleep, SOON).unwrap_err();
    assert_eq!(error, Error::Remote { kind: ErrorKind::Full, message: "no more".into() });
    let counts = link.counts(Traffic::Foreground);
    assert_eq!((counts.round_trips, counts.messages), (15, 15));
    drop(client);
    link.close();
    assert_eq!(server.join().unwrap(), 1);
}

#[test]
fn remote_procedures_of_both_styles() {
    remote_procedures(Options::default());
    remote_procedures(small_sockets());
}

#[test]
fn a_refused_write_of_the_node_ends_the_endpoint() {
    let mut pair = Pair::new(Options::default(), 4096);
    let mut endpoint = pair.endpoint();
    let own = pair.link.allocate(4096).unwrap();
    let key = pair.link.grant(&own, 0, 64, Rights::WRITE).unwrap();
    let id = endpoint.post_message(b"who am I").unwrap();
    endpoint.wait_for(id).unwrap();
    let Some(Event::Message { endpoint: id, .. }) = pair.listener.next(SOON).unwrap() else { panic!("no message") };
    pair.peer.write(id, key.at(0), b"12345678", Some(6)).unwrap();
    assert_eq!(endpoint.wait_receive(SOON).unwrap(), Some(Incoming::Immediate(6)));
    assert_eq!(own.load(0).unwrap(), u64::from_le_bytes(*b"12345678"));
    pair.peer.write(id, key.at(60), b"12345678", Some(7)).unwrap();
    assert!(matches!(endpoint.wait_receive(SOON), Err(Error::PeerLost { .. })));
    assert!(own.load(56).unwrap() == 0);
    assert!(pair.peer.write(id, key.at(0), b"x", None).is_err());
    // The link stands.
    pair.endpoint().write(pair.key.at(0), b"x").unwrap();
}

#[test]
fn the_node_reads_the_clients_memory_under_its_keys_only() {
    let mut pair = Pair::new(Options::default(), 4096);
    let mut endpoint = pair.endpoint();
    let own = pair.link.allocate(1 << 20).unwrap();
    let bytes = pattern(1 << 20);
    own.write(0, &bytes).unwrap();
    let key = pair.link.grant(&own, 0, 1 << 20, Rights::READ).unwrap();
    let id = endpoint.post_message(b"who am I").unwrap();
    endpoint.wait_for(id).unwrap();
    let Some(Event::Message { peer, endpoint: id, .. }) = pair.listener.next(SOON).unwrap() else {
        panic!("no message")
    };
    let node = forebay_env::thread::spawn("node", move || {
        let mut into = vec![0; 1 << 20];
        peer.read(id, key.at(0), &mut into).unwrap();
        let forged = AccessKey::new(key.index, 1);
        let refused = peer.read(id, forged.at(0), &mut [0; 8]);
        let outside = peer.read(id, key.at(1 << 20), &mut [0; 8]);
        peer.send(id, b"done").unwrap();
        (into, refused, outside)
    })
    .unwrap();
    assert_eq!(endpoint.wait_receive(SOON).unwrap(), Some(Incoming::Message(b"done".to_vec())));
    let (into, refused, outside) = node.join().unwrap();
    assert!(into == bytes);
    assert_eq!(refused, Err(Error::AccessDenied));
    assert_eq!(outside, Err(Error::OutOfBounds { offset: 1 << 20, length: 8 }));
}

#[test]
fn a_node_that_goes_away_fails_everything_soon() {
    let pair = Pair::new(small_sockets(), 8 << 20);
    let mut endpoint = pair.endpoint();
    let mut idle = pair.endpoint();
    for _ in 0..8 {
        let slot = endpoint.slot(8 << 20).unwrap();
        endpoint.post_read(pair.key.at(0), slot).unwrap();
    }
    endpoint.flush();
    let sleeper = forebay_env::thread::spawn("sleeper", move || idle.wait_receive(SOON)).unwrap();
    let identity = pair.link.node();
    let address = pair.listener.address();
    drop(pair.listener);
    for _ in 0..8 {
        assert!(matches!(endpoint.wait().unwrap().result, Err(Error::PeerLost { .. })));
    }
    assert!(matches!(sleeper.join().unwrap(), Err(Error::PeerLost { .. })));
    assert!(!pair.link.is_alive());
    assert!(!pair.peer.is_alive());
    assert!(matches!(pair.link.endpoint(EndpointOptions::default()), Err(Error::PeerLost { .. })));
    assert!(matches!(tcp::connect(&address, Options::default()), Err(Error::PeerLost { .. })));
    // A new life of the node has another incarnation, and accepts no endpoint of the old link.
    let place = address.trim_start_matches("tcp://").parse().unwrap();
    let again = tcp::listen(place, 7, Options::default()).unwrap();
    assert_ne!(again.identity(), identity);
    assert!(pair.link.endpoint(EndpointOptions::default()).is_err());
    let link = tcp::connect(&address, Options::default()).unwrap();
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    assert_eq!(endpoint.read(pair.key.at(0), &mut [0; 8]), Err(Error::AccessDenied));
}

#[test]
fn a_link_that_ends_is_reported_once_and_takes_its_grants_along() {
    let mut pair = Pair::new(Options::default(), 4096);
    let mut endpoint = pair.endpoint();
    let id = pair.peer.id();
    pair.link.close();
    assert!(!pair.link.is_alive());
    assert!(matches!(endpoint.read(pair.key.at(0), &mut [0; 8]), Err(Error::PeerLost { .. })));
    assert!(matches!(pair.listener.next(SOON).unwrap(), Some(Event::Left { peer, .. }) if peer == id));
    assert!(!pair.peer.is_alive());
    assert!(pair.peer.grant(&pair.region, 0, 8, Rights::ALL).is_err());
    assert_eq!(pair.peer.revoke(pair.key).unwrap_err(), Error::AccessDenied);
    // And from the node's side.
    let link = tcp::connect(&pair.listener.address(), Options::default()).unwrap();
    let peer = joined(&mut pair.listener);
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    peer.close();
    assert!(matches!(endpoint.wait_receive(SOON), Err(Error::PeerLost { .. })));
    assert!(!link.is_alive());
    assert!(matches!(pair.listener.next(SOON).unwrap(), Some(Event::Left { peer: left, .. }) if left == peer.id()));
    assert!(pair.listener.next(Duration::from_millis(50)).unwrap().is_none());
}

#[test]
fn messages_wait_for_whoever_serves_and_none_is_lost() {
    let mut pair = Pair::new(small_sockets(), 4096);
    let mut endpoint = pair.endpoint();
    let count = 3000u32;
    // More bytes than the event queue takes.
    let sender = forebay_env::thread::spawn("sender", move || {
        for i in 0..count {
            let mut message = vec![0; 60_000];
            message[..4].copy_from_slice(&i.to_le_bytes());
            endpoint.post_message(&message).unwrap();
            if i % 8 == 7 {
                endpoint.flush();
                for _ in 0..8 {
                    endpoint.wait().unwrap().result.unwrap();
                }
            }
        }
    })
    .unwrap();
    for i in 0..count {
        match pair.listener.next(SOON).unwrap() {
            Some(Event::Message { bytes, .. }) => assert_eq!(bytes[..4], i.to_le_bytes()),
            other => panic!("no message but {other:?}"),
        }
        if i == 0 {
            // The sender runs into the bound meanwhile.
            forebay_env::Clock::sleep(&forebay_env::SystemClock::new(), Duration::from_millis(300));
        }
    }
    sender.join().unwrap();
}

#[test]
fn only_loopback_addresses_unless_allowed() {
    let anywhere = "0.0.0.0:0".parse().unwrap();
    let error = tcp::listen(anywhere, 1, Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("--allow-remote"), "{error}");
    let listener = tcp::listen(anywhere, 1, Options { allow_remote: true, ..Options::default() }).unwrap();
    assert!(listener.address().starts_with("tcp://0.0.0.0:"));
    assert!(!start(Options::default()).address().ends_with(":0"));
    for wrong in ["", "tcp://", "tcp://127.0.0.1", "shm:/tmp/x", "tcp://127.0.0.1:99999"] {
        let error = tcp::connect(wrong, Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
    }
}
