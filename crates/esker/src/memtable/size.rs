//! Estimates how many bytes of a memtable belong to a range of keys, from the inner nodes on one path.

use super::Memtable;
use crate::blob::BlobPointer;
use crate::sync::atomic::Ordering;
use crate::types::key_range::KeyRange;

impl Memtable {
    /// Adds the value that an entry points to.
    pub(super) fn note_blob(&self, pointer: &[u8]) {
        // A damaged pointer is reported to its reader.
        let bytes = BlobPointer::decode(pointer).map_or(0, |pointer| pointer.stored);
        self.blob_bytes.store(self.blob_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Estimates the bytes of the entries in a range, with their values in blob files.
    pub(crate) fn bytes_within(&self, range: &KeyRange) -> u64 {
        if self.entries() == 0 {
            return 0;
        }
        let (start, end) = self.fractions(range);
        let bytes = self.tree.arena.used() as u64 + self.blob_bytes.load(Ordering::Relaxed);
        (bytes as f64 * (end - start).max(0.0)) as u64
    }

    /// Cuts the entries in a range into at most `count` pieces of about equal size. Returns the first key of
    /// each.
    pub(crate) fn pieces(&self, range: &KeyRange, count: u64) -> Vec<Vec<u8>> {
        let (start, end) = self.fractions(range);
        let count = count.clamp(1, self.entries().max(1));
        let at = |n: u64| start + (end - start) * n as f64 / count as f64;
        let keys = (0..count).filter_map(|n| Some(self.tree.near_fraction(at(n))?.key().to_vec()));
        keys.filter(|key| range.contains(key)).collect()
    }

    /// The fractions of the keys before a range and before its end.
    fn fractions(&self, range: &KeyRange) -> (f64, f64) {
        (self.tree.fraction_before(&range.start), self.tree.fraction_before(range.end.key()))
    }
}
