//! The report: one JSON object with one entry per phase (`docs/reference/json.md`).

use crate::durable::{LogFigures, RecoveryFigures, StorageFigures};
use crate::histogram::LatencyMicros;
use crate::store::{Figures, LookupFigures, LsmFigures};
use forebay_fabric::{Counts, LinkModel};
use serde::{Deserialize, Serialize};

/// All phases of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// One entry per phase, in order.
    pub benchmarks: Vec<PhaseReport>,
}

/// One phase. With several threads, counts are sums and latencies cover all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The phase's name.
    pub name: String,
    /// Number of operations done.
    pub operations: u64,
    /// Number of keys found, for phases that look for keys.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub found: Option<u64>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_second: f64,
    /// Latencies of all operations in microseconds.
    pub latency_us: LatencyMicros,
    /// Each kind of operation separately, where there is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub by_operation: Vec<OperationReport>,
    /// Fabric operations that the phase's callers waited for.
    pub fabric: FabricCounts,
    /// Fabric operations of flushes, compactions and upkeep during the phase.
    pub fabric_background: FabricCounts,
    /// The compute node.
    pub compute: Compute,
    /// The memory nodes.
    pub memory_node: MemoryNode,
    /// The LSM engine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lsm: Option<Lsm>,
    /// What was done to storage during the phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub storage: Option<StorageFigures>,
    /// The log of writes during the phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log: Option<LogFigures>,
    /// What opening the store found, before the phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<RecoveryFigures>,
    /// The link model's results, on request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<Modelled>,
    /// The course of the phase; for plots, and not in the JSON.
    #[serde(skip)]
    pub curves: Curves,
}

/// The course of a phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    /// Several times a second: seconds since the beginning, and operations done so far.
    pub throughput: Vec<(f64, u64)>,
    /// Share of the calls, and the latency in microseconds that they do not exceed.
    pub latency: Vec<(f64, f64)>,
}

/// One kind of operation within a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation: `get`, `put`, `multiget`, …
    pub operation: String,
    /// Number of calls.
    pub calls: u64,
    /// Latencies of the calls in microseconds.
    pub latency_us: LatencyMicros,
}

/// Fabric operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FabricCounts {
    /// Round trips waited for.
    pub round_trips: u64,
    /// One-sided reads.
    pub reads: u64,
    /// One-sided writes.
    pub writes: u64,
    /// Compare-and-swaps and fetch-and-adds.
    pub atomics: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl From<Counts> for FabricCounts {
    fn from(counts: Counts) -> Self {
        Self {
            round_trips: counts.round_trips,
            reads: counts.reads,
            writes: counts.writes,
            atomics: counts.atomics,
            messages: counts.messages,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
        }
    }
}

/// The compute node in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Compute {
    /// Processor time of the process in seconds, including an embedded memory node.
    pub cpu_seconds: f64,
    /// Size of the cached indexes at the end in bytes.
    pub cached_index_bytes: u64,
    /// Size of the memtables at the end in bytes.
    pub memtable_bytes: u64,
}

/// The memory nodes in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryNode {
    /// Processor time in seconds.
    pub cpu_seconds: f64,
    /// Allocated memory at the end in bytes.
    pub allocated_bytes: u64,
    /// The part of it that a version names at the end, in bytes.
    pub live_bytes: u64,
}

/// The LSM engine in a phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Lsm {
    /// Seconds that writers waited for flushes and compactions.
    pub stall_seconds: f64,
    /// Number of waits.
    pub stalls: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Bytes known to be dead at the end.
    pub dead_bytes_known: u64,
    /// Lookups of keys in tables whose point indexes were not held, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<Lookups>,
    /// The levels at the end, from level 0.
    pub levels: Vec<Level>,
}

/// Who looked keys up in tables whose point indexes were not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lookups {
    /// Messages to memory nodes that asked for lookups.
    pub messages: u64,
    /// Keys that memory nodes looked up.
    pub delegated: u64,
    /// Keys that were looked up by reading because that was judged to cost less.
    pub read: u64,
    /// Records read at addresses that earlier lookups had learnt.
    pub learnt: u64,
}

/// A level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Level {
    /// Number of tables.
    pub tables: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The phase's results on a given network, according to the link model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// Round-trip time of the network in microseconds.
    pub link_rtt_us: f64,
    /// Its bandwidth each way in bits per second.
    pub link_bandwidth_bits_per_second: f64,
    /// The adapter's operations per second.
    pub link_operations_per_second: f64,
    /// Modelled duration of the phase in seconds.
    pub seconds: f64,
    /// Modelled operations per second.
    pub ops_per_second: f64,
    /// Mean latency of an operation in microseconds: for closed-loop threads, total time divided by operations.
    #[serde(default)]
    pub mean_latency_us: f64,
}

/// The part of a phase that the workload itself measures.
#[derive(Debug)]
pub(crate) struct Measured {
    pub name: String,
    pub operations: u64,
    pub found: Option<u64>,
    pub seconds: f64,
    pub latency_us: LatencyMicros,
    pub curves: Curves,
    pub by_operation: Vec<OperationReport>,
    pub process_cpu_seconds: f64,
    pub foreground_cpu_seconds: f64,
    pub threads: usize,
}

impl PhaseReport {
    /// Combines the measurements with the store's counts from `before` to `after`.
    pub(crate) fn new(measured: Measured, before: &Figures, after: &Figures, model: Option<&LinkModel>) -> Self {
        let foreground = after.foreground - before.foreground;
        let model = model.map(|model| modelled(model, &measured, &foreground));
        let (memory_before, memory) = (&before.memory_node, &after.memory_node);
        Self {
            operations: measured.operations,
            found: measured.found,
            seconds: measured.seconds,
            ops_per_second: rate(measured.operations, measured.seconds),
            latency_us: measured.latency_us,
            by_operation: measured.by_operation,
            name: measured.name,
            fabric: foreground.into(),
            fabric_background: (after.background - before.background).into(),
            compute: Compute {
                cpu_seconds: measured.process_cpu_seconds,
                cached_index_bytes: after.cached_index_bytes,
                memtable_bytes: after.memtable_bytes,
            },
            memory_node: MemoryNode {
                cpu_seconds: (memory.cpu_seconds - memory_before.cpu_seconds).max(0.0),
                allocated_bytes: memory.allocated_bytes,
                live_bytes: memory.live_bytes,
            },
            lsm: after.lsm.as_ref().map(|after| lsm(before.lsm.as_ref().unwrap_or(&LsmFigures::default()), after)),
            storage: after.storage.as_ref().map(|after| after.since(&before.storage.unwrap_or_default())),
            log: after.log.as_ref().map(|after| after.since(&before.log.unwrap_or_default())),
            recovery: after.recovery.clone(),
            model,
            curves: measured.curves,
        }
    }
}

fn rate(operations: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { operations as f64 / seconds } else { 0.0 }
}

fn modelled(model: &LinkModel, measured: &Measured, foreground: &Counts) -> Modelled {
    let seconds = model.seconds(foreground, measured.foreground_cpu_seconds, measured.threads);
    Modelled {
        link_rtt_us: model.round_trip.as_secs_f64() * 1e6,
        link_bandwidth_bits_per_second: model.bits_per_second,
        link_operations_per_second: model.operations_per_second,
        seconds,
        ops_per_second: rate(measured.operations, seconds),
        mean_latency_us: seconds * 1e6 * measured.threads as f64 / measured.operations.max(1) as f64,
    }
}

fn lsm(before: &LsmFigures, after: &LsmFigures) -> Lsm {
    Lsm {
        stall_seconds: (after.stall_seconds - before.stall_seconds).max(0.0),
        stalls: after.stalls.saturating_sub(before.stalls),
        flushes: after.flushes.saturating_sub(before.flushes),
        compactions: after.compactions.saturating_sub(before.compactions),
        compaction_entries: after.compaction_entries.saturating_sub(before.compaction_entries),
        compaction_bytes_read: after.compaction_bytes_read.saturating_sub(before.compaction_bytes_read),
        compaction_bytes_written: after.compaction_bytes_written.saturating_sub(before.compaction_bytes_written),
        dead_bytes_known: after.dead_bytes_known,
        lookups: lookups(&before.lookups, &after.lookups),
        levels: after.levels.iter().map(|l| Level { tables: l.tables, runs: l.runs, bytes: l.bytes }).collect(),
    }
}

fn lookups(before: &LookupFigures, after: &LookupFigures) -> Option<Lookups> {
    (before != after).then(|| Lookups {
        messages: after.messages.saturating_sub(before.messages),
        delegated: after.delegated.saturating_sub(before.delegated),
        read: after.read.saturating_sub(before.read),
        learnt: after.learnt.saturating_sub(before.learnt),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn measured(operations: u64) -> Measured {
        Measured {
            name: "readrandom".into(),
            operations,
            found: Some(3),
            seconds: 2.0,
            latency_us: LatencyMicros { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0 },
            curves: Curves::default(),
            by_operation: Vec::new(),
            process_cpu_seconds: 1.5,
            foreground_cpu_seconds: 1.0,
            threads: 1,
        }
    }

    #[test]
    fn the_names_and_their_nesting_are_fixed() {
        let report = PhaseReport::new(
            measured(10),
            &Figures::default(),
            &Figures { lsm: Some(LsmFigures::default()), ..Figures::default() },
            None,
        );
        let json = serde_json::to_string(&Report { benchmarks: vec![report] }).unwrap();
        let counts =
            r#"{"round_trips":0,"reads":0,"writes":0,"atomics":0,"messages":0,"bytes_read":0,"bytes_written":0}"#;
        let expected = format!(
            concat!(
                r#"{{"benchmarks":[{{"name":"readrandom","operations":10,"found":3,"seconds":2.0,"ops_per_second":5.0,"#,
                r#""latency_us":{{"p50":1.0,"p99":2.0,"p999":3.0,"max":4.0}},"fabric":{c},"fabric_background":{c},"#,
                r#""compute":{{"cpu_seconds":1.5,"cached_index_bytes":0,"memtable_bytes":0}},"#,
                r#""memory_node":{{"cpu_seconds":0.0,"allocated_bytes":0,"live_bytes":0}},"#,
                r#""lsm":{{"stall_seconds":0.0,"stalls":0,"flushes":0,"compactions":0,"compaction_entries":0,"#,
                r#""compaction_bytes_read":0,"compaction_bytes_written":0,"dead_bytes_known":0,"levels":[]}}}}]}}"#
            ),
            c = counts
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_phase_is_the_difference_of_figures() {
        let at = |round_trips, flushes, allocated_bytes| Figures {
            foreground: Counts { round_trips, ..Counts::default() },
            lsm: Some(LsmFigures { flushes, ..LsmFigures::default() }),
            memory_node: crate::MemoryNodeFigures { allocated_bytes, ..Default::default() },
            ..Figures::default()
        };
        let model = LinkModel { round_trip: Duration::from_secs(1), ..LinkModel::default() };
        let report = PhaseReport::new(measured(10), &at(3, 1, 100), &at(7, 4, 50), Some(&model));
        assert_eq!(report.fabric.round_trips, 4);
        assert_eq!(report.lsm.unwrap().flushes, 3);
        assert_eq!(report.memory_node.allocated_bytes, 50);
        let model = report.model.unwrap();
        assert!((model.seconds - 5.0).abs() < 1e-9 && (model.ops_per_second - 2.0).abs() < 1e-9);
        assert!((model.mean_latency_us - 500_000.0).abs() < 1e-3);
    }
}
