//! The findings of checks.

use std::fmt;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Fails the run.
    Error,
    /// Is only printed.
    Warning,
}

/// A problem and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path relative to the root of the repository.
    pub(crate) file: String,
    /// Line number, from 1.
    pub(crate) line: usize,
    pub(crate) severity: Severity,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn error(file: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { file: file.to_owned(), line, severity: Severity::Error, message: message.into() }
    }

    pub(crate) fn warning(file: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { file: file.to_owned(), line, severity: Severity::Warning, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, "{}:{}: {kind}{}", self.file, self.line, self.message)
    }
}
