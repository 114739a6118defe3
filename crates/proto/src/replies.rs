//! Replies of a memory node. See `docs/formats/node-messages.md`.

use crate::field::{Blob, Rest, Text, message};
use crate::ids::{Epoch, ExtentId, ExtentRange, GrantedExtent, SessionId, StoreId};
use forebay_fabric::AccessKey;

message! {
    /// Done, without a result.
    Done {}
}

message! {
    /// A session was opened.
    SessionOpened {
        /// Its number.
        session: SessionId,
        /// Milliseconds without renewal after which the session lapses.
        lease_ms: u32,
        /// The node's number.
        node: u32,
        /// The node's incarnation.
        incarnation: u64,
        /// Length of an extent in bytes.
        extent_bytes: u64,
        /// Extents of the node.
        extents: u32,
        /// Free extents that only garbage collection gets.
        headroom_extents: u32,
        /// The node's reading epoch (see [`Renew`](crate::calls::Renew)).
        reading_epoch: u64,
        /// Capabilities of the node: see [`capabilities`].
        capabilities: u64,
    }
}

/// Bits of [`SessionOpened::capabilities`].
pub mod capabilities {
    /// The node has threads for jobs.
    pub const JOBS: u64 = 1;
}

message! {
    /// A session was renewed.
    Renewed {
        /// As in [`SessionOpened`], milliseconds.
        lease_ms: u32,
        /// The node's reading epoch now.
        reading_epoch: u64,
    }
}

message! {
    /// The progress of the readers.
    ReadersPassed {
        /// The reading epoch that the call ended.
        ended_epoch: u64,
        /// The oldest reading epoch that a session announced, or may still read in.
        oldest_epoch: u64,
        /// The node's reading epoch now.
        reading_epoch: u64,
    }
}

message! {
    /// Keys of extents. Fewer than requested when memory is short.
    ExtentsGranted {
        /// The extents with their keys.
        extents: Vec<GrantedExtent>,
    }
}

message! {
    /// A page of a shard's extents.
    ExtentPage {
        /// In ascending order.
        extents: Vec<ExtentId>,
        /// Whether there are more after the last.
        more: bool,
    }
}

message! {
    /// A page of the outputs of a shard's jobs.
    RangePage {
        /// In ascending order of extents and offsets.
        ranges: Vec<ExtentRange>,
        /// Whether there are more after the last.
        more: bool,
    }
}

message! {
    /// A store was created or opened.
    StoreOpened {
        /// Its number.
        store: StoreId,
        /// The configuration that it was created with.
        config: Blob,
    }
}

message! {
    /// A store of the directory.
    StoreEntry {
        /// Its number.
        store: StoreId,
        /// Its name.
        name: Text,
    }
}

message! {
    /// A page of the directory.
    StorePage {
        /// In ascending order of names.
        stores: Vec<StoreEntry>,
        /// Whether there are more after the last.
        more: bool,
    }
}

message! {
    /// A shard was acquired.
    ShardAcquired {
        /// The epoch for the owner's calls.
        epoch: Epoch,
    }
}

message! {
    /// A shard's root.
    Root {
        /// The epoch that set it; 0 if none did.
        epoch: Epoch,
        /// The root.
        root: Blob,
    }
}

message! {
    /// A ticket was opened.
    TicketOpened {
        /// Its number.
        ticket: u64,
    }
}

message! {
    /// An attempt has joined a ticket.
    TicketJoined {
        /// Bytes of the longest output that fits into one free piece now.
        longest_bytes: u64,
    }
}

message! {
    /// Keys for an attempt, one for each range that it asked for. Offset 0 of a key is the start of its range.
    RangesGranted {
        /// The keys.
        keys: Vec<AccessKey>,
    }
}

message! {
    /// An output of an attempt.
    OutputGranted {
        /// Its place.
        range: ExtentRange,
        /// The key to the output, and to nothing else.
        key: AccessKey,
        /// Bytes of the longest further output that fits into one free piece now.
        longest_bytes: u64,
    }
}

message! {
    /// Letters for the caller (`docs/formats/offload-letter.md`).
    Exchanged {
        /// The scheduler's term.
        term: u32,
        /// The letters.
        letters: Rest,
    }
}

message! {
    /// The result of a job.
    JobDone {
        /// Bytes defined by the kind of job.
        result: Rest,
    }
}

message! {
    /// Statistics of a node.
    Statistics {
        /// Number of extents.
        extents: u64,
        /// Length of an extent in bytes.
        extent_bytes: u64,
        /// Extents that can be leased.
        free_extents: u64,
        /// Free extents that only garbage collection gets.
        headroom_extents: u64,
        /// Extents leased to sessions.
        leased_extents: u64,
        /// Extents adopted by shards.
        adopted_extents: u64,
        /// Extents that the node keeps for jobs and that hold nothing.
        kept_extents: u64,
        /// Extents with outputs of jobs.
        job_extents: u64,
        /// Extents that were freed but are not free yet: still read, revoked or zeroed.
        recycling_extents: u64,
        /// Bytes in use: leased and adopted extents, and outputs of jobs.
        allocated_bytes: u64,
        /// Bytes that shards own: adopted extents and adopted outputs of jobs.
        live_bytes: u64,
        /// Bytes of job outputs.
        job_bytes: u64,
        /// Sessions.
        sessions: u64,
        /// Stores.
        stores: u64,
        /// Shards.
        shards: u64,
        /// Shards with an owner.
        owned_shards: u64,
        /// Calls answered, refusals included.
        calls: u64,
        /// Calls refused.
        refused_calls: u64,
        /// Malformed messages.
        malformed_messages: u64,
        /// Sessions that lapsed.
        lapsed_sessions: u64,
        /// Jobs that wait for a thread.
        queued_jobs: u64,
        /// Jobs that run.
        running_jobs: u64,
        /// Jobs that succeeded.
        completed_jobs: u64,
        /// Jobs that failed or were fenced.
        failed_jobs: u64,
        /// The reading epoch.
        reading_epoch: u64,
        /// Processor time of the node's threads in microseconds.
        cpu_us: u64,
        /// Time since the node started, in milliseconds.
        uptime_ms: u64,
    }
}

message! {
    /// How busy the node's own threads are.
    NodeLoad {
        /// Threads that run jobs.
        running_jobs: u32,
        /// Threads for jobs.
        job_threads: u32,
        /// Jobs that wait for a thread.
        queued_jobs: u32,
        /// How many may wait before the threads count as full.
        most_queued_jobs: u32,
    }
}

message! {
    /// Figures of a tenant.
    TenantFigures {
        /// Its name.
        name: Text,
        /// The weight of its share of the node's time.
        weight: u32,
        /// Extents that it has, including those that are not yet free again.
        extents: u64,
        /// How many it may have.
        most_extents: u64,
        /// Extents that it owes the headroom and the part kept for jobs.
        reserve_extents: u64,
        /// Links.
        links: u64,
        /// Endpoints, over all links.
        endpoints: u64,
        /// How many it may have; `u64::MAX` where there is no limit.
        most_endpoints: u64,
        /// Sessions.
        sessions: u64,
        /// Stores.
        stores: u64,
        /// Shards.
        shards: u64,
        /// Keys to extents.
        keys: u64,
        /// Outputs of jobs.
        ranges: u64,
        /// Jobs that wait or run.
        jobs: u64,
        /// Calls that wait for their turn.
        waiting_calls: u64,
        /// Calls answered, refusals included.
        calls: u64,
        /// Calls refused.
        refused_calls: u64,
        /// Calls refused because the tenant had reached a limit.
        limited_calls: u64,
        /// Calls refused because they concerned another tenant, or are only for administrators of the node.
        denied_calls: u64,
        /// Messages that could not be understood.
        malformed_messages: u64,
        /// Sessions that lapsed.
        lapsed_sessions: u64,
        /// Links that the node closed.
        closed_links: u64,
        /// Jobs that ended well.
        completed_jobs: u64,
        /// Jobs that failed or were fenced.
        failed_jobs: u64,
        /// Bytes of arguments and results.
        moved_bytes: u64,
        /// Time that its calls and jobs took, microseconds.
        busy_us: u64,
    }
}

message! {
    /// Connections since the node began to listen. A client that has proven nothing belongs to no tenant.
    DoorFigures {
        /// Let in.
        admitted: u64,
        /// Turned away because what they showed was wrong or missing.
        refused: u64,
        /// Shown out before they had proven themselves, to make room for others.
        shown_out: u64,
        /// Shown out because they took too long to prove themselves.
        late: u64,
        /// Turned away, although proven, because there are too many connections already.
        crowded: u64,
        /// Ended because their proof was withdrawn or has expired.
        withdrawn: u64,
    }
}

message! {
    /// What a database may take of its tenant's memory, and what it owes. A free extent may still have to be cleaned.
    Credit {
        /// Extents that the tenant could get, including those of the headroom and those that the node keeps for jobs.
        free_extents: u64,
        /// Of these, those that only garbage collection gets.
        headroom_extents: u64,
        /// Free extents that the database must leave to others.
        withheld_extents: u64,
        /// Extents that it must give back, because others need them.
        owed_extents: u64,
        /// Its share.
        share_extents: u64,
        /// What it holds.
        held_extents: u64,
        /// Databases that share the tenant's memory, this one included.
        databases: u32,
        /// Whether any database currently owes extents that another needs. True for at most a lease.
        is_called: bool,
    }
}

message! {
    /// A database in a node's pool.
    PoolEntry {
        /// Its tenant.
        tenant: Text,
        /// Its name; empty if it has none.
        database: Text,
        /// What its first session calls itself.
        process: Text,
        /// Its first session.
        session: SessionId,
        /// How many sessions it has.
        sessions: u32,
        /// The weight of its share.
        weight: u32,
        /// Its share.
        share_extents: u64,
        /// What it holds.
        held_extents: u64,
        /// What it must give back, because others need it.
        owed_extents: u64,
    }
}

message! {
    /// A page of the databases in a node's pool.
    PoolPage {
        /// In ascending order of tenants and names.
        databases: Vec<PoolEntry>,
        /// Whether there are more after the last.
        more: bool,
        /// Extents that can be leased, including those that are being cleaned, those of the headroom and those that the node
        /// keeps for jobs.
        free_extents: u64,
        /// Extents that none of these databases holds: they belong to databases that nobody has open, and to other clients.
        other_extents: u64,
    }
}

message! {
    /// A page of the node's tenants. Version 1 had no figures of endpoints.
    TenantPage = 2 {
        /// In ascending order of names.
        tenants: Vec<TenantFigures>,
        /// Whether there are more after the last.
        more: bool,
        /// The counts of connections to the node.
        door: DoorFigures,
    }
}
