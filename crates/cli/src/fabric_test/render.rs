//! Results as a table and as JSON.

use super::Cell;
use serde::Serialize;

/// The heading of the table.
pub fn header() -> String {
    format!(
        "{:<10} {:>8} {:>6} {:>10} {:>10} {:>13} {:>9}",
        "operation", "bytes", "depth", "p50 us", "p99 us", "operations/s", "MB/s"
    )
}

/// A cell as a line of the table.
pub fn row(cell: &Cell) -> String {
    format!(
        "{:<10} {:>8} {:>6} {:>10.2} {:>10.2} {:>13.0} {:>9.1}",
        cell.operation.name(),
        cell.size,
        cell.depth,
        cell.p50_us,
        cell.p99_us,
        cell.ops_per_second,
        cell.ops_per_second * cell.size as f64 / 1e6
    )
}

#[derive(Serialize)]
struct Report<'a> {
    back_end: &'a str,
    fabric_test: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    operation: &'a str,
    size_bytes: usize,
    depth: usize,
    latency_us: Latency,
    ops_per_second: f64,
    operations: u64,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
}

/// All cells as one JSON object.
///
/// # Errors
/// When they cannot be represented.
pub fn to_json(back_end: &str, cells: &[Cell]) -> Result<String, serde_json::Error> {
    let entry = |cell: &Cell| Entry {
        operation: cell.operation.name(),
        size_bytes: cell.size,
        depth: cell.depth,
        latency_us: Latency { p50: cell.p50_us, p99: cell.p99_us },
        ops_per_second: cell.ops_per_second,
        operations: cell.operations,
    };
    serde_json::to_string(&Report { back_end, fabric_test: cells.iter().map(entry).collect() })
}
