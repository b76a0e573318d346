//! What is kept for the feed: the shelf with the log's segments, and the tables of adopted commits.
//!
//! ```text
//!   adoption --keep--> KeptTables <--scan-- a reader of the commit
//!   compaction: is the table kept? then its file stays
//!   retention --forget_below--> files of tables that no version has are removed with their last reader
//! ```
//!
//! keeper.1. A table is kept before the version has it, so a thread that removes it from the version sees
//!     that it is kept. Both happen under the manifest's lock, as does forgetting.
//! - The files of a forgotten commit stay while a reader uses them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use esker_env::Env;
use parking_lot::Mutex;

use super::Hold;
use crate::compaction::merge::Source;
use crate::manifest::feed::{FeedLimits, KeptCommit};
use crate::manifest::file_name::table_path;
use crate::manifest::level::RunId;
use crate::sstable::{BlockCache, Remover, Table};
use crate::types::{FileId, Result, SeqNo};
use crate::wal::Shelf;

/// What is kept for the feed.
pub(crate) struct Keeper {
    /// The log's segments.
    pub(crate) shelf: Arc<Shelf>,
    /// How much is kept.
    pub(crate) limits: FeedLimits,
    hold_bytes: u64,
    /// What is kept beyond that.
    hold: Mutex<Option<Hold>>,
    source: TableSource,
    kept: Mutex<BTreeMap<SeqNo, Arc<KeptTables>>>,
}

/// Where tables are opened.
#[derive(Clone)]
struct TableSource {
    env: Env,
    dir: PathBuf,
    cache: Arc<BlockCache>,
}

/// The tables of an adopted commit.
pub(crate) struct KeptTables {
    source: TableSource,
    commit: KeptCommit,
    /// Open tables.
    open: Mutex<BTreeMap<FileId, Weak<Table>>>,
    /// Files to remove with the last user, and how.
    obsolete: Mutex<Option<(Remover, Vec<FileId>)>>,
}

impl Keeper {
    /// Starts with what an opening finds.
    pub(crate) fn new(
        shelf: Arc<Shelf>,
        limits: FeedLimits,
        hold_bytes: u64,
        (env, dir, cache): (Env, PathBuf, Arc<BlockCache>),
        kept: &[KeptCommit],
    ) -> Keeper {
        let source = TableSource { env, dir, cache };
        let tables = |commit: &KeptCommit| {
            let tables = KeptTables::new(source.clone(), commit.clone());
            (commit.seq, Arc::new(tables))
        };
        let kept = Mutex::new(kept.iter().map(tables).collect());
        // Until a program sets the first commit to hold, everything is held.
        let hold = (hold_bytes > 0).then_some(Hold { from: SeqNo::ZERO, bytes: hold_bytes });
        Keeper { shelf, limits, hold_bytes, hold: Mutex::new(hold), source, kept }
    }

    /// What is kept beyond the limits.
    pub(crate) fn hold(&self) -> Option<Hold> {
        *self.hold.lock()
    }

    /// Holds commits from this one on.
    pub(crate) fn set_hold(&self, from: Option<SeqNo>) {
        *self.hold.lock() = from.map(|from| Hold { from, bytes: self.hold_bytes });
    }

    /// Keeps the tables of a commit (keeper.1).
    pub(crate) fn keep(&self, commit: KeptCommit, open: &[(FileId, Arc<Table>)]) {
        let tables = KeptTables::new(self.source.clone(), commit);
        tables.open.lock().extend(open.iter().map(|(file, table)| (*file, Arc::downgrade(table))));
        self.kept.lock().insert(tables.commit.seq, Arc::new(tables));
    }

    /// Undoes `keep`, because the commit was not made.
    pub(crate) fn unkeep(&self, seq: SeqNo) {
        self.kept.lock().remove(&seq);
    }

    /// Returns whether a table is kept.
    pub(crate) fn holds(&self, file: FileId) -> bool {
        let kept = self.kept.lock();
        kept.values().any(|tables| tables.commit.tables.iter().any(|(kept, _)| *kept == file))
    }

    /// The kept tables of a commit.
    pub(crate) fn tables_of(&self, seq: SeqNo) -> Option<Arc<KeptTables>> {
        self.kept.lock().get(&seq).cloned()
    }

    /// Forgets commits below this one. The files of their tables are removed with their last user, if
    /// `is_garbage`.
    pub(crate) fn forget_below(&self, oldest: SeqNo, is_garbage: impl Fn(FileId) -> bool, remover: &Remover) {
        let mut kept = self.kept.lock();
        let stays = kept.split_off(&oldest);
        let gone = std::mem::replace(&mut *kept, stays);
        drop(kept);
        for tables in gone.into_values() {
            let files = tables.commit.tables.iter().map(|(file, _)| *file).filter(|file| is_garbage(*file));
            *tables.obsolete.lock() = Some((remover.clone(), files.collect()));
        }
    }
}

impl KeptTables {
    fn new(source: TableSource, commit: KeptCommit) -> KeptTables {
        KeptTables { source, commit, open: Mutex::default(), obsolete: Mutex::default() }
    }

    /// Its runs, newest first, and all of its tables.
    pub(super) fn runs(&self) -> Result<(Vec<Source>, Vec<Arc<Table>>)> {
        let mut runs: BTreeMap<RunId, Vec<Arc<Table>>> = BTreeMap::new();
        for (file, run) in &self.commit.tables {
            runs.entry(*run).or_default().push(self.open(*file)?);
        }
        let all = runs.values().flatten().cloned().collect();
        let sources = runs.into_values().rev().map(|mut tables| {
            tables.sort_by(|a, b| a.properties().range.start.cmp(&b.properties().range.start));
            Source::run(tables)
        });
        Ok((sources.collect(), all))
    }

    fn open(&self, file: FileId) -> Result<Arc<Table>> {
        let mut open = self.open.lock();
        if let Some(table) = open.get(&file).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let TableSource { env, dir, cache } = &self.source;
        let table = Table::open_at(env, &table_path(dir, file), cache, self.commit.seq)?;
        open.insert(file, Arc::downgrade(&table));
        Ok(table)
    }
}

impl Drop for KeptTables {
    fn drop(&mut self) {
        let Some((remover, files)) = self.obsolete.get_mut().take() else { return };
        let open = self.open.get_mut();
        for file in files {
            match open.get(&file).and_then(Weak::upgrade) {
                Some(table) => table.mark_obsolete(remover.clone()),
                None => remover(&table_path(&self.source.dir, file)),
            }
        }
    }
}
