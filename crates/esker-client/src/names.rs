//! Sets of keys or columns, and tests of data.

use crate::{Bytes, Request};

/// Keys of a table, or columns of a key: what lies in any of the ranges, prefixes and names. Of none it is all.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Range(Bytes, Bytes),
    Prefix(Bytes),
    List(Vec<Bytes>),
}

impl Names {
    /// All names.
    pub fn new() -> Self {
        Names::default()
    }

    /// With those from one on, with it, up to another, without it. An empty `to` is the end.
    #[must_use]
    pub fn range(mut self, from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        self.0.push(Part::Range(from.into(), to.into()));
        self
    }

    /// With those that begin so.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.0.push(Part::Prefix(prefix.into()));
        self
    }

    /// With this one.
    #[must_use]
    pub fn one(self, name: impl Into<Bytes>) -> Self {
        self.list([name])
    }

    /// With these. Of an empty list alone it is none, not all.
    #[must_use]
    pub fn list<N: Into<Bytes>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.0.push(Part::List(names.into_iter().map(Into::into).collect()));
        self
    }

    /// Whether it is all names.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds them to a request, by the words that ranges, prefixes and lists have there.
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

/// What a column's data has to be, compared byte by byte. A column that is not there passes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Anything.
    Exists,
    /// This.
    Equal(Bytes),
    /// Less than this.
    Less(Bytes),
    /// This or less.
    AtMost(Bytes),
    /// More than this.
    More(Bytes),
    /// This or more.
    AtLeast(Bytes),
    /// From one to another, both included.
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
