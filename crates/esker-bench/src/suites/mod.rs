//! The suites: one file each, listed here.
//!
//! To add a suite, write `suites/NAME.rs` with a [`Planned`], and add it to [`SUITES`]. `plan.rs` defines the
//! parts of groups. A suite that does not fit into a plan implements [`Suite`] itself.
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

use esker_bench_api::{Engine, Failure, Feature};

use crate::recorder::Recorder;
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::plan::Part;

/// All suites.
pub(crate) static SUITES: &[&dyn Suite] = &[
    &limits::LimitsSuite,
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
    &open::OpenSuite,
    &transactions::SUITE,
    &shapes::SUITE,
    &time::SUITE,
    &server::ServerSuite,
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
pub(crate) trait Suite: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Describes the data and the source of the workload in one sentence.
    fn summary(&self) -> &'static str;

    /// Returns the rows in the order in which they run.
    fn rows(&self, scale: Scale) -> Vec<Row>;

    /// Returns the sources of bytes, orders and draws: generators of `esker_bench_api::generate` with their
    /// seeds and parameters. With these the work can be repeated elsewhere.
    fn streams(&self) -> Vec<Stream>;

    /// Returns the most bytes that the files of any engine take during a group.
    fn disk_bytes_max(&self, scale: Scale, group: usize) -> u64 {
        far_smaller(scale, group)
    }

    /// Returns the limit of all memory of an engine for a group, including the page cache of its files.
    /// `None` if the group needs all memory of the machine. The limit is at least twice the cache of the
    /// suite.
    fn memory_bytes_max(&self, group: usize) -> Option<u64>;

    /// Returns the stand-in for an engine, for a suite that measures the machine.
    fn own_engine(&self) -> Option<&'static dyn Engine> {
        None
    }

    /// Returns the fewest syncs per commit of a row that must sync. That is 1, or less if commits of several
    /// threads share a sync.
    fn syncs_per_commit_min(&self, _group: usize) -> f64 {
        1.0
    }

    /// Runs the rows of a group, and reports each to the recorder in the order of `rows`.
    /// [`Failure::Unsupported`] means that the engine cannot run the rows that have not begun.
    fn run(&self, turn: Turn<'_>) -> Result<(), Failure>;

    /// Returns the number of groups.
    fn groups(&self, scale: Scale) -> usize {
        self.rows(scale).iter().map(|row| row.group + 1).max().unwrap_or(0)
    }
}

/// Disk limit of suites whose data is far smaller.
fn far_smaller(scale: Scale, _group: usize) -> u64 {
    if scale == Scale::Test { 1 << 30 } else { 20 << 30 }
}

/// A suite that is data, except for groups that are programs.
pub(crate) struct Planned {
    name: &'static str,
    summary: &'static str,
    memory_bytes_max: fn(usize) -> Option<u64>,
    disk_bytes_max: fn(Scale, usize) -> u64,
    syncs_per_commit_min: fn(usize) -> f64,
    streams: fn() -> Vec<Stream>,
    /// Returns the groups at a scale.
    parts: fn(Scale) -> Vec<Part>,
}

impl Suite for Planned {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let parts = (self.parts)(scale).into_iter().enumerate();
        let rows =
            parts.flat_map(|(group, part)| part.rows().into_iter().map(move |row| Row { group, ..row }));
        rows.collect()
    }

    fn streams(&self) -> Vec<Stream> {
        (self.streams)()
    }

    fn disk_bytes_max(&self, scale: Scale, group: usize) -> u64 {
        (self.disk_bytes_max)(scale, group)
    }

    fn memory_bytes_max(&self, group: usize) -> Option<u64> {
        (self.memory_bytes_max)(group)
    }

    fn syncs_per_commit_min(&self, group: usize) -> f64 {
        (self.syncs_per_commit_min)(group)
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        match (self.parts)(turn.scale).swap_remove(turn.group) {
            Part::Steps(group) => interpret::run(&group, turn),
            Part::Program(_, program) => program(turn),
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

impl Turn<'_> {
    /// Runs the group. Rows that the engine cannot run get the reason.
    pub(crate) fn take(self, suite: &dyn Suite) -> Result<(), Failure> {
        let Self { engine, scale, group, recorder } = self;
        match suite.run(Turn { engine, scale, group, recorder: &mut *recorder }) {
            Err(Failure::Unsupported(why)) => recorder.cannot_rest(&why),
            result => result,
        }
    }
}

/// Fails with the reason if the engine lacks the feature.
pub(crate) fn needs(engine: &dyn Engine, feature: Feature) -> Result<(), Failure> {
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
pub(crate) fn find(name: &str) -> Option<&'static dyn Suite> {
    SUITES.iter().copied().find(|suite| suite.name() == name)
}
