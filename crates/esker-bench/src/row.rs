//! A row of a suite before it is measured. Suites list rows, children record them, and the tracer checks
//! them.

use esker_bench_api::results::{Better, Unit};

/// A row of a suite.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Name in docs and results.
    pub(crate) name: String,
    /// Description of the work, for `list`.
    pub(crate) work: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// Number of operations in the value. A row that runs for a time counts them itself.
    pub(crate) ops: u64,
    /// Commits within the row, and whether each must sync.
    pub(crate) commits: Commits,
    /// Share of the running time, for the progress bar, in any unit.
    pub(crate) weight: u64,
    /// Number of the row's group.
    pub(crate) group: usize,
}

impl Row {
    /// A row of group 0 that is a time for one operation and does not write.
    pub(crate) fn time(name: impl Into<String>, work: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            work: work.into(),
            unit: Unit::Seconds,
            better: Better::Lower,
            ops: 1,
            commits: Commits::None,
            weight: 1,
            group: 0,
        }
    }

    /// A row of group 0 that is the bytes on disk.
    pub(crate) fn size(name: impl Into<String>, work: impl Into<String>) -> Self {
        Self { unit: Unit::Bytes, ..Self::time(name, work) }
    }

    /// A row of group 0 that is a rate.
    pub(crate) fn rate(unit: Unit, name: impl Into<String>, work: impl Into<String>) -> Self {
        Self { unit, better: Better::Higher, ..Self::time(name, work) }
    }
}

/// The commits of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// The row does not write.
    None,
    /// Number of commits that must be durable when they return; 0 if the row counts them itself.
    Sync(u64),
    /// Number of commits of [`Durability::Async`](esker_bench_api::Durability::Async), or of what an engine
    /// without it uses instead; 0 if the row counts them itself.
    Async(u64),
    /// Number of commits of [`Durability::NoSync`](esker_bench_api::Durability::NoSync).
    NoSync(u64),
}

impl Commits {
    /// Returns their number.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Sync(count) | Self::Async(count) | Self::NoSync(count) => count,
        }
    }
}
