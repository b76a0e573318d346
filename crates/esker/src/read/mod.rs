//! Reads: one key or a range of keys, at one sequence number, over memtables and tables.
//!
//! ```text
//!   ViewCell --> ReadView = active memtable + immutable memtables + Version
//!                  |- point.rs    get: newest source first, until the resolver has an answer
//!                  |- RunWalk     a range over a single run with nothing above it
//!                  `- VisibleCursor (bounds, range tombstones, only live keys)
//!                        |- Cover (range tombstones of all sources)
//!                        `- MergeCursor (newest source wins)
//!                              `- SourceCursor of each memtable, run, write set
//!   fold.rs, operators.rs: apply operands to values      resolve.rs: what the versions of a key mean
//!   fetch.rs: from a stored value to a value             versions.rs: older versions, changes since a commit
//!   swept.rs: ranges removed by expiry sweeps            unresolved.rs: keys that commits counted twice
//!   skip_ranges.rs, dead_keys.rs: skipping dead keys     size.rs: bytes of a range
//! ```

pub(crate) mod cost;
pub(crate) mod cover;
mod dead_keys;
pub(crate) mod fetch;
pub(crate) mod fold;
mod held;
pub(crate) mod merge;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod operators;
pub(crate) mod point;
pub(crate) mod resolve;
pub(crate) mod run_cursor;
pub(crate) mod run_walk;
pub(crate) mod size;
pub(crate) mod skip_ranges;
pub(crate) mod source;
pub(crate) mod swept;
pub(crate) mod time;
pub(crate) mod unresolved;
pub(crate) mod value_reader;
mod values_ahead;
pub(crate) mod versions;
pub(crate) mod view;
pub(crate) mod view_cell;
pub(crate) mod visible;
