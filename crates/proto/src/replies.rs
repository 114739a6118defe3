//! What a memory node answers. See `docs/formats/node-messages.md`.

use crate::field::{Blob, Rest, Text, message};
use crate::ids::{Epoch, ExtentId, ExtentRange, GrantedExtent, SessionId, StoreId};

message! {
    /// Done, with nothing to say.
    Done {}
}

message! {
    /// A session was opened.
    SessionOpened {
        /// Its number.
        session: SessionId,
        /// The session lapses when it is not renewed for this long, milliseconds.
        lease_ms: u32,
        /// The node's number.
        node: u32,
        /// The node's incarnation.
        incarnation: u64,
        /// Length of an extent, bytes.
        extent_bytes: u64,
        /// Extents of the node.
        extents: u32,
        /// Free extents that only garbage collection gets.
        headroom_extents: u32,
        /// The node's reading epoch (see [`Renew`](crate::calls::Renew)).
        reading_epoch: u64,
        /// What the node can do: see [`capabilities`].
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
    /// How far the readers are.
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
    /// Keys of extents. Fewer than were asked for when memory is short.
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
        /// Whether there are more behind the last.
        more: bool,
    }
}

message! {
    /// A page of the outputs of a shard's jobs.
    RangePage {
        /// In ascending order of extents and offsets.
        ranges: Vec<ExtentRange>,
        /// Whether there are more behind the last.
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
        /// Whether there are more behind the last.
        more: bool,
    }
}

message! {
    /// A shard was acquired.
    ShardAcquired {
        /// The epoch to act with.
        epoch: Epoch,
    }
}

message! {
    /// A shard's root.
    Root {
        /// The epoch that set it; 0 if none did.
        epoch: Epoch,
        /// What was set.
        root: Blob,
    }
}

message! {
    /// What a job returned.
    JobDone {
        /// Bytes that the kind of job defines.
        result: Rest,
    }
}

message! {
    /// Figures of a node.
    Statistics {
        /// Extents in all.
        extents: u64,
        /// Length of an extent, bytes.
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
        /// Extents that are freed but not yet free: read, revoked or zeroed.
        recycling_extents: u64,
        /// Bytes that are taken: leased and adopted extents, and outputs of jobs.
        allocated_bytes: u64,
        /// Bytes that shards own: adopted extents and adopted outputs of jobs.
        live_bytes: u64,
        /// Bytes of outputs of jobs.
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
        /// Messages that could not be understood.
        malformed_messages: u64,
        /// Sessions that lapsed.
        lapsed_sessions: u64,
        /// Jobs that wait for a thread.
        queued_jobs: u64,
        /// Jobs that run.
        running_jobs: u64,
        /// Jobs that ended well.
        completed_jobs: u64,
        /// Jobs that failed or were fenced.
        failed_jobs: u64,
        /// The reading epoch.
        reading_epoch: u64,
        /// Processor time of the node's threads, microseconds.
        cpu_us: u64,
        /// Time since the node started, milliseconds.
        uptime_ms: u64,
    }
}
