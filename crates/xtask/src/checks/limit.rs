//! A limit on a number that a check measures.

use crate::repo::Repo;

/// A limit on one kind of number.
pub(super) struct Limit {
    pub(super) kind: &'static str,
    /// The largest value that needs no exception.
    pub(super) max: usize,
    /// What the number counts, for messages: \"lines\".
    pub(super) unit: &'static str,
    pub(super) measure: fn(&Repo) -> Vec<Measured>,
}

/// One measured number.
pub(super) struct Measured {
    pub(super) path: String,
    pub(super) line: usize,
    /// The function or type, or `-` for the whole file.
    pub(super) item: String,
    pub(super) value: usize,
    /// What the number is made of, if that helps.
    pub(super) detail: String,
}
