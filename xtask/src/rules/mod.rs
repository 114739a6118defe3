//! Rules that are checked by reading files.
//!
//! A rule is a function from a [`Tree`] to [`Finding`]s: it reads nothing else and changes nothing,
//! so a test plants a violation in a tree of its own and sees it caught. Where `ARCHITECTURE.md`
//! states a rule in a form that can be parsed (the table of crates, the crates with unsafe code,
//! the glossary), the page is parsed and the rule is not repeated here.

mod architecture;
mod back_ends;
mod crate_graph;
mod formats;
mod glossary;
mod links;
mod manifest;
mod masking;
mod tree;
mod unsafe_code;
mod words;

pub(crate) use tree::Tree;

use std::fmt;

/// Whether a finding fails the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

/// A place where a rule is broken, and what to do about it.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) advice: String,
}

impl Finding {
    fn error(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.into(), line, what: what.into(), advice: advice.into() }
    }

    fn warning(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, line, what, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Self { path, line, what, advice, .. } = self;
        write!(f, "{severity}: {path}:{line}: {what}\n    {advice}")
    }
}

const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    crate_graph::check,
    back_ends::check,
    unsafe_code::check,
    words::check,
    glossary::check,
    links::check,
    formats::check,
];

/// What every rule finds, ordered by place.
pub(crate) fn all(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// Places of findings as `path:line`, for tests.
#[cfg(test)]
fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}
