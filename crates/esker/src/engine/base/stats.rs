//! Numbers about a running database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::Error;
use crate::types::latency::{Latency, Recorder};

/// Figures at one moment. Counts, and sums of bytes and of time, are since this opening of the database. Taking them waits for no commit and for no
/// disk; it costs some tens of microseconds, and more with very many keyspaces or tables.
///
/// Whether anything is wrong now: [`Db::health`](crate::Db::health). Figures of each keyspace: [`Db::keyspace_stats`](crate::Db::keyspace_stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live items over all keyspaces; up to `unresolved` of them are counted twice.
    pub items: u64,
    /// Writes of which the commit has not looked up whether their key was there: [`Keyspace::len`](crate::Keyspace::len) and compactions do.
    pub unresolved: u64,
    /// Number of the newest visible commit.
    pub seqno: u64,
    /// Keyspaces, the default one included.
    pub keyspaces: u64,
    /// Bytes in memtables now.
    pub memtable_bytes: u64,
    /// Memtables waiting for their flush.
    pub memtables_sealed: u64,
    /// Tables now.
    pub tables: u64,
    /// Bytes of all tables on disk now.
    pub table_bytes: u64,
    /// Sorted runs now.
    pub runs: u64,
    /// Of these, the ones between those that flushes write and the lowest: there are some if the data is beyond the cache.
    pub tier_runs: u64,
    /// By how many bytes compaction is behind: what it has to merge until writers are not slowed down for it.
    pub compaction_debt_bytes: u64,
    /// Bytes of blocks in the cache now.
    pub cache_bytes: u64,
    /// Blocks that were in the cache when a read, or a commit that looked its keys up, wanted them. Compactions do not count.
    pub cache_hits: u64,
    /// Blocks that were not, and were read from their files.
    pub cache_misses: u64,
    /// Bytes of the log now: of the segments that the next opening would read. Segments of earlier openings count with the lengths of their files.
    pub log_bytes: u64,
    /// Bytes written to the log. The zeros that new files are filled with, once before their first use, do not count.
    pub log_bytes_written: u64,
    /// Snapshots and transactions open now, and the iterators of each.
    pub snapshots: u64,
    /// The oldest commit that one of these reads at, and so keeps from being forgotten.
    pub oldest_snapshot: Option<OldestSnapshot>,
    /// Iterators and cursors alive now. Each keeps the memtables and table files of the moment it was made. What reads them
    /// for a while in other ways, such as a check, counts, too.
    pub iterators: u64,
    /// How long ago the first change of memtables or tables was that an iterator alive now has not seen, since it is older: what it keeps
    /// is at least as old. None if all are newer than the last change.
    pub oldest_iterator: Option<Duration>,
    /// Keys looked up one at a time, by `get` and `contains` of keyspaces, snapshots and transactions.
    pub gets: u64,
    /// How long these take; one in 64 is measured.
    pub get_latency: Latency,
    /// Commits that wrote something, and succeeded.
    pub commits: u64,
    /// Bytes that these wrote: keys, values, and a few bytes for each.
    pub committed_bytes: u64,
    /// How long these take, from the call to the acknowledgement, stalls included. All that wait for the disk are measured, and one in 8 of the others,
    /// which then counts for eight in the quantiles. Asynchronous commits that were made as a group are not.
    pub commit_latency: Latency,
    /// How long syncs of the log take. All are measured.
    pub sync_latency: Latency,
    /// Flushes done.
    pub flushes: u64,
    /// Merges done, trivial moves included.
    pub compactions: u64,
    /// Bytes of the tables of the base run; of all tables if there is none.
    pub base_bytes: u64,
    /// Blob files: large values.
    pub blob_files: u64,
    /// Their bytes.
    pub blob_bytes: u64,
    /// Bytes of the values in them that tables reference. What is in memtables is not among them yet.
    pub blob_live_bytes: u64,
    /// Blob files whose live values were copied to another one, or that had none.
    pub collections: u64,
    /// Bytes of values that collections copied.
    pub collection_bytes_written: u64,
    /// Bytes of values that commits wrote to blob files.
    pub blob_bytes_written: u64,
    /// Large transactions whose writes were adopted as tables.
    pub adoptions: u64,
    /// Of the compactions, the ones that only moved tables to a lower run.
    pub moves: u64,
    /// Tables that went without being read, since range removals hide all that they hold.
    pub tables_dropped: u64,
    /// Versions of keys, in memtables and tables, that expire at some time.
    pub expiring: u64,
    /// Keys that had expired and were removed.
    pub swept_keys: u64,
    /// Bytes that flushes wrote.
    pub flush_bytes_written: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Flushes that failed. Nothing is lost by it, and they are tried again; meanwhile memtables fill up, and writers wait.
    pub flushes_failed: u64,
    /// Merges that failed. Nothing is lost by it, and they are tried again; meanwhile reads of that part take longer.
    pub compactions_failed: u64,
    /// Tables now that a compaction could not read. They are tried again after growing pauses; meanwhile what would be merged
    /// with them stays as it is. [`Db::check`](crate::Db::check) says what is wrong.
    pub tables_unreadable: u64,
    /// What the last failure of background work was; none if nothing has failed. It stays when later work succeeds: [`Db::health`](crate::Db::health)
    /// tells what fails now.
    pub background_error: Option<String>,
    /// Conflicts of transactions that [`Db::transact`](crate::Db::transact) has run again.
    pub conflicts: u64,
    /// Times a writer waited for a flush or a compaction.
    pub stalls: u64,
    /// How long they waited, all together. Counted when a wait ends.
    pub stall_time: Duration,
    /// Writers that wait for a flush now.
    pub writers_waiting: u64,
    /// Files of log segments that were no longer needed and were kept to be used again.
    pub log_files_recycled: u64,
    /// Commits replayed from the log when the database was opened.
    pub recovered_commits: u64,
    /// Bytes of a torn log tail that were dropped when the database was opened.
    pub recovered_torn_bytes: u64,
}

/// The oldest state that a snapshot or a transaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestSnapshot {
    /// The number of the commit.
    pub seqno: u64,
    /// For how long it has been kept, without a break.
    pub age: Duration,
}

impl Stats {
    /// Bytes that went to tables, blob files and the log, for each byte that was committed; none if nothing was.
    pub fn write_amplification(&self) -> Option<f64> {
        let blobs = self.blob_bytes_written + self.collection_bytes_written;
        let tables = self.flush_bytes_written + self.compaction_bytes_written;
        let written = blobs + tables + self.log_bytes_written;
        (self.committed_bytes > 0).then(|| written as f64 / self.committed_bytes as f64)
    }

    /// Bytes of tables and blob files for each live byte; none without data. As live count the values in blob files that tables reference, and of
    /// tables the base run, into which all others are merged.
    pub fn space_amplification(&self) -> Option<f64> {
        let live = self.base_bytes + self.blob_live_bytes;
        (live > 0).then(|| (self.table_bytes + self.blob_bytes) as f64 / live as f64)
    }

    /// The part of blocks that were in the cache when they were wanted, from 0 to 1; none if none was wanted.
    pub fn cache_hit_ratio(&self) -> Option<f64> {
        let wanted = self.cache_hits + self.cache_misses;
        (wanted > 0).then(|| self.cache_hits as f64 / wanted as f64)
    }
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) adoptions: AtomicU64,
    pub(crate) collections: AtomicU64,
    pub(crate) collection_bytes_written: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) tables_dropped: AtomicU64,
    pub(crate) swept_keys: AtomicU64,
    pub(crate) flush_bytes_written: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    pub(crate) flushes_failed: AtomicU64,
    pub(crate) compactions_failed: AtomicU64,
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
    /// Background work has failed.
    pub(crate) fn note_error(&self, error: &Error) {
        *self.background_error.lock() = Some(error.to_string());
    }
}

/// Adds to a counter; nothing is ordered by it.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
