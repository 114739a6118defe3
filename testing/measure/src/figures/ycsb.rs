//! YCSB's workloads on the shared tree and on the LSM engine.

use super::run::{self, Place, by_threads, each, millions};
use super::{Bench, Figure};
use crate::Outcome;
use forebay_workload::PhaseReport;

/// Number of callers in the model, in addition to a single caller.
const CALLERS: usize = 64;
/// A record has some 30 bytes: with memtables of 64 MB, no record would leave the compute node.
const LSM_FLAGS: [&str; 3] =
    ["--write_buffer_size=1MiB", "--target_file_size_base=1MiB", "--max_bytes_for_level_base=4MiB"];
/// Scans return many records, so fewer operations suffice.
const SCAN_SHARE: u64 = 20;

/// Runs workloads over shared memory, with the link model on top.
///
/// # Errors
/// When a process fails.
pub fn run(bench: &Bench, engine: &str, records: u64, operations: u64, flags: &[String]) -> Outcome<Vec<PhaseReport>> {
    let mut all = vec![format!("--engine={engine}"), "--link-rtt=2us".into()];
    all.extend([format!("--records={records}"), format!("--operations={operations}")]);
    all.extend_from_slice(flags);
    let memory_bytes = (bench.records * 160).max(if engine == "tree" { 1 << 30 } else { 4 << 30 });
    run::report(bench, Place::Nodes { nodes: 1, threads: 1 }, memory_bytes, "ycsb", all)
}

/// The flags of a profile of the Twitter caches.
pub fn profile(bench: &Bench, cluster: &str) -> [String; 3] {
    let table = bench.traces.join("twitter-clusters-2020.csv");
    [format!("--profile={}", table.display()), "--cluster".into(), cluster.into()]
}

/// All workloads on both engines.
pub fn table(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "YCSB",
        remarks: "Keys and values have 8 B; those of the clusters have the clusters' sizes (cluster 8: 23 B and 9,497 B, \
                  cluster 9: 32 B and 39 B), with a fiftieth of the records. The LSM engine has memtables and tables of \
                  1 MiB, so that there are several levels. Writes of the LSM engine wait for no round \
                  trip, because one process owns the data and loses what it has not flushed; what its flushes and \
                  compactions move later is not in this table. The tree's writes are in the memory node when they \
                  return, and any number of clients may make them. The LSM engine's scan opens an iterator over all \
                  levels; the tree's reads neighbouring leaves in one batch. Measured rates are of one thread over \
                  shared memory.",
        header: vec![
            "workload",
            "engine",
            "round trips/operation",
            "bytes read",
            "bytes written",
            "measured, million/s",
            "modelled mean us, 1 caller",
            "modelled million/s, 1 caller",
            "64 callers",
            "cached bytes/record",
        ],
        ..Figure::default()
    };
    let records = bench.records;
    for engine in ["tree", "lsm"] {
        let flags = |workload: String| {
            let of_lsm = LSM_FLAGS.iter().filter(|_| engine == "lsm").map(|&flag| flag.to_owned());
            of_lsm.chain([workload]).collect::<Vec<_>>()
        };
        let mut runs = vec![
            (records, records, flags("--workload=a,b,c,d,f".into()), vec!["load", "a", "b", "c", "d", "f"]),
            (
                records,
                records / SCAN_SHARE,
                flags("--workload=e,range-only,range-write".into()),
                vec!["e", "range-only", "range-write"],
            ),
        ];
        for (cluster, name) in [("8", "cluster8"), ("9", "cluster9")] {
            let [profile, cluster, number] = profile(bench, cluster);
            let flags = flags(profile).into_iter().chain([cluster, number]).collect();
            runs.push((records / 50, records / 10, flags, vec![name]));
        }
        for (records, operations, flags, names) in runs {
            let phases = run(bench, engine, records, operations, &flags);
            let Some(phases) = figure.note(phases) else { continue };
            for name in names {
                let phase = run::named(&phases, name).cloned();
                if let Some(phase) = figure.note(phase) {
                    figure.row(cells(engine, records, &phase));
                }
            }
        }
    }
    figure.rows.sort_by_key(|row| order(&row[0]));
    figure
}

/// The place of a workload in the table.
fn order(name: &str) -> usize {
    let names = ["load", "a", "b", "c", "d", "e", "f", "range-only", "range-write", "cluster8", "cluster9"];
    names.iter().position(|&known| known == name).unwrap_or(names.len())
}

fn cells(engine: &str, records: u64, phase: &PhaseReport) -> Vec<String> {
    let modelled = by_threads(phase, &[1, CALLERS]);
    vec![
        phase.name.clone(),
        engine.to_owned(),
        format!("{:.2}", each(phase.fabric.round_trips, phase)),
        format!("{:.0}", each(phase.fabric.bytes_read, phase)),
        format!("{:.0}", each(phase.fabric.bytes_written, phase)),
        millions(phase.ops_per_second),
        format!("{:.1}", 1e6 / modelled[0].1),
        millions(modelled[0].1),
        millions(modelled[1].1),
        format!("{:.2}", phase.compute.cached_index_bytes as f64 / records as f64),
    ]
}
