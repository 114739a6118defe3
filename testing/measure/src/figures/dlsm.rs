//! dLSM's figures 7 to 14 (dLSM XI-C).
//!
//! The paper's tables and memtables have 64 MB and its data 42 GB; here the data is a hundredth of
//! that, and memtables and tables are an eighth. So the number of levels is the same, and there are
//! about a tenth of the tables.

use super::run::{self, Place, by_threads, each, millions, modelled, named, own_cpu_seconds};
use super::{Bench, Figure, Named};
use crate::Outcome;
use forebay_workload::PhaseReport;
use forebay_workload::plot::Plot;

pub const RECORDS: u64 = 1_000_000;

pub const ABOUT: &str = "Only dLSM's own curves: its baselines are other systems. Keys have 20 B and values 400 B as in \
the paper; a run has a million records instead of a hundred million, with memtables and tables of 8 MiB instead of \
64 MB. Measured rates are of two processes on two cores, where background work takes its processor time from the \
callers; modelled rates leave the callers a core each, and the memory node as many as the figure says.";

pub const FIGURES: &[Named] = &[
    ("7", figure_7),
    ("8", figure_8),
    ("9", figure_9),
    ("10", figure_10),
    ("11", figure_11),
    ("12", figure_12),
    ("13", figure_13),
    ("14", figure_14),
];

const RECORD_BYTES: u64 = 420;
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Cores of the paper's memory node that compact (dLSM XI-B).
const NODE_CORES: f64 = 12.0;

/// A run over shared memory, or in this process with the link model.
struct Run<'a> {
    bench: &'a Bench,
    records: u64,
    nodes: u32,
    node_threads: usize,
    modelled: bool,
}

impl<'a> Run<'a> {
    fn new(bench: &'a Bench) -> Self {
        Self { bench, records: bench.records, nodes: 1, node_threads: 1, modelled: false }
    }

    fn report(&self, benchmarks: &str, more: &[&str]) -> Outcome<Vec<PhaseReport>> {
        let memory = (self.records * RECORD_BYTES * 5 / 2 / u64::from(self.nodes)).max(1 << 30);
        let mut flags: Vec<String> = [
            "--write_buffer_size=8MiB",
            "--target_file_size_base=8MiB",
            "--max_bytes_for_level_base=32MiB",
            "--max_write_buffer_number=16",
            "--max_background_jobs=4",
            "--verify=false",
        ]
        .map(String::from)
        .to_vec();
        flags.extend([format!("--benchmarks={benchmarks}"), format!("--num={}", self.records)]);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let place = Place::Nodes { nodes: self.nodes, threads: self.node_threads };
        if self.modelled {
            flags.push("--link-rtt=2us".to_owned());
        }
        run::report(self.bench, if self.modelled { Place::Process } else { place }, memory, "bench", flags)
    }
}

fn rate(phases: &Outcome<Vec<PhaseReport>>, name: &str) -> Outcome<f64> {
    Ok(named(phases.as_ref().map_err(Clone::clone)?, name)?.ops_per_second)
}

fn figure_7(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "writes by threads",
        paper: "normal mode rises to 2.6 million/s at 16 threads and is then held back by compaction; bulk-load mode \
                rises further",
        remarks: "The shape is that of the paper: writers do not wait for one another, and the more of them there are, \
                  the sooner compaction at the memory node decides. Modelled: writers by the processor time of one, up \
                  to the wire, and in normal mode up to what 12 cores of the memory node compact.",
        header: vec!["mode", "threads", "measured, million/s", "modelled, million/s"],
        ..Figure::default()
    };
    let mut plot = Plot::lines("Figure 7: fillrandom", "threads", "operations a second");
    for (mode, flags) in [("normal", &[][..]), ("bulk-load", &["--bulk_load=true"][..])] {
        let mut measured = Vec::new();
        for threads in [1_u64, 2] {
            let run = Run { records: bench.records / threads, ..Run::new(bench) };
            let threads_flag = format!("--threads={threads}");
            let phases = run.report("fillrandom", &[flags, &[threads_flag.as_str()]].concat());
            measured.extend(figure.note(rate(&phases, "fillrandom")).map(|rate| (threads as f64, rate)));
        }
        let local = Run { modelled: true, ..Run::new(bench) }.report("fillrandom,waitforcompaction", flags);
        let node = Run::new(bench).report("fillrandom,waitforcompaction", flags);
        let mut model = Vec::new();
        if let Some((local, node)) = figure.note(local.and_then(|local| node.map(|node| (local, node)))) {
            model = figure.note(writes_by_threads(&local, &node, mode == "normal")).unwrap_or_default();
        }
        for (place, &(threads, rate)) in model.iter().enumerate() {
            let of_measured = measured.get(place).map_or("–".into(), |&(_, rate)| millions(rate));
            figure.row([mode.to_owned(), threads.to_string(), of_measured, millions(rate)]);
        }
        plot = plot.with(format!("{mode}, measured"), measured).with(format!("{mode}, modelled"), model);
    }
    figure.plots.push(plot);
    figure
}

fn writes_by_threads(local: &[PhaseReport], node: &[PhaseReport], compacts: bool) -> Outcome<Vec<(f64, f64)>> {
    let fill = named(local, "fillrandom")?;
    let own = own_cpu_seconds(fill);
    let operations = fill.operations as f64;
    let written: u64 = node.iter().map(|phase| phase.fabric_background.bytes_written).sum();
    let wire = 100e9 / 8.0 / (written as f64 / operations).max(1.0);
    let node_seconds: f64 = node.iter().map(|phase| phase.memory_node.cpu_seconds).sum();
    let compaction = if compacts { NODE_CORES * operations / node_seconds.max(1e-9) } else { f64::INFINITY };
    Ok(THREADS.map(|threads| (threads as f64, modelled(fill, own, threads).min(wire).min(compaction))).to_vec())
}

fn figure_8(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "reads by threads",
        paper: "rises with the threads until the adapter is full; after compaction a read is about one round trip",
        remarks: "As in the paper reads scale with the threads: each waits for about one round trip of 2 us for a found \
                  key, so that 16 threads are limited by their round trips and not by the wire.",
        header: vec!["threads", "measured, million/s", "modelled, million/s", "round trips a read"],
        ..Figure::default()
    };
    let phases = Run::new(bench).report("fillrandom,compact,readrandom,readrandom@2", &[]);
    let local = Run { modelled: true, ..Run::new(bench) }.report("fillrandom,compact,readrandom", &[]);
    let measured: Vec<_> = [("readrandom", 1.0), ("readrandom@2", 2.0)]
        .into_iter()
        .filter_map(|(name, threads)| Some((threads, figure.note(rate(&phases, name))?)))
        .collect();
    let mut model = Vec::new();
    if let Some(read) = figure.note(local.and_then(|local| named(&local, "readrandom").cloned())) {
        model = by_threads(&read, &THREADS);
        let trips = each(read.fabric.round_trips, &read);
        for (place, &(threads, rate)) in model.iter().enumerate() {
            let of_measured = measured.get(place).map_or("–".into(), |&(_, rate)| millions(rate));
            figure.row([threads.to_string(), of_measured, millions(rate), format!("{trips:.3}")]);
        }
    }
    let plot = Plot::lines("Figure 8: readrandom", "threads", "operations a second");
    figure.plots.push(plot.with("measured", measured).with("modelled, 2 us", model));
    figure
}

fn figure_9(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "data size",
        paper: "both writes and reads become slower with more data; 100 million records take 59 GB (1.4 times the data)",
        remarks: "More data makes more levels and so more merging, but records are not moved by a merge of indexes, and \
                  a read probes every level's index without a round trip: both fall less than in the paper. Space is \
                  what the memory node hands out, against the bytes of the records that were written.",
        header: vec![
            "records, million",
            "fill, million/s",
            "read, million/s",
            "round trips a read",
            "space, times the data",
        ],
        ..Figure::default()
    };
    let (mut fills, mut reads) = (Vec::new(), Vec::new());
    for quarters in [1_u64, 2, 4, 8, 16] {
        let records = bench.records * quarters / 4;
        let run = Run { records, ..Run::new(bench) };
        let reads_flag = format!("--reads={}", bench.records / 2);
        let phases = run.report("fillrandom,waitforcompaction,readrandom", &[&reads_flag]);
        let Some(phases) = figure.note(phases) else { continue };
        let (Some(fill), Some(read)) =
            (figure.note(named(&phases, "fillrandom").cloned()), figure.note(named(&phases, "readrandom").cloned()))
        else {
            continue;
        };
        let size = records as f64 / 1e6;
        fills.push((size, fill.ops_per_second));
        reads.push((size, read.ops_per_second));
        figure.row([
            format!("{size:.2}"),
            millions(fill.ops_per_second),
            millions(read.ops_per_second),
            format!("{:.3}", each(read.fabric.round_trips, &read)),
            format!("{:.2}", read.memory_node.allocated_bytes as f64 / (records * RECORD_BYTES) as f64),
        ]);
    }
    let plot = Plot::lines("Figure 9: data size", "million records", "operations a second");
    figure.plots.push(plot.with("fillrandom", fills).with("readrandom", reads));
    figure
}

fn figure_10(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "mixes of reads and writes, 1 and 8 shards",
        paper: "8 shards are faster than 1, 1.7 times at half reads, because level 0 of each is compacted beside the \
                others and a read searches fewer tables",
        remarks: "On two cores the compactions of 8 shards cannot run beside each other, so the gain is that reads \
                  search fewer tables of level 0.",
        header: vec!["reads, %", "1 shard, million/s", "8 shards, million/s", "ratio"],
        ..Figure::default()
    };
    let shares = [0, 5, 50, 95, 100];
    let mut series: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
    for share in shares {
        let percent = format!("--readwritepercent={share}");
        let mut rates = Vec::new();
        for (place, shards) in ["--shards=1", "--shards=8"].into_iter().enumerate() {
            let phases = Run::new(bench).report("fillrandom,readrandomwriterandom@2", &[&percent, shards]);
            let rate = figure.note(rate(&phases, "readrandomwriterandom@2"));
            if let Some(rate) = rate {
                series[place].push((f64::from(share), rate));
            }
            rates.push(rate);
        }
        let cell = |rate: &Option<f64>| rate.map_or("–".into(), millions);
        let ratio = match rates[..] {
            [Some(one), Some(eight)] => format!("{:.2}", eight / one),
            _ => "–".into(),
        };
        figure.row([share.to_string(), cell(&rates[0]), cell(&rates[1]), ratio]);
    }
    let [one, eight] = series;
    let plot = Plot::lines("Figure 10: readrandomwriterandom, 2 threads", "reads, %", "operations a second");
    figure.plots.push(plot.with("1 shard", one).with("8 shards", eight));
    figure
}

fn figure_11(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "range scans",
        paper: "dLSM scans 1.3 to 2.5 times as fast as its baselines, because it reads large chunks and needs no blocks",
        remarks: "Chunks of several records come in one read, so a step waits for far less than one round trip, before \
                  and after a compaction that clusters all records.",
        header: vec!["state", "measured, million/s", "modelled, million/s", "round trips a step", "bytes a step"],
        ..Figure::default()
    };
    let mut bars = Vec::new();
    for (place, (state, benchmarks)) in
        [("quiet", "fillrandom,waitforcompaction,readseq"), ("compacted", "fillrandom,compact,readseq")]
            .into_iter()
            .enumerate()
    {
        let phases = Run::new(bench).report(benchmarks, &[]);
        let local = Run { modelled: true, ..Run::new(bench) }.report(benchmarks, &[]);
        let Some(measured) = figure.note(rate(&phases, "readseq")) else { continue };
        let Some(local) = figure.note(local.and_then(|local| named(&local, "readseq").cloned())) else { continue };
        let model = modelled(&local, own_cpu_seconds(&local), 1);
        bars.push((place as f64, measured, model));
        figure.row([
            state.to_owned(),
            millions(measured),
            millions(model),
            format!("{:.4}", each(local.fabric.round_trips, &local)),
            format!("{:.0}", each(local.fabric.bytes_read, &local)),
        ]);
    }
    let plot = Plot::bars("Figure 11: readseq, 1 thread", vec!["quiet".into(), "compacted".into()], "records a second");
    let measured: Vec<_> = bars.iter().map(|&(place, measured, _)| (place, measured)).collect();
    let model: Vec<_> = bars.iter().map(|&(place, _, model)| (place, model)).collect();
    figure.plots.push(plot.with("measured", measured).with("modelled, 2 us", model));
    figure
}

fn figure_12(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "compaction at the compute node and at the memory node",
        paper: "with enough remote cores near-data compaction makes writes 60 % faster; with few, the memory node's \
                processor decides",
        remarks: "What near-data compaction saves is the fabric: index entries and gathered records do not travel. In \
                  time there is little to gain here, because both nodes share the same two cores.",
        header: vec![
            "place",
            "fill, million/s",
            "until quiet, million/s",
            "node processor s",
            "background bytes a record",
        ],
        ..Figure::default()
    };
    let places = [("memory, 1 thread", "memory", 1), ("memory, 2 threads", "memory", 2), ("compute", "compute", 1)];
    let (mut rates, mut bytes) = (Vec::new(), Vec::new());
    for (number, (name, place, node_threads)) in places.into_iter().enumerate() {
        let flag = format!("--compaction-place={place}");
        let run = Run { node_threads, records: bench.records / 2, ..Run::new(bench) };
        let Some(phases) = figure.note(run.report("fillrandom,waitforcompaction", &[&flag, "--threads=2"])) else {
            continue;
        };
        let Some(fill) = figure.note(named(&phases, "fillrandom").cloned()) else { continue };
        let seconds: f64 = phases.iter().map(|phase| phase.seconds).sum();
        let node: f64 = phases.iter().map(|phase| phase.memory_node.cpu_seconds).sum();
        let moved: u64 =
            phases.iter().map(|phase| phase.fabric_background.bytes_read + phase.fabric_background.bytes_written).sum();
        let each = each(moved, &fill);
        rates.push((number as f64, fill.operations as f64 / seconds));
        bytes.push((number as f64, each));
        figure.row([
            name.to_owned(),
            millions(fill.ops_per_second),
            millions(fill.operations as f64 / seconds),
            format!("{node:.2}"),
            format!("{each:.0}"),
        ]);
    }
    let categories = || places.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let rate = Plot::bars("Figure 12: fillrandom until quiet, 2 threads", categories(), "operations a second");
    figure.plots.push(rate.with("until quiet", rates));
    let moved = Plot::bars("Figure 12: bytes over the fabric", categories(), "bytes for each record written");
    figure.plots.push(moved.with("flushes and compactions", bytes));
    figure
}

fn figure_13(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "byte-addressable tables",
        paper: "reads are up to 60 % faster than with blocks of 8 KB, because one record is read and not a block",
        remarks: "There are no tables of blocks here to switch to; what a block would cost is 8 KB a read, whatever the \
                  record's size. Bytes of a found key are those of exactly one record, with its header.",
        header: vec![
            "value, B",
            "bytes read a found key",
            "of a block of 8 KB",
            "measured, million/s",
            "modelled, million/s",
        ],
        ..Figure::default()
    };
    let (mut read, mut block) = (Vec::new(), Vec::new());
    for value_bytes in [64_u64, 400, 1024] {
        let records = bench.records * RECORD_BYTES / (value_bytes + 20) / 2;
        let size = format!("--value_size={value_bytes}");
        let benchmarks = "fillrandom,compact,readrandom";
        let measured = Run { records, ..Run::new(bench) }.report(benchmarks, &[&size]);
        let local = Run { records, modelled: true, ..Run::new(bench) }.report(benchmarks, &[&size]);
        let Some(measured) = figure.note(rate(&measured, "readrandom")) else { continue };
        let Some(local) = figure.note(local.and_then(|local| named(&local, "readrandom").cloned())) else { continue };
        let each = local.fabric.bytes_read as f64 / local.found.unwrap_or(0).max(1) as f64;
        read.push((value_bytes as f64, each));
        block.push((value_bytes as f64, 8192.0));
        figure.row([
            value_bytes.to_string(),
            format!("{each:.0}"),
            "8192".into(),
            millions(measured),
            millions(modelled(&local, own_cpu_seconds(&local), 1)),
        ]);
    }
    let plot = Plot::lines("Figure 13: bytes of a read", "value, bytes", "bytes over the fabric");
    figure.plots.push(plot.with("one record", read).with("a block of 8 KB", block));
    figure
}

fn figure_14(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "1 to 4 memory nodes, the data growing with them",
        paper: "writes and reads become slower with the data, but less than in one memory node, because every node \
                brings cores for compaction",
        remarks: "All nodes share the two cores here, so what they add is memory and parallel compaction of smaller \
                  trees, not processor time.",
        header: vec![
            "memory nodes",
            "records, million",
            "fill, million/s",
            "read, million/s",
            "the same in one node: fill",
            "read",
        ],
        ..Figure::default()
    };
    let mut series: [Vec<(f64, f64)>; 4] = Default::default();
    for nodes in [1_u32, 2, 4] {
        let records = bench.records / 2 * u64::from(nodes);
        let shards = format!("--shards={}", nodes * 2);
        let reads = format!("--reads={}", bench.records / 2);
        let mut cells = vec![nodes.to_string(), format!("{:.2}", records as f64 / 1e6)];
        for (place, of) in [(0, nodes), (2, 1)] {
            let run = Run { nodes: of, records, ..Run::new(bench) };
            let phases = run.report("fillrandom,waitforcompaction,readrandom", &[&shards, &reads]);
            for (part, name) in ["fillrandom", "readrandom"].into_iter().enumerate() {
                let rate = rate(&phases, name).ok();
                series[place + part].extend(rate.map(|rate| (f64::from(nodes), rate)));
                cells.push(rate.map_or("–".into(), millions));
            }
            figure.note(phases.map(|_| ()));
        }
        figure.row(cells);
    }
    let names = ["fillrandom", "readrandom", "fillrandom, one node", "readrandom, one node"];
    let plot = Plot::lines("Figure 14: memory nodes", "memory nodes, and times the data", "operations a second");
    figure.plots.push(names.into_iter().zip(series).fold(plot, |plot, (name, points)| plot.with(name, points)));
    figure
}
