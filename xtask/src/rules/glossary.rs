//! `ARCHITECTURE.md`'s glossary has each term only once.

use super::{Finding, Tree, architecture};
use std::collections::BTreeMap;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first_lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for (cell, line) in architecture::glossary_terms(tree) {
        for term in cell.split(',').map(|term| term.trim().to_lowercase()) {
            if let Some(first) = first_lines.get(&term) {
                let what = format!("the glossary explains `{term}` again, first in line {first}");
                findings.push(Finding::error(architecture::PATH, line, what, "keep one of the two"));
            } else {
                first_lines.insert(term, line);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    #[test]
    fn a_term_explained_twice_is_found() {
        let page = "## Glossary\n\n| term | meaning |\n|---|---|\n| read, write | a |\n| block | b |\n| Write | c |\n";
        assert_eq!(places(&check(&Tree::of([(architecture::PATH, page)]))), ["ARCHITECTURE.md:7"]);
        assert!(check(&Tree::of([(architecture::PATH, &page.replace("Write", "batch"))])).is_empty());
    }
}
