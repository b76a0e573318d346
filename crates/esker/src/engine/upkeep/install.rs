//! Installs version edits: makes them durable in the manifest, then visible in the view.
//!
//! ```text
//!   flush, compaction --VersionEdit, tables--> manifest (synced) --> view --> replaced tables removed
//! ```
//!
//! - An edit that does not fit the current tables never reaches the manifest, because the next version is
//!   built first, with all its assertions. Versions are replaced only under the manifest's lock.
//! - After a failed append it is unknown whether the manifest names the new tables. They are removed
//!   as soon as a new manifest can be written, even while compactions are put off, because they may be what
//!   fills the disk.

use std::collections::HashMap;
use std::sync::Arc;

use crate::compaction::pacing;
use crate::compaction::pacing::Backlog;
use crate::engine::base::event::StallCause;
use crate::engine::upkeep::Upkeep;
use crate::manifest::edit::{HistoryEdit, VersionEdit};
use crate::manifest::history::Marks;
use crate::manifest::version::LiveTable;
use crate::memtable::Memtable;
use crate::read::view::ReadView;
use crate::sstable::Table;
use crate::types::{FileId, Result};

impl Upkeep {
    /// Makes an edit durable, then visible to readers. `flushed` are the memtables that the added tables
    /// replace.
    pub(crate) fn install(
        &self,
        edit: VersionEdit,
        opened: HashMap<FileId, Arc<Table>>,
        flushed: &[Arc<Memtable>],
    ) -> Result<()> {
        self.install_or(edit, opened, flushed, |files| self.tables.disown(files))
    }

    /// Installs an edit. `disown` receives the new tables if it is unknown whether the manifest names them.
    pub(in crate::engine) fn install_or(
        &self,
        mut edit: VersionEdit,
        opened: HashMap<FileId, Arc<Table>>,
        flushed: &[Arc<Memtable>],
        disown: impl FnOnce(Vec<FileId>),
    ) -> Result<()> {
        let view = self.view.get();
        let is_offered = |m: &Arc<Memtable>| view.immutables.iter().any(|i| Arc::ptr_eq(i, m));
        assert!(
            flushed.iter().all(is_offered),
            "memtables.2: a memtable was flushed that readers take for the active one"
        );
        drop(view);
        let mut manifest = self.tables.manifest();
        self.tables.number(&mut edit);
        let mut files: Vec<_> = opened.keys().copied().collect();
        let before = self.version();
        let version = Arc::new(before.apply(&edit, opened));
        if let Err(error) = manifest.append(edit.clone(), || self.tables.new_file()) {
            // In numeric order, so that a simulation is repeatable.
            files.sort_unstable();
            disown(files);
            return Err(error);
        }
        self.view.update(|old| {
            assert!(Arc::ptr_eq(&old.version, &before), "the version changed under the manifest's lock");
            let stays = |m: &&Arc<Memtable>| !flushed.iter().any(|f| Arc::ptr_eq(f, m));
            ReadView {
                immutables: old.immutables.iter().filter(stays).cloned().collect(),
                version,
                ..old.clone()
            }
        });
        let removed = before.tables().filter(|(_, t)| edit.removed.contains(&t.file));
        let moved = |file: FileId| edit.added.iter().any(|a| a.file == file);
        let is_kept = |file: FileId| self.feed.as_ref().is_some_and(|keeper| keeper.holds(file));
        let is_gone = |t: &Arc<LiveTable>| !moved(t.file) && !is_kept(t.file);
        let gone: Vec<_> = removed.map(|(_, t)| t.clone()).filter(is_gone).collect();
        drop(before);
        for table in gone {
            table.table.mark_obsolete(self.lock.remover(self.env.fs.clone()));
        }
        self.view.reclaim();
        self.account_memtables();
        self.account_reserve();
        self.account_page_cache();
        self.account_backlog();
        self.pipeline.note_resolved();
        Ok(())
    }

    /// Records in the manifest how far a closed, durable log goes. If its end is lost, the next opening
    /// notices.
    pub(in crate::engine) fn note_end_of_log(&self) {
        let durable_seq = Some(self.published.visible());
        let mut manifest = self.tables.manifest();
        let state = manifest.state();
        if durable_seq > state.durable_seq.max(state.flushed_seq) {
            // A failure loses only this record.
            let edit = VersionEdit { durable_seq, ..VersionEdit::default() };
            let _ = manifest.append(edit, || self.tables.new_file());
        }
    }

    /// Ensures that no commit counts as made later than `ms`, the current time.
    pub(in crate::engine) fn reset_history_marks(&self, ms: u64) -> Result<()> {
        let newest = self.tables.manifest().state().history.marks.newest_ms();
        if newest <= ms {
            return Ok(());
        }
        let visible = self.published.visible();
        for ms in [newest, ms] {
            let edit = VersionEdit {
                history: HistoryEdit { marks: Marks::one(ms, visible), ..HistoryEdit::default() },
                ..VersionEdit::default()
            };
            self.install(edit, HashMap::new(), &[])?;
        }
        Ok(())
    }

    /// Updates and returns how far compaction is behind.
    pub(crate) fn account_backlog(&self) -> Backlog {
        let version = self.version();
        let is_there = |file| version.tables().any(|(_, table)| table.file == file);
        let unreadable = {
            let mut backoff = self.backoff.lock();
            backoff.retain(is_there);
            self.watch.retain_failed(is_there);
            backoff.unreadable()
        };
        let backlog = pacing::backlog(&version, &self.limits(), &unreadable);
        if let Some(is_on) = self.throttle.set(backlog) {
            let now = self.env.clock.monotonic();
            match is_on {
                true => self.events.stall_begins(StallCause::Compaction, now),
                false => self.events.stall_ends(StallCause::Compaction, now),
            }
        }
        backlog
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

    use super::*;
    use crate::blob::Blobs;
    use crate::manifest::log::ManifestLog;
    use crate::{Db, FileSizes};

    #[test]
    fn cached_blocks_make_room_for_memtables_while_no_read_misses() {
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
        assert!(before.cache_bytes.total() > BUDGET / 8 * 7, "{before:?}");
        // Less than a memtable.
        for n in 5000..5400_u32 {
            map.put(n.to_be_bytes(), [0; 4000]).unwrap();
        }
        // The flush thread does this at each tick.
        core.account_memtables();
        let after = db.stats();
        assert_eq!((after.flushes, after.compactions), (before.flushes, before.compactions));
        assert!(after.memtable_bytes > before.memtable_bytes + (1 << 20), "{after:?}");
        assert!(after.cache_bytes.total() + after.memtable_bytes <= BUDGET, "{after:?}");
        assert!(after.cache_bytes.total() > BUDGET / 4 * 3, "no more than that: {after:?}");
    }

    #[test]
    fn a_large_transaction_has_the_next_file_of_the_log_made_while_it_writes_its_tables() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let dir = Path::new("db");
        let db = Db::builder().stepped().adoption_bytes(4 << 10).env(env.clone()).open(dir).unwrap();
        let map = db.default_keyspace();
        map.put("small", "1").unwrap();
        assert!(!db.step(crate::BackgroundStep::PrepareLog).unwrap());
        let mut transaction = db.begin();
        for n in 0..100_u8 {
            transaction.put(&map, [n], vec![n; 1000]).unwrap();
        }
        transaction.commit().unwrap();
        assert!(db.step(crate::BackgroundStep::PrepareLog).unwrap());
        let names = env.fs.list_dir(dir).unwrap();
        assert!(names.iter().any(|name| name == "000002.wal-next"), "{names:?}");
    }

    #[test]
    fn spare_files_that_cannot_be_removed_do_not_keep_closing_from_noting_where_the_log_ends() {
        let faults = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let dir = Path::new("db");
        let sizes = FileSizes { first_segment: 64 << 10, ..FileSizes::default() };
        let builder = Db::builder().stepped().blobs(Blobs::Never).file_sizes(sizes);
        let db = builder.env(env.clone()).open(dir).unwrap();
        let map = db.default_keyspace();
        // So much that the next segment is prepared, and is too large to stay.
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
    fn an_edit_that_does_not_fit_never_reaches_the_manifest() {
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
        assert_eq!(recovered(), before);
        db.close().unwrap();
        let db = open();
        assert_eq!(db.default_keyspace().get("a").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(db.check().unwrap().problems.is_empty());
    }
}
