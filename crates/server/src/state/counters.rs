//! What `INFO` counts.
//!
//! ```text
//!   a thread ─► its counters, which nobody else changes ─┐
//!   a thread ─► its counters ────────────────────────────┴─► a reader: their sum, less what it was at `CONFIG RESETSTAT`
//! ```
//!
//! So counting a command takes no lock, and makes no other thread wait.

use crate::state::command_counters::{CommandCounters, Counted};
use crate::state::counter::Counter;
use crate::state::durations::{DurationCounters, Durations};
use forebay_env::Nanos;
use forebay_env::sync::{Mutex, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

/// How many samples of the number of commands are kept: those of a second and a half.
const SAMPLES: usize = 16;
/// Most codes of errors that are distinguished, and the longest code.
const MAX_CODES: usize = 128;
const MAX_CODE_BYTES: usize = 64;
/// The code of an error that has none of its own.
const NO_CODE: &str = "ERR";

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Connections that were accepted.
    Connections,
    /// Connections that were refused because there were too many.
    Rejected,
    /// Commands.
    Commands,
    /// Bytes of requests.
    ReceivedBytes,
    /// Bytes of replies.
    SentBytes,
    /// Keys that were looked up and found.
    Hits,
    /// Keys that were looked up and not found.
    Misses,
    /// Keys that expired and were removed.
    Expired,
    /// Times that data was saved because a client said so.
    Saves,
    /// Times that something was read from a connection.
    Reads,
    /// Times that something was written to a connection.
    Writes,
    /// Time that removing expired keys took, nanoseconds.
    ExpiryNanos,
    /// Error replies.
    Errors,
}

/// Number of counts.
const COUNTS: usize = Count::Errors as usize + 1;

/// What one thread has counted since the server started.
#[derive(Debug)]
pub struct Counters {
    counts: [Counter; COUNTS],
    /// Error replies, by the places of their codes.
    errors: [Counter; MAX_CODES],
    codes: Arc<Codes>,
    /// By the numbers of commands.
    commands: Vec<CommandCounters>,
    /// How long commands of runs that only read took.
    pub reads: DurationCounters,
    /// How long commands of runs that write took.
    pub writes: DurationCounters,
}

impl Counters {
    fn new(commands: usize, codes: Arc<Codes>) -> Self {
        Self {
            counts: Default::default(),
            errors: std::array::from_fn(|_| Counter::default()),
            codes,
            commands: std::iter::repeat_with(CommandCounters::default).take(commands).collect(),
            reads: DurationCounters::default(),
            writes: DurationCounters::default(),
        }
    }

    /// Adds to a count.
    pub fn add(&self, count: Count, number: u64) {
        if let Some(counter) = self.counts.get(count as usize) {
            counter.add(number);
        }
    }

    /// The counters of the command of this number.
    #[must_use]
    pub fn of_command(&self, number: usize) -> Option<&CommandCounters> {
        self.commands.get(number)
    }

    /// Counts an error reply with this text, which begins with a code in capitals.
    pub fn add_error(&self, text: &str) {
        self.add(Count::Errors, 1);
        let is_of_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let first = text.split(' ').next().unwrap_or_default();
        let code = if first.is_empty() || !first.bytes().all(is_of_code) { NO_CODE } else { first };
        if let Some(counter) = self.errors.get(self.codes.place(code)) {
            counter.add(1);
        }
    }
}

/// The codes of errors so far, in the order in which they came. Each keeps its place.
#[derive(Debug)]
struct Codes([OnceLock<Box<str>>; MAX_CODES]);

impl Default for Codes {
    fn default() -> Self {
        let codes = Self(std::array::from_fn(|_| OnceLock::new()));
        // Codes that have no place of their own share this one's.
        codes.place(NO_CODE);
        codes
    }
}

impl Codes {
    /// Returns the place of a code. Scripts may reply with any code: a code that is too long, or one too many, gets the
    /// place of [`NO_CODE`].
    fn place(&self, code: &str) -> usize {
        if code.len() > MAX_CODE_BYTES {
            return 0;
        }
        let is_here = |slot: &OnceLock<Box<str>>| &**slot.get_or_init(|| code.into()) == code;
        self.0.iter().position(is_here).unwrap_or(0)
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map_while(|slot| slot.get().map(|code| &**code))
    }
}

/// The sum of what threads have counted.
#[derive(Debug, Clone, Default)]
struct Sum {
    counts: [u64; COUNTS],
    errors: Vec<u64>,
    commands: Vec<Counted>,
}

/// What goes through the server, in all or in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Commands.
    pub commands: u64,
    /// Bytes of requests.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
}

/// The counters of all threads. Counts are since the server started, or since [`Counts::reset`].
#[derive(Debug, Default)]
pub struct Counts {
    threads: Mutex<Vec<Arc<Counters>>>,
    codes: Arc<Codes>,
    /// The sum at the last reset.
    before: Mutex<Sum>,
    /// Times, each with the numbers of commands and of bytes each way until then, the earliest first.
    samples: Mutex<VecDeque<(Nanos, Flow)>>,
}

impl Counts {
    /// The counters of one more thread, for this many commands.
    pub fn of_thread(&self, commands: usize) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(commands, Arc::clone(&self.codes)));
        lock(&self.threads).push(Arc::clone(&counters));
        counters
    }

    fn threads(&self) -> Vec<Arc<Counters>> {
        lock(&self.threads).clone()
    }

    /// A count.
    pub fn of(&self, count: Count) -> u64 {
        // Take `before` first: a reset reads the counters before it sets `before`, and no more may be subtracted than
        // there is.
        let before = lock(&self.before).counts.get(count as usize).copied().unwrap_or(0);
        self.since_start(count).saturating_sub(before)
    }

    /// The part of a count that threads other than the first one have.
    pub fn of_others(&self, count: Count) -> u64 {
        let first = self.threads().first().and_then(|thread| thread.counts.get(count as usize)).map_or(0, Counter::get);
        self.of(count).saturating_sub(first)
    }

    fn since_start(&self, count: Count) -> u64 {
        self.threads().iter().filter_map(|thread| thread.counts.get(count as usize)).map(Counter::get).sum()
    }

    /// Error replies, by their codes.
    pub fn errors_by_code(&self) -> BTreeMap<String, u64> {
        let before = lock(&self.before).errors.clone();
        let since = self.errors().into_iter().zip(before.into_iter().chain(std::iter::repeat(0)));
        let counts = since.map(|(count, before)| count.saturating_sub(before));
        self.codes.all().map(str::to_owned).zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    fn errors(&self) -> Vec<u64> {
        let mut sums = vec![0; MAX_CODES];
        for thread in self.threads() {
            sums.iter_mut().zip(&thread.errors).for_each(|(sum, counter)| *sum += counter.get());
        }
        sums
    }

    /// What was counted of each command, by its number.
    pub fn of_commands(&self) -> Vec<Counted> {
        let before = lock(&self.before).commands.clone();
        let mut counted = self.commands();
        counted.iter_mut().zip(&before).for_each(|(counted, before)| counted.subtract(before));
        counted
    }

    fn commands(&self) -> Vec<Counted> {
        let mut sums = Vec::new();
        for thread in self.threads() {
            sums.resize_with(sums.len().max(thread.commands.len()), Counted::default);
            sums.iter_mut().zip(&thread.commands).for_each(|(sum, counters)| sum.add(counters));
        }
        sums
    }

    /// How long commands took since the server started: of runs that only read, and of those that write.
    pub fn durations(&self) -> (Durations, Durations) {
        let (mut reads, mut writes) = (Durations::default(), Durations::default());
        for thread in self.threads() {
            reads.add(&thread.reads);
            writes.add(&thread.writes);
        }
        (reads, writes)
    }

    /// Takes a sample of the flow until now, for [`Counts::per_second`]. Called ten times a second.
    pub fn sample(&self, now: Nanos) {
        let [commands, received_bytes, sent_bytes] =
            [Count::Commands, Count::ReceivedBytes, Count::SentBytes].map(|count| self.since_start(count));
        let mut samples = lock(&self.samples);
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now, Flow { commands, received_bytes, sent_bytes }));
    }

    /// Returns what went through in a second, between the earliest sample and the latest.
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

    /// Resets all counts except durations to zero.
    pub fn reset(&self) {
        lock(&self.samples).clear();
        let mut before = lock(&self.before);
        let mut counts = [0; COUNTS];
        for thread in self.threads() {
            counts.iter_mut().zip(&thread.counts).for_each(|(sum, counter)| *sum += counter.get());
        }
        *before = Sum { counts, errors: self.errors(), commands: self.commands() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_latest_samples() {
        let counts = Counts::default();
        let threads = [counts.of_thread(0), counts.of_thread(0)];
        let mut now = 0;
        let mut tick = |commands: u64| {
            threads.iter().for_each(|counters| counters.add(Count::Commands, commands));
            now += 100_000_000;
            counts.sample(now);
            counts.per_second().commands
        };
        assert_eq!((tick(0), tick(7), tick(7)), (0, 140, 140));
        // Earlier samples are forgotten.
        assert_eq!((0..16).map(|_| tick(20)).last(), Some(400));
        assert_eq!((0..16).map(|_| tick(0)).last(), Some(0));
        counts.reset();
        assert_eq!(counts.per_second(), Flow::default());
    }

    #[test]
    fn errors_are_counted_by_their_codes() {
        let counts = Counts::default();
        let threads = [counts.of_thread(0), counts.of_thread(0)];
        ["ERR a", "WRONGTYPE b", "ERR c", "no code", "", "A\u{e9} d"]
            .into_iter()
            .zip(threads.iter().cycle())
            .for_each(|(text, counters)| counters.add_error(text));
        (0..1000).for_each(|code| threads[0].add_error(&format!("C{code} of a script")));
        threads[1].add_error(&"X".repeat(1000));
        let codes = counts.errors_by_code();
        assert_eq!((codes.len(), codes["WRONGTYPE"], counts.of(Count::Errors)), (MAX_CODES, 1, 1007));
        assert_eq!(codes.values().sum::<u64>(), 1007);
        assert_eq!(codes["ERR"], 5 + 1 + (1000 - (MAX_CODES as u64 - 2)));
        counts.reset();
        assert!(counts.errors_by_code().is_empty() && counts.of(Count::Errors) == 0);
        threads[1].add_error("WRONGTYPE b");
        assert_eq!(counts.errors_by_code().into_iter().collect::<Vec<_>>(), [("WRONGTYPE".to_owned(), 1)]);
    }

    #[test]
    fn what_threads_count_is_added_up() {
        let counts = Counts::default();
        let threads = [counts.of_thread(2), counts.of_thread(2)];
        let count = |thread: usize, command: usize, took: Nanos| {
            threads[thread].of_command(command).unwrap().add(took, false);
            threads[thread].add(Count::Hits, 1);
        };
        count(0, 0, 10);
        count(1, 0, 20);
        count(1, 1, 40);
        let of = |counts: &Counts| counts.of_commands().iter().map(|of| (of.calls(), of.nanos)).collect::<Vec<_>>();
        assert_eq!((of(&counts), counts.of(Count::Hits)), (vec![(2, 30), (1, 40)], 3));
        counts.reset();
        assert_eq!((of(&counts), counts.of(Count::Hits)), (vec![(0, 0), (0, 0)], 0));
        count(0, 1, 5);
        assert_eq!((of(&counts), counts.of(Count::Hits)), (vec![(0, 0), (1, 5)], 1));
    }
}
