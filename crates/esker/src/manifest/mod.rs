//! What the database consists of: which tables, in which runs, and from where the log must be replayed.
//!
//! ```text
//!   flush, compaction --VersionEdit--> ManifestLog (MANIFEST-n, named by CURRENT)
//!                      `--apply--> Version (immutable) ---> read views
//! ```

pub(crate) mod debts;
pub(crate) mod edit;
pub(crate) mod feed;
pub(crate) mod file_name;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod salvage;
pub(crate) mod version;
