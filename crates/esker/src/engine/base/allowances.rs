//! Limits on background work and writers, set by the user.

use crate::types::{Error, Result};

/// More compactions at the same time are refused.
const COMPACTIONS_MAX: usize = 64;
/// Maximum number by default. One flush thread seldom makes work for more.
const COMPACTIONS_BY_DEFAULT: usize = 4;

/// Limits on background work and writers, set by the user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowances {
    /// Number of compactions that may run at the same time. `None`: by the number of processors.
    pub(crate) compactions: Option<usize>,
    /// Bytes a second that writers may write.
    pub(crate) write_rate: Option<u64>,
    /// Bytes a second that compactions may read.
    pub(crate) compaction_rate: Option<u64>,
    /// Percent of one processor that compactions may use.
    pub(crate) compaction_percent: Option<u64>,
}

impl Allowances {
    /// Refuses values out of range.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
        let Allowances { compactions, write_rate, compaction_rate, compaction_percent } = *self;
        if compactions.is_some_and(|number| !(1..=COMPACTIONS_MAX).contains(&number)) {
            return invalid("compactions: 1 to 64");
        }
        if write_rate.is_some_and(|rate| rate < 1 << 10) || compaction_rate.is_some_and(|rate| rate < 1 << 20)
        {
            return invalid("write_rate: at least 1 KiB a second; compaction_rate: at least 1 MiB a second");
        }
        if compaction_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
            return invalid("compaction_percent: 1 to 100");
        }
        Ok(())
    }

    /// Returns how many compactions may run at the same time in threads. The default leaves one processor to
    /// the program.
    pub(super) fn compaction_threads(&self) -> usize {
        self.compactions.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.saturating_sub(1).clamp(1, COMPACTIONS_BY_DEFAULT)
        })
    }
}
