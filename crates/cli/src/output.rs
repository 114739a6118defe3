//! Standard output, and progress on a terminal.

use crate::failure::Failure;
use forebay_workload::Progress;
use std::io::{IsTerminal, Write};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// One JSON object.
    Json,
}

/// Prints a line on standard output, without buffering.
///
/// # Errors
/// When it cannot be written, for example because the reader of a pipe is gone.
pub fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(Failure::io("writing to standard output"))
}

/// Prints a line on standard error. A failure to write it is ignored.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows progress on standard error, if it is a terminal.
pub struct ProgressLine {
    on_terminal: bool,
    shown: bool,
}

impl ProgressLine {
    /// Nothing shown yet.
    pub fn new() -> Self {
        Self { on_terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// Shows the progress of a phase.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if !self.on_terminal {
            return;
        }
        let Progress { name, done, planned, seconds } = *progress;
        let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
        let share = match planned {
            0 => String::new(),
            planned => format!(" of {planned} ({:.0} %)", 100.0 * done as f64 / planned as f64),
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{name}: {done}{share}, {rate:.0} a second");
        self.shown = true;
    }

    /// Removes the line before something else is printed.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
