//! The suites: one file each, listed here.
//!
//! To add one, write `suites/NAME.rs` with a type that implements [`Suite`], and add it to [`SUITES`].
//!
//! bench_suites.1. The rows of a group share one process, one directory and what the rows before them wrote; groups share nothing.

mod badger;
mod budget;
mod calls;
mod churn;
mod echo;
mod int;
mod keyspaces;
mod large;
mod limits;
mod mixed;
mod obigstore;
mod one_transaction;
pub(crate) mod open;
mod page_cache;
mod records;
mod redb;
#[cfg(test)]
mod rehearse;
mod server;
mod shapes;
mod sizes;
mod storage_bench;
mod time;
mod transactions;
mod verify;
mod ycsb;

use esker_bench_api::{Engine, Failure, Feature};

use crate::recorder::Recorder;
use crate::row::Row;
use crate::scale::Scale;

/// All suites.
pub(crate) static SUITES: &[&dyn Suite] = &[
    &limits::LimitsSuite,
    &redb::RedbSuite,
    &int::IntSuite,
    &large::LargeSuite,
    &storage_bench::StorageBenchSuite,
    &obigstore::ObigstoreSuite,
    &records::RecordsSuite,
    &ycsb::YcsbSuite,
    &badger::BadgerSuite,
    &sizes::SizesSuite,
    &churn::ChurnSuite,
    &keyspaces::KeyspacesSuite,
    &open::OpenSuite,
    &transactions::TransactionsSuite,
    &shapes::ShapesSuite,
    &time::TimeSuite,
    &server::ServerSuite,
];

const PAGE_BYTES: u64 = 4 << 10;

/// Whether the files of `items` items may be larger than `memory_bytes`. The pages of a tree are half to two thirds full after inserts at random; values of a page
/// and more lie in whole pages of their own, and take no more than another one for what belongs to them.
pub(crate) fn may_outgrow(items: u64, value_bytes: usize, memory_bytes: u64) -> bool {
    let value_bytes = value_bytes as u64;
    let most = if value_bytes < PAGE_BYTES {
        2 * value_bytes
    } else {
        (value_bytes.div_ceil(PAGE_BYTES) + 1) * PAGE_BYTES
    };
    items * most > memory_bytes
}

/// A list of rows in groups; each group is measured in one go on one engine in a fresh process and directory.
pub(crate) trait Suite: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// One sentence: the data and where the workload is from.
    fn summary(&self) -> &'static str;

    /// The rows in the order in which they run.
    fn rows(&self, scale: Scale) -> Vec<Row>;

    /// Where bytes, orders and draws come from: generators of `esker_bench_api::generate` with their seeds and parameters, so that somebody else can
    /// make them again.
    fn streams(&self) -> Vec<Stream>;

    /// The most bytes that any engine's files take on the way in a group. As it stands here, it is for suites whose data is far smaller.
    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        if scale == Scale::Test { 1 << 30 } else { 20 << 30 }
    }

    /// The memory that an engine may use in all for a group, page cache of its files included; `None` for a group that needs whatever the
    /// machine has. An engine that keeps to the suite's cache has as much again and more for all else.
    fn memory_bytes_max(&self, group: usize) -> Option<u64>;

    /// For a suite that measures the machine and no engine: what stands in the engine's place.
    fn own_engine(&self) -> Option<&'static dyn Engine> {
        None
    }

    /// Fewest syncs for each commit of a row that must sync: 1, or less where commits of several threads share one.
    fn syncs_per_commit_min(&self, _group: usize) -> f64 {
        1.0
    }

    /// Runs the rows of a group and tells the recorder of each, in the order of `rows`. [`Failure::Unsupported`]: the engine cannot run those that have
    /// not begun.
    fn run(&self, turn: Turn<'_>) -> Result<(), Failure>;

    /// How many groups there are.
    fn groups(&self, scale: Scale) -> usize {
        self.rows(scale).iter().map(|row| row.group + 1).max().unwrap_or(0)
    }
}

/// A group of a suite that is about to run on one engine.
pub(crate) struct Turn<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) scale: Scale,
    /// The number of the group, from 0.
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

/// One source of a suite's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// What is made of it.
    pub(crate) what: &'static str,
    /// The generator, with its seed and its other parameters.
    pub(crate) generator: String,
}

impl Stream {
    pub(crate) fn new(what: &'static str, generator: impl Into<String>) -> Self {
        Self { what, generator: generator.into() }
    }
}

/// The suite of that name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Suite> {
    SUITES.iter().copied().find(|suite| suite.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::rehearse::Rehearsed;

    #[test]
    fn stores_are_told_of_ascending_keys_where_keys_ascend() {
        let suites: [(&dyn Suite, &[usize]); 3] = [
            (&storage_bench::StorageBenchSuite, &[1]),
            (&obigstore::ObigstoreSuite, &[2, 3, 4, 6]),
            (&churn::ChurnSuite, &[0]),
        ];
        for (suite, ascending) in suites {
            for group in 0..suite.groups(Scale::Test) {
                let engine = Rehearsed::default();
                engine.run(suite, group);
                let told = engine.opened_ascending.lock().unwrap().clone();
                let expected = vec![ascending.contains(&group); told.len()];
                assert!(!told.is_empty() && told == expected, "{}, group {group}: {told:?}", suite.name());
            }
        }
    }

    #[test]
    fn every_suite_says_what_its_work_is_made_of() {
        for suite in SUITES {
            let streams = suite.streams();
            assert!(streams.iter().any(|stream| stream.generator.contains("seed ")), "{}", suite.name());
            for stream in &streams {
                let is_known = stream.generator.contains("::") || stream.generator.contains("seed");
                assert!(is_known && !stream.what.is_empty(), "{}: {stream:?}", suite.name());
            }
        }
    }
}
