//! Rules that are checked by reading files.
//!
//! A rule is a function from a [`Tree`] to [`Finding`]s: it reads nothing else and changes nothing,
//! so a test plants a violation in a tree of its own and sees it caught. Where `ARCHITECTURE.md`
//! states a rule in a form that can be parsed (the table of crates, the crates with unsafe code,
//! the glossary), the page is parsed and the rule is not repeated here.

mod architecture;
mod back_ends;
mod circles;
mod crate_graph;
mod finding;
mod formats;
mod glossary;
mod links;
mod manifest;
mod masking;
mod module_graph;
mod rooms;
mod test_files;
mod tokens;
mod tree;
mod unsafe_code;
mod words;

#[cfg(test)]
use finding::places;
pub(crate) use finding::{Finding, Severity};
#[cfg(test)]
pub(crate) use manifest::package_name;
pub(crate) use tree::Tree;

const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    crate_graph::check,
    circles::check,
    rooms::check,
    back_ends::check,
    unsafe_code::check,
    words::check,
    glossary::check,
    links::check,
    formats::check,
    test_files::check,
];

/// What every rule finds, ordered by place.
pub(crate) fn all(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}
