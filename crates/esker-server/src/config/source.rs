//! The address of a primary.

use std::fmt;

/// The address of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Source {
    /// The primary of a replica that waits for one.
    pub fn unset() -> Self {
        Source { host: String::new(), port: 0 }
    }

    /// Returns whether there is no primary yet.
    pub fn is_unset(&self) -> bool {
        self.host.is_empty()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
