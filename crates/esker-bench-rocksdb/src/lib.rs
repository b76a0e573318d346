//! RocksDB for the lab: OptimisticTransactionDB, as redb's `lmdb_benchmark` runs it, with the basic tuning
//! that RocksDB's wiki advises.
//!
//! ```text
//! Store::write -> one batch: one write of the WAL, one fdatasync
//! Reader       -> one snapshot; values are pinned in the block cache and lent
//! Transactions -> optimistic, or with locks: a database of another type
//! ```
//!
//! - A [`Store`] does not read what it writes, so every write is a batch. TransactionDB, which canopydb's
//!   page uses, locks and unlocks each key of a batch, because its transactions find conflicts through locks.
//!   Transactions of OptimisticTransactionDB look at what was written, so plain writes cost nothing extra.
//! - `manual_wal_flush` cannot change while a database is open. It is set unless the database is opened for
//!   async commits, so that nosync commits may follow. A synced commit then flushes the log itself, and an
//!   async one is followed by `flush_wal(false)`.

#![expect(
    clippy::disallowed_methods,
    reason = "the lab measures the real machine: it needs no replaceable Env"
)]

mod keyspaces;
mod transactions;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use self::transactions::RocksDbTransactions;
use esker_bench_api::store::Work;
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Expiring, Failure, Isolation, Keyspaces, OpenOptions,
    Reached, Reader, Store, TransactionKind, Transactions, Writer, engine_options,
};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DBAccess, DBCompressionType,
    DBRawIteratorWithThreadMode, MultiThreaded, OptimisticTransactionDB, Options, ReadOptions,
    SnapshotWithThreadMode, WriteBatchWithTransaction, WriteOptions,
};

/// The mode concerns column families only, which keyspaces drop through a shared handle.
type Db = OptimisticTransactionDB<MultiThreaded>;

/// Size from which on values go to blob files.
const LARGE_VALUE_BYTES: u64 = 1024;
/// Properties that count pending work; each is 0 if there is none.
const DEBTS: [&str; 4] = [
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
];

/// The engine, for the lab's list.
#[derive(Debug)]
pub struct RocksDb;

impl Engine for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn version(&self) -> String {
        let bundled = env!("VERSION_LIBROCKSDB_SYS").split('+').nth(1).unwrap_or("unknown");
        format!("{bundled} (rocksdb {})", env!("VERSION_ROCKSDB"))
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "OptimisticTransactionDB", "what only writes is a batch, OptimisticTransactionDB::Write", "as redb's benchmark has it; TransactionDB, which canopydb's page has, would lock and unlock each key of a batch", "redb's lmdb_benchmark; RocksDB wiki, Transactions; utilities/transactions/pessimistic_transaction.cc, LockBatch";
            "build", "-march=native on x86-64 Linux, as its own default build; release, no assertions", "without SSE4.2 its checksums are computed by table: it does not choose at run time on x86", "RocksDB INSTALL.md, PORTABLE; util/crc32c.cc; .cargo/config.toml";
            "block_cache", "HyperClockCache, the suite's cache", "its one block cache, of the kind that it prefers and its db_bench has", "redb's lmdb_benchmark gives 4 GiB; RocksDB HISTORY.md, 10.7; include/rocksdb/cache.h";
            "bloom filter", "10 bits a key, full", "advised for point reads", "redb's lmdb_benchmark; RocksDB wiki, Setup Options and Basic Tuning";
            "max_background_jobs", "6", "advised for every use; redb's benchmark has as many as cores, which are 2 here", "RocksDB wiki, Setup Options and Basic Tuning";
            "compression of tables", "LZ4", "RocksDB's default since 11.5", "RocksDB HISTORY.md, 11.5; wiki, Setup Options and Basic Tuning";
            "bytes_per_sync, level_compaction_dynamic_level_bytes", "1 MiB, on", "advised for every use", "RocksDB wiki, Setup Options and Basic Tuning";
            "block_size, cache_index_and_filter_blocks", "4 KiB, off: the defaults", "as redb's benchmark leaves them. Blocks of 16 KiB, and index and filters in the cache, are advised to save memory: a single get is faster without, and what lies outside of the cache so is not held against RocksDB", "RocksDB wiki, Setup Options and Basic Tuning; include/rocksdb/table.h";
            "write_buffer_size", "the suite's write buffer where it sets one, else 64 MiB", "the suite's limit, or the default", "RocksDB wiki, MemTable";
            "enable_blob_files, min_blob_size, blob_cache", "on from 1 KiB where the suite's values are that large; the block cache", "BlobDB is RocksDB's answer to large values, and its own benchmark of it has values of 1 KiB; without a cache each read of one is from its file", "RocksDB wiki, BlobDB; tools/run_blob_bench.sh; include/rocksdb/advanced_options.h, blob_cache";
            "blob_compression_type", "none", "the default: blob files have a compression of their own, which that of tables says nothing of", "RocksDB, include/rocksdb/advanced_options.h, blob_compression_type";
            "key-only walks", "read the values of blob files too", "ReadOptions::allow_unprepared_value would leave them unread; it is in RocksDB's C interface, and the binding has no call for it, nor lends the pointers that one of ours would need: its feature raw-ptr has those of DB, Options and Env alone", "RocksDB, include/rocksdb/options.h, allow_unprepared_value, and c.h; rocksdb, src/raw_ptr.rs";
            "async commits", "WriteOptions::sync off", "its default: in the operating system when it returns", "RocksDB wiki, WAL Performance";
            "nosync commits", "WriteOptions::sync off, manual_wal_flush on, flush_wal at the end", "its fastest mode that keeps a log: that stays in a buffer of the process", "RocksDB, include/rocksdb/options.h, manual_wal_flush; wiki, WAL Performance";
            "compaction", "CompactRange of everything, bottommost level forced", "its full compaction", "RocksDB wiki, Manual Compaction";
            "transactions that read what they write", "OptimisticTransactionDB, or TransactionDB where locks are asked for; GetForUpdate; again at once after Busy, TimedOut or TryAgain", "its two kinds, each with its defaults: a lock is waited for up to a second", "RocksDB wiki, Transactions; include/rocksdb/utilities/transaction_db.h";
            "keyspaces", "column families, all created by opening the database with them, dropped one by one; found by their names with each call", "its own; the binding has no call that creates or drops several, and finds their handles so", "RocksDB wiki, Column Families; include/rocksdb/options.h, create_missing_column_families";
            "write_buffer_manager, arena_block_size, max_write_buffer_size_to_maintain with keyspaces", "half of the block cache, charged to it; an eighth of a family's share of that, 4 KiB to 1 MiB; 1", "memtables of many families share one limit; the first block of each counts in whole, and 1 MiB each, the default, would fill it with some hundred; flushed memtables are kept for transactions with snapshots, which nothing here has", "RocksDB wiki, Write Buffer Manager; include/rocksdb/advanced_options.h";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "on the device once it has been flushed into tables",
            pointer: "RocksDB wiki, WAL Performance",
        })
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>, Failure> {
        let (db_options, _) = db_options(options)?;
        let db = Db::open(&db_options, dir).map_err(Failure::engine)?;
        Ok(Box::new(RocksDbStore::new(options.durability, db)))
    }

    fn open_keyspaces(
        &self,
        dir: &Path,
        options: &OpenOptions,
        count: u32,
    ) -> Result<Box<dyn Keyspaces>, Failure> {
        keyspaces::open(dir, options, count)
    }

    fn isolation(&self) -> Isolation {
        Isolation::Snapshot
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::Optimistic, TransactionKind::Locks]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>, Failure> {
        Ok(Box::new(RocksDbTransactions::open(dir, options, kind)?))
    }

    fn open_expiring(&self, _dir: &Path, _options: &OpenOptions) -> Result<Box<dyn Expiring>, Failure> {
        let why = "DBWithTTL drops expired entries in compactions alone: reads find them until then";
        Err(Failure::Unsupported(why.to_owned()))
    }
}

/// Returns the options of a database and of its only column family, and their cache.
fn db_options(options: &OpenOptions) -> Result<(Options, Cache), Failure> {
    let cache_bytes = usize::try_from(options.cache_bytes).map_err(Failure::engine)?;
    let mut table = BlockBasedOptions::default();
    let cache = Cache::new_hyper_clock_cache(cache_bytes, 0);
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    let mut db_options = Options::default();
    db_options.create_if_missing(true);
    db_options.set_block_based_table_factory(&table);
    db_options.set_max_background_jobs(6);
    db_options.set_compression_type(DBCompressionType::Lz4);
    db_options.set_bytes_per_sync(1 << 20);
    db_options.set_level_compaction_dynamic_level_bytes(true);
    if let Some(bytes) = options.write_buffer_bytes {
        db_options.set_write_buffer_size(usize::try_from(bytes).map_err(Failure::engine)?);
    }
    if options.value_bytes >= LARGE_VALUE_BYTES {
        db_options.set_enable_blob_files(true);
        db_options.set_min_blob_size(LARGE_VALUE_BYTES);
        db_options.set_blob_compression_type(DBCompressionType::None);
        db_options.set_enable_blob_gc(true);
        db_options.set_blob_cache(&cache);
    }
    db_options.set_manual_wal_flush(manual_wal_flush(options.durability));
    Ok((db_options, cache))
}

/// Returns whether a database opened for commits of this mode sets `manual_wal_flush`.
fn manual_wal_flush(opened_for: Durability) -> bool {
    opened_for != Durability::Async
}

fn commit_options(durability: Durability) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(durability == Durability::Sync);
    options
}

struct RocksDbStore {
    db: Db,
    /// Whether a commit leaves its log in the buffer until `flush_wal`.
    manual_wal_flush: bool,
    durability: Durability,
    /// Options of every get and commit. Making them allocates.
    read: ReadOptions,
    write: WriteOptions,
}

impl RocksDbStore {
    fn new(durability: Durability, db: Db) -> Self {
        Self {
            db,
            manual_wal_flush: manual_wal_flush(durability),
            durability,
            read: ReadOptions::default(),
            write: commit_options(durability),
        }
    }

    /// Commits the batch that `work` fills.
    fn commit(
        &self,
        work: impl FnOnce(&mut WriteBatchWithTransaction<true>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut batch = WriteBatchWithTransaction::default();
        work(&mut batch)?;
        self.db.write_opt(batch, &self.write).map_err(Failure::engine)?;
        if self.manual_wal_flush && self.durability == Durability::Async {
            self.db.flush_wal(false).map_err(Failure::engine)?;
        }
        Ok(())
    }
}

impl Store for RocksDbStore {
    fn set_durability(&mut self, durability: Durability) -> Result<(), Failure> {
        self.durability = durability;
        self.write = commit_options(durability);
        // Earlier commits become durable.
        if durability == Durability::Sync { self.db.flush_wal(true).map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: Work<'_>) -> Result<(), Failure> {
        self.commit(|batch| work(&mut RocksDbWriter { batch }))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure> {
        let db = &self.db;
        let (snapshot, mut read) = (db.snapshot(), ReadOptions::default());
        read.set_snapshot(&snapshot);
        Ok(Box::new(RocksDbReader { db, read, snapshot }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.db.get_pinned_opt(key, &self.read).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(&self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        walk(self.db.raw_iterator(), from, limit, visit)
    }

    fn compact(&mut self) -> Result<(), Failure> {
        self.db.flush().map_err(Failure::engine)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        // Nosync commits may have left their log in the buffer.
        if self.durability == Durability::NoSync {
            self.db.flush_wal(false).map_err(Failure::engine)?;
        }
        wait_until_quiet(deadline, || {
            DEBTS.into_iter().try_fold(0, |debt, property| {
                Ok(debt + self.db.property_int_value(property).map_err(Failure::engine)?.unwrap_or(0))
            })
        })
    }
}

/// Waits until three looks in a row find no pending work, or until the deadline.
fn wait_until_quiet(deadline: Instant, debt: impl Fn() -> Result<u64, Failure>) -> Result<(), Failure> {
    let mut quiet_looks = 0;
    while quiet_looks < 3 && Instant::now() < deadline {
        quiet_looks = if debt()? > 0 { 0 } else { quiet_looks + 1 };
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

struct RocksDbWriter<'txn> {
    batch: &'txn mut WriteBatchWithTransaction<true>,
}

impl Writer for RocksDbWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.batch.put(key, value);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.batch.delete(key);
        Ok(())
    }
}

struct RocksDbReader<'db> {
    db: &'db Db,
    /// Options of every get of this snapshot.
    read: ReadOptions,
    snapshot: SnapshotWithThreadMode<'db, Db>,
}

impl Reader for RocksDbReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.db.get_pinned_opt(key, &self.read).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(
        &mut self,
        from: &[u8],
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, Failure> {
        walk(self.snapshot.raw_iterator(), from, limit, visit)
    }

    fn len(&mut self) -> Result<u64, Failure> {
        self.keys(&[], u64::MAX, &mut |_| ())
    }
}

fn walk<D: DBAccess>(
    mut items: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    limit: u64,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64, Failure> {
    items.seek(from);
    let mut seen = 0;
    while let Some((key, value)) = items.item() {
        visit(key, value);
        seen += 1;
        if seen == limit {
            break;
        }
        items.next();
    }
    items.status().map_err(Failure::engine)?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_bench_api::conformance;

    fn with_dir(name: &str, check: impl FnOnce(&Path)) {
        let dir = std::env::temp_dir().join(format!("esker-bench-rocksdb-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory of its own");
        check(&dir);
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn the_adapter_is_correct() {
        with_dir("store", |dir| conformance::check_engine(&RocksDb, dir, 0));
    }

    #[test]
    fn it_is_correct_with_blob_files() {
        with_dir("blobs", |dir| conformance::check_engine(&RocksDb, dir, LARGE_VALUE_BYTES));
    }

    #[test]
    fn its_keyspaces_are_correct() {
        with_dir("keyspaces", |dir| conformance::check_keyspaces(&RocksDb, dir));
    }

    #[test]
    fn its_transactions_are_correct() {
        with_dir("transactions", |dir| conformance::check_transactions(&RocksDb, dir));
    }
}
