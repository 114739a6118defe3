//! The address where operators look at commands that run until they are stopped, and what these commands show there.

use crate::failure::{Failure, Stage};
use crate::{output, units};
use forebay::{NodeStatistics, Store};
use forebay_admin::status::{
    Clients, Database, LostNode, MemoryNode, Scheduler, SharedTree, Status, Tenant, Visitors, Worker,
};
use forebay_admin::{Admin, Settings};
use forebay_memory_node::Handle;
use forebay_offload::Term;
use forebay_server::{Observer, Records, TreeRecords};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Where operators look.
#[derive(Debug, Clone, clap::Args)]
pub struct AdminArguments {
    /// Where to serve metrics, health and a page over HTTP, to whoever can connect; port 0 lets the system choose, and
    /// `none` is nowhere. By default, `serve` uses 127.0.0.1:9121 unless it is taken, and others nothing.
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<AdminAddress>,
}

/// An address, or none.
#[derive(Debug, Clone, Copy)]
struct AdminAddress(Option<SocketAddr>);

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            address => units::listening(address).map(|at| Self(Some(at))).map_err(|right| format!("{right}, or none")),
        }
    }
}

impl AdminArguments {
    /// Starts to listen, if a flag asks for it.
    ///
    /// # Errors
    /// When the address is taken, or not this machine's.
    pub fn start(&self, role: &'static str) -> Result<Option<Admin>, Failure> {
        let Some(AdminAddress(Some(address))) = self.admin else { return Ok(None) };
        Admin::start(address, role).map(Some).map_err(|error| Failure::new(error.kind(), Stage::Start, error))
    }

    /// Listens at `usual` unless a flag names another address. If `usual` is taken, the server has no such address
    /// until a flag names one: a second server on a machine is not an error.
    ///
    /// # Errors
    /// As [`AdminArguments::start`].
    pub fn start_at(&self, usual: SocketAddr, role: &'static str) -> Result<Option<Admin>, Failure> {
        if self.admin.is_some() {
            return self.start(role);
        }
        match Admin::start(usual, role) {
            Ok(admin) => Ok(Some(admin)),
            Err(error) => {
                tracing::warn!(%error, "no metrics and no page: give an address with --admin");
                Ok(None)
            }
        }
    }
}

/// Prints where operators look.
///
/// # Errors
/// When standard output cannot be written.
pub fn announce(admin: Option<&Admin>) -> Result<(), Failure> {
    admin.map_or(Ok(()), |admin| output::announce(&format!("admin http://{}/", admin.address())))
}

/// Shows a server and its database or shared tree, and the worker that runs on its idle threads.
pub fn show_server(
    admin: &Admin,
    address: SocketAddr,
    server: Observer,
    settings: Option<Settings>,
    lent: Option<Arc<forebay_worker::Worker>>,
) {
    admin.serve(format!("redis://{address}"), move |mut status| {
        match (server.records(), &settings) {
            (Records::Lsm(store), Some(settings)) => show_database(&mut status, store, settings),
            (Records::Tree(tree), _) => show_tree(&mut status, tree, server.keys()),
            (Records::Lsm(_), None) => {}
        }
        if !server.is_running() {
            status.process.not_ready = "it is stopping".to_owned();
        }
        let worker = lent.as_deref().map(Worker::of);
        Status { clients: Some(Clients::of(&server)), worker, ..status }
    });
}

fn show_database(status: &mut Status, store: &Store, settings: &Settings) {
    let database = Database::of(store, settings);
    if database.failed_shards > 0 {
        let error = store.failure().map(|error| format!(": {error}")).unwrap_or_default();
        status.process.not_ready = format!("background work of {} shards has failed{error}", database.failed_shards);
    }
    show_nodes(status, store.placed_statistics());
    if let Some(error) = store.log_failure() {
        status.process.not_ready = format!("the log: {error}");
    }
    status.database = Some(database);
}

fn show_tree(status: &mut Status, tree: &TreeRecords, keys: u64) {
    let shown = SharedTree::of(tree, keys);
    if shown.unfinished > 0 {
        status.process.not_ready = format!("{} batches wait for memory: writes are refused", shown.unfinished);
    }
    show_nodes(status, tree.tree().node_statistics().into_iter().enumerate().collect());
    if let Some(error) = tree.failure() {
        status.process.not_ready = error.to_string();
    }
    status.tree = Some(shown);
}

/// Shows memory nodes by their places.
fn show_nodes(status: &mut Status, nodes: Vec<(usize, Result<NodeStatistics, forebay::Error>)>) {
    for (place, told) in nodes {
        let node = place.to_string();
        match told {
            Ok(statistics) => status.memory_nodes.push(MemoryNode::of(node, &statistics)),
            Err(error) => status.lost_nodes.push(LostNode { node, cause: error.to_string() }),
        }
    }
    let lost = status.lost_nodes.iter().map(|lost| format!("memory node {}: {}", lost.node, lost.cause));
    status.unreachable = Some(lost.collect::<Vec<_>>().join("; ")).filter(|lost| !lost.is_empty());
    if let Some(lost) = &status.unreachable {
        status.process.not_ready.clone_from(lost);
    } else if status.memory_nodes.is_empty() {
        status.process.not_ready = "no memory node answers".to_owned();
    }
}

/// Shows that the server opens its database again, and why.
pub fn show_opening(admin: &Admin, cause: &str) {
    let not_ready = format!("it opens its database again: {cause}");
    admin.serve("", move |mut status| {
        status.process.not_ready.clone_from(&not_ready);
        status
    });
}

/// Shows a memory node and its tenants.
pub fn show_node(admin: &Admin, node: Arc<Handle>) {
    admin.serve(node.address().to_owned(), move |mut status| {
        if !node.is_running() {
            status.process.not_ready = "it has stopped".to_owned();
        }
        let statistics = node.statistics();
        let tenant = |figures| Tenant::of(figures, statistics.extent_bytes);
        Status {
            tenants: node.tenants().iter().map(tenant).collect(),
            door: Visitors::all(&node.door()),
            memory_nodes: vec![MemoryNode::of(node.identity().node.to_string(), &statistics)],
            ..status
        }
    });
}

/// Shows a worker.
pub fn show_worker(admin: &Admin, worker: Arc<forebay_worker::Worker>) {
    admin.serve("", move |mut status| {
        let shown = Worker::of(&worker);
        if !shown.is_known {
            status.process.not_ready = "no scheduler has heard of it".to_owned();
        }
        Status { worker: Some(shown), ..status }
    });
}

/// Shows a scheduler, and the term for which it is elected.
pub fn show_scheduler(admin: &Admin, address: &str, elected: impl Fn() -> Option<Term> + Send + Sync + 'static) {
    admin.serve(address.to_owned(), move |status| {
        let term = elected().map(|term| u64::from(term.0));
        Status { scheduler: Some(Scheduler { term }), ..status }
    });
}
