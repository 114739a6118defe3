//! Dolphin's figures 6 to 9: cache sizes, YCSB, scans, and real workloads, on the shared tree.

use super::{Bench, Figure, Numbered, modelled, named, own_cpu_seconds};
use crate::Outcome;
use forebay_workload::PhaseReport;
use forebay_workload::plot::Plot;

pub const RECORDS: u64 = 1_000_000;

pub const ABOUT: &str = "Only the curves of the tree itself. The paper has 512 million items of 8 B keys and 8 B values and up \
to 512 clients; here a million by default, and numbers of clients come from the link model over the counts of one \
client with warm caches. Conflicts among clients are not part of that model.";

pub const FIGURES: &[Numbered] = &[(7, figure_7), (8, figure_8), (9, figure_9)];

const CLIENTS: [usize; 6] = [1, 4, 16, 64, 128, 256];

fn ycsb(bench: &Bench, flags: &[&str]) -> Outcome<Vec<PhaseReport>> {
    let node = bench.forebay.memory_node(1, (bench.records * 160).max(1 << 30), 1)?;
    let mut all = vec!["--engine=tree".to_owned(), "--link-rtt=2us".into()];
    all.extend([format!("--records={}", bench.records), format!("--operations={}", bench.records)]);
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    bench.forebay.report("ycsb", &[&node], &all)
}

fn by_clients(figure: &mut Figure, title: &str, phases: Option<Vec<PhaseReport>>, names: &[(&str, &str)]) {
    let Some(phases) = phases else { return };
    let mut plot = Plot::lines(title, "clients (modelled)", "operations a second");
    for (name, label) in names {
        let Some(phase) = figure.note(named(&phases, name).cloned()) else { continue };
        let cpu = own_cpu_seconds(&phase);
        let rates = CLIENTS.map(|clients| (clients as f64, modelled(&phase, cpu, clients)));
        plot = plot.with(*label, rates);
        let each = |count: u64| count as f64 / phase.operations.max(1) as f64;
        figure.row([
            (*label).to_owned(),
            super::millions(phase.ops_per_second),
            format!("{:.2}", each(phase.fabric.round_trips)),
            format!("{:.0}", each(phase.fabric.bytes_read)),
            format!("{:.1}", phase.latency_us.p50),
            super::millions(rates[0].1),
            super::millions(rates[CLIENTS.len() - 1].1),
        ]);
    }
    figure.plots.push(plot);
}

const HEADER: [&str; 7] = [
    "workload",
    "measured, million/s, 1 client",
    "round trips/operation",
    "bytes read/operation",
    "p50 us",
    "modelled, 1 client",
    "modelled, 256 clients",
];

fn figure_7(bench: &Bench) -> Figure {
    let mut figure = Figure {
        number: 7,
        title: "YCSB A, C and load",
        paper: "throughput against latency; updates take 2 round trips, gets 1, inserts 3",
        remarks: "Gets take one round trip as in the paper, updates two, and inserts two where the paper has three.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    let phases = ycsb(bench, &["--workload=a,c"]);
    let phases = figure.note(phases);
    by_clients(&mut figure, "YCSB", phases, &[("a", "YCSB A"), ("c", "YCSB C"), ("load", "load")]);
    figure
}

fn figure_8(bench: &Bench) -> Figure {
    let mut figure = Figure {
        number: 8,
        title: "Scans of 100",
        paper: "range-only and range-write; leaves of neighbouring keys make a scan few reads",
        remarks: "Leaves hold neighbouring keys, so that a scan is few reads, as in the paper.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    let operations = format!("--operations={}", bench.records / 20);
    let phases = ycsb(bench, &["--workload=range-only,range-write", "--fixed-scans", &operations]);
    let phases = figure.note(phases);
    let names = [("range-only", "range-only"), ("range-write", "range-write")];
    by_clients(&mut figure, "Scans", phases, &names);
    figure
}

fn figure_9(bench: &Bench) -> Figure {
    let mut figure = Figure {
        number: 9,
        title: "Real workloads",
        paper: "clusters 8 (half writes) and 9 (reads) of the Twitter caches",
        remarks: "Mix and skew are those of the clusters; values have 8 B, as the index in the paper has.",
        header: HEADER.to_vec(),
        ..Figure::default()
    };
    for (cluster, name) in [("8", "cluster8"), ("9", "cluster9")] {
        let flags = [
            "--profile=../shared/traces/twitter-clusters-2020.csv",
            "--cluster",
            cluster,
            "--key-size=8",
            "--value-size=8",
        ];
        let phases = ycsb(bench, &flags);
        let phases = figure.note(phases);
        by_clients(&mut figure, name, phases, &[(name, name)]);
    }
    figure
}
