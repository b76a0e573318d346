//! The engine: a database while it runs.
//!
//! ```text
//!   db (handles) --> core: reads.rs      at one commit, from the view
//!                         admission.rs  --> txn (commit pipeline)
//!                         flush.rs, compact.rs --> install.rs (manifest, view)
//!                         background.rs  threads that take steps of these
//!                         stats.rs, keyspace_stats.rs, health.rs: what they all report
//!   copies/: checkpoints, and what backups are made of
//!   open.rs: from a directory to a Core; handle.rs: who owns it, and how it closes
//! ```

pub(crate) mod admission;
mod adoption;
mod age;
mod amplification;
pub(crate) mod background;
mod blobs;
pub(crate) mod catalog;
pub(crate) mod catalog_changes;
mod collect;
pub(crate) mod committer;
mod compact;
pub(crate) mod copies;
pub(crate) mod core;
mod decisions;
mod dir_lock;
pub(crate) mod feed;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod ingest;
pub(crate) mod install;
pub(crate) mod keyspace_options;
pub(crate) mod keyspace_stats;
mod lengths;
pub(crate) mod locks;
pub(crate) mod look;
mod many;
pub(crate) mod open;
pub(crate) mod options;
mod pace;
mod page_cache;
pub(crate) mod portable_options;
pub(crate) mod reads;
mod replay;
mod rest;
pub(crate) mod right_of_way;
mod room;
mod signal;
pub(crate) mod stats;
pub(crate) mod sweep;
mod trouble;
pub(crate) mod unfinished;
pub(crate) mod unnamed;
