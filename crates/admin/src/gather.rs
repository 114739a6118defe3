//! Where a status comes from: the figures of the crates below.

use crate::status::{
    Bucket, Cache, Clients, Compactions, Database, Extents, Fabric, Latency, Level, Log, MemoryNode, Objects,
    Operations, Process, SharedTree, Slow, Stalls, Tenant, Visitors, Worker,
};
use forebay::{Counts, LevelStatistics, Options, Store};
use forebay_env::{Clock, Nanos, cpu, process};
use forebay_proto::replies::{DoorFigures, Statistics, TenantFigures};
use forebay_server::{Durations, Observer, TreeRecords};
use std::collections::BTreeMap;

/// Slow commands that are shown.
const SLOW_COMMANDS: usize = 32;

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// What does not change while a process runs.
#[derive(Debug)]
pub struct Birth {
    role: &'static str,
    clock: std::sync::Arc<dyn Clock>,
    since: Nanos,
    started_seconds: f64,
}

impl Birth {
    /// Records that a process of this role starts now.
    #[must_use]
    pub fn now(role: &'static str, clock: std::sync::Arc<dyn Clock>) -> Self {
        Self { role, since: clock.now(), started_seconds: clock.wall_ms() as f64 / 1e3, clock }
    }

    /// Returns the process at this moment. It serves at `address`, if that is not empty.
    #[must_use]
    pub fn process(&self, address: impl Into<String>) -> Process {
        Process {
            role: self.role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: address.into(),
            started_seconds: self.started_seconds,
            uptime_seconds: seconds(self.clock.now().saturating_sub(self.since)),
            cpu_seconds: seconds(cpu::process_nanos()),
            resident_bytes: process::resident_bytes().unwrap_or(0),
            not_ready: String::new(),
        }
    }
}

impl Clients {
    /// The clients of a server.
    #[must_use]
    pub fn of(server: &Observer) -> Self {
        let figures = server.figures();
        let slow = server.slow_commands(SLOW_COMMANDS).into_iter().map(|slow| Slow {
            id: slow.id,
            at_seconds: slow.at_s,
            seconds: slow.took_us as f64 / 1e6,
            command: slow.arguments,
            client: slow.address,
        });
        Self {
            connected: figures.connected,
            blocked: figures.blocked,
            connections: figures.connections,
            rejected: figures.rejected,
            commands: figures.commands,
            errors: figures.errors,
            received_bytes: figures.received_bytes,
            sent_bytes: figures.sent_bytes,
            hits: figures.hits,
            misses: figures.misses,
            expired: figures.expired,
            latencies: vec![Latency::of("read", &figures.reads), Latency::of("write", &figures.writes)],
            slow: slow.collect(),
        }
    }
}

impl Latency {
    fn of(kind: &str, durations: &Durations) -> Self {
        let bucket = |&(most, count): &(Option<Nanos>, u64)| Bucket { most_seconds: most.map(seconds), count };
        Self {
            kind: kind.to_owned(),
            buckets: durations.counts.iter().map(bucket).collect(),
            seconds: seconds(durations.nanos),
        }
    }
}

/// The options of a database that are shown.
#[derive(Debug, Clone)]
pub struct Settings {
    durability: String,
    storage: String,
    storage_from_level: Option<usize>,
}

impl From<&Options> for Settings {
    fn from(options: &Options) -> Self {
        Self {
            durability: options.durability.to_string(),
            storage: options.storage.as_ref().map(|storage| storage.objects().describe()).unwrap_or_default(),
            storage_from_level: options.storage_from_level,
        }
    }
}

impl Database {
    /// An open database with these settings.
    #[must_use]
    pub fn of(store: &Store, settings: &Settings) -> Self {
        let statistics = store.statistics();
        let properties: BTreeMap<String, String> = store.properties().into_iter().collect();
        let property = |name: &str| properties.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        let stalls = &statistics.stalls_by_cause;
        let (near, pool) = (statistics.near_data_compactions, statistics.offloaded_compactions);
        let at_home = statistics.compactions.saturating_sub(near).saturating_sub(pool);
        let caches = [
            ("index", statistics.index_cache.hits, statistics.index_cache.misses),
            ("block", statistics.block_cache.hits + statistics.block_cache.joined, statistics.block_cache.misses),
            ("memory", statistics.block_cache.below_hits, statistics.block_cache.below_misses),
        ];
        Self {
            durability: settings.durability.clone(),
            storage: settings.storage.clone(),
            shards: property("forebay.num-shards"),
            failed_shards: property("forebay.background-errors"),
            missing_copies: store.missing_copies() as u64,
            snapshots: property("forebay.num-snapshots"),
            entries: property("forebay.estimate-num-keys"),
            sealed_memtables: property("forebay.num-immutable-mem-table"),
            running_flushes: property("forebay.num-running-flushes"),
            running_compactions: property("forebay.num-running-compactions"),
            memtable_bytes: statistics.memtable_bytes,
            cached_index_bytes: statistics.cached_index_bytes,
            live_bytes: statistics.live_bytes,
            remote_bytes: statistics.remote_bytes,
            dead_bytes: statistics.dead_bytes_known,
            pinned_bytes: statistics.dead_bytes_pinned,
            flushes: statistics.flushes,
            compactions: [("compute", at_home), ("memory", near), ("pool", pool)]
                .map(|(place, count)| Compactions { place: place.to_owned(), count })
                .into(),
            damaged_copies: statistics.copies.damaged,
            mended_copies: statistics.copies.mended,
            scrubbed_bytes: statistics.copies.scrubbed_bytes,
            refused_compactions: statistics.refused_compactions,
            compaction_entries: statistics.compaction_entries,
            compaction_read_bytes: statistics.compaction_bytes_read,
            compaction_written_bytes: statistics.compaction_bytes_written,
            levels: levels(&statistics.levels, settings.storage_from_level),
            stalls: [
                ("memtables", stalls.memtables),
                ("level0_slowdown", stalls.level0_slowdown),
                ("level0_stop", stalls.level0_stop),
                ("collection", stalls.collection),
                ("memory_full", stalls.memory_full),
                ("moved_bound", stalls.moved_bound),
            ]
            .map(|(cause, stalls)| Stalls {
                cause: cause.to_owned(),
                count: stalls.count,
                seconds: seconds(stalls.nanos),
            })
            .into(),
            fabric: vec![fabric("foreground", &statistics.foreground), fabric("background", &statistics.background)],
            log: Log {
                groups: statistics.log.groups,
                bytes: statistics.log.bytes,
                records: statistics.log.records,
                waits: statistics.log.waits,
                lag_bytes: statistics.log.lag_bytes,
            },
            objects: Objects {
                read: statistics.storage.objects_read,
                written: statistics.storage.objects_written,
                deleted: statistics.storage.objects_deleted,
                failed_deletions: statistics.storage.failed_deletions,
                read_bytes: statistics.storage.bytes_read,
                written_bytes: statistics.storage.bytes_written,
                syncs: statistics.storage.syncs,
            },
            caches: caches.map(|(cache, hits, misses)| Cache { cache: cache.to_owned(), hits, misses }).into(),
            bound_moves: statistics.bound_moves,
        }
    }
}

impl SharedTree {
    /// The tree of a server whose clients have `keys` keys.
    #[must_use]
    pub fn of(records: &TreeRecords, keys: u64) -> Self {
        let (figures, tree) = (records.figures(), records.tree());
        let [foreground, background] = tree.counts();
        Self {
            name: tree.tree().name().to_owned(),
            keys,
            used_bytes: figures.used_bytes,
            live_bytes: figures.live_bytes,
            cached_bytes: figures.cached_bytes,
            journals: figures.journals,
            unfinished: figures.unfinished,
            fabric: vec![fabric("foreground", &foreground), fabric("background", &background)],
        }
    }
}

fn levels(levels: &[LevelStatistics], storage_from_level: Option<usize>) -> Vec<Level> {
    let level = |(number, level): (usize, &LevelStatistics)| Level {
        tier: if storage_from_level.is_some_and(|from| number >= from) { "storage" } else { "memory" }.to_owned(),
        tables: level.tables,
        runs: level.runs,
        entries: level.entries,
        bytes: level.bytes,
    };
    levels.iter().enumerate().map(level).collect()
}

fn fabric(traffic: &str, counts: &Counts) -> Fabric {
    let kinds =
        [("read", counts.reads), ("write", counts.writes), ("atomic", counts.atomics), ("message", counts.messages)];
    Fabric {
        traffic: traffic.to_owned(),
        round_trips: counts.round_trips,
        operations: kinds.map(|(kind, count)| Operations { kind: kind.to_owned(), count }).into(),
        read_bytes: counts.bytes_read,
        written_bytes: counts.bytes_written,
    }
}

impl MemoryNode {
    /// The memory node that is shown under this name.
    #[must_use]
    pub fn of(node: impl Into<String>, statistics: &Statistics) -> Self {
        let bytes = |extents: u64| extents.saturating_mul(statistics.extent_bytes);
        let extents = [
            ("free", statistics.free_extents),
            ("leased", statistics.leased_extents),
            ("adopted", statistics.adopted_extents),
            ("kept", statistics.kept_extents),
            ("jobs", statistics.job_extents),
            ("recycling", statistics.recycling_extents),
        ];
        Self {
            node: node.into(),
            uptime_seconds: statistics.uptime_ms as f64 / 1e3,
            cpu_seconds: statistics.cpu_us as f64 / 1e6,
            memory_bytes: bytes(statistics.extents),
            extents: extents.map(|(state, count)| Extents { state: state.to_owned(), bytes: bytes(count) }).into(),
            allocated_bytes: statistics.allocated_bytes,
            live_bytes: statistics.live_bytes,
            sessions: statistics.sessions,
            stores: statistics.stores,
            shards: statistics.shards,
            owned_shards: statistics.owned_shards,
            calls: statistics.calls,
            refused_calls: statistics.refused_calls,
            malformed_messages: statistics.malformed_messages,
            lapsed_sessions: statistics.lapsed_sessions,
            queued_jobs: statistics.queued_jobs,
            running_jobs: statistics.running_jobs,
            completed_jobs: statistics.completed_jobs,
            failed_jobs: statistics.failed_jobs,
        }
    }
}

impl Tenant {
    /// A tenant of a node with extents of this length.
    #[must_use]
    pub fn of(figures: &TenantFigures, extent_bytes: u64) -> Self {
        let bytes = |extents: u64| extents.saturating_mul(extent_bytes);
        Self {
            name: figures.name.as_str().to_owned(),
            weight: figures.weight.into(),
            memory_bytes: bytes(figures.extents),
            most_memory_bytes: bytes(figures.most_extents),
            reserve_bytes: bytes(figures.reserve_extents),
            links: figures.links,
            endpoints: figures.endpoints,
            most_endpoints: Some(figures.most_endpoints).filter(|&most| most < u64::MAX),
            sessions: figures.sessions,
            stores: figures.stores,
            shards: figures.shards,
            keys: figures.keys,
            ranges: figures.ranges,
            jobs: figures.jobs,
            waiting_calls: figures.waiting_calls,
            calls: figures.calls,
            refused_calls: figures.refused_calls,
            limited_calls: figures.limited_calls,
            denied_calls: figures.denied_calls,
            malformed_messages: figures.malformed_messages,
            lapsed_sessions: figures.lapsed_sessions,
            closed_links: figures.closed_links,
            completed_jobs: figures.completed_jobs,
            failed_jobs: figures.failed_jobs,
            moved_bytes: figures.moved_bytes,
            busy_seconds: figures.busy_us as f64 / 1e6,
        }
    }
}

impl Visitors {
    /// The connections to a node, by what became of them.
    #[must_use]
    pub fn all(figures: &DoorFigures) -> Vec<Self> {
        let outcomes = [
            ("admitted", figures.admitted),
            ("refused", figures.refused),
            ("shown_out", figures.shown_out),
            ("late", figures.late),
            ("crowded", figures.crowded),
            ("withdrawn", figures.withdrawn),
        ];
        outcomes.map(|(outcome, count)| Self { outcome: outcome.to_owned(), count }).into()
    }
}

impl Worker {
    /// The jobs of a worker.
    #[must_use]
    pub fn of(worker: &forebay_worker::Worker) -> Self {
        let statistics = worker.statistics();
        Self {
            completed: statistics.completed,
            failed: statistics.failed,
            read_bytes: statistics.read_bytes,
            written_bytes: statistics.written_bytes,
            is_known: worker.is_known(),
        }
    }
}
