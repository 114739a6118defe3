//! What was found in a database, as tables for people or as one JSON object.

use crate::failure::{Failure, Stage};
use crate::output::{self, Format};
use crate::place;
use comfy_table::{CellAlignment, Table, presets};
use forebay::{Cell, ErrorKind, Finding, Report, Section};
use forebay_dump::tsv;
use serde_json::{Map, Value, json};

/// Prints a report, and returns the failure that it stands for, if any: that comes before a failure to print.
///
/// # Errors
/// That failure; when the report cannot be written.
pub fn tell(report: &Report, format: Format, failure: Option<Failure>) -> Result<(), Failure> {
    let printed = match format {
        Format::Json => output::line(&json_of(report).to_string()),
        Format::Table => output::line(text_of(report).trim_end()),
    };
    failure.map_or(printed, Err)
}

/// Returns the failure of a command that found damage, which `what` says, or only something that it could not read.
pub fn damage(report: &Report, what: &str, advice: &str) -> Option<Failure> {
    let what = match report.problems.iter().map(rank).min()? {
        Rank::Damage => what,
        Rank::Unread => "not all of it can be read",
        Rank::Unknown => "this build cannot read all of it",
    };
    failure(report, what, advice)
}

/// Returns the failure of a command that met damage; `advice` says what to do about it. Of several problems, the worst
/// one decides.
pub fn failure(report: &Report, what: &str, advice: &str) -> Option<Failure> {
    let worst = report.problems.iter().min_by_key(|problem| rank(problem))?;
    let count = report.problems.len();
    // A missing object is damage too.
    let kind = if rank(worst) == Rank::Damage { ErrorKind::Corrupt } else { worst.kind };
    let (object, detail) = (&worst.object, one_line(&worst.detail));
    let hint = if kind == ErrorKind::Corrupt { format!("; {advice}") } else { place::advice(kind) };
    let message = format!("{what}: {count} problems, the worst is {object}: {detail}{hint}");
    Some(Failure::new(kind, Stage::Running, message))
}

/// How bad a problem is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Something is damaged or missing.
    Damage,
    /// Something could not be read, and may be whole.
    Unread,
    /// A newer build wrote something.
    Unknown,
}

const fn rank(problem: &Finding) -> Rank {
    match problem.kind {
        ErrorKind::Corrupt | ErrorKind::NotFound => Rank::Damage,
        ErrorKind::Unsupported => Rank::Unknown,
        _ => Rank::Unread,
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn json_of(report: &Report) -> Value {
    let findings = |findings: &[Finding]| -> Value {
        let finding =
            |found: &Finding| json!({"object": found.object, "detail": found.detail, "kind": found.kind.name()});
        findings.iter().map(finding).collect()
    };
    let notes = report.notes.iter().map(|note| json!({"object": note.object, "detail": note.detail}));
    let mut object = Map::new();
    for Section { name, columns, rows } in &report.sections {
        let row = |row: &Vec<Cell>| -> Value {
            let fields = columns.iter().zip(row).map(|(column, cell)| ((*column).to_owned(), value_of(cell)));
            Value::Object(fields.collect())
        };
        object.insert((*name).to_owned(), rows.iter().map(row).collect());
    }
    object.insert("problems".to_owned(), findings(&report.problems));
    object.insert("notes".to_owned(), notes.collect());
    Value::Object(object)
}

fn value_of(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing | Cell::Unknown => Value::Null,
        Cell::Number(number) => (*number).into(),
        Cell::Text(_) | Cell::Bytes(_) => shown(cell).into(),
    }
}

/// Shows a cell; bytes are shown as in lines of text.
fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Unknown => "unknown".to_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => text.clone(),
        Cell::Bytes(bytes) => {
            let mut out = Vec::new();
            tsv::escape(bytes, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

fn text_of(report: &Report) -> String {
    let mut text = String::new();
    for Section { name, columns, rows } in &report.sections {
        text.push_str(&format!("{name}: {}\n", rows.len()));
        if rows.is_empty() {
            continue;
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(columns.iter().map(|column| column.replace('_', " ")));
        for row in rows {
            table.add_row(row.iter().map(|cell| {
                let aligned = comfy_table::Cell::new(shown(cell));
                if matches!(cell, Cell::Number(_) | Cell::Unknown) {
                    aligned.set_alignment(CellAlignment::Right)
                } else {
                    aligned
                }
            }));
        }
        text.push_str(&format!("{table}\n\n"));
    }
    for (what, findings) in [("problem", &report.problems), ("note", &report.notes)] {
        for found in findings {
            text.push_str(&format!("{what}: {}: {}\n", found.object, found.detail));
        }
    }
    if report.problems.is_empty() {
        text.push_str("no problems\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_decides_wherever_it_is_found() {
        let found = |kinds: &[ErrorKind]| {
            let problem =
                |kind: &ErrorKind| Finding { object: kind.name().to_owned(), detail: "why".to_owned(), kind: *kind };
            let report = Report { problems: kinds.iter().map(problem).collect(), ..Report::default() };
            damage(&report, "damaged", "mend it").map(|failure| (failure.code(), failure.message))
        };
        use ErrorKind::{AccessDenied, Corrupt, NotFound, Unavailable, Unsupported};
        assert_eq!(found(&[]), None);
        for (kinds, code, said) in [
            (&[Unsupported, Unavailable, Corrupt][..], 6, "damaged: 3 problems, the worst is corrupt: why; mend it"),
            (&[AccessDenied, NotFound], 6, "damaged: 2 problems, the worst is not found: why; mend it"),
            (&[Unsupported, Unavailable], 4, "not all of it can be read: 2 problems, the worst is unavailable: why"),
            (&[Unsupported], 1, "this build cannot read all of it: 1 problems, the worst is unsupported: why"),
        ] {
            assert_eq!(found(kinds), Some((code, said.to_owned())));
        }
    }
}
