//! The parts of `ARCHITECTURE.md` that a program can read.

use super::Tree;

pub(super) const PATH: &str = "ARCHITECTURE.md";
const ROOMS: &str = "### Rooms of the engine";

/// A row of the table of crates, or of the table of rooms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The folder's name in `crates/`, or in the engine's sources.
    pub(super) folder: String,
    pub(super) line: usize,
}

/// The rows of the table of crates, from the top; empty when the page has none.
pub(super) fn crate_rows(tree: &Tree) -> Vec<Row> {
    rows(section(tree, "## Crates"), "crate")
}

/// The rows of the table of the engine's rooms, the lowest first. `None` when the page has no such section.
pub(super) fn room_rows(tree: &Tree) -> Option<Vec<Row>> {
    let is_there = tree.text(PATH).is_some_and(|text| text.lines().any(|line| line == ROOMS));
    is_there.then(|| rows(section(tree, ROOMS), "room"))
}

/// The rows of the table `| first | … | never |`: each names a folder in its first cell.
fn rows<'a>(lines: impl Iterator<Item = (&'a str, usize)>, first: &str) -> Vec<Row> {
    let rows = lines.skip_while(|(text, _)| !is_header(text, first)).skip(2);
    rows.take_while(|(text, _)| text.starts_with('|'))
        .filter_map(|(text, line)| quoted(text).next().map(|folder| (folder.trim_end_matches('/'), line)))
        .map(|(folder, line)| Row { folder: folder.into(), line })
        .collect()
}

/// The crates that may contain unsafe code: the folder below `crates/`, or a path from the repository's folder.
pub(super) fn crates_with_unsafe_code(tree: &Tree) -> Vec<String> {
    let mut folders = Vec::new();
    for (text, _) in section(tree, "### Unsafe code") {
        let (before, after) = text.split_once("nowhere else").map_or((text, None), |(before, _)| (before, Some(())));
        folders.extend(quoted(before).map(String::from));
        if after.is_some() {
            break;
        }
    }
    folders
}

/// First cells of the glossary's rows, with their lines.
pub(super) fn glossary_terms(tree: &Tree) -> Vec<(String, usize)> {
    let rows = section(tree, "## Glossary").filter(|(text, _)| text.starts_with('|')).skip(2);
    rows.filter_map(|(text, line)| text.split('|').nth(1).map(|cell| (cell.trim().to_owned(), line))).collect()
}

/// Lines of the section under `heading`, up to the next heading of any depth, with their numbers.
fn section<'a>(tree: &'a Tree, heading: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
    let lines = tree.text(PATH).unwrap_or_default().lines().zip(1..);
    lines.skip_while(move |(text, _)| *text != heading).skip(1).take_while(|(text, _)| !text.starts_with('#'))
}

fn is_header(text: &str, first: &str) -> bool {
    text.starts_with('|') && text.contains(first) && text.contains("never")
}

/// Returns the parts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A page with crates `base`, `fabric`, `memtable` and `cli`, unsafe code in the middle two.
#[cfg(test)]
pub(super) const EXAMPLE: &str = "# Architecture\n\n## Crates\n\ntext with a `name`\n\n| crate | holds | never |\n|---|---|---|\n\
    | `base` | records | does I/O |\n| `fabric` | `regions` | |\n| `memtable` | blocks | |\n| `cli` | the binary | |\n\n\
    `after` the table\n\n### Unsafe code\n\nOnly in `fabric` (mapped),\n`memtable` (blocks),\n`bindings/c` (a border), nowhere else. Others have `forbid`.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_parsed() {
        let tree = Tree::of([(PATH, EXAMPLE)]);
        let rows = crate_rows(&tree);
        let rows: Vec<_> = rows.iter().map(|row| (row.folder.as_str(), row.line)).collect();
        assert_eq!(rows, [("base", 9), ("fabric", 10), ("memtable", 11), ("cli", 12)]);
        assert_eq!(crates_with_unsafe_code(&tree), ["fabric", "memtable", "bindings/c"]);
        assert!(crate_rows(&Tree::default()).is_empty());
    }
}
