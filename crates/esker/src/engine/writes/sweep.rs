//! Sweeps: commits that remove expired entries.
//!
//! ```text
//!   memtable, table --due--> scan: expired versions --newest of their keys?--> commit: removals, time
//!   table with only expired entries, alone in its range --------unread-------> commit: range removal, time
//! ```
//!
//! Readers hide expired entries themselves. Counts include them until they are swept. A sweep is
//! an ordinary commit, so counts, snapshots, the log and watchers need not know about time. Compactions then
//! drop the versions like any removed ones. Tables below the range removal are dropped unread
//! (compaction/covered.rs).
//!
//! engine_sweep.1. A key is removed only if its newest version, or the result of its operands (fold.3), has
//!     expired. The commit conflicts with writes made after that was found.
//! engine_sweep.2. The commit of a sweep stores the time by which it was made, as does a clean close after
//!     commits. The next opening starts with at least that time (time.2 in read/time.rs). So the time in the
//!     log covers every removal in it. An opening that only reads commits nothing.
//! - A table is removed unread only if it is the only source in its range and holds only expired puts. Then
//!   each of its keys counts once.
//! - A source is scanned again when its next version expires, not before.
//! - A sweep does not commit by a time that was reset meanwhile.
//! - Nothing is swept while a replay makes the commits of another database. An operand among
//!   them may have been written before the value below it expired. After a sweep of the value it would
//!   start a new one. The commits bring the other database's sweeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::encoding::bytes::put_varint;
use crate::encoding::operand::expiries;
use crate::engine::base::stats::add;
use crate::engine::state::catalog::TIME_KEY;
use crate::engine::writes::Writes;
use crate::engine::writes::oldest::Measured;
use crate::manifest::version::LiveTable;
use crate::memtable::Memtable;
use crate::read::point::{ExpiryOfCounted, LOOKUPS_PER_PIN};
use crate::read::view::ReadView;
use crate::txn::commit::{CommitRequest, Durability};
use crate::txn::layers::Layers;
use crate::txn::range_count::RangeCounts;
use crate::txn::snapshots::SnapshotGuard;
use crate::txn::write_set::WriteSet;
use crate::types::due::Due;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::interleave::{self, Point};
use crate::types::key::{decode_key, encode_key, key_after};
use crate::types::key_range::End;
use crate::types::op::Kind;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// Maximum number of keys removed by one commit.
pub(super) const BATCH_KEYS: usize = 1024;
/// Attempts for a batch while others write its keys.
pub(super) const TRIES: usize = 4;

/// State of the sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    /// The newest stored time. Relaxed: an independent number.
    stored_ms: AtomicU64,
    /// The newest commit when the database was opened.
    opened_at: SeqNo,
    /// Locked while a sweep commits and while the time is reset. Taken before the exclusive
    /// turn.
    committing: Mutex<()>,
    /// Number of live [`CommitHold`]s.
    holds: Arc<AtomicUsize>,
    /// What the last measurements of keyspaces with a maximum size found.
    pub(super) measured: Mutex<BTreeMap<KeyspaceId, Measured>>,
}

impl Sweeper {
    /// For a database with this stored time and newest commit.
    pub(in crate::engine) fn new(stored_ms: u64, opened_at: SeqNo) -> Self {
        Sweeper {
            stored_ms: AtomicU64::new(stored_ms),
            opened_at,
            committing: Mutex::default(),
            holds: Arc::default(),
            measured: Mutex::default(),
        }
    }
}

/// While it exists, the database makes no commits of its own: no sweeps, and no decisions of compaction
/// filters.
pub(crate) struct CommitHold(Arc<AtomicUsize>);

impl CommitHold {
    /// Waits for such a commit in progress.
    pub(crate) fn new(writes: &Writes) -> Self {
        writes.sweeper.holds.fetch_add(1, Ordering::SeqCst);
        drop(writes.sweeper.committing.lock());
        writes.decisions.wait_for_commit();
        CommitHold(writes.sweeper.holds.clone())
    }
}

impl Drop for CommitHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A memtable or table.
enum Source<'v> {
    Memtable(&'v Arc<Memtable>),
    Table(&'v Arc<LiveTable>),
}

impl Source<'_> {
    fn due(&self) -> &Due {
        match self {
            Source::Memtable(memtable) => memtable.due(),
            Source::Table(live) => live.table.due(),
        }
    }

    /// Passes all versions to `each` until it returns false.
    fn scan(&self, mut each: impl FnMut(&EntryRef<'_>) -> Result<bool>) -> Result<()> {
        match self {
            Source::Memtable(memtable) => {
                let mut scan = memtable.scan();
                while let Some(entry) = scan.next() {
                    if !each(&entry)? {
                        break;
                    }
                }
            }
            Source::Table(live) => {
                let mut scan = live.table.scan();
                while let Some(entry) = scan.next()? {
                    if !each(&entry)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the memtables, and the tables with versions that expire.
fn sources(view: &ReadView) -> impl Iterator<Item = Source<'_>> {
    let memtables = view.memtables().map(Source::Memtable);
    let has_some = view.version.expiring() > 0;
    let tables = view.version.tables().filter(move |_| has_some).map(|(_, live)| Source::Table(live));
    memtables.chain(tables)
}

/// Outcome of a batch.
pub(super) enum Swept {
    /// Number of keys removed.
    Keys(u64),
    /// Other commits wrote some of the keys in every attempt.
    Contended,
}

impl Writes {
    /// Removes expired entries, and the oldest ones of keyspaces that are too large. Returns the number of
    /// keys. Concurrent sweeps take different sources. Must not be called with a lock held: the commit waits
    /// for exclusive transactions.
    pub(crate) fn sweep(&self) -> Result<u64> {
        self.check_able()?;
        if self.is_held() {
            return Ok(0);
        }
        let now = Expiry::at_ms(self.time.now_ms());
        let view = self.view.get();
        let mut swept = 0;
        for source in sources(&view) {
            if source.due().get() > now {
                continue;
            }
            let due = source.due().take();
            let of_source = self.sweep_source(&source, now);
            swept += of_source.inspect_err(|_| source.due().lower(due))?;
        }
        add(&self.counters.swept_keys, swept);
        Ok(swept + self.remove_oldest()?)
    }

    /// Returns whether the database makes no commits of its own at present.
    pub(super) fn is_held(&self) -> bool {
        // SeqCst: a new hold waits for commits that have not seen it.
        self.sweeper.holds.load(Ordering::SeqCst) > 0
    }

    /// Sweeps the expired entries of one source.
    fn sweep_source(&self, source: &Source<'_>, now: Expiry) -> Result<u64> {
        if let Source::Table(live) = source
            && let Some(keys) = self.sweep_whole(live, now)?
        {
            return Ok(keys);
        }
        let (mut swept, mut batch) = (0, Vec::<Vec<u8>>::new());
        let mut sweep = |batch: &mut Vec<Vec<u8>>| -> Result<()> {
            match self.sweep_keys(batch, now)? {
                Swept::Keys(keys) => swept += keys,
                Swept::Contended => source.due().lower(now.min(Expiry::at_ms(self.time.now_ms()))),
            }
            batch.clear();
            Ok(())
        };
        source.scan(|entry| {
            for expiry in expiries(entry.kind, entry.value) {
                if expiry > now {
                    source.due().lower(expiry);
                } else if batch.last().is_none_or(|last| last != entry.key) {
                    batch.push(entry.key.to_vec());
                }
            }
            if batch.len() < BATCH_KEYS {
                return Ok(true);
            }
            sweep(&mut batch)?;
            let is_over = self.signal.stopping();
            if is_over {
                source.due().lower(now);
            }
            Ok(!is_over)
        })?;
        if !batch.is_empty() {
            sweep(&mut batch)?;
        }
        Ok(swept)
    }

    /// Removes those keys whose newest version has expired (engine_sweep.1).
    fn sweep_keys(&self, keys: &[Vec<u8>], now: Expiry) -> Result<Swept> {
        for _ in 0..TRIES {
            // The number is taken before the view, so that the view has all commits up to it.
            let since = self.snapshot();
            let view = self.view.get();
            let (mut set, mut ids) = (WriteSet::new(), BTreeSet::new());
            let mut guard = crate::sync::pin();
            for (n, key) in keys.iter().enumerate() {
                if n.is_multiple_of(LOOKUPS_PER_PIN) {
                    guard.repin();
                }
                let newest = view.find::<ExpiryOfCounted>(key, since.seq(), &guard)?;
                if let (Some(Some(expiry)), Some((id, _))) = (newest, decode_key(key))
                    && expiry <= now
                {
                    set.write(Kind::EXPIRED, key, &[]);
                    ids.insert(id);
                }
            }
            drop(guard);
            let count = set.op_count() as u64;
            if count == 0 {
                return Ok(Swept::Keys(0));
            }
            interleave::reached(Point::SweepFound);
            if self.commit_sweep(set, since, &ids, None, now)?.is_some() {
                return Ok(Swept::Keys(count));
            }
        }
        Ok(Swept::Contended)
    }

    /// Removes the keys of an expired table unread, if possible, and returns their number.
    fn sweep_whole(&self, live: &LiveTable, now: Expiry) -> Result<Option<u64>> {
        let counts = &live.meta.counts;
        if counts.expiring < counts.entries || counts.max_expiry > now.ms() {
            return Ok(None);
        }
        let Some(seq) = self.remove_whole(live, now)? else { return Ok(None) };
        self.time.swept.note(seq, counts.max_seq);
        Ok(Some(counts.keys))
    }

    /// Removes the keys of a table of puts unread, if possible, and returns the commit.
    pub(super) fn remove_whole(&self, live: &LiveTable, now: Expiry) -> Result<Option<SeqNo>> {
        let (counts, range) = (&live.meta.counts, &live.meta.range);
        if counts.unresolved + counts.range_tombstones > 0 {
            return Ok(None);
        }
        let (Some((id, _)), Some((last_id, _))) = (decode_key(&range.start), decode_key(range.end.key()))
        else {
            return Ok(None);
        };
        // Watchers are notified of single keys.
        if id != last_id || self.pipeline.watchers.are_any() {
            return Ok(None);
        }
        // The number is taken before the view: the view has all commits up to it, and later ones conflict
        // (engine_sweep.1).
        let since = self.snapshot();
        let view = self.view.get();
        let mut tables = view.version.runs().iter().flat_map(|run| run.overlapping(range));
        let is_alone = tables.next().is_some_and(|first| first.file == live.file) && tables.next().is_none();
        let in_memtable = |memtable: &Arc<Memtable>| {
            let mut scan = memtable.scan();
            scan.seek(&range.start);
            let has_entry = scan.next().is_some_and(|entry| range.end.admits(entry.key));
            has_entry || memtable.range_tombstones().clipped(range).fragments().next().is_some()
        };
        if !is_alone || view.memtables().any(in_memtable) {
            return Ok(None);
        }
        let (start, end) = match &range.end {
            End::Included(last) => (range.start.clone(), key_after(last)),
            End::Excluded(end) => (range.start.clone(), end.clone()),
        };
        let mut set = WriteSet::new();
        set.delete_range(&start, &end);
        let ranges = RangeCounts::known(since.clone(), start, end, counts.keys);
        interleave::reached(Point::SweepFound);
        self.commit_sweep(set, since, &BTreeSet::from([id]), Some(ranges), now)
    }

    /// Commits removals. Returns `None` if others wrote the same keys, or a keyspace is not in the catalog.
    pub(super) fn commit_sweep(
        &self,
        mut set: WriteSet,
        since: SnapshotGuard,
        ids: &BTreeSet<KeyspaceId>,
        ranges: Option<RangeCounts>,
        now: Expiry,
    ) -> Result<Option<SeqNo>> {
        let keyspaces = self.catalog.lives(ids);
        if keyspaces.len() < ids.len() {
            return Ok(None);
        }
        put_time(&mut set, now);
        let _committing = self.sweeper.committing.lock();
        if self.is_held() || self.time.now_ms() < now.ms() {
            return Ok(None);
        }
        let plain = CommitRequest::of(Arc::new(set), Layers::default(), Durability::Buffered);
        let request = CommitRequest { since: Some(since), keyspaces: Arc::new(keyspaces), ranges, ..plain };
        match interleave::without_points(|| self.submit(request)) {
            Ok(seq) => {
                self.sweeper.stored_ms.fetch_max(now.ms(), Ordering::Relaxed);
                Ok(Some(seq))
            }
            Err(Error::Conflict { .. } | Error::KeyspaceNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores the time if any entry can expire and there were commits since the opening (engine_sweep.2).
    pub(in crate::engine) fn store_time(&self) -> Result<()> {
        let view = self.view.get();
        let now = Expiry::at_ms(self.time.now_ms());
        if self.published.visible() == self.sweeper.opened_at {
            return Ok(());
        }
        if view.expiring() == 0 || self.sweeper.stored_ms.load(Ordering::Relaxed) >= now.ms() {
            return Ok(());
        }
        let mut set = WriteSet::new();
        put_time(&mut set, now);
        self.commit_encoded(set, Durability::Buffered)?;
        self.sweeper.stored_ms.fetch_max(now.ms(), Ordering::Relaxed);
        Ok(())
    }

    /// Sets the engine's time, the stored time and the marks of history to the wall clock.
    pub(crate) fn reset_time(&self) -> Result<()> {
        self.check_writable()?;
        let _committing = self.sweeper.committing.lock();
        let _passage = self.wait_for_exclusive()?;
        let now = self.time.reset();
        let mut set = WriteSet::new();
        put_time(&mut set, Expiry::at_ms(now));
        self.commit_encoded(set, Durability::Sync)?;
        self.sweeper.stored_ms.store(now, Ordering::Relaxed);
        self.reset_history_marks(now)
    }

    /// Returns whether a keyspace may be empty although it counts keys.
    pub(crate) fn may_have_expired(&self) -> bool {
        self.view.get().expiring() > 0
    }
}

fn put_time(set: &mut WriteSet, now: Expiry) {
    let mut value = Vec::new();
    put_varint(&mut value, now.ms());
    set.put(&encode_key(KeyspaceId::CATALOG, TIME_KEY), &value);
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use esker_env::{Env, ManualClock, MemFs};

    use super::*;
    use crate::{Db, Decision};

    #[test]
    fn a_source_is_due_when_its_next_version_expires() {
        let clock = Arc::new(ManualClock::new());
        let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(MemFs::new()), 1) };
        let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
        let (map, core) = (db.default_keyspace(), &db.handle.core);
        let start = core.time.now_ms();
        let due = || {
            let view = core.view.get();
            let of_each: Vec<_> = sources(&view).map(|source| source.due().get().ms()).collect();
            of_each.into_iter().min().filter(|due| *due < u64::MAX).map(|due| due - start)
        };
        assert_eq!(due(), None);
        for (key, seconds) in [("a", 5), ("b", 1), ("c", 9)] {
            map.put_with_ttl(key, "", Duration::from_secs(seconds)).unwrap();
        }
        assert_eq!(due(), Some(1000));
        clock.advance(Duration::from_secs(1));
        assert_eq!((db.sweep().unwrap(), due()), (1, Some(5000)));
        db.flush().unwrap();
        assert!(due() <= Some(5000), "a table says when the first of its versions expires");
        clock.advance(Duration::from_secs(4));
        map.put_with_ttl("d", "", Duration::from_secs(1)).unwrap();
        assert_eq!((db.sweep().unwrap(), due()), (1, Some(6000)));
        clock.advance(Duration::from_secs(10));
        assert_eq!((db.sweep().unwrap(), due()), (2, None));
    }

    #[test]
    fn at_points_a_thread_holds_no_lock_of_sweeps_and_compactions() {
        let clock = Arc::new(ManualClock::new());
        let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(MemFs::new()), 1) };
        let decide = |_: &[u8], value: &[u8]| if value == b"over" { Decision::Drop } else { Decision::Keep };
        let builder = Db::builder().background(false).env(env).compaction_filter("default", decide);
        let db = builder.open(Path::new("db")).unwrap();
        let (map, core) = (db.default_keyspace(), db.handle.core.clone());
        let before = interleave::set(Some(Box::new(move |point| {
            let is_free = core.sweeper.committing.try_lock().is_some();
            assert!(is_free && core.turns.compact.try_lock().is_some(), "{point:?}");
        })));
        map.put_with_ttl("a", "", Duration::from_secs(1)).unwrap();
        map.put("b", "over").unwrap();
        clock.advance(Duration::from_secs(2));
        assert_eq!(db.sweep().unwrap(), 1);
        db.compact().unwrap();
        db.reset_time().unwrap();
        interleave::set(before);
        assert_eq!(map.len().unwrap(), 0);
    }
}
