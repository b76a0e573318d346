//! canopydb, set up as its author's fork of redb's benchmark sets it up.
//!
//!   Store::write -> begin_write, one tree, commit_with(sync) (one write and one fdatasync of its WAL)
//!   Reader       -> begin_read, one tree; values are reference-counted slices of cached pages
//!
//! In [`CanopyReader`] the tree ends before the transaction that it borrows: fields are dropped in order.
#![expect(unsafe_code, reason = "a tree borrows its transaction, and a reader has to own both")]

mod keyspaces;
mod transactions;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use canopydb::{DbOptions, EnvOptions, ReadTransaction, Tree};

use self::transactions::CanopyTransactions;
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Isolation, Keyspaces, OpenOptions, Reached,
    Reader, Result, Store, TransactionKind, Transactions, VisitItem, Writer, engine_options, store::Work,
    visit_some,
};

const TREE: &[u8] = b"default";
/// Interval between syncs of the WAL in the background.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Prefix of the names of WAL files.
const WAL_PREFIX: &[u8] = b"WAL-";
/// More than the sleep of its thread between two looks at the WAL.
const TRIM_WAIT_MAX: Duration = Duration::from_millis(2500);
const TRIM_LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Canopydb;

impl Engine for Canopydb {
    fn name(&self) -> &'static str {
        "canopydb"
    }

    fn version(&self) -> String {
        env!("VERSION_CANOPYDB").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "EnvOptions::page_cache_size", "the suite's cache", "its one cache", "arthurprs/redb, branch canopy-benchmarks, lmdb_benchmark.rs gives 4 GiB";
            "DbOptions", "default", "WAL on, checkpoints of 64 MB, write transactions spill at 64 MB", "the same benchmark passes Default::default()";
            "DbOptions::checkpoint_target_size", "the suite's write buffer, where it has one", "what it gathers in memory before it writes to its file", "arthurprs/rust-storage-bench, branch impl-canopy, src/worker/main.rs";
            "sync commits", "commit_with(true)", "one fdatasync of the WAL a commit", "docs of DbOptions::default_commit_sync";
            "async and nosync commits", "commit_with(false)", "in the operating system when it returns, sound after a power cut; without a WAL (use_wal) commits would stay in memory, but that is a way to open and no mode of a commit, and its authors neither measure nor test it", "docs of WriteTransaction::commit_with; docs of DbOptions::use_wal; canopydb, src/tests.rs; the same benchmark";
            "EnvOptions::wal_background_sync_interval", "1 s in a database opened for async commits, else off, as EnvOptions::new has it", "what bounds the loss of async commits; nosync rows do not pay for it, as they do not in the benchmark of its author", "arthurprs/rust-storage-bench, branch impl-canopy, src/worker/main.rs: 1 s without fsync; docs of the option, which call 1 s the default";
            "write transactions", "exclusive", "concurrent ones hold the commit lock through the sync as well, so they share no sync, and conflict by the page: on sequential keys nearly all would run again", "the same benchmark calls begin_write; canopydb, src/lib.rs, commit_start to commit_finish; docs of WriteTransaction";
            "compression", "LZ4 of values over 12 KiB, its default", "the default: smaller values would save no page", "docs of TreeOptions::compress_overflow_values";
            "background work", "a checkpoint, then a wait until the WAL's files have gone, 2.5 s at the most", "a thread removes them when it wakes, every 2 s or less: sizes right after a checkpoint count a log that is no longer needed", "canopydb, src/env.rs, bg_thread and maintain_wal_max_size";
            "compaction", "Database::compact", "its full compaction", "the same benchmark";
            "keyspaces", "trees of one database, all created in one transaction, and deleted in one", "its own; a tree is opened by its name in each transaction that uses it, and has no handle beyond that", "canopydb README, Features; docs of WriteTransaction::get_or_create_tree and WriteTransaction::delete_tree";
            "transactions that read what they write", "begin_write, and begin_write_concurrent where optimistic ones are asked for, again at once after a conflict", "its two kinds", "docs of WriteTransaction";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "synced every second by a thread",
            pointer: "docs of EnvOptions::wal_background_sync_interval",
        })
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        let store = CanopyStore::open(dir, options)?;
        create_tree(&store.db)?;
        Ok(Box::new(store))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        keyspaces::open(CanopyStore::open(dir, options)?, count)
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter, TransactionKind::Optimistic]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        let store = CanopyStore::open(dir, options)?;
        create_tree(&store.db)?;
        Ok(Box::new(CanopyTransactions { store, kind }))
    }
}

/// Creates the tree if it does not exist. Opening must not include a commit that only creation needs.
fn create_tree(db: &canopydb::Database) -> Result<()> {
    if db.begin_read().and_then(|txn| txn.get_tree(TREE).map(|tree| tree.is_some()))? {
        return Ok(());
    }
    let txn = db.begin_write()?;
    txn.get_or_create_tree(TREE)?;
    txn.commit_with(true).map(|_| ()).map_err(Failure::engine)
}

/// Returns whether a file of the WAL has content: trimming leaves one empty file.
fn has_wal(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // A file that was removed meanwhile counts as empty.
        let size = entry.metadata().map_or(0, |metadata| metadata.len());
        if size > 0 && entry.file_name().as_encoded_bytes().starts_with(WAL_PREFIX) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn no_tree() -> Failure {
    Failure::engine("the tree is not there")
}

struct CanopyStore {
    db: canopydb::Database,
    dir: PathBuf,
    sync: bool,
}

impl CanopyStore {
    fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let mut env = EnvOptions::new(dir);
        env.page_cache_size = usize::try_from(options.cache_bytes)?;
        env.wal_background_sync_interval = (options.durability == Durability::Async).then_some(SYNC_INTERVAL);
        let mut db_options = DbOptions::default();
        if let Some(bytes) = options.write_buffer_bytes {
            db_options.checkpoint_target_size = usize::try_from(bytes)?;
        }
        let db = canopydb::Database::with_options(env, db_options)?;
        Ok(Self { db, dir: dir.to_path_buf(), sync: options.durability == Durability::Sync })
    }
}

impl Store for CanopyStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.sync = durability == Durability::Sync;
        // Earlier commits become durable.
        if self.sync { self.db.sync().map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let txn = self.db.begin_write()?;
        let mut writer = CanopyWriter { tree: txn.get_or_create_tree(TREE)? };
        work(&mut writer)?;
        drop(writer);
        txn.commit_with(self.sync).map(|_| ()).map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let txn = Box::new(self.db.begin_read()?);
        let tree = txn.get_tree(TREE)?;
        let tree = tree.ok_or_else(no_tree)?;
        // SAFETY: only the lifetime changes; the transaction does not move in its box and outlives the tree.
        let tree = unsafe { std::mem::transmute::<Tree<'_>, Tree<'static>>(tree) };
        Ok(Box::new(CanopyReader { tree, _txn: txn }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.db.begin_read()?;
        let tree = txn.get_tree(TREE)?.ok_or_else(no_tree)?;
        get(&tree, key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact().map_err(Failure::engine)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        self.db.checkpoint()?;
        let deadline = deadline.min(Instant::now() + TRIM_WAIT_MAX);
        while has_wal(&self.dir)? && Instant::now() < deadline {
            thread::sleep(TRIM_LOOK);
        }
        Ok(())
    }
}

struct CanopyWriter<'txn> {
    tree: Tree<'txn>,
}

impl Writer for CanopyWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.insert(key, value).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.tree.delete(key).map(|_| ()).map_err(Failure::engine)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.tree, key, visit)
    }
}

fn get(tree: &Tree<'_>, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let value = tree.get(key)?;
    Ok(value.map(|value| visit(&value)).is_some())
}

fn walk(tree: &Tree<'_>, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
    let items = tree.range(from..)?;
    visit_some(items, limit, |(key, value)| visit(&key, &value))
}

struct CanopyReader {
    /// Borrows from `_txn`, so it must be the first field.
    tree: Tree<'static>,
    _txn: Box<ReadTransaction>,
}

impl Reader for CanopyReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.tree, key, visit)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        walk(&self.tree, from, limit, visit)
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        visit_some(self.tree.range_keys(from..)?, limit, |key| visit(&key))
    }

    fn len(&mut self) -> Result<u64> {
        Ok(self.tree.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_database_has_nothing_in_its_wal() {
        let dir = tempfile::tempdir().unwrap();
        let store = Canopydb.open(dir.path(), &OpenOptions::with_cache(16 << 20)).unwrap();
        store.write(&mut |writer| writer.put(b"key", &[7; 1000])).unwrap();
        assert!(has_wal(dir.path()).unwrap());
        // On a busy machine its thread may take longer than a drain waits.
        let is_trimmed = || {
            store.drain(Instant::now() + TRIM_WAIT_MAX).unwrap();
            !has_wal(dir.path()).unwrap()
        };
        assert!((0..20).any(|_| is_trimmed()));
    }
}
