//! `forebay memory-node`: offers memory until it is told to stop.

use crate::failure::{Failure, Stage};
use crate::{output, units};
use forebay::NodeAddress;
use forebay_base::ErrorKind;
use forebay_env::{Clock, SystemClock};
use forebay_memory_node::{Handle, MemoryNode, Options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How often signals and the node are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The variable that says what is logged, such as `debug` or `forebay_memory_node=trace`.
const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// Where to listen, and what to offer.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen: shm:<path> or tcp://<host>:<port>; port 0 lets the system choose.
    #[arg(long)]
    listen: NodeAddress,
    /// Memory to offer.
    #[arg(long, default_value = "4GiB", value_parser = units::size, value_name = "SIZE")]
    memory: u64,
    /// Threads for jobs of compute nodes.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The node's number.
    #[arg(long, default_value_t = 1)]
    node: u32,
    /// Unit in which memory is leased; by default it follows from --memory.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    extent_size: Option<u64>,
    /// How long a client may be silent before its session ends and what it had for itself is freed.
    #[arg(long, default_value = "10s", value_parser = units::duration, value_name = "DURATION")]
    lease: Duration,
    /// Commit memory only when it is first used: a quicker start, slower first writes, and a shortage
    /// that shows late.
    #[arg(long)]
    lazy: bool,
    /// Allow TCP addresses that are not loopback. Nothing is encrypted.
    #[arg(long)]
    allow_remote: bool,
    /// Form of the log on standard error; the variable FOREBAY_LOG says what is logged.
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    log: LogForm,
}

/// Forms of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogForm {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the node cannot start, or stops by itself.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    start_log(arguments.log)?;
    // From here on a signal is a request and not the end: the socket's file is to be removed.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::io("preparing for signals"))?;
    let handle = start(arguments)?;
    output::line(&format!("ready {}", handle.address()))?;
    let clock = SystemClock::new();
    loop {
        if let Some(signal) = signals.pending().next() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            tracing::info!(signal = name, "stopping");
            break;
        }
        if !handle.is_running() {
            break;
        }
        clock.sleep(LOOK);
    }
    handle.shutdown().map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    tracing::info!("stopped");
    Ok(())
}

fn start(arguments: &Arguments) -> Result<Handle, Failure> {
    let listener = forebay::listen(&arguments.listen, arguments.node, arguments.allow_remote)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let options = Options {
        extent_bytes: arguments.extent_size,
        lease: arguments.lease,
        threads: arguments.threads,
        commit: !arguments.lazy,
        whole_process: true,
        ..Options::with_memory(arguments.memory)
    };
    MemoryNode::start(listener, options).map_err(|error| Failure::new(error.kind(), Stage::Start, error))
}

fn start_log(form: LogForm) -> Result<(), Failure> {
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
