//! What `INFO` counts.

use forebay_env::Nanos;
use forebay_env::sync::{Mutex, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// Samples of the number of commands that are kept: those of a second and a half.
const SAMPLES: usize = 16;
/// Most codes of errors that are told apart, and the longest.
const MAX_CODES: usize = 128;
const MAX_CODE_BYTES: usize = 64;

/// Counts since the server started, or since `CONFIG RESETSTAT`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub rejected: AtomicU64,
    /// Commands.
    pub commands: AtomicU64,
    /// Bytes of requests.
    pub received_bytes: AtomicU64,
    /// Bytes of replies.
    pub sent_bytes: AtomicU64,
    /// Keys that were looked up and found.
    pub hits: AtomicU64,
    /// Keys that were looked up and not found.
    pub misses: AtomicU64,
    /// Keys that expired and were removed.
    pub expired: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Error replies, by their codes.
    codes: Mutex<BTreeMap<String, u64>>,
    /// When there had been how many commands, and bytes each way, the earliest first.
    samples: Mutex<VecDeque<(Nanos, Flow)>>,
}

/// What goes through the server: so much, or so much in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Commands.
    pub commands: u64,
    /// Bytes of requests.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        if number > 0 {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// A count.
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// An error reply with this text, which begins with a code in capitals.
    pub fn add_error(&self, text: &str) {
        Self::add(&self.errors, 1);
        let is_of_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let first = text.split(' ').next().unwrap_or_default();
        let code = if first.is_empty() || !first.bytes().all(is_of_code) { "ERR" } else { first };
        let mut codes = lock(&self.codes);
        // Scripts may reply with whatever they want.
        let is_told = codes.contains_key(code) || codes.len() < MAX_CODES && code.len() <= MAX_CODE_BYTES;
        *codes.entry(if is_told { code } else { "ERR" }.to_owned()).or_default() += 1;
    }

    /// Error replies, by their codes.
    pub fn errors_by_code(&self) -> BTreeMap<String, u64> {
        lock(&self.codes).clone()
    }

    /// Notes how much there has been until now, for [`Counters::per_second`]. Called ten times a second.
    pub fn sample(&self, now: Nanos) {
        let mut samples = lock(&self.samples);
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        let (commands, received_bytes) = (Self::of(&self.commands), Self::of(&self.received_bytes));
        samples.push_back((now, Flow { commands, received_bytes, sent_bytes: Self::of(&self.sent_bytes) }));
    }

    /// What went through in a second, between the earliest sample and the latest one.
    pub fn per_second(&self) -> Flow {
        let samples = lock(&self.samples);
        let (Some((from, before)), Some((until, after))) = (samples.front(), samples.back()) else {
            return Flow::default();
        };
        let rate = |of: fn(&Flow) -> u64| {
            let number = u128::from(of(after).saturating_sub(of(before))) * 1_000_000_000;
            let rate = number.checked_div(u128::from(until.saturating_sub(*from))).unwrap_or(0);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Flow {
            commands: rate(|flow| flow.commands),
            received_bytes: rate(|flow| flow.received_bytes),
            sent_bytes: rate(|flow| flow.sent_bytes),
        }
    }

    /// All counts become zero.
    pub fn reset(&self) {
        lock(&self.samples).clear();
        lock(&self.codes).clear();
        let all = [
            &self.connections,
            &self.rejected,
            &self.commands,
            &self.received_bytes,
            &self.sent_bytes,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.errors,
        ];
        all.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_latest_samples() {
        let counters = Counters::default();
        let mut now = 0;
        let mut tick = |commands: u64| {
            Counters::add(&counters.commands, commands);
            now += 100_000_000;
            counters.sample(now);
            counters.per_second().commands
        };
        assert_eq!((tick(0), tick(7), tick(7)), (0, 70, 70));
        // What came before is forgotten.
        assert_eq!((0..16).map(|_| tick(20)).last(), Some(200));
        assert_eq!((0..16).map(|_| tick(0)).last(), Some(0));
        counters.reset();
        assert_eq!(counters.per_second(), Flow::default());
    }

    #[test]
    fn errors_are_counted_by_their_codes() {
        let counters = Counters::default();
        ["ERR a", "WRONGTYPE b", "ERR c", "no code", "", "A\u{e9} d"]
            .into_iter()
            .for_each(|text| counters.add_error(text));
        (0..1000).for_each(|code| counters.add_error(&format!("C{code} of a script")));
        counters.add_error(&"X".repeat(1000));
        let codes = counters.errors_by_code();
        assert_eq!((codes.len(), codes["WRONGTYPE"]), (MAX_CODES, 1));
        assert_eq!(codes.values().sum::<u64>(), 1007);
        assert_eq!(codes["ERR"], 5 + 1 + (1000 - (MAX_CODES as u64 - 2)));
        counters.reset();
        assert!(counters.errors_by_code().is_empty());
    }
}
