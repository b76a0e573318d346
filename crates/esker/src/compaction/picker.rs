//! Picks the tables to compact next. Pure policy: no I/O, no locks.
//!
//! ```text
//!   Version --fits the cache (under writes: only up to 16 memtables)--> in_cache.rs --------.
//!           `-otherwise--------------------------------------------------> tiers.rs -----+-> Plan (plan.rs)
//!                                                     on request: manual.rs -------------'
//! ```
//!
//! picker.1. A plan leaves out no table between an input and the output that shares a key with that input. In
//!     the run that takes the output it leaves out none that shares a key with the plan's range. So newer
//!     data never moves below older data.
//! picker.2. `bottommost` is set only if no run below the output holds a key of the range.
//! picker.3. Without new writes, picking and executing plans terminates.
//!
//! - No plan reads a table in `PickInput::skip`. Other tables are picked regardless.
//! - No plan that is due only because the database is idle reads a table in `PickInput::put_off`.
//!
//! picker.6. The claim of a plan meets none of `PickInput::running`.
//!
//! Lazy leveling: Dayan and Idreos, Dostoevsky (2018). Compaction once lost seeks have paid for it: LevelDB's
//! allowed seeks, as a ski rental.

use super::claim::Claim;
use super::plan::{PickInput, Plan};
use super::{in_cache, tiers};
use crate::manifest::version::Version;

/// Returns the most profitable compaction that is due; `None` if the tree has the desired shape.
pub(crate) fn pick<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    if input.running.is_empty() {
        return pick_alone(version, input);
    }
    let mut input = input.clone();
    let is_claimed = |claim: &Claim| {
        let tables = version.tables().filter(|(run, table)| claim.overlaps_in(run, &table.meta.range));
        tables.map(|(_, table)| table.file).collect::<Vec<_>>()
    };
    input.skip.extend(input.running.iter().flat_map(is_claimed));
    loop {
        let plan = pick_alone(version, &input)?;
        let claim = Claim::of(&plan, version);
        if !input.running.iter().any(|running| running.meets(&claim)) {
            return Some(plan);
        }
        // Its output could span a claimed range.
        input.skip.extend(plan.files());
    }
}

/// Returns the most profitable compaction that is due and reads no table to leave alone.
fn pick_alone<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    if input.limits.fits_cache { in_cache::pick(version, input) } else { tiers::pick(version, input) }
}

#[cfg(test)]
pub(crate) mod tests;
