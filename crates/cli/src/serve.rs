//! `forebay serve`: a store for clients of Redis.

use crate::arguments::MemoryArguments;
use crate::failure::{Failure, Stage};
use crate::log::{self, LogForm};
use crate::output;
use crate::stores::EngineArguments;
use forebay::{ErrorKind, Options, Store};
use forebay_env::{Clock, SystemClock};
use forebay_server::{Server, ServerOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between checks for signals and of the server.
const LOOK: Duration = Duration::from_millis(20);
/// Where the store lies, unless flags say something else.
const FOLDER: &str = "forebay-data";
/// How often its log is synced then, as `appendfsync everysec` of Redis does.
const INTERVAL: Duration = Duration::from_secs(1);

/// What to serve, and where.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen; port 0 lets the system choose.
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// A file with the password that clients must give; a line end after it does not count.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Serve other machines although no password is set.
    #[arg(long)]
    unprotected: bool,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine: EngineArguments,
    /// Form of the log on standard error; the variable FOREBAY_LOG says what is logged.
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    log: LogForm,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the store cannot be opened, the address is taken, or the server stops by itself.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    log::start(arguments.log)?;
    // From here on a signal is only a request, so that the store can be closed.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::io("preparing for signals"))?;
    let options = ServerOptions {
        address: arguments.listen,
        threads: arguments.threads,
        password: arguments.password_file.as_deref().map(password).transpose()?,
        protected: !arguments.unprotected,
        ..ServerOptions::default()
    };
    // A second server on one store would fence the first one before it finds its port taken.
    let address = arguments.listen;
    let taken = |cause| Failure::new(ErrorKind::Io, Stage::Start, format_args!("listening on {address}: {cause}"));
    TcpListener::bind(address).map_err(taken)?;
    let server =
        Server::start(open(arguments)?, options).map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    output::line(&format!("ready redis://{}", server.address()))?;
    let clock = SystemClock::new();
    loop {
        if let Some(signal) = signals.pending().next() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            tracing::info!(signal = name, "stopping");
            break;
        }
        if !server.is_running() {
            break;
        }
        clock.sleep(LOOK);
    }
    server.stop().map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens what is served.
fn open(arguments: &Arguments) -> Result<Store, Failure> {
    let memory = &arguments.memory;
    let engine = &arguments.engine;
    let opened = if memory.memory.is_local() {
        let options = engine.options_stored_in(FOLDER, INTERVAL);
        options.and_then(|options| Store::embedded(memory.local_memory_size, options))
    } else {
        let options = Options { scheduler: engine.scheduler(&memory.memory), ..engine.options() };
        Store::connect_all(memory.memory.all(), options)
    };
    opened.map_err(|error| Failure::new(error.kind(), Stage::Start, error))
}

fn password(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut password = std::fs::read(path).map_err(Failure::io("reading the password"))?;
    while password.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        password.pop();
    }
    if password.is_empty() {
        return Err(Failure::usage(format_args!("{} holds no password", path.display())));
    }
    Ok(password)
}
