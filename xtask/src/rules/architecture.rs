//! What `ARCHITECTURE.md` says in a form that a program can read.

use super::Tree;

pub(super) const PATH: &str = "ARCHITECTURE.md";

/// A row of the table of crates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The folder's name in `crates/`.
    pub(super) folder: String,
    pub(super) line: usize,
}

/// The rows of the table of crates, from the top. Nothing when the page has none.
pub(super) fn crate_rows(tree: &Tree) -> Vec<Row> {
    let rows = section(tree, "## Crates").skip_while(|(text, _)| !is_header(text)).skip(2);
    rows.take_while(|(text, _)| text.starts_with('|'))
        .filter_map(|(text, line)| quoted(text).next().map(|folder| Row { folder: folder.into(), line }))
        .collect()
}

/// The folders of the crates that may contain unsafe code.
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

fn is_header(text: &str) -> bool {
    text.starts_with('|') && text.contains("crate") && text.contains("never")
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A page with crates `base`, `fabric`, `memtable` and `cli`, unsafe code in the middle two.
#[cfg(test)]
pub(super) const EXAMPLE: &str = "# Architecture\n\n## Crates\n\ntext with a `name`\n\n| crate | holds | never |\n|---|---|---|\n\
    | `base` | records | does I/O |\n| `fabric` | `regions` | |\n| `memtable` | blocks | |\n| `cli` | the binary | |\n\n\
    `after` the table\n\n### Unsafe code\n\nOnly in `fabric` (mapped),\n`memtable` (blocks), nowhere else. Others have `forbid`.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_parsed() {
        let tree = Tree::of([(PATH, EXAMPLE)]);
        let rows = crate_rows(&tree);
        let rows: Vec<_> = rows.iter().map(|row| (row.folder.as_str(), row.line)).collect();
        assert_eq!(rows, [("base", 9), ("fabric", 10), ("memtable", 11), ("cli", 12)]);
        assert_eq!(crates_with_unsafe_code(&tree), ["fabric", "memtable"]);
        assert!(crate_rows(&Tree::default()).is_empty());
    }
}
