//! Claims: what a running plan keeps other plans away from. Pure policy: no I/O, no locks.
//!
//! ```text
//!   L0    [a---------k]   plan 1: levels L0..tier, keys a-k      plan 2 may run: no common level
//!   tier  [a---f][g--k]                                          plan 3 may run: no common key
//!   tier2 [a--d][e--k] [m--p]   plan 2: tier2..base, a-d         plan 4, tier..tier2, e-k, waits for plan 1
//!   base  [a-c] [d-l]  [m--p]   plan 3: tier2..base, m-p
//! ```
//!
//! claim.1. A plan reads and writes only tables inside its claim: of its levels, with keys of its ranges. So
//!     while claims do not meet, each plan finds its part of the version as it was picked, apart from newer
//!     runs of L0. What the picker has concluded (picker.1, picker.2) stays true until it is installed.

use super::plan::{Plan, PlanKind};
use crate::manifest::level::Level;
use crate::manifest::version::{Run, Version};
use crate::types::key_range::KeyRange;

/// Levels and key ranges of a running plan.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    newest: Level,
    oldest: Level,
    ranges: Vec<KeyRange>,
}

impl Claim {
    /// Returns the claim of a plan made from `version`.
    pub(crate) fn of<T>(plan: &Plan, version: &Version<T>) -> Self {
        let levels = || plan.inputs.iter().map(|input| input.level).chain([plan.output_level]);
        let (newest, oldest) = levels()
            .fold((plan.output_level, plan.output_level), |(newest, oldest), of| {
                (newest.min(of), oldest.max(of))
            });
        let ranges = match plan.kind {
            // Output tables may span gaps between the inputs.
            PlanKind::Rewrite => vec![plan.range.clone()],
            PlanKind::TrivialMove => {
                let files = plan.files();
                let tables = version.tables().filter(|(_, table)| files.contains(&table.file));
                tables.map(|(_, table)| table.meta.range.clone()).collect()
            }
        };
        Claim { newest, oldest, ranges }
    }

    /// Returns whether two plans would get in each other's way.
    pub(crate) fn meets(&self, other: &Claim) -> bool {
        let is_apart = self.oldest < other.newest || other.oldest < self.newest;
        !is_apart && self.ranges.iter().any(|range| other.overlaps(range))
    }

    /// Returns whether it contains keys of a range, in any level.
    pub(crate) fn overlaps(&self, range: &KeyRange) -> bool {
        self.ranges.iter().any(|own| own.overlaps(range))
    }

    /// Returns whether it contains keys of a table's range, in the level of its run.
    pub(super) fn overlaps_in<T>(&self, run: &Run<T>, range: &KeyRange) -> bool {
        (self.newest..=self.oldest).contains(&run.level) && self.overlaps(range)
    }
}
