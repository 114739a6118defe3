//! The report of a run as a self-contained page of HTML with plots.

use crate::plot::{Plot, Scale, escaped, short};
use crate::report::PhaseReport;
use std::fmt::Write;

const STYLE: &str = "body{font-family:sans-serif;margin:2em;max-width:1200px}table{border-collapse:collapse}\
    td,th{border:1px solid #ccc;padding:3px 8px;text-align:right}td:first-child,th:first-child{text-align:left}\
    .plots{display:flex;flex-wrap:wrap;gap:12px}";

/// The page of these phases. `about` describes the run.
#[must_use]
pub fn render_page(about: &str, phases: &[PhaseReport]) -> String {
    let about = escaped(about);
    let plots =
        [throughput(phases), latency(phases), traffic(phases), bytes(phases), levels(phases), level_tables(phases)];
    let plots: String = plots.iter().filter(|plot| !plot.series.is_empty()).map(Plot::svg).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Forebay: {about}</title>\
         <style>{STYLE}</style></head>\n<body><h1>Forebay</h1><p>{about}</p>\n{}\n<div class=\"plots\">\n{plots}</div>\n\
         <p>Throughput is the mean between two looks, ten a second. Traffic in the background is that of flushes and \
         compactions.</p></body></html>\n",
        table(phases)
    )
}

fn table(phases: &[PhaseReport]) -> String {
    let mut out = "<table><tr><th>phase</th><th>operations</th><th>seconds</th><th>operations/s</th><th>p50 us</th>\
                   <th>p99 us</th><th>p99.9 us</th><th>max us</th><th>round trips/operation</th>\
                   <th>bytes read/operation</th><th>stalled s</th></tr>\n"
        .to_owned();
    for phase in phases {
        let latency = &phase.latency_us;
        let stalled = phase.lsm.as_ref().map_or("–".into(), |lsm| format!("{:.3}", lsm.stall_seconds));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
             <td>{:.1}</td><td>{:.3}</td><td>{:.1}</td><td>{stalled}</td></tr>",
            escaped(&phase.name),
            phase.operations,
            phase.seconds,
            short(phase.ops_per_second),
            latency.p50,
            latency.p99,
            latency.p999,
            latency.max,
            each(phase, phase.fabric.round_trips),
            each(phase, phase.fabric.bytes_read),
        );
    }
    out + "</table>"
}

fn each(phase: &PhaseReport, count: u64) -> f64 {
    if phase.operations == 0 { 0.0 } else { count as f64 / phase.operations as f64 }
}

/// Phases with more than one operation, that is, without steps.
fn measured(phases: &[PhaseReport]) -> impl Iterator<Item = &PhaseReport> {
    phases.iter().filter(|phase| phase.operations > 1)
}

fn throughput(phases: &[PhaseReport]) -> Plot {
    let empty = Plot::lines("Throughput over time", "seconds since the phase began", "operations a second");
    measured(phases).fold(empty, |plot, phase| {
        let pairs = phase.curves.throughput.windows(2);
        let rates = pairs.filter_map(|pair| match pair {
            [(from, before), (to, after)] if to > from => {
                Some((*to, after.saturating_sub(*before) as f64 / (to - from)))
            }
            _ => None,
        });
        plot.with(&phase.name, rates)
    })
}

/// Latency against the share of slower calls, so that the tail gets as much room as the rest.
fn latency(phases: &[PhaseReport]) -> Plot {
    let empty = Plot::lines("Latency", "one call in so many is slower", "microseconds");
    let plot = measured(phases).fold(empty, |plot, phase| {
        let calls = phase.operations.max(1) as f64;
        let curve = phase.curves.latency.iter();
        plot.with(&phase.name, curve.map(move |&(share, us)| (1.0 / (1.0 - share).max(1.0 / calls), us)))
    });
    plot.scaled(Scale::Logarithmic, Scale::Logarithmic)
}

fn categories(phases: &[PhaseReport]) -> Vec<String> {
    measured(phases).map(|phase| phase.name.clone()).collect()
}

/// A counted quantity: its name, and its count in a phase.
type Counted = (&'static str, fn(&PhaseReport) -> u64);

fn traffic(phases: &[PhaseReport]) -> Plot {
    let empty = Plot::bars("Traffic that callers waited for", categories(phases), "for each operation");
    let kinds: [Counted; 5] = [
        ("round trips", |phase| phase.fabric.round_trips),
        ("reads", |phase| phase.fabric.reads),
        ("writes", |phase| phase.fabric.writes),
        ("atomics", |phase| phase.fabric.atomics),
        ("messages", |phase| phase.fabric.messages),
    ];
    with_counts(empty, phases, kinds)
}

fn bytes(phases: &[PhaseReport]) -> Plot {
    let empty = Plot::bars("Bytes over the fabric", categories(phases), "bytes for each operation");
    let kinds: [Counted; 4] = [
        ("read", |phase| phase.fabric.bytes_read),
        ("written", |phase| phase.fabric.bytes_written),
        ("read, background", |phase| phase.fabric_background.bytes_read),
        ("written, background", |phase| phase.fabric_background.bytes_written),
    ];
    with_counts(empty, phases, kinds)
}

fn with_counts(empty: Plot, phases: &[PhaseReport], kinds: impl IntoIterator<Item = Counted>) -> Plot {
    kinds.into_iter().fold(empty, |plot, (name, count)| {
        plot.with(name, (0..).map(f64::from).zip(measured(phases).map(|phase| each(phase, count(phase)))))
    })
}

/// The tree after each phase: bytes of each level.
fn levels(phases: &[PhaseReport]) -> Plot {
    by_level(phases, "Shape of the tree: bytes", "bytes of the level", |level| level.bytes as f64)
}

fn level_tables(phases: &[PhaseReport]) -> Plot {
    by_level(phases, "Shape of the tree: tables", "tables of the level", |level| level.tables as f64)
}

fn by_level(phases: &[PhaseReport], title: &str, label: &str, of: fn(&crate::Level) -> f64) -> Plot {
    let trees = || phases.iter().filter_map(|phase| Some((&phase.name, &phase.lsm.as_ref()?.levels)));
    let used =
        |levels: &Vec<crate::Level>| levels.iter().rposition(|level| level.tables > 0).map_or(0, |last| last + 1);
    let count = trees().map(|(_, levels)| used(levels)).max().unwrap_or(0);
    let empty = Plot::bars(title, (0..count).map(|level| format!("level {level}")).collect(), label);
    trees().filter(|_| count > 0).fold(empty, |plot, (name, levels)| {
        plot.with(name, (0..).map(f64::from).zip(levels.iter().take(count).map(of)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Curves, Level, Lsm};

    fn phase(name: &str) -> PhaseReport {
        let json = r#"{"name":"x","operations":10,"seconds":1.0,"ops_per_second":10.0,
            "latency_us":{"p50":1.0,"p99":2.0,"p999":3.0,"max":4.0},
            "fabric":{"round_trips":1,"reads":2,"writes":3,"atomics":4,"messages":5,"bytes_read":6,"bytes_written":7},
            "fabric_background":{"round_trips":1,"reads":2,"writes":3,"atomics":4,"messages":5,"bytes_read":6,
            "bytes_written":7},"compute":{"cpu_seconds":1.0,"cached_index_bytes":0,"memtable_bytes":0},
            "memory_node":{"cpu_seconds":0.0,"allocated_bytes":0,"live_bytes":0}}"#;
        let curves = Curves { throughput: vec![(0.0, 0), (0.5, 4), (1.0, 10)], latency: vec![(0.5, 1.0), (1.0, 4.0)] };
        let levels = vec![Level::default(), Level { tables: 3, runs: 1, bytes: 1000 }];
        let lsm = Some(Lsm { levels, ..Lsm::default() });
        PhaseReport { name: name.into(), curves, lsm, ..serde_json::from_str(json).unwrap() }
    }

    #[test]
    fn the_page_is_self_contained_and_has_every_plot() {
        let page = render_page("a run of <x>", &[phase("fillrandom"), phase("readrandom")]);
        assert_eq!(page.matches("<svg ").count(), 6);
        assert!(page.contains("a run of &lt;x&gt;") && !page.contains("<x>"));
        let foreign = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http") && !foreign.contains("<script") && !foreign.contains("src="));
    }

    #[test]
    fn a_run_without_phases_is_a_page() {
        assert!(render_page("nothing", &[]).ends_with("</html>\n"));
    }
}
