//! Reading: one key or a stretch of keys, at one sequence number, over memtables and tables.
//!
//! ```text
//!   ViewCell --> ReadView = active memtable + immutable memtables + Version
//!                  |- point.rs    get: newest source first, until the resolver has its answer
//!                  |- RunWalk     a range over one run with nothing above it
//!                  `- VisibleCursor (bounds, range tombstones, only live keys)
//!                        |- Cover (range tombstones of all sources)
//!                        `- MergeCursor (newest source wins)
//!                              `- SourceCursor of each memtable, run, write set
//!   fold.rs, operators.rs: what operands make of values
//!   versions.rs: older versions, and what has changed since a commit
//!   swept.rs: ranges that sweeps removed
//!   unresolved.rs: how many keys were counted twice;  resolve.rs: what versions mean; fetch.rs: from what is stored to a value
//! ```

pub(crate) mod cost;
pub(crate) mod cover;
pub(crate) mod fetch;
pub(crate) mod fold;
pub(crate) mod gaps;
mod held;
pub(crate) mod merge;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod operators;
pub(crate) mod point;
pub(crate) mod resolve;
pub(crate) mod run_cursor;
pub(crate) mod run_walk;
pub(crate) mod source;
mod stretch;
pub(crate) mod swept;
pub(crate) mod time;
pub(crate) mod unresolved;
pub(crate) mod value_reader;
pub(crate) mod versions;
pub(crate) mod view;
pub(crate) mod view_cell;
pub(crate) mod visible;
