//! What rules find.

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
    pub(super) fn error(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.into(), line, what: what.into(), advice: advice.into() }
    }

    pub(super) fn warning(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
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

/// Places of findings as `path:line`, for tests.
#[cfg(test)]
pub(super) fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}
