//! What a process says of itself, at one moment. As JSON, it is the answer of `/api/status`.
//!
//! Counts start when the process starts, or when it opens the database. Fields may be added.

use serde::{Deserialize, Serialize};

/// What a process says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process.
    pub process: Process,
    /// The clients of a server.
    pub clients: Option<Clients>,
    /// The database that it has open.
    pub database: Option<Database>,
    /// The shared tree that it serves instead of a database.
    pub tree: Option<SharedTree>,
    /// The memory nodes that its database uses, or the one that it is.
    pub memory_nodes: Vec<MemoryNode>,
    /// Which memory nodes do not answer, and why.
    pub unreachable: Option<String>,
    /// The same, node by node.
    pub lost_nodes: Vec<LostNode>,
    /// The users of this memory node.
    pub tenants: Vec<Tenant>,
    /// The connections to this memory node, by what became of them.
    pub door: Vec<Visitors>,
    /// The jobs of a worker.
    pub worker: Option<Worker>,
    /// A scheduler.
    pub scheduler: Option<Scheduler>,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The command: `serve`, `memory-node`, `worker`, `scheduler`.
    pub role: String,
    /// Its version.
    pub version: String,
    /// Where it serves; empty for one that does not.
    pub address: String,
    /// When it started, seconds since 1970.
    pub started_seconds: f64,
    /// When the status was taken, seconds since the process started, by a monotonic clock.
    pub uptime_seconds: f64,
    /// Processor time of all its threads.
    pub cpu_seconds: f64,
    /// Physical memory that the process has.
    pub resident_bytes: u64,
    /// Why it is not ready; empty when it is.
    pub not_ready: String,
}

/// The clients of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clients {
    /// Connected clients.
    pub connected: u64,
    /// Clients that wait in a command that blocks.
    pub blocked: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub rejected: u64,
    /// Commands carried out.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Bytes of requests.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub sent_bytes: u64,
    /// Keys that were looked up and found.
    pub hits: u64,
    /// Keys that were looked up and not found.
    pub misses: u64,
    /// Keys that expired and were removed.
    pub expired: u64,
    /// How long commands took, by what they do.
    pub latencies: Vec<Latency>,
    /// The latest commands that took long, the latest first.
    pub slow: Vec<Slow>,
}

/// How long commands of a kind took, from the lock of their keys to the end of their batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// `read` or `write`.
    pub kind: String,
    /// Numbers of commands that took at most this long, and longer than the one before. The last has no bound.
    pub buckets: Vec<Bucket>,
    /// How long all commands took together.
    pub seconds: f64,
}

/// Commands of one duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// The longest duration; `None` for any.
    pub most_seconds: Option<f64>,
    /// Number of commands.
    pub count: u64,
}

/// A command that took long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slow {
    /// Its number.
    pub id: i64,
    /// When: seconds since 1970.
    pub at_seconds: u64,
    /// How long.
    pub seconds: f64,
    /// The command and the beginning of its arguments, escaped.
    pub command: String,
    /// Where the client is.
    pub client: String,
}

/// An open database.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Database {
    /// What a write survives once it is acknowledged.
    pub durability: String,
    /// Where it is in storage; empty without storage.
    pub storage: String,
    /// Shards.
    pub shards: u64,
    /// Shards whose background work has failed for good.
    pub failed_shards: u64,
    /// Copies of shards in memory that are missing, because memory nodes were lost.
    pub missing_copies: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Index entries of tables.
    pub entries: u64,
    /// Sealed memtables that wait for their flush.
    pub sealed_memtables: u64,
    /// Flushes that run.
    pub running_flushes: u64,
    /// Compactions that run.
    pub running_compactions: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Bytes of the cached indexes of tables.
    pub cached_index_bytes: u64,
    /// Bytes of records that tables reference.
    pub live_bytes: u64,
    /// Bytes that it has on memory nodes.
    pub remote_bytes: u64,
    /// Bytes of dead records that are not freed yet.
    pub dead_bytes: u64,
    /// Bytes that only earlier versions name, and that readers hold.
    pub pinned_bytes: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions, by where they were done.
    pub compactions: Vec<Compactions>,
    /// Damaged places that were found in copies in memory.
    pub damaged_copies: u64,
    /// Damaged places that were written anew from another copy.
    pub mended_copies: u64,
    /// Bytes of copies in memory that scrubs have looked at.
    pub scrubbed_bytes: u64,
    /// Compactions that were refused where they should have been done.
    pub refused_compactions: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes that compactions wrote.
    pub compaction_written_bytes: u64,
    /// The levels, level 0 first.
    pub levels: Vec<Level>,
    /// Waits of writers, by cause.
    pub stalls: Vec<Stalls>,
    /// What went over the fabric, by who waits for it.
    pub fabric: Vec<Fabric>,
    /// The log of writes.
    pub log: Log,
    /// What was done to storage.
    pub objects: Objects,
    /// Caches.
    pub caches: Vec<Cache>,
    /// Bounds between shards that were moved.
    pub bound_moves: u64,
}

/// A shared tree that a server uses alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedTree {
    /// Its name.
    pub name: String,
    /// Keys of clients, in all databases.
    pub keys: u64,
    /// Bytes of the memory nodes that the tree has used at some time.
    pub used_bytes: u64,
    /// Of these, bytes of nodes and values.
    pub live_bytes: u64,
    /// Bytes of inner nodes that the server remembers.
    pub cached_bytes: u64,
    /// Batches that had a journal, because they made several changes.
    pub journals: u64,
    /// Batches that are committed and not yet applied.
    pub unfinished: u64,
    /// What went over the fabric, by who waits for it.
    pub fabric: Vec<Fabric>,
}

impl Status {
    /// What went over the fabric, by who waits for it.
    pub fn fabric(&self) -> impl Iterator<Item = &Fabric> {
        let of_database = self.database.iter().flat_map(|database| &database.fabric);
        of_database.chain(self.tree.iter().flat_map(|tree| &tree.fabric))
    }
}

/// Compactions done at one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compactions {
    /// `compute`, `memory` or `pool`.
    pub place: String,
    /// Number.
    pub count: u64,
}

/// A level of the tree.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Level {
    /// Where its tables are: `memory` or `storage`.
    pub tier: String,
    /// Tables.
    pub tables: u64,
    /// Runs in key order.
    pub runs: u64,
    /// Index entries.
    pub entries: u64,
    /// Bytes of records that its tables reference.
    pub bytes: u64,
}

/// Waits of writers for one cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls {
    /// What the writers waited for.
    pub cause: String,
    /// Number of waits.
    pub count: u64,
    /// Time, summed over writers.
    pub seconds: f64,
}

/// What went over the fabric.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fabric {
    /// `foreground`: callers waited for it; `background`: flushes, compactions and upkeep.
    pub traffic: String,
    /// Round trips waited for.
    pub round_trips: u64,
    /// Operations, by kind.
    pub operations: Vec<Operations>,
    /// Bytes that came to the compute node.
    pub read_bytes: u64,
    /// Bytes that left it.
    pub written_bytes: u64,
}

/// Operations of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operations {
    /// `read`, `write`, `atomic` or `message`.
    pub kind: String,
    /// Number.
    pub count: u64,
}

/// The log of writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// Shipments.
    pub groups: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Writers that waited while another one shipped.
    pub waits: u64,
    /// Bytes of flushed memtables whose tables are not in storage yet.
    pub lag_bytes: u64,
}

/// What was done to storage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Objects {
    /// Objects read.
    pub read: u64,
    /// Objects written.
    pub written: u64,
    /// Objects deleted.
    pub deleted: u64,
    /// Deletions of objects that failed.
    pub failed_deletions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
}

/// A cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// `index`: point indexes of tables; `block`: blocks that were read from storage; `memory`: blocks in memory nodes
    /// that `block` has evicted.
    pub cache: String,
    /// Lookups that hit.
    pub hits: u64,
    /// Lookups that missed.
    pub misses: u64,
}

/// A memory node that does not answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostNode {
    /// Its place among the nodes of the database, from 0.
    pub node: String,
    /// Why it does not answer.
    pub cause: String,
}

/// A memory node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryNode {
    /// Its place among the nodes of the database, from 0.
    pub node: String,
    /// How long it has been running.
    pub uptime_seconds: f64,
    /// Processor time.
    pub cpu_seconds: f64,
    /// Memory that it offers.
    pub memory_bytes: u64,
    /// This memory by state: `free`, `leased`, `adopted`, `kept`, `jobs`, `recycling`.
    pub extents: Vec<Extents>,
    /// Memory handed out.
    pub allocated_bytes: u64,
    /// The part of it that shards own.
    pub live_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Stores.
    pub stores: u64,
    /// Shards.
    pub shards: u64,
    /// Shards with an owner.
    pub owned_shards: u64,
    /// Calls answered, refusals included.
    pub calls: u64,
    /// Calls refused.
    pub refused_calls: u64,
    /// Messages that were no requests.
    pub malformed_messages: u64,
    /// Sessions that lapsed.
    pub lapsed_sessions: u64,
    /// Jobs that wait.
    pub queued_jobs: u64,
    /// Jobs that run.
    pub running_jobs: u64,
    /// Jobs that ended well.
    pub completed_jobs: u64,
    /// Jobs that failed.
    pub failed_jobs: u64,
}

/// Extents in one state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extents {
    /// The state.
    pub state: String,
    /// Their bytes.
    pub bytes: u64,
}

/// A user of a memory node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its share of the node's time.
    pub weight: u64,
    /// Memory that it has.
    pub memory_bytes: u64,
    /// Memory that it may have.
    pub most_memory_bytes: u64,
    /// Memory that it owes the reserve.
    pub reserve_bytes: u64,
    /// Links.
    pub links: u64,
    /// Endpoints, over all links.
    pub endpoints: u64,
    /// How many endpoints it may have; `None` where there is no limit.
    pub most_endpoints: Option<u64>,
    /// Sessions.
    pub sessions: u64,
    /// Stores.
    pub stores: u64,
    /// Shards.
    pub shards: u64,
    /// Keys to extents.
    pub keys: u64,
    /// Outputs of jobs.
    pub ranges: u64,
    /// Jobs that wait or run.
    pub jobs: u64,
    /// Calls that wait for their turn.
    pub waiting_calls: u64,
    /// Calls answered, refusals included.
    pub calls: u64,
    /// Calls refused.
    pub refused_calls: u64,
    /// Calls refused because of a limit.
    pub limited_calls: u64,
    /// Calls refused because they concerned another tenant, or were reserved for the node's administrator.
    pub denied_calls: u64,
    /// Messages that were no requests.
    pub malformed_messages: u64,
    /// Sessions that lapsed.
    pub lapsed_sessions: u64,
    /// Links that the node closed.
    pub closed_links: u64,
    /// Jobs that ended well.
    pub completed_jobs: u64,
    /// Jobs that failed.
    pub failed_jobs: u64,
    /// Bytes of arguments and results.
    pub moved_bytes: u64,
    /// Time that its calls and jobs took.
    pub busy_seconds: f64,
}

/// Connections to a memory node, by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Visitors {
    /// What became of them.
    pub outcome: String,
    /// Number.
    pub count: u64,
}

/// The jobs of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Attempts that went well.
    pub completed: u64,
    /// Attempts that failed, or were stopped.
    pub failed: u64,
    /// Bytes read by jobs.
    pub read_bytes: u64,
    /// Bytes written by jobs.
    pub written_bytes: u64,
    /// Whether a scheduler knows the worker.
    pub is_known: bool,
}

/// A scheduler.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduler {
    /// The term in which it schedules, if it is elected.
    pub term: Option<u64>,
}
