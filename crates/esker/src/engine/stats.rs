//! Numbers about a running database.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::manifest::version::Level;
use crate::types::Error;

/// Figures at one moment. Counts of work, and of bytes read and written by it, are since this opening of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live items over all keyspaces.
    pub items: u64,
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
    /// Bytes of blocks in the cache now.
    pub cache_bytes: u64,
    /// Snapshots and transactions open now, and the iterators of each.
    pub snapshots: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Merges done, trivial moves included.
    pub compactions: u64,
    /// Of these, the ones that only moved tables to a lower run.
    pub moves: u64,
    /// Tables that went without being read, since range removals hide all that they hold.
    pub tables_dropped: u64,
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
    /// What the last failure of background work was; none if nothing has failed. It stays when later work succeeds.
    pub background_error: Option<String>,
    /// Conflicts of transactions that [`Db::transact`](crate::Db::transact) has run again.
    pub conflicts: u64,
    /// Times a writer waited for a flush or a compaction.
    pub stalls: u64,
    /// Files of log segments that were no longer needed and were kept to be used again.
    pub log_files_recycled: u64,
    /// Commits replayed from the log when the database was opened.
    pub recovered_commits: u64,
    /// Bytes of a torn log tail that were dropped when the database was opened.
    pub recovered_torn_bytes: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) tables_dropped: AtomicU64,
    pub(crate) flush_bytes_written: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    pub(crate) flushes_failed: AtomicU64,
    pub(crate) compactions_failed: AtomicU64,
    background_error: Mutex<Option<String>>,
    pub(crate) conflicts: AtomicU64,
    pub(crate) stalls: AtomicU64,
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

impl super::core::Core {
    pub(crate) fn stats(&self) -> Stats {
        let view = self.view.get();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let keyspaces = self.catalog.all();
        Stats {
            items: keyspaces.iter().map(|(_, keyspace)| keyspace.counter.now()).sum(),
            seqno: self.published.visible().get(),
            keyspaces: keyspaces.len() as u64,
            memtable_bytes: view.memtables().map(|m| m.bytes_used() as u64).sum(),
            memtables_sealed: view.immutables.len() as u64,
            tables: view.version.tables().count() as u64,
            table_bytes: view.version.runs().iter().map(|run| run.bytes()).sum(),
            runs: view.version.runs().len() as u64,
            tier_runs: view.version.runs().iter().filter(|run| run.level == Level::TIER).count() as u64,
            cache_bytes: self.cache.used_bytes(),
            snapshots: self.published.snapshots_open() as u64,
            flushes: get(&counters.flushes),
            compactions: get(&counters.compactions),
            moves: get(&counters.moves),
            tables_dropped: get(&counters.tables_dropped),
            flush_bytes_written: get(&counters.flush_bytes_written),
            compaction_bytes_read: get(&counters.compaction_bytes_read),
            compaction_bytes_written: get(&counters.compaction_bytes_written),
            flushes_failed: get(&counters.flushes_failed),
            compactions_failed: get(&counters.compactions_failed),
            tables_unreadable: self.trouble.lock().unreadable().len() as u64,
            background_error: counters.background_error.lock().clone(),
            conflicts: get(&counters.conflicts),
            stalls: get(&counters.stalls),
            log_files_recycled: self.wal_pool.recycled(),
            recovered_commits: get(&counters.recovered_commits),
            recovered_torn_bytes: get(&counters.recovered_torn_bytes),
        }
    }
}
