//! sled, set up as redb's benchmark sets it up. A write is an atomic batch in both.
//!
//! ```text
//! Store::write -> insert or remove of one item, Batch and apply_batch of several; in mode Sync then flush
//!                 and an fdatasync of its log, or a syncfs
//! Reader       -> the tree itself: sled has no snapshots
//! Keyspaces    -> trees: a write is a transaction over those that it needs
//! ```
//!
//! - A single operation is as atomic as a batch of one, and saves the two synced rolls of the log that a
//!   batch takes.
//! - Pages over about 128 KiB are separate files below `blobs`, which sled writes and never syncs. With large
//!   values a sync commit therefore ends with a sync of the file system.
//! - After a store is dropped, a thread of sled's pool may still work for it and hold its lock. Opening waits
//!   for that.

mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sled::transaction::{ConflictableTransactionResult, Transactional, TransactionalTree};
use sled::{Batch, Config, Db, IVec, Tree};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Feature, Handles, Isolation, KeyspaceWriter,
    Keyspaces, KeyspacesWork, OpenOptions, Reached, Reader, Result, Store, TransactionKind, Transactions,
    VisitItem, Writer, engine_options, store::Work, visit_some,
};

/// sled 0.34 keeps its log in this one file.
const LOG_FILE: &str = "db";
/// Size of values from which on pages may become separate files.
const LARGE_VALUE_BYTES: u64 = 8 << 10;

/// Longest wait of an opening for a lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

const NO_SNAPSHOTS: &str = "sled has no snapshots: a reader sees what is committed meanwhile";
const NO_COMPACTION: &str = "sled has no call that compacts; it reuses space as it writes";

pub(crate) struct Sled;

impl Engine for Sled {
    fn name(&self) -> &'static str {
        "sled"
    }

    fn version(&self) -> String {
        env!("VERSION_SLED").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "version", "0.34", "the newest release; 1.0 has had alphas only since 2023", "its page in the registry";
            "cache_capacity", "the suite's cache", "its one cache", "redb's benchmarks gave it so, up to the change that removed sled from them";
            "writes", "insert or remove of one key, Batch and apply_batch of several", "each its cheapest atomic write; its transactions cannot scan and may run twice", "docs of sled::Batch and of Tree::insert";
            "sync commits", "flush, then fdatasync of the file db; where values are of 8 KiB and more, flush, then syncfs", "flush alone ends with sync_file_range on Linux, which is not durable; pages over some 128 KiB are files of their own, which sled never syncs and which have no handle", "spacejam/sled issue 1351, src/pagecache/blob_io.rs; redb's benchmarks synced every file of the directory";
            "async and nosync commits", "flush_every_ms: 500, its default", "a background thread flushes; nothing waits, and until then commits are in the process alone", "docs of Config::flush_every_ms";
            "mode, compression", "LowSpace, off", "the defaults", "docs of Config";
            "keyspaces", "trees, each created and dropped by a call of its own; a write is a transaction over the trees that it needs", "its own; a batch is of one tree, so only a transaction writes to several at once, though it reads each key that it writes", "docs of Db::open_tree, Db::drop_tree and sled::transaction";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::Process,
            then: "written and synced every 500 ms by a thread",
            pointer: "docs of Config::flush_every_ms",
        })
    }

    fn isolation(&self) -> Isolation {
        Isolation::Batch
    }

    fn syncs_unasked(&self) -> Option<&'static str> {
        Some(
            "apply_batch rolls its log before and after the batch, each time with sync_file_range (sled, src/pagecache/mod.rs, pin_log)",
        )
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Snapshots => Some(NO_SNAPSHOTS),
            Feature::Compaction => Some(NO_COMPACTION),
            _ => None,
        }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(SledStore::open(dir, options)?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        let store = SledStore::open(dir, options)?;
        let names: BTreeSet<IVec> = store.db.tree_names().into_iter().collect();
        let create = |name: &str| store.db.open_tree(name).map(Some);
        let there = |name: &str| if names.contains(name.as_bytes()) { create(name) } else { Ok(None) };
        let mut trees = Handles::open(count, there)?;
        if trees.are_none() {
            trees = Handles::open(count, create)?;
            store.sync()?;
        }
        Ok(Box::new(SledKeyspaces { store, trees }))
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        _kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        Ok(Box::new(SledStore::open(dir, options)?))
    }
}

struct SledStore {
    db: Db,
    synced: Synced,
    sync: bool,
}

/// What a sync commit syncs after its flush.
enum Synced {
    Log(File),
    /// The file system of this directory.
    FileSystem(File),
}

impl Synced {
    fn open(dir: &Path, value_bytes: u64) -> io::Result<Self> {
        if value_bytes < LARGE_VALUE_BYTES {
            File::open(dir.join(LOG_FILE)).map(Self::Log)
        } else {
            File::open(dir).map(Self::FileSystem)
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Log(log) => log.sync_data(),
            Self::FileSystem(dir) => sync_file_system(dir),
        }
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(dir: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(dir)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_dir: &File) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

/// Opens a database, and waits for a lock that its last store still holds. sled's error has no kind of its
/// own for a lock.
fn open_unlocked(config: &Config) -> sled::Result<Db> {
    let start = Instant::now();
    loop {
        match config.open() {
            Err(error)
                if error.to_string().contains("could not acquire lock")
                    && start.elapsed() < LOCK_PATIENCE =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

impl SledStore {
    fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let config = Config::new().path(dir).cache_capacity(options.cache_bytes);
        let db = open_unlocked(&config)?;
        let synced = Synced::open(dir, options.value_bytes)?;
        Ok(Self { db, synced, sync: options.durability == Durability::Sync })
    }

    /// Ends a write in the current mode.
    fn end_write(&self) -> Result<()> {
        if self.sync { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.db.flush()?;
        self.synced.sync().map_err(Failure::engine)
    }
}

impl Store for SledStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.sync = durability == Durability::Sync;
        // Earlier commits become durable.
        self.end_write()
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let mut writer = SledWriter::default();
        work(&mut writer)?;
        match (writer.batch, writer.first) {
            (Some(batch), _) => self.db.apply_batch(batch)?,
            (None, Some((key, Some(value)))) => drop(self.db.insert(key, value)?),
            (None, Some((key, None))) => drop(self.db.remove(key)?),
            (None, None) => {}
        }
        self.end_write()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SledReader { tree: &self.db }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        SledReader { tree: &self.db }.get(key, visit)
    }

    fn drain(&self, _deadline: Instant) -> Result<()> {
        self.db.flush().map(|_| ()).map_err(Failure::engine)
    }
}

/// One operation, or a batch from the second operation on.
#[derive(Default)]
struct SledWriter {
    first: Option<(IVec, Option<IVec>)>,
    batch: Option<Batch>,
}

impl SledWriter {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let operation = (IVec::from(key), value.map(IVec::from));
        if self.first.is_none() && self.batch.is_none() {
            self.first = Some(operation);
            return;
        }
        let batch = self.batch.get_or_insert_default();
        for (key, value) in self.first.take().into_iter().chain([operation]) {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
    }
}

impl Writer for SledWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(key, Some(value));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.push(key, None);
        Ok(())
    }
}

struct SledReader<'store> {
    tree: &'store Tree,
}

impl Reader for SledReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.tree.get(key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let items = self.tree.range(from..);
        visit_some(items, limit, |(key, value)| visit(&key, &value))
    }

    fn len(&mut self) -> Result<u64> {
        Ok(self.tree.len() as u64)
    }
}

struct SledKeyspaces {
    store: SledStore,
    trees: Handles<Tree>,
}

impl Keyspaces for SledKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let mut writer = SledKeyspaceWriter::default();
        work(&mut writer)?;
        let (mut trees, mut batches) = (Vec::new(), Vec::new());
        for (keyspace, batch) in writer.batches {
            trees.push(self.trees.of(keyspace)?);
            batches.push(batch);
        }
        let write = |views: &Vec<TransactionalTree>| -> ConflictableTransactionResult<(), Infallible> {
            for (view, batch) in views.iter().zip(&batches) {
                view.apply_batch(batch)?;
            }
            Ok(())
        };
        if !trees.is_empty() {
            trees.as_slice().transaction(write)?;
        }
        self.store.end_write()
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.trees.get(keyspace).map_or(Ok(false), |tree| SledReader { tree }.get(key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        self.trees.get(keyspace).map_or(Ok(0), |tree| SledReader { tree }.range(from, limit, visit))
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        for tree in self.trees.take(keyspaces) {
            self.store.db.drop_tree(tree.name())?;
        }
        self.store.sync()
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        Store::drain(&self.store, deadline)
    }
}

#[derive(Default)]
struct SledKeyspaceWriter {
    batches: BTreeMap<u32, Batch>,
}

impl KeyspaceWriter for SledKeyspaceWriter {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.batches.entry(keyspace).or_default().insert(key, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_waits_for_a_store_that_is_about_to_be_gone() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new().path(dir.path());
        let before = config.open().unwrap();
        let config = Config::new().path(dir.path());
        assert!(config.open().unwrap_err().to_string().contains("could not acquire lock"));
        let last = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(before);
        });
        open_unlocked(&config).unwrap();
        last.join().unwrap();
    }
}
