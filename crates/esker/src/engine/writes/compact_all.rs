//! Compaction on demand: everything, or a key range, is swept, flushed, shown to the filters and compacted
//! into one run.

use super::Writes;
use crate::compaction::manual;
use crate::encryption;
use crate::engine::upkeep::compact::Filters;
use crate::types::key_range::KeyRange;
use crate::types::{Error, Result};

/// Whether a compaction shows filters what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filtering {
    Ask,
    Pass,
}

impl Writes {
    /// Shows a range to the filters until nothing is left to decide.
    fn filter_all(&self, range: Option<&KeyRange>) -> Result<()> {
        loop {
            self.begin_pass();
            {
                let _turn = self.turns.compact.lock();
                self.merge_all(Filtering::Ask, range)?;
            }
            let passed = self.end_pass()?;
            if passed.has_changed {
                self.flush_all()?;
            }
            if !passed.is_partial {
                return Ok(());
            }
        }
    }

    /// Compacts a range into one run without garbage. The caller holds the compaction turn.
    fn merge_all(&self, filtering: Filtering, range: Option<&KeyRange>) -> Result<()> {
        let is_filtered = self.is_filtered();
        let old = if filtering == Filtering::Pass { self.with_old_keys()? } else { Vec::new() };
        let must_pass =
            |range: &KeyRange| (filtering == Filtering::Ask && is_filtered(range)) || old.contains(range);
        let filters: Option<&dyn Filters> = if filtering == Filtering::Ask { Some(self) } else { None };
        if filtering == Filtering::Pass {
            self.decisions.forget(|_| true);
        }
        let mut progress = manual::ManualProgress::within(range.cloned());
        loop {
            self.check_able()?;
            let version = self.version();
            let plan = manual::pick(&version, &self.limits_when_idle(), &must_pass, &mut progress);
            let Some(plan) = plan else { return Ok(()) };
            if !self.run_plan(plan, filters)? {
                return Err(Error::Closed);
            }
        }
    }

    /// Returns the ranges of the tables that are encrypted with older keys. Compactions renew their keys.
    fn with_old_keys(&self) -> Result<Vec<KeyRange>> {
        let mut ranges = Vec::new();
        if encryption::has_older_keys(&self.env) {
            for (_, table) in self.version().tables() {
                if table.table.has_old_key()? {
                    ranges.push(table.meta.range.clone());
                }
            }
        }
        Ok(ranges)
    }

    /// Compacts a range of encoded keys into one run without garbage. `None`: everything, renews keys, and
    /// trims the log.
    pub(crate) fn compact_all(&self, range: Option<&KeyRange>) -> Result<()> {
        self.sweep()?;
        // First, because it may free the space that the flush needs.
        self.drop_covered_in_turn()?;
        self.blobs.close_current();
        self.flush_all()?;
        if !self.options.filters().is_empty() {
            self.filter_all(range)?;
        }
        let _turn = self.turns.compact.lock();
        self.check_able()?;
        while self.drop_covered()? {}
        self.merge_all(Filtering::Pass, range)?;
        while self.collect_blobs(true)? {
            self.check_able()?;
        }
        if range.is_some() {
            return Ok(());
        }
        while self.renew_blobs()? {
            self.check_able()?;
        }
        self.read_cost.reset();
        self.check_writable()?;
        self.pipeline.cut_log()?;
        self.wal_pool.trim()
    }

    fn drop_covered_in_turn(&self) -> Result<()> {
        self.check_writable()?;
        let _turn = self.turns.compact.lock();
        self.check_able()?;
        self.drop_covered().map(drop)
    }
}
