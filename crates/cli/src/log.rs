//! The log of commands that run until they are stopped.

use crate::failure::{Failure, Stage};
use crate::traces::{TraceArguments, Traces};
use forebay_base::ErrorKind;
use std::env::VarError;
use tracing_subscriber::layer::{Identity, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// The variable that sets what is logged, such as `debug` or `forebay_memory_node=trace`.
const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// Formats of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogForm {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The log of a command that runs until it is stopped.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArguments {
    /// Form of the log on standard error; the variable FOREBAY_LOG says what is logged.
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    log: LogForm,
}

/// The log, and the traces of a command that has something to trace.
#[derive(Debug, Clone, clap::Args)]
pub struct TracedLogArguments {
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    traces: TraceArguments,
}

impl LogArguments {
    /// Starts the log, on standard error.
    ///
    /// # Errors
    /// When the variable does not hold what it should.
    pub fn start(&self) -> Result<(), Failure> {
        self.start_with(None::<Identity>)
    }

    fn start_with(&self, traces: Option<impl Layer<Registry> + Send + Sync>) -> Result<(), Failure> {
        let filter = match std::env::var(LOG_VARIABLE) {
            Ok(wanted) => EnvFilter::try_new(&wanted)
                .map_err(|error| Failure::usage(format_args!("{LOG_VARIABLE}={wanted}: {error}")))?,
            Err(VarError::NotPresent) => EnvFilter::new("info"),
            Err(VarError::NotUnicode(_)) => {
                return Err(Failure::usage(format_args!("the variable {LOG_VARIABLE} is no UTF-8")));
            }
        };
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let log = match self.log {
            LogForm::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
            LogForm::Json => log.json().boxed(),
        };
        let started = tracing_subscriber::registry().with(traces).with(log.with_filter(filter)).try_init();
        started.map_err(|error| Failure::new(ErrorKind::Io, Stage::Start, format_args!("starting the log: {error}")))
    }
}

impl TracedLogArguments {
    /// Starts the log of this command, on standard error, and its traces, which end when the returned value is dropped.
    ///
    /// # Errors
    /// As [`LogArguments::start`], or when traces cannot be sent.
    pub fn start(&self, command: &'static str) -> Result<Option<Traces>, Failure> {
        let (layer, traces) = self.traces.start(command)?.unzip();
        self.log.start_with(layer)?;
        Ok(traces)
    }
}
