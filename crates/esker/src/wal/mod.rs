//! The write-ahead log: makes commits durable before they reach tables.
//!
//! ```text
//!   commit --append--> WalWriter --write, sync--> 000007.wal <--000008.wal-next-- WalPool <--prepare_step-- background
//!                                                     `--open--> recover --(seq, payload)--> memtable
//! ```
//!
//! wal.1. A record is acknowledged only after its last byte, its segment's header and its segment's name are durable.
//! wal.2. Sequence numbers in the log strictly increase.
//! wal.3. A segment's name exists only after its predecessor is durable up to its `End` record. So only the last segment
//!     may lack one, and only the last can have a torn tail.
//! wal.4. A record is valid only for the generation (the number) of its segment: what a recycled file held before never
//!     comes back.
//! wal.5. A record is replayed whole or not at all, however many segments it spans.
//! wal.6. After a failed write or sync, or a panic in one, nothing more is written or acknowledged, and the sync is not tried again.
//! wal.7. The manifest names a segment, durably, before it is put to use; so a segment that is lost is noticed (pool.4, recovery.6).
//! wal.8. Each segment says how long its file was made, and of which database it is; the manifest says of some commit that it
//!     was durable. So a last segment that was cut, an end that was lost, and a foreign segment are noticed (recovery.7).
//!
//! Bytes, and the measurements behind them: docs/formats/wal.md

mod active;
mod assembly;
mod direct;
pub(crate) mod file_name;
mod follow;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod meter;
mod old_segments;
mod options;
mod pool;
mod purpose;
mod record_parts;
mod recovery;
mod salvage;
mod segment;
mod shelf;
mod spare;
mod sync;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub(crate) use follow::{Followed, Follower, Record, look_at};
pub(crate) use format::SegmentHeader;
pub(crate) use options::{Register, WalOptions};
pub(crate) use pool::{LogRoom, WalPool};
pub(crate) use recovery::{
    CUT, LogExtent, Recovered, first_torn, is_in_use, recover, remove_obsolete, remove_unused, verify,
};
pub(crate) use salvage::{LogPiece, SegmentPiece, lacks_segments, salvage, segments, walk_segment_file};
pub(crate) use shelf::{Shelf, Shelved};
pub(crate) use sync::{SyncBeside, SyncHandle, SyncOutcome, SyncWork};
pub(crate) use writer::WalWriter;
