//! Sets of keys or columns, and tests of data.

use crate::{Bytes, Request};

/// Selects keys of a table, or columns of a key, by ranges, prefixes and names. Without any of these, selects
/// all.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Range(Bytes, Bytes),
    Prefix(Bytes),
    List(Vec<Bytes>),
}

impl Names {
    /// Selects all names.
    pub fn new() -> Self {
        Names::default()
    }

    /// Adds the names in `from..to`. An empty `to` means no bound.
    #[must_use]
    pub fn range(mut self, from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        self.0.push(Part::Range(from.into(), to.into()));
        self
    }

    /// Adds the names with a prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.0.push(Part::Prefix(prefix.into()));
        self
    }

    /// Adds one name.
    #[must_use]
    pub fn one(self, name: impl Into<Bytes>) -> Self {
        self.list([name])
    }

    /// Adds names. A lone empty list selects nothing.
    #[must_use]
    pub fn list<N: Into<Bytes>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.0.push(Part::List(names.into_iter().map(Into::into).collect()));
        self
    }

    /// Returns whether all names are selected.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the selection to a request, using its keywords for ranges, prefixes and lists.
    pub(crate) fn say<T>(&self, mut request: Request<T>, [range, prefix, list]: [&str; 3]) -> Request<T> {
        for part in &self.0 {
            request = match part {
                Part::Range(from, to) => request.word(range).word(from).word(to),
                Part::Prefix(start) => request.word(prefix).word(start),
                Part::List(names) => request.word(list).word(names.len().to_string()).words(names),
            };
        }
        request
    }
}

/// A condition on the data of a column, compared byte by byte. A missing column satisfies none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Any data.
    Exists,
    /// Equal to this.
    Equal(Bytes),
    /// Less than this.
    Less(Bytes),
    /// Less than or equal to this.
    AtMost(Bytes),
    /// Greater than this.
    More(Bytes),
    /// Greater than or equal to this.
    AtLeast(Bytes),
    /// Between two values, inclusive.
    Between(Bytes, Bytes),
}

impl Test {
    pub(crate) fn say<T>(&self, request: Request<T>) -> Request<T> {
        match self {
            Test::Exists => request.word("EXISTS"),
            Test::Equal(value) => request.word("EQ").word(value),
            Test::Less(value) => request.word("LT").word(value),
            Test::AtMost(value) => request.word("LE").word(value),
            Test::More(value) => request.word("GT").word(value),
            Test::AtLeast(value) => request.word("GE").word(value),
            Test::Between(from, to) => request.word("BETWEEN").word(from).word(to),
        }
    }
}
