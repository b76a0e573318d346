//! A trace: everything that a database did to its directory, in order, and what its writers said meanwhile.
//!
//! trace.1. A change stands in the trace once it is done, a sync with the position at which it began: so the trace never
//!      claims that a sync covers what may have come after it.

use crate::writers::Said;

/// A file, whatever its name.
pub(crate) type FileNo = usize;

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { file: FileNo, name: String },
    Rename { from: String, to: String },
    Remove { name: String },
    SyncDir { began: usize },
    Write { file: FileNo, offset: u64, bytes: Vec<u8> },
    SetLen { file: FileNo, len: u64 },
    SyncFile { file: FileNo, began: usize },
    Said(Said),
}

impl Step {
    /// Whether the moment after it is one at which much is at stake.
    pub(crate) fn is_turning_point(&self) -> bool {
        matches!(
            self,
            Step::SyncDir { .. }
                | Step::SyncFile { .. }
                | Step::Rename { .. }
                | Step::Remove { .. }
                | Step::Said(_)
        )
    }
}
