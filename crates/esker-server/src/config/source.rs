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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
