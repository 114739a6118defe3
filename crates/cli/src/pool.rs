//! `forebay pool`: which databases share a memory node, and who holds, has borrowed and owes how much.

use crate::access::AccessArguments;
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::nodes;
use crate::output::{self, Format, escaped};
use forebay::NodeAddress;
use forebay_memory_client::{PoolEntry, PoolPage};
use serde::Serialize;

/// Which memory nodes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the memory nodes are: shm:<path> or tcp://<host>:<port>, several separated by commas.
    #[arg(long)]
    pub memory: NodeAddresses,
    #[command(flatten)]
    pub access: AccessArguments,
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Prints which databases share memory nodes: those of the caller's tenant, or of all if it administers the node.
///
/// # Errors
/// When a node cannot be reached.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let nodes = arguments.memory.all().iter().map(node).collect::<Result<Vec<_>, _>>()?;
    match arguments.format {
        Format::Table => nodes.iter().try_for_each(table),
        Format::Json => output::json(&Report { nodes }),
    }
}

fn node(memory: &NodeAddress) -> Result<Node, Failure> {
    if *memory == NodeAddress::Local {
        return Err(Failure::usage("--memory=local is not shared: use shm:<path> or tcp://<host>:<port>"));
    }
    let client = nodes::session(memory, "forebay pool")?;
    let page = client.list_pool().map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    Ok(Node::of(memory.to_string(), &page, client.extent_bytes()))
}

#[derive(Debug, Serialize)]
struct Report {
    nodes: Vec<Node>,
}

/// A memory node, as the caller may see it.
#[derive(Debug, Serialize)]
struct Node {
    memory: String,
    databases: Vec<Database>,
    /// Memory that nobody has, including memory that is kept for collection and jobs.
    free_bytes: u64,
    /// Memory of databases that nobody has open, and of other clients.
    other_bytes: u64,
}

/// A database that shares the node's memory.
#[derive(Debug, Serialize)]
struct Database {
    /// `None` when it has no name.
    database: Option<String>,
    tenant: String,
    /// The name that its process calls itself.
    process: String,
    /// Its first session at the node.
    session: u64,
    sessions: u32,
    /// Its share beside those of the tenant's other databases.
    weight: u32,
    share_bytes: u64,
    held_bytes: u64,
    /// What it holds beyond its share.
    borrowed_bytes: u64,
    /// What it has to give back, because others need it.
    owed_bytes: u64,
}

impl Node {
    fn of(memory: String, page: &PoolPage, extent_bytes: u64) -> Self {
        let bytes = |extents: u64| extents.saturating_mul(extent_bytes);
        let database = |entry: &PoolEntry| Database {
            database: Some(entry.database.as_str()).filter(|name| !name.is_empty()).map(str::to_owned),
            tenant: entry.tenant.to_string(),
            process: entry.process.to_string(),
            session: entry.session.0,
            sessions: entry.sessions,
            weight: entry.weight,
            share_bytes: bytes(entry.share_extents),
            held_bytes: bytes(entry.held_extents),
            borrowed_bytes: bytes(entry.held_extents.saturating_sub(entry.share_extents)),
            owed_bytes: bytes(entry.owed_extents),
        };
        Self {
            memory,
            databases: page.databases.iter().map(database).collect(),
            free_bytes: bytes(page.free_extents),
            other_bytes: bytes(page.other_extents),
        }
    }
}

fn table(node: &Node) -> Result<(), Failure> {
    output::line(&node.memory)?;
    output::line(&format!(
        "{:<24} {:<16} {:>8} {:>7} {:>10} {:>10} {:>12} {:>10}",
        "database", "tenant", "sessions", "weight", "share MiB", "holds MiB", "borrowed MiB", "owes MiB"
    ))?;
    for database in &node.databases {
        let unnamed = || format!("(session {})", database.session);
        output::line(&format!(
            "{:<24} {:<16} {:>8} {:>7} {:>10} {:>10} {:>12} {:>10}",
            database.database.as_deref().map_or_else(unnamed, escaped),
            escaped(&database.tenant),
            database.sessions,
            database.weight,
            database.share_bytes >> 20,
            database.held_bytes >> 20,
            database.borrowed_bytes >> 20,
            database.owed_bytes >> 20
        ))?;
    }
    output::line(&format!(
        "free: {} MiB; of others, and of databases that nobody has open: {} MiB",
        node.free_bytes >> 20,
        node.other_bytes >> 20
    ))
}
