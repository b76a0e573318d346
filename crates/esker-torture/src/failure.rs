//! Why a campaign ended before its time.

use std::fmt;

/// A failure, as a text for people: what is wrong, what is kept, and the command that tries again.
#[derive(Debug)]
pub struct Failure(pub(crate) String);

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Failure(text.into())
    }

    /// Whether it tells of a fault that the harness has put in: `FaultFs` says so of each of its own.
    pub(crate) fn is_injected(&self) -> bool {
        self.0.contains("injected")
    }

    /// Whether it says that the disk is full; one that tells of a log that stopped for that does not.
    pub(crate) fn is_of_full_disk(&self) -> bool {
        self.0.starts_with("no space left on the disk")
    }

    /// Whether it says that there is no such keyspace.
    pub(crate) fn is_of_gone_keyspace(&self) -> bool {
        self.0.starts_with("no keyspace named")
    }

    /// The failure with what was being done in front.
    pub(crate) fn during(self, what: &str) -> Self {
        Failure(format!("{what}: {}", self.0))
    }
}

/// A success in place of a fault that the harness has put in.
pub(crate) fn or_injected(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(failure) if failure.is_injected() => Ok(()),
        other => other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<esker::Error> for Failure {
    fn from(error: esker::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure(text)
    }
}
