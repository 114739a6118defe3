//! Links in Markdown pages to files of the repository lead to existing files.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in tree.with_extension("md") {
        for (target, line) in repository_links(text) {
            let path = resolve(page, target);
            if !path.as_deref().is_some_and(|path| tree.exists(path)) {
                let what = format!("the link to `{target}` leads nowhere");
                findings.push(Finding::error(page, line, what, "correct it; links are relative to the page"));
            }
        }
    }
    findings
}

/// Targets of links to files, without the part after `#`, with their lines. Code is skipped.
pub(super) fn repository_links(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut in_fence = false;
    let lines = text.lines().zip(1..).filter(move |(line, _)| {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        !in_fence && !is_fence
    });
    lines.flat_map(|(line, number)| {
        let outside_code = line.split('`').step_by(2);
        // A link whose text is in backticks starts its target right after them: `](`.
        let targets = outside_code.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !is_elsewhere(target)).map(move |target| {
            let target = target.split([' ', '#']).next().unwrap_or_default();
            (target, number)
        })
    })
}

fn is_elsewhere(target: &str) -> bool {
    target.starts_with('#') || target.contains("://") || target.starts_with("mailto:")
}

/// The path that `target` means on `page`; `None` when it leaves the repository.
pub(super) fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { page.split('/').collect() };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    #[test]
    fn dead_links_are_found() {
        let page = "[a](other.md) [b](../README.md#part) [c](https://example.org/x) [d](#here)\n\
            [`e`](missing.md)\n`[f](code.md)`\n```text\n[g](fenced.md)\n```\n[h](../../outside.md)\n[i](.) [j](../docs)\n";
        let tree = Tree::of([("docs/page.md", page), ("docs/other.md", ""), ("README.md", "")]);
        assert_eq!(places(&check(&tree)), ["docs/page.md:2", "docs/page.md:7"]);
    }

    #[test]
    fn paths_are_resolved_from_the_page() {
        assert_eq!(resolve("a/b.md", "c.md").as_deref(), Some("a/c.md"));
        assert_eq!(resolve("a/b.md", "../c/").as_deref(), Some("c"));
        assert_eq!(resolve("b.md", "../c"), None);
    }
}
