//! Reading: one key or a stretch of keys, at one sequence number, over memtables and tables.
//!
//! ```text
//!   ViewCell --> ReadView = active memtable + immutable memtables + Version
//!                  |- point.rs    get: newest source first, stop at the first version found
//!                  `- VisibleCursor (bounds, range tombstones, only live keys)
//!                        |- Cover (range tombstones of all sources)
//!                        `- MergeCursor (newest source wins)
//!                              `- SourceCursor of each memtable, run, write set
//! ```

pub(crate) mod cost;
pub(crate) mod cover;
pub(crate) mod merge;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod point;
pub(crate) mod run_cursor;
pub(crate) mod source;
pub(crate) mod view;
pub(crate) mod view_cell;
pub(crate) mod visible;
