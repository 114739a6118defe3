//! `forebay worker`: runs jobs of databases until it is stopped.

use crate::access::AccessArguments;
use crate::admin::{self, AdminArguments};
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::log::TracedLogArguments;
use crate::storage_flags::NamedStorage;
use crate::{nodes, output};
use forebay::{ErrorKind, NodeAddress, Reach, StorageOptions};
use forebay_env::{Clock, SystemClock};
use forebay_worker::{Follow, Options, SignedAccess, Worker};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for signals and of the worker.
const LOOK: Duration = Duration::from_millis(20);

/// Whose jobs to run, and with what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of the memory nodes whose databases' jobs it runs: shm:<path> or tcp://<host>:<port>, separated by
    /// commas.
    #[arg(long)]
    memory: NodeAddresses,
    /// Who gives it jobs: nodes of which one schedules, separated by commas; by default the first of --memory.
    #[arg(long, value_name = "ADDRESSES")]
    scheduler: Option<NodeAddresses>,
    #[command(flatten)]
    access: AccessArguments,
    /// The storage of the databases, as a URL: jobs that read or write it are run here too, with this process's rights to all of
    /// it. Needed where databases cannot sign names.
    #[arg(long, value_name = "URL")]
    storage: Option<NamedStorage>,
    /// Which names in storage, of those that a database signs for a job, are followed.
    #[arg(long, value_enum, default_value_t = SignedNames::Https)]
    signed_names: SignedNames,
    /// Threads for jobs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    threads: u32,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    log: TracedLogArguments,
}

/// Which signed names a worker follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SignedNames {
    /// Those that begin with https://.
    Https,
    /// Those that begin with http:// as well: whoever sees the network can use them.
    Http,
    /// None.
    None,
}

impl SignedNames {
    /// Returns access to signed names, if the worker can use them: the system may know no authority for `https`, and not
    /// every build has it.
    pub fn access(self) -> Option<SignedAccess> {
        let follow = match self {
            Self::Https => Follow::Https,
            Self::Http => Follow::Http,
            Self::None => return None,
        };
        match SignedAccess::open(follow, StorageOptions::default()) {
            Ok(access) => Some(access),
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => {
                tracing::warn!(%error, "signed names are not followed");
                None
            }
        }
    }
}

impl Arguments {
    /// Sets how to reach the nodes, as flags and variables say.
    ///
    /// # Errors
    /// When a node is of this process, when flags have no use for these addresses, or a variable does not hold what it
    /// should.
    pub fn resolve(&mut self) -> Result<(), Failure> {
        self.memory.check_remote("--memory")?;
        let Some(scheduler) = &mut self.scheduler else { return self.memory.set_access(&self.access) };
        scheduler.check_remote("--scheduler")?;
        scheduler.set_access_over_tcp(&self.access)?;
        // Flags may be for the scheduler alone.
        if scheduler.are_over_tcp() {
            self.memory.set_access_over_tcp(&self.access)
        } else {
            self.memory.set_access(&self.access)
        }
    }
}

/// Runs jobs until SIGTERM or SIGINT.
///
/// # Errors
/// When a node cannot be reached at the start, or the worker stops by itself.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let _traces = arguments.log.start("worker")?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::io("preparing for signals"))?;
    let admin = arguments.admin.start("worker")?;
    let scheduler = arguments.scheduler.as_ref();
    let scheduler = scheduler.map(|scheduler| forebay::reach_scheduler(scheduler.all(), "worker"));
    let storage = arguments.storage.as_ref().map(|storage| storage.open("--storage")).transpose();
    let storage = storage.map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let (threads, signed) = (arguments.threads, arguments.signed_names.access());
    let options = Options { storage, signed, threads, queue_limit: threads, ..Options::default() };
    let worker = start(&arguments.memory, scheduler, options)?;
    output::announce("ready")?;
    if let Some(admin) = &admin {
        admin::show_worker(admin, Arc::clone(&worker));
    }
    admin::announce(admin.as_ref())?;
    let clock = SystemClock::new();
    while worker.is_running() && signals.pending().next().is_none() {
        clock.sleep(LOOK);
    }
    let (done, has_failed) = (worker.statistics(), !worker.is_running());
    drop(admin);
    drop(worker);
    tracing::info!(completed = done.completed, failed = done.failed, written_bytes = done.written_bytes, "stopped");
    if has_failed {
        return Err(Failure::new(ErrorKind::Io, Stage::Running, "a thread of the worker panicked"));
    }
    Ok(())
}

/// Starts a worker for the databases of memory nodes. Without a scheduler, the first node schedules.
///
/// # Errors
/// When a node cannot be reached; those of [`Worker::start`].
pub fn start(memory: &NodeAddresses, scheduler: Option<Arc<Reach>>, options: Options) -> Result<Arc<Worker>, Failure> {
    let reached = memory.all().iter().map(reach).collect::<Result<Vec<_>, _>>()?;
    let scheduler = scheduler.map_or_else(|| reach(memory.first()).map(Arc::new), Ok)?;
    let worker = Worker::start(reached, scheduler, options);
    worker.map(Arc::new).map_err(|error| Failure::new(error.kind(), Stage::Start, error))
}

/// Opens a session at a node.
pub fn reach(address: &NodeAddress) -> Result<Reach, Failure> {
    let reach = forebay::reach(address, "worker");
    reach
        .client()
        .map(drop)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, nodes::with_hint(error.kind(), &error, address)))?;
    Ok(reach)
}
