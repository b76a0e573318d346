//! The amount of work of a suite.

use std::time::Duration;

use clap::ValueEnum;

/// The scales. Each suite defines its counts for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scale {
    /// A suite in about a minute: for every day
    Quick,
    /// The source's own counts, as far as a machine of 2 cores and 24 GiB holds them: for published figures
    Seed,
    /// The source's own counts, whatever they need
    Full,
    /// The lab's own tests: every row, almost no work; the times mean nothing
    #[value(hide = true)]
    Test,
}

impl Scale {
    /// Scales that `list` shows.
    pub(crate) const SHOWN: [Self; 3] = [Self::Quick, Self::Seed, Self::Full];

    /// Returns its name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Seed => "seed",
            Self::Full => "full",
            Self::Test => "test",
        }
    }

    /// Returns the time without work after which a process counts as idle.
    pub(crate) fn idle_window(self) -> Duration {
        Duration::from_millis(if self == Self::Test { 20 } else { 100 })
    }

    /// Returns the time for one row, or for the load before it, after which an engine counts as hung.
    pub(crate) fn seconds_max(self) -> u64 {
        match self {
            Self::Quick => 300,
            Self::Seed => 3_600,
            Self::Full => 86_400,
            Self::Test => 120,
        }
    }
}
