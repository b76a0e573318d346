//! What the manifest knows of a finished table.

use super::counts::Counts;
use super::stored::Fingerprint;
use crate::blob::BlobReferences;
use crate::types::SeqNo;
use crate::types::key_range::KeyRange;

/// Description of a finished table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// Size of the file.
    pub file_bytes: u64,
    /// The range that the table covers.
    pub range: KeyRange,
    /// Statistics of its entries.
    pub counts: Counts,
    /// Distinguishes tables that are otherwise alike.
    pub fingerprint: Fingerprint,
    /// The commit of an adopted table; zero for other tables (sstable/table.rs).
    pub base_seq: SeqNo,
    /// References to blob files.
    pub blobs: BlobReferences,
}

impl TableMeta {
    /// Returns the description of the same table adopted by a commit. Zero leaves it unchanged.
    pub(crate) fn based(self, base_seq: SeqNo) -> Self {
        match base_seq {
            SeqNo::ZERO => self,
            base => {
                let counts = Counts { min_seq: base, max_seq: base, ..self.counts };
                TableMeta { counts, base_seq: base, ..self }
            }
        }
    }
}
