//! The write-ahead log: makes writes durable before a flush writes them to tables.
//!
//! The public part ([`Log`]) works without a database:
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("log");
//! use esker::wal::Log;
//!
//! let mut log = Log::open(&path)?;
//! log.append(b"the first write")?;
//! let segment = log.append_sync(b"the second")?; // both are durable
//! drop(log);
//!
//! let mut log = Log::open(&path)?;
//! let mut writes = Vec::new();
//! log.replay(|segment, record| {
//!     writes.push((segment, record.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(writes, [(segment, b"the first write".to_vec()), (segment, b"the second".to_vec())]);
//! // Once the writes are in a table, the log does not need them.
//! let next = log.rotate()?;
//! log.remove_below(next)?;
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! # In the engine
//! Its log is another one, with files that are allocated in advance and reused.
//!
//! ```text
//!   commit --append--> WalWriter --write, sync--> 000007.wal <--000008.wal-next-- WalPool <--prepare_step--
//!                                                     `--open--> recover --(seq, payload)--> memtable
//! ```
//!
//! wal.1. A record is acknowledged as durable only after its last byte, its segment's header and its
//!     segment's name are durable.
//! wal.2. Sequence numbers in the log strictly increase.
//! wal.3. A segment gets its name only after its predecessor is durable up to and including its `End` record.
//!     So only the last segment may lack one or have a torn tail.
//! wal.4. A record is valid only for the number of its segment, so old records in a recycled file are never
//!     replayed.
//! wal.5. A record is replayed completely or not at all, however many segments it spans.
//! wal.6. After a failed write or sync, or a panic during one, the log writes and acknowledges nothing more
//!     and does not retry the sync.
//! wal.7. The manifest durably names a segment before the segment is put to use, so recovery notices a lost
//!     segment (pool.4, recovery.6).
//! wal.8. Each segment header records the size of the new file and the database id; the manifest records a
//!     commit that was durable. So recovery notices a truncated last segment, a lost end and a segment of
//!     another database (recovery.7).
//! wal.9. If segments are kept for readers, the manifest gives up those that recovery does not need only
//!     after their `End` records are durable. Later recoveries do not read them, so cannot repair them.
//!
//! Byte layout and measurements: docs/formats/wal.md.

mod active;
mod assembly;
pub(crate) mod file_name;
mod files;
mod follow;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod meter;
mod old_segments;
mod options;
mod pool;
mod prepared;
mod purpose;
mod record_parts;
mod recovery;
mod salvage;
mod segment;
mod shelf;
mod spare;
mod standalone;
mod sync;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use standalone::{Log, Options};

pub(crate) use files::{LogExtent, bytes_from, is_in_use, remove_obsolete, remove_unused};
pub(crate) use follow::{Followed, Follower, Record, look_at};
pub(crate) use format::SegmentHeader;
pub(crate) use options::{Register, WalOptions};
pub(crate) use pool::{LogRoom, WalPool};
pub(crate) use prepared::{Prepared, find_left, make_first};
pub(crate) use recovery::{CUT, Recovered, first_torn, read_segment, recover, verify};
pub(crate) use salvage::{LogPiece, SegmentPiece, lacks_segments, salvage, segments, walk_segment_file};
pub(crate) use shelf::{Shelf, Shelved};
pub(crate) use sync::{SyncBeside, SyncHandle, SyncOutcome, SyncWork};
pub(crate) use writer::WalWriter;
