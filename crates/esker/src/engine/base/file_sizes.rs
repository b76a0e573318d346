//! Sizes of the files of the log and the manifest.

use crate::manifest::log::REWRITE_BYTES_MIN;
use crate::wal::WalOptions;

/// Sizes in bytes at which the log and the manifest start another file. Simulators set small ones, so that
/// their small databases exercise what large databases do.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct FileSizes {
    /// Size of the log's first segment, a multiple of 512. Each further segment is twice as large, up to the
    /// maximum.
    pub first_segment: u64,
    /// Maximum payload of a segment that holds a commit larger than an ordinary segment; not less than that
    /// segment.
    pub bulk_segment: u64,
    /// A manifest smaller than this is not rewritten.
    pub manifest_min: u64,
}

impl Default for FileSizes {
    fn default() -> Self {
        let WalOptions { first_segment_bytes, bulk_segment_bytes, .. } = WalOptions::default();
        FileSizes {
            first_segment: first_segment_bytes,
            bulk_segment: bulk_segment_bytes,
            manifest_min: REWRITE_BYTES_MIN,
        }
    }
}
