//! `forebay serve`: a store for clients of Redis.

use crate::admin::{self, AdminArguments};
use crate::arguments::MemoryArguments;
use crate::failure::{Failure, Stage};
use crate::log::{self, LogForm};
use crate::output;
use crate::stores::EngineArguments;
use forebay::{ErrorKind, Options, Store};
use forebay_admin::Settings;
use forebay_env::{Clock, SystemClock};
use forebay_server::{Server, ServerOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between checks for signals and of the server.
const LOOK: Duration = Duration::from_millis(20);
/// Where operators look, unless a flag says something else: the port that exporters for Redis have.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9121);
/// Where the store lies, unless flags say something else; it is synced once a second, as with `appendfsync everysec` of Redis.
const FOLDER: &str = "forebay-data";

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
    admin: AdminArguments,
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
    let admin = arguments.admin.start_at(ADMIN, "serve")?;
    let (store, settings) = open(arguments)?;
    let server = Server::start(store, options).map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    output::line(&format!("ready redis://{}", server.address()))?;
    if let Some(admin) = &admin {
        admin::show_server(admin, server.address(), server.observer(), settings);
    }
    admin::announce(admin.as_ref())?;
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
    drop(admin);
    server.stop().map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens what is served, with what its options say.
fn open(arguments: &Arguments) -> Result<(Store, Settings), Failure> {
    let memory = &arguments.memory;
    let mut engine = arguments.engine.clone();
    if memory.memory.is_local() {
        engine.or_in(FOLDER);
    }
    let options = Options { scheduler: engine.scheduler(&memory.memory), ..engine.options() };
    let opened = engine.open(memory, options.clone());
    let store = opened.map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let storage = options.storage.clone().or_else(|| engine.directory_storage());
    Ok((store, Settings::from(&Options { storage, ..options })))
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
