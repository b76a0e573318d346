//! The suites: one file each, listed here.
//!
//! To add a suite, write `suites/NAME.rs` with a [`Suite`], and add it to [`SUITES`]. `plan.rs` defines the
//! parts of groups. A group that does not fit into a plan is a program.
//!
//! The rows of a group share a process, a directory and the data of the rows before them. Groups share
//! nothing.

mod badger;
mod churn;
mod content;
mod echo;
mod int;
mod interpret;
pub(crate) mod items;
mod keyspaces;
mod large;
mod limits;
mod obigstore;
pub(crate) mod open;
mod page_cache;
pub(crate) mod plan;
mod records;
mod redb;
mod server;
mod shapes;
mod sizes;
mod storage_bench;
#[cfg(test)]
mod tests;
mod time;
mod transactions;
mod verify;
pub(crate) mod works;
mod ycsb;

use clap::ValueEnum as _;
use esker_bench_api::{Engine, Failure, Feature, Result};

use crate::recorder::Recorder;
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::plan::Part;

/// All suites.
pub(crate) static SUITES: &[&Suite] = &[
    &limits::SUITE,
    &redb::SUITE,
    &int::SUITE,
    &large::SUITE,
    &storage_bench::SUITE,
    &obigstore::SUITE,
    &records::SUITE,
    &ycsb::SUITE,
    &badger::SUITE,
    &sizes::SUITE,
    &churn::SUITE,
    &keyspaces::SUITE,
    &open::SUITE,
    &transactions::SUITE,
    &shapes::SUITE,
    &time::SUITE,
    &server::SUITE,
];

const PAGE_BYTES: u64 = 4 << 10;

/// Returns whether the files of `items` items may exceed `memory_bytes`. After random inserts the pages of a
/// tree are half to two thirds full. Values of a page and more fill whole pages of their own, and at most one
/// more page each.
pub(crate) fn may_outgrow(items: u64, value_bytes: usize, memory_bytes: u64) -> bool {
    let value_bytes = value_bytes as u64;
    let most = if value_bytes < PAGE_BYTES {
        2 * value_bytes
    } else {
        (value_bytes.div_ceil(PAGE_BYTES) + 1) * PAGE_BYTES
    };
    items * most > memory_bytes
}

/// A list of rows in groups. Each group runs on one engine in a fresh process and directory.
pub(crate) struct Suite {
    /// Name on the command line and in results.
    pub(crate) name: &'static str,
    /// The data and the source of the workload in one sentence.
    pub(crate) summary: &'static str,
    /// Returns the limit of all memory of an engine for a group, including the page cache of its files.
    /// `None` if the group needs all memory of the machine. The limit is at least twice the cache of the
    /// suite.
    pub(crate) memory_bytes_max: fn(usize) -> Option<u64>,
    /// Returns the most bytes that the files of any engine take during a group.
    pub(crate) disk_bytes_max: fn(Scale, usize) -> u64,
    /// Returns the fewest syncs per commit of a row that must sync. That is 1, or less if commits of several
    /// threads share a sync.
    pub(crate) syncs_per_commit_min: fn(usize) -> f64,
    /// Returns the sources of bytes, orders and draws: generators of `esker_bench_api::generate` with their
    /// seeds and parameters. With these the work can be repeated elsewhere.
    pub(crate) streams: fn() -> Vec<Stream>,
    /// The stand-in for an engine, for a suite that measures the machine.
    pub(crate) own_engine: Option<&'static dyn Engine>,
    /// Returns the groups at a scale.
    pub(crate) parts: fn(Scale) -> Vec<Part>,
}

impl Suite {
    /// A suite whose data is far smaller than the disk, without groups.
    pub(crate) const EMPTY: Self = Self {
        name: "",
        summary: "",
        memory_bytes_max: |_| None,
        disk_bytes_max: |scale, _| if scale == Scale::Test { 1 << 30 } else { 20 << 30 },
        syncs_per_commit_min: |_| 1.0,
        streams: Vec::new,
        own_engine: None,
        parts: |_| Vec::new(),
    };

    /// Returns the rows in the order in which they run.
    pub(crate) fn rows(&self, scale: Scale) -> Vec<Row> {
        let parts = (self.parts)(scale).into_iter().enumerate();
        let rows =
            parts.flat_map(|(group, part)| part.rows().into_iter().map(move |row| Row { group, ..row }));
        rows.collect()
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self, scale: Scale) -> usize {
        (self.parts)(scale).len()
    }

    /// Runs the rows of a group, and reports each to the recorder in their order. Rows that the engine cannot
    /// run get the reason.
    pub(crate) fn run(&self, turn: Turn<'_>) -> Result<()> {
        let Turn { engine, scale, group, recorder } = turn;
        let turn = Turn { engine, scale, group, recorder: &mut *recorder };
        let done = match (self.parts)(scale).swap_remove(group) {
            Part::Steps(steps) => interpret::run(&steps, turn),
            Part::Program(_, program) => program(turn),
        };
        match done {
            Err(Failure::Unsupported(why)) => recorder.cannot_rest(|| Failure::Unsupported(why.clone())),
            Err(Failure::NotRun(why)) => recorder.cannot_rest(|| Failure::NotRun(why.clone())),
            done => done,
        }
    }
}

/// A group of a suite, about to run on one engine.
pub(crate) struct Turn<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) scale: Scale,
    /// Number of the group, from 0.
    pub(crate) group: usize,
    pub(crate) recorder: &'a mut Recorder,
}

/// Fails with the reason if the engine lacks the feature.
pub(crate) fn needs(engine: &dyn Engine, feature: Feature) -> Result<()> {
    engine.cannot(feature).map_or(Ok(()), |why| Err(Failure::Unsupported(why.to_owned())))
}

/// A source of a suite's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// What the source makes.
    pub(crate) what: &'static str,
    /// The generator with its seed and other parameters.
    pub(crate) generator: String,
}

impl Stream {
    pub(crate) fn new(what: &'static str, generator: impl Into<String>) -> Self {
        Self { what, generator: generator.into() }
    }
}

/// Returns the suite with this name.
pub(crate) fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().copied().find(|suite| suite.name == name)
}

/// Returns the rows of a suite and a scale by their names, or none if this program lacks one of them.
pub(crate) fn rows_of(suite: &str, scale: &str) -> Vec<Row> {
    let known = find(suite).zip(Scale::from_str(scale, false).ok());
    known.map(|(suite, scale)| suite.rows(scale)).unwrap_or_default()
}
