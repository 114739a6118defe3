//! Forebay's side: a memory node over shared memory, and `forebay bench`.

use super::best::Figures;
use super::groups::{Figure, Group, SCANS, SEEK_NEXTS, Work};
use crate::Outcome;
use crate::compare::db_bench::KEY_BYTES;
use crate::processes::Forebay;
use forebay_workload::PhaseReport;

/// Threads for jobs at the memory node, as RocksDB's sub-compactions.
const NODE_THREADS: usize = 2;
/// Memory of the smallest memory node, bytes.
const SMALLEST_NODE: u64 = 2 << 30;

/// Measures a group with these flags and its own.
///
/// # Errors
/// When there is not enough memory, or the command fails.
pub fn measure(forebay: &Forebay, group: &Group, seed: u64, flags: &[String]) -> Outcome<Figures> {
    // As much as RocksDB's block cache has, and a GiB for memtables. A shard settles only if its records fit a second
    // time beside all that was written.
    let node = forebay.memory_node(1, (group.data_bytes() * 2 + (1 << 30)).max(SMALLEST_NODE), NODE_THREADS)?;
    let mut flags = flags.to_vec();
    flags.extend([
        format!("--num={}", group.writes_per_thread()),
        format!("--threads={}", group.fill_threads()),
        format!("--key_size={KEY_BYTES}"),
        format!("--value_size={}", group.value_bytes),
        format!("--seed={seed}"),
    ]);
    match group.work {
        Work::Fill { .. } => flags.push("--benchmarks=fillrandom,waitforcompaction".into()),
        Work::Bulk => flags.extend(["--benchmarks=fillrandom".to_owned(), "--bulk_load=true".into()]),
        Work::Reads => {
            let mut benchmarks = "fillrandom,compact,readrandom,readrandom,multireadrandom,multireadrandom,\
                                  readseq,readseq,readrandom@2,readrandom@2"
                .to_owned();
            if group.rows.iter().any(|row| row.figure == Figure::Mixed) {
                benchmarks += ",readrandomwriterandom";
            }
            flags.extend([format!("--benchmarks={benchmarks}"), format!("--reads={}", group.reads())]);
            flags.extend(["--batch_size=16".to_owned(), "--readwritepercent=50".into()]);
        }
        Work::Scans { .. } => {
            let mut figures = Figures::new();
            for scans in SCANS {
                let mut flags = flags.clone();
                flags.push(format!("--benchmarks={}", scans.names()));
                flags.extend([format!("--reads={}", scans.reads(group)), format!("--seek_nexts={SEEK_NEXTS}")]);
                let phases = forebay.report("bench", &[&node], &flags)?;
                figures.extend(scans.figures(phases.into_iter().map(|phase| (phase.name, phase.ops_per_second))));
            }
            return Ok(figures);
        }
    }
    let phases = forebay.report("bench", &[&node], &flags)?;
    Ok(figures(group, &phases))
}

fn figures(group: &Group, phases: &[PhaseReport]) -> Figures {
    // If a workload occurs twice, the second result stays.
    let mut figures: Figures = phases
        .iter()
        .filter_map(|phase| {
            let figure = match phase.name.as_str() {
                "fillrandom" if group.work == Work::Bulk => Figure::Bulk,
                "fillrandom" => Figure::Fill,
                "readrandom" => Figure::Read,
                "readrandom@2" => Figure::ReadTwo,
                "multireadrandom" => Figure::MultiRead,
                "readseq" => Figure::Sequential,
                "readrandomwriterandom" => Figure::Mixed,
                _ => return None,
            };
            Some((figure, phase.ops_per_second))
        })
        .collect();
    if matches!(group.work, Work::Fill { .. }) {
        let seconds: f64 = phases.iter().map(|phase| phase.seconds).sum();
        figures.insert(Figure::Quiet, group.records as f64 / seconds.max(1e-9));
    }
    figures
}
