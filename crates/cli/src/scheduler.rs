//! `forebay scheduler`: places jobs on workers, while it is elected.

use crate::access::{AccessArguments, AdmissionArguments};
use crate::admin::{self, AdminArguments};
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::log::LogArguments;
use crate::storage_flags::{self, NamedStorage};
use crate::{output, placement, worker};
use forebay::{ListenOptions, NodeAddress};
use forebay_env::sync::lock;
use forebay_env::{Clock, SystemClock};
use forebay_memory_client::NodeLoad;
use forebay_memory_node::{Handle, MemoryNode, Options};
use forebay_offload::{Election, Load, Policy, Register};
use forebay_worker::{NodeRegister, StoredRegister};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval between checks for signals, and of the election.
const LOOK: Duration = Duration::from_millis(20);
/// How often a memory node is asked how busy it is.
const LOOK_AT_NODES: Duration = Duration::from_millis(50);
/// How long a term lasts unless it is renewed, nanoseconds.
const TERM: u64 = 3_000_000_000;
/// Memory of the scheduler's node: it keeps sessions and letters, and nothing that others read.
const MEMORY_BYTES: u64 = 4 * EXTENT_BYTES;
const EXTENT_BYTES: u64 = 4096;

/// Where to listen, and who elects.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to listen: shm:<path> or tcp://<host>:<port>; port 0 lets the system choose.
    #[arg(long, value_parser = NodeAddress::between_processes)]
    listen: NodeAddress,
    /// Memory nodes, separated by commas. All of them are asked how busy they are, and get jobs of their own databases; others get none.
    /// Without --register the first one knows who schedules: it is the same for all candidates.
    #[arg(long)]
    memory: NodeAddresses,
    /// A directory or a bucket that knows who schedules, as a URL: the same for all candidates. It outlives memory nodes.
    #[arg(long, value_name = "URL", value_parser = storage_flags::lasting)]
    register: Option<NamedStorage>,
    #[command(flatten)]
    access: AccessArguments,
    /// Allow TCP addresses that are not loopback although connections are not encrypted, or clients do not prove who
    /// they are.
    #[arg(long)]
    allow_remote: bool,
    /// Where jobs of databases with --compaction-place pool go: a name (sparing, away, paper, moving), and what is different from it, such as paper,moved=0.5,patience=2s.
    #[arg(long, default_value = placement::USUAL, value_parser = placement::policy)]
    placement: Policy,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Returns the address of the register, and how to reach it.
    pub fn parts(&mut self) -> (&mut NodeAddresses, &AccessArguments) {
        (&mut self.memory, &self.access)
    }
}

/// Schedules whenever it is elected, until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or stops by itself.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    arguments.memory.check_remote("--memory")?;
    arguments.log.start()?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::io("preparing for signals"))?;
    let admin = arguments.admin.start("scheduler")?;
    let admission = AdmissionArguments::default().load()?;
    let listen_options = ListenOptions { admission, allow_remote: arguments.allow_remote, ..ListenOptions::default() };
    let failed = |stage| move |error: forebay_memory_node::Error| Failure::new(error.kind(), stage, error);
    let listener = forebay::listen(&arguments.listen, listen_options)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let options = Options {
        extent_bytes: Some(EXTENT_BYTES),
        threads: 0,
        schedules: false,
        placement: arguments.placement,
        whole_process: true,
        ..Options::with_memory(MEMORY_BYTES)
    };
    let handle = Arc::new(MemoryNode::start(listener, options).map_err(failed(Stage::Start))?);
    let _looks =
        arguments.memory.all().iter().map(|node| Looks::start(node, &handle)).collect::<Result<Vec<_>, _>>()?;
    let clock = SystemClock::shared();
    let mut register = register(arguments, handle.address().into(), &clock)?;
    let mut election = Election::new(TERM);
    output::announce(&format!("ready {}", handle.address()))?;
    let led = Arc::new(Mutex::new(None));
    if let Some(admin) = &admin {
        let led = Arc::clone(&led);
        admin::show_scheduler(admin, handle.address(), move || *lock(&led));
    }
    admin::announce(admin.as_ref())?;
    while handle.is_running() && signals.pending().next().is_none() {
        if let Err(error) = election.ask(clock.now(), &mut *register) {
            tracing::debug!(%error, "the register does not answer");
        }
        let leads = election.leads(clock.now());
        handle.schedule(leads);
        let before = std::mem::replace(&mut *lock(&led), leads);
        if leads != before {
            match leads {
                Some(term) => tracing::info!(term = term.0, "elected"),
                None => tracing::warn!("not elected any more"),
            }
        }
        clock.sleep(LOOK);
    }
    drop(admin);
    handle.shutdown().map_err(failed(Stage::Running))
}

/// Returns what elects schedulers: the storage of `--register`, which needs no memory node, or else the first memory
/// node.
fn register(
    arguments: &Arguments,
    address: String,
    clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Register<Error = forebay_worker::Error>>, Failure> {
    let Some(register) = &arguments.register else {
        return Ok(Box::new(NodeRegister::new(worker::reach(arguments.memory.first())?, address)));
    };
    let storage = register.open("--register").map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let stored = StoredRegister::new(storage, address, TERM, Arc::clone(clock));
    Ok(Box::new(stored.map_err(|error| Failure::new(error.kind(), Stage::Start, error))?))
}

/// A thread that asks a memory node how busy it is, and tells the scheduler. It ends when this is dropped.
struct Looks(Arc<AtomicBool>);

impl Looks {
    fn start(node: &NodeAddress, scheduler: &Arc<Handle>) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (looks, scheduler) = (Self(Arc::clone(&stop)), Arc::clone(scheduler));
        let reach = forebay::reach(node, "scheduler");
        let clock = SystemClock::new();
        let look = move || {
            let mut known = None;
            while !stop.load(Ordering::Relaxed) {
                let asked = reach.client().and_then(|client| Ok((client.node(), loaded(&client.node_load()?))));
                let now = asked
                    .inspect_err(|error| tracing::debug!(%error, "a memory node does not say how busy it is"))
                    .ok();
                if let Some(before) = known.filter(|before| now.is_none_or(|(node, _)| node != *before)) {
                    scheduler.know(before, None);
                }
                known = now.map(|(node, load)| {
                    scheduler.know(node, Some(load));
                    node
                });
                clock.sleep(LOOK_AT_NODES);
            }
        };
        let thread = forebay_env::thread::spawn("scheduler-look", look);
        thread.map(|_| looks).map_err(Failure::io("starting a thread"))
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const fn loaded(load: &NodeLoad) -> Load {
    Load {
        active_threads: load.running_jobs,
        threads: load.job_threads,
        pending: load.queued_jobs,
        queue_limit: load.most_queued_jobs,
        written_per_second: 0,
        bandwidth_per_second: 0,
    }
}
