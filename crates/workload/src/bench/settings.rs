//! Settings of the workloads, and the sources of their threads' random numbers.

use crate::Error;
use crate::keys::KeyBuffer;
use crate::measure::Timing;
use crate::mix::mix_two;
use crate::values::Values;
use forebay_env::Random;

/// Settings of the workloads.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Keys are numbers below this one.
    pub num: u64,
    /// Writes of each thread; as many as `num` if not given.
    pub writes: Option<u64>,
    /// Reads of each thread; as many as `num` if not given.
    pub reads: Option<u64>,
    /// Number of threads.
    pub threads: usize,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// Length of a value in bytes.
    pub value_size: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Keys per `multireadrandom` call.
    pub batch_size: usize,
    /// Whether such a call is one call of the store. If not, it is a loop.
    pub multiread_batched: bool,
    /// Distance between the keys of such a call; zero draws each independently.
    pub multiread_stride: u64,
    /// Steps after each seek.
    pub seek_nexts: u64,
    /// Reads per 100 operations of `readrandomwriterandom`.
    pub read_write_percent: u32,
    /// Most writes a second of each thread, in workloads that only write; no limit if not given.
    pub write_rate: Option<f64>,
    /// Whether reads are checked. If not, values are cheap and verify nothing.
    pub verify: bool,
    /// Which calls are timed.
    pub timing: Timing,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            writes: None,
            reads: None,
            threads: 1,
            key_size: 20,
            value_size: 400,
            seed: 1,
            batch_size: 16,
            multiread_batched: true,
            multiread_stride: 0,
            seek_nexts: 0,
            read_write_percent: 90,
            write_rate: None,
            verify: true,
            timing: Timing::Each,
        }
    }
}

/// Maximum number of threads.
pub(super) const MAX_THREADS: usize = 4096;
/// Maximum number of keys per call.
const MAX_BATCH: usize = 1 << 16;

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what would be valid.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if self.num == 0 || self.num > 1 << 48 {
            return invalid(format!("num {}: 1 to {} are possible", self.num, 1_u64 << 48));
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            return invalid(format!("threads {}: 1 to {MAX_THREADS} are possible", self.threads));
        }
        if self.batch_size == 0 || self.batch_size > MAX_BATCH {
            return invalid(format!("batch size {}: 1 to {MAX_BATCH} are possible", self.batch_size));
        }
        if self.read_write_percent > 100 {
            return invalid(format!("readwritepercent {}: 0 to 100 are possible", self.read_write_percent));
        }
        if self.write_rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return invalid("a write rate must be positive".into());
        }
        Inputs::new(self, 0).map(|_| ())
    }
}

/// The source of a phase's random numbers and versions.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) settings: Settings,
    pub(super) keys: KeyBuffer,
    pub(super) values: Values,
    /// Says which phase this is, so that phases draw different keys.
    pub(super) phase: u64,
    pub(super) operations: u64,
}

impl Inputs {
    pub(super) fn new(settings: &Settings, phase: u64) -> Result<Self, Error> {
        Ok(Self {
            keys: KeyBuffer::new(settings.key_size, settings.num)?,
            values: Values::new(settings.value_size)?,
            settings: settings.clone(),
            phase,
            operations: 0,
        })
    }

    /// The random numbers of a thread.
    pub(super) fn random(&self, thread: usize) -> Random {
        Random::seeded(mix_two(self.settings.seed, mix_two(self.phase, thread as u64)))
    }

    /// The version of the values in a thread's `operation`-th write of this phase.
    pub(super) fn version(&self, thread: usize, operation: u64) -> u64 {
        mix_two(self.phase, thread as u64) ^ operation
    }

    pub(super) fn check_value(&self, what: &'static str, key: u64, value: &[u8]) -> Result<(), Error> {
        if self.settings.verify {
            self.values.check(key, value).map_err(|found| Error::Verification { what, key, found })?;
        }
        Ok(())
    }
}
