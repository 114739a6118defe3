//! The table of metrics: what it makes, and what depends on it.

use crate::common::full;
use forebay::{Options, Store};
use forebay_admin::status::{Database, MemoryNode, Status, Visitors};
use forebay_admin::{Settings, metrics};
use forebay_proto::replies::DoorFigures;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BEGIN: &str = "<!-- The tables of metrics are made from the code. -->\n";
const END: &str = "<!-- The tables end. -->\n";
/// If this variable is set, the test writes the page anew.
const REWRITE: &str = "FOREBAY_REWRITE";

fn docs(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path)
}

/// What promtool says, which must be nothing.
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("promtool: {error}: run `cargo xtask setup`"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn promtool_finds_nothing_wrong() {
    let text = metrics::text(&full());
    for name in metrics::names() {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is not in the full status");
    }
    promtool(&["check", "metrics"], &text);
}

#[test]
fn names_are_unique() {
    let names: Vec<_> = metrics::names().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn labels_and_buckets_are_as_prometheus_wants_them() {
    let text = metrics::text(&full());
    for line in [
        r#"forebay_tenant_denied_calls_total{tenant="a\"b\\c\nd{e}=,"} 3"#,
        r#"forebay_level_bytes{level="0",tier="memory"} 5"#,
        r#"forebay_fabric_operations_total{traffic="foreground",kind="read"} 9"#,
        r#"forebay_command_duration_seconds_bucket{kind="read",le="0.001"} 3"#,
        r#"forebay_command_duration_seconds_bucket{kind="read",le="0.1"} 5"#,
        r#"forebay_command_duration_seconds_bucket{kind="read",le="+Inf"} 6"#,
        r#"forebay_command_duration_seconds_sum{kind="read"} 0.25"#,
        r#"forebay_command_duration_seconds_count{kind="read"} 6"#,
        "forebay_scheduler_term 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn the_page_lists_the_metrics() {
    let path = docs("reference/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the tables begin");
    let (found, after) = rest.split_once(END).expect("the tables end");
    let expected = format!("{}\n", metrics::reference());
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(found == expected, "the page is old: `{REWRITE}=1 cargo test -p forebay-admin --test admin metrics`");
}

/// Labels whose values nobody can list.
const FREE: [&str; 5] = ["version", "level", "node", "tenant", "le"];

#[test]
fn the_page_lists_the_values_of_labels() {
    let store = Store::embedded(64 << 20, Options::default()).unwrap();
    let database = Database::of(&store, &Settings::from(&Options::default()));
    let node = MemoryNode::of("0", &store.node_statistics().unwrap()[0]);
    let nobody = DoorFigures { admitted: 0, refused: 0, shown_out: 0, late: 0, crowded: 0, withdrawn: 0 };
    let door = Visitors::all(&nobody);
    let tenants = Vec::new();
    let text = metrics::text(&Status { database: Some(database), memory_nodes: vec![node], door, tenants, ..full() });
    let labels = text.lines().filter_map(|line| Some(line.split_once('{')?.1.split_once('}')?.0));
    let pairs: BTreeSet<_> =
        labels.flat_map(|labels| labels.split(',')).filter_map(|pair| pair.split_once('=')).collect();
    assert!(pairs.len() > 30, "{pairs:?}");
    let labels = metrics::labels();
    for (name, value) in pairs {
        let value = format!("`{}`", value.trim_matches('"'));
        let is_listed = labels.iter().any(|label| label.name == name && label.values.contains(&value));
        assert!(is_listed || FREE.contains(&name), "{value} of {name}");
    }
}

/// Metrics that a text names, if their names show that they are Forebay's.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("forebay_") || word.starts_with("process_")).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let known: BTreeSet<&str> = metrics::names().collect();
    for path in ["operating/alerts.yml", "operating/grafana.json"] {
        let text = std::fs::read_to_string(docs(path)).unwrap();
        let named = named(&text);
        assert!(named.len() > 10, "{path}: {named:?}");
        for name in named {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            assert!(known.contains(name) || known.contains(base), "{path}: {name} is no metric");
        }
    }
    let dashboard = std::fs::read_to_string(docs("operating/grafana.json")).unwrap();
    // A memory node may be scraped itself, and through each server that uses it.
    for line in dashboard.lines().filter(|line| line.contains("forebay_memory_node_")) {
        assert!(line.contains("by (instance"), "{line}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| !panels.is_empty()));
}

#[test]
fn promtool_understands_the_alerts() {
    promtool(&["check", "rules", docs("operating/alerts.yml").to_str().unwrap()], "");
}

#[test]
fn alerts_lead_to_pages_that_exist() {
    let alerts = std::fs::read_to_string(docs("operating/alerts.yml")).unwrap();
    for page in alerts.split_whitespace().filter_map(|word| word.strip_prefix("docs/")) {
        let page = page.trim_end_matches(['.', ',', '"', '\'']).trim_end_matches("),");
        let page = page.split(".md").next().unwrap();
        assert!(docs(&format!("{page}.md")).exists(), "docs/{page}.md");
    }
}
