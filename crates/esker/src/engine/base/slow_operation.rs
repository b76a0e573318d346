//! What a program learns about a slow operation.

use std::fmt;
use std::time::Duration;

use crate::types::parts::Part;

/// Shorter parts would be shown as 0.0 ms.
const SHOWN_MIN: Duration = Duration::from_micros(50);

/// An operation that took longer than [`Builder::slow_after`](crate::Builder::slow_after) allows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowOperation {
    /// The operation.
    pub operation: Operation,
    /// The keyspace that was read. `None` for commits.
    pub keyspace: Option<String>,
    /// Keys looked up, entries returned, or writes.
    pub items: u64,
    /// Time from call to return. For scans the sum of the calls that moved the iterator.
    pub time: Duration,
    /// What took most of it. The rest is work in memory.
    pub parts: Vec<SlowPart>,
}

/// A part of a slow operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowPart {
    /// The part.
    pub part: Part,
    /// Time spent in it, without other parts inside it.
    pub time: Duration,
    /// How often it was entered, for example the number of reads.
    pub times: u64,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A lookup of one key.
    Get,
    /// A lookup of several keys. What other threads read for it is not among its parts.
    MultiGet,
    /// An iterator, from its first step to its end.
    Scan,
    /// A commit, or a group of asynchronous ones.
    Commit,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Get => "get",
            Operation::MultiGet => "multi_get",
            Operation::Scan => "scan",
            Operation::Commit => "commit",
        })
    }
}

impl fmt::Display for SlowOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{} of {} items", self.operation, self.items)?;
        if let Some(keyspace) = &self.keyspace {
            write!(f, " in {keyspace:?}")?;
        }
        write!(f, ", {:.1} ms", ms(self.time))?;
        for SlowPart { part, time, times } in self.parts.iter().filter(|part| part.time >= SHOWN_MIN) {
            write!(f, "; {part} {:.1} ms ({times})", ms(*time))?;
        }
        Ok(())
    }
}
