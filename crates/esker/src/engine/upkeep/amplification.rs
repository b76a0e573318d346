//! Space amplification: bytes on the disk for each byte of what is live, tables and blob files together.
//!
//! ```text
//!   version --references of all tables--> live bytes per blob file, and what merges may still find to be garbage
//! ```
//!
//! amplification.1. In tables, as much counts as live as the base run has. In blob files, exactly what tables reference.
//! amplification.2. A value that a newer run has overwritten is referenced until the runs are merged. At most as much of it is garbage as the runs
//!      above the base reference, and as the base does.

use std::collections::BTreeMap;

use crate::manifest::version::Version;
use crate::types::FileId;

/// The bytes of a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Of all tables.
    pub(crate) tables: u64,
    /// Of the base run; of all tables if there is none.
    pub(crate) base: u64,
    /// Of all blob files.
    pub(crate) blobs: u64,
    /// Of values in blob files that tables reference, by the number that pointers name.
    pub(crate) live: BTreeMap<FileId, u64>,
    /// An upper bound of the garbage among them that no compaction has found yet (amplification.2).
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

    /// Bytes of values in blob files that tables reference.
    pub(crate) fn live_blobs(&self) -> u64 {
        self.live.values().sum()
    }

    /// Whether the blob files may exceed `percent_max` percent of what is live, and compactions would find out.
    pub(crate) fn needs_merge(&self, percent_max: u64) -> bool {
        self.hidden_max > 0 && is_over(self.blobs, self.live_blobs() - self.hidden_max, percent_max)
    }
}

/// Whether `all` is more than `percent_max` percent of `live`.
pub(crate) fn is_over(all: u64, live: u64, percent_max: u64) -> bool {
    u128::from(all) * 100 > u128::from(live) * u128::from(percent_max)
}
