//! Rates of 64-byte reads over TCP on loopback, one thread, beside those of bare sockets that carry the same bytes:
//! `tcp_rate [operations in flight]`.

use forebay_env::{Clock, Random, SystemClock};
use forebay_fabric::{AccessKey, Endpoint, EndpointOptions, Error, Event, Listener, Outcome, Rights, tcp};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const READ_BYTES: usize = 64;
const REGION_BYTES: u64 = 64 << 20;
/// Bytes that a read sends, and bytes that its answer brings.
const REQUEST_BYTES: usize = 48;
const ANSWER_BYTES: usize = 16 + READ_BYTES;
/// Short runs; the best one counts, because others also use the machine.
const ROUNDS: usize = 300;
const REPEATS: usize = 6;
const ROUND: u64 = 1_000_000;

fn main() -> Result<(), Error> {
    let depth: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(16);
    let mut listener = tcp::listen("127.0.0.1:0".parse().map_err(invalid)?, 1, tcp::Options::default())?;
    let link = tcp::connect(&listener.address(), tcp::Options::default())?;
    let Some(Event::Joined(peer)) = listener.next(Duration::from_secs(5))? else {
        return Err(Error::Invalid("no link".into()));
    };
    let region = listener.allocate(REGION_BYTES as usize)?;
    region.commit()?;
    let key = peer.grant(&region, 0, REGION_BYTES, Rights::ALL)?;
    let mut endpoint = link.endpoint(EndpointOptions::default())?;
    let mut random = Random::seeded(7);
    let (mut best_bare, mut best_batch, mut best_halves) = (0.0, 0.0, 0.0);
    for _ in 0..REPEATS {
        // Its thread spins, so it must be gone before the others are measured.
        best_bare = f64::max(best_bare, bare(depth)?);
        for _ in 0..ROUNDS {
            best_batch = rate(best_batch, depth, || {
                post(&mut endpoint, key, &mut random, depth)?;
                endpoint.wait_all(|_, outcome| slot(outcome))
            })?;
        }
        // Half of the window is in flight while the other half is posted.
        let half = depth.div_ceil(2);
        post(&mut endpoint, key, &mut random, half)?;
        for _ in 0..ROUNDS {
            best_halves = rate(best_halves, half, || {
                endpoint.flush();
                post(&mut endpoint, key, &mut random, half)?;
                endpoint.flush();
                for _ in 0..half {
                    slot(endpoint.wait()?.result?).into_iter().for_each(|slot| endpoint.release(slot));
                }
                Ok(())
            })?;
        }
        endpoint.wait_all(|_, outcome| slot(outcome))?;
    }
    println!("{depth} in flight, a million reads a second:");
    println!("bare sockets {best_bare:.2}, batches {best_batch:.2}, two halves by turns {best_halves:.2}");
    Ok(())
}

fn invalid(cause: impl std::fmt::Display) -> Error {
    Error::Invalid(cause.to_string())
}

fn slot(outcome: Outcome) -> Option<forebay_fabric::Slot> {
    if let Outcome::Read(slot) = outcome { Some(slot) } else { None }
}

fn post(endpoint: &mut Endpoint, key: AccessKey, random: &mut Random, count: usize) -> Result<(), Error> {
    for _ in 0..count {
        let slot = endpoint.slot(READ_BYTES)?;
        endpoint.post_read(key.at(random.below(REGION_BYTES / READ_BYTES as u64) * READ_BYTES as u64), slot)?;
    }
    Ok(())
}

/// The better of `best` and the rate of `batch`, in million operations a second.
fn rate(best: f64, depth: usize, mut batch: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let clock = SystemClock::new();
    let mut batches = 0;
    while clock.now() < ROUND {
        batch()?;
        batches += 1;
    }
    Ok(f64::max(best, (batches * depth) as f64 * 1e3 / clock.now() as f64))
}

/// The rate of a socket to a thread that answers each batch of requests with the number of bytes that reads
/// would bring.
fn bare(depth: usize) -> Result<f64, Error> {
    let (mut client, mut node) = pair().map_err(invalid)?;
    let (request, mut answers) = (vec![1; depth * REQUEST_BYTES], vec![0; depth * ANSWER_BYTES]);
    let (mut requests, answer) = (request.clone(), answers.clone());
    forebay_env::thread::spawn("bare", move || {
        while receive(&mut node, &mut requests).is_ok() && node.write_all(&answer).is_ok() {}
    })
    .map_err(invalid)?;
    let mut best = 0.0;
    for _ in 0..ROUNDS {
        best = rate(best, depth, || {
            client.write_all(&request).and_then(|()| receive(&mut client, &mut answers)).map_err(invalid)
        })?;
    }
    Ok(best)
}

fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (node, _) = listener.accept()?;
    for socket in [&client, &node] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    Ok((client, node))
}

fn receive(from: &mut TcpStream, into: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    let mut idle = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => (filled, idle) = (filled + count, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                idle += 1;
                if idle > 16 {
                    forebay_env::sync::thread::yield_now();
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
