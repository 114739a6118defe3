//! The rooms of the engine: folders of `crates/engine/src`, in the order of dependencies.
//!
//! `ARCHITECTURE.md` has them in a table under "Rooms of the engine", the lowest first. A room uses itself and rooms on
//! rows above its own; the crate's root is above all rooms and may use every room. [`super::module_graph`] defines a
//! use: a path through a re-export counts as a path to the room that defines the item.
//!
//! Without that section nothing is checked.

use super::module_graph::{self, ModuleGraph};
use super::{Finding, Tree, architecture};
use architecture::Row;
use std::collections::BTreeSet;

const FOLDER: &str = "crates/engine";
const SOURCE: &str = "crates/engine/src/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(rows) = architecture::room_rows(tree) else { return Vec::new() };
    if rows.is_empty() {
        let advice = "keep a table `| room | holds | never |` there, the lowest room first";
        return vec![Finding::error(architecture::PATH, 1, "the table of the engine's rooms is missing", advice)];
    }
    let mut findings = unlike_folders(tree, &rows);
    findings.extend(module_graph::of_package(tree, FOLDER).iter().flat_map(|graph| upward(graph, &rows)));
    findings
}

/// Rows without a folder, folders without a row, and files outside of rooms.
fn unlike_folders(tree: &Tree, rows: &[Row]) -> Vec<Finding> {
    let missing = rows.iter().filter(|row| !tree.exists(&format!("{SOURCE}{}/", row.folder)));
    let mut findings: Vec<Finding> = missing
        .map(|row| {
            let what = format!("the table names the room `{0}`, and there is no {SOURCE}{0}", row.folder);
            Finding::error(architecture::PATH, row.line, what, "add the folder or remove the row")
        })
        .collect();
    let mut known: BTreeSet<&str> = rows.iter().map(|row| row.folder.as_str()).collect();
    for (path, _) in tree.below(SOURCE) {
        match path.strip_prefix(SOURCE).and_then(|rest| rest.split_once('/')) {
            Some((folder, _)) if known.insert(folder) => findings.push(Finding::error(
                path,
                1,
                format!("the room `{folder}` is not in the table of rooms"),
                "add a row to ARCHITECTURE.md: below all rooms that it uses, above all that use it",
            )),
            Some(_) => {}
            None if path == format!("{SOURCE}lib.rs") => {}
            None => findings.push(Finding::error(path, 1, "a module outside of the rooms", "move it into a room")),
        }
    }
    findings
}

fn upward(graph: &ModuleGraph, rows: &[Row]) -> Vec<Finding> {
    let row_of = |module: &str| {
        let room = module.split("::").next().unwrap_or_default();
        rows.iter().position(|row| row.folder == room)
    };
    let uses = graph.uses.iter().filter_map(|((from, to), place)| {
        let own = row_of(from)?;
        // A room without a row is reported separately.
        let what = match row_of(to) {
            Some(row) if row > own => {
                format!("`{}` uses `{}` above it: `{}`", rows[own].folder, rows[row].folder, place.written)
            }
            None if to.is_empty() => format!("`{}` uses the crate's root: `{}`", rows[own].folder, place.written),
            _ => return None,
        };
        let advice = "move what both need into the lower room, or let the upper one hand it in (ARCHITECTURE.md, Rooms \
                      of the engine)";
        Some(Finding::error(&place.path, place.line, what, advice))
    });
    uses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    const PAGE: &str = "# Architecture\n\n### Rooms of the engine\n\ntext\n\n| room | holds | never |\n|---|---|---|\n\
        | `terms` | words | |\n| `tree/` | tables | |\n| `api` | `Db` | |\n\n### More\n";
    const ROOT: &str = "mod api; mod terms; mod tree; pub use api::db::Db; pub use terms::Error; fn f() {}";

    fn found(page: &str, terms: &str, tree: &str) -> Vec<Finding> {
        check(&Tree::of([
            (architecture::PATH, page),
            ("crates/engine/src/lib.rs", ROOT),
            ("crates/engine/src/terms/mod.rs", terms),
            ("crates/engine/src/tree/mod.rs", "mod table;"),
            ("crates/engine/src/tree/table.rs", tree),
            ("crates/engine/src/api/mod.rs", "pub mod db;"),
            ("crates/engine/src/api/db.rs", "use crate::tree::table::T;\npub struct Db;"),
        ]))
    }

    #[test]
    fn uses_downwards_are_fine() {
        let tree = "use crate::Error;\nuse crate::terms::X;\nuse super::table::Y;\n";
        assert!(found(PAGE, "pub struct Error;", tree).is_empty());
    }

    #[test]
    fn uses_upwards_are_found() {
        let findings = found(PAGE, "fn g() { crate::tree::table::t() }", "\nuse crate::Db;\n");
        assert_eq!(places(&findings), ["crates/engine/src/terms/mod.rs:1", "crates/engine/src/tree/table.rs:2"]);
        assert_eq!(findings[0].what, "`terms` uses `tree` above it: `crate::tree::table::t`");
        assert_eq!(findings[1].what, "`tree` uses `api` above it: `crate::Db`");
        let findings = found(PAGE, "use crate::f;", "");
        assert_eq!(places(&findings), ["crates/engine/src/terms/mod.rs:1"]);
    }

    #[test]
    fn table_and_folders_agree() {
        let page = PAGE.replace("| `tree/` | tables | |\n", "| `plan` | picks | |\n");
        assert_eq!(places(&found(&page, "", "")), ["ARCHITECTURE.md:10", "crates/engine/src/tree/mod.rs:1"]);
        let tree = Tree::of([
            (architecture::PATH, &PAGE.replace("| `tree/` | tables | |\n| `api` | `Db` | |\n", "")),
            ("crates/engine/src/terms/mod.rs", ""),
            ("crates/engine/src/stray.rs", ""),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/engine/src/stray.rs:1"]);
        assert_eq!(places(&found("### Rooms of the engine\n\ntext\n", "", "")), ["ARCHITECTURE.md:1"]);
    }

    #[test]
    fn without_the_section_nothing_is_checked() {
        assert!(found("# Architecture\n", "use crate::tree::table::T;", "").is_empty());
    }
}
