//! Flush and compaction: how memtables become tables, and tables fewer and larger ones.
//!
//! ```text
//!   Version --picker (pure)--> Plan --execute--> MergeScan --> Judge --> Output --> tables, a VersionEdit's parts
//!              |                     memtables -----'
//!              |-- partition: key ranges that can be compacted on their own; fences
//!              |-- plan: plans, and what strategies share
//!              |-- in_cache, tiers, manual: the strategies, one file each; shape: how many tiers there are
//!              |-- pacing: how far behind compaction is, and how much writers wait for it
//!              |-- covered: tables that go unread, since range tombstones hide all of them
//!              |-- rules: what is kept for the history of keyspaces
//!              `-- filter: what users' functions say of the values that a merge passes
//! ```
//!
//! In reading order: `partition`, `plan`, `picker`, `in_cache`, `shape`, `tiers`, `manual`, `pacing`, `covered` decide; `merge`, `judge`, `operands`, `output`, `execute` do. What has failed, and is left
//! alone for that: engine/upkeep/backoff.rs.

pub(crate) mod covered;
pub(crate) mod execute;
pub(crate) mod filter;
mod horizons;
mod in_cache;
pub(crate) mod judge;
pub(crate) mod manual;
pub(crate) mod merge;
mod operands;
pub(crate) mod output;
pub(crate) mod pacing;
pub(crate) mod partition;
pub(crate) mod picker;
pub(crate) mod plan;
pub(crate) mod private;
pub(crate) mod rules;
pub(crate) mod shape;
#[cfg(test)]
mod simulation;
mod tiers;
