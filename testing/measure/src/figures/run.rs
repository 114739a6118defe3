//! Runs of the command for a figure, and the link model over their counts.

use super::Bench;
use crate::Outcome;
use crate::processes::{MemoryNode, require_memory};
use forebay::{Counts, LinkModel};
use forebay_workload::PhaseReport;

/// Where the memory of a run is.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In memory nodes of their own over shared memory.
    Nodes {
        /// How many.
        nodes: u32,
        /// Threads for jobs of each.
        threads: usize,
    },
    /// In the process itself.
    Process,
}

/// Runs `command` with `flags`, on memory nodes with the given number of bytes each.
///
/// # Errors
/// When a process fails, or there is not enough memory.
pub fn report(
    bench: &Bench,
    place: Place,
    memory_bytes: u64,
    command: &str,
    mut flags: Vec<String>,
) -> Outcome<Vec<PhaseReport>> {
    match place {
        Place::Nodes { nodes, threads } => {
            let nodes: Vec<MemoryNode> = (1..=nodes)
                .map(|number| bench.forebay.memory_node(number, memory_bytes, threads))
                .collect::<Outcome<_>>()?;
            bench.forebay.report(command, &nodes.iter().collect::<Vec<_>>(), &flags)
        }
        Place::Process => {
            require_memory(memory_bytes)?;
            flags.push(format!("--local-memory-size={memory_bytes}"));
            bench.forebay.report(command, &[], &flags)
        }
    }
}

/// The phase of this name; the last of several.
///
/// # Errors
/// When there is none.
pub fn named<'a>(phases: &'a [PhaseReport], name: &str) -> Outcome<&'a PhaseReport> {
    phases.iter().rfind(|phase| phase.name == name).ok_or_else(|| format!("the report has no phase {name}"))
}

/// A count of a phase, per operation.
pub fn each(count: u64, phase: &PhaseReport) -> f64 {
    count as f64 / phase.operations.max(1) as f64
}

/// Operations a second of a phase with `threads` threads on the usual network: the counts are
/// charged as round trips, bytes and operations. `cpu_seconds` is the callers' computing time.
pub fn modelled(phase: &PhaseReport, cpu_seconds: f64, threads: usize) -> f64 {
    let fabric = &phase.fabric;
    let counts = Counts {
        round_trips: fabric.round_trips,
        reads: fabric.reads,
        writes: fabric.writes,
        atomics: fabric.atomics,
        messages: fabric.messages,
        bytes_read: fabric.bytes_read,
        bytes_written: fabric.bytes_written,
        ..Counts::default()
    };
    phase.operations as f64 / LinkModel::default().seconds(&counts, cpu_seconds, threads).max(1e-9)
}

/// The callers' computing time in a phase that was run with the link model, seconds: their time in
/// the model without their round trips.
pub fn own_cpu_seconds(phase: &PhaseReport) -> f64 {
    let waiting = phase.fabric.round_trips as f64 * LinkModel::default().round_trip.as_secs_f64();
    let all = |mean_latency_us: f64| mean_latency_us / 1e6 * phase.operations as f64;
    phase.model.map_or(phase.compute.cpu_seconds, |model| (all(model.mean_latency_us) - waiting).max(0.0))
}

/// Modelled operations a second, by number of threads.
pub fn by_threads(phase: &PhaseReport, threads: &[usize]) -> Vec<(f64, f64)> {
    let own = own_cpu_seconds(phase);
    threads.iter().map(|&threads| (threads as f64, modelled(phase, own, threads))).collect()
}

/// A rate in millions a second.
pub fn millions(rate: f64) -> String {
    format!("{:.3}", rate / 1e6)
}
