//! Standard output.

use crate::failure::Failure;
use serde::Serialize;
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

/// Prints a report as one JSON object, on a line of standard output.
///
/// # Errors
/// As [`line`].
pub fn json(report: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(report);
    line(&text.map_err(|error| Failure::io("printing the report")(error.into()))?)
}

/// A name in a table, which came over a network and is not believed.
pub fn escaped(name: &str) -> String {
    name.escape_debug().to_string()
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
