//! Runs all continuous attacks at once for a while, beside an honest tenant that is measured: quiet, then under attack.
//!
//! There are three processes. The node is one, so that its memory can be distinguished from that of others. The honest
//! tenant is this process. The attackers are the third, at the system's idle priority. They stand for other machines, whose
//! processors do not belong to the node, so here they get the time that the node and the honest tenant leave. What they make
//! the node do counts in full.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::EndpointOptions;
use forebay_hostile::field::{Field, serve};
use forebay_hostile::onslaught::{ALL, Attack};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Attacks a memory node, and measures an honest tenant of it.
#[derive(Debug, Parser)]
struct Options {
    /// How long the honest one is measured, quiet and under attack each, seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Only these attacks, separated by commas: unread, never-pulled, gathers, unread-gathers, idle-links, leases, shards, names,
    /// half-handshakes, forgeries.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fail when the honest one's p99 is more than twice its quiet one, its rate less than half, or the node grows by
    /// more than 64 MiB. Only for a machine that does nothing else.
    #[arg(long)]
    check: bool,
    /// Be the node that is attacked, until standard input ends.
    #[arg(long, hide = true)]
    serve: bool,
    /// Be the attackers of the node at this address, for as long as it is there.
    #[arg(long, hide = true)]
    attack: Option<String>,
}

/// Most growth of the node: 256 KiB for each of the 256 links that a tenant may have.
const MOST_GROWTH_BYTES: u64 = 256 * (256 << 10);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Times of the honest one's calls and reads, microseconds.
struct Measured {
    calls: Histogram<u64>,
    reads: Histogram<u64>,
}

impl Measured {
    fn kinds(&self) -> [(&'static str, &Histogram<u64>); 2] {
        [("calls", &self.calls), ("reads of 64 B", &self.reads)]
    }
}

fn measure(field: &Field, seconds: u64) -> Result<Measured, Failure> {
    let clock = SystemClock::new();
    let mut measured = Measured {
        calls: Histogram::new_with_bounds(1, 600_000_000, 3)?,
        reads: Histogram::new_with_bounds(1, 600_000_000, 3)?,
    };
    let victim = &field.victim;
    let mut endpoint = victim.link().endpoint(EndpointOptions::default())?;
    let extent = *victim.lease(1, forebay_proto::Purpose::Flush)?.first().ok_or("no extent")?;
    let at = victim.resolve(extent, 0)?;
    let mut bytes = [0; 64];
    let end = clock.now() + seconds * 1_000_000_000;
    while clock.now() < end {
        let began = clock.now();
        victim.renew()?;
        measured.calls.saturating_record((clock.now() - began) / 1000);
        for _ in 0..8 {
            let began = clock.now();
            endpoint.read(at, &mut bytes)?;
            measured.reads.saturating_record((clock.now() - began) / 1000);
        }
    }
    victim.return_extents(&[extent])?;
    Ok(measured)
}

fn show(what: &str, measured: &Measured) {
    for (kind, times) in measured.kinds() {
        println!(
            "{what:<14} {kind:<14} {:>9}  p50 {:>7} us  p99 {:>7} us  max {:>8} us",
            times.len(),
            times.value_at_quantile(0.5),
            times.value_at_quantile(0.99),
            times.max()
        );
    }
}

/// Repeats an attack until the process ends.
fn attack(attack: &'static Attack, address: &str) -> Result<JoinHandle<()>, Failure> {
    let address = address.to_owned();
    let clock = SystemClock::new();
    let again = move || loop {
        // If the node ends the connection, the attack begins anew.
        let _ = (attack.once)(&address);
        clock.sleep(Duration::from_millis(10));
    };
    Ok(spawn(attack.name, again)?)
}

/// Runs the attackers.
fn attack_all(chosen: &[&'static Attack], address: &str) -> Result<(), Failure> {
    let threads = chosen
        .iter()
        .flat_map(|one| std::iter::repeat_n(one, one.attackers))
        .map(|one| attack(one, address))
        .collect::<Result<Vec<_>, _>>()?;
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "an attacker panicked".into()))
}

/// The goals that were missed, and by how much.
fn missed(quiet: &Measured, attacked: &Measured, grown_bytes: u64) -> Vec<String> {
    let mut missed = Vec::new();
    for ((kind, before), (_, after)) in quiet.kinds().into_iter().zip(attacked.kinds()) {
        let (p99, limit) = (after.value_at_quantile(0.99), 2 * before.value_at_quantile(0.99));
        if p99 > limit {
            missed.push(format!("p99 of {kind}: {p99} us, of at most {limit}"));
        }
        if 2 * after.len() < before.len() {
            missed.push(format!("{kind}: {} instead of {}, of which half is the least", after.len(), before.len()));
        }
    }
    if grown_bytes > MOST_GROWTH_BYTES {
        missed.push(format!("the node grew by {grown_bytes} bytes, of at most {MOST_GROWTH_BYTES}"));
    }
    missed
}

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    if options.serve {
        return serve();
    }
    let is_chosen = |attack: &&Attack| options.only.is_empty() || options.only.iter().any(|only| only == attack.name);
    let chosen: Vec<&'static Attack> = ALL.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(format!("--only: there are {:?}", ALL.map(|attack| attack.name)).into());
    }
    if let Some(address) = &options.attack {
        return attack_all(&chosen, address);
    }
    let field = Field::start()?;
    let quiet = measure(&field, options.seconds)?;
    show("quiet", &quiet);
    let before = field.resident_bytes()?;
    let attackers = field.attackers(&chosen.iter().map(|attack| attack.name).collect::<Vec<_>>())?;
    let attacked = measure(&field, options.seconds)?;
    show("under attack", &attacked);
    let grown_bytes = field.resident_bytes()?.saturating_sub(before);
    let hostile = field.figures("hostile")?;
    println!("the node grew by {} KiB; of the hostile tenant: {hostile:?}", grown_bytes >> 10);
    field.check()?;
    drop(attackers);
    field.stop()?;
    let missed = missed(&quiet, &attacked, grown_bytes);
    missed.iter().for_each(|missed| println!("missed: {missed}"));
    if options.check && !missed.is_empty() { Err("the goals are missed".into()) } else { Ok(()) }
}
