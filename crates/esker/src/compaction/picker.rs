//! The picker: which tables to compact next. Pure policy: no I/O, no locks.
//!
//! ```text
//!   Version --fits the cache (while writes go on: only up to 16 memtables)--> in_cache.rs --.
//!           `-otherwise-----------------------------------------------------> tiers.rs -----+-> Plan (plan.rs)
//!                                                        asked for: manual.rs --------------'
//! ```
//!
//! picker.1. Between an input and the output no table that shares a key with that input is left out, nor, in
//!     the run that takes the output, one that shares a key with the plan's range: no data moves behind older
//!     data.
//! picker.2. `bottommost` holds only if no run below the output holds a key of the range.
//! picker.3. Without new writes, picking and executing comes to an end.
//! picker.4. No plan reads a table of `PickInput::skip`. What waits for one does not keep others from being
//!     picked.
//! picker.5. No plan that is due only because the database is idle reads a table of `PickInput::put_off`.
//!
//! Lazy leveling: Dayan and Idreos, Dostoevsky (2018). Merging when lost seeks have paid for it: LevelDB's
//! allowed seeks, as a ski rental.

use super::plan::{PickInput, Plan};
use super::{in_cache, tiers};
use crate::manifest::version::Version;

/// The piece of compaction that is due and pays most; none if the shape is good.
pub(crate) fn pick<T>(version: &Version<T>, input: &PickInput) -> Option<Plan> {
    if input.limits.fits_cache { in_cache::pick(version, input) } else { tiers::pick(version, input) }
}

#[cfg(test)]
pub(crate) mod tests;
