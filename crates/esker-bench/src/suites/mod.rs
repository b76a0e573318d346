//! The suites: one file each, listed here.
//!
//! To add one, write `suites/NAME.rs` with a type that implements [`Suite`], and add it to [`SUITES`].

mod redb;

use crate::recorder::Recorder;
use crate::scale::Scale;
use esker_bench_api::results::{Better, Unit};
use esker_bench_api::{Engine, Failure};

/// All suites.
pub(crate) static SUITES: &[&dyn Suite] = &[&redb::RedbSuite];

/// A list of rows, measured in one go on one engine in a fresh process and directory.
pub(crate) trait Suite: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// One sentence: the data and where the workload is from.
    fn summary(&self) -> &'static str;

    /// The rows in the order in which they run.
    fn rows(&self, scale: Scale) -> Vec<Row>;

    /// The most that any engine's files take on the way.
    fn disk_bytes_max(&self, scale: Scale) -> u64;

    /// Runs every row and tells `recorder` of each, in the order of `rows`.
    fn run(&self, engine: &dyn Engine, scale: Scale, recorder: &mut Recorder) -> Result<(), Failure>;
}

/// A row of a suite, before it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its name, as docs and results have it.
    pub(crate) name: &'static str,
    /// The work, for `list`.
    pub(crate) work: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// Operations that the value stands for.
    pub(crate) ops: u64,
    /// Commits within the row, and whether each must sync: what the trace is held against.
    pub(crate) commits: Commits,
    /// Its share of the running time, for the progress bar; any unit.
    pub(crate) weight: u64,
}

/// The commits of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// The row does not write.
    None,
    /// So many, each durable when it returns.
    Sync(u64),
    /// So many, with no sync asked for.
    NoSync(u64),
}

impl Commits {
    /// How many.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Sync(count) | Self::NoSync(count) => count,
        }
    }
}

/// The suite of that name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Suite> {
    SUITES.iter().copied().find(|suite| suite.name() == name)
}
