//! `forebay serve`: a store for clients of Redis.

mod lending;
mod parameters;
mod running;
mod tree;

use self::parameters::{Parameter, ParameterFile};
use self::running::{Ended, Opened, Paused, Serving};
use self::tree::TreeArguments;
use crate::admin::{self, AdminArguments};
use crate::arguments::{Engine, MemoryArguments, NodeAddresses};
use crate::configuration::Usual;
use crate::failure::{Failure, Stage};
use crate::given::Given;
use crate::log::TracedLogArguments;
use crate::stores::EngineArguments;
use crate::{nodes, output, units};
use clap::builder::BoolishValueParser;
use forebay::admission::{Admission, AdmissionOptions, is_open_to_all};
use forebay::{ErrorKind, Options, ShardBounds};
use forebay_admin::Settings;
use forebay_env::{Clock, SystemClock};
use forebay_server::{ConfigFile, ServerOptions, TlsOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between attempts to open a store that lost memory.
const AGAIN: Duration = Duration::from_millis(250);
/// The number of attempts with all of its memory nodes. After that, those that answer have to do.
const WITH_ALL: u32 = 20;
/// Where operators look, unless a flag says something else: the port that exporters for Redis have.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9121);
/// Where the store is, unless flags say something else. It is synced once a second, as with `appendfsync everysec` of
/// Redis.
const FOLDER: &str = "forebay-data";

/// Where the flags for TLS are in the help.
const TLS: &str = "TLS for clients of Redis";

/// How often bounds between shards are moved if neighbours differ too much in size: collections are all in the last
/// shard at first.
const REBALANCE: Duration = Duration::from_secs(10);

/// What to serve, and where.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A TOML file with options: their names are those of the flags without dashes in front. A flag, or else a variable,
    /// such as FOREBAY_THREADS for --threads, comes before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the options that are in effect and where each comes from, and serve nothing.
    #[arg(long)]
    pub check_config: bool,
    /// What holds the keys. The shared tree has no storage: it survives this process on the memory nodes of --memory;
    /// without them it ends with the process.
    #[arg(long, value_enum, default_value_t = Engine::Lsm)]
    engine: Engine,
    #[command(flatten)]
    tree: TreeArguments,
    /// Where to listen; port 0 lets the system choose, and `none` serves nobody without TLS.
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS:PORT")]
    listen: Listen,
    #[command(flatten)]
    tls: TlsArguments,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// A file with the password that clients must give; a line end after it does not count.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// A file with users and what they may do, a line each: user, the name, and words of ACL SETUSER. ACL LOAD reads it
    /// again, and ACL SAVE writes it.
    #[arg(long, value_name = "FILE")]
    aclfile: Option<PathBuf>,
    /// A parameter of CONFIG SET and its value; may be given several times. A file has all of them in a table, [parameters], which CONFIG
    /// REWRITE changes.
    #[arg(long, value_name = "NAME=VALUE")]
    parameter: Vec<Parameter>,
    /// Serve other machines although no password is set.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new(), action = clap::ArgAction::Set)]
    unprotected: bool,
    /// Run jobs of other databases of the memory nodes while threads of --max-background-jobs have nothing to do, as `forebay
    /// worker` does.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new(), action = clap::ArgAction::Set)]
    lend_threads: bool,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine_options: Given<EngineArguments>,
    #[command(flatten)]
    log: TracedLogArguments,
}

/// An address, or none.
#[derive(Debug, Clone, Copy)]
struct Listen(Option<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        units::listening(text).map(|address| Self(Some(address))).map_err(|right| format!("{right}, or none"))
    }
}

/// How to serve within TLS.
#[derive(Debug, clap::Args)]
struct TlsArguments {
    /// Where to listen for connections within TLS 1.3; port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = units::listening, help_heading = TLS)]
    #[arg(requires_all = ["tls_listen_certificate", "tls_listen_key"])]
    tls_listen: Option<SocketAddr>,
    /// PEM file with the server's certificate. SIGHUP reads this and the other files again, for connections to come.
    #[arg(long, value_name = "FILE", help_heading = TLS, requires = "tls_listen")]
    tls_listen_certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    #[arg(long, value_name = "FILE", help_heading = TLS, requires = "tls_listen")]
    tls_listen_key: Option<PathBuf>,
    /// PEM file with authorities, one of which must have signed the certificate that a client shows, and, with
    /// tls-cluster=yes, that of a server to which MIGRATE sends keys.
    #[arg(long, value_name = "FILE", help_heading = TLS, requires = "tls_listen")]
    tls_listen_client_authority: Option<PathBuf>,
    /// PEM file with lists of certificates that were revoked, of clients and of such servers.
    #[arg(long, value_name = "FILE", help_heading = TLS, requires = "tls_listen_client_authority")]
    tls_listen_client_revocations: Option<PathBuf>,
}

impl TlsArguments {
    fn load(&self, is_required: bool) -> Result<Option<TlsOptions>, Failure> {
        let Some(address) = self.tls_listen else { return Ok(None) };
        let files = AdmissionOptions {
            certificate: self.tls_listen_certificate.clone(),
            key: self.tls_listen_key.clone(),
            client_authority: self.tls_listen_client_authority.clone(),
            client_revocations: self.tls_listen_client_revocations.clone(),
            ..AdmissionOptions::default()
        };
        let admission = Admission::load(files).map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
        Ok(Some(TlsOptions { address, admission: Arc::new(admission), is_required }))
    }
}

/// Reads what the options name, as [`execute`] does, and serves nothing. Returns the options in effect where nobody set
/// any.
///
/// # Errors
/// What [`execute`] would refuse about the options.
pub fn check(arguments: &Arguments) -> Result<Usual, Failure> {
    options(arguments)?;
    let mut usual = match Placed::of(arguments)? {
        Placed::Lsm(engine, options) => {
            engine.check(&options).map_err(starting)?;
            Usual { values: engine.usual(&options), unused: BTreeSet::new() }
        }
        Placed::Tree => tree::usual(&arguments.memory.memory),
    };
    usual.values.insert("admin", ADMIN.to_string());
    Ok(usual)
}

/// Serves until SIGTERM or SIGINT, which end it at once while it opens the store, also when it does so again. SIGINT ends it
/// at once while it closes the store, too. At SIGHUP, reads certificates again.
///
/// # Errors
/// When the store cannot be opened, the address is taken, or another process takes the store over.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let _traces = arguments.log.start("serve")?;
    // Opening and closing may wait long for storage and for memory nodes. Opening can be broken off at any moment. Closing
    // makes the last writes durable, so only somebody at a terminal breaks it off, as with redis-server.
    let (opening, closing) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    for (signal, when) in [(SIGTERM, &opening), (SIGINT, &opening), (SIGINT, &closing)] {
        let ends = register_conditional_default(signal, Arc::clone(when));
        ends.map_err(Failure::io("preparing for signals"))?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::io("preparing for signals"))?;
    let (options, placed) = (options(arguments)?, Placed::of(arguments)?);
    // A second server on one store would fence the first one before it finds its port taken. All addresses are tried
    // together, as two of them may be the same.
    let bind = |address: SocketAddr| {
        let taken = |cause| Failure::new(ErrorKind::Io, Stage::Start, format_args!("listening on {address}: {cause}"));
        TcpListener::bind(address).map_err(taken)
    };
    let addresses = arguments.listen.0.into_iter().chain(arguments.tls.tls_listen);
    let tried = addresses.map(bind).collect::<Result<Vec<_>, _>>()?;
    let admin = arguments.admin.start_at(ADMIN, "serve")?;
    drop(tried);
    let opened = open(arguments, &arguments.memory, placed)?;
    // From here on a signal is only a request, so that the store can be closed. This pairs with the load when a signal
    // comes.
    opening.store(false, Ordering::SeqCst);
    let mut serving = Serving::start(opened, options, admin)?;
    let plain = arguments.listen.0.map(|_| format!(" redis://{}", serving.address()));
    let tls = serving.tls_address().map(|address| format!(" rediss://{address}"));
    output::announce(&format!("ready{}{}", plain.unwrap_or_default(), tls.unwrap_or_default()))?;
    admin::announce(serving.admin())?;
    loop {
        let ended = serving.wait(&mut signals);
        closing.store(!matches!(ended, Ended::MemoryLost(_)), Ordering::SeqCst);
        match ended {
            Ended::Stopped => return serving.stop(None),
            Ended::Lost(error) => return serving.stop(Some(error)),
            Ended::MemoryLost(cause) => {
                let again = serving.pause(&cause);
                // The store is closed, and opening it again may also wait long.
                opening.store(true, Ordering::SeqCst);
                let Some(opened) = opened_again(arguments, &again, &mut signals)? else { return Ok(()) };
                opening.store(false, Ordering::SeqCst);
                serving = again.start(opened)?;
                tracing::info!("the store is served again");
            }
        }
    }
}

/// Opens a store that has lost memory again: on all memory nodes, or, after some time, on those that answer. `None`
/// when a signal that came while the store was closed says to stop.
fn opened_again(arguments: &Arguments, paused: &Paused, signals: &mut Signals) -> Result<Option<Opened>, Failure> {
    let clock = SystemClock::new();
    let (all, mut memory) = (&arguments.memory.memory, arguments.memory.clone());
    // The same reason is told once, as this may last.
    let mut told = String::new();
    for attempt in 1u32.. {
        if paused.heed(signals).is_some() {
            break;
        }
        match open(arguments, &memory, Placed::of(arguments)?) {
            Ok(opened) => {
                if memory.memory.all().len() < all.all().len() {
                    tracing::warn!(memory = %memory.memory, "these memory nodes answer, and the others are left out until the next start");
                }
                return Ok(Some(opened));
            }
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut) => {
                if error.message != told {
                    tracing::warn!(error = error.message, "the store cannot be opened again yet");
                    told = error.message;
                }
            }
            Err(error) => return Err(error),
        }
        clock.sleep(AGAIN);
        memory.memory = Some(all)
            .filter(|_| attempt >= WITH_ALL)
            .and_then(NodeAddresses::that_answer)
            .unwrap_or_else(|| all.clone());
    }
    Ok(None)
}

/// How the server behaves.
fn options(arguments: &Arguments) -> Result<ServerOptions, Failure> {
    let usual = ServerOptions::default();
    let tls = arguments.tls.load(arguments.listen.0.is_none())?;
    if arguments.listen.0.is_none() && tls.is_none() {
        return Err(Failure::usage("--listen none serves nobody: say where to listen with --tls-listen"));
    }
    let options = ServerOptions {
        address: arguments.listen.0.unwrap_or(usual.address),
        tls,
        threads: arguments.threads,
        password: arguments.password_file.as_deref().map(password).transpose()?,
        users_file: arguments.aclfile.clone(),
        parameters: arguments.parameter.iter().cloned().map(|Parameter(name, value)| (name, value)).collect(),
        config_file: arguments.config.clone().map(|path| Arc::new(ParameterFile::new(path)) as Arc<dyn ConfigFile>),
        protected: !arguments.unprotected,
        // That of `main`.
        allocator: Some("mimalloc"),
        ..usual
    };
    options.check().map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    Ok(options)
}

/// What to open.
#[derive(Debug)]
enum Placed {
    /// An LSM database: the engine's flags, which by now say where it is, and its options.
    Lsm(Box<EngineArguments>, Box<Options>),
    /// A shared tree.
    Tree,
}

impl Placed {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        match arguments.engine {
            Engine::Tree => {
                let lends = arguments.lend_threads;
                tree::check(&arguments.memory.memory, &arguments.engine_options, lends).map(|()| Self::Tree)
            }
            Engine::Lsm if arguments.tree.is_given() => {
                Err(Failure::usage("--tree-cache-size is for --engine=tree; an LSM database has --cached-index-size"))
            }
            Engine::Lsm => placed(arguments).map(|(engine, options)| Self::Lsm(Box::new(engine), Box::new(options))),
        }
    }
}

/// Returns the engine's flags, which by now say where the store is, and its options.
fn placed(arguments: &Arguments) -> Result<(EngineArguments, Options), Failure> {
    let memory = &arguments.memory.memory;
    let mut engine = arguments.engine_options.flags.clone();
    if memory.is_local() {
        engine.or_in(FOLDER);
    }
    let scheduler = engine.scheduler(memory, arguments.lend_threads)?;
    let options = Options { scheduler, ..engine.options(memory)? };
    if arguments.lend_threads {
        lending::check(memory, &options)?;
    }
    Ok((engine, divided(options)))
}

/// Returns the same options for a store whose keys are divided between its shards.
fn divided(options: Options) -> Options {
    // All keys begin alike, so bounds that suit random bytes would leave all of them to one shard.
    let shard_bounds = ShardBounds::Given(forebay_server::shard_bounds(options.shards));
    let rebalance_interval = (options.shards > 1 && options.background_threads > 0).then_some(REBALANCE);
    Options { shard_bounds, rebalance_interval, ..options }
}

/// Opens what is served, with what its options say.
fn open(arguments: &Arguments, memory: &MemoryArguments, placed: Placed) -> Result<Opened, Failure> {
    let failed =
        |error: forebay::Error| Failure::new(error.kind(), Stage::Start, nodes::of_opening(&error, &memory.memory));
    let Placed::Lsm(engine, options) = placed else {
        let name = arguments.engine_options.flags.name();
        return arguments.tree.open(memory, name.as_deref()).map_err(failed);
    };
    let options = divided(engine.with_recorded_shards(&memory.memory, *options).map_err(failed)?);
    let options = engine.opened(options).map_err(failed)?;
    let store = engine.open(memory, options.clone()).map_err(failed)?;
    let options = Options { storage: engine.found_storage(), ..options };
    let lend = || lending::lend(&store, &memory.memory, &engine, &options);
    let lent = arguments.lend_threads.then(lend).transpose()?;
    Ok(Opened { settings: Some(Settings::from(&options)), records: store.into(), lent })
}

fn starting(error: forebay::Error) -> Failure {
    Failure::new(error.kind(), Stage::Start, error)
}

fn password(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |error: std::io::Error| Failure::usage(format_args!("--password-file {}: {error}", path.display()));
    let mut password = std::fs::read(path).map_err(wrong)?;
    if is_open_to_all(&std::fs::metadata(path).map_err(wrong)?) {
        tracing::warn!(path = %path.display(), "everybody may open the password's file: take that right away, as with chmod 600");
    }
    while password.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        password.pop();
    }
    if password.is_empty() {
        return Err(Failure::usage(format_args!("{} holds no password", path.display())));
    }
    Ok(password)
}
