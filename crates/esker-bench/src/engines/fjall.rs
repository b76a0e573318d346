//! fjall, set up as redb's benchmark sets it up, which its author reviewed.
//!
//! ```text
//! Store::write -> one write transaction, commit with a persist mode (one journal write, one fdatasync)
//! Reader       -> one snapshot; values are reference-counted slices of cached blocks
//! ```

mod keyspaces;
mod transactions;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fjall::{
    Database, Guard, Keyspace as FjallKeyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx, Snapshot,
};

use self::transactions::FjallOptimistic;
use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Isolation, Keyspaces, OneWriter, OpenOptions,
    Reached, Reader, Result, Store, TransactionKind, Transactions, VisitItem, Writer, engine_options,
    store::Work, visit_some,
};

const KEYSPACE: &str = "default";
/// Size from which on fjall's documentation advises to keep values apart from the tree.
const LARGE_VALUE_BYTES: u64 = 1024;

pub(crate) struct Fjall;

impl Engine for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn version(&self) -> String {
        env!("VERSION_FJALL").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "cache_size", "the suite's cache", "one cache of blocks and blobs", "redb's lmdb_benchmark gives 4 GiB";
            "SingleWriterTxDatabase", "write transactions take turns", "serializable without conflict checks; OptimisticTxDatabase holds its lock through the sync as well, so it would share no sync between writers", "redb's lmdb_benchmark; fjall README, Transactional modes; fjall, src/tx/optimistic/oracle.rs, with_commit";
            "sync commits", "PersistMode::SyncData", "fdatasync of the journal, the cheaper of its two durable modes", "docs of PersistMode";
            "async commits", "PersistMode::Buffer", "its default: in the operating system when it returns, and sound after a power cut", "docs of PersistMode; redb's lmdb_benchmark";
            "nosync commits", "no PersistMode", "its fastest mode: the journal stays in a buffer of the process until that is full or a sync is asked for", "docs of WriteTransaction::durability";
            "max_memtable_size", "the suite's write buffer where it sets one, else the default of 64 MiB", "the suite's limit", "docs of KeyspaceCreateOptions::max_memtable_size";
            "with_kv_separation", "on where the suite's values are of 1 KiB and more", "fjall's own threshold for large values, which compaction then does not rewrite", "fjall README, Key-value separation; docs of KvSeparationOptions";
            "compression", "LZ4, its default", "part of the default features", "fjall README, Feature flags";
            "compaction", "flush, Keyspace::major_compact; then close and open, not timed", "its full compaction, not a documented part of its interface yet; tables that were replaced go when it is opened next", "fjall, src/keyspace/mod.rs";
            "keyspaces", "keyspaces, each created and deleted by a call of its own; all with the same options, journals of 512 MiB together, the default", "its own: a tree and a memtable each over one journal, which flushes the oldest when it is full; there is no call for several", "docs of Database::keyspace, Database::delete_keyspace and DatabaseBuilder::max_journaling_size";
            "transactions that read what they write", "SingleWriterTxDatabase, and OptimisticTxDatabase where optimistic ones are asked for, again at once after a conflict", "its two kinds", "fjall README, Transactional modes";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "on the device once it has been flushed into tables",
            pointer: "docs of PersistMode::Buffer",
        })
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(FjallStore::new(dir, options)?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        keyspaces::open(dir, options, count)
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
        if kind == TransactionKind::Optimistic {
            return Ok(Box::new(FjallOptimistic::open(dir, options)?));
        }
        Ok(Box::new(OneWriter(self.open(dir, options)?)))
    }
}

fn open_db(dir: &Path, options: &OpenOptions) -> Result<SingleWriterTxDatabase> {
    let builder = SingleWriterTxDatabase::builder(dir).cache_size(options.cache_bytes);
    builder.open().map_err(Failure::engine)
}

fn create_options(options: &OpenOptions) -> KeyspaceCreateOptions {
    let large = options.value_bytes >= LARGE_VALUE_BYTES;
    let create =
        KeyspaceCreateOptions::default().with_kv_separation(large.then(KvSeparationOptions::default));
    match options.write_buffer_bytes {
        Some(bytes) => create.max_memtable_size(bytes),
        None => create,
    }
}

fn persist_mode(durability: Durability) -> Option<PersistMode> {
    match durability {
        Durability::Sync => Some(PersistMode::SyncData),
        Durability::Async => Some(PersistMode::Buffer),
        Durability::NoSync => None,
    }
}

struct FjallStore {
    dir: PathBuf,
    options: OpenOptions,
    /// `None` only within `reopen`.
    open: Option<Open>,
    durability: Durability,
}

struct Open {
    db: SingleWriterTxDatabase,
    map: SingleWriterTxKeyspace,
}

impl Open {
    fn new(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let db = open_db(dir, options)?;
        let map = db.keyspace(KEYSPACE, || create_options(options))?;
        Ok(Self { db, map })
    }

    fn wait_for_background_work(&self, deadline: Option<Instant>) {
        wait_for_background_work(&self.db, std::iter::once(&self.map), deadline);
    }
}

/// Waits until there are no flushes and compactions. The workers start them within moments, so three looks
/// without any, some time apart, mean that there are none. Without a deadline it waits as long as there are
/// some.
fn wait_for_background_work<'map>(
    db: &SingleWriterTxDatabase,
    maps: impl Iterator<Item = &'map SingleWriterTxKeyspace> + Clone,
    deadline: Option<Instant>,
) {
    wait_until_quiet(|| is_busy(db.inner(), maps.clone().map(SingleWriterTxKeyspace::inner)), deadline);
}

fn is_busy<'map>(db: &Database, mut maps: impl Iterator<Item = &'map FjallKeyspace>) -> bool {
    db.outstanding_flushes() > 0
        || db.active_compactions() > 0
        || maps.any(|map| map.sealed_memtable_count() > 0)
}

fn wait_until_quiet(is_busy: impl Fn() -> bool, deadline: Option<Instant>) {
    let mut quiet_looks = 0;
    while quiet_looks < 3 && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        quiet_looks = if is_busy() { 0 } else { quiet_looks + 1 };
        thread::sleep(Duration::from_millis(10));
    }
}

impl FjallStore {
    fn new(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let open = Some(Open::new(dir, options)?);
        Ok(Self { dir: dir.to_path_buf(), options: *options, open, durability: options.durability })
    }

    fn open(&self) -> Result<&Open> {
        self.open.as_ref().ok_or_else(|| Failure::engine("closed by a compaction that failed"))
    }
}

impl Store for FjallStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.durability = durability;
        // Earlier commits become durable.
        if durability == Durability::Sync {
            self.open()?.db.persist(PersistMode::SyncData).map_err(Failure::engine)
        } else {
            Ok(())
        }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let open = self.open()?;
        let txn = open.db.write_tx().durability(persist_mode(self.durability));
        let mut writer = FjallWriter { txn, map: &open.map };
        work(&mut writer)?;
        writer.txn.commit().map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let open = self.open()?;
        Ok(Box::new(FjallReader { snapshot: open.db.read_tx(), map: &open.map }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.open()?.map, key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        let open = self.open()?;
        open.map.inner().rotate_memtable_and_wait()?;
        open.wait_for_background_work(None);
        open.map.inner().major_compact()?;
        open.db.persist(PersistMode::SyncData).map_err(Failure::engine)
    }

    /// Replaced tables are removed when the database is opened.
    fn reopen(&mut self) -> Result<()> {
        self.open = None;
        self.open = Some(Open::new(&self.dir, &self.options)?);
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        let open = self.open()?;
        // Nosync commits may have left their log in the buffer of the journal.
        if self.durability == Durability::NoSync {
            open.db.persist(PersistMode::Buffer)?;
        }
        open.wait_for_background_work(Some(deadline));
        Ok(())
    }
}

fn get(map: &SingleWriterTxKeyspace, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let value = map.get(key)?;
    Ok(value.map(|value| visit(&value)).is_some())
}

struct FjallWriter<'store> {
    txn: SingleWriterWriteTx<'store>,
    map: &'store SingleWriterTxKeyspace,
}

impl Writer for FjallWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(self.map, key, value);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.remove(self.map, key);
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.txn.get(self.map, key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }
}

struct FjallReader<'store> {
    snapshot: Snapshot,
    map: &'store SingleWriterTxKeyspace,
}

impl Reader for FjallReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.snapshot.get(self.map, key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let items = self.snapshot.range(self.map, from..).map(Guard::into_inner);
        visit_some(items, limit, |(key, value)| visit(&key, &value))
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        visit_some(self.snapshot.range(self.map, from..).map(Guard::key), limit, |key| visit(&key))
    }

    fn len(&mut self) -> Result<u64> {
        self.snapshot.len(self.map).map(|len| len as u64).map_err(Failure::engine)
    }
}
