//! Flush and compaction: write memtables to tables, and rewrite tables into fewer and larger ones.
//!
//! ```text
//!   Version --picker (pure)--> Plan --execute--> MergeScan --> Judge --> Output --> tables, VersionEdit
//!              |                     memtables -----'
//!              |-- partition: key ranges that can be compacted independently; fences
//!              |-- plan: plans, and what strategies share; claim: which plans may run at the same time
//!              |-- in_cache, tiers, manual: the strategies, one file each; shape: how many tiers there are
//!              |-- pacing: how far behind compaction is, and how long writers wait for it
//!              |-- covered: tables that are dropped unread, because range tombstones hide all of them
//!              |-- rules: what is kept for the history of keyspaces
//!              `-- filter: user functions called for each value that a compaction passes
//! ```
//!
//! Reading order: `partition`, `plan`, `claim`, `picker`, `in_cache`, `shape`, `tiers`, `manual`, `pacing`,
//! `covered` decide; `merge`, `judge`, `operands`, `output`, `execute` do the work. Pauses after failures:
//! engine/upkeep/backoff.rs.

pub(crate) mod claim;
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
