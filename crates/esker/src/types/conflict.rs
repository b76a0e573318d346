//! What a transaction conflicted over.

use std::fmt;

/// The write or read of a transaction that conflicts with a later commit. Part of
/// [`Error::Conflict`](crate::Error::Conflict).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contended {
    /// This key, which another commit has written.
    Key(Vec<u8>),
    /// A key in this range. The transaction removes the range or has walked over it, and another commit has
    /// written into it.
    Range {
        /// The first key of the range.
        start: Vec<u8>,
        /// The first key after the range. `None`: it reaches to the end of the keyspace.
        end: Option<Vec<u8>>,
    },
    /// The keyspace itself: both have created, dropped or renamed a keyspace of this name.
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
