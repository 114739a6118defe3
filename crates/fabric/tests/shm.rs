//! The shared-memory back end: within one process, and with a node in a process of its own that
//! is killed.

// Miri has no such sockets and no memory files.
#![cfg(not(miri))]

use forebay_env::{Clock, SystemClock};
use forebay_fabric::{
    AccessKey, Backing, Counts, Endpoint, EndpointOptions, Error, Event, Incoming, Link, Listener, Outcome, Peer,
    Region, Rights, Traffic, rpc, shm,
};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

/// The path of a socket. A node that is killed leaves its socket; this removes it in the end.
struct SocketPath(PathBuf);

impl Deref for SocketPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn socket_path() -> SocketPath {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    SocketPath(std::env::temp_dir().join(format!("forebay-{}-{number}.socket", std::process::id())))
}

struct Pair {
    path: SocketPath,
    listener: shm::ShmListener,
    peer: Arc<dyn Peer>,
    link: Arc<dyn Link>,
    endpoint: Endpoint,
}

fn joined(listener: &mut shm::ShmListener) -> Arc<dyn Peer> {
    match listener.next(LONG).unwrap() {
        Some(Event::Joined(peer)) => peer,
        other => panic!("no link but {other:?}"),
    }
}

fn pair() -> Pair {
    let path = socket_path();
    let mut listener = shm::listen(&path, 1).unwrap();
    let link = shm::connect(&path).unwrap();
    let peer = joined(&mut listener);
    let endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    Pair { path, listener, peer, link, endpoint }
}

/// Waits for what another thread or process does at its own pace.
fn eventually(mut done: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !done() {
        assert!(clock.now() < LONG.as_nanos() as u64, "it never happened");
        clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn operations_and_their_counts() {
    let mut pair = pair();
    assert_eq!(pair.link.node(), pair.listener.identity());
    assert_eq!(pair.listener.address(), format!("shm:{}", pair.path.display()));
    let region = pair.listener.allocate(8 << 20).unwrap();
    let key = pair.peer.grant(&region, 4096, 4 << 20, Rights::ALL).unwrap();
    let endpoint = &mut pair.endpoint;
    endpoint.write(key.at(10), b"hello").unwrap();
    let mut back = [0; 5];
    endpoint.read(key.at(10), &mut back).unwrap();
    assert_eq!(&back, b"hello");
    region.read(4106, &mut back).unwrap();
    assert_eq!(&back, b"hello");
    assert_eq!(endpoint.fetch_add(key.at(64), 3).unwrap(), 0);
    assert_eq!(region.fetch_add(4096 + 64, 1).unwrap(), 3);
    assert_eq!(endpoint.compare_swap(key.at(64), 4, 9).unwrap(), 4);
    for i in 0..100 {
        let slot = endpoint.slot(8).unwrap();
        endpoint.post_read(key.at(8 * i), slot).unwrap();
    }
    for _ in 0..100 {
        assert!(matches!(endpoint.wait().unwrap().result, Ok(Outcome::Read(_))));
    }
    let sealed = Region::allocate(1 << 20, Backing::Private).unwrap();
    sealed.write(0, &[7; 1 << 20]).unwrap();
    let id = endpoint.post_write_sealed(key.at(1 << 20), &sealed, 0, 1 << 20).unwrap();
    endpoint.wait_for(id).unwrap();
    let mut big = vec![0; 1 << 20];
    region.read(4096 + (1 << 20), &mut big).unwrap();
    assert!(big.iter().all(|&byte| byte == 7));
    let counts = Counts {
        round_trips: 6,
        doorbells: 6,
        reads: 101,
        writes: 2,
        atomics: 2,
        messages: 0,
        bytes_read: 5 + 16 + 800,
        bytes_written: 5 + 16 + (1 << 20),
    };
    assert_eq!(pair.link.counts(Traffic::Foreground), counts);
    assert_eq!(pair.link.counts(Traffic::Background), Counts::default());
}

#[test]
fn messages_immediates_and_the_node_reaching_the_client() {
    let mut pair = pair();
    let id = pair.endpoint.post_message(b"ping").unwrap();
    pair.endpoint.wait_for(id).unwrap();
    let Some(Event::Message { peer, endpoint, bytes, .. }) = pair.listener.next(LONG).unwrap() else {
        panic!("no message")
    };
    assert_eq!((peer.id(), &bytes[..]), (pair.peer.id(), &b"ping"[..]));
    let region = pair.link.allocate(8192).unwrap();
    let key = pair.link.grant(&region, 4096, 4096, Rights::ALL).unwrap();
    peer.write(endpoint, key.at(16), b"pong", Some(77)).unwrap();
    assert_eq!(pair.endpoint.wait_receive(LONG).unwrap(), Some(Incoming::Immediate(77)));
    let mut back = [0; 4];
    region.read(4096 + 16, &mut back).unwrap();
    assert_eq!(&back, b"pong");
    peer.read(endpoint, key.at(16), &mut back).unwrap();
    assert_eq!(&back, b"pong");
    peer.send(endpoint, b"a message").unwrap();
    assert_eq!(pair.endpoint.wait_receive(LONG).unwrap(), Some(Incoming::Message(b"a message".to_vec())));
    assert_eq!(peer.write(endpoint, key.at(4090), &[0; 8], None).unwrap_err().kind(), forebay_base::ErrorKind::Invalid);
    let forged = AccessKey::new(key.index, key.secret() ^ 1);
    assert_eq!(peer.read(endpoint, forged.at(0), &mut back).unwrap_err(), Error::AccessDenied);
    let revocation = pair.link.revoke(key).unwrap();
    eventually(|| revocation.is_complete());
    assert_eq!(peer.read(endpoint, key.at(0), &mut back).unwrap_err(), Error::AccessDenied);
    assert_eq!(pair.link.revoke(key).unwrap_err(), Error::AccessDenied);
    drop(pair.endpoint);
    eventually(|| matches!(peer.send(endpoint, b"late"), Err(Error::PeerLost { .. })));
    assert!(peer.is_alive());
    drop(pair.link);
    let Some(Event::Left { peer: left, .. }) = pair.listener.next(LONG).unwrap() else { panic!("nobody left") };
    assert_eq!(left, peer.id());
    assert!(!peer.is_alive());
}

#[test]
fn both_styles_of_rpc() {
    let path = socket_path();
    let mut listener = shm::listen(&path, 1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let node = forebay_env::thread::spawn("node", move || {
        while !stopped.load(Ordering::Acquire) {
            if let Some(Event::Message { peer, endpoint, bytes, .. }) =
                listener.next(Duration::from_millis(10)).unwrap()
            {
                let request = rpc::Request::decode(&bytes).unwrap();
                let mut arguments = request.arguments(&*peer, endpoint).unwrap();
                arguments.reverse();
                request.reply(&*peer, endpoint, Ok(&arguments)).unwrap();
            }
        }
    });
    let link = shm::connect(&path).unwrap();
    let callers: Vec<_> = (0..3)
        .map(|seed| {
            let link = Arc::clone(&link);
            forebay_env::thread::spawn("caller", move || {
                let mut client = rpc::Client::new(link, EndpointOptions::default(), 1 << 20).unwrap();
                for length in [0, 1, 1000, 5000, 300_000, 20] {
                    let arguments: Vec<u8> = (0..length).map(|i| (i * 7 + seed) as u8).collect();
                    let expected: Vec<u8> = arguments.iter().rev().copied().collect();
                    for style in [rpc::Style::Poll, rpc::Style::Sleep] {
                        assert_eq!(client.call(1, &arguments, style, LONG).unwrap(), expected);
                    }
                }
            })
            .unwrap()
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(link.counts(Traffic::Foreground).round_trips, 36);
    stop.store(true, Ordering::Release);
    node.unwrap().join().unwrap();
    let lost = link.endpoint(EndpointOptions::default()).unwrap_err();
    assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
}

/// Each failure on an endpoint of its own, because it breaks the endpoint.
fn failure(link: &Arc<dyn Link>, operation: impl FnOnce(&mut Endpoint) -> Result<(), Error>) -> Error {
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    let error = operation(&mut endpoint).unwrap_err();
    assert_eq!(endpoint.read(AccessKey::new(0, 0).at(0), &mut [0; 8]), Err(Error::Broken(Box::new(error.clone()))));
    error
}

#[test]
fn what_was_not_granted_is_refused() {
    let pair = pair();
    let region = pair.listener.allocate(16384).unwrap();
    let key = pair.peer.grant(&region, 4096, 4096, Rights::ALL).unwrap();
    let readable = pair.peer.grant(&region, 0, 4096, Rights::READ).unwrap();
    let forged = AccessKey::new(key.index, key.secret() ^ 1);
    let absent = AccessKey::new(9, key.secret());
    let read = |at| failure(&pair.link, |endpoint| endpoint.read(at, &mut [0; 8]));
    assert_eq!(read(forged.at(0)), Error::AccessDenied);
    assert_eq!(read(absent.at(0)), Error::AccessDenied);
    assert_eq!(read(key.at(4089)), Error::OutOfBounds { offset: 4089, length: 8 });
    assert_eq!(read(key.at(u64::MAX)), Error::OutOfBounds { offset: u64::MAX, length: 8 });
    assert_eq!(failure(&pair.link, |endpoint| endpoint.write(readable.at(0), &[1; 8])), Error::AccessDenied);
    assert_eq!(failure(&pair.link, |endpoint| endpoint.fetch_add(readable.at(0), 1).map(drop)), Error::AccessDenied);
    let other = shm::connect(&pair.path).unwrap();
    assert_eq!(failure(&other, |endpoint| endpoint.read(key.at(0), &mut [0; 8])), Error::AccessDenied);
    assert_eq!(region.load(4096), Ok(0));

    let mut endpoint = pair.link.endpoint(EndpointOptions::default()).unwrap();
    let bad = AccessKey::new(key.index, 0);
    for at in [key.at(0), bad.at(0), key.at(8)] {
        let slot = endpoint.slot(8).unwrap();
        endpoint.post_read(at, slot).unwrap();
    }
    let results: Vec<_> = (0..3).map(|_| endpoint.wait().unwrap().result.map(drop)).collect();
    assert_eq!(results, [Ok(()), Err(Error::AccessDenied), Err(Error::Flushed)]);

    for (offset, length) in [(0, 100), (8, 4096), (4096, 8), (0, 0)] {
        let error = pair.peer.grant(&region, offset, length, Rights::ALL).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert!(matches!(pair.peer.grant(&region, 4096, 16384, Rights::ALL), Err(Error::OutOfBounds { .. })));
    let private = Region::allocate(4096, Backing::Private).unwrap();
    assert!(matches!(pair.peer.grant(&private, 0, 4096, Rights::ALL), Err(Error::Invalid(_))));
    assert!(matches!(pair.link.grant(&private, 0, 4096, Rights::ALL), Err(Error::Invalid(_))));
}

#[test]
fn no_write_lands_after_a_revocation_is_complete() {
    let pair = pair();
    let region = pair.listener.allocate(4096).unwrap();
    for round in 0..20 {
        let key = pair.peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let mut endpoint = pair.link.endpoint(EndpointOptions::default()).unwrap();
                forebay_env::thread::spawn("writer", move || {
                    loop {
                        if let Err(error) = endpoint.fetch_add(key.at(0), 1) {
                            return error;
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        // An endpoint that has used the key and is idle must not hold the revocation up.
        let mut idle = pair.link.endpoint(EndpointOptions::default()).unwrap();
        idle.read(key.at(8), &mut [0; 8]).unwrap();
        eventually(|| region.load(0).unwrap() > 100 * (round + 1));
        let revocation = pair.peer.revoke(key).unwrap();
        assert_eq!(pair.peer.revoke(key).unwrap_err(), Error::AccessDenied);
        eventually(|| revocation.is_complete());
        let after = region.load(0).unwrap();
        for writer in writers {
            assert_eq!(writer.join().unwrap(), Error::AccessDenied);
        }
        assert_eq!(region.load(0).unwrap(), after);
        assert_eq!(idle.read(key.at(8), &mut [0; 8]).unwrap_err(), Error::AccessDenied);
    }
}

#[test]
fn many_grants_come_and_go() {
    let pair = pair();
    let region = pair.listener.allocate(300 * 4096).unwrap();
    let mut endpoint = pair.link.endpoint(EndpointOptions::default()).unwrap();
    for _ in 0..2 {
        let keys: Vec<_> = (0..300).map(|i| pair.peer.grant(&region, i * 4096, 4096, Rights::ALL).unwrap()).collect();
        assert!(keys.iter().all(|key| key.index < 300));
        for key in &keys {
            endpoint.write(key.at(0), &u64::from(key.index).to_le_bytes()).unwrap();
        }
        assert_eq!(region.load(299 * 4096), Ok(u64::from(keys[299].index)));
        let revocations: Vec<_> = keys.iter().map(|key| pair.peer.revoke(*key).unwrap()).collect();
        eventually(|| revocations.iter().all(forebay_fabric::Revocation::is_complete));
    }
}

#[test]
fn a_slow_node_holds_messages_back_and_loses_none() {
    let mut pair = pair();
    let sender = forebay_env::thread::spawn("sender", move || {
        let mut message = vec![0; 20_000];
        for number in 0..400u32 {
            message[..4].copy_from_slice(&number.to_le_bytes());
            pair.endpoint.post_message(&message).unwrap();
            if number % 7 == 0 {
                pair.endpoint.flush();
            }
        }
        let mut sent = 0;
        while pair.endpoint.outstanding() > 0 {
            pair.endpoint.wait().unwrap().result.unwrap();
            sent += 1;
        }
        (pair.link, sent)
    })
    .unwrap();
    // Enough for the queue and the socket to fill.
    SystemClock::new().sleep(Duration::from_millis(100));
    assert!(!sender.is_finished());
    for number in 0..400u32 {
        let Some(Event::Message { bytes, .. }) = pair.listener.next(LONG).unwrap() else { panic!("lost {number}") };
        assert_eq!(bytes[..4], number.to_le_bytes());
    }
    assert_eq!(sender.join().unwrap().1, 400);
}

#[test]
fn a_stopped_node_fails_everything_and_its_path_is_free() {
    let Pair { path, listener, peer, link, mut endpoint } = pair();
    let region = listener.allocate(4096).unwrap();
    let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let error = shm::listen(&path, 2).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("alive")), "{error}");
    endpoint.write(key.at(0), &[1; 8]).unwrap();
    let mut sleeper = link.endpoint(EndpointOptions::default()).unwrap();
    let sleeper = forebay_env::thread::spawn("sleeper", move || sleeper.wait_receive(LONG)).unwrap();
    drop(listener);
    assert!(!path.exists());
    assert!(matches!(sleeper.join().unwrap(), Err(Error::PeerLost { .. })));
    eventually(|| !link.is_alive());
    assert!(matches!(endpoint.write(key.at(0), &[2; 8]), Err(Error::PeerLost { .. })));
    assert!(matches!(link.grant(&link.allocate(4096).unwrap(), 0, 4096, Rights::ALL), Err(Error::PeerLost { .. })));
    assert!(matches!(shm::connect(&path), Err(Error::PeerLost { .. })));
    assert!(!peer.is_alive());
    assert!(matches!(peer.grant(&region, 0, 4096, Rights::ALL), Err(Error::PeerLost { .. })));

    let mut again = shm::listen(&path, 1).unwrap();
    let link = shm::connect(&path).unwrap();
    let peer = joined(&mut again);
    peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let stale = failure(&link, |endpoint| endpoint.read(key.at(0), &mut [0; 8]));
    assert_eq!(stale, Error::AccessDenied);
}

#[test]
fn a_closed_link_fails_its_endpoints() {
    let mut pair = pair();
    pair.link.close();
    assert!(matches!(pair.endpoint.read(AccessKey::new(0, 0).at(0), &mut [0; 8]), Err(Error::PeerLost { .. })));
    assert!(pair.endpoint.receive().is_err());
    let Some(Event::Left { .. }) = pair.listener.next(LONG).unwrap() else { panic!("nobody left") };
    let link = shm::connect(&pair.path).unwrap();
    joined(&mut pair.listener).close();
    eventually(|| !link.is_alive());
}

/// A client that asks whether a write was in time sees the end of a link no later than the node.
#[test]
fn nothing_is_confirmed_once_the_node_has_ended_the_link() {
    let mut pair = pair();
    let region = pair.listener.allocate(8192).unwrap();
    let keys = [0, 4096].map(|offset| pair.peer.grant(&region, offset, 4096, Rights::ALL).unwrap());
    pair.endpoint.write(keys[0].at(0), &[1; 8]).unwrap();
    // The other key was not used by this endpoint.
    keys.iter().for_each(|key| pair.endpoint.confirm(key).unwrap());
    pair.peer.close();
    for key in &keys {
        assert!(matches!(pair.endpoint.confirm(key), Err(Error::PeerLost { .. })));
    }
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let path = socket_path();
    std::fs::write(&path, b"precious").unwrap();
    assert!(matches!(shm::listen(&path, 1), Err(Error::Invalid(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(matches!(shm::listen(Path::new(&"long/".repeat(40)), 1), Err(Error::Invalid(_))));
}

#[test]
fn the_socket_is_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let pair = pair();
    assert_eq!(std::fs::metadata(&pair.path).unwrap().permissions().mode() & 0o777, 0o600);
}

mod process {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    const PATH: &str = "FOREBAY_TEST_SHM_NODE";

    /// Not a test: the node that the test below runs in a process of its own. It grants each link
    /// its region, tells the key in a message, and serves until it is killed.
    #[test]
    fn node() {
        let Some(path) = std::env::var_os(PATH) else { return };
        let mut listener = shm::listen(Path::new(&path), 1).unwrap();
        let region = listener.allocate(4 << 20).unwrap();
        println!("ready");
        loop {
            if let Some(Event::Message { peer, endpoint, .. }) = listener.next(LONG).unwrap() {
                let key = peer.grant(&region, 0, 4 << 20, Rights::ALL).unwrap();
                let mut out = Vec::new();
                rpc::put_key(&mut out, key);
                peer.send(endpoint, &out).unwrap();
            }
        }
    }

    struct Node(Child);

    impl Drop for Node {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn start(path: &Path) -> Node {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::node", "--nocapture"])
            .env(PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")));
        Node(child)
    }

    fn ask_key(endpoint: &mut Endpoint) -> AccessKey {
        let id = endpoint.post_message(b"key, please").unwrap();
        endpoint.wait_for(id).unwrap();
        let Some(Incoming::Message(bytes)) = endpoint.wait_receive(LONG).unwrap() else { panic!("no key") };
        rpc::get_key(&mut forebay_base::Reader::new(&bytes)).unwrap()
    }

    #[test]
    fn a_killed_node_is_noticed_within_a_second() {
        let path = socket_path();
        let mut node = start(&path);
        let link = shm::connect(&path).unwrap();
        let mut first = link.endpoint(EndpointOptions::default()).unwrap();
        let key = ask_key(&mut first);
        let busy: Vec<_> = (0..2)
            .map(|i| {
                let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
                forebay_env::thread::spawn("busy", move || {
                    let mut buffer = vec![i; 4096];
                    loop {
                        let done =
                            endpoint.write(key.at(0), &buffer).and_then(|()| endpoint.read(key.at(8192), &mut buffer));
                        if let Err(error) = done {
                            return error;
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        let mut sleeper = link.endpoint(EndpointOptions::default()).unwrap();
        let sleeper = forebay_env::thread::spawn("sleeper", move || sleeper.wait_receive(LONG)).unwrap();
        SystemClock::new().sleep(Duration::from_millis(50));
        assert!(busy.iter().all(|thread| !thread.is_finished()));
        let clock = SystemClock::new();
        node.0.kill().unwrap();
        for thread in busy {
            let error = thread.join().unwrap();
            assert!(matches!(error, Error::PeerLost { .. }), "{error}");
        }
        assert!(matches!(sleeper.join().unwrap(), Err(Error::PeerLost { .. })));
        assert!(clock.now() < 1_000_000_000, "it took {} ns", clock.now());
        drop(node);

        // The dead node left its socket behind; the next one takes its place.
        assert!(path.exists());
        assert!(matches!(shm::connect(&path), Err(Error::PeerLost { .. })));
        let _node = start(&path);
        let again = shm::connect(&path).unwrap();
        assert_ne!(again.node(), link.node());
        assert_eq!(failure(&again, |endpoint| endpoint.read(key.at(0), &mut [0; 8])), Error::AccessDenied);
        let mut endpoint = again.endpoint(EndpointOptions::default()).unwrap();
        let fresh = ask_key(&mut endpoint);
        let mut word = [9; 8];
        endpoint.read(fresh.at(0), &mut word).unwrap();
        assert_eq!(word, [0; 8]);
    }
}
