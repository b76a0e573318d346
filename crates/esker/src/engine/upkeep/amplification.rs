//! Space amplification: bytes on disk per live byte, for tables and blob files together.
//!
//! ```text
//!   version --references of all tables--> live bytes per blob file, and the most garbage hidden among them
//! ```
//!
//! In tables, the size of the base run counts as live. In blob files, exactly what tables reference counts as
//! live.
//!
//! A value that a newer run has overwritten stays referenced until the runs are compacted. The garbage among
//! the references is at most what the runs above the base reference, and at most what the base references.

use std::collections::BTreeMap;

use crate::manifest::version::Version;
use crate::types::FileId;

/// The bytes of a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Bytes of all tables.
    pub(crate) tables: u64,
    /// Bytes of the base run; of all tables if there is none.
    pub(crate) base: u64,
    /// Bytes of all blob files.
    pub(crate) blobs: u64,
    /// Bytes of values that tables reference in each blob file, by the file id in the pointers.
    pub(crate) live: BTreeMap<FileId, u64>,
    /// Upper bound of the garbage among them that no compaction has found yet.
    pub(crate) hidden_max: u64,
}

impl Space {
    pub(crate) fn of(version: &Version) -> Space {
        let mut space = Space::default();
        let base_run = version.base();
        let mut base_live = 0;
        for run in version.runs() {
            let is_base = base_run.is_some_and(|base| base.id == run.id);
            space.tables += run.bytes();
            space.base += if is_base { run.bytes() } else { 0 };
            for (file, _, bytes) in run.tables().iter().flat_map(|table| table.meta.blobs.iter()) {
                *space.live.entry(file).or_default() += bytes;
                base_live += if is_base { bytes } else { 0 };
            }
        }
        if space.base == 0 {
            space.base = space.tables;
        }
        space.blobs = version.blobs().iter().map(|(_, source)| source.file.used()).sum();
        space.hidden_max = base_live.min(space.live_blobs() - base_live);
        space
    }

    /// Returns the bytes of values in blob files that tables reference.
    pub(crate) fn live_blobs(&self) -> u64 {
        self.live.values().sum()
    }

    /// Returns whether the blob files may exceed `percent_max` percent of the live data, and a compaction
    /// would find out.
    pub(crate) fn needs_compaction(&self, percent_max: u64) -> bool {
        self.hidden_max > 0 && is_over(self.blobs, self.live_blobs() - self.hidden_max, percent_max)
    }
}

/// Returns whether `all` is more than `percent_max` percent of `live`.
pub(crate) fn is_over(all: u64, live: u64, percent_max: u64) -> bool {
    u128::from(all) * 100 > u128::from(live) * u128::from(percent_max)
}
