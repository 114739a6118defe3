//! The report as text for people.

use crate::durable::{LogFigures, RecoveryFigures, StorageFigures};
use crate::report::PhaseReport;
use std::fmt::Write;

/// The heading of the table; with `modelled`, including the model's columns.
#[must_use]
pub fn render_header(modelled: bool) -> String {
    let mut line = format!(
        "{:<22} {:>12} {:>9} {:>11} {:>9} {:>9} {:>9} {:>10} {:>8} {:>9} {:>12}",
        "benchmark",
        "operations",
        "seconds",
        "ops/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "trips/op",
        "B read/op",
        "found"
    );
    if modelled {
        let _ = write!(line, " {:>14} {:>14} {:>16}", "modelled s", "modelled ops/s", "modelled mean us");
    }
    line
}

/// A phase as a line of the table.
#[must_use]
pub fn render_phase(phase: &PhaseReport) -> String {
    let each = |count: u64| if phase.operations == 0 { 0.0 } else { count as f64 / phase.operations as f64 };
    let mut line = format!(
        "{:<22} {:>12} {:>9.3} {:>11} {:>9.2} {:>9.2} {:>9.2} {:>10.1} {:>8.3} {:>9.1} {:>12}",
        phase.name,
        grouped(phase.operations),
        phase.seconds,
        grouped(phase.ops_per_second as u64),
        phase.latency_us.p50,
        phase.latency_us.p99,
        phase.latency_us.p999,
        phase.latency_us.max,
        each(phase.fabric.round_trips),
        each(phase.fabric.bytes_read),
        phase.found.map_or("-".into(), grouped),
    );
    if let Some(model) = &phase.model {
        let _ = write!(
            line,
            " {:>14.3} {:>14} {:>16.2}",
            model.seconds,
            grouped(model.ops_per_second as u64),
            model.mean_latency_us
        );
    }
    for operation in &phase.by_operation {
        let latency = &operation.latency_us;
        let _ = write!(
            line,
            "\n  {:<20} {:>12} {:>9} {:>11} {:>9.2} {:>9.2} {:>9.2} {:>10.1}",
            operation.operation,
            grouped(operation.calls),
            "",
            "",
            latency.p50,
            latency.p99,
            latency.p999,
            latency.max
        );
    }
    line
}

/// The state at the end of a run: where the data is, and what it cost.
#[must_use]
pub fn render_summary(phases: &[PhaseReport]) -> String {
    let Some(last) = phases.last() else { return String::new() };
    let mut text = format!(
        "memory node: {} allocated, {} live\ncompute node: {} of cached indexes, {} of memtables\n",
        bytes(last.memory_node.allocated_bytes),
        bytes(last.memory_node.live_bytes),
        bytes(last.compute.cached_index_bytes),
        bytes(last.compute.memtable_bytes),
    );
    if let Some(lsm) = &last.lsm {
        let sum = |field: fn(&crate::Lsm) -> u64| phases.iter().filter_map(|phase| phase.lsm.as_ref()).map(field).sum();
        let _ = writeln!(
            text,
            "flushes: {}, compactions: {} ({} index entries), stalls: {}",
            grouped(sum(|lsm| lsm.flushes)),
            grouped(sum(|lsm| lsm.compactions)),
            grouped(sum(|lsm| lsm.compaction_entries)),
            grouped(sum(|lsm| lsm.stalls)),
        );
        if let Some(line) = last.recovery.as_ref().and_then(recovery_line) {
            let _ = writeln!(text, "{line}");
        }
        if let Some(line) = log_line(phases) {
            let _ = writeln!(text, "{line}");
        }
        if let Some(line) = storage_line(phases) {
            let _ = writeln!(text, "{line}");
        }
        for (number, level) in lsm.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
            let (tables, runs) = (grouped(level.tables), grouped(level.runs));
            let _ = writeln!(text, "level {number}: {tables} tables, {runs} runs, {}", bytes(level.bytes));
        }
    }
    text
}

/// What opening the store found; `None` where there was nothing to do.
fn recovery_line(found: &RecoveryFigures) -> Option<String> {
    if found.records_replayed + found.segments_loaded + found.cut_bytes == 0 {
        return None;
    }
    Some(format!(
        "recovered in {:.2} s: {} writes from the log ({} read, {} cut off), {} segments from storage ({}), {} in memory",
        found.open_us as f64 / 1e6,
        grouped(found.records_replayed),
        bytes(found.log_bytes),
        bytes(found.cut_bytes),
        grouped(found.segments_loaded),
        bytes(found.bytes_loaded),
        grouped(found.segments_held),
    ))
}

/// What the log did in all phases.
fn log_line(phases: &[PhaseReport]) -> Option<String> {
    let logs = || phases.iter().filter_map(|phase| phase.log.as_ref());
    logs().next()?;
    let sum = |field: fn(&LogFigures) -> u64| logs().map(field).sum::<u64>();
    let all =
        LogFigures::new(sum(|log| log.bytes), sum(|log| log.records), sum(|log| log.groups), sum(|log| log.waits));
    let (groups, records) = (grouped(all.groups), all.records_per_group);
    let log =
        format!("log: {} in {groups} groups of {records:.1} records, {} waits", bytes(all.bytes), grouped(all.waits));
    Some(match (sum(|log| log.replicated_bytes), sum(|log| log.rebuilt_bytes)) {
        (0, 0) => log,
        (sent, built) => format!("{log}; copies of tables: {} sent, {} built", bytes(sent), bytes(built)),
    })
}

/// What was done to storage in all phases.
fn storage_line(phases: &[PhaseReport]) -> Option<String> {
    let figures = || phases.iter().filter_map(|phase| phase.storage.as_ref());
    figures().next()?;
    let sum = |field: fn(&StorageFigures) -> u64| figures().map(field).sum::<u64>();
    Some(format!(
        "storage: {} objects written ({}), {} read ({}), {} deleted, {} syncs",
        grouped(sum(|all| all.objects_written)),
        bytes(sum(|all| all.bytes_written)),
        grouped(sum(|all| all.objects_read)),
        bytes(sum(|all| all.bytes_read)),
        grouped(sum(|all| all.objects_deleted)),
        grouped(sum(|all| all.syncs)),
    ))
}

/// A number with separators between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in the largest suitable unit.
fn bytes(number: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if number >> shift > 0 {
            return format!("{:.1} {unit}", number as f64 / (1_u64 << shift) as f64);
        }
    }
    format!("{number} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]);
    }
}
