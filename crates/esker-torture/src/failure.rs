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

    /// The failure with what was being done in front.
    pub(crate) fn during(self, what: &str) -> Self {
        Failure(format!("{what}: {}", self.0))
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
