//! Repairs of damaged databases.
//!
//! ```text
//!   golden database --damage--> esker::repair --> sound? explained by the report? original untouched?
//!
//!   judge.rs       repairs and judges            any_file.rs   every file damaged in every way
//!   manifest.rs, log.rs, tables.rs               what damage of each costs
//!   outcome.rs     where the new database stands
//!   unfinished.rs  what is left of a repair that is stopped
//!   failing_calls.rs  calls that fail while it is going on
//! ```
//!
//! - A repair never panics. It makes a sound database, or it makes nothing and says why.
//! - Every key that differs from the undamaged database is among those that the report names as lost. It has
//!   an earlier value of the key, or is missing.
//! - No byte, name or time of the original changes.
//! - The report names no more than may be lost: nothing for a file without data, keys of its range for a
//!   table, the damaged commit for the log.
//! - A repaired database survives an immediate power loss, and works with writes, a compaction and another
//!   power loss.
//! - A file or part of a file that cannot be read costs its contents and stops nothing. Reading it is tried a
//!   few times.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, also on real files")]

mod any_file;
mod failing_calls;
mod judge;
mod log;
mod manifest;
mod outcome;
mod tables;
mod unfinished;
