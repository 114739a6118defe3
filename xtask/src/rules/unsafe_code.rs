//! Unsafe code is only in the crates that `ARCHITECTURE.md` names, every other crate root forbids it, and a comment
//! right above each use says why it is sound.

use super::masking::{code_only, is_identifier, line_of, word_offsets};
use super::{Finding, Tree, architecture};

const FORBID: &str = "#![forbid(unsafe_code)]";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let allowed = architecture::crates_with_unsafe_code(tree);
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let code = code_only(text);
        let is_allowed = allowed.iter().any(|folder| is_below(path, folder));
        if is_allowed {
            findings.extend(undocumented(path, text, &code));
            continue;
        }
        if is_crate_root(path) && !code.contains(FORBID) {
            findings.push(Finding::error(
                path,
                1,
                "this crate root does not forbid unsafe code",
                format!("add `{FORBID}`"),
            ));
        }
        findings.extend(uses(&code).map(|offset| {
            let advice = "do it in one of the crates that ARCHITECTURE.md names under \"Unsafe code\", or without";
            Finding::error(path, line_of(&code, offset), "unsafe code in a crate that must not have any", advice)
        }));
    }
    findings
}

/// Whether `path` is in the crate of this name in the page: a folder below `crates/`, or a path with a `/`.
fn is_below(path: &str, name: &str) -> bool {
    let rest = if name.contains('/') { Some(path) } else { path.strip_prefix("crates/") };
    rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('/'))
}

fn undocumented<'a>(path: &'a str, text: &'a str, code: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let lines: Vec<&str> = text.lines().collect();
    let code_lines: Vec<&str> = code.lines().collect();
    uses(code).filter_map(move |offset| {
        let line = line_of(code, offset);
        let advice = "say right above, after `// SAFETY:` (in documentation `# Safety`), why it is sound";
        let is_documented = is_documented(&lines, &code_lines, line - 1);
        (!is_documented).then(|| Finding::error(path, line, "unsafe code without a reason", advice))
    })
}

/// `src/lib.rs`, `src/main.rs` and `src/bin/*.rs` of any package.
fn is_crate_root(path: &str) -> bool {
    let Some((_, file)) = path.rsplit_once("src/") else { return false };
    file == "lib.rs" || file == "main.rs" || (file.starts_with("bin/") && !file[4..].contains('/'))
}

/// Offsets of `unsafe` before a block, an implementation, a trait, a named function, a foreign
/// block or inside an attribute; not in the type of a function pointer.
fn uses(code: &str) -> impl Iterator<Item = usize> {
    word_offsets(code, "unsafe").filter(move |offset| {
        let rest = code[offset + "unsafe".len()..].trim_start();
        // The name of the ABI, such as "C", is masked.
        let rest = rest.strip_prefix("extern").map_or(rest, str::trim_start);
        match rest.strip_prefix("fn") {
            Some(after) => after.trim_start().bytes().next().is_some_and(is_identifier),
            None => true,
        }
    })
}

/// Whether the use in line `at` (from 0) has its reason on the same line or above it. Only comments, attributes and the
/// beginning of the same statement may come between.
fn is_documented(lines: &[&str], code_lines: &[&str], at: usize) -> bool {
    let is_reason = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    if is_reason(lines[at]) {
        return true;
    }
    for (text, code) in lines[..at].iter().zip(code_lines).rev() {
        let code = code.trim();
        let is_comment = code.is_empty() && !text.trim().is_empty();
        if is_comment && is_reason(text) {
            return true;
        }
        let is_between =
            is_comment || code.starts_with("#[") || !(code.is_empty() || code.ends_with([';', '{', '}', ',']));
        if !is_between {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    fn found(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of([(architecture::PATH, architecture::EXAMPLE), (path, text)])))
    }

    #[test]
    fn a_root_that_does_not_forbid_is_found() {
        for path in
            ["crates/base/src/lib.rs", "crates/cli/src/main.rs", "xtask/src/bin/tool.rs", "testing/a/src/lib.rs"]
        {
            assert_eq!(found(path, "//! Text with #![forbid(unsafe_code)].\n"), [format!("{path}:1")]);
            assert!(found(path, "#![forbid(unsafe_code)]\n").is_empty());
        }
        assert!(found("crates/base/src/other.rs", "").is_empty());
        assert!(found("crates/fabric/src/lib.rs", "").is_empty());
    }

    #[test]
    fn unsafe_code_outside_is_found_also_in_tests() {
        let text = "// SAFETY: none\nfn f() { unsafe { g() } }\n";
        assert_eq!(found("crates/base/tests/all.rs", text), ["crates/base/tests/all.rs:2"]);
        assert!(found("crates/base/tests/all.rs", "// unsafe\nlet a = \"unsafe {\";\n").is_empty());
    }

    #[test]
    fn a_crate_elsewhere_is_allowed_by_its_path() {
        let text = "// SAFETY: none\nfn f() { unsafe { g() } }\n";
        assert!(found("bindings/c/src/border.rs", text).is_empty());
        assert_eq!(found("bindings/c/src/border.rs", "fn f() { unsafe { g() } }\n"), ["bindings/c/src/border.rs:1"]);
        for path in ["bindings/python/src/border.rs", "bindings/c2/src/border.rs", "crates/bindings/c/src/border.rs"] {
            assert_eq!(found(path, text), [format!("{path}:2")]);
        }
    }

    #[test]
    fn unsafe_code_without_a_reason_is_found() {
        let path = "crates/memtable/src/block.rs";
        for text in [
            "fn f() {\n    unsafe { g() }\n}\n",
            "// SAFETY: this is about the other one.\nlet a = b;\nlet c = unsafe { d };\n",
            "// a comment\nunsafe impl Send for Block {}\n",
            "/// Text.\npub unsafe fn f() {}\n",
            "/// Text.\npub unsafe extern \"C\" fn f() {}\n",
            "unsafe extern \"C\" {}\n",
        ] {
            assert_eq!(found(path, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn reasons_are_recognised() {
        let path = "crates/memtable/src/block.rs";
        for text in [
            "// SAFETY: owned.\nunsafe { g() }\n",
            "// SAFETY: owned,\n// and more.\n#[inline]\nunsafe impl Send for Block {}\n",
            "// SAFETY: owned.\nlet word =\n    unsafe { g() };\n",
            "// SAFETY: owned.\nlet word = first(a)\n    .then(|| unsafe { g() });\n",
            "/// Text.\n///\n/// # Safety\n/// The caller owns it.\n#[must_use]\npub unsafe fn f() {}\n",
            "type F = unsafe fn(u8);\n",
            "type F = Option<unsafe extern \"C\" fn(u8)>;\n",
        ] {
            assert!(found(path, text).is_empty(), "{text}");
        }
    }
}
