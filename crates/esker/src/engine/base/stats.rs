//! Statistics of a running database.

pub(crate) mod figures;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::latency::{Latency, Recorder};
use crate::types::{Error, SeqNo};

/// Statistics at one moment. Counts and sums cover the time since this opening of the database.
///
/// Taking them waits for no commit and no disk. It costs some tens of microseconds, more with very many
/// keyspaces or tables. [`Db::health`](crate::Db::health) reports whether anything fails now.
/// [`Db::keyspace_stats`](crate::Db::keyspace_stats) has the figures of each keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live items of all keyspaces. Up to `unresolved` of them may be counted twice.
    pub items: u64,
    /// Writes whose commit did not check whether the key existed. [`Keyspace::len`](crate::Keyspace::len) and
    /// compactions check.
    pub unresolved: u64,
    /// The newest visible commit.
    pub seqno: SeqNo,
    /// Keyspaces, including the default one.
    pub keyspaces: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Immutable memtables that wait for their flush.
    pub memtables_sealed: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of all tables on disk.
    pub table_bytes: u64,
    /// Sorted runs.
    pub runs: u64,
    /// Sorted runs between those that flushes write and the lowest one. Present if the data exceeds the
    /// cache.
    pub tier_runs: u64,
    /// Pending compaction bytes: what has to be compacted until writers are no longer throttled.
    pub pending_compaction_bytes: u64,
    /// Bytes of cached blocks, indexes and filters of tables.
    pub cache_bytes: CacheBytes,
    /// Blocks found in the cache by reads, and by commits that checked for keys. Blocks that were read ahead,
    /// together with the block that was wanted, count here when they are used. Compactions do not count.
    pub cache_hits: u64,
    /// Blocks that were not in the cache: each is a read of a file, perhaps with the blocks behind it.
    pub cache_misses: u64,
    /// Bytes of the log segments that the next opening would read. Segments of earlier openings count with
    /// the sizes of their files.
    pub log_bytes: u64,
    /// Bytes written to the log. The zeros that fill a new file once before its first use do not count.
    pub log_bytes_written: u64,
    /// Open snapshots and transactions, and their iterators.
    pub snapshots: u64,
    /// The oldest commit that one of these reads at. Its state is kept.
    pub oldest_snapshot: Option<OldestSnapshot>,
    /// Live iterators and cursors. Each keeps the memtables and tables of the moment it was made. Other long
    /// reads, such as a check, count as well.
    pub iterators: u64,
    /// Time since the memtables or tables first changed after the oldest live iterator was made. Files that
    /// it keeps are at least that old. `None` if no iterator is older than the last change.
    pub oldest_iterator: Option<Duration>,
    /// Keys looked up one at a time with `get` and `contains` of keyspaces, snapshots and transactions.
    pub gets: u64,
    /// Duration of these lookups; one in 64 is measured, all with [`slow_after`](crate::Builder::slow_after).
    pub get_latency: Latency,
    /// Successful commits with at least one write.
    pub commits: u64,
    /// Bytes that these commits wrote: keys, values and a few bytes for each entry.
    pub committed_bytes: u64,
    /// Duration of these commits from call to acknowledgement, stalls included. All commits that wait for the
    /// disk are measured. Of the others one in 8 is, and counts eightfold in the quantiles. Asynchronous
    /// commits that were made as a group are not measured.
    pub commit_latency: Latency,
    /// Duration of log syncs. All are measured.
    pub sync_latency: Latency,
    /// Finished flushes.
    pub flushes: u64,
    /// Finished compactions, including trivial moves.
    pub compactions: u64,
    /// Bytes of the tables of the base run, or of all tables if there is none.
    pub base_bytes: u64,
    /// Blob files, which hold large values.
    pub blob_files: u64,
    /// Bytes of blob files.
    pub blob_bytes: u64,
    /// Bytes of values in blob files that tables refer to. Values of memtables do not count yet.
    pub blob_live_bytes: u64,
    /// Blob files that garbage collection has removed, with or without copying live values.
    pub collections: u64,
    /// Bytes of values that garbage collection copied.
    pub collection_bytes_written: u64,
    /// Bytes of values that commits wrote to blob files.
    pub blob_bytes_written: u64,
    /// Large transactions whose writes were adopted as tables.
    pub adoptions: u64,
    /// Trivial moves: compactions that only moved tables to a lower run.
    pub moves: u64,
    /// Tables removed unread because range tombstones hide all of their entries.
    pub tables_dropped: u64,
    /// Versions of keys, in memtables and tables, with an expiry time.
    pub expiring: u64,
    /// Expired keys that were removed.
    pub swept_keys: u64,
    /// Bytes that flushes wrote.
    pub flush_bytes_written: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Failed flushes. They lose nothing and are retried. Meanwhile memtables fill up, and writers wait.
    pub flushes_failed: u64,
    /// Failed compactions. They lose nothing and are retried. Meanwhile reads of these tables are slower.
    pub compactions_failed: u64,
    /// Tables that a compaction could not read. They are retried after growing pauses. Meanwhile what would
    /// be compacted with them stays as it is. [`Db::check`](crate::Db::check) reports what is wrong.
    pub tables_unreadable: u64,
    /// Message of the last failure of background work. It stays when later work succeeds;
    /// [`Db::health`](crate::Db::health) reports what fails now.
    pub background_error: Option<String>,
    /// Conflicts after which [`Db::transact`](crate::Db::transact) ran the transaction again.
    pub conflicts: u64,
    /// Waits of writers for a flush or a compaction.
    pub stalls: u64,
    /// Total duration of these waits. A wait counts when it ends.
    pub stall_time: Duration,
    /// Writers that wait for a flush now.
    pub writers_waiting: u64,
    /// Files of obsolete log segments that were kept for reuse.
    pub log_files_recycled: u64,
    /// Commits replayed from the log when the database was opened.
    pub recovered_commits: u64,
    /// Bytes of a torn log tail that opening dropped.
    pub recovered_torn_bytes: u64,
}

/// Bytes of the cache by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheBytes {
    /// Blocks.
    pub blocks: u64,
    /// Indexes and filters: at most half of the [memory](crate::Builder::memory).
    pub indexes_and_filters: u64,
}

impl CacheBytes {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.blocks + self.indexes_and_filters
    }
}

/// The oldest commit whose state a snapshot or a transaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestSnapshot {
    /// The commit.
    pub seqno: SeqNo,
    /// Time since which it has been kept without a break.
    pub age: Duration,
}

impl Stats {
    /// Bytes written to tables, blob files and the log for each committed byte. `None` if nothing was
    /// committed.
    pub fn write_amplification(&self) -> Option<f64> {
        let blobs = self.blob_bytes_written + self.collection_bytes_written;
        let tables = self.flush_bytes_written + self.compaction_bytes_written;
        let written = blobs + tables + self.log_bytes_written;
        (self.committed_bytes > 0).then(|| written as f64 / self.committed_bytes as f64)
    }

    /// Bytes of tables and blob files for each live byte. `None` without data. Live are the values in blob
    /// files that tables refer to, and the base run, into which all other runs are compacted.
    pub fn space_amplification(&self) -> Option<f64> {
        let live = self.base_bytes + self.blob_live_bytes;
        (live > 0).then(|| (self.table_bytes + self.blob_bytes) as f64 / live as f64)
    }

    /// Share of wanted blocks that were in the cache, from 0 to 1. `None` if no block was wanted.
    pub fn cache_hit_ratio(&self) -> Option<f64> {
        let wanted = self.cache_hits + self.cache_misses;
        (wanted > 0).then(|| self.cache_hits as f64 / wanted as f64)
    }
}

/// Counters of flushes.
#[derive(Debug, Default)]
pub(crate) struct FlushCounters {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

/// Counters of compactions.
#[derive(Debug, Default)]
pub(crate) struct CompactionCounters {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Those that were trivial moves.
    pub(crate) moves: AtomicU64,
    pub(crate) tables_dropped: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) flush: FlushCounters,
    pub(crate) compaction: CompactionCounters,
    pub(crate) adoptions: AtomicU64,
    pub(crate) collections: AtomicU64,
    pub(crate) collection_bytes_written: AtomicU64,
    pub(crate) swept_keys: AtomicU64,
    pub(in crate::engine) background_error: Mutex<Option<String>>,
    pub(crate) conflicts: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    pub(crate) get_latency: Recorder,
    pub(crate) commit_latency: Recorder,
    pub(crate) recovered_commits: AtomicU64,
    pub(crate) recovered_torn_bytes: AtomicU64,
}

impl Counters {
    /// Records a failure of background work.
    pub(crate) fn note_error(&self, error: &Error) {
        *self.background_error.lock() = Some(error.to_string());
    }
}

/// Adds to a counter. The counter orders no other memory access.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
