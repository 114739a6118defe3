//! Tebis' two ways to replicate (Tebis 5): the bytes that each sends, and the processor time that
//! it takes.

use super::run::{self, Place};
use super::{Bench, Figure, Named};
use crate::Outcome;
use forebay_workload::PhaseReport;

pub const RECORDS: u64 = 1_000_000;

pub const ABOUT: &str = "Copies in memory, with durability `memory=COPIES`: random writes, and what follows them until nothing is \
left to compact. Three memory nodes over shared memory, with a thread for jobs each. A run has RECORDS records of small values, and \
as many bytes of large ones, with memtables and tables of 8 MiB.";

pub const FIGURES: &[Named] = &[("replication", replication)];

const KEY_BYTES: u64 = 24;
/// Tebis' small records, and large ones that are nevertheless gathered.
const VALUE_BYTES: [u64; 2] = [9, 900];
const NODES: u32 = 3;

/// Network amplification and processor time by way, copies and size.
fn replication(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "Send-Index and Build-Index",
        paper: "Build-Index takes more processor time and reads at the replicas, Send-Index more network: 1.32 to 3.76 times the \
                traffic, and 1.08 to 1.42 times less input and output",
        remarks: "Network bytes are those that the compute node read and wrote, for callers and in the background, for each byte of \
                  keys and values. Flushes are sent in either way. Processor time is that of the memory nodes together, and of \
                  the compute node.",
        header: vec![
            "value bytes",
            "copies",
            "way",
            "network bytes/byte",
            "tables sent, MB",
            "tables built, MB",
            "memory nodes, CPU s",
            "compute node, CPU s",
            "million writes/s",
        ],
        ..Figure::default()
    };
    for value_bytes in VALUE_BYTES {
        for copies in [2, 3] {
            for way in ["send", "build", "auto"] {
                let phases = measure(bench, value_bytes, copies, way);
                if let Some(phases) = figure.note(phases) {
                    figure.row(cells(&phases, value_bytes, copies, way));
                }
            }
        }
    }
    figure
}

fn records(bench: &Bench, value_bytes: u64) -> u64 {
    bench.records * (KEY_BYTES + VALUE_BYTES[0]) / (KEY_BYTES + value_bytes)
}

fn measure(bench: &Bench, value_bytes: u64, copies: u32, way: &str) -> Outcome<Vec<PhaseReport>> {
    let flags = [
        "--benchmarks=fillrandom,waitforcompaction".to_owned(),
        "--db=replication".to_owned(),
        "--shards=1".to_owned(),
        format!("--durability=memory={copies}"),
        format!("--replication={way}"),
        format!("--num={}", records(bench, value_bytes)),
        format!("--key_size={KEY_BYTES}"),
        format!("--value_size={value_bytes}"),
        "--write_buffer_size=8MiB".to_owned(),
        "--target_file_size_base=8MiB".to_owned(),
        "--max_bytes_for_level_base=32MiB".to_owned(),
    ];
    let memory_bytes = (bench.records * (KEY_BYTES + VALUE_BYTES[0]) * 8).max(1 << 30);
    run::report(bench, Place::Nodes { nodes: NODES, threads: 1 }, memory_bytes, "bench", flags.to_vec())
}

fn cells(phases: &[PhaseReport], value_bytes: u64, copies: u32, way: &str) -> Vec<String> {
    let sum = |of: &dyn Fn(&PhaseReport) -> f64| phases.iter().map(of).sum::<f64>();
    let network = sum(&|phase| {
        let counts = [phase.fabric, phase.fabric_background];
        counts.iter().map(|counts| (counts.bytes_read + counts.bytes_written) as f64).sum()
    });
    let written = phases.first().map_or(0, |fill| fill.operations) * (KEY_BYTES + value_bytes);
    let log =
        |of: fn(&forebay_workload::LogFigures) -> u64| sum(&|phase| phase.log.as_ref().map_or(0, of) as f64) / 1e6;
    vec![
        value_bytes.to_string(),
        copies.to_string(),
        way.to_owned(),
        format!("{:.2}", network / written.max(1) as f64),
        format!("{:.1}", log(|log| log.replicated_bytes)),
        format!("{:.1}", log(|log| log.rebuilt_bytes)),
        format!("{:.2}", sum(&|phase| phase.memory_node.cpu_seconds)),
        format!("{:.2}", sum(&|phase| phase.compute.cpu_seconds)),
        run::millions(phases.first().map_or(0.0, |fill| fill.ops_per_second)),
    ]
}
