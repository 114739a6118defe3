//! Pages of byte layouts and the code that decodes these layouts name each other.
//!
//! A page `docs/formats/NAME.md` links to at least one source file and has one or more lines
//! "Golden test: `function`" (or "Golden tests:") whose functions exist in the linked files. Each
//! linked source file names the page, and each page that a source file names exists.

use super::links::{repository_links, resolve};
use super::masking::{line_of, word_offsets};
use super::{Finding, Tree};

const FOLDER: &str = "docs/formats/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.below(FOLDER).filter(|(path, _)| path.ends_with(".md") && !path.ends_with("/README.md"));
    let mut findings: Vec<Finding> = pages.flat_map(|(page, text)| check_page(tree, page, text)).collect();
    // The rules' own tests name pages of their own.
    let sources = tree.with_extension("rs").filter(|(path, _)| !path.starts_with("xtask/"));
    findings.extend(sources.flat_map(|(path, text)| missing_pages(tree, path, text)));
    findings
}

fn check_page(tree: &Tree, page: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for (target, line) in repository_links(text).filter(|(target, _)| target.ends_with(".rs")) {
        // A broken link is reported by the rule about links.
        let path = resolve(page, target).unwrap_or_default();
        let Some(source) = tree.text(&path) else { continue };
        if !source.contains(page) {
            let what = format!("{path} does not name this page");
            findings.push(Finding::error(page, line, what, format!("name `{page}` in its module's documentation")));
        }
        sources.push(source);
    }
    if sources.is_empty() {
        findings.push(Finding::error(page, 1, "no link to the source file of this format", "link to its decoder"));
    }
    let tests = golden_tests(text);
    if tests.is_empty() {
        let advice = "add a line: Golden test: `function` (the test that pins the bytes)";
        findings.push(Finding::error(page, 1, "no golden test is named", advice));
    }
    for (test, line) in tests {
        if !sources.iter().any(|source| word_offsets(source, &format!("fn {test}")).next().is_some()) {
            let what = format!("the golden test `{test}` is not in a linked source file");
            findings.push(Finding::error(page, line, what, "correct the name or link to the file"));
        }
    }
    findings
}

/// Names in backticks on lines that start with "Golden test".
fn golden_tests(text: &str) -> Vec<(&str, usize)> {
    let lines = text.lines().zip(1..).filter(|(line, _)| line.starts_with("Golden test"));
    lines.flat_map(|(line, number)| line.split('`').skip(1).step_by(2).map(move |test| (test, number))).collect()
}

fn missing_pages<'a>(tree: &'a Tree, path: &'a str, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    text.match_indices(FOLDER).filter_map(move |(offset, _)| {
        let is_path = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '/' | '.');
        let rest = &text[offset..];
        let page = &rest[..rest.find(|character| !is_path(character)).unwrap_or(rest.len())];
        let is_missing = page.ends_with(".md") && tree.text(page).is_none();
        let what = format!("there is no page {page}");
        is_missing.then(|| Finding::error(path, line_of(text, offset), what, "write the page or correct the name"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    const PAGE: &str = "docs/formats/record.md";
    const CODE: &str = "crates/base/src/record.rs";
    const GOOD_CODE: &str = "//! See `docs/formats/record.md`.\nfn golden_bytes() {}\n";
    const GOOD_PAGE: &str = "# Record\n\n[source](../../crates/base/src/record.rs)\n\nGolden test: `golden_bytes`\n";

    fn found(page: &str, code: &str) -> Vec<String> {
        places(&check(&Tree::of([(PAGE, page), (CODE, code), ("docs/formats/README.md", "")])))
    }

    #[test]
    fn a_page_and_its_code_that_agree_are_fine() {
        assert!(found(GOOD_PAGE, GOOD_CODE).is_empty());
    }

    #[test]
    fn each_disagreement_is_found() {
        assert_eq!(found(GOOD_PAGE, "fn golden_bytes() {}"), ["docs/formats/record.md:3"]);
        assert_eq!(found(GOOD_PAGE, &GOOD_CODE.replace("golden_bytes", "other")), ["docs/formats/record.md:5"]);
        assert_eq!(found("# Record\n", GOOD_CODE), ["docs/formats/record.md:1", "docs/formats/record.md:1"]);
        assert_eq!(found(&GOOD_PAGE.replace("Golden", "Some"), GOOD_CODE), ["docs/formats/record.md:1"]);
    }

    #[test]
    fn a_page_that_only_the_code_names_is_found() {
        let code = format!("{GOOD_CODE}// docs/formats/lost.md\n");
        assert_eq!(found(GOOD_PAGE, &code), ["crates/base/src/record.rs:3"]);
    }
}
