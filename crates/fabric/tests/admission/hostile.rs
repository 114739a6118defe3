//! Strangers that do not behave: raw sockets, written from `docs/formats/tcp-frame.md`.

use super::authority::Validity;
use super::{ALICE, BOB, SOON, Site, connect, joined, node, secrets, with_secret};
use forebay_base::{checksum, checksum_append};
use forebay_env::thread::spawn;
use forebay_env::{Clock, Random, SystemClock};
use forebay_fabric::admission::{Access, AccessOptions, AdmissionOptions};
use forebay_fabric::tcp::{self, TcpListener};
use forebay_fabric::{EndpointOptions, Event, Listener, Rights};
use ring::hmac;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Strangers that a node keeps, in all and of one source.
const MAX_STRANGERS: u64 = 256;
const MAX_OF_SOURCE: u64 = 64;

fn place(node: &TcpListener) -> SocketAddr {
    node.address().trim_start_matches("tcp://").parse().unwrap()
}

pub fn dial(node: &TcpListener) -> TcpStream {
    let socket = TcpStream::connect(place(node)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// A connection from another address of loopback.
fn dial_from(node: &TcpListener, last: u8) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let end = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&end, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    connect(&end, &place(node)).unwrap();
    let socket = TcpStream::from(end);
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// A frame with a right checksum in front of its body.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xfb, 1, kind, 0];
    bytes.extend((body.len() as u32 + 4).to_le_bytes());
    bytes.extend([0; 8]);
    let crc = checksum_append(checksum(&bytes), body);
    bytes.extend(crc.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Receives a frame: its kind and body.
pub fn receive(socket: &mut impl Read) -> (u8, Vec<u8>) {
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize];
    socket.read_exact(&mut body).unwrap();
    (head[2], body[4..].to_vec())
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

/// A proof, made as `admission::secret` draws it.
fn proof(secret: &str, side: &str, challenge: &[u8], nonce: &[u8; 32], request: &[u8]) -> Vec<u8> {
    let (name, value) = secret.split_once(' ').unwrap();
    let mut statement = format!("forebay admission 1: {side}").into_bytes();
    statement.resize(32, 0);
    for part in [challenge, nonce, &[0; 32], request, name.as_bytes()] {
        statement.extend_from_slice(part);
    }
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, value.as_bytes()), &statement).as_ref().to_vec()
}

/// Says hello with `request` and proves to have `secret`. Returns the answer.
pub fn raw_prove(socket: &mut TcpStream, secret: &str, request: &[u8]) -> (u8, Vec<u8>) {
    socket.write_all(&frame(1, request)).unwrap();
    let (kind, challenge) = receive(socket);
    assert_eq!((kind, challenge.len()), (12, 32));
    answer_challenge(socket, secret, &challenge, request)
}

/// Answers a challenge. Returns the node's reply, after its own proof if it gives one.
pub fn answer_challenge(socket: &mut TcpStream, secret: &str, challenge: &[u8], request: &[u8]) -> (u8, Vec<u8>) {
    let nonce = [5; 32];
    let name = secret.split_once(' ').unwrap().0.as_bytes();
    let own = proof(secret, "client", challenge, &nonce, request);
    socket.write_all(&frame(13, &[&nonce[..], &own, name].concat())).unwrap();
    let (kind, body) = receive(socket);
    if kind != 14 {
        return (kind, body);
    }
    assert_eq!(body, proof(secret, "node", challenge, &nonce, request));
    receive(socket)
}

pub const CONTROL: [u8; 28] = [0; 28];

fn endpoint_of(link: &[u8], token: &[u8]) -> Vec<u8> {
    [&[1, 0, 0, 0], link, token].concat()
}

fn with_alice_and_bob() -> TcpListener {
    node(AdmissionOptions { secrets: secrets(&format!("{ALICE}\n{BOB}")), ..Default::default() })
}

#[test]
fn the_exchange_is_as_it_is_written_down() {
    let mut node = with_alice_and_bob();
    let mut control = dial(&node);
    let (kind, welcome) = raw_prove(&mut control, ALICE, &CONTROL);
    assert_eq!(kind, 2);
    assert_eq!(joined(&mut node).origin().identity.to_string(), "secret:alice");
    // The link's number and token are worth nothing to another identity.
    let request = endpoint_of(&welcome[12..20], &welcome[20..36]);
    let (kind, failure) = raw_prove(&mut dial(&node), BOB, &request);
    assert_eq!((kind, failure[0]), (11, 1));
    assert_eq!(raw_prove(&mut dial(&node), ALICE, &request).0, 2);
}

#[test]
fn what_one_connection_proved_is_no_proof_in_another() {
    let node = with_alice_and_bob();
    let mut first = dial(&node);
    first.write_all(&frame(1, &CONTROL)).unwrap();
    let (_, challenge) = receive(&mut first);
    let nonce = [7; 32];
    let right = proof(ALICE, "client", &challenge, &nonce, &CONTROL);
    let right = frame(13, &[&nonce[..], &right, b"alice"].concat());
    // The same bytes elsewhere.
    let mut second = dial(&node);
    second.write_all(&frame(1, &CONTROL)).unwrap();
    let (_, other) = receive(&mut second);
    assert_ne!(challenge, other);
    second.write_all(&right).unwrap();
    let (kind, failure) = receive(&mut second);
    assert_eq!((kind, failure[0]), (11, 6));
    // For something else that was asked for.
    let mut third = dial(&node);
    third.write_all(&frame(1, &endpoint_of(&[1; 8], &[2; 16]))).unwrap();
    let (_, challenge) = receive(&mut third);
    let of_control = proof(ALICE, "client", &challenge, &nonce, &CONTROL);
    third.write_all(&frame(13, &[&nonce[..], &of_control, b"alice"].concat())).unwrap();
    assert_eq!(receive(&mut third).1[0], 6);
    // The node's own label.
    let mut fourth = dial(&node);
    fourth.write_all(&frame(1, &CONTROL)).unwrap();
    let (_, challenge) = receive(&mut fourth);
    let of_node = proof(ALICE, "node", &challenge, &nonce, &CONTROL);
    fourth.write_all(&frame(13, &[&nonce[..], &of_node, b"alice"].concat())).unwrap();
    assert_eq!(receive(&mut fourth).1[0], 6);
    // Where it belongs it is accepted, and only once.
    first.write_all(&[&right[..], &right].concat()).unwrap();
    assert_eq!((receive(&mut first).0, receive(&mut first).0), (14, 2));
    assert!(until_closed(&mut first).is_empty());
}

#[test]
fn nothing_goes_before_the_proof() {
    let node = with_alice_and_bob();
    let unfit = |name: &[u8]| frame(13, &[&[1; 64][..], name].concat());
    let beginnings = [
        vec![frame(13, &[&[0; 64][..], b"alice"].concat())],
        vec![frame(1, &CONTROL), frame(1, &CONTROL)],
        vec![frame(1, &CONTROL), frame(7, b"a message")],
        vec![frame(1, &CONTROL), frame(2, &[0; 40])],
        vec![frame(1, &CONTROL), unfit(b"")],
        vec![frame(1, &CONTROL), unfit(&[b'a'; 65])],
        vec![frame(1, &CONTROL), unfit(b"\xff\xfe")],
        vec![frame(14, &[0; 32])],
        vec![frame(7, &[0; 60_000])],
        vec![vec![0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]],
    ];
    for (number, frames) in beginnings.into_iter().enumerate() {
        let mut socket = dial(&node);
        // The node may close before it has all.
        let _ = frames.iter().try_for_each(|frame| socket.write_all(frame));
        let answer = until_closed(&mut socket);
        assert!(!answer.chunks_exact(1).any(|_| answer.get(2) == Some(&2)), "beginning {number} was welcomed");
    }
    let counts = node.admission_counts();
    assert_eq!((counts.admitted, counts.refused), (0, 10));
    connect(&node, with_secret(ALICE)).unwrap();
}

#[test]
fn an_older_tls_is_refused() {
    let site = Site::new();
    let node = node(site.node());
    // A client's hello of TLS 1.2, with what it takes to be one: no `supported_versions`.
    let groups = [0, 10, 0, 4, 0, 2, 0, 29];
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&groups[..], &signatures].concat();
    let mut hello = vec![3, 3];
    hello.extend([9; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    hello.extend((extensions.len() as u16).to_be_bytes());
    hello.extend(extensions);
    let handshake = [&[1, 0], &(hello.len() as u16).to_be_bytes()[..], &hello].concat();
    let record = [&[0x16, 3, 1], &(handshake.len() as u16).to_be_bytes()[..], &handshake].concat();
    let mut socket = dial(&node);
    socket.write_all(&record).unwrap();
    // An alert: fatal, protocol version.
    assert_eq!(&until_closed(&mut socket)[..], &[0x15, 3, 3, 0, 2, 2, 70]);
    // Bytes that are no TLS at all, and too many of them.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16; 100_000]] {
        let mut socket = dial(&node);
        let _ = socket.write_all(bytes);
        until_closed(&mut socket);
    }
    connect(&node, site.client(&["db"], Validity::Good)).unwrap();
}

/// Passes on one direction of a connection, with some of it changed, cut or repeated.
fn pass_on_badly(mut from: TcpStream, mut to: TcpStream, random: &mut Random) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let piece = &mut bytes[..count];
        let at = random.below(count as u64) as usize;
        let passed = match random.below(6) {
            0 => {
                piece[at] ^= 1 << random.below(8);
                to.write_all(piece)
            }
            1 => to.write_all(&piece[..at]),
            2 => to.write_all(&piece[at..]),
            3 => to.write_all(piece).and_then(|()| to.write_all(&piece[at..])),
            _ => to.write_all(piece),
        };
        if passed.is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn damage_on_the_way_harms_neither_side() {
    let seed = 19;
    println!("seed {seed}");
    let site = Site::new();
    let admissions = [
        AdmissionOptions { secrets: secrets(ALICE), ..Default::default() },
        AdmissionOptions { secrets: secrets(ALICE), ..site.node() },
    ];
    for (admission, authority) in admissions.into_iter().zip([None, site.trusting().authority]) {
        let access = AccessOptions { authority, ..with_secret(ALICE) };
        let node = node(admission);
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let through = proxy.local_addr().unwrap().to_string();
        let node_place = place(&node);
        std::thread::scope(|scope| {
            let spawn = |work: Box<dyn FnOnce() + Send>| std::thread::Builder::new().spawn_scoped(scope, work).unwrap();
            let proxy = &proxy;
            spawn(Box::new(move || {
                for round in 0..100 {
                    let (client, _) = proxy.accept().unwrap();
                    let node = TcpStream::connect(node_place).unwrap();
                    let (client_too, node_too) = (client.try_clone().unwrap(), node.try_clone().unwrap());
                    let mut random = Random::seeded(seed + 2 * round);
                    let back = std::thread::Builder::new()
                        .spawn_scoped(scope, move || {
                            pass_on_badly(node_too, client_too, &mut Random::seeded(seed + 2 * round + 1))
                        })
                        .unwrap();
                    pass_on_badly(client, node, &mut random);
                    back.join().unwrap();
                }
            }));
            let options = tcp::Options {
                access: Access::load(&access).unwrap(),
                connect_timeout: Duration::from_millis(200),
                ..tcp::Options::default()
            };
            for _ in 0..100 {
                // Some get through.
                drop(tcp::connect(&through, options.clone()));
            }
        });
        connect(&node, access).unwrap();
    }
}

#[test]
fn who_takes_too_long_is_shown_out() {
    let site = Site::new();
    let encrypted = node(AdmissionOptions { secrets: secrets(ALICE), ..site.node() });
    let plain = with_alice_and_bob();
    let link = connect(&plain, with_secret(ALICE)).unwrap();
    let mut sockets = Vec::new();
    for node in [&encrypted, &plain] {
        sockets.push(dial(node));
        let mut slow = dial(node);
        slow.write_all(if std::ptr::eq(node, &plain) { &[0xfb, 1] } else { &[0x16, 3, 1] }).unwrap();
        sockets.push(slow);
    }
    let mut unproven = dial(&plain);
    unproven.write_all(&frame(1, &CONTROL)).unwrap();
    receive(&mut unproven);
    sockets.push(unproven);
    for socket in &mut sockets {
        assert!(until_closed(socket).is_empty());
    }
    assert_eq!((encrypted.admission_counts().late, plain.admission_counts().late), (2, 3));
    // A client that was admitted stays.
    assert!(link.is_alive() && link.endpoint(EndpointOptions::default()).is_ok());
}

#[test]
fn strangers_by_the_thousand_keep_nobody_out() {
    let site = Site::new();
    let mut node = node(AdmissionOptions { secrets: secrets(ALICE), ..site.node() });
    let access = || AccessOptions { authority: site.trusting().authority, ..with_secret(ALICE) };
    let link = connect(&node, access()).unwrap();
    let peer = joined(&mut node);
    let region = node.allocate(4096).unwrap();
    let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
    // Half a handshake on each of 2,000 links; links that the node gave up are also closed here.
    let mut strangers = std::collections::VecDeque::new();
    for number in 0..2000u64 {
        let mut socket = dial_from(&node, 2);
        let _ = socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0]);
        strangers.push_back(socket);
        if strangers.len() as u64 > 2 * MAX_OF_SOURCE {
            strangers.pop_front();
        }
        if number % 100 == 99 {
            endpoint.fetch_add(key.at(0), 1).unwrap();
            connect(&node, access()).unwrap();
        }
    }
    assert_eq!(region.load(0).unwrap(), 20);
    let counts = node.admission_counts();
    assert_eq!((counts.admitted, counts.refused), (2 + 20, 0));
    // The node may still have to handle the last ones.
    let gone = (0..500).any(|_| {
        SystemClock::new().sleep(Duration::from_millis(10));
        let counts = node.admission_counts();
        counts.shown_out + counts.late >= 2000 - 2 * MAX_OF_SOURCE
    });
    assert!(gone, "{:?}", node.admission_counts());
}

/// An honest client that shares its address with strangers may be shown out as one of them, and comes again.
#[test]
fn strangers_of_the_same_source_keep_nobody_out() {
    let node = with_alice_and_bob();
    let link = connect(&node, with_secret(ALICE)).unwrap();
    let (over, place) = (Arc::new(AtomicBool::new(false)), place(&node));
    let flood = || {
        let over = Arc::clone(&over);
        let strangers = move || {
            let mut strangers = std::collections::VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                let Ok(mut socket) = TcpStream::connect(place) else { continue };
                let _ = socket.write_all(&frame(1, &CONTROL));
                strangers.push_back(socket);
                if strangers.len() as u64 > 2 * MAX_OF_SOURCE {
                    strangers.pop_front();
                }
            }
        };
        spawn("strangers", strangers).unwrap()
    };
    let floods: Vec<_> = (0..8).map(|_| flood()).collect();
    let came = (0..100).all(|_| link.endpoint(EndpointOptions::default()).is_ok());
    over.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    assert!(came, "{:?}", node.admission_counts());
    assert!(node.admission_counts().shown_out > 0);
}

#[test]
fn the_node_keeps_so_many_strangers_and_no_more() {
    let node = with_alice_and_bob();
    let mut strangers: Vec<_> =
        (2..8).flat_map(|last| (0..MAX_OF_SOURCE).map(move |_| last)).map(|last| dial_from(&node, last)).collect();
    let kept = |strangers: &mut Vec<TcpStream>| {
        strangers
            .iter()
            .filter(|socket| {
                socket.set_nonblocking(true).unwrap();
                let waits = std::io::ErrorKind::WouldBlock;
                (&mut &**socket).read(&mut [0]).is_err_and(|error| error.kind() == waits)
            })
            .count() as u64
    };
    let settled = (0..500).any(|_| {
        SystemClock::new().sleep(Duration::from_millis(5));
        kept(&mut strangers) == MAX_STRANGERS
    });
    assert!(settled, "{} of {}", kept(&mut strangers), strangers.len());
    connect(&node, with_secret(ALICE)).unwrap();
}

/// A client's session that does what the test says. With `open_handed` it tells its keys.
pub fn tls_client(site: &Site, certificate: &Path, key: &Path, open_handed: bool) -> ClientConnection {
    let mut store = RootCertStore::empty();
    store.add(CertificateDer::from_pem_file(site.trusting().authority.unwrap()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(store)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    config.enable_secret_extraction = open_handed;
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Seals TLS records of any content: what no library would send.
struct Sealer {
    key: ring::aead::LessSafeKey,
    iv: [u8; 12],
    number: u64,
}

impl Sealer {
    /// Shakes hands with the node, and takes the session over from there.
    fn open(node: &TcpListener, site: &Site) -> (Self, TcpStream) {
        let access = site.client(&["db"], Validity::Good);
        let mut tls = tls_client(site, &access.certificate.unwrap(), &access.key.unwrap(), true);
        let mut socket = dial(node);
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut socket).unwrap();
        }
        let (number, secrets) = tls.dangerous_extract_secrets().unwrap().tx;
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&ring::aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&ring::aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&ring::aead::CHACHA20_POLY1305, key, iv),
            _ => panic!("a cipher that is not known"),
        };
        let key = ring::aead::UnboundKey::new(algorithm, key.as_ref()).unwrap();
        let iv = iv.as_ref().try_into().unwrap();
        (Self { key: ring::aead::LessSafeKey::new(key), iv, number }, socket)
    }

    fn record(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.number.to_be_bytes()).for_each(|(byte, with)| *byte ^= with);
        self.number += 1;
        let mut sealed = [body, &[kind]].concat();
        let header = [&[23, 3, 3][..], &(sealed.len() as u16 + 16).to_be_bytes()].concat();
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, ring::aead::Aad::from(&header), &mut sealed).unwrap();
        [header, sealed].concat()
    }
}

#[test]
fn empty_records_do_not_keep_the_door_busy() {
    let site = Site::new();
    let node = node(site.node());
    let (mut sealer, mut socket) = Sealer::open(&node, &site);
    // A hundred times what a stranger may send. The node closes before it has all.
    let flood = (0..6000).try_for_each(|_| {
        let records: Vec<u8> = (0..50).flat_map(|_| sealer.record(23, &[])).collect();
        socket.write_all(&records)
    });
    assert!(flood.is_err());
    until_closed(&mut socket);
    assert_eq!(node.admission_counts().refused, 1);
    connect(&node, site.client(&["db"], Validity::Good)).unwrap();
}

#[test]
fn a_message_of_the_session_that_never_ends_ends_the_connection() {
    let site = Site::new();
    let mut node = node(site.node());
    let (mut sealer, mut socket) = Sealer::open(&node, &site);
    socket.write_all(&sealer.record(23, &frame(1, &CONTROL))).unwrap();
    let peer = joined(&mut node);
    // A message of the handshake that claims 65,535 bytes, in records; all but the last one are sent.
    socket.write_all(&sealer.record(22, &[24, 0, 0xff, 0xff])).unwrap();
    for _ in 0..60 {
        if socket.write_all(&sealer.record(22, &[0; 1090])).is_err() {
            break;
        }
    }
    until_closed(&mut socket);
    assert!(matches!(node.next(SOON).unwrap(), Some(Event::Left { .. })));
    assert!(!peer.is_alive());
}
