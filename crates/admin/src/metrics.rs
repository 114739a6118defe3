//! The one table of metrics: name, help, and where the value is in a [`Status`].
//!
//! A `Group` holds things with the same labels: the database, its levels, the tenants of a node. The page
//! `docs/reference/metrics.md` is made from the table and the labels, and users of a metric's name (dashboard, alerts) are
//! checked against the table.

use crate::status::{
    Cache, Clients, Compactions, Database, Extents, Fabric, Latency, Level, MemoryNode, Operations, Process, Scheduler,
    SharedTree, Stalls, Status, Tenant, Visitors, Worker,
};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};
use std::fmt::Write;

/// The form of the answer.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The value that a metric takes from a `T`.
enum Value<T> {
    /// A count, which only grows.
    Count(fn(&T) -> u64),
    /// A sum, which only grows.
    Sum(fn(&T) -> f64),
    /// The value now.
    Now(fn(&T) -> u64),
    /// The same, as a fraction.
    Level(fn(&T) -> f64),
    /// A distribution of durations.
    Durations(fn(&T) -> &Latency),
}

/// A metric.
struct Figure<T: 'static> {
    name: &'static str,
    help: &'static str,
    value: Value<T>,
}

/// A label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What the label describes, where another label has the same name.
    of: &'static str,
    /// Its values, for people: Markdown.
    pub values: &'static str,
}

impl Label {
    const fn new(name: &'static str, values: &'static str) -> Self {
        Self { name, of: "", values }
    }
}

const VERSION: Label = Label::new("version", "the version of the command");
const ROLE: Label = Label::new("role", "`serve`, `memory-node`, `worker`, `scheduler`");
const KIND_OF_COMMANDS: Label = Label { name: "kind", of: " of commands", values: "`read`, `write`" };
const KIND_OF_OPERATIONS: Label =
    Label { name: "kind", of: " of operations of the fabric", values: "`read`, `write`, `atomic`, `message`" };
const LEVEL: Label = Label::new("level", "the level's number, from 0 on");
const TIER: Label = Label::new("tier", "where the options have the level: `memory`, `storage`");
const PLACE: Label = Label::new(
    "place",
    "where compactions were done: `compute` (the compute node), `memory` (the memory node), `pool` (a worker)",
);
const CAUSE: Label = Label::new(
    "cause",
    "`memtables`, `level0_slowdown`, `level0_stop`, `collection`, `memory_full`, `moved_bound`: \
     [what helps](../operating/tuning.md#stalls-by-cause)",
);
const TRAFFIC: Label =
    Label::new("traffic", "`foreground`: callers waited for it; `background`: flushes, compactions and upkeep");
const CACHE: Label = Label::new(
    "cache",
    "`index`: point indexes of tables; `block`: blocks read from storage; `memory`: the same in memory nodes, for what \
     `block` has let go",
);
const NODE: Label = Label::new(
    "node",
    "of a server, the place of the memory node in `--memory`, from 0 on; of a memory node, its `--node`",
);
const STATE: Label = Label::new(
    "state",
    "`free`, `leased`, `adopted`, `kept`, `jobs`, `recycling`: [what they mean](../operating/admin-page.md)",
);
const TENANT: Label = Label::new("tenant", "the tenant's name");
const OUTCOME: Label = Label::new(
    "outcome",
    "`admitted`, and [why others were not](../operating/shared-node.md#what-strangers-cost): `refused`, `shown_out`, \
     `late`, `crowded`, `withdrawn`",
);

/// A thing, and the values of its labels.
type Labelled<'a, T> = (Vec<String>, &'a T);

/// Metrics of things of one kind.
struct Things<T: 'static> {
    /// What the things are, for people.
    title: &'static str,
    labels: &'static [Label],
    of: for<'a> fn(&'a Status) -> Vec<Labelled<'a, T>>,
    figures: &'static [Figure<T>],
}

/// A group of metrics with the same labels.
trait Group: Sync {
    fn families(&self, status: &Status) -> Vec<MetricFamily>;
    fn title(&self) -> &'static str;
    fn labels(&self) -> &'static [Label];
    /// Name, type and help of each metric.
    fn descriptions(&self) -> Vec<(&'static str, &'static str, &'static str)>;
}

impl<T> Value<T> {
    const fn kind(&self) -> (MetricType, &'static str) {
        match self {
            Self::Count(_) | Self::Sum(_) => (MetricType::COUNTER, "counter"),
            Self::Now(_) | Self::Level(_) => (MetricType::GAUGE, "gauge"),
            Self::Durations(_) => (MetricType::HISTOGRAM, "histogram"),
        }
    }

    fn metric(&self, labels: Vec<LabelPair>, thing: &T) -> Metric {
        let mut metric = Metric::from_label(labels);
        match self {
            Self::Count(count) => metric.set_counter(counter_of(count(thing) as f64)),
            Self::Sum(sum) => metric.set_counter(counter_of(sum(thing))),
            Self::Now(now) => metric.set_gauge(gauge_of(now(thing) as f64)),
            Self::Level(level) => metric.set_gauge(gauge_of(level(thing))),
            Self::Durations(durations) => metric.set_histogram(histogram_of(durations(thing))),
        }
        metric
    }
}

fn counter_of(value: f64) -> Counter {
    let mut counter = Counter::default();
    counter.set_value(value);
    counter
}

fn gauge_of(value: f64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    gauge
}

fn histogram_of(latency: &Latency) -> Histogram {
    let mut histogram = Histogram::default();
    let mut below = 0;
    let mut buckets = Vec::new();
    for bucket in &latency.buckets {
        below += bucket.count;
        // The bucket without a bound holds the total, which the encoder adds.
        if let Some(most) = bucket.most_seconds {
            let mut made = Bucket::default();
            made.set_upper_bound(most);
            made.set_cumulative_count(below);
            buckets.push(made);
        }
    }
    histogram.set_bucket(buckets);
    histogram.set_sample_count(below);
    histogram.set_sample_sum(latency.seconds);
    histogram
}

impl<T> Group for Things<T> {
    fn families(&self, status: &Status) -> Vec<MetricFamily> {
        let things = (self.of)(status);
        if things.is_empty() {
            return Vec::new();
        }
        let pair = |(label, value): (&Label, &String)| {
            let mut pair = LabelPair::default();
            pair.set_name(label.name.to_owned());
            pair.set_value(value.clone());
            pair
        };
        let family = |figure: &Figure<T>| {
            let metric = |(values, thing): &Labelled<'_, T>| {
                figure.value.metric(self.labels.iter().zip(values).map(pair).collect(), thing)
            };
            let mut family = MetricFamily::default();
            family.set_name(figure.name.to_owned());
            family.set_help(figure.help.to_owned());
            family.set_field_type(figure.value.kind().0);
            family.set_metric(things.iter().map(metric).collect());
            family
        };
        self.figures.iter().map(family).collect()
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn labels(&self) -> &'static [Label] {
        self.labels
    }

    fn descriptions(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        self.figures.iter().map(|figure| (figure.name, figure.value.kind().1, figure.help)).collect()
    }
}

const fn count<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Figure<T> {
    Figure { name, help, value: Value::Count(value) }
}

const fn sum<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Figure<T> {
    Figure { name, help, value: Value::Sum(value) }
}

const fn now<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Figure<T> {
    Figure { name, help, value: Value::Now(value) }
}

const fn level<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Figure<T> {
    Figure { name, help, value: Value::Level(value) }
}

/// One thing without labels, if it exists.
fn single<T>(thing: Option<&T>) -> Vec<Labelled<'_, T>> {
    thing.map(|thing| (Vec::new(), thing)).into_iter().collect()
}

/// Parts of the database, each with its labels.
fn parts<'a, T>(
    status: &'a Status,
    of: impl Fn(&'a Database) -> &'a [T],
    label: impl Fn(usize, &T) -> Vec<String>,
) -> Vec<Labelled<'a, T>> {
    let parts = status.database.as_ref().map(of).unwrap_or_default();
    parts.iter().enumerate().map(|(place, part)| (label(place, part), part)).collect()
}

const BUILD: Things<Process> = Things {
    title: "The build",
    labels: &[VERSION, ROLE],
    of: |status| vec![(vec![status.process.version.clone(), status.process.role.clone()], &status.process)],
    figures: &[now("forebay_build_info", "Always 1; the labels say what runs.", |_| 1)],
};

const PROCESS: Things<Process> = Things {
    title: "The process",
    labels: &[],
    of: |status| vec![(Vec::new(), &status.process)],
    figures: &[
        now("forebay_ready", "1 if the process does what it is for, else 0.", |process| {
            process.not_ready.is_empty().into()
        }),
        level("process_start_time_seconds", "When the process started, since 1970.", |process| process.started_seconds),
        sum("process_cpu_seconds_total", "Processor time of all threads.", |process| process.cpu_seconds),
        now("process_resident_memory_bytes", "Physical memory of the process.", |process| process.resident_bytes),
    ],
};

const CLIENTS: Things<Clients> = Things {
    title: "Clients of `forebay serve`",
    labels: &[],
    of: |status| single(status.clients.as_ref()),
    figures: &[
        now("forebay_clients", "Connected clients.", |clients| clients.connected),
        now("forebay_blocked_clients", "Clients that wait in a command that blocks.", |clients| clients.blocked),
        count("forebay_client_connections_total", "Connections accepted.", |clients| clients.connections),
        count("forebay_client_connections_rejected_total", "Connections turned away.", |clients| clients.rejected),
        count("forebay_commands_total", "Commands carried out.", |clients| clients.commands),
        count("forebay_command_errors_total", "Error replies.", |clients| clients.errors),
        count("forebay_client_received_bytes_total", "Bytes of requests.", |clients| clients.received_bytes),
        count("forebay_client_sent_bytes_total", "Bytes of replies.", |clients| clients.sent_bytes),
        count("forebay_keyspace_hits_total", "Keys looked up and found.", |clients| clients.hits),
        count("forebay_keyspace_misses_total", "Keys looked up and not found.", |clients| clients.misses),
        count("forebay_expired_keys_total", "Keys that expired and were removed.", |clients| clients.expired),
    ],
};

const LATENCIES: Things<Latency> = Things {
    title: "Durations of commands, in the server",
    labels: &[KIND_OF_COMMANDS],
    of: |status| {
        let latencies = status.clients.iter().flat_map(|clients| &clients.latencies);
        latencies.map(|latency| (vec![latency.kind.clone()], latency)).collect()
    },
    figures: &[Figure {
        name: "forebay_command_duration_seconds",
        help: "How long commands took, from the lock of their keys to the end of their batch.",
        value: Value::Durations(|latency| latency),
    }],
};

const DATABASE: Things<Database> = Things {
    title: "The database",
    labels: &[],
    of: |status| single(status.database.as_ref()),
    figures: &[
        now("forebay_shards", "Shards.", |database| database.shards),
        now("forebay_failed_shards", "Shards whose background work has failed for good.", |database| {
            database.failed_shards
        }),
        now(
            "forebay_missing_copies",
            "Copies of shards that are missing, because memory nodes were lost.",
            |database| database.missing_copies,
        ),
        now("forebay_snapshots", "Snapshots that are held.", |database| database.snapshots),
        now("forebay_table_entries", "Index entries of tables; a key may have several.", |database| database.entries),
        now("forebay_sealed_memtables", "Memtables that wait for their flush.", |database| database.sealed_memtables),
        now("forebay_running_flushes", "Flushes that run.", |database| database.running_flushes),
        now("forebay_running_compactions", "Compactions that run.", |database| database.running_compactions),
        now("forebay_memtable_bytes", "Bytes of memtables.", |database| database.memtable_bytes),
        now("forebay_cached_index_bytes", "Bytes of the cached indexes of tables.", |database| {
            database.cached_index_bytes
        }),
        now("forebay_live_bytes", "Bytes of records that tables reference.", |database| database.live_bytes),
        now("forebay_remote_bytes", "Bytes that the database has on memory nodes.", |database| database.remote_bytes),
        now("forebay_dead_bytes", "Bytes of dead records that are not freed yet.", |database| database.dead_bytes),
        now("forebay_pinned_bytes", "Bytes that only earlier versions name, which readers hold.", |database| {
            database.pinned_bytes
        }),
        count("forebay_flushes_total", "Memtables flushed.", |database| database.flushes),
        count(
            "forebay_damaged_copies_total",
            "Damaged places found in copies in memory; one that no copy has whole counts each time.",
            |database| database.damaged_copies,
        ),
        count("forebay_mended_copies_total", "Damaged places that were written anew from another copy.", |database| {
            database.mended_copies
        }),
        count("forebay_scrubbed_bytes_total", "Bytes of copies in memory that scrubs have looked at.", |database| {
            database.scrubbed_bytes
        }),
        count(
            "forebay_refused_compactions_total",
            "Compactions refused where they should have been done.",
            |database| database.refused_compactions,
        ),
        count("forebay_compaction_entries_total", "Index entries that compactions read.", |database| {
            database.compaction_entries
        }),
        count("forebay_compaction_read_bytes_total", "Bytes that compactions read, at any place.", |database| {
            database.compaction_read_bytes
        }),
        count("forebay_compaction_written_bytes_total", "Bytes that compactions wrote, at any place.", |database| {
            database.compaction_written_bytes
        }),
        count("forebay_log_groups_total", "Shipments of the log of writes.", |database| database.log.groups),
        count("forebay_log_bytes_total", "Bytes of records that were logged.", |database| database.log.bytes),
        count("forebay_log_records_total", "Records that were logged.", |database| database.log.records),
        count("forebay_log_waits_total", "Writers that waited for another one's shipment.", |database| {
            database.log.waits
        }),
        now(
            "forebay_log_lag_bytes",
            "Bytes of memtables that were flushed, and whose tables storage does not have yet.",
            |database| database.log.lag_bytes,
        ),
        count("forebay_storage_objects_read_total", "Objects read from storage.", |database| database.objects.read),
        count("forebay_storage_objects_written_total", "Objects written to storage.", |database| {
            database.objects.written
        }),
        count("forebay_storage_objects_deleted_total", "Objects deleted from storage.", |database| {
            database.objects.deleted
        }),
        count("forebay_storage_failed_deletions_total", "Deletions of objects in storage that failed.", |database| {
            database.objects.failed_deletions
        }),
        count("forebay_storage_read_bytes_total", "Bytes read from storage.", |database| database.objects.read_bytes),
        count("forebay_storage_written_bytes_total", "Bytes of objects written to storage.", |database| {
            database.objects.written_bytes
        }),
        count("forebay_storage_syncs_total", "Syncs of files and folders in storage.", |database| {
            database.objects.syncs
        }),
        count("forebay_bound_moves_total", "Bounds between shards that were moved.", |database| database.bound_moves),
    ],
};

const LEVELS: Things<Level> = Things {
    title: "Levels of the tree",
    labels: &[LEVEL, TIER],
    of: |status| parts(status, |database| &database.levels, |place, level| vec![place.to_string(), level.tier.clone()]),
    figures: &[
        now("forebay_level_tables", "Tables of the level.", |level| level.tables),
        now("forebay_level_runs", "Runs in key order of the level.", |level| level.runs),
        now("forebay_level_entries", "Index entries of the level.", |level| level.entries),
        now("forebay_level_bytes", "Bytes of records that the level's tables reference.", |level| level.bytes),
    ],
};

const COMPACTIONS: Things<Compactions> = Things {
    title: "Compactions, by place",
    labels: &[PLACE],
    of: |status| parts(status, |database| &database.compactions, |_, done| vec![done.place.clone()]),
    figures: &[count("forebay_compactions_total", "Compactions done at the place.", |done| done.count)],
};

const STALLS: Things<Stalls> = Things {
    title: "Stalls of writers, by cause",
    labels: &[CAUSE],
    of: |status| parts(status, |database| &database.stalls, |_, stalls| vec![stalls.cause.clone()]),
    figures: &[
        count("forebay_stalls_total", "Times that a writer waited.", |stalls| stalls.count),
        sum("forebay_stall_seconds_total", "Time that writers waited, summed over them.", |stalls| stalls.seconds),
    ],
};

const TREE: Things<SharedTree> = Things {
    title: "The shared tree of `forebay serve --engine tree`",
    labels: &[],
    of: |status| single(status.tree.as_ref()),
    figures: &[
        now("forebay_tree_keys", "Keys of clients.", |tree| tree.keys),
        now("forebay_tree_used_bytes", "Bytes of memory nodes that the tree has used at some time.", |tree| {
            tree.used_bytes
        }),
        now("forebay_tree_live_bytes", "Bytes of its nodes and values.", |tree| tree.live_bytes),
        now("forebay_tree_cached_bytes", "Bytes of inner nodes that the server remembers.", |tree| tree.cached_bytes),
        count("forebay_tree_journals_total", "Batches that had a journal.", |tree| tree.journals),
        now("forebay_tree_unfinished_batches", "Batches that count and are not applied yet.", |tree| tree.unfinished),
    ],
};

const FABRIC: Things<Fabric> = Things {
    title: "The fabric, by who waits",
    labels: &[TRAFFIC],
    of: |status| status.fabric().map(|fabric| (vec![fabric.traffic.clone()], fabric)).collect(),
    figures: &[
        count("forebay_fabric_round_trips_total", "Round trips that a thread waited for.", |fabric| fabric.round_trips),
        count("forebay_fabric_read_bytes_total", "Bytes that came from memory nodes.", |fabric| fabric.read_bytes),
        count("forebay_fabric_written_bytes_total", "Bytes that went to memory nodes.", |fabric| fabric.written_bytes),
    ],
};

const OPERATIONS: Things<Operations> = Things {
    title: "Operations of the fabric",
    labels: &[TRAFFIC, KIND_OF_OPERATIONS],
    of: |status| {
        let labelled = |(traffic, of): (&Fabric, _)| -> Labelled<'_, Operations> {
            let of: &Operations = of;
            (vec![traffic.traffic.clone(), of.kind.clone()], of)
        };
        status
            .fabric()
            .flat_map(|traffic| traffic.operations.iter().map(move |of| (traffic, of)))
            .map(labelled)
            .collect()
    },
    figures: &[count("forebay_fabric_operations_total", "Operations posted, by kind.", |of| of.count)],
};

const CACHES: Things<Cache> = Things {
    title: "Caches",
    labels: &[CACHE],
    of: |status| parts(status, |database| &database.caches, |_, cache| vec![cache.cache.clone()]),
    figures: &[
        count("forebay_cache_hits_total", "What was wanted and there.", |cache| cache.hits),
        count("forebay_cache_misses_total", "What was wanted and not there.", |cache| cache.misses),
    ],
};

const REACH: Things<bool> = Things {
    title: "Whether memory nodes answer",
    labels: &[NODE],
    of: |status| {
        let there = status.memory_nodes.iter().map(|node| (vec![node.node.clone()], &true));
        there.chain(status.lost_nodes.iter().map(|node| (vec![node.node.clone()], &false))).collect()
    },
    figures: &[now(
        "forebay_memory_node_up",
        "1 for a node that answers, 0 for one that does not. With several copies in memory, such a node is left out.",
        |is_up| u64::from(*is_up),
    )],
};

const NODES: Things<MemoryNode> = Things {
    title: "Memory nodes",
    labels: &[NODE],
    of: |status| status.memory_nodes.iter().map(|node| (vec![node.node.clone()], node)).collect(),
    figures: &[
        level("forebay_memory_node_uptime_seconds", "Time since the node started.", |node| node.uptime_seconds),
        sum("forebay_memory_node_cpu_seconds_total", "Processor time of the node.", |node| node.cpu_seconds),
        now("forebay_memory_node_memory_bytes", "Memory that the node offers.", |node| node.memory_bytes),
        now("forebay_memory_node_allocated_bytes", "Memory that is handed out.", |node| node.allocated_bytes),
        now("forebay_memory_node_live_bytes", "Memory that shards own.", |node| node.live_bytes),
        now("forebay_memory_node_sessions", "Sessions.", |node| node.sessions),
        now("forebay_memory_node_stores", "Stores.", |node| node.stores),
        now("forebay_memory_node_shards", "Shards.", |node| node.shards),
        now("forebay_memory_node_owned_shards", "Shards with an owner.", |node| node.owned_shards),
        now("forebay_memory_node_queued_jobs", "Jobs that wait for a thread.", |node| node.queued_jobs),
        now("forebay_memory_node_running_jobs", "Jobs that run.", |node| node.running_jobs),
        count("forebay_memory_node_completed_jobs_total", "Jobs that ended well.", |node| node.completed_jobs),
        count("forebay_memory_node_failed_jobs_total", "Jobs that failed or were fenced.", |node| node.failed_jobs),
        count("forebay_memory_node_calls_total", "Calls answered, refusals included.", |node| node.calls),
        count("forebay_memory_node_refused_calls_total", "Calls refused.", |node| node.refused_calls),
        count("forebay_memory_node_malformed_messages_total", "Messages that were no requests.", |node| {
            node.malformed_messages
        }),
        count("forebay_memory_node_lapsed_sessions_total", "Sessions that lapsed.", |node| node.lapsed_sessions),
    ],
};

const EXTENTS: Things<Extents> = Things {
    title: "Memory of memory nodes, by state",
    labels: &[NODE, STATE],
    of: |status| {
        let nodes = status.memory_nodes.iter();
        let extents = nodes.flat_map(|node| node.extents.iter().map(move |extents| (node, extents)));
        extents.map(|(node, extents)| (vec![node.node.clone(), extents.state.clone()], extents)).collect()
    },
    figures: &[now("forebay_memory_node_extent_bytes", "Bytes of extents in this state.", |extents| extents.bytes)],
};

const TENANTS: Things<Tenant> = Things {
    title: "Tenants of a memory node",
    labels: &[TENANT],
    of: |status| status.tenants.iter().map(|tenant| (vec![tenant.name.clone()], tenant)).collect(),
    figures: &[
        now("forebay_tenant_weight", "Share of the node's time, beside those of the others.", |tenant| tenant.weight),
        now("forebay_tenant_memory_bytes", "Memory that the tenant has.", |tenant| tenant.memory_bytes),
        now("forebay_tenant_most_memory_bytes", "Memory that it may have.", |tenant| tenant.most_memory_bytes),
        now("forebay_tenant_reserve_bytes", "Memory that it owes the reserve.", |tenant| tenant.reserve_bytes),
        now("forebay_tenant_links", "Links.", |tenant| tenant.links),
        now("forebay_tenant_endpoints", "Endpoints, over all links.", |tenant| tenant.endpoints),
        level("forebay_tenant_most_endpoints", "Endpoints that it may have; infinite without a limit.", |tenant| {
            tenant.most_endpoints.map_or(f64::INFINITY, |most| most as f64)
        }),
        now("forebay_tenant_sessions", "Sessions.", |tenant| tenant.sessions),
        now("forebay_tenant_stores", "Stores.", |tenant| tenant.stores),
        now("forebay_tenant_shards", "Shards.", |tenant| tenant.shards),
        now("forebay_tenant_keys", "Keys to extents.", |tenant| tenant.keys),
        now("forebay_tenant_ranges", "Outputs of jobs.", |tenant| tenant.ranges),
        now("forebay_tenant_jobs", "Jobs that wait or run.", |tenant| tenant.jobs),
        now("forebay_tenant_waiting_calls", "Calls that wait for their turn.", |tenant| tenant.waiting_calls),
        count("forebay_tenant_calls_total", "Calls answered, refusals included.", |tenant| tenant.calls),
        count("forebay_tenant_refused_calls_total", "Calls refused.", |tenant| tenant.refused_calls),
        count("forebay_tenant_limited_calls_total", "Calls refused because of a limit.", |tenant| tenant.limited_calls),
        count(
            "forebay_tenant_denied_calls_total",
            "Calls refused because they were for another tenant, or for who administers the node.",
            |tenant| tenant.denied_calls,
        ),
        count("forebay_tenant_malformed_messages_total", "Messages that were no requests.", |tenant| {
            tenant.malformed_messages
        }),
        count("forebay_tenant_lapsed_sessions_total", "Sessions that lapsed.", |tenant| tenant.lapsed_sessions),
        count("forebay_tenant_closed_links_total", "Links that the node closed.", |tenant| tenant.closed_links),
        count("forebay_tenant_completed_jobs_total", "Jobs that ended well.", |tenant| tenant.completed_jobs),
        count("forebay_tenant_failed_jobs_total", "Jobs that failed or were fenced.", |tenant| tenant.failed_jobs),
        count("forebay_tenant_moved_bytes_total", "Bytes of arguments and results.", |tenant| tenant.moved_bytes),
        sum("forebay_tenant_busy_seconds_total", "Time that its calls and jobs took.", |tenant| tenant.busy_seconds),
    ],
};

const DOOR: Things<Visitors> = Things {
    title: "Connections to a memory node, by what became of them",
    labels: &[OUTCOME],
    of: |status| status.door.iter().map(|visitors| (vec![visitors.outcome.clone()], visitors)).collect(),
    figures: &[count("forebay_connections_total", "Connections with this outcome.", |visitors| visitors.count)],
};

const WORKER: Things<Worker> = Things {
    title: "A worker",
    labels: &[],
    of: |status| single(status.worker.as_ref()),
    figures: &[
        count("forebay_worker_completed_attempts_total", "Attempts at jobs that went well.", |worker| worker.completed),
        count("forebay_worker_failed_attempts_total", "Attempts that failed or were stopped.", |worker| worker.failed),
        count("forebay_worker_read_bytes_total", "Bytes read by jobs.", |worker| worker.read_bytes),
        count("forebay_worker_written_bytes_total", "Bytes written by jobs.", |worker| worker.written_bytes),
        now("forebay_worker_known", "1 if a scheduler has heard of the worker, else 0.", |worker| {
            worker.is_known.into()
        }),
    ],
};

const SCHEDULER: Things<Scheduler> = Things {
    title: "A scheduler",
    labels: &[],
    of: |status| single(status.scheduler.as_ref()),
    figures: &[
        now("forebay_scheduler_elected", "1 if the scheduler is elected, else 0.", |scheduler| {
            scheduler.term.is_some().into()
        }),
        now("forebay_scheduler_term", "The term in which it schedules; 0 if it is not elected.", |scheduler| {
            scheduler.term.unwrap_or(0)
        }),
    ],
};

/// The table.
static GROUPS: &[&dyn Group] = &[
    &BUILD,
    &PROCESS,
    &CLIENTS,
    &LATENCIES,
    &DATABASE,
    &LEVELS,
    &COMPACTIONS,
    &STALLS,
    &TREE,
    &FABRIC,
    &OPERATIONS,
    &CACHES,
    &REACH,
    &NODES,
    &EXTENTS,
    &TENANTS,
    &DOOR,
    &WORKER,
    &SCHEDULER,
];

/// A status in the text format of Prometheus.
#[must_use]
pub fn text(status: &Status) -> String {
    encoded(GROUPS, status)
}

/// The same for a memory node's tenants and its visitors alone.
#[must_use]
pub fn tenants_text(tenants: Vec<Tenant>, door: Vec<Visitors>) -> String {
    encoded(&[&TENANTS, &DOOR], &Status { tenants, door, ..Status::default() })
}

fn encoded(groups: &[&dyn Group], status: &Status) -> String {
    let families: Vec<MetricFamily> = groups.iter().flat_map(|group| group.families(status)).collect();
    let mut text = Vec::new();
    // Writing into memory cannot fail, and no family is empty.
    let _ = TextEncoder::new().encode(&families, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Names of all metrics.
pub fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.descriptions()).map(|(name, _, _)| name)
}

/// All labels.
#[must_use]
pub fn labels() -> Vec<Label> {
    let mut labels = Vec::new();
    for label in GROUPS.iter().flat_map(|group| group.labels()) {
        if !labels.contains(label) {
            labels.push(*label);
        }
    }
    labels
}

/// The tables, for people: Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for group in GROUPS {
        let labels: Vec<String> = group.labels().iter().map(|label| format!("`{}`", label.name)).collect();
        let _ = write!(text, "\n### {}\n\n", group.title());
        if !labels.is_empty() {
            let _ = write!(text, "Labels: {}.\n\n", labels.join(", "));
        }
        text.push_str("| metric | type | meaning |\n|---|---|---|\n");
        for (name, kind, help) in group.descriptions() {
            let _ = writeln!(text, "| `{name}` | {kind} | {help} |");
        }
    }
    text.push_str("\n## Values of labels\n\n| label | values |\n|---|---|\n");
    for Label { name, of, values } in labels() {
        let _ = writeln!(text, "| `{name}`{of} | {values} |");
    }
    text
}
