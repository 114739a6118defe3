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

fn print(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// An error of standard output. It has no message if nobody reads the output any more.
fn failed(cause: std::io::Error) -> Failure {
    if cause.kind() == std::io::ErrorKind::BrokenPipe { Failure::unheard() } else { told(cause) }
}

fn told(cause: std::io::Error) -> Failure {
    Failure::io("writing to standard output")(cause)
}

/// Prints a line on standard output, without buffering.
///
/// # Errors
/// When it cannot be written, for example because the reader of a pipe is gone.
pub fn line(text: &str) -> Result<(), Failure> {
    print(format!("{text}\n").as_bytes()).map_err(failed)
}

/// Prints a line of a command that then runs until it is stopped.
///
/// # Errors
/// As [`line()`], but always with a message: it says why the command ends.
pub fn announce(text: &str) -> Result<(), Failure> {
    print(format!("{text}\n").as_bytes()).map_err(told)
}

/// Prints a report as one JSON object, on a line of standard output.
///
/// # Errors
/// As [`line()`].
pub fn json(report: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(report);
    line(&text.map_err(|error| Failure::io("printing the report")(error.into()))?)
}

/// Escapes a name for a table: the name came over a network and is not trusted.
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
    print(bytes).map_err(failed)
}
