//! Flush and merge: how memtables become tables, and tables fewer and larger ones.
//!
//! ```text
//!   Version --picker (pure)--> Plan --execute--> MergeScan --> Judge --> Output --> tables, a VersionEdit's parts
//!              |                     memtables -----'
//!              |-- partition: key ranges that can be merged on their own; fences
//!              |-- pacing: how far behind merging is, and how much writers wait for it
//!              |-- pauses: tables of merges that failed, and when to try them again
//!              `-- room: whether there is more space on the disk than when they failed
//! ```
//!
//! In reading order: `partition`, `picker`, `pacing`, `pauses`, `room` decide; `merge`, `garbage`, `output`, `execute` do.

pub(crate) mod execute;
mod garbage;
pub(crate) mod merge;
mod output;
pub(crate) mod pacing;
pub(crate) mod partition;
pub(crate) mod picker;
