//! `INFO`: figures in the sections that tools read.

use crate::commands::arguments::Arguments;
use crate::commands::command::flags::{LOADING, STALE};
use crate::commands::command::{Command, Context, Family};
use crate::commands::connection::REDIS_VERSION;
use crate::keyspace::failure::Outcome;
use crate::state::channels::Topic;
use crate::state::clients::Described;
use crate::state::counters::Count;
use crate::text::shown;
use forebay_env::process;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command::alone(Family::Server, "info", -1, LOADING | STALE, info)
    .doc("1.0.0", "Returns information and statistics about the server.")];

/// A function that writes a section.
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

/// Writes zeros for counts of what never happens here.
fn put_zeros(text: &mut String, names: &[&str]) {
    names.iter().for_each(|name| put(text, name, 0));
}

/// Writes a number of bytes, and the same for people.
fn put_bytes(text: &mut String, name: &str, bytes: u64) {
    put(text, name, bytes);
    put(text, &format!("{name}_human"), for_people(bytes));
}

fn for_people(bytes: u64) -> String {
    let units = (0u32..).zip(["B", "K", "M", "G", "T", "P"]);
    match units.take_while(|(power, _)| bytes >> (10 * power) > 0).last() {
        None | Some((0, _)) => format!("{bytes}B"),
        Some((power, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << (10 * power)) as f64),
    }
}

fn percentage(part: u64, whole: u64) -> String {
    format!("{:.2}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

fn nothing(_: &Context<'_, '_>, _: &mut String) {}

fn server(cx: &Context<'_, '_>, text: &mut String) {
    let shared = cx.shared;
    let uptime = cx.keys.now_ms().saturating_sub(shared.started_ms) / 1000;
    put(text, "redis_version", REDIS_VERSION);
    put(text, "redis_mode", "standalone");
    put(text, "forebay_version", env!("CARGO_PKG_VERSION"));
    put(text, "forebay_engine", shared.store.engine());
    put(text, "os", process::system());
    put(text, "arch_bits", usize::BITS);
    put(text, "monotonic_clock", "POSIX clock_gettime");
    put(text, "multiplexing_api", "epoll");
    put(text, "process_id", std::process::id());
    put(text, "process_supervised", "no");
    put(text, "run_id", &shared.run_id);
    put(text, "tcp_port", shared.address.port());
    put(text, "server_time_usec", cx.keys.now_ms() * 1000);
    put(text, "uptime_in_seconds", uptime);
    put(text, "uptime_in_days", uptime / 86_400);
    put(text, "hz", 10);
    put(text, "configured_hz", 10);
    let shown = |path: Option<&Path>| {
        path.map_or_else(String::new, |path| shown::short(path.as_os_str().as_bytes(), usize::MAX))
    };
    put(text, "executable", shown(std::env::current_exe().ok().as_deref()));
    put(text, "config_file", shown(shared.config.path()));
    put(text, "io_threads_active", u8::from(shared.threads > 1));
}

fn clients(cx: &Context<'_, '_>, text: &mut String) {
    let all = cx.shared.clients.all();
    let most = |of: fn(&Described) -> usize| all.iter().map(|client| of(&client.described())).max().unwrap_or(0);
    put(text, "connected_clients", all.len());
    put_zeros(text, &["cluster_connections"]);
    put(text, "maxclients", cx.shared.config.number("maxclients"));
    put(text, "client_recent_max_input_buffer", most(|described| described.request_bytes));
    put(text, "client_recent_max_output_buffer", most(|described| described.reply_bytes));
    put(text, "blocked_clients", cx.shared.waiting.count());
    put(text, "tracking_clients", cx.shared.tracking.totals().clients);
    put(text, "clients_in_timeout_table", cx.shared.waiting.with_time());
}

fn memory(cx: &Context<'_, '_>, text: &mut String) {
    let shared = cx.shared;
    let figures = shared.store.figures();
    let (used_bytes, peak_bytes) = shared.memory();
    put_bytes(text, "used_memory", used_bytes);
    if let Some(resident_bytes) = process::resident_bytes() {
        put_bytes(text, "used_memory_rss", resident_bytes);
    }
    put_bytes(text, "used_memory_peak", peak_bytes);
    put(text, "used_memory_peak_perc", percentage(used_bytes, peak_bytes));
    put(text, "used_memory_overhead", figures.local_bytes);
    put(text, "used_memory_startup", shared.started_bytes);
    put(text, "used_memory_dataset", figures.live_bytes);
    put(text, "used_memory_dataset_perc", percentage(figures.live_bytes, used_bytes));
    if let Some(machine_bytes) = process::machine_bytes() {
        put_bytes(text, "total_system_memory", machine_bytes);
    }
    // There is one machine for scripts and functions.
    let scripts = shared.scripts.use_of_memory();
    let machine_bytes = scripts.machine_bytes as u64;
    let (libraries, functions) = shared.scripts.counts();
    put(text, "used_memory_lua", machine_bytes);
    put(text, "used_memory_vm_eval", machine_bytes);
    put(text, "used_memory_lua_human", for_people(machine_bytes));
    put(text, "used_memory_scripts_eval", scripts.text_bytes);
    put(text, "number_of_cached_scripts", scripts.scripts);
    put(text, "number_of_functions", functions);
    put(text, "number_of_libraries", libraries);
    put_zeros(text, &["used_memory_vm_functions"]);
    put_bytes(text, "used_memory_vm_total", machine_bytes);
    put_bytes(text, "maxmemory", 0);
    put(text, "maxmemory_policy", "noeviction");
    put_zeros(
        text,
        &[
            "mem_not_counted_for_evict",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_clients_slaves",
        ],
    );
    put(text, "mem_clients_normal", shared.clients.held_bytes());
    put_zeros(text, &["mem_cluster_links", "mem_aof_buffer"]);
    if let Some(allocator) = shared.allocator {
        put(text, "mem_allocator", allocator);
    }
    put_zeros(text, &["active_defrag_running", "lazyfree_pending_objects", "lazyfreed_objects"]);
}

fn persistence(cx: &Context<'_, '_>, text: &mut String) {
    let store = &cx.shared.store;
    put_zeros(text, &["loading", "async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age"]);
    put(text, "current_fork_perc", "0.00");
    put_zeros(text, &["current_save_keys_processed", "current_save_keys_total"]);
    put_zeros(text, &["rdb_changes_since_last_save", "rdb_bgsave_in_progress"]);
    put(text, "rdb_last_save_time", cx.shared.saved_ms.load(Ordering::Relaxed) / 1000);
    put(text, "rdb_last_bgsave_status", "ok");
    put(text, "rdb_last_bgsave_time_sec", cx.shared.save_took_s.load(Ordering::Relaxed));
    put(text, "rdb_current_bgsave_time_sec", -1);
    put(text, "rdb_saves", cx.shared.counts.of(Count::Saves));
    put_zeros(text, &["rdb_last_cow_size", "rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"]);
    put(text, "aof_enabled", u8::from(store.has_log()));
    put_zeros(text, &["aof_rewrite_in_progress", "aof_rewrite_scheduled"]);
    put(text, "aof_last_rewrite_time_sec", -1);
    put(text, "aof_current_rewrite_time_sec", -1);
    put(text, "aof_last_bgrewrite_status", "ok");
    put_zeros(text, &["aof_rewrites", "aof_rewrites_consecutive_failures"]);
    put(text, "aof_last_write_status", if store.log_failure().is_none() { "ok" } else { "err" });
    put_zeros(text, &["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
}

fn statistics(cx: &Context<'_, '_>, text: &mut String) {
    let counts = &cx.shared.counts;
    let count = |text: &mut String, name: &str, count: Count| put(text, name, counts.of(count));
    let rate =
        |text: &mut String, name: &str, bytes: u64| put(text, name, format_args!("{:.2}", bytes as f64 / 1024.0));
    count(text, "total_connections_received", Count::Connections);
    count(text, "total_commands_processed", Count::Commands);
    let flow = counts.per_second();
    put(text, "instantaneous_ops_per_sec", flow.commands);
    count(text, "total_net_input_bytes", Count::ReceivedBytes);
    count(text, "total_net_output_bytes", Count::SentBytes);
    put_zeros(text, &["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    rate(text, "instantaneous_input_kbps", flow.received_bytes);
    rate(text, "instantaneous_output_kbps", flow.sent_bytes);
    rate(text, "instantaneous_input_repl_kbps", 0);
    rate(text, "instantaneous_output_repl_kbps", 0);
    count(text, "rejected_connections", Count::Rejected);
    put_zeros(text, &["sync_full", "sync_partial_ok", "sync_partial_err"]);
    count(text, "expired_keys", Count::Expired);
    put(text, "expire_cycle_cpu_milliseconds", counts.of(Count::ExpiryNanos) / 1_000_000);
    put_zeros(
        text,
        &["evicted_keys", "evicted_clients", "total_eviction_exceeded_time", "current_eviction_exceeded_time"],
    );
    // Those of this run are counted at its end.
    let (hits, misses) = cx.keys.looked_up();
    put(text, "keyspace_hits", counts.of(Count::Hits) + hits);
    put(text, "keyspace_misses", counts.of(Count::Misses) + misses);
    for (name, topic) in [
        ("pubsub_channels", Topic::Channel),
        ("pubsub_patterns", Topic::Pattern),
        ("pubsubshard_channels", Topic::Shard),
    ] {
        put(text, name, cx.shared.channels.names(topic).len());
    }
    put_zeros(text, &["latest_fork_usec", "total_forks", "migrate_cached_sockets", "slave_expires_tracked_keys"]);
    put_zeros(
        text,
        &["active_defrag_hits", "active_defrag_misses", "active_defrag_key_hits", "active_defrag_key_misses"],
    );
    put_zeros(text, &["total_active_defrag_time", "current_active_defrag_time"]);
    let tracked = cx.shared.tracking.totals();
    put(text, "tracking_total_keys", tracked.keys);
    put(text, "tracking_total_items", tracked.items);
    put(text, "tracking_total_prefixes", tracked.prefixes);
    put_zeros(text, &["unexpected_error_replies"]);
    count(text, "total_error_replies", Count::Errors);
    count(text, "total_reads_processed", Count::Reads);
    count(text, "total_writes_processed", Count::Writes);
    put(text, "io_threaded_reads_processed", counts.of_others(Count::Reads));
    put(text, "io_threaded_writes_processed", counts.of_others(Count::Writes));
}

fn replication(cx: &Context<'_, '_>, text: &mut String) {
    put(text, "role", "master");
    put_zeros(text, &["connected_slaves"]);
    put(text, "master_failover_state", "no-failover");
    put(text, "master_replid", &cx.shared.run_id);
    put(text, "master_replid2", "0".repeat(40));
    put_zeros(text, &["master_repl_offset"]);
    put(text, "second_repl_offset", -1);
    put_zeros(
        text,
        &["repl_backlog_active", "repl_backlog_size", "repl_backlog_first_byte_offset", "repl_backlog_histlen"],
    );
}

fn cpu(_: &Context<'_, '_>, text: &mut String) {
    if let Some((system, user)) = process::processor_seconds() {
        put(text, "used_cpu_sys", format_args!("{system:.6}"));
        put(text, "used_cpu_user", format_args!("{user:.6}"));
    }
    put(text, "used_cpu_sys_children", "0.000000");
    put(text, "used_cpu_user_children", "0.000000");
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
        let counts = cx.shared.spaces.counts(*space);
        let keys = cx.keys.size(*space);
        if keys > 0 {
            let (expiring, ttl_ms) = (counts.expiring, counts.mean_ttl_ms(cx.keys.now_ms()));
            put(text, &format!("db{database}"), format_args!("keys={keys},expires={expiring},avg_ttl={ttl_ms}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit() {
        let shown = [0, 1023, 1024, 1536, 1 << 20, 5 << 30, (1 << 40) - 1].map(for_people);
        assert_eq!(shown, ["0B", "1023B", "1.00K", "1.50K", "1.00M", "5.00G", "1024.00G"]);
        assert_eq!((percentage(1, 3), percentage(1, 0)), ("33.33%".to_owned(), "0.00%".to_owned()));
    }
}
