//! `INFO`: figures in the sections that tools read.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{LOADING, STALE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::connection::REDIS_VERSION;
use crate::keyspace::failure::Outcome;
use crate::state::channels::Topic;
use crate::state::counters::Count;
use forebay_env::process;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::alone(Family::Server, "info", -1, LOADING | STALE, info)
    .doc("1.0.0", "Returns information and statistics about the server.")];

/// What writes a section.
type Section = fn(&Context<'_, '_>, &mut String);

/// Sections in their order; the flag says whether they are shown by default.
const SECTIONS: &[(&str, bool, Section)] = &[
    ("server", true, server),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, persistence),
    ("stats", true, statistics),
    ("replication", true, replication),
    ("cpu", true, cpu),
    ("modules", true, nothing),
    ("commandstats", false, commands),
    ("errorstats", true, errors),
    ("latencystats", false, latencies),
    ("cluster", true, cluster),
    ("keyspace", true, keyspace),
];

fn info(cx: &mut Context<'_, '_>, arguments: Arguments<'_>) -> Outcome {
    let is_asked = |name: &str, by_default: bool| {
        let named = |word: &[u8]| {
            let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
            is(name) || is("all") || is("everything") || (by_default && is("default"))
        };
        if arguments.len() == 1 { by_default } else { arguments.from(1).iter().any(|word| named(word)) }
    };
    let mut text = String::new();
    for (name, by_default, write) in SECTIONS {
        if is_asked(name, *by_default) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let (first, rest) = name.split_at(1);
            let title = match *name {
                "cpu" => "CPU".to_owned(),
                _ => first.to_ascii_uppercase() + rest,
            };
            let _ = write!(text, "# {title}\r\n");
            write(cx, &mut text);
        }
    }
    cx.out.verbatim(&text);
    Ok(())
}

fn put(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn nothing(_: &Context<'_, '_>, _: &mut String) {}

fn server(cx: &Context<'_, '_>, text: &mut String) {
    let shared = cx.shared;
    let uptime = cx.keys.now_ms().saturating_sub(shared.started_ms) / 1000;
    put(text, "redis_version", REDIS_VERSION);
    put(text, "redis_mode", "standalone");
    put(text, "forebay_version", env!("CARGO_PKG_VERSION"));
    put(text, "os", std::env::consts::OS);
    put(text, "arch_bits", usize::BITS);
    put(text, "multiplexing_api", "epoll");
    put(text, "process_id", std::process::id());
    put(text, "run_id", &shared.run_id);
    put(text, "tcp_port", shared.address.port());
    put(text, "server_time_usec", cx.keys.now_ms() * 1000);
    put(text, "uptime_in_seconds", uptime);
    put(text, "uptime_in_days", uptime / 86_400);
    put(text, "hz", 10);
    put(text, "io_threads_active", u8::from(shared.threads > 1));
}

fn clients(cx: &Context<'_, '_>, text: &mut String) {
    put(text, "connected_clients", cx.shared.clients.count());
    put(text, "maxclients", cx.shared.config.number("maxclients"));
    put(text, "blocked_clients", cx.shared.waiting.count());
    put(text, "tracking_clients", 0);
}

fn memory(cx: &Context<'_, '_>, text: &mut String) {
    let statistics = cx.shared.store.statistics();
    put(text, "used_memory", statistics.remote_bytes);
    put(text, "used_memory_human", in_mebibytes(statistics.remote_bytes));
    if let Some(resident_bytes) = process::resident_bytes() {
        put(text, "used_memory_rss", resident_bytes);
        put(text, "used_memory_rss_human", in_mebibytes(resident_bytes));
    }
    put(text, "maxmemory", 0);
    put(text, "maxmemory_human", "0B");
    put(text, "maxmemory_policy", "noeviction");
}

fn in_mebibytes(bytes: u64) -> String {
    format!("{:.2}M", bytes as f64 / 1_048_576.0)
}

fn persistence(cx: &Context<'_, '_>, text: &mut String) {
    put(text, "loading", 0);
    put(text, "rdb_changes_since_last_save", 0);
    put(text, "rdb_bgsave_in_progress", 0);
    put(text, "rdb_last_save_time", cx.shared.saved_ms.load(Ordering::Relaxed) / 1000);
    put(text, "rdb_last_bgsave_status", "ok");
    let store = &cx.shared.store;
    put(text, "aof_enabled", u8::from(store.has_log()));
    put(text, "aof_rewrite_in_progress", 0);
    put(text, "aof_last_write_status", if store.log_failure().is_none() { "ok" } else { "err" });
}

fn statistics(cx: &Context<'_, '_>, text: &mut String) {
    let counts = &cx.shared.counts;
    for (name, count) in [
        ("total_connections_received", Count::Connections),
        ("total_commands_processed", Count::Commands),
        ("total_net_input_bytes", Count::ReceivedBytes),
        ("total_net_output_bytes", Count::SentBytes),
        ("rejected_connections", Count::Rejected),
        ("expired_keys", Count::Expired),
        ("keyspace_hits", Count::Hits),
        ("keyspace_misses", Count::Misses),
        ("total_error_replies", Count::Errors),
    ] {
        put(text, name, counts.of(count));
    }
    put(text, "evicted_keys", 0);
    let flow = counts.per_second();
    put(text, "instantaneous_ops_per_sec", flow.commands);
    for (name, bytes) in [("input", flow.received_bytes), ("output", flow.sent_bytes)] {
        put(text, &format!("instantaneous_{name}_kbps"), format_args!("{:.2}", bytes as f64 / 1024.0));
    }
    for (name, topic) in [("channels", Topic::Channel), ("patterns", Topic::Pattern)] {
        put(text, &format!("pubsub_{name}"), cx.shared.channels.names(topic).len());
    }
}

fn replication(cx: &Context<'_, '_>, text: &mut String) {
    put(text, "role", "master");
    put(text, "connected_slaves", 0);
    put(text, "master_replid", &cx.shared.run_id);
    put(text, "master_repl_offset", 0);
}

fn cpu(_: &Context<'_, '_>, text: &mut String) {
    if let Some((system, user)) = process::processor_seconds() {
        put(text, "used_cpu_sys", format_args!("{system:.6}"));
        put(text, "used_cpu_user", format_args!("{user:.6}"));
    }
}

fn commands(cx: &Context<'_, '_>, text: &mut String) {
    for (name, counted) in cx.registry.counted(cx.shared) {
        let calls = counted.calls();
        if calls + counted.rejected > 0 {
            let counts = format_args!(
                "calls={calls},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}",
                counted.nanos / 1000,
                counted.nanos as f64 / 1000.0 / calls.max(1) as f64,
                counted.rejected,
                counted.failed,
            );
            put(text, &format!("cmdstat_{name}"), counts);
        }
    }
}

fn errors(cx: &Context<'_, '_>, text: &mut String) {
    for (code, count) in cx.shared.counts.errors_by_code() {
        put(text, &format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latencies(cx: &Context<'_, '_>, text: &mut String) {
    for (name, counted) in cx.registry.counted(cx.shared) {
        let Some(percentiles) = counted.percentiles([500, 990, 999]) else { continue };
        let [half, most, nearly_all] = percentiles.map(|nanos| nanos as f64 / 1000.0);
        let shown = format_args!("p50={half:.3},p99={most:.3},p99.9={nearly_all:.3}");
        put(text, &format!("latency_percentiles_usec_{name}"), shown);
    }
}

fn cluster(_: &Context<'_, '_>, text: &mut String) {
    put(text, "cluster_enabled", 0);
}

fn keyspace(cx: &Context<'_, '_>, text: &mut String) {
    for (database, space) in cx.keys.databases().iter().enumerate() {
        let (_, expiring) = cx.shared.spaces.counts(*space);
        let keys = cx.keys.size(*space);
        if keys > 0 {
            put(text, &format!("db{database}"), format_args!("keys={keys},expires={expiring}"));
        }
    }
}
