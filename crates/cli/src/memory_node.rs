//! `forebay memory-node`: offers memory until it is stopped.

use crate::access::AdmissionArguments;
use crate::admin::{self, AdminArguments};
use crate::failure::{Failure, Stage};
use crate::log::TracedLogArguments;
use crate::{output, placement, tenants, units};
use forebay::admission::Admission;
use forebay::{ListenOptions, NodeAddress};
use forebay_env::{Clock, SystemClock, process};
use forebay_memory_node::{Handle, MemoryNode, Options};
use forebay_offload::Policy;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for signals and of the node.
const LOOK: Duration = Duration::from_millis(20);

/// Where to listen, and what to offer.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen: shm:<path> or tcp://<host>:<port>; port 0 lets the system choose.
    #[arg(long, value_parser = NodeAddress::between_processes)]
    listen: NodeAddress,
    /// Memory to offer.
    #[arg(long, default_value = "4GiB", value_parser = units::size, value_name = "SIZE")]
    memory: u64,
    /// Threads for jobs of compute nodes; with 0, these run their jobs themselves.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Where jobs of databases with --compaction-place pool go that ask this node: a name (sparing, away, paper, moving), and what is different from it, such as paper,moved=0.5,patience=2s.
    #[arg(long, default_value = placement::USUAL, value_parser = placement::policy)]
    placement: Policy,
    /// The node's number.
    #[arg(long, default_value_t = 1)]
    node: u32,
    /// Unit in which memory is leased; by default it follows from --memory.
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    extent_size: Option<u64>,
    /// How long a client may be silent before its session ends and its own memory is freed.
    #[arg(long, default_value = "10s", value_parser = units::duration, value_name = "DURATION")]
    lease: Duration,
    /// Commit memory only when it is first used: a quicker start, but slower first writes, and a shortage shows late.
    #[arg(long)]
    lazy: bool,
    #[command(flatten)]
    admission: AdmissionArguments,
    /// Allow TCP addresses that are not loopback although connections are not encrypted, or clients do not prove who
    /// they are.
    #[arg(long)]
    allow_remote: bool,
    /// A file that says who shares the node, and what each may have; SIGHUP has it read again. Without it, those who
    /// need not prove who they are share all of it.
    #[arg(long, value_name = "FILE")]
    tenants: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    log: TracedLogArguments,
}

/// Serves until SIGTERM or SIGINT. At SIGHUP, reads certificates, secrets and the file of tenants again.
///
/// # Errors
/// When the node cannot start, or stops by itself.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let _traces = arguments.log.start("memory-node")?;
    // From here on a signal is only a request, so that the socket's file can be removed.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::io("preparing for signals"))?;
    let admission = arguments.admission.load()?;
    let admin = arguments.admin.start("memory-node")?;
    let handle = Arc::new(start(arguments, admission.clone())?);
    output::announce(&format!("ready {}", handle.address()))?;
    if let Some(admin) = &admin {
        admin::show_node(admin, Arc::clone(&handle));
    }
    admin::announce(admin.as_ref())?;
    let clock = SystemClock::new();
    loop {
        let (again, stopping): (Vec<_>, Vec<_>) = signals.pending().partition(|signal| *signal == SIGHUP);
        if !again.is_empty() {
            read_again(arguments, admission.as_deref(), &handle);
        }
        if let Some(&signal) = stopping.first() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            tracing::info!(signal = name, "stopping");
            break;
        }
        if !handle.is_running() {
            break;
        }
        clock.sleep(LOOK);
    }
    drop(admin);
    handle.shutdown().map_err(|error| Failure::new(error.kind(), Stage::Running, error))?;
    tracing::info!("stopped");
    Ok(())
}

/// Reads certificates, secrets and the file of tenants again, where there are some.
fn read_again(arguments: &Arguments, admission: Option<&Admission>, handle: &Handle) {
    if admission.is_none() && arguments.tenants.is_none() {
        tracing::info!("there is nothing to read again");
    }
    admission.into_iter().for_each(reload);
    arguments.tenants.iter().for_each(|path| configure(path, handle));
}

/// Reads the file of tenants again. A file with an error changes nothing.
fn configure(path: &Path, handle: &Handle) {
    let configured = tenants::read(path).and_then(|tenants| {
        handle.configure(&tenants).map_err(|error| Failure::new(error.kind(), Stage::Running, error))
    });
    match configured {
        Ok(()) => tracing::info!(file = ?path, "the tenants were read again"),
        Err(failure) => tracing::error!(reason = failure.message, "the tenants stay as they were"),
    }
}

fn reload(admission: &Admission) {
    match admission.reload() {
        Ok(()) => tracing::info!("certificates and secrets were read again"),
        Err(error) => tracing::error!(%error, "certificates and secrets stay as they were"),
    }
}

/// Refuses memory that this machine does not have, if it is to be committed at once: the system would end this process,
/// or another one, for lack of memory.
fn check_memory(arguments: &Arguments) -> Result<(), Failure> {
    match process::machine_bytes() {
        Some(machine) if !arguments.lazy && arguments.memory > machine => Err(Failure::usage(format_args!(
            "--memory: {} bytes are more than this machine has, {machine} bytes: offer less, or commit memory when it is \
             first used, with --lazy",
            arguments.memory
        ))),
        _ => Ok(()),
    }
}

fn start(arguments: &Arguments, admission: Option<Arc<Admission>>) -> Result<Handle, Failure> {
    check_memory(arguments)?;
    let tenants = arguments.tenants.as_deref().map(tenants::read).transpose()?.unwrap_or_default();
    if let Some(admission) = &admission {
        tracing::info!(encrypts = admission.encrypts(), asks = admission.asks(), "who connects is looked at");
    }
    let listen_options = ListenOptions {
        node: arguments.node,
        admission,
        allow_remote: arguments.allow_remote,
        users: arguments.admission.users(),
    };
    let listener = forebay::listen(&arguments.listen, listen_options)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let options = Options {
        tenants,
        extent_bytes: arguments.extent_size,
        lease: arguments.lease,
        threads: arguments.threads,
        placement: arguments.placement,
        commit: !arguments.lazy,
        whole_process: true,
        ..Options::with_memory(arguments.memory)
    };
    MemoryNode::start(listener, options).map_err(|error| Failure::new(error.kind(), Stage::Start, error))
}
