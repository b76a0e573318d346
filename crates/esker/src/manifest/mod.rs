//! The contents of the database: its tables, their runs, and where replay of the log starts.
//!
//! ```text
//!   flush, compaction --VersionEdit--> ManifestLog (MANIFEST-n, named by CURRENT)
//!                      `--apply--> Version (immutable) ---> read views
//! ```

pub(crate) mod edit;
pub(crate) mod feed;
mod field;
pub(crate) mod file_name;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod history;
pub(crate) mod level;
pub(crate) mod log;
pub(crate) mod overcounts;
pub(crate) mod salvage;
pub(crate) mod version;
