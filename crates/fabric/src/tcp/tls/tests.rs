//! Both sides of a session, and between them an attacker who damages the traffic.

#[path = "../../../tests/admission/authority.rs"]
#[allow(dead_code)]
mod authority;

use super::*;
use crate::admission::{Access, AccessOptions, Admission, AdmissionOptions};
use authority::{Authority, Folder, NODE, Validity};
use forebay_env::Random;
use std::net::{TcpListener, TcpStream};

/// Cases of each kind.
const CASES: u64 = 500;
/// Rounds of a case.
const ROUNDS: u64 = 12;

struct Site {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    listener: TcpListener,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new();
        let authority = Authority::new("authority");
        let own = Some(authority.file(&folder));
        let (node, client) =
            (authority.issue(&folder, NODE, Validity::Good), authority.issue(&folder, &["db"], Validity::Good));
        let admission = Admission::load(AdmissionOptions {
            certificate: Some(node.0),
            key: Some(node.1),
            client_authority: own.clone(),
            ..AdmissionOptions::default()
        });
        let access = AccessOptions {
            authority: own,
            certificate: Some(client.0),
            key: Some(client.1),
            ..AccessOptions::default()
        };
        Self {
            server: Arc::clone(&admission.unwrap().rules().tls.as_ref().unwrap().0),
            client: Access::load(&access).unwrap().tls.unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    fn sockets(&self) -> (Socket, Socket) {
        let near = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let far = self.listener.accept().unwrap().0;
        (Socket::adopt(near, None).unwrap(), Socket::adopt(far, None).unwrap())
    }

    fn ends(&self) -> [End; 2] {
        let name = ServerName::try_from("localhost").unwrap();
        let ends = [Tls::client(&self.client, name).unwrap(), Tls::server(&self.server).unwrap()];
        ends.map(|tls| {
            let (socket, outside) = self.sockets();
            End { tls, socket, outside, sent: 0, received: 0, broken: false }
        })
    }
}

/// The byte of the stream at this place.
fn byte(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

struct End {
    tls: Tls,
    socket: Socket,
    /// The other end of the socket.
    outside: Socket,
    sent: usize,
    received: usize,
    broken: bool,
}

impl End {
    /// Does what the fabric would do, and continues even after a failure.
    fn turn(&mut self, random: &mut Random) {
        let shaken = self.tls.shake_hands(&self.socket);
        self.broken |= shaken.is_err();
        if !matches!(shaken, Ok(true)) && !self.broken {
            return;
        }
        let most = [100, 2000, 40_000][random.below(12).saturating_sub(9) as usize];
        let bytes: Vec<u8> = (self.sent..).take(random.below(most) as usize).map(byte).collect();
        match self.tls.send(&self.socket, &bytes) {
            Ok(count) => self.sent += count,
            Err(_) => self.broken = true,
        }
        let most = [500, 40_000][random.below(2) as usize];
        let mut into = vec![0; 1 + random.below(most) as usize];
        for _ in 0..1 + random.below(6) {
            match self.tls.receive(&self.socket, &mut into) {
                Ok(Received::Bytes(count, _)) => {
                    // Whatever is done to the records, what comes out of them is what went in.
                    assert!(into[..count].iter().enumerate().all(|(at, is)| *is == byte(self.received + at)));
                    self.received += count;
                }
                Ok(_) => {}
                Err(_) => self.broken = true,
            }
        }
        let Tls { input, output, spare, .. } = &self.tls;
        assert!(input.len() <= INPUT_BYTES && spare.len() <= INPUT_BYTES + RECORD_BYTES);
        assert!(output.len() <= 2 * INPUT_BYTES, "{} bytes wait to be sent", output.len());
    }

    /// What it has sent.
    fn taken(&self) -> Vec<u8> {
        let mut bytes = vec![0; 256 << 10];
        match self.outside.receive(&mut bytes) {
            Ok(Received::Bytes(count, _)) => bytes.truncate(count),
            _ => bytes.clear(),
        }
        bytes
    }

    /// Feeds it bytes in pieces, with turns in between.
    fn give(&mut self, bytes: &[u8], random: &mut Random) {
        let most = [1, 7, 100, 3000, 100_000][random.below(5) as usize];
        let mut rest = bytes;
        // Only briefly byte by byte, because that takes too much time.
        for _ in 0..8 {
            let Some((piece, after)) = rest.split_at_checked((1 + random.below(most) as usize).min(rest.len())) else {
                break;
            };
            let _ = self.outside.send(piece);
            self.turn(random);
            rest = after;
        }
        let mut stalled = 0;
        while !rest.is_empty() && stalled < 8 {
            let count = self.outside.send(rest).unwrap_or(0);
            stalled += u32::from(count == 0);
            rest = &rest[count..];
            self.turn(random);
        }
        assert!(rest.is_empty() || self.broken || stalled > 0);
    }
}

fn draw(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.below(256) as u8).collect()
}

/// A record's bytes, as many as its header says or not.
fn record(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let kind = [20, 21, 22, 23, 24, random.below(256) as u8][random.below(6) as usize];
    let length = if random.below(8) == 0 { random.below(1 << 16) as usize } else { body.len() };
    [&[kind, 3, 1 + 2 * random.below(2) as u8][..], &(length as u16).to_be_bytes(), body].concat()
}

/// The same bytes of a handshake in other records: small ones, some of them empty.
fn in_pieces(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_at_checked(5) {
        let length = usize::from(u16::from_be_bytes([header[3], header[4]])).min(after.len());
        let (mut body, after) = after.split_at(length);
        rest = after;
        if header[0] != 22 {
            out.extend_from_slice(&[header, body].concat());
            continue;
        }
        while !body.is_empty() {
            let (piece, left) = body.split_at((1 + random.below(40) as usize).min(body.len()));
            out.extend_from_slice(&header[..3]);
            out.extend((piece.len() as u16).to_be_bytes());
            out.extend_from_slice(piece);
            body = left;
        }
    }
    [&out, rest].concat()
}

fn damaged(bytes: &[u8], earlier: &[u8], random: &mut Random) -> Vec<u8> {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    let (front, back) = bytes.split_at(at);
    let noise = draw(random, 600);
    match random.below(12) {
        0 => noise,
        1 => front.to_vec(),
        2 => back.to_vec(),
        3 => [back, front].concat(),
        4 => [bytes, bytes].concat(),
        5 => [front, front, back].concat(),
        6 => [front, &noise, back].concat(),
        7 => [bytes, earlier].concat(),
        8 => [earlier, bytes].concat(),
        9 => [front, &record(random, &noise), back].concat(),
        10 => {
            let body = if random.below(2) == 0 { bytes } else { &noise };
            (0..1 + random.below(30)).flat_map(|_| record(random, body)).collect()
        }
        _ => {
            let mut bytes = bytes.to_vec();
            for _ in 0..1 + random.below(3) {
                if let Some(byte) = bytes.get_mut(at.saturating_sub(random.below(40) as usize)) {
                    *byte ^= 1 << random.below(8);
                }
            }
            bytes
        }
    }
}

/// Runs a case: after `quiet` bytes, the traffic to the side `victim` is damaged now and then.
fn case(site: &Site, seed: u64, quiet: usize, victim: usize) -> [End; 2] {
    let random = &mut Random::seeded(seed);
    let mut ends = site.ends();
    let (mut passed, mut earlier) = (0, Vec::new());
    let mut spent = 0;
    while spent < ROUNDS {
        // After it failed, it is asked a few more times.
        spent += if ends[victim].broken { ROUNDS / 2 } else { 1 };
        for from in [0, 1] {
            ends[from].turn(random);
            let bytes = ends[from].taken();
            let to = 1 - from;
            if to != victim {
                ends[to].give(&bytes, random);
                continue;
            }
            passed += bytes.len();
            let bytes = match random.below(3) {
                _ if passed <= quiet => bytes,
                0 => damaged(&bytes, &earlier, random),
                1 if passed < 4096 => in_pieces(&bytes, random),
                _ => bytes,
            };
            ends[to].give(&bytes, random);
            earlier.extend_from_slice(bytes.get(..2000).unwrap_or(&bytes));
            earlier.truncate(30_000);
        }
    }
    ends
}

/// Runs cases in which a seed draws how many bytes pass unharmed.
fn cases(victim: usize, quiet: impl Fn(&mut Random) -> usize) -> [usize; 2] {
    let site = Site::new();
    let mut counts = [0; 2];
    for seed in 0..CASES {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            case(&site, seed, quiet(&mut Random::seeded(!seed)), victim)
        }));
        let ends = ran.unwrap_or_else(|_| panic!("seed {seed} of side {victim}"));
        counts[0] += usize::from(ends[victim].broken);
        counts[1] += usize::from(ends[victim].received > 0);
    }
    counts
}

#[test]
fn no_bytes_in_a_handshake_panic_a_node() {
    let [broken, _] = cases(1, |random| random.below(2500) as usize);
    assert!(broken as u64 > CASES / 2, "{broken} broke");
}

#[test]
fn no_bytes_in_a_handshake_panic_a_client() {
    let [broken, _] = cases(0, |random| random.below(2500) as usize);
    assert!(broken as u64 > CASES / 2, "{broken} broke");
}

#[test]
fn no_bytes_in_an_open_session_panic_a_node() {
    let [broken, open] = cases(1, |random| 3000 + random.below(4000) as usize);
    assert!(broken as u64 > CASES / 2 && open as u64 > CASES / 2, "{broken} broke, {open} had been open");
}

#[test]
fn no_bytes_in_an_open_session_panic_a_client() {
    let [broken, open] = cases(0, |random| 3000 + random.below(4000) as usize);
    assert!(broken as u64 > CASES / 2 && open as u64 > CASES / 2, "{broken} broke, {open} had been open");
}

#[test]
fn other_pieces_and_no_damage_are_no_harm() {
    let site = Site::new();
    for seed in 0..50 {
        let ends = case(&site, seed, usize::MAX, 0);
        assert!(ends.iter().all(|end| !end.broken && end.received > 0), "seed {seed}");
    }
}
