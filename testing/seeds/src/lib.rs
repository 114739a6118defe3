//! Runs a program's seeds side by side, and handles those that fail.

#![forbid(unsafe_code)]

use forebay_env::cpu::process_nanos;
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of seeds after which progress is printed.
const TOLD_EVERY: u64 = 1000;
/// A seed that waits instead of working counts as hanging after this multiple of the seconds.
const WAITING: u64 = 10;

/// The seeds that a program is to run.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Seeds {
    /// Seeds to run.
    #[arg(long = "seeds", value_name = "SEEDS", default_value_t = 100)]
    pub count: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Seeds that run side by side.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Go on after a seed that failed.
    #[arg(long)]
    pub all: bool,
    /// Seconds of processor time that a seed may take: one that takes longer hangs, and the program ends. So
    /// does one that takes ten times as long by the clock.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub patience: u64,
}

impl Seeds {
    /// Runs them, until one fails unless all are wanted. Returns what each thread made of its seeds with `add`,
    /// and how many seeds failed. Failed seeds are printed with `again`, the command that runs such a seed
    /// again. Ends the program with exit code 1 when a seed hangs.
    pub fn run<T: Default + Send, R>(
        &self,
        run: impl Fn(u64) -> Result<R, String> + Sync,
        add: impl Fn(&mut T, R) + Sync,
        again: impl Fn(u64) -> String + Sync,
    ) -> (Vec<T>, u64) {
        let (next, failed, stop) = (AtomicU64::new(self.first), AtomicU64::new(0), AtomicBool::new(false));
        let end = self.first.saturating_add(self.count);
        let clock = SystemClock::new();
        let running = Mutex::new(BTreeMap::new());
        let ended = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let work = || {
            let mut total = T::default();
            while !stop.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    break;
                }
                lock(&running).insert(seed, Start { clock: clock.now(), processor: process_nanos() });
                let result = run(seed);
                lock(&running).remove(&seed);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if done.is_multiple_of(TOLD_EVERY) {
                    let lowest = lock(&running).keys().next().copied().unwrap_or(seed.saturating_add(1));
                    eprintln!("{done} seeds have run; whoever stops here goes on with --first {lowest}");
                }
                match result {
                    Ok(report) => add(&mut total, report),
                    Err(why) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        stop.store(!self.all, Ordering::Relaxed);
                        eprintln!("seed {seed}: {why}");
                        eprintln!("again: {}", again(seed));
                    }
                }
            }
            total
        };
        let all = || {
            let _ended = End(&ended);
            forebay_env::thread::side_by_side(self.threads.into(), work)
        };
        let totals = forebay_env::thread::beside(|| self.watch(&clock, &ended, &running, &again), all);
        (totals, failed.into_inner())
    }

    /// Ends the program when one of the running seeds, given with their starts, has run for too
    /// long.
    fn watch(
        &self,
        clock: &SystemClock,
        ended: &AtomicBool,
        running: &Mutex<BTreeMap<u64, Start>>,
        again: impl Fn(u64) -> String,
    ) {
        let patience = self.patience.saturating_mul(1_000_000_000);
        while !ended.load(Ordering::Acquire) {
            clock.sleep(Duration::from_millis(20));
            // The other seeds that run side by side use as much.
            let worked = |start: &Start| process_nanos().saturating_sub(start.processor) / u64::from(self.threads);
            let hangs = |start: &Start| {
                worked(start) > patience || clock.now().saturating_sub(start.clock) / WAITING > patience
            };
            if let Some((seed, _)) = lock(running).iter().find(|(_, start)| hangs(start)) {
                eprintln!("seed {seed}: hangs, it has run for more than {} s", self.patience);
                eprintln!("again: {}", again(*seed));
                std::process::exit(1);
            }
        }
    }
}

/// The start of a seed.
#[derive(Debug, Clone, Copy)]
struct Start {
    clock: Nanos,
    /// The start in processor time of the whole program.
    processor: Nanos,
}

/// Signals that the seeds have ended, even when one panicked.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seeds: Seeds) -> (u64, u64) {
        let odd = |seed| if seed == 13 || seed == 17 { Err("unlucky".to_owned()) } else { Ok(seed) };
        let (totals, failed) = seeds.run(odd, |total: &mut u64, _| *total += 1, |seed| format!("--first {seed}"));
        (totals.iter().sum(), failed)
    }

    #[test]
    fn seeds_end_at_the_first_failure_or_go_on() {
        let seeds = Seeds { count: 10, first: 10, threads: 1, all: false, patience: 300 };
        assert_eq!(run(seeds), (3, 1));
        assert_eq!(run(Seeds { all: true, ..seeds }), (8, 2));
        assert_eq!(run(Seeds { all: true, threads: 3, ..seeds }), (8, 2));
        assert_eq!(run(Seeds { first: 20, ..seeds }), (10, 0));
    }
}
