//! A file that a command writes, and that is removed if a signal ends the command.

use crate::failure::Failure;
use crate::{output, signals};
use forebay::PartialFile;
use forebay_env::sync::{Mutex, lock};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::Arc;

/// Creates the file at `path`. From now on a signal still ends this process as usual, also while the file is a pipe
/// that nobody reads yet, but an incomplete file is removed first. A signal that the process was started to ignore, as
/// `nohup` does, is still ignored.
///
/// # Errors
/// That of `create`; those of the system for signals and threads.
pub fn create<F>(
    path: &Path,
    create: impl FnOnce() -> Result<F, Failure>,
    partial: impl FnOnce(&F) -> Option<&PartialFile>,
) -> Result<F, Failure> {
    let signals = signals::ending()?;
    let begun = Arc::<Mutex<Option<PartialFile>>>::default();
    // A signal waits until the file is there to be removed. Opening a pipe or a device creates none, and may last.
    let is_there = path.metadata().is_ok_and(|about| !about.is_file());
    let held = (!is_there).then(|| lock(&begun));
    let incomplete = Arc::clone(&begun);
    forebay_env::thread::spawn("forebay-signals", move || end_at_signal(signals, &incomplete))
        .map_err(Failure::io("starting a thread"))?;
    let file = create()?;
    *held.unwrap_or_else(|| lock(&begun)) = partial(&file).cloned();
    Ok(file)
}

fn end_at_signal(mut signals: Signals, incomplete: &Mutex<Option<PartialFile>>) {
    let Some(signal) = signals.forever().next() else { return };
    if let Some(told) = lock(incomplete).as_ref().and_then(PartialFile::remove) {
        output::complain(&format!("forebay: ended by a signal; {told}"));
    }
    signals::end_by(signal);
}
