//! A row of a suite, before it is measured: what suites list, children record and the trace is held against.

use esker_bench_api::results::{Better, Unit};

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its name, as docs and results have it.
    pub(crate) name: String,
    /// The work, for `list`.
    pub(crate) work: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// Operations that the value stands for; where the row runs for a time, it counts them itself.
    pub(crate) ops: u64,
    /// Commits within the row, and whether each must sync: what the trace is held against.
    pub(crate) commits: Commits,
    /// Its share of the running time, for the progress bar; any unit.
    pub(crate) weight: u64,
    /// bench_suites.1 of `suites/mod.rs`.
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
    /// So many, each durable when it returns; 0 when the row counts them itself.
    Sync(u64),
    /// So many of [`Durability::Async`](esker_bench_api::Durability::Async), or of what an engine without it has instead; 0 when the row counts
    /// them itself.
    Async(u64),
    /// So many of [`Durability::NoSync`](esker_bench_api::Durability::NoSync).
    NoSync(u64),
}

impl Commits {
    /// How many.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Sync(count) | Self::Async(count) | Self::NoSync(count) => count,
        }
    }
}
