//! Each file of a package's tests is compiled.
//!
//! A package with many files of tests links them into few programs: its manifest says `autotests = false` and lists the
//! programs, and the root of each declares the files. A file that no root declares would be skipped silently.

use super::manifest::test_programs;
use super::module_graph::packages;
use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    packages(tree).flat_map(|folder| check_package(tree, folder)).collect()
}

fn check_package(tree: &Tree, folder: &str) -> Vec<Finding> {
    let manifest = tree.text(&format!("{folder}/Cargo.toml")).unwrap_or_default();
    let Some(programs) = test_programs(manifest) else { return Vec::new() };
    let roots: Vec<String> = programs.iter().map(|program| format!("{folder}/{program}")).collect();
    let is_declared = |name: &str| {
        let texts = roots.iter().filter_map(|root| tree.text(root));
        texts.flat_map(str::lines).any(|line| line.trim() == format!("mod {name};"))
    };
    let tests = format!("{folder}/tests/");
    let files = tree.below(&tests).filter_map(|(path, _)| {
        let name = path.strip_prefix(&tests)?.strip_suffix(".rs")?;
        (!name.contains('/') && !roots.iter().any(|root| root == path) && !is_declared(name)).then_some((path, name))
    });
    let lost = files.map(|(path, name)| {
        let advice = format!("declare it (`mod {name};`) in {}", roots.join(" or "));
        Finding::error(path, 1, "no program of tests has this file", advice)
    });
    lost.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    const MANIFEST: &str = "[package]\nname = \"forebay-x\"\nautotests = false\n\n\
        [[test]]\nname = \"x\"\npath = \"tests/all.rs\"\n\n[[test]]\nname = \"planted\"\npath = \"tests/planted.rs\"\n";

    fn found(manifest: &str, root: &str) -> Vec<String> {
        places(&check(&Tree::of([
            ("crates/x/Cargo.toml", manifest),
            ("crates/x/tests/all.rs", root),
            ("crates/x/tests/planted.rs", "mod common;\n"),
            ("crates/x/tests/one.rs", ""),
            ("crates/x/tests/common/mod.rs", ""),
        ])))
    }

    #[test]
    fn a_file_that_no_program_declares_is_found() {
        assert!(found(MANIFEST, "mod common;\nmod one;\n").is_empty());
        assert_eq!(found(MANIFEST, "mod common;\n"), ["crates/x/tests/one.rs:1"]);
    }

    #[test]
    fn where_cargo_finds_the_files_by_itself_none_is_lost() {
        assert!(found("[package]\nname = \"forebay-x\"\n", "").is_empty());
    }
}
