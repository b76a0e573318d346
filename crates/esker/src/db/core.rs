//! The shared heart of an open database.
//!
//! ```text
//!   Db, Keyspace, Snapshot ... --Arc--> Handle --owns--> threads
//!                                          `--Arc--> Core <--Arc-- threads
//!   Core: pipeline (writes), view + published (reads), manifest (what tables there are), cache, catalog
//! ```
//!
//! Lock order: `merge_turn`, `flush_turn`, then the pipeline's state, then the log pool's numbers, then `manifest` (which
//! names a log segment before it is put to use), then the view's, then the published state's. No I/O under the last two. Under what the
//! pipeline has left to sync no other is taken.
//!
//! CO1. An edit that does not fit the tables that there are never reaches the manifest: the version after it is made first, with all that
//!      versions assert. No version takes the place of another but under the manifest's lock.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::Env;
use parking_lot::Mutex;

use super::background::Signal;
use super::catalog::Catalog;
use super::held_dir::HeldDir;
use super::options::Options;
use super::stats::Counters;
use crate::cache::{self, Reservation};
use crate::compaction::pacing::Debt;
use crate::compaction::pauses::Pauses;
use crate::compaction::picker;
use crate::compaction::room::Room;
use crate::manifest::edit::VersionEdit;
use crate::manifest::log::ManifestLog;
use crate::manifest::version::{RunId, Version};
use crate::memtable::Memtable;
use crate::read::cost::ReadCost;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::sstable::{BlockCache, Table};
use crate::txn::commit::Pipeline;
use crate::txn::snapshots::Published;
use crate::types::{Error, FileId, Result};
use crate::wal::WalPool;

/// See the module's text.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) view: Arc<ViewCell>,
    pub(crate) published: Arc<Published>,
    pub(crate) pipeline: Pipeline,
    pub(crate) cache: Arc<BlockCache>,
    /// The memtables' part of the memory budget.
    pub(crate) memtable_memory: Mutex<Reservation>,
    pub(crate) catalog: Catalog,
    pub(crate) manifest: Arc<Mutex<ManifestLog>>,
    /// Tables of edits whose append failed: removed once a new manifest is in force.
    pub(crate) disowned: Mutex<Vec<FileId>>,
    /// Held by whoever flushes.
    pub(crate) flush_turn: Mutex<()>,
    /// Held by whoever merges.
    pub(crate) merge_turn: Mutex<()>,
    pub(crate) next_file: Arc<AtomicU64>,
    pub(crate) next_run: AtomicU64,
    pub(crate) signal: Signal,
    pub(crate) read_cost: ReadCost,
    /// Tables that merges could not read.
    pub(crate) unreadable: Mutex<Pauses>,
    /// Tables of merges that could not be written.
    pub(crate) put_off: Mutex<Pauses>,
    /// What is known of the disk's space for merges.
    pub(crate) merge_room: Mutex<Room>,
    /// How far merging is behind, as of the last change of the version.
    pub(crate) debt: Mutex<Debt>,
    /// Whether `debt` makes writers wait. Relaxed: a hint that spares them the lock.
    pub(crate) in_debt: AtomicBool,
    /// Waiting time that small commits have saved up.
    pub(crate) delay_owed_ns: AtomicU64,
    pub(crate) wal_pool: Arc<WalPool>,
    pub(crate) closed: AtomicBool,
    pub(crate) counters: Counters,
    /// The directory, for as long as the database is open.
    pub(crate) held: Arc<HeldDir>,
}

impl Core {
    /// A number for a new file.
    pub(crate) fn new_file(&self) -> FileId {
        FileId::new(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a new run, larger than all before.
    pub(crate) fn new_run(&self) -> RunId {
        RunId(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    /// The tables now.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.view.get().version.clone()
    }

    /// Refuses when closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Makes an edit durable, then visible to readers. `flushed` are the memtables that the added tables replace.
    pub(crate) fn install(
        &self,
        mut edit: VersionEdit,
        opened: HashMap<FileId, Arc<Table>>,
        flushed: &[Arc<Memtable>],
    ) -> Result<()> {
        let view = self.view.get();
        let is_offered = |m: &Arc<Memtable>| view.immutables.iter().any(|i| Arc::ptr_eq(i, m));
        assert!(
            flushed.iter().all(is_offered),
            "T5: a memtable was flushed that readers take for the active one"
        );
        drop(view);
        let mut manifest = self.manifest.lock();
        edit.next_file = Some(FileId::new(self.next_file.load(Ordering::Relaxed)));
        edit.next_run = Some(RunId(self.next_run.load(Ordering::Relaxed)));
        let mut files: Vec<_> = opened.keys().copied().collect();
        // CO1
        let before = self.version();
        let version = Arc::new(before.apply(&edit, opened));
        if let Err(error) = manifest.append(edit.clone(), || self.new_file()) {
            // In the order of their numbers, so that a simulation repeats itself.
            files.sort_unstable();
            self.disowned.lock().extend(files);
            return Err(error);
        }
        self.view.update(|old| {
            assert!(Arc::ptr_eq(&old.version, &before), "CO1: the version changed under the manifest's lock");
            let stays = |m: &&Arc<Memtable>| !flushed.iter().any(|f| Arc::ptr_eq(f, m));
            ReadView {
                active: old.active.clone(),
                immutables: old.immutables.iter().filter(stays).cloned().collect(),
                version,
            }
        });
        let removed = before.tables().filter(|(_, t)| edit.removed.contains(&t.file));
        let moved = |file: FileId| edit.added.iter().any(|a| a.file == file);
        let gone: Vec<_> = removed.map(|(_, t)| t.clone()).filter(|t| !moved(t.file)).collect();
        drop(before);
        for table in gone {
            table.table.mark_obsolete();
        }
        self.view.reclaim();
        self.account_memtables();
        self.account_debt();
        Ok(())
    }

    /// Has the manifest say how far a log goes that is closed, and so durable: if its end is lost, the next opening notices.
    fn note_end_of_log(&self) {
        let durable_seq = Some(self.published.visible());
        let mut manifest = self.manifest.lock();
        let state = manifest.state();
        if durable_seq > state.durable_seq.max(state.flushed_seq) {
            // If it cannot be said nothing is lost but that.
            let edit = VersionEdit { durable_seq, ..VersionEdit::default() };
            let _ = manifest.append(edit, || self.new_file());
        }
    }

    /// Finds out how far merging is behind.
    pub(crate) fn account_debt(&self) -> Debt {
        let version = self.version();
        let is_there = |file| version.tables().any(|(_, table)| table.file == file);
        self.put_off.lock().retain(is_there);
        self.merge_room.lock().retain(is_there);
        let unreadable = {
            let mut unreadable = self.unreadable.lock();
            unreadable.retain(is_there);
            unreadable.all()
        };
        let debt = picker::debt(&version, &self.limits(), &unreadable);
        self.in_debt.store(debt.pressure > 0.0, Ordering::Relaxed);
        *self.debt.lock() = debt;
        debt
    }

    /// Counts the memtables against the memory budget, as large as they are now, and has cached blocks make room for them, and for
    /// tables that were opened (MB2): otherwise they would wait for the next read that misses.
    pub(crate) fn account_memtables(&self) {
        let bytes = self.view.get().memtables().map(|m| m.bytes_used() as u64).sum();
        self.memtable_memory.lock().resize(bytes);
        self.cache.shrink(&cache::pin());
    }

    /// Bytes of all tables.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.version().runs().iter().map(|run| run.bytes()).sum()
    }
}

/// Owns the database on behalf of all its handles: closes it when the last one drops.
///
/// CL1. When the lock is given back nobody changes the directory any more: whoever flushes or merges has ended, whoever
///      comes later is refused before it changes anything.
/// CL2. Closing returns when the database is closed, by whomever, and whoever asks is told how that went.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    /// The lock makes others wait for the first who closes (CL2).
    ending: Mutex<Ending>,
}

struct Ending {
    /// Taken by the first who closes.
    threads: Vec<esker_env::ThreadHandle>,
    /// How closing went; none before it begins.
    outcome: Option<Result<()>>,
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>, threads: Vec<esker_env::ThreadHandle>) -> Arc<Self> {
        Arc::new(Handle { core, ending: Mutex::new(Ending { threads, outcome: None }) })
    }

    /// Stops the threads, makes the log durable and tidy, gives the lock back. Later calls do nothing, and
    /// have the first one's outcome.
    pub(crate) fn close(&self) -> Result<()> {
        let core = &self.core;
        let mut ending = self.ending.lock();
        if let Some(outcome) = &ending.outcome {
            return outcome.as_ref().copied().map_err(Error::duplicate);
        }
        // What a panic leaves.
        ending.outcome = Some(Err(Error::Invalid("closing the database ended in a panic".into())));
        core.closed.store(true, Ordering::Release);
        core.signal.stop();
        let mut failure = None;
        for thread in ending.threads.drain(..) {
            if let Err(panic) = thread.join() {
                failure = Some(Error::Invalid(format!("a background thread panicked: {panic}")));
            }
        }
        // Callers of `flush` and `compact`, and writers that do background work, are no threads of ours (CL1).
        let turns = (core.merge_turn.lock(), core.flush_turn.lock());
        let closed = match core.pipeline.poisoned() {
            Some(cause) => Err(Error::Poisoned(cause)),
            None => {
                // Memtables that cannot be flushed are no failure of closing: the log has them.
                let _ = core.shorten_replay(&turns.1);
                core.pipeline.close().map(|()| core.note_end_of_log())
            }
        };
        // The files of tables that were replaced last: the directory is to be free for its owner to unmount or delete. And the memory of
        // their blocks, and of flushed memtables, before the next database wants as much.
        core.view.reclaim_all();
        core.held.give_back();
        let outcome = failure.map_or(closed, Err);
        ending.outcome = Some(outcome.as_ref().copied().map_err(Error::duplicate));
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to tell; what was acknowledged is in the log either way.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};

    use super::*;
    use crate::Db;

    #[test]
    fn mb2_cached_blocks_make_room_for_memtables_while_no_read_misses() {
        const BUDGET: u64 = 16 << 20;
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let open = || {
            let builder = Db::builder().stepped().memory(BUDGET).env(env.clone());
            builder.open(Path::new("db")).unwrap()
        };
        let db = open();
        let map = db.default_keyspace();
        for n in 0..5000_u32 {
            map.put(n.to_be_bytes(), [0; 4000]).unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
        let db = open();
        let (map, core) = (db.default_keyspace(), &db.handle.core);
        for n in 0..5000_u32 {
            assert!(map.contains(n.to_be_bytes()).unwrap());
        }
        let before = db.stats();
        assert!(before.cache_bytes > BUDGET / 8 * 7, "{before:?}");
        // Less than a memtable.
        for n in 5000..5400_u32 {
            map.put(n.to_be_bytes(), [0; 4000]).unwrap();
        }
        // What the flush thread does with each tick.
        core.account_memtables();
        let after = db.stats();
        assert_eq!((after.flushes, after.merges), (before.flushes, before.merges));
        assert!(after.memtable_bytes > before.memtable_bytes + (1 << 20), "{after:?}");
        assert!(after.cache_bytes + after.memtable_bytes <= BUDGET, "MB2: {after:?}");
        assert!(after.cache_bytes > BUDGET / 4 * 3, "no more than that: {after:?}");
    }

    #[test]
    fn ww6_spare_files_that_cannot_be_removed_do_not_keep_closing_from_noting_where_the_log_ends() {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let dir = Path::new("db");
        let db = Db::builder().stepped().env(env.clone()).open(dir).unwrap();
        let map = db.default_keyspace();
        // More than half of the first segment: the next one is prepared.
        for n in 0..2_u8 {
            map.put([n], vec![n; 100_000]).unwrap();
        }
        while db.handle.core.wal_pool.prepare_step().unwrap() {}
        let last = db.handle.core.published.visible();
        let failure = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
        faults.add(FaultRule::new(&[OpKind::Remove], failure).forever());
        db.close().unwrap();
        assert!(faults.fired() > 0, "there was something to remove");
        let (_, state) = ManifestLog::recover(&env, dir).unwrap().unwrap();
        assert_eq!(state.durable_seq, Some(last), "the end of the log is noted");
        faults.clear();
        let db = Db::builder().stepped().env(env.clone()).open(dir).unwrap();
        assert_eq!((db.stats().recovered_commits, db.stats().recovered_torn_bytes), (2, 0));
        db.close().unwrap();
        let left = env.fs.list_dir(dir).unwrap();
        assert!(left.iter().all(|name| !name.ends_with(".wal-next")), "{left:?}");
    }

    #[test]
    fn co1_an_edit_that_does_not_fit_never_reaches_the_manifest() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let dir = Path::new("db");
        let open = || Db::builder().stepped().env(env.clone()).open(dir).unwrap();
        let recovered = || ManifestLog::recover(&env, dir).unwrap().unwrap().1;
        let db = open();
        db.default_keyspace().put("a", "1").unwrap();
        db.flush().unwrap();
        let before = recovered();
        let core = &db.handle.core;
        let edit = VersionEdit { removed: vec![FileId::new(1000)], ..VersionEdit::default() };
        let installed = catch_unwind(AssertUnwindSafe(|| core.install(edit, HashMap::new(), &[])));
        assert!(installed.is_err(), "it removes a table that is not there");
        assert_eq!(recovered(), before, "CO1");
        db.close().unwrap();
        let db = open();
        assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(db.check().unwrap().problems.is_empty());
    }
}
