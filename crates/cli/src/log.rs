//! The log of commands that run until they are stopped.

use crate::failure::{Failure, Stage};
use forebay_base::ErrorKind;
use tracing_subscriber::EnvFilter;

/// The variable that sets what is logged, such as `debug` or `forebay_memory_node=trace`.
const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// Formats of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogForm {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts the log, on standard error.
///
/// # Errors
/// When the variable does not hold what it should.
pub fn start(form: LogForm) -> Result<(), Failure> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(wanted) => EnvFilter::try_new(&wanted)
            .map_err(|error| Failure::usage(format_args!("{LOG_VARIABLE}={wanted}: {error}")))?,
        Err(_) => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match form {
        LogForm::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogForm::Json => log.json().try_init(),
    };
    started.map_err(|error| Failure::new(ErrorKind::Io, Stage::Start, format_args!("starting the log: {error}")))
}
