//! Only `fabric` itself, `forebay`, `cli` and crates under `testing/` may name a concrete back end of the fabric. Tests
//! may also: they must run on something.

use super::masking::{code_only, line_of, word_offsets};
use super::{Finding, Tree};

const BACK_ENDS: &[&str] = &["inprocess", "shm", "tcp", "sim"];
const MAY_NAME_THEM: &[&str] = &["fabric", "forebay", "cli"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let Some((folder, file)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) else { continue };
        if MAY_NAME_THEM.contains(&folder) || !file.starts_with("src/") || file.ends_with("/tests.rs") {
            continue;
        }
        let code = code_only(text);
        let code = code.split_once("#[cfg(test)]").map_or(code.as_str(), |(code, _)| code);
        findings.extend(named(code).map(|(back_end, line)| {
            let what = format!("`{folder}` names the back end `{back_end}`");
            Finding::error(path, line, what, "take the fabric's traits, and let `forebay` choose the back end")
        }));
    }
    findings
}

/// Back ends in paths that start with the fabric's crate, with their lines.
fn named(code: &str) -> impl Iterator<Item = (&'static str, usize)> {
    word_offsets(code, "forebay_fabric").flat_map(move |offset| {
        let path = use_path(&code[offset..]);
        let found = BACK_ENDS.iter().filter(move |back_end| word_offsets(path, back_end).next().is_some());
        found.map(move |back_end| (*back_end, line_of(code, offset)))
    })
}

/// The path at the front of `rest`, with what is in its braces.
fn use_path(rest: &str) -> &str {
    let is_path = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    let end = rest.find(|character| !is_path(character)).unwrap_or(rest.len());
    match rest[end..].chars().next() {
        Some('{') => &rest[..rest.find(';').unwrap_or(rest.len())],
        _ => &rest[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    #[test]
    fn a_back_end_named_outside_is_found() {
        let engine = "use forebay_fabric::{\n    Link,\n    shm::Listener,\n};\n\
            fn f() { forebay_fabric::tcp::connect() }\nuse forebay_fabric::Simple;\n// forebay_fabric::sim\n\
            fn g(tcp: forebay_fabric::Link) {}\n#[cfg(test)]\nmod tests { use forebay_fabric::inprocess; }\n";
        let tree = Tree::of([
            ("crates/engine/src/lib.rs", engine),
            ("crates/engine/tests/all.rs", "use forebay_fabric::sim;"),
            ("crates/forebay/src/lib.rs", "use forebay_fabric::{inprocess, shm, tcp};"),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/engine/src/lib.rs:1", "crates/engine/src/lib.rs:5"]);
    }
}
