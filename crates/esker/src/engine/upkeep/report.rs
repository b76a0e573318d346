//! Reports of the running database: its statistics and its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Upkeep;
use super::amplification::Space;
use crate::engine::base::event::Event;
use crate::engine::base::health::{Health, Observed, Work, judge};
use crate::engine::base::stats::{CacheBytes, OldestSnapshot, Stats};
use crate::engine::state::catalog::KeyspaceState;
use crate::types::{Error, SeqNo};

impl Upkeep {
    fn cached(&self) -> CacheBytes {
        CacheBytes { blocks: self.cache.used_bytes(), indexes_and_filters: self.cache.finding_bytes() }
    }

    /// Returns the current statistics.
    pub(crate) fn stats(&self) -> Stats {
        // Before this call creates another view.
        let (iterators, oldest_view) = self.view.held();
        let view = self.view.get();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, keyspaces) = (&self.counters, self.catalog.all());
        let space = Space::of(&view.version);
        let (activity, log) = (self.cache.activity().sums(), self.wal_pool.meter());
        let age = |since| self.env.clock.monotonic().saturating_sub(since);
        let oldest = |(seq, since): (SeqNo, _)| OldestSnapshot { seqno: seq, age: age(since) };
        let overcounts = view.version.overcounts();
        let counted =
            |state: &KeyspaceState| state.counter.now().saturating_sub(overcounts.at(state.id, SeqNo::MAX));
        Stats {
            items: keyspaces.iter().map(|(_, state)| counted(state)).sum(),
            unresolved: view.unresolved(),
            seqno: self.published.visible(),
            keyspaces: keyspaces.len() as u64,
            memtable_bytes: view.memtables().map(|m| m.bytes_used() as u64).sum(),
            memtables_sealed: view.immutables.len() as u64,
            tables: view.version.tables().count() as u64,
            table_bytes: space.tables,
            runs: view.version.runs().len() as u64,
            tier_runs: view.version.runs().iter().filter(|run| run.level.is_tier()).count() as u64,
            pending_compaction_bytes: self.throttle.backlog().pending_bytes,
            cache_bytes: self.cached(),
            cache_hits: activity.hits,
            cache_misses: activity.misses,
            log_bytes: log.live(),
            log_bytes_written: log.written(),
            snapshots: self.published.snapshots_open() as u64,
            oldest_snapshot: self.published.oldest_pin().map(oldest),
            iterators,
            oldest_iterator: oldest_view.map(age),
            gets: activity.gets,
            get_latency: counters.get_latency.latency(),
            commits: activity.commits,
            committed_bytes: activity.committed_bytes,
            commit_latency: counters.commit_latency.latency(),
            sync_latency: log.syncs.latency(),
            flushes: get(&counters.flush.done),
            compactions: get(&counters.compaction.done),
            base_bytes: space.base,
            blob_files: view.version.blobs().iter().count() as u64,
            blob_bytes: space.blobs,
            blob_live_bytes: space.live_blobs(),
            collections: get(&counters.collections),
            collection_bytes_written: get(&counters.collection_bytes_written),
            blob_bytes_written: self.blobs.written_bytes(),
            adoptions: get(&counters.adoptions),
            moves: get(&counters.compaction.moves),
            tables_dropped: get(&counters.compaction.tables_dropped),
            expiring: view.expiring(),
            swept_keys: get(&counters.swept_keys),
            flush_bytes_written: get(&counters.flush.bytes_written),
            compaction_bytes_read: get(&counters.compaction.bytes_read),
            compaction_bytes_written: get(&counters.compaction.bytes_written),
            flushes_failed: get(&counters.flush.failed),
            compactions_failed: get(&counters.compaction.failed),
            tables_unreadable: self.backoff.lock().unreadable().len() as u64,
            background_error: counters.background_error.lock().clone(),
            conflicts: get(&counters.conflicts),
            stalls: get(&counters.stalls),
            stall_time: Duration::from_nanos(get(&counters.stall_ns)),
            writers_waiting: self.signal.waiting() as u64,
            log_files_recycled: self.wal_pool.recycled(),
            recovered_commits: get(&counters.recovered_commits),
            recovered_torn_bytes: get(&counters.recovered_torn_bytes),
        }
    }

    /// Reports the health to the program's callback if it has changed.
    pub(in crate::engine) fn report_health(&self) {
        if self.events.is_on() {
            self.events.note_health(&self.health());
        }
    }

    /// The event of an opening that began at `begun` and is complete.
    pub(in crate::engine) fn opened_since(&self, begun: Duration) -> Event {
        Event::Opened {
            commits: self.counters.recovered_commits.load(Ordering::Relaxed),
            torn_bytes: self.counters.recovered_torn_bytes.load(Ordering::Relaxed),
            time: self.env.clock.monotonic().saturating_sub(begun),
        }
    }

    /// Returns whether all work succeeds. Waits for no commit and no disk.
    pub(crate) fn health(&self) -> Health {
        let dead = || match self.signal.check_alive() {
            Err(Error::Poisoned(cause)) => Some(cause),
            _ => None,
        };
        let poisoned = self.pipeline.stopped_by().or_else(dead);
        let outcomes = [
            (Work::Log, &self.wal_pool.meter().files),
            (Work::Flush, &self.watch.flush),
            (Work::Manifest, &self.watch.manifest),
            (Work::Blobs, &self.blobs.outcomes),
            (Work::Compaction, &self.watch.compaction),
        ];
        judge(Observed {
            closed: self.check_open().is_err(),
            poisoned: poisoned.map(|cause: Arc<Error>| cause.to_string()),
            failing: outcomes
                .into_iter()
                .filter_map(|(work, ended)| Some((work, ended.failures()?)))
                .collect(),
            now: self.env.clock.monotonic(),
        })
    }
}
