//! A file that a command writes, and that is removed if a signal ends the command.

use crate::failure::Failure;
use crate::output;
use forebay::PartialFile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Creates a file. From then on a signal still ends this process as usual, but an incomplete file is removed first.
///
/// # Errors
/// That of `create`; those of the system for signals and threads.
pub fn create<F>(
    create: impl FnOnce() -> Result<F, Failure>,
    partial: impl FnOnce(&F) -> Option<&PartialFile>,
) -> Result<F, Failure> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::io("preparing for signals"))?;
    let file = create()?;
    let partial = partial(&file).cloned();
    forebay_env::thread::spawn("forebay-signals", move || end_at_signal(signals, partial))
        .map_err(Failure::io("starting a thread"))?;
    Ok(file)
}

fn end_at_signal(mut signals: Signals, partial: Option<PartialFile>) {
    let Some(signal) = signals.forever().next() else { return };
    if let Some(told) = partial.and_then(|partial| partial.remove()) {
        output::complain(&format!("forebay: ended by a signal; {told}"));
    }
    // The signal is one of those that end a process.
    let _ = emulate_default_handler(signal);
}
