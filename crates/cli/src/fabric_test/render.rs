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

/// A cell in plain and within TLS.
#[derive(Debug)]
pub struct Compared {
    /// In plain.
    pub plain: Cell,
    /// Within TLS.
    pub encrypted: Cell,
}

impl Compared {
    /// Returns the share of the plain rate that is left within TLS.
    fn rate_left(&self) -> f64 {
        self.encrypted.ops_per_second / self.plain.ops_per_second
    }
}

/// The heading of the table of a comparison.
pub fn compared_header() -> String {
    let (plain, encrypted) = ("plain", "within TLS");
    let sides = format!("{:<10} {:>8} {:>6} {plain:>24} {encrypted:>24}", "", "", "");
    let columns = format!(
        "{:<10} {:>8} {:>6} {:>10} {:>13} {:>10} {:>13} {:>10}",
        "operation", "bytes", "depth", "p50 us", "operations/s", "p50 us", "operations/s", "TLS/plain"
    );
    format!("{sides}\n{columns}")
}

/// A comparison as a line of the table.
pub fn compared_row(compared: &Compared) -> String {
    let Compared { plain, encrypted } = compared;
    format!(
        "{:<10} {:>8} {:>6} {:>10.2} {:>13.0} {:>10.2} {:>13.0} {:>10.2}",
        plain.operation.name(),
        plain.size,
        plain.depth,
        plain.p50_us,
        plain.ops_per_second,
        encrypted.p50_us,
        encrypted.ops_per_second,
        compared.rate_left()
    )
}

/// Results as one JSON object.
#[derive(Serialize)]
pub struct Report<'a, T> {
    back_end: &'a str,
    fabric_test: Vec<T>,
}

#[derive(Serialize)]
struct Entry<'a> {
    operation: &'a str,
    size_bytes: usize,
    depth: usize,
    #[serde(flatten)]
    measured: Measured,
}

#[derive(Serialize)]
struct ComparedEntry<'a> {
    operation: &'a str,
    size_bytes: usize,
    depth: usize,
    plain: Measured,
    tls: Measured,
    /// Ratio of the rates.
    tls_by_plain: f64,
}

#[derive(Serialize)]
struct Measured {
    latency_us: Latency,
    ops_per_second: f64,
    operations: u64,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
}

impl Measured {
    const fn of(cell: &Cell) -> Self {
        let &Cell { p50_us: p50, p99_us: p99, ops_per_second, operations, .. } = cell;
        Self { latency_us: Latency { p50, p99 }, ops_per_second, operations }
    }
}

/// All cells.
pub fn report<'a>(back_end: &'a str, cells: &'a [Cell]) -> Report<'a, impl Serialize + use<'a>> {
    let entry = |cell: &'a Cell| Entry {
        operation: cell.operation.name(),
        size_bytes: cell.size,
        depth: cell.depth,
        measured: Measured::of(cell),
    };
    Report { back_end, fabric_test: cells.iter().map(entry).collect() }
}

/// All comparisons.
pub fn comparison<'a>(back_end: &'a str, compared: &'a [Compared]) -> Report<'a, impl Serialize + use<'a>> {
    let entry = |compared: &'a Compared| ComparedEntry {
        operation: compared.plain.operation.name(),
        size_bytes: compared.plain.size,
        depth: compared.plain.depth,
        plain: Measured::of(&compared.plain),
        tls: Measured::of(&compared.encrypted),
        tls_by_plain: compared.rate_left(),
    };
    Report { back_end, fabric_test: compared.iter().map(entry).collect() }
}
