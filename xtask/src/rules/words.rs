//! Words that must not be in any file, from `xtask/forbidden-words.txt`, and files that have grown
//! too long to read.

use super::masking::{line_of, word_offsets};
use super::{Finding, Tree};

const LIST_PATH: &str = "xtask/forbidden-words.txt";
const LIST: &str = include_str!("../../forbidden-words.txt");
const LONG_FILE_LINES: usize = 900;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| *path != LIST_PATH) {
        for (word, advice) in list() {
            findings.extend(word_offsets(text, word).map(|offset| {
                Finding::error(path, line_of(text, offset), format!("`{word}` must not be in a file"), advice)
            }));
        }
        let lines = text.lines().count();
        if path.ends_with(".rs") && lines > LONG_FILE_LINES {
            let advice = "split it where a reader would: one reason to change a file";
            findings.push(Finding::warning(path, LONG_FILE_LINES + 1, format!("the file has {lines} lines"), advice));
        }
    }
    findings
}

/// The words and what to do instead: two columns, separated by spaces; `#` starts a comment.
fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(word, advice)| (word, advice.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Severity, places};

    #[test]
    fn every_word_of_the_list_is_found() {
        assert!(list().count() > 2);
        for (word, _) in list() {
            let text = format!("first line\nsecond {word} line\n");
            assert_eq!(places(&check(&Tree::of([("a.rs", &text)]))), ["a.rs:2"], "{word}");
            assert!(check(&Tree::of([(LIST_PATH, &text)])).is_empty());
        }
    }

    #[test]
    fn long_files_are_a_warning() {
        let findings =
            check(&Tree::of([("a.rs", &"\n".repeat(LONG_FILE_LINES + 1)), ("b.rs", &"\n".repeat(LONG_FILE_LINES))]));
        assert_eq!(places(&findings), ["a.rs:901"]);
        assert_eq!(findings[0].severity, Severity::Warning);
    }
}
