//! SurrealKV, set up as its authors' benchmark (crud-bench) sets it up, except that the files of its log are
//! created beforehand.
//!
//! ```text
//! Store::write -> one write-only transaction, Transaction::commit on a tokio runtime (one append and one
//!                 fdatasync of its log)
//! Reader       -> one read-only transaction; a get copies the value, a walk lends it
//! ```
//!
//! - Reads run on the calling thread. Commits, flushes and compactions are tasks of the store's own runtime,
//!   and each keeps one of its threads busy. So the runtime has a thread for each.
//! - The tree is closed before its runtime ends. Dropping a tree closes it in a task, without waiting for the
//!   task.

mod transactions;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use surrealkv::{
    CompactRangeOptions, Durability as Persistence, Error, LSMIterator as _, Mode, Options, Transaction,
    Tree, TreeBuilder,
};
use tokio::runtime::{Builder, Runtime};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Isolation, OpenOptions, Reached, Reader, Result,
    Store, TransactionKind, Transactions, VisitItem, Writer, engine_options, store::Work,
};

/// Threads of the runtime: one flushes commits, one flushes memtables, one compacts, and one does everything
/// else.
const RUNTIME_THREADS: usize = 4;
const MEMTABLE_BYTES_MAX: u64 = 256 << 20;
const MEMTABLE_BYTES_MIN: u64 = 16 << 20;
/// Directory of its tables, where flushes and compactions write.
const TABLES_DIR: &str = "sstables";
/// Number of looks that must find the same tables, and the time between two looks.
const QUIET_LOOKS: u32 = 5;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const LARGE_BATCH: &str = "a batch of SurrealKV holds at most 4 GiB (BatchTooLarge)";

pub(crate) struct SurrealKv;

impl Engine for SurrealKv {
    fn name(&self) -> &'static str {
        "surrealkv"
    }

    fn version(&self) -> String {
        env!("VERSION_SURREALKV").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "with_block_cache_capacity", "the suite's cache", "its one cache, of blocks, indexes and values of the value log", "surrealdb/crud-bench, src/surrealkv.rs; docs of Options::with_block_cache_capacity";
            "with_max_memtable_size", "the suite's write buffer where it sets one; else a quarter of the cache, from 16 to 256 MiB", "256 MiB in its authors' benchmark; values are not counted in it, and up to three memtables are there at once", "surrealdb/crud-bench, src/surrealkv.rs; surrealkv, src/lib.rs, default_sizes; src/autotune.rs";
            "with_enable_vlog", "true: values over 1 KiB lie in a log of their own", "compaction does not rewrite them; smaller ones stay in the tables", "surrealdb/crud-bench, src/surrealkv.rs; docs of Options::with_vlog_value_threshold";
            "with_wal_preallocation", "true, not the default", "the log's file does not grow with each commit, so that most syncs are of data alone", "docs of Options::with_wal_preallocation";
            "sync commits", "Durability::Immediate", "its one durable mode; commits of several threads share a sync", "surrealkv README, Quick Start; docs of Durability";
            "async and nosync commits", "Durability::Eventual, its default", "written to the operating system when it returns; it has no faster mode", "docs of Durability; ARCHITECTURE.md of surrealkv, Durability Levels";
            "writes", "Mode::WriteOnly, run again on a conflict", "takes no snapshot; conflicts of keys are found all the same", "docs of Tree::begin_with_mode and Transaction::commit";
            "runtime", "tokio, 4 threads", "flushes, compactions and commits each block the thread that runs them; with as many threads as cores, the default, commits would wait for compactions on two cores", "surrealkv, src/task.rs and src/ring/pipeline.rs";
            "compression, block size", "none, 64 KiB, its defaults", "the defaults, which its authors' benchmark keeps", "surrealdb/crud-bench, src/surrealkv.rs; docs of Options::without_compression";
            "compaction", "Tree::compact_range over all keys", "its full compaction: flushes, merges down, and rewrites the last level", "docs of Tree::compact_range";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "on the device once it has been flushed into tables",
            pointer: "docs of Durability::Eventual",
        })
    }

    fn isolation(&self) -> Isolation {
        Isolation::Snapshot
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(SurrealStore::open(dir, options)?))
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::Optimistic]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        _kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        Ok(Box::new(SurrealStore::open(dir, options)?))
    }
}

fn tree_options(dir: &Path, options: &OpenOptions) -> Result<Options> {
    let by_cache = (options.cache_bytes / 4).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
    let memtable = usize::try_from(options.write_buffer_bytes.unwrap_or(by_cache))?;
    Ok(Options::new()
        .with_path(dir.to_path_buf())
        .with_block_cache_capacity(options.cache_bytes)
        .with_max_memtable_size(memtable)
        .with_enable_vlog(true)
        .with_wal_preallocation(true))
}

fn persistence(durability: Durability) -> Persistence {
    match durability {
        Durability::Sync => Persistence::Immediate,
        Durability::Async | Durability::NoSync => Persistence::Eventual,
    }
}

struct SurrealStore {
    tree: Tree,
    runtime: Runtime,
    tables: PathBuf,
    persistence: Persistence,
}

impl SurrealStore {
    fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).enable_all().build();
        let runtime = runtime?;
        let tree = {
            let _context = runtime.enter();
            TreeBuilder::with_options(tree_options(dir, options)?).build()?
        };
        let tables = dir.join(TABLES_DIR);
        Ok(Self { tree, runtime, tables, persistence: persistence(options.durability) })
    }

    /// Returns the paths and lengths of its tables.
    fn tables(&self) -> Result<Vec<(PathBuf, u64)>> {
        let mut tables = Vec::new();
        for entry in fs::read_dir(&self.tables)? {
            let entry = entry?;
            // A file that was removed meanwhile counts as empty.
            tables.push((entry.path(), entry.metadata().map_or(0, |metadata| metadata.len())));
        }
        tables.sort();
        Ok(tables)
    }

    /// Waits for a running compaction. Compactions take turns, and the one started here has nothing to do.
    fn wait_for_compaction(&self) -> Result<()> {
        let nothing =
            CompactRangeOptions { flush_memtable: false, target_level: Some(1), rewrite_bottommost: false };
        self.tree.compact_range(Some(&[]), Some(&[]), &nothing).map_err(Failure::engine)
    }

    fn read_only(&self) -> Result<Transaction> {
        self.tree.begin_with_mode(Mode::ReadOnly).map_err(Failure::engine)
    }
}

impl Drop for SurrealStore {
    /// Closes the tree before its runtime ends.
    fn drop(&mut self) {
        if let Err(error) = self.runtime.block_on(self.tree.close()) {
            eprintln!("surrealkv did not close: {error}");
        }
    }
}

impl Store for SurrealStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.persistence = persistence(durability);
        // Earlier commits become durable.
        if durability == Durability::Sync {
            self.tree.flush_wal(true).map_err(Failure::engine)
        } else {
            Ok(())
        }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        loop {
            let txn = self.tree.begin_with_mode(Mode::WriteOnly)?;
            let mut writer = SurrealWriter { txn: txn.with_durability(self.persistence) };
            work(&mut writer)?;
            match self.runtime.block_on(writer.txn.commit()) {
                Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                Err(Error::BatchTooLarge) => return Err(Failure::Unsupported(LARGE_BATCH.to_owned())),
                result => return result.map_err(Failure::engine),
            }
        }
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SurrealReader { txn: self.read_only()? }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.read_only()?, key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        self.tree.compact_range(None, None, &CompactRangeOptions::default()).map_err(Failure::engine)
    }

    /// It reports no pending work, so this waits until the tables stop changing.
    fn drain(&self, deadline: Instant) -> Result<()> {
        let (mut before, mut quiet_looks) = (self.tables()?, 0);
        while quiet_looks < QUIET_LOOKS && Instant::now() < deadline {
            thread::sleep(LOOK_INTERVAL);
            self.wait_for_compaction()?;
            let now = self.tables()?;
            quiet_looks = if now == before { quiet_looks + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
}

fn get(txn: &Transaction, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let value = txn.get(key)?;
    Ok(value.map(|value| visit(&value)).is_some())
}

struct SurrealWriter {
    txn: Transaction,
}

impl Writer for SurrealWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.set(key, value).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.delete(key).map_err(Failure::engine)
    }

    /// A commit does not check keys that were only read. Suite `transactions` writes each key that it reads.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.txn, key, visit)
    }
}

struct SurrealReader {
    txn: Transaction,
}

impl Reader for SurrealReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.txn, key, visit)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let mut items = self.txn.scan(from..)?;
        let (mut seen, mut is_there) = (0, limit > 0 && items.seek_first()?);
        while is_there {
            visit(items.key().user_key(), &items.value_ref()?);
            seen += 1;
            is_there = seen < limit && items.next()?;
        }
        Ok(seen)
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut items = self.txn.scan(from..)?;
        let (mut seen, mut is_there) = (0, limit > 0 && items.seek_first()?);
        while is_there {
            visit(items.key().user_key());
            seen += 1;
            is_there = seen < limit && items.next()?;
        }
        Ok(seen)
    }

    /// It has no counter, so this walks over the keys.
    fn len(&mut self) -> Result<u64> {
        self.keys(&[], u64::MAX, &mut |_| ())
    }
}
