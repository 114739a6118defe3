//! Standard output.

use crate::failure::Failure;
use std::io::Write;

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

/// Prints bytes on standard output.
///
/// # Errors
/// When they cannot be written.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::io("writing to standard output"))
}
