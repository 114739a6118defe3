//! Four databases on one pool of memory. One bursts: it writes ten times as fast as the others, and always new keys. For
//! comparison, one database alone, and a pool divided into quarters (`docs/concepts/space.md`).

use super::run::millions;
use super::tiers::{Layout, on_node, storage};
use super::{Bench, Figure};
use crate::Outcome;
use crate::processes::MemoryNode;
use forebay_env::thread;
use forebay_workload::PhaseReport;
use forebay_workload::plot::Plot;

/// Number of databases; the last one bursts.
const DATABASES: usize = 4;
/// Memory of the pool, bytes: it has room for the burst, but a quarter of it has not.
const POOL_BYTES: u64 = 512 << 20;
/// Writes a second of each of the others.
const RATE: u64 = 10_000;
/// The multiple of that rate for the last one.
const BURST: u64 = 10;
/// Parts of a run; the first one fills the database and does not count.
const PARTS: usize = 8;
/// MiB of a memtable and of a table: half an extent.
const TABLE_MIB: u64 = 2;
/// Tables that fill level 1, which is a quarter of what a quarter of the pool holds.
const LEVEL1_TABLES: u64 = 16;
/// Bytes a second that the link between each database and the storage carries: enough for the log of the bursting one, and a
/// quarter more. So data to be moved down piles up in memory meanwhile.
const LINK: u64 = 35_000_000;

/// The reports of one database for each part.
type Parts = Vec<PhaseReport>;

pub(super) fn figure(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "four databases on one pool, one of which writes ten times as much",
        remarks: "Levels from 2 on lie in storage, so memory holds memtables, levels 0 and 1, and what waits to be moved down. Values have \
                  256 B, memtables 2 MiB, and level 1 has 32 MiB. Each database's link to the storage carries 35 MB/s each way (`--storage-rate`), of which the log of the \
                  one that bursts takes 28: as all else here is smaller than in the paper, so is that. The others keep to a rate; the one that bursts has ten times theirs, as far as it is \
                  let, for as long as a run lasts: what it writes is more than a quarter holds, and less than the pool. Rates and latencies are of \
                  processes that share two cores and one disk. p99 is the mean over the parts of a run, of the database \
                  that has the highest; peak over mean is of the bytes that all of them write to memory nodes in a part.",
        header: vec![
            "memory",
            "one that bursts, million/s",
            "the others, million/s each",
            "all, million/s",
            "p99 of the others' puts, us",
            "to alone",
            "peak over mean of bytes",
        ],
        ..Figure::default()
    };
    let alone = figure.note(alone(own)).map(|parts| p99(&parts));
    if let Some(p99) = alone {
        let none = String::new;
        figure.row(["one alone".into(), none(), millions(RATE as f64), none(), format!("{p99:.1}"), none(), none()]);
    }
    let mut plot = Plot::lines("Bytes to memory nodes", "part of the run", "bytes a second");
    let (mut pooled, mut divided) = (None, None);
    for (name, is_pooled) in [("one pool", true), ("quarters", false)] {
        let Some(databases) = figure.note(together(own, is_pooled)) else { continue };
        let Some((burst, others)) = databases.split_last() else { continue };
        let rates: Vec<f64> = others.iter().map(|parts| rate(parts)).collect();
        let all = rate(burst) + rates.iter().sum::<f64>();
        let highest = others.iter().map(|parts| p99(parts)).fold(0.0, f64::max);
        let written = written(&databases);
        let mean = written.iter().sum::<f64>() / written.len().max(1) as f64;
        let peak = written.iter().copied().fold(0.0, f64::max);
        *(if is_pooled { &mut pooled } else { &mut divided }) = Some(all);
        figure.row([
            name.to_owned(),
            millions(rate(burst)),
            millions(rates.iter().copied().fold(f64::INFINITY, f64::min)),
            millions(all),
            format!("{highest:.1}"),
            alone.map_or_else(String::new, |alone| format!("{:.2}", highest / alone.max(1e-9))),
            format!("{:.2}", peak / mean.max(1e-9)),
        ]);
        plot = plot.with(name, (1..).map(f64::from).zip(written).collect::<Vec<_>>());
    }
    if let (Some(pooled), Some(divided)) = (pooled, divided) {
        let (none, times) = (String::new, format!("{:.2}", pooled / divided));
        figure.row(["one pool to quarters".into(), none(), none(), times, none(), none(), none()]);
    }
    figure.plots.push(plot);
    figure
}

/// A memory node with a thread for jobs. What is kept for databases is counted in whole extents, so extents are small
/// (`docs/concepts/space.md`).
fn node(own: &Bench, number: u32, bytes: u64) -> Outcome<MemoryNode> {
    own.forebay.memory_node_with(number, bytes, &["--threads=1".into(), format!("--extent-size={}MiB", 2 * TABLE_MIB)])
}

/// A single steady database, on a pool of its own.
fn alone(own: &Bench) -> Outcome<Parts> {
    let node = node(own, 1, POOL_BYTES)?;
    run(own, &node, 0)
}

/// All databases at once, on one pool, or each on a quarter.
fn together(own: &Bench, is_pooled: bool) -> Outcome<Vec<Parts>> {
    let (nodes, bytes) = if is_pooled { (1, POOL_BYTES) } else { (DATABASES, POOL_BYTES / DATABASES as u64) };
    let node = |number| node(own, number, bytes);
    let nodes = (1..).take(nodes).map(node).collect::<Outcome<Vec<MemoryNode>>>()?;
    let places = (0..DATABASES).zip(nodes.iter().cycle()).collect();
    let runs = thread::run_all(places, |(database, node)| run(own, node, database));
    runs.into_iter().map(|run| run.unwrap_or_else(|| Err("a run panicked".to_owned()))).collect()
}

/// Runs a database: if the rates are kept, all parts of all databases take equally long.
fn run(own: &Bench, node: &MemoryNode, database: usize) -> Outcome<Parts> {
    let times = if database + 1 == DATABASES { BURST } else { 1 };
    let mut benchmarks = vec!["fillrandom"];
    benchmarks.resize(PARTS, "overwrite");
    let writes = own.records / 100 * times;
    // The bursting database rarely writes a key again.
    let keys = writes * if times == BURST { 10 * PARTS as u64 } else { 1 };
    let flags = [
        format!("--num={keys}"),
        format!("--writes={writes}"),
        format!("--write-rate={}", RATE * times),
        format!("--seed={}", database + 1),
        format!("--db=database-{database}"),
        // Only the log must keep up: tables in memory need not be in storage before they move down.
        format!("--storage-lag={}", POOL_BYTES / (TABLE_MIB << 20)),
    ];
    let storage = storage()?;
    // Only memory makes writers wait.
    let layout = Layout {
        value_bytes: 256,
        table_mib: TABLE_MIB,
        level1_tables: LEVEL1_TABLES,
        level0_tables: 10_000,
        storage_rate: Some(LINK),
        ..Layout::default()
    };
    let parts = on_node(own, node, &storage, &layout, &benchmarks.join(","), &flags)?;
    Ok(parts.into_iter().skip(1).collect())
}

/// Writes a second, over all parts.
fn rate(parts: &[PhaseReport]) -> f64 {
    let sum = |of: fn(&PhaseReport) -> f64| parts.iter().map(of).sum::<f64>();
    sum(|part| part.operations as f64) / sum(|part| part.seconds).max(1e-9)
}

/// The mean of the parts' p99.
fn p99(parts: &[PhaseReport]) -> f64 {
    parts.iter().map(|part| part.latency_us.p99).sum::<f64>() / parts.len().max(1) as f64
}

/// Bytes a second that all databases wrote to memory nodes in each part.
fn written(databases: &[Parts]) -> Vec<f64> {
    let bytes = |part: &PhaseReport| {
        (part.fabric.bytes_written + part.fabric_background.bytes_written) as f64 / part.seconds.max(1e-9)
    };
    let of_part = |at: usize| databases.iter().filter_map(|parts| parts.get(at)).map(bytes).sum();
    (0..PARTS - 1).map(of_part).collect()
}
