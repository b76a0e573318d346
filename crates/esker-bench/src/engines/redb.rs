//! redb, set up as its own benchmark sets it up.
//!
//!   Store::write -> begin_write, one table, commit (one sync; none in mode NoSync)
//!   Reader       -> begin_read, one read-only table; values are lent from redb's cache
//!   Keyspaces    -> tables: a transaction opens each that it needs, once

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redb::{
    Builder, Database, Durability as RedbDurability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, Table, TableDefinition, TableError, TableHandle, WriteTransaction,
};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Handles, Isolation, KeyspaceWriter, Keyspaces,
    KeyspacesWork, OpenOptions, Reached, Reader, Result, Store, TransactionKind, VisitItem, Writer,
    engine_options, store::Work, visit_some,
};

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

const TABLE: Definition<'_> = TableDefinition::new("x");
/// In mode `Async` one of 1,000 commits is synced.
const COMMITS_PER_SYNC: u64 = 1000;
const FILE: &str = "data.redb";

pub(crate) struct Redb;

impl Engine for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn version(&self) -> String {
        env!("VERSION_REDB").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "redb has none", "its documentation names none";
            "cache size", "the suite's cache size", "4 GiB through set_cache_size in the source", "redb's lmdb_benchmark";
            "commit", "one-phase, no quick repair", "redb's defaults", "redb's lmdb_benchmark";
            "sync commits", "Durability::Immediate", "redb's default; one fsync a commit", "docs of redb::Durability::Immediate";
            "async commits", "Durability::None, every 1,000th commit Durability::Immediate", "redb has no async mode: space is reused only after a durable commit, so one comes now and then; until then the others are lost if the process dies", "rust-storage-bench as canopydb's page ran it";
            "background work", "none; draining makes the commits without a sync durable", "what they wrote stays in the process, and the pages that they freed in use, until a durable commit", "docs of redb::Durability::None";
            "nosync commits", "Durability::None", "redb's only other mode", "redb's lmdb_benchmark";
            "reads", "the lifetime-bound accessors of ReadableTable", "they avoid a reference count", "redb's lmdb_benchmark";
            "compaction", "Database::compact", "redb's own", "redb's lmdb_benchmark";
            "keyspaces", "tables, all created in one transaction, and deleted in one", "its own; a table is opened by its name in each transaction that uses it, and has no handle beyond that", "docs of WriteTransaction::open_table and WriteTransaction::delete_table";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::Process,
            then: "synced with every 1,000th commit, by the adapter",
            pointer: "docs of redb::Durability::None",
        })
    }

    /// One writer at a time, on the newest state.
    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        let store = RedbStore::open(dir, options)?;
        create_table(&store.db)?;
        Ok(Box::new(store))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        let store = RedbStore::open(dir, options)?;
        let mut names = tables(&store.db, count)?;
        if names.are_none() {
            let txn = store.db.begin_write()?;
            names = Handles::open(count, |name| {
                txn.open_table(Definition::new(name)).map(|_| Some(name.to_owned())).map_err(Failure::engine)
            })?;
            txn.commit()?;
        }
        Ok(Box::new(RedbKeyspaces { store, names }))
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::OneWriter]
    }
}

/// Returns the names of the existing keyspaces.
fn tables(db: &Database, count: u32) -> Result<Handles<String>> {
    let txn = db.begin_read()?;
    let tables = txn.list_tables()?;
    let there: BTreeSet<String> = tables.map(|table| table.name().to_owned()).collect();
    Handles::open(count, |name| Ok(there.get(name).cloned()))
}

/// Creates the table if it does not exist. Opening must not include a commit that only creation needs.
fn create_table(db: &Database) -> Result<()> {
    match db.begin_read()?.open_table(TABLE) {
        Ok(_) => return Ok(()),
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(Failure::engine(error)),
    }
    let txn = db.begin_write()?;
    txn.open_table(TABLE)?;
    txn.commit().map_err(Failure::engine)
}

struct RedbStore {
    db: Database,
    durability: Durability,
    /// Number of commits; a plain count, so `Relaxed` is enough.
    commits: AtomicU64,
}

impl RedbStore {
    fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let cache_bytes = usize::try_from(options.cache_bytes)?;
        let db = Builder::new().set_cache_size(cache_bytes).create(dir.join(FILE))?;
        Ok(Self { db, durability: options.durability, commits: AtomicU64::new(0) })
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.next_durability())?;
        Ok(txn)
    }

    fn next_durability(&self) -> RedbDurability {
        match self.durability {
            Durability::Sync => RedbDurability::Immediate,
            Durability::NoSync => RedbDurability::None,
            Durability::Async
                if self.commits.fetch_add(1, Ordering::Relaxed) % COMMITS_PER_SYNC
                    == COMMITS_PER_SYNC - 1 =>
            {
                RedbDurability::Immediate
            }
            Durability::Async => RedbDurability::None,
        }
    }

    /// Makes an empty durable commit, which makes the earlier ones durable.
    fn sync(&self) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(RedbDurability::Immediate)?;
        txn.commit().map_err(Failure::engine)
    }

    fn reads(&self, table: Definition<'_>) -> Result<RedbReader> {
        let txn = self.db.begin_read()?;
        Ok(RedbReader { table: txn.open_table(table)? })
    }
}

impl Store for RedbStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.durability = durability;
        // Earlier commits become durable.
        if durability == Durability::Sync { self.sync() } else { Ok(()) }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let txn = self.begin()?;
        let mut writer = RedbWriter { table: txn.open_table(TABLE)? };
        work(&mut writer)?;
        drop(writer);
        txn.commit().map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.reads(TABLE)?))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reads(TABLE)?.get(key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact().map(|_| ()).map_err(Failure::engine)
    }

    /// The only pending work are commits that were not synced.
    fn drain(&self, _deadline: Instant) -> Result<()> {
        if self.durability == Durability::Sync { Ok(()) } else { self.sync() }
    }
}

struct RedbWriter<'txn> {
    table: Table<'txn, &'static [u8], &'static [u8]>,
}

impl Writer for RedbWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.insert(key, value).map(|_| ()).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.table.remove(key).map(|_| ()).map_err(Failure::engine)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = ReadableTable::get(&self.table, key)?;
        Ok(value.map(|guard| visit(guard.value())).is_some())
    }
}

struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = ReadableTable::get(&self.table, key)?;
        Ok(value.map(|guard| visit(guard.value())).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let items = ReadableTable::range(&self.table, from..)?;
        visit_some(items, limit, |(key, value)| visit(key.value(), value.value()))
    }

    fn len(&mut self) -> Result<u64> {
        self.table.len().map_err(Failure::engine)
    }
}

struct RedbKeyspaces {
    store: RedbStore,
    names: Handles<String>,
}

impl Keyspaces for RedbKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let txn = self.store.begin()?;
        let mut writer = RedbKeyspaceWriter { txn: &txn, names: &self.names, tables: BTreeMap::new() };
        work(&mut writer)?;
        drop(writer);
        txn.commit().map_err(Failure::engine)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(name) = self.names.get(keyspace) else { return Ok(false) };
        self.store.reads(Definition::new(name))?.get(key, visit)
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let Some(name) = self.names.get(keyspace) else { return Ok(0) };
        self.store.reads(Definition::new(name))?.range(from, limit, visit)
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let mut txn = self.store.db.begin_write()?;
        txn.set_durability(RedbDurability::Immediate)?;
        for name in self.names.take(keyspaces) {
            txn.delete_table(Definition::new(&name))?;
        }
        txn.commit().map_err(Failure::engine)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        Store::drain(&self.store, deadline)
    }
}

struct RedbKeyspaceWriter<'txn> {
    txn: &'txn WriteTransaction,
    names: &'txn Handles<String>,
    /// Tables that the transaction has opened. redb opens none twice.
    tables: BTreeMap<u32, Table<'txn, &'static [u8], &'static [u8]>>,
}

impl KeyspaceWriter for RedbKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let table = match self.tables.entry(keyspace) {
            btree_map::Entry::Occupied(opened) => opened.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let name = self.names.of(keyspace)?;
                place.insert(self.txn.open_table(Definition::new(name))?)
            }
        };
        table.insert(key, value).map(|_| ()).map_err(Failure::engine)
    }
}
