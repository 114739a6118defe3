//! O3-LSM's figures 7 to 15 (O3-LSM 5).
//!
//! The paper has memtables of 64 MB, a cache of blocks of 512 MB and 50 million operations; here all three are a fiftieth,
//! so that the number of tables is the same, and a write is moved as often. A network to the storage is modelled over the
//! counted bytes.

use super::run::{self, millions, named};
use super::tiers::{KEY_BYTES, Layout, VALUE_BYTES, on_node, storage};
use super::{Bench, Figure, Named};
use crate::Outcome;
use crate::processes::memory_flag;
use forebay::LinkModel;
use forebay_env::thread;
use forebay_workload::PhaseReport;
use forebay_workload::plot::{Plot, Scale};

pub const RECORDS: u64 = 1_000_000;

pub const ABOUT: &str = "Only O3-LSM's own curves: its baselines are other systems. Keys have 16 B and values 64 B unless a figure \
says otherwise, as in the paper. A run has RECORDS writes instead of 50 million, with memtables and tables of 1 MiB instead of 64 MB \
and a cache of blocks of 10 MiB instead of 512 MB. Behind it the memory node keeps blocks, as it does by default where the storage takes \
30 us or longer for one. Memtables and the upper levels lie in a memory node over shared memory, lower \
levels in a directory, and writes survive the compute node by a log in that directory, synced once a second. Measured rates are of \
processes on two cores. Modelled rates are the measured ones, but at most what the network to the storage carries: bytes that the \
compute node read from the storage or wrote to it, log included, whichever are more, over its bandwidth.";

pub const FIGURES: &[Named] = &[
    ("7", figure_7),
    ("8", figure_8),
    ("9", figure_9),
    ("10", figure_10),
    ("11", figure_11),
    ("12", figure_12),
    ("13", figure_13),
    ("14", figure_14),
    ("15", figure_15),
    ("pool", super::pool::figure),
    ("worker", figure_worker),
];

/// Networks to the storage, bits a second (O3-LSM 5.2).
const NETWORKS: [(&str, f64); 2] = [("1 Gb/s", 1e9), ("2.5 Gb/s", 2.5e9)];
/// A fill, until none of its work is left.
const FILL: &str = "fillrandom,waitforcompaction";
/// Phases over which a rate is watched.
const WINDOWS: usize = 20;

/// Runs workloads of `bench` in a memory node and a directory of their own.
fn bench(bench: &Bench, layout: &Layout, writes: u64, benchmarks: &str, more: &[String]) -> Outcome<Vec<PhaseReport>> {
    let node = bench.forebay.memory_node(1, layout.memory_bytes(writes), 1)?;
    on_node(bench, &node, &storage()?, layout, benchmarks, more)
}

fn number(bench: &Bench) -> String {
    format!("--num={}", bench.records)
}

/// Total operations and seconds of several phases, and the bytes between compute node and storage.
struct Moved {
    operations: u64,
    seconds: f64,
    bytes: u64,
}

impl Moved {
    fn of(phases: &[&PhaseReport]) -> Self {
        let sum = |of: fn(&PhaseReport) -> u64| phases.iter().map(|phase| of(phase)).sum::<u64>();
        let written = sum(|phase| {
            phase.storage.map_or(0, |storage| storage.bytes_written) + phase.log.map_or(0, |log| log.bytes)
        });
        let read = sum(|phase| phase.storage.map_or(0, |storage| storage.bytes_read));
        Self {
            operations: phases.first().map_or(0, |phase| phase.operations),
            seconds: phases.iter().map(|phase| phase.seconds).sum(),
            bytes: written.max(read),
        }
    }

    fn measured(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    fn each(&self) -> f64 {
        self.bytes as f64 / self.operations.max(1) as f64
    }

    /// Operations a second over a network of this bandwidth.
    fn modelled(&self, bits_per_second: f64) -> f64 {
        self.measured().min(bits_per_second / 8.0 / self.each().max(1e-9))
    }
}

fn figure_7(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "throughput by value size, the network to the storage at 1 and 2.5 Gb/s",
        paper: "writes of 64 B reach 0.415 million/s at 2.5 Gb/s, reads about 0.25 and the mix about 0.25 million/s; all fall with \
                the value's size, because the network carries so many bytes, and are lower at 1 Gb/s",
        remarks: "Writes have the paper's shape where the network decides: as many fewer as values are longer, and 2.5 times as many \
                  at 2.5 Gb/s. Reads come after all is quiet; a read that misses the cache of blocks, and what the memory node \
                  keeps behind it, brings a block of 16 KiB from the storage. So they are what the network carries of such blocks, until the \
                  memory node has those that are read. The mix is half reads, on what the reads left.",
        header: vec![
            "workload",
            "value, B",
            "measured, million/s",
            "bytes to or from storage",
            "at 2.5 Gb/s, million/s",
            "at 1 Gb/s",
        ],
        ..Figure::default()
    };
    let names = ["random write", "random read", "half reads"];
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for value_bytes in [64, 128, 256, 512, 1024] {
        let layout = Layout { value_bytes, ..Layout::default() };
        let reads = format!("--reads={}", own.records / 4);
        let more = [number(own), reads, "--readwritepercent=50".into()];
        let benchmarks = "fillrandom,waitforcompaction,readrandom,readrandomwriterandom,waitforcompaction";
        let phases = bench(own, &layout, own.records * 5 / 4, benchmarks, &more);
        let Some(phases) = figure.note(phases) else { continue };
        let [fill, quiet, read, mix, end] = &phases[..] else { continue };
        for (name, moved) in names.into_iter().zip([&[fill, quiet][..], &[read], &[mix, end]].map(Moved::of)) {
            let [slow, fast] = NETWORKS.map(|(_, bits_per_second)| moved.modelled(bits_per_second));
            figure.row([
                name.to_owned(),
                value_bytes.to_string(),
                millions(moved.measured()),
                format!("{:.0}", moved.each()),
                millions(fast),
                millions(slow),
            ]);
            for ((network, _), rate) in NETWORKS.into_iter().zip([slow, fast]) {
                let label = format!("{name}, {network}");
                match series.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, points)) => points.push((value_bytes as f64, rate)),
                    None => series.push((label, vec![(value_bytes as f64, rate)])),
                }
            }
        }
    }
    let plot = Plot::lines("Figure 7: modelled", "value, bytes", "operations a second");
    let plot = series.into_iter().fold(plot, |plot, (name, points)| plot.with(name, points));
    figure.plots.push(plot.scaled(Scale::Logarithmic, Scale::Logarithmic));
    figure
}

fn figure_8(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "mixes by distribution, 2.5 Gb/s",
        paper: "R100 and R95 gain from Zipfian keys, because hot keys are found through the cache of offsets; W100 is slightly slower \
                with them, because hot shards are flushed one after the other",
        remarks: "Skew saves bytes wherever records are written: an overwritten record is not moved down, so W100 moves fewer bytes with \
                  Zipfian keys, where the paper's slows down, because ours are scattered over all ranges and make none hot. Reads gain \
                  where hot records are in memtables, in upper levels in memory, or in blocks that are cached; a block of 16 KiB holds \
                  some 200 of these records, of which few are hot.",
        header: vec!["mix", "keys", "measured, million/s", "bytes to or from storage", "modelled, 2.5 Gb/s, million/s"],
        ..Figure::default()
    };
    let mixes = [("W100", "update-only"), ("RW50", "a"), ("R95", "b"), ("R100", "c")];
    let mut bars = Vec::new();
    for distribution in ["uniform", "zipfian"] {
        let layout = Layout::default();
        let mut points = Vec::new();
        for (place, (mix, workload)) in mixes.into_iter().enumerate() {
            let run = || {
                let (node, storage) =
                    (own.forebay.memory_node(1, layout.memory_bytes(own.records * 2), 1)?, storage()?);
                let mut flags = layout.flags(storage.path());
                flags.extend([format!("--key-size={KEY_BYTES}"), format!("--records={}", own.records)]);
                flags.extend([format!("--operations={}", own.records / 2), format!("--workload={workload}")]);
                flags.push(format!("--distribution={distribution}"));
                own.forebay.report("ycsb", &[&node], &flags)
            };
            let phase = run().and_then(|phases| named(&phases, workload).cloned());
            let Some(phase) = figure.note(phase) else { continue };
            let moved = Moved::of(&[&phase]);
            let rate = moved.modelled(NETWORKS[1].1);
            points.push((place as f64, rate));
            figure.row([
                mix.to_owned(),
                distribution.to_owned(),
                millions(moved.measured()),
                format!("{:.0}", moved.each()),
                millions(rate),
            ]);
        }
        bars.push((distribution, points));
    }
    let categories = mixes.iter().map(|(mix, _)| (*mix).to_owned()).collect();
    let plot = Plot::bars("Figure 8: modelled, 2.5 Gb/s", categories, "operations a second");
    figure.plots.push(bars.into_iter().fold(plot, |plot, (name, points)| plot.with(name, points)));
    figure
}

fn figure_9(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "range queries",
        paper: "fewer a second the longer they are, up to 5.2 times as many as the baselines', because a shard's consecutive keys lie in \
                few files",
        remarks: "The same shape. A query begins with a block of each level in storage that may hold its first key, and goes on along \
                  runs in key order with reads ahead, so that records a second rise with the length.",
        header: vec![
            "records a query",
            "measured, thousand/s",
            "bytes from storage a query",
            "modelled, 2.5 Gb/s, thousand/s",
            "records, million/s",
        ],
        ..Figure::default()
    };
    let (mut measured, mut model) = (Vec::new(), Vec::new());
    for nexts in [10, 100, 1000] {
        let reads = format!("--reads={}", (own.records / nexts / 10).max(10));
        let more = [number(own), reads, format!("--seek_nexts={nexts}")];
        let phases = bench(own, &Layout::default(), own.records, "fillrandom,waitforcompaction,seekrandom", &more);
        let Some(seek) = figure.note(phases.and_then(|phases| named(&phases, "seekrandom").cloned())) else { continue };
        let moved = Moved::of(&[&seek]);
        let rate = moved.modelled(NETWORKS[1].1);
        measured.push((nexts as f64, moved.measured()));
        model.push((nexts as f64, rate));
        figure.row([
            nexts.to_string(),
            format!("{:.2}", moved.measured() / 1e3),
            format!("{:.0}", moved.each()),
            format!("{:.2}", rate / 1e3),
            millions(rate * nexts as f64),
        ]);
    }
    let plot = Plot::lines("Figure 9: range queries", "records a query", "queries a second");
    let plot = plot.with("measured", measured).with("modelled, 2.5 Gb/s", model);
    figure.plots.push(plot.scaled(Scale::Logarithmic, Scale::Logarithmic));
    figure
}

fn figure_10(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "what each mechanism adds to writes",
        paper: "memory alone as a longer buffer (+DM) loses 18 %, because memtables are transferred and rebuilt; offloaded flushes (+FO) \
                raise what is flushed from 5 to 178 MB/s with 100 memtables; flushes by shard (+Shard) add 15 % and reach 0.652 million/s",
        remarks: "A memtable goes to memory as it stands here, so there is no row in which memory alone costs something. Its place takes \
                  the first row: all of level 0 goes to storage at once, merged at the compute node. By shard, a range at a time goes down \
                  when its table is full (4.4). Near the data, indexes of the upper levels are merged at the memory node. With a worker, \
                  it is another process that reads the memory and writes the storage (4.3), what was flushed too. By the paper's \
                  formula much stays at the compute node, whose threads are as good; when all jobs go away, what is left to it is its \
                  log, and little else. On two cores a worker takes its time from the writers; its gain is in the bytes.",
        header: vec![
            "mechanisms",
            "in the paper",
            "fill, million/s",
            "until quiet, million/s",
            "bytes to or from storage a write, compute node's",
            "modelled, 1 Gb/s, million/s",
        ],
        ..Figure::default()
    };
    let steps = [
        ("level 0 to storage, compute node", "Default, +DM", 1, "compute", None),
        ("by shard, compute node", "+Shard", 2, "compute", None),
        ("by shard, near the data", "+Shard", 2, "memory", None),
        ("by shard, a worker too", "+Shard, +FO", 2, "pool", Some("paper")),
        ("by shard, a worker alone", "+Shard, +FO", 2, "pool", Some("away")),
    ];
    let (mut rates, mut modelled, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (name, paper, storage_from, compactions, placement)) in steps.into_iter().enumerate() {
        let layout = Layout { storage_from, place: compactions, value_bytes: 256, ..Layout::default() };
        let run = || match placement {
            None => bench(own, &layout, own.records, FILL, &[number(own)]),
            Some(placement) => with_worker(own, own, &layout, own.records, placement),
        };
        let Some(phases) = figure.note(run()) else { continue };
        let [fill, quiet] = &phases[..] else { continue };
        let moved = Moved::of(&[fill, quiet]);
        let rate = moved.modelled(NETWORKS[0].1);
        rates.push((place as f64, moved.measured()));
        modelled.push((place as f64, rate));
        bytes.push((place as f64, moved.each()));
        figure.row([
            name.to_owned(),
            paper.to_owned(),
            millions(fill.ops_per_second),
            millions(moved.measured()),
            format!("{:.0}", moved.each()),
            millions(rate),
        ]);
    }
    let categories = || steps.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let plot = Plot::bars("Figure 10: fillrandom of 256 B until quiet", categories(), "operations a second");
    figure.plots.push(plot.with("measured", rates).with("modelled, 1 Gb/s", modelled));
    let plot = Plot::bars("Figure 10: the compute node's bytes to or from storage", categories(), "bytes a write");
    figure.plots.push(plot.with("compute node", bytes));
    figure
}

/// Threads of a worker: much of its time is spent on the storage.
const WORKER_THREADS: usize = 4;

/// Fills a database until background work is done, with a worker beside it; `pool` starts the memory
/// node and the worker.
fn with_worker(own: &Bench, pool: &Bench, layout: &Layout, records: u64, placement: &str) -> Outcome<Vec<PhaseReport>> {
    let flags = ["--threads=1".to_owned(), format!("--placement={placement}")];
    let node = pool.forebay.memory_node_with(1, layout.memory_bytes(records), &flags)?;
    let storage = storage()?;
    let mut arguments = vec!["worker".to_owned(), format!("--threads={WORKER_THREADS}")];
    arguments.push(format!("--storage={}", storage.path().display()));
    arguments.extend(memory_flag(&[&node]));
    let (_worker, _) = pool.forebay.start(arguments)?;
    on_node(own, &node, &storage, layout, FILL, &[format!("--num={records}")])
}

/// The cores of the compute process, and of the memory node and the worker.
const CORES: [usize; 2] = [0, 1];

fn figure_worker(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "a worker beside a compute process that has one core",
        remarks: "The compute process has one core, the memory node and the worker the other. Levels from 2 on lie in storage, \
                  values have 256 B, memtables and tables 16 MiB, and there are four times the records. Alone, the compute \
                  process does all jobs. By the paper's formula the scheduler weighs the loads of both; then bytes that \
                  have to move cost as much as the work on them; by default its owner's own threads count as dearer; and when all jobs go away, next to nothing but the log goes from the compute \
                  process to the storage. With flushes, the indexes of what is flushed are jobs as well.",
        header: vec![
            "who does the jobs",
            "fill, million/s",
            "to alone",
            "until quiet, million/s",
            "to alone",
            "bytes to or from storage a write, compute node's",
            "compute process's core, s",
        ],
        ..Figure::default()
    };
    let records = own.records * 4;
    let [compute, pool] = CORES.map(|core| Bench { forebay: own.forebay.on_core(core), ..own.clone() });
    let layout =
        |place, flush_place| Layout { place, flush_place, value_bytes: 256, table_mib: 16, ..Layout::default() };
    let alone = || {
        let layout = layout("compute", "compute");
        let node = pool.forebay.memory_node(1, layout.memory_bytes(records), 1)?;
        on_node(&compute, &node, &storage()?, &layout, FILL, &[format!("--num={records}")])
    };
    let with = |placement, flushes| with_worker(&compute, &pool, &layout("pool", flushes), records, placement);
    let runs = [
        ("the compute process", alone()),
        ("both, by the paper's formula", with("paper", "compute")),
        ("the same, with flushes", with("paper", "as-compactions")),
        ("both, where bytes that move count too", with("moving", "compute")),
        ("both, by default", with("sparing", "compute")),
        ("the same, with flushes", with("sparing", "as-compactions")),
        ("the worker", with("away", "compute")),
        ("the same, with flushes", with("away", "as-compactions")),
    ];
    let mut of_one = None;
    for (name, phases) in runs {
        let Some(phases) = figure.note(phases) else { continue };
        let [fill, quiet] = &phases[..] else { continue };
        let moved = Moved::of(&[fill, quiet]);
        let (filled, settled) = (fill.ops_per_second, moved.measured());
        let (fill_alone, settled_alone) = *of_one.get_or_insert((filled, settled));
        figure.row([
            name.to_owned(),
            millions(filled),
            format!("{:.2}", filled / fill_alone),
            millions(settled),
            format!("{:.2}", settled / settled_alone),
            format!("{:.0}", moved.each()),
            format!("{:.1}", fill.compute.cpu_seconds + quiet.compute.cpu_seconds),
        ]);
    }
    figure
}

fn figure_11(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "memory for what leads to records, and what a read waits for",
        paper: "(a) more cache for offsets makes reads faster: by 67 % for Zipfian keys and 32 % for uniform ones from 64 to 512 MB; (b) \
                4.7 us from local memory, 6.8 us by a cached offset, 23.9 us delegated, 29 us by reads alone",
        remarks: "(a) The memory here holds point indexes of tables, and addresses that lookups have learnt with what is left. The more \
                  of them, the fewer round trips a read takes, down to one for a key that is there; skew helps where there is memory for \
                  a part, because hot keys are learnt. Nothing is delegated by default in one process, where reading is judged to cost \
                  less. (b) The same four cases as in the paper: no round trip, one read, one message, two round trips. In the model a \
                  round trip takes 2 us whichever it is, where the paper's messages take longer than its reads, and the memory node's \
                  time for a lookup counts as its caller's. Here all levels are in memory.",
        header: vec![
            "case",
            "keys",
            "held, B a key",
            "round trips a read",
            "delegated, %",
            "learnt, %",
            "modelled mean us",
            "modelled, million/s",
        ],
        ..Figure::default()
    };
    let mut plot = Plot::lines("Figure 11 (a): reads by memory", "bytes a key, at most", "operations a second");
    for distribution in ["uniform", "zipfian"] {
        let mut points = Vec::new();
        for quarter_bytes in [0, 1, 2, 4, 8, 16] {
            let bytes_a_key = quarter_bytes as f64 / 4.0;
            let flags = [format!("--cached-index-size={}", own.records / 4 * quarter_bytes / 4)];
            let Some(read) = figure.note(reads(own, distribution, &flags)) else { continue };
            let rate = read_row(&mut figure, &format!("at most {bytes_a_key} B a key"), distribution, own, &read);
            points.push((bytes_a_key, rate));
        }
        plot = plot.with(distribution, points);
    }
    figure.plots.push(plot);
    let mut bars = Vec::new();
    let cases = [
        ("in a memtable", vec!["--write_buffer_size=256MiB".to_owned()]),
        ("index held: one read", vec![]),
        ("delegated", vec!["--cached-index-size=0".to_owned(), "--delegation=always".into()]),
        ("by reads alone", vec!["--cached-index-size=0".to_owned(), "--delegation=never".into()]),
    ];
    let names = cases.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (place, (name, flags)) in cases.iter().enumerate() {
        let Some(read) = figure.note(reads(own, "uniform", flags)) else { continue };
        bars.push((place as f64, 1e6 / read_row(&mut figure, name, "uniform", own, &read)));
    }
    figure.plots.push(Plot::bars("Figure 11 (b): a read, modelled", names, "mean us").with("one caller", bars));
    figure
}

/// Reads in memory, in this process with the link model.
fn reads(own: &Bench, distribution: &str, flags: &[String]) -> Outcome<PhaseReport> {
    let records = own.records / 4;
    let mut all = vec![
        "--workload=c".to_owned(),
        format!("--distribution={distribution}"),
        format!("--records={records}"),
        format!("--operations={records}"),
        format!("--key-size={KEY_BYTES}"),
        format!("--value-size={VALUE_BYTES}"),
        "--target_file_size_base=1MiB".into(),
        "--max_bytes_for_level_base=4MiB".into(),
        "--link-rtt=2us".into(),
    ];
    if !flags.iter().any(|flag| flag.starts_with("--write_buffer_size")) {
        all.push("--write_buffer_size=1MiB".into());
    }
    all.extend_from_slice(flags);
    let phases = run::report(own, run::Place::Process, 2 << 30, "ycsb", all)?;
    named(&phases, "c").cloned()
}

/// A row of a read, and its modelled rate.
fn read_row(figure: &mut Figure, case: &str, distribution: &str, own: &Bench, read: &PhaseReport) -> f64 {
    let rate = read.model.map_or(0.0, |model| model.ops_per_second);
    let lookups = read.lsm.as_ref().and_then(|lsm| lsm.lookups).unwrap_or_default();
    let percent = |count: u64| format!("{:.0}", 100.0 * run::each(count, read));
    figure.row([
        case.to_owned(),
        distribution.to_owned(),
        format!("{:.1}", read.compute.cached_index_bytes as f64 / (own.records / 4) as f64),
        format!("{:.2}", run::each(read.fabric.round_trips, read)),
        percent(lookups.delegated),
        percent(lookups.learnt),
        format!("{:.2}", 1e6 / rate.max(1e-9)),
        millions(rate),
    ]);
    rate
}

fn figure_12(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "number of memtables",
        paper: "the more memtables there may be, all but two of them in remote memory, the faster are writes, reads and the mix; of 10, \
                the more are local, the faster are reads and the slower writes",
        remarks: "A sealed memtable is a table of level 0 in remote memory as soon as it is flushed, and level 0 is what the paper's remote \
                  memtables are. So the number is that of tables of level 0 before writers wait, with half as many before they are \
                  merged. Writes wait less, as in the paper. A read looks into the indexes of more tables, which are held at the \
                  compute node, so it loses little.",
        header: vec![
            "memtables",
            "fill, million/s",
            "until quiet, million/s",
            "half reads, million/s",
            "reads, million/s",
            "stalls, s",
        ],
        ..Figure::default()
    };
    let mut series: [Vec<(f64, f64)>; 3] = Default::default();
    for memtables in [4_u64, 8, 16, 32, 64, 96] {
        let more = [
            number(own),
            format!("--reads={}", own.records / 4),
            "--readwritepercent=50".into(),
            format!("--level0_file_num_compaction_trigger={}", (memtables / 2).max(2)),
        ];
        let benchmarks = "fillrandom,readrandomwriterandom,readrandom,waitforcompaction";
        let phases = bench(
            own,
            &Layout { memtables: 4, level0_tables: memtables, ..Layout::default() },
            own.records * 5 / 4,
            benchmarks,
            &more,
        );
        let Some(phases) = figure.note(phases) else { continue };
        let [fill, mix, read, quiet] = &phases[..] else { continue };
        let until_quiet = Moved::of(&[fill, quiet]).measured();
        for (series, rate) in series.iter_mut().zip([fill, mix, read].map(|phase| phase.ops_per_second)) {
            series.push((memtables as f64, rate));
        }
        figure.row([
            memtables.to_string(),
            millions(fill.ops_per_second),
            millions(until_quiet),
            millions(mix.ops_per_second),
            millions(read.ops_per_second),
            format!(
                "{:.2}",
                phases.iter().filter_map(|phase| phase.lsm.as_ref()).map(|lsm| lsm.stall_seconds).sum::<f64>()
            ),
        ]);
    }
    let plot = Plot::lines("Figure 12: number of memtables", "memtables", "operations a second");
    let names = ["random write", "half reads", "random read"];
    figure.plots.push(names.into_iter().zip(series).fold(plot, |plot, (name, points)| plot.with(name, points)));
    figure
}

/// A fill, and then parts with an equal number of operations, of which `reads_percent` per cent are
/// reads.
fn in_parts(own: &Bench, parts: usize, reads_percent: u32) -> (String, Vec<String>) {
    let mut benchmarks = vec!["fillrandom"];
    benchmarks.resize(parts + 1, "readrandomwriterandom");
    let operations = (own.records / parts as u64).max(1);
    let flags = [number(own), format!("--reads={operations}"), format!("--readwritepercent={reads_percent}")];
    (benchmarks.join(","), flags.to_vec())
}

/// The rate of each part of a workload, after a first fill.
fn windows(own: &Bench, layout: &Layout, reads_percent: u32) -> Outcome<Vec<f64>> {
    let (benchmarks, flags) = in_parts(own, WINDOWS, reads_percent);
    let phases = bench(own, layout, own.records * 2, &benchmarks, &flags)?;
    Ok(phases.iter().skip(1).map(|phase| phase.ops_per_second).collect())
}

fn figure_13(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "rate over time",
        paper: "a high and even rate, where the baselines dip often",
        remarks: "Each point is a twentieth of the writes. A dip is a writer that waits for level 0, or a core that a compaction has.",
        header: vec!["workload", "mean, million/s", "least", "most", "deviation, % of the mean"],
        ..Figure::default()
    };
    let mut plot = Plot::lines("Figure 13: rate over time", "part of the run", "operations a second");
    for (reads_percent, label) in [(0, "random write"), (50, "half reads")] {
        let Some(rates) = figure.note(windows(own, &Layout::default(), reads_percent)) else { continue };
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
        let (least, most) =
            (rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().copied().fold(0.0, f64::max));
        let deviation = format!("{:.0}", 100.0 * variance.sqrt() / mean);
        figure.row([label.to_owned(), millions(mean), millions(least), millions(most), deviation]);
        plot = plot
            .with(label, rates.iter().enumerate().map(|(place, &rate)| (place as f64 + 1.0, rate)).collect::<Vec<_>>());
    }
    figure.plots.push(plot);
    figure
}

fn figure_14(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "spread of rates, by workload and value size",
        paper: "O3-LSM's boxes are the most compact ones, for all workloads and sizes",
        remarks: "Quartiles of the rates of twenty parts of a run, as in figure 13. Longer values spread more, as fewer of them fill a \
                  memtable and compactions are more frequent for the same number of writes.",
        header: vec!["workload", "value, B", "least, million/s", "first quartile", "median", "third quartile", "most"],
        ..Figure::default()
    };
    let mut plot = Plot::lines("Figure 14: quartiles of random writes", "value, bytes", "operations a second");
    let mut quartiles: [Vec<(f64, f64)>; 3] = Default::default();
    for (reads_percent, label) in [(0, "random write"), (50, "half reads"), (100, "random read")] {
        for value_bytes in [64, 256, 1024] {
            let layout = Layout { value_bytes, ..Layout::default() };
            let Some(mut rates) = figure.note(windows(own, &layout, reads_percent)) else { continue };
            rates.sort_by(f64::total_cmp);
            let at = |quarters: usize| rates.get(quarters * rates.len().saturating_sub(1) / 4).copied().unwrap_or(0.0);
            if reads_percent == 0 {
                quartiles
                    .iter_mut()
                    .zip([1, 2, 3])
                    .for_each(|(points, quarters)| points.push((value_bytes as f64, at(quarters))));
            }
            figure.row(
                [label.to_owned(), value_bytes.to_string()]
                    .into_iter()
                    .chain((0..=4).map(|quarters| millions(at(quarters)))),
            );
        }
    }
    for (name, points) in ["first quartile", "median", "third quartile"].into_iter().zip(quartiles) {
        plot = plot.with(name, points);
    }
    figure.plots.push(plot.scaled(Scale::Logarithmic, Scale::Linear));
    figure
}

fn figure_15(own: &Bench) -> Figure {
    let mut figure = Figure {
        title: "several databases on one pool",
        paper: "(a) five compute nodes reach 2.9 times the throughput of one; (b) the number of memtables in the pool fluctuates little",
        remarks: "(a) Each database is a process, and all share two cores and one disk, so their sum cannot grow as with a machine each; \
                  the model gives each its own cores and its own network to the storage, as the paper does; the memory node's adapter is \
                  shared. (b) Bytes of the pool in use after each part of a run of three \
                  databases.",
        header: vec![
            "databases",
            "workload",
            "sum, million/s",
            "slowest",
            "fastest",
            "modelled, 2.5 Gb/s each, million/s",
        ],
        ..Figure::default()
    };
    let workloads = [(0, "random write"), (50, "half reads")];
    let mut plot = Plot::lines("Figure 15 (a): databases on one pool", "databases", "operations a second");
    let mut in_use = Vec::new();
    for (reads_percent, label) in workloads {
        let (mut measured, mut model) = (Vec::new(), Vec::new());
        for databases in 1..=4_u64 {
            let Some(runs) = figure.note(together(own, databases, reads_percent)) else { continue };
            let moved: Vec<Moved> =
                runs.iter().map(|phases| Moved::of(&phases.iter().skip(1).collect::<Vec<_>>())).collect();
            let rates: Vec<f64> = runs.iter().map(|phases| rate_of(&phases[1..])).collect();
            let sum: f64 = rates.iter().sum();
            let each =
                moved.iter().zip(&runs).map(|(moved, phases)| moved.bytes as f64 / operations(&phases[1..]).max(1.0));
            let of_network: f64 = each.map(|bytes| NETWORKS[1].1 / 8.0 / bytes.max(1e-9)).fold(f64::INFINITY, f64::min);
            // One database alone, multiplied by the number of databases, up to what its network and the node's adapter
            // carry.
            let alone = measured.first().map_or(sum, |&(_, rate)| rate);
            let fabric: f64 = runs
                .iter()
                .flatten()
                .map(|phase| (phase.fabric_background.bytes_written + phase.fabric.bytes_written) as f64)
                .sum();
            let all: f64 = runs.iter().map(|phases| operations(phases)).sum();
            let adapter = LinkModel::default().bits_per_second / 8.0 / (fabric / all.max(1.0)).max(1e-9);
            let modelled = (alone.min(of_network) * databases as f64).min(adapter);
            measured.push((databases as f64, sum));
            model.push((databases as f64, modelled));
            figure.row([
                databases.to_string(),
                label.to_owned(),
                millions(sum),
                millions(rates.iter().copied().fold(f64::INFINITY, f64::min)),
                millions(rates.iter().copied().fold(0.0, f64::max)),
                millions(modelled),
            ]);
            if databases == 3 {
                let parts = runs.iter().map(|phases| phases.len()).min().unwrap_or(0);
                let bytes = |part: usize| {
                    runs.iter()
                        .filter_map(|phases| phases.get(part))
                        .map(|phase| phase.memory_node.live_bytes)
                        .sum::<u64>()
                };
                in_use.push((
                    label,
                    (0..parts).map(|part| (part as f64, bytes(part) as f64 / f64::from(1 << 20))).collect::<Vec<_>>(),
                ));
            }
        }
        plot = plot.with(format!("{label}, measured"), measured).with(format!("{label}, modelled"), model);
    }
    figure.plots.push(plot);
    let plot = Plot::lines("Figure 15 (b): the pool in use, 3 databases", "part of the run", "MiB");
    figure.plots.push(in_use.into_iter().fold(plot, |plot, (name, points)| plot.with(name, points)));
    figure
}

fn operations(phases: &[PhaseReport]) -> f64 {
    phases.iter().map(|phase| phase.operations as f64).sum()
}

fn rate_of(phases: &[PhaseReport]) -> f64 {
    operations(phases) / phases.iter().map(|phase| phase.seconds).sum::<f64>().max(1e-9)
}

/// Runs `databases` databases at once on one node: a fill, and then parts of a workload.
fn together(own: &Bench, databases: u64, reads_percent: u32) -> Outcome<Vec<Vec<PhaseReport>>> {
    const PARTS: usize = 10;
    let layout = Layout::default();
    let node = own.forebay.memory_node(1, layout.memory_bytes(own.records * 2 * databases), 1)?;
    let storage = storage()?;
    let (benchmarks, flags) = in_parts(own, PARTS, reads_percent);
    let runs = thread::run_all((1..=databases).collect(), |database| {
        let of_its_own = [format!("--seed={database}"), format!("--db=database-{database}")];
        on_node(own, &node, &storage, &layout, &benchmarks, &[&flags[..], &of_its_own].concat())
    });
    runs.into_iter().map(|run| run.unwrap_or_else(|| Err("a run panicked".to_owned()))).collect()
}
