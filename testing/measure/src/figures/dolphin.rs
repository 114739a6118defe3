//! Dolphin's figures 6 to 9: cache sizes, YCSB, scans, and real workloads, on the shared tree.

use super::run::{by_threads, each, millions, named};
use super::{Bench, Figure, Named, frontier, ycsb};
use crate::Outcome;
use forebay_workload::PhaseReport;
use forebay_workload::plot::Plot;

pub const RECORDS: u64 = 1_000_000;

pub const ABOUT: &str = "Only the curves of the tree itself: the other systems' need those systems. The paper has 512 \
million items of 8 B keys and 8 B values, 4 memory nodes and up to 72 client threads. Here are RECORDS records and one \
memory node, and what depends on the size is given for each key. Measured rates are of one thread over shared memory; \
rates of many clients come from the link model over the counts and the processor time of one client, so waiting for one \
another at hot keys is not in them, but for the rows of real clients in figure 7. Keys are words that are scattered over \
all 64 bits; the paper's are dense integers, which its leaves need.";

pub const FIGURES: &[Named] = &[
    ("6", figure_6),
    ("7", figure_7),
    ("8", figure_8),
    ("9", figure_9),
    ("table-2", frontier::table_2),
    ("frontier", frontier::frontier),
    ("ycsb", ycsb::table),
];

const CLIENTS: [usize; 8] = [1, 4, 16, 36, 72, 128, 256, 512];
/// The paper's clients: 18 threads on each of 4 machines (Dolphin V-A).
const PAPER_CLIENTS: usize = 72;
/// Clients that really run, each with a cache and a session.
const REAL_CLIENTS: usize = 8;

fn tree(bench: &Bench, records: u64, operations: u64, flags: &[&str]) -> Outcome<Vec<PhaseReport>> {
    let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    ycsb::run(bench, "tree", records, operations, &flags)
}

fn figure_6(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "memory for the cache, YCSB A",
        paper: "50 to 800 MB for 512 million items, 0.1 to 1.6 B a key: with skewed keys throughput rises to 200 MB and \
                is flat from there, because all inner nodes are there; the more even the keys, the less a small cache helps",
        remarks: "As in the paper throughput rises to the size of all inner nodes, here about 0.35 B a key for keys of \
                  any distribution (the paper: 0.6, dense keys), and is flat from there. What does not match: skew hardly \
                  helps a small cache. An inner node covers some 4,000 keys here, popular keys lie scattered over all \
                  nodes, and nodes are forgotten in turn, however often they were used. An operation whose leaf is not \
                  remembered reads what it lacks and goes on: one round trip more, and 4 KiB, which is what then fills \
                  the wire.",
        header: vec![
            "keys",
            "cached B/key, at most",
            "in use",
            "round trips/operation",
            "modelled million/s, 72 clients",
        ],
        ..Figure::default()
    };
    let records = bench.records * 2;
    let mut plot = Plot::lines("Figure 6: YCSB A by cache size", "cached bytes a key, at most", "operations a second");
    for (name, distribution, theta) in
        [("zipfian 0.99", "zipfian", "0.99"), ("zipfian 0.9", "zipfian", "0.9"), ("uniform", "uniform", "0.99")]
    {
        let mut points = Vec::new();
        for hundredths in [5_u64, 10, 20, 30, 40, 80] {
            let flags = [
                "--workload=a",
                &format!("--distribution={distribution}"),
                &format!("--theta={theta}"),
                &format!("--tree-cache-size={}", records * hundredths / 100),
            ];
            let phases = tree(bench, records, records / 4, &flags);
            let Some(phase) = figure.note(phases.and_then(|phases| named(&phases, "a").cloned())) else { continue };
            let rate = by_threads(&phase, &[PAPER_CLIENTS])[0].1;
            points.push((hundredths as f64 / 100.0, rate));
            figure.row([
                name.to_owned(),
                format!("{:.2}", hundredths as f64 / 100.0),
                format!("{:.2}", phase.compute.cached_index_bytes as f64 / records as f64),
                format!("{:.2}", each(phase.fabric.round_trips, &phase)),
                millions(rate),
            ]);
        }
        plot = plot.with(name, points);
    }
    figure.plots.push(plot);
    figure
}

const HEADER: [&str; 7] = [
    "workload",
    "measured, million/s",
    "round trips/operation",
    "bytes read/operation",
    "modelled mean us, 1 client",
    "modelled million/s, 1 client",
    "72 clients",
];

fn row_of(figure: &mut Figure, label: &str, phase: &PhaseReport) {
    let rates = by_threads(phase, &[1, PAPER_CLIENTS]);
    figure.row([
        label.to_owned(),
        millions(phase.ops_per_second),
        format!("{:.2}", each(phase.fabric.round_trips, phase)),
        format!("{:.0}", each(phase.fabric.bytes_read, phase)),
        format!("{:.1}", 1e6 / rates[0].1),
        millions(rates[0].1),
        millions(rates[1].1),
    ]);
}

/// Modelled throughput of the phases with these names, by number of clients.
fn by_clients(figure: &mut Figure, mut plot: Plot, phases: Option<Vec<PhaseReport>>, names: &[(&str, &str)]) -> Plot {
    let Some(phases) = phases else { return plot };
    for (name, label) in names {
        let Some(phase) = figure.note(named(&phases, name).cloned()) else { continue };
        row_of(figure, label, &phase);
        plot = plot.with(*label, by_threads(&phase, &CLIENTS));
    }
    plot
}

fn figure_7(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "YCSB A, C and load",
        paper: "latency against throughput; an update takes 2 round trips, a get 1, an insert 3; medians of 5.5 us for A",
        remarks: "Gets take one round trip and updates two, as in the paper; an insert takes two where the paper has \
                  three, and the load's are more by the leaves that it fills. A get brings 248 B where the paper reads a \
                  leaf of 1 KiB, so A and C are limited by the adapter's operations, with many clients, and not by the \
                  wire. The load does not match: in the paper it is near A, here it is limited by the operations that \
                  replacing leaves posts, because each word of a leaf is swapped, where a lock would let it be rewritten \
                  at once; that is the price of having no locks. The last rows are of 8 clients that run at once, with \
                  sessions and caches of their own, at the same skew: what their round trips exceed those of one client by \
                  is what conflicts cost on two cores.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    let names = [("a", "YCSB A"), ("c", "YCSB C"), ("load", "load")];
    let phases = tree(bench, bench.records, bench.records, &["--workload=a,c"]);
    let phases = figure.note(phases);
    let plot = Plot::lines("Figure 7: YCSB, modelled", "clients", "operations a second");
    let plot = by_clients(&mut figure, plot, phases, &names);
    let mut latency = Plot::lines("Figure 7: latency against throughput", "million operations a second", "mean us");
    for series in &plot.series {
        let points = series.points.iter().map(|&(clients, rate)| (rate / 1e6, clients * 1e6 / rate));
        latency = latency.with(series.name.clone(), points.collect::<Vec<_>>());
    }
    figure.plots.extend([plot, latency]);
    let clients = format!("--clients={REAL_CLIENTS}");
    let phases = tree(bench, bench.records, bench.records, &["--workload=a,c", &clients]);
    if let Some(phases) = figure.note(phases) {
        for (name, label) in names {
            if let Some(phase) = figure.note(named(&phases, name).cloned()) {
                row_of(&mut figure, &format!("{label}, {REAL_CLIENTS} real clients"), &phase);
            }
        }
    }
    figure
}

fn figure_8(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "scans of 100",
        paper: "range-only and range-write, uniform; with leaves of neighbouring keys a scan takes 2 or 3 reads",
        remarks: "As in the paper a scan is few reads of leaves, posted at once: about one round trip, and bytes of less \
                  than three times the payload of 1,600 B. With inserts between them the rate rises, as the paper's \
                  does slightly.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    let phases =
        tree(bench, bench.records, bench.records / 20, &["--workload=range-only,range-write", "--fixed-scans"]);
    let phases = figure.note(phases);
    let names = [("range-only", "range-only"), ("range-write", "range-write")];
    let plot = Plot::lines("Figure 8: scans of 100, modelled", "clients", "operations a second");
    let plot = by_clients(&mut figure, plot, phases, &names);
    figure.plots.push(plot);
    figure
}

fn figure_9(bench: &Bench) -> Figure {
    let mut figure = Figure {
        title: "real workloads",
        paper: "clusters 8 (half writes) and 9 (reads) of the Twitter caches; Dolphin leads in 8 and is close in 9",
        remarks: "Mix and skew are those of the clusters' statistics; values have 8 B, as the index in the paper has (with \
                  the clusters' own sizes they are in the table of YCSB below). Half writes make 1.5 round trips, reads 1.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    let mut plot = Plot::lines("Figure 9: clusters, modelled", "clients", "operations a second");
    for (cluster, name) in [("8", "cluster8"), ("9", "cluster9")] {
        let mut flags: Vec<String> = ycsb::profile(bench, cluster).into();
        flags.extend(["--key-size=8".into(), "--value-size=8".into()]);
        let phases = ycsb::run(bench, "tree", bench.records, bench.records, &flags);
        let phases = figure.note(phases);
        plot = by_clients(&mut figure, plot, phases, &[(name, name)]);
    }
    figure.plots.push(plot);
    figure
}
