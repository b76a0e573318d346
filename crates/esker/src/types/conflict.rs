//! What a transaction conflicted over.

use std::fmt;

/// Which write, or read, of a transaction stands against a later commit. In [`Error::Conflict`](crate::Error::Conflict).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contended {
    /// This key: another commit has written it.
    Key(Vec<u8>),
    /// A key between these: the transaction removes the range, or has walked over it, and another commit has written into it.
    Range {
        /// The first key of the range.
        start: Vec<u8>,
        /// The first key behind it; none if it reaches to the end of the keyspace.
        end: Option<Vec<u8>>,
    },
    /// The keyspace itself: both have created, dropped or renamed one of this name.
    Keyspace,
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contended::Key(key) => write!(f, "key \"{}\"", key.escape_ascii()),
            Contended::Range { start, end: Some(end) } => {
                write!(f, "the range from \"{}\" to \"{}\"", start.escape_ascii(), end.escape_ascii())
            }
            Contended::Range { start, end: None } => {
                write!(f, "the range from \"{}\" on", start.escape_ascii())
            }
            Contended::Keyspace => f.write_str("the keyspace itself"),
        }
    }
}
