//! The crates are the rows of `ARCHITECTURE.md`'s table, and each depends only on rows above its own.
//!
//! Dependencies of tests are not part of the graph: a test of a client may start the server. Bindings depend on the
//! library that users depend on, and on nothing below it.

use super::{Finding, Tree, architecture, manifest};
use architecture::Row;

/// Dependencies that the order of the table would allow but the column "never" forbids: a crate, and the crate that it
/// must not use. `*` is every crate.
const NEVER: &[(&str, &str)] = &[
    ("engine", "memory-node"),
    ("memory-node", "engine"),
    ("memtable", "table"),
    ("table", "fabric"),
    ("table", "memtable"),
    ("tree", "engine"),
    ("*", "cli"),
];

/// A feature that no product may have, and the crate that has it.
const FOR_TESTING: (&str, &str) = ("seeded-secrets", "crates/env/Cargo.toml");

/// The only crate that bindings to other languages depend on.
const FOR_BINDINGS: &str = "forebay";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let rows = architecture::crate_rows(tree);
    if rows.is_empty() {
        let advice = "keep a table `| crate | holds | never |` under the heading `## Crates`";
        return vec![Finding::error(architecture::PATH, 1, "the table of crates is missing", advice)];
    }
    let mut findings = rows_without_folder(tree, &rows);
    for (path, text) in tree.below("crates/").filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let Some(folder) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        findings.extend(check_name(path, folder, text));
        match rows.iter().position(|row| row.folder == folder) {
            Some(row) => findings.extend(check_dependencies(path, text, &rows, row)),
            None => findings.push(Finding::error(
                path,
                1,
                format!("`{folder}` is not in the table of crates"),
                "add a row to ARCHITECTURE.md: below all that it depends on, above all that depends on it",
            )),
        }
    }
    findings.extend(check_bindings(tree));
    findings.extend(check_features(tree));
    findings
}

/// Checks that only crates under `testing/`, which are not part of any product, ask for the feature.
fn check_features(tree: &Tree) -> Vec<Finding> {
    let (feature, owner) = FOR_TESTING;
    let manifests = tree.below("").filter(|(path, _)| path.ends_with("Cargo.toml"));
    let products = manifests.filter(|(path, _)| *path != owner && !path.starts_with("testing/"));
    let lines = products.flat_map(|(path, text)| text.lines().zip(1..).map(move |(text, line)| (path, text, line)));
    let asking = lines.filter(|(_, text, _)| text.contains(feature));
    let finding = |(path, _, line)| {
        let what = format!("the feature `{feature}` outside `testing/`: secrets could be foretold");
        Finding::error(path, line, what, "let the testing crate that needs it ask for it")
    };
    asking.map(finding).collect()
}

fn check_bindings(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.below("bindings/").filter(|(path, _)| path.ends_with("/Cargo.toml"));
    let below = manifests.flat_map(|(path, text)| {
        let dependencies = manifest::forebay_dependencies(text).into_iter();
        let below = dependencies.filter(|dependency| !dependency.is_for_tests && dependency.package != FOR_BINDINGS);
        below.map(move |dependency| (path, dependency))
    });
    let finding = |(path, dependency): (&str, manifest::Dependency)| {
        let what = format!("a binding depends on `{}`", dependency.package);
        Finding::error(path, dependency.line, what, "use what `forebay` exports, or export there what is missing")
    };
    below.map(finding).collect()
}

fn rows_without_folder(tree: &Tree, rows: &[Row]) -> Vec<Finding> {
    let missing = rows.iter().filter(|row| !tree.exists(&format!("crates/{}/Cargo.toml", row.folder)));
    missing
        .map(|row| {
            let what = format!("the table names `{0}`, and there is no crates/{0}", row.folder);
            Finding::error(architecture::PATH, row.line, what, "add the crate or remove the row")
        })
        .collect()
}

fn check_name(path: &str, folder: &str, text: &str) -> Option<Finding> {
    let expected = if folder == "forebay" { folder.to_owned() } else { format!("forebay-{folder}") };
    let (name, line) = manifest::package_name(text).unwrap_or_default();
    let what = format!("the package is named `{name}`");
    (name != expected).then(|| Finding::error(path, line.max(1), what, format!("name it `{expected}`")))
}

fn check_dependencies(path: &str, text: &str, rows: &[Row], own: usize) -> Vec<Finding> {
    let own_folder = rows[own].folder.as_str();
    let mut findings = Vec::new();
    for dependency in manifest::forebay_dependencies(text).iter().filter(|dependency| !dependency.is_for_tests) {
        let folder = dependency.package.strip_prefix("forebay-").unwrap_or(&dependency.package);
        let mut report = |what, advice| findings.push(Finding::error(path, dependency.line, what, advice));
        match rows.iter().position(|row| row.folder == folder) {
            None => report(
                format!("`{own_folder}` depends on `{folder}`, which is not in the table of crates"),
                "depend on crates of ARCHITECTURE.md's table, or add a row",
            ),
            Some(row) if row >= own => report(
                format!("`{own_folder}` depends on `{folder}`, which is not above it in the table of crates"),
                "move what is shared into a crate above both",
            ),
            Some(_) if is_never(own_folder, folder) => report(
                format!("`{own_folder}` depends on `{folder}`, and never must (ARCHITECTURE.md, Crates)"),
                "let the two meet in `proto`, or in functions that take bytes and give bytes",
            ),
            Some(_) => {}
        }
    }
    findings
}

fn is_never(own: &str, other: &str) -> bool {
    NEVER.iter().any(|&(from, to)| (from == "*" || from == own) && to == other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    const BASE: &str = "[package]\nname = \"forebay-base\"\n";
    const FABRIC: &str = "[package]\nname = \"forebay-fabric\"\n[dependencies]\nforebay-base.workspace = true\n";
    const CLI: &str = "[package]\nname = \"forebay-cli\"\n[dependencies]\nforebay-memtable.workspace = true\n";

    fn found(base: &str, memtable: &str) -> Vec<String> {
        places(&check(&Tree::of([
            (architecture::PATH, architecture::EXAMPLE),
            ("crates/base/Cargo.toml", base),
            ("crates/fabric/Cargo.toml", FABRIC),
            ("crates/memtable/Cargo.toml", memtable),
            ("crates/cli/Cargo.toml", CLI),
        ])))
    }

    fn memtable(dependencies: &str) -> String {
        format!("[package]\nname = \"forebay-memtable\"\n[dependencies]\n{dependencies}")
    }

    #[test]
    fn dependencies_up_the_table_are_fine() {
        assert!(found(BASE, &memtable("forebay-base.workspace = true\n")).is_empty());
    }

    #[test]
    fn a_binding_below_the_library_is_found() {
        let manifest = "[package]\nname = \"forebay-capi\"\n[dependencies]\nforebay.workspace = true\n\
            forebay-engine.workspace = true\n[dev-dependencies]\nforebay-fabric.workspace = true\n";
        let tree = Tree::of([(architecture::PATH, architecture::EXAMPLE), ("bindings/c/Cargo.toml", manifest)]);
        let found = places(&check(&tree));
        assert!(found.contains(&"bindings/c/Cargo.toml:5".to_owned()), "{found:?}");
        assert_eq!(found.iter().filter(|place| place.starts_with("bindings/")).count(), 1);
    }

    #[test]
    fn a_product_with_a_feature_for_testing_is_found() {
        let asking = "[dependencies]\nforebay-env = { workspace = true, features = [\"seeded-secrets\"] }\n";
        let tree = Tree::of([
            (architecture::PATH, architecture::EXAMPLE),
            ("bindings/c/Cargo.toml", asking),
            ("testing/simulation/Cargo.toml", asking),
            ("crates/env/Cargo.toml", "[features]\nseeded-secrets = []\n"),
        ]);
        assert_eq!(places(&check_features(&tree)), ["bindings/c/Cargo.toml:2"]);
    }

    #[test]
    fn a_dependency_down_the_table_is_found() {
        let base = format!("{BASE}[dependencies]\nforebay-fabric.workspace = true\n");
        assert_eq!(found(&base, &memtable("")), ["crates/base/Cargo.toml:4"]);
    }

    #[test]
    fn a_dependency_of_tests_is_not_in_the_graph() {
        let base = format!("{BASE}[dev-dependencies]\nforebay-fabric.workspace = true\n");
        assert!(found(&base, &memtable("")).is_empty());
    }

    #[test]
    fn what_never_must_be_is_found() {
        // The example with `table` in place of `memtable`: in order, and yet never allowed.
        let rows = architecture::EXAMPLE.replace("memtable", "table");
        let table = memtable("forebay-fabric.workspace = true\n").replace("memtable", "table");
        let tree = Tree::of([
            (architecture::PATH, rows.as_str()),
            ("crates/base/Cargo.toml", BASE),
            ("crates/fabric/Cargo.toml", FABRIC),
            ("crates/table/Cargo.toml", table.as_str()),
            ("crates/cli/Cargo.toml", "[package]\nname = \"forebay-cli\"\n"),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/table/Cargo.toml:4"]);
        assert!(is_never("tree", "engine") && is_never("engine", "memory-node") && is_never("memory-node", "engine"));
        assert!(is_never("workload", "cli") && !is_never("engine", "fabric"));
    }

    #[test]
    fn crates_outside_the_table_are_found_from_both_sides() {
        assert_eq!(found(BASE, &memtable("forebay-xyz.workspace = true\n")), ["crates/memtable/Cargo.toml:4"]);
        let tree = Tree::of([
            (architecture::PATH, architecture::EXAMPLE),
            ("crates/base/Cargo.toml", BASE),
            ("crates/fabric/Cargo.toml", FABRIC),
            ("crates/extra/Cargo.toml", "[package]\nname = \"forebay-extra\"\n"),
            ("crates/cli/Cargo.toml", "[package]\nname = \"cli\"\n"),
        ]);
        assert_eq!(
            places(&check(&tree)),
            ["ARCHITECTURE.md:11", "crates/cli/Cargo.toml:2", "crates/extra/Cargo.toml:1"]
        );
    }
}
