//! A trace: all changes that a database made to its directory, in order, with the reports of its writers.
//!
//! A change enters the trace after it was made, a sync with the position at which it started. So the trace
//! never claims that a sync covers a later change.

use crate::writers::WriterEvent;

/// The identity of a file, independent of its name.
pub(crate) type FileNo = usize;

/// A recorded event.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { file: FileNo, name: String },
    Rename { from: String, to: String },
    Remove { name: String },
    SyncDir { began: usize },
    Write { file: FileNo, offset: u64, bytes: Vec<u8> },
    SetLen { file: FileNo, len: u64 },
    SyncFile { file: FileNo, began: usize },
    WriterEvent(WriterEvent),
}

impl Step {
    /// Returns whether the point after this step is critical.
    pub(crate) fn is_turning_point(&self) -> bool {
        matches!(
            self,
            Step::SyncDir { .. }
                | Step::SyncFile { .. }
                | Step::Rename { .. }
                | Step::Remove { .. }
                | Step::WriterEvent(_)
        )
    }
}
