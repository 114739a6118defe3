//! Rates of one-sided operations over shared memory, one thread: `shm_rate [MiB of the region]`.

use forebay_env::{Clock, Random, SystemClock};
use forebay_fabric::{AccessKey, Endpoint, EndpointOptions, Error, Event, Listener, Outcome, Rights, shm};
use std::time::Duration;

const OPERATIONS: usize = 64_000;
const ROUNDS: usize = 60;

fn main() -> Result<(), Error> {
    let mib: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    let path = std::env::temp_dir().join(format!("forebay-rate-{}.socket", std::process::id()));
    let mut listener = shm::listen(&path, 1)?;
    let link = shm::connect(&path)?;
    let Some(Event::Joined(peer)) = listener.next(Duration::from_secs(5))? else {
        return Err(Error::Invalid("no link".into()));
    };
    let region = listener.allocate(mib << 20)?;
    region.zero(0, region.length())?;
    region.commit()?;
    let key = peer.grant(&region, 0, region.length(), Rights::ALL)?;
    let mut endpoint = link.endpoint(EndpointOptions::default())?;
    for (bytes, depth) in [(8, 1), (64, 1), (512, 1), (8, 16), (64, 16), (512, 16)] {
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            best = best.min(reads(&mut endpoint, key, region.length(), bytes, depth)?);
        }
        println!("read {bytes:>4} B, {depth:>2} in flight: {best:>6.1} ns each, {:>5.1} M/s", 1e3 / best);
    }
    Ok(())
}

/// Nanoseconds for each random read.
fn reads(endpoint: &mut Endpoint, key: AccessKey, region: u64, bytes: usize, depth: usize) -> Result<f64, Error> {
    let mut random = Random::seeded(7);
    let places = region / bytes as u64;
    let clock = SystemClock::new();
    for _ in 0..OPERATIONS / depth {
        for _ in 0..depth {
            let slot = endpoint.slot(bytes)?;
            endpoint.post_read(key.at(random.below(places) * bytes as u64), slot)?;
        }
        endpoint.wait_all(|_, outcome| match outcome {
            Outcome::Read(slot) => Some(slot),
            _ => None,
        })?;
    }
    Ok(clock.now() as f64 / OPERATIONS as f64)
}
