//! Transactions: what a commit consists of, and how it becomes durable and visible.
//!
//! ```text
//!   WriteSet --Pipeline::commit--> group: conflicts? counts? --> WAL --> memtable --> sync --> Published
//! ```

pub(crate) mod adopt;
mod ahead;
pub(crate) mod apply;
mod at_once;
pub(crate) mod blobs;
pub(crate) mod commit;
pub(crate) mod conflict;
pub(crate) mod counts;
pub(crate) mod drop_mark;
pub(crate) mod flush_reason;
mod join;
mod joiner;
pub(crate) mod layers;
pub(crate) mod low_water_key;
pub(crate) mod memtables;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod own;
pub(crate) mod packing;
pub(crate) mod payload;
mod poison;
pub(crate) mod private;
pub(crate) mod queue;
pub(crate) mod range_count;
pub(crate) mod read_set;
mod recent_writes;
mod request;
pub(crate) mod snapshots;
mod timed_sync;
pub(crate) mod watchers;
pub(crate) mod write_set;
pub(crate) mod write_set_cursor;

/// Fuzzing entry points for the decoders of this module.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing {
    /// Decodes the payload of a WAL record and checks that re-encoding it round-trips.
    pub fn commit_payload(bytes: &[u8]) {
        let Ok((deltas, set)) = super::payload::decode(bytes) else { return };
        let header = super::payload::encode_header(&deltas);
        let again = [&header, set.payload()].concat();
        let (deltas_again, set_again) = super::payload::decode(&again).expect("an encoded payload decodes");
        assert_eq!((deltas, set.payload()), (deltas_again, set_again.payload()));
    }
}
