//! What the database consists of: which tables, in which runs, and from where the log must be replayed.
//!
//! ```text
//!   flush, merge --VersionEdit--> ManifestLog (MANIFEST-n, named by CURRENT)
//!                      `--apply--> Version (immutable) ---> read views
//! ```

pub(crate) mod edit;
pub(crate) mod file_name;
pub(crate) mod log;
pub(crate) mod salvage;
pub(crate) mod version;

/// Entry points for fuzzing: decoders of this module on arbitrary bytes.
#[doc(hidden)]
pub mod fuzzing {
    /// A version edit; decoded edits must encode to the same bytes.
    pub fn version_edit(bytes: &[u8]) {
        if let Ok(edit) = super::edit::VersionEdit::decode(bytes) {
            assert_eq!(super::edit::VersionEdit::decode(&edit.encode()), Ok(edit));
        }
    }
}
