//! `Cached`: the answer of a read that never reads a file.

/// What memory knows about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cached<V = super::Value> {
    /// The value of the key.
    Value(V),
    /// The key does not exist.
    Absent,
    /// A file would have to be read to answer.
    NotCached,
}

impl<V> Cached<V> {
    /// Returns the value, if memory has it.
    pub fn value(self) -> Option<V> {
        match self {
            Cached::Value(value) => Some(value),
            Cached::Absent | Cached::NotCached => None,
        }
    }

    /// Returns whether memory alone answers the read.
    pub fn is_known(&self) -> bool {
        !matches!(self, Cached::NotCached)
    }
}
