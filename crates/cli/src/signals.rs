//! Signals that end a command which must still do something before.

use crate::failure::Failure;
use crate::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::{Arc, OnceLock};

/// Returns the signals that end this process, without those that it was started to ignore, as `nohup` does. They end it
/// no longer.
///
/// # Errors
/// Those of the system.
pub fn ending() -> Result<Signals, Failure> {
    let ignored = ignored();
    let ending = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| (ignored >> (signal - 1)) & 1 == 0);
    Signals::new(ending).map_err(Failure::io("preparing for signals"))
}

/// Returns the signals that this process ignores: the lowest bit is signal 1. None where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

/// The signal that asks this process to end, once it has come.
pub type Asked = Arc<OnceLock<i32>>;

/// From now on, notes the first signal that would end this process, and says that `last` is done before. The next one ends
/// the process as usual, and says what is `left`.
///
/// # Errors
/// Those of the system for signals and threads.
pub fn note(last: &'static str, left: String) -> Result<Asked, Failure> {
    let (mut signals, asked) = (ending()?, Asked::default());
    let noted = Arc::clone(&asked);
    let note = move || {
        for signal in signals.forever() {
            if noted.get().is_none() {
                // The command may end this process as soon as it sees the signal.
                output::complain(&format!("forebay: ended by a signal; {last}"));
                let _ = noted.set(signal);
            } else {
                output::complain(&format!("forebay: ended by another signal; {left}"));
                end_by(signal);
            }
        }
    };
    forebay_env::thread::spawn("forebay-signals", note).map_err(Failure::io("starting a thread"))?;
    Ok(asked)
}

/// Ends this process as the signal would.
pub fn end_by(signal: i32) {
    // The signal is one of those that end a process.
    let _ = emulate_default_handler(signal);
}
