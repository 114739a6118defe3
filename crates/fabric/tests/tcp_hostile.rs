//! Anything that anybody can send to a TCP node: the node closes that connection, and serves the
//! others.

// Miri has no such sockets.
#![cfg(not(miri))]

use forebay_base::{ErrorKind, checksum, checksum_append};
use forebay_env::Random;
use forebay_fabric::tcp::{self, Options, TcpListener};
use forebay_fabric::{AccessKey, Endpoint, EndpointOptions, Event, Link, Listener, Rights};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

struct Node {
    listener: TcpListener,
    _link: Arc<dyn Link>,
    endpoint: Endpoint,
    key: AccessKey,
}

impl Node {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let mut listener = tcp::listen("127.0.0.1:0".parse().unwrap(), 1, options).unwrap();
        let link = tcp::connect(&listener.address(), Options::default()).unwrap();
        let Some(Event::Joined(peer)) = listener.next(SOON).unwrap() else { panic!("no link") };
        let region = listener.allocate(4096).unwrap();
        let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
        let endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        Self { listener, _link: link, endpoint, key }
    }

    fn dial(&self) -> TcpStream {
        let socket = TcpStream::connect(self.listener.address().trim_start_matches("tcp://")).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket
    }

    /// A raw connection that has become an endpoint of a link of its own, and its control connection.
    fn raw_endpoint(&mut self) -> (TcpStream, TcpStream) {
        let mut control = self.dial();
        control.write_all(&frame(1, 0, &[0; 28])).unwrap();
        let mut welcome = [0; 60];
        control.read_exact(&mut welcome).unwrap();
        let mut endpoint = self.dial();
        endpoint.write_all(&frame(1, 0, &[&[1, 0, 0, 0], &welcome[32..56]].concat())).unwrap();
        endpoint.read_exact(&mut welcome).unwrap();
        (control, endpoint)
    }

    fn still_serves(&mut self) {
        assert_eq!(self.endpoint.fetch_add(self.key.at(8), 0).unwrap(), 0);
        let mut all = [1; 4096];
        self.endpoint.read(self.key.at(0), &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
    }
}

/// A frame with a right checksum in front of its body.
fn frame(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xfb, 1, kind, 0];
    bytes.extend((body.len() as u32 + 4).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    let crc = checksum_append(checksum(&bytes), body);
    bytes.extend(crc.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A frame of a one-sided operation, which has no checksum.
fn operation(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let head = [0xfb, 1, kind, 0];
    [&head[..], &(body.len() as u32).to_le_bytes(), &number.to_le_bytes(), body].concat()
}

/// Whatever comes until the node closes the connection.
fn until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection stays open"),
        // A reset counts.
        _ => bytes,
    }
}

#[test]
fn malformed_greetings_end_the_connection() {
    let mut node = Node::new();
    let mut late = frame(1, 0, &[0; 28]);
    late[16] ^= 1;
    let message = frame(7, 1, b"no hello before");
    let huge = [&[0xfb, 1, 7, 0][..], &u32::MAX.to_le_bytes(), &[0; 8]].concat();
    let empty_hello = frame(1, 0, &[]);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &late, &message, &huge, &empty_hello] {
        let mut socket = node.dial();
        socket.write_all(bytes).unwrap();
        assert!(until_closed(&mut socket).is_empty());
        node.still_serves();
    }
}

/// A client of another version is told so: the node answers in its own version, and the client finds that in the
/// header.
#[test]
fn another_version_is_answered_and_told() {
    let mut node = Node::new();
    let mut hello = frame(1, 0, &[0; 28]);
    hello[1] = 2;
    let mut socket = node.dial();
    socket.write_all(&hello).unwrap();
    let answer = until_closed(&mut socket);
    // Failed, in the node's version, which cannot do it.
    assert_eq!((&answer[..3], answer[20]), (&[0xfb, 1, 11][..], 4));
    node.still_serves();

    let newer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = newer.local_addr().unwrap();
    let serving = forebay_env::thread::spawn("newer", move || {
        let (mut socket, _) = newer.accept().unwrap();
        let mut hello = [0; 48];
        socket.read_exact(&mut hello).unwrap();
        socket.write_all(&[&[0xfb, 2][..], &answer[2..]].concat()).unwrap();
        until_closed(&mut socket);
    })
    .unwrap();
    let error = tcp::connect(&format!("tcp://{address}"), Options::default()).map(drop).unwrap_err();
    serving.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let told = format!("{address} speaks version 2 of the protocol, and this build version 1");
    assert!(error.to_string().starts_with(&told), "{error}");
}

#[test]
fn a_wrong_token_or_link_is_refused() {
    let mut node = Node::new();
    for (link, token) in [(1u64, 5u128), (2, 0), (u64::MAX, u128::MAX)] {
        let mut socket = node.dial();
        socket
            .write_all(&frame(1, 0, &[&[1, 0, 0, 0][..], &link.to_le_bytes(), &token.to_le_bytes()].concat()))
            .unwrap();
        let answer = until_closed(&mut socket);
        // Failed, access denied.
        assert_eq!((answer[2], answer[20]), (11, 1));
        node.still_serves();
    }
}

#[test]
fn random_frames_do_no_harm() {
    let seed = 20;
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let mut node = Node::new();
    for round in 0..300 {
        let (_control, mut endpoint) = node.raw_endpoint();
        let mut bytes = Vec::new();
        for number in 0..1 + random.below(8) {
            let mut body = vec![0; random.below(90) as usize];
            random.fill(&mut body);
            if body.len() >= 4 && random.one_in(1, 2) {
                // Likely indexes and lengths.
                body[..4].copy_from_slice(&(random.below(2) as u32).to_le_bytes());
            }
            let mut frame = frame(random.below(13) as u8, number, &body);
            match random.below(4) {
                0 => frame.truncate(random.below(frame.len() as u64) as usize),
                1 => frame[4..8].copy_from_slice(&(random.word() as u32).to_le_bytes()),
                _ => {}
            }
            bytes.extend(frame);
        }
        // The node may close while this writes.
        let _ = endpoint.write_all(&bytes);
        if round % 20 == 0 {
            node.still_serves();
        }
        // Nobody comes in while too many events wait.
        while let Some(event) = node.listener.next(Duration::ZERO).unwrap() {
            drop(event);
        }
    }
    node.still_serves();
}

#[test]
fn half_a_frame_holds_nobody_up() {
    let mut node = Node::new();
    for length in [1, 8, 15] {
        let (_control, mut endpoint) = node.raw_endpoint();
        // A message, so that the node looks here next, and the front of another one.
        let message = frame(7, 1, b"whole");
        endpoint.write_all(&[&message[..], &message[..length]].concat()).unwrap();
        endpoint.read_exact(&mut [0; 16]).unwrap();
        for _ in 0..100 {
            node.still_serves();
        }
    }
}

#[test]
fn a_busy_client_holds_nobody_up() {
    let mut node = Node::new();
    let (_control, endpoint) = node.raw_endpoint();
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        // Reads under a key that was never granted: the first is refused, the others are skipped.
        scope.spawn(|| {
            let read = [&[0xfb, 1, 3, 0, 32, 0, 0, 0][..], &[0; 8 + 32]].concat();
            let batch = read.repeat(100);
            let mut endpoint = &endpoint;
            while !is_done() && endpoint.write_all(&batch).is_ok() {}
        });
        for _ in 0..1000 {
            node.still_serves();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_never_reads_is_held_up_alone() {
    let mut node = Node::new();
    let (control, mut endpoint) = node.raw_endpoint();
    endpoint.set_nonblocking(true).unwrap();
    // Messages, each of which is acknowledged; nobody reads the acknowledgements or takes the messages.
    let batch = frame(7, 1, &[]).repeat(10_000);
    let mut taken = 0;
    for _ in 0..2000 {
        match endpoint.write(&batch[taken % 20..]) {
            Ok(count) => taken += count,
            Err(_) => forebay_env::Clock::sleep(&forebay_env::SystemClock::new(), Duration::from_millis(1)),
        }
    }
    assert!(taken < 100 << 20, "{taken} bytes were taken");
    node.still_serves();
    drop((control, endpoint));
    node.still_serves();
}

#[test]
fn who_takes_no_answers_for_too_long_is_ended() {
    let mut node = Node::with(Options { peer_timeout: Duration::from_millis(200), ..Options::default() });
    let (control, mut endpoint) = node.raw_endpoint();
    let Some(Event::Joined(peer)) = node.listener.next(SOON).unwrap() else { panic!("no link") };
    let bytes = 1 << 20;
    let region = node.listener.allocate(bytes).unwrap();
    let key = peer.grant(&region, 0, bytes as u64, Rights::READ).unwrap();
    let place = [&key.index.to_le_bytes()[..], &key.secret().to_le_bytes(), &[0; 8], &(bytes as u32).to_le_bytes()];
    let read = operation(3, 1, &place.concat());
    endpoint.set_nonblocking(true).unwrap();
    let mut taken = 0;
    // Nobody takes the answers: they fill both sockets, and then the node can send nothing more.
    let ended = (0..10_000).any(|_| {
        match endpoint.write(&read[taken % read.len()..]) {
            Ok(count) => taken += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
        forebay_env::Clock::sleep(&forebay_env::SystemClock::new(), Duration::from_millis(1));
        false
    });
    assert!(ended, "{taken} bytes were taken, and it is not ended");
    // A client that has nothing to take is not stuck.
    node.still_serves();
    drop(control);
}
