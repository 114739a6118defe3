//! Events that took long, as `LATENCY` shows them: the longest in each second, for each kind.

use forebay_env::sync::{Mutex, lock};
use std::collections::{BTreeMap, VecDeque};

/// How many seconds are kept for each kind.
const MOST: usize = 160;

/// The longest event of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at_s: u64,
    /// Milliseconds.
    pub took_ms: u64,
}

/// What is known about a kind of events.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The earliest first; at least one.
    pub samples: VecDeque<Sample>,
    /// The longest since the kind was last forgotten, milliseconds.
    pub longest_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<BTreeMap<&'static str, Series>>);

impl Latencies {
    /// Adds an event that took long.
    pub fn add(&self, kind: &'static str, sample: Sample) {
        let mut all = lock(&self.0);
        let series = all.entry(kind).or_default();
        series.longest_ms = series.longest_ms.max(sample.took_ms);
        match series.samples.back_mut().filter(|last| last.at_s == sample.at_s) {
            Some(last) => last.took_ms = last.took_ms.max(sample.took_ms),
            None => {
                if series.samples.len() >= MOST {
                    series.samples.pop_front();
                }
                series.samples.push_back(sample);
            }
        }
    }

    /// Returns all kinds with events, by their names.
    pub fn all(&self) -> BTreeMap<&'static str, Series> {
        lock(&self.0).clone()
    }

    /// Forgets these kinds, or all of them. Returns how many there were.
    pub fn reset(&self, kinds: Option<&[&[u8]]>) -> usize {
        let mut all = lock(&self.0);
        let before = all.len();
        all.retain(|kind, _| {
            kinds.is_some_and(|kinds| !kinds.iter().any(|of| of.eq_ignore_ascii_case(kind.as_bytes())))
        });
        before - all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_each_second_is_kept() {
        let latencies = Latencies::default();
        for (at_s, took_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            latencies.add("command", Sample { at_s, took_ms });
        }
        (0..200).for_each(|at_s| latencies.add("fast-command", Sample { at_s, took_ms: 1 }));
        let all = latencies.all();
        let samples: Vec<_> = all["command"].samples.iter().map(|sample| (sample.at_s, sample.took_ms)).collect();
        assert_eq!((samples, all["command"].longest_ms), (vec![(1, 9), (2, 3)], 9));
        assert_eq!((all["fast-command"].samples.len(), all["fast-command"].samples[0].at_s), (MOST, 40));
        assert_eq!((latencies.reset(Some(&[b"COMMAND", b"none"])), latencies.reset(None)), (1, 1));
        assert!(latencies.all().is_empty());
    }
}
