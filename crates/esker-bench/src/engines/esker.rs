//! Esker, through its public API and without tuning.
//!
//!   Store::write -> Db::begin, one optimistic transaction, commit_with(durability)
//!   Reader       -> one Snapshot; values are handles into the block cache or the memtable
//!   Keyspaces    -> its keyspaces: a transaction takes any of them
//!   Transactions -> serializable and optimistic, or with locks
//!   Expiring     -> puts with a time to live

mod expiring;
mod transactions;

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::Command;

use esker::{Db, Durability as EskerDurability, Keyspace, Snapshot, Transaction, Value};

use self::transactions::EskerTransactions;
use esker_bench_api::{
    AsyncCommits, Committing, Durability, Engine, EngineOption, Expiring, Failure, Handles, Isolation,
    KeyspaceWriter, Keyspaces, KeyspacesWork, OpenOptions, Reached, Reader, Result, Serving, Store,
    TransactionKind, Transactions, VisitItem, Writer, engine_options, store::Work,
};

pub(crate) struct Esker;

impl Engine for Esker {
    fn name(&self) -> &'static str {
        "esker"
    }

    fn version(&self) -> String {
        // All crates of the workspace have one version.
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "memory", "the suite's cache size", "Esker's one budget for cache, memtables, indexes and filters; the other engines get the same for their cache alone. It counts what Esker holds: buffers of flushes and merges, open transactions, and what was freed and malloc keeps for its threads come on top, and peak_anon_bytes shows them", "docs of Builder::memory";
            "writes", "transactions", "LMDB and redb have no cheaper write, so Esker's write batch is not used", "docs of Db::begin and Db::batch";
            "16 and more requests in flight, closed loop", "Transaction::commit_async on two threads", "one of its threads commits for all callers; the engines in Go have goroutines, the others a thread for each request", "docs of Transaction::commit_async";
            "sync commits", "Durability::Sync", "Esker's default", "docs of esker::Durability::Sync";
            "async commits", "Durability::Buffered", "handed to the operating system when it returns, synced in the background every 100 ms", "docs of esker::Durability::Buffered";
            "nosync commits", "Durability::None", "like redb's mode None, a commit may be lost with the process, never torn", "docs of esker::Durability::None";
            "compression", "Auto, its default: LZ4 where it saves an eighth of a table's first blocks, else none", "the default", "docs of Builder::compression";
            "range reads", "a new Range for each, shown by Range::visit", "as heed and redb open an iterator for each; visit lends its bytes, as theirs do", "docs of Range::visit";
            "compaction", "Db::compact", "everything into one run, no garbage", "docs of Db::compact";
            "keyspaces", "keyspaces, all created by one batch and dropped by another, synced", "they are meant to be many", "docs of Db::create_keyspace and WriteBatch::drop_keyspace";
            "transactions that read what they write", "serializable, through Db::transact_with; or each locks its keys in their order", "the default, which tries again by itself; locks share syncs, which exclusive transactions, its third kind, do not", "docs of Db::transact, Transaction::lock and Isolation";
            "entries that expire", "Transaction::put_with_ttl; expired keys are removed by the background", "the time to live of each put, to the millisecond", "docs of Keyspace::put_with_ttl and Db::sweep";
        }
    }

    /// Runs the tool, which must be built beside the lab.
    fn serve(&self, serving: Serving<'_>) -> Result<Option<Command>> {
        let lab = std::env::current_exe()?;
        // Tests are built into a directory of their own.
        let mut places = lab.ancestors().skip(1).take(2).map(|folder| folder.join("esker"));
        let Some(tool) = places.find(|tool| tool.is_file()) else {
            let text = "the tool is not built: cargo build --release -p esker-cli";
            return Err(Failure::Unsupported(text.to_owned()));
        };
        let mut command = Command::new(tool);
        command.arg("--db").arg(serving.dir).args(["serve", "--fsync", serving.syncing.name()]);
        command.args(["--port", &serving.port.to_string(), "--memory", &serving.memory_bytes.to_string()]);
        Ok(Some(command))
    }

    fn isolation(&self) -> Isolation {
        Isolation::Serializable
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "synced every 100 ms by a thread",
            pointer: "docs of esker::Durability::Buffered",
        })
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        Ok(Box::new(EskerStore::open(dir, options)?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        let db = open(dir, options)?;
        let there = |name: &str| match db.open_keyspace(name) {
            Ok(map) => Ok(Some(map)),
            Err(esker::Error::KeyspaceNotFound(_)) => Ok(None),
            Err(error) => Err(Failure::engine(error)),
        };
        let mut maps = Handles::open(count, there)?;
        if maps.are_none() {
            let mut batch = db.batch();
            let created = Handles::open(count, |name| batch.create_keyspace(name).map(Some));
            maps = created?;
            batch.commit_with(EskerDurability::Sync)?;
        }
        let durability = durability(options.durability);
        Ok(Box::new(EskerKeyspaces { db, maps, durability }))
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[TransactionKind::Optimistic, TransactionKind::Locks]
    }

    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        Ok(Box::new(EskerTransactions { store: EskerStore::open(dir, options)?, kind }))
    }

    fn open_expiring(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Expiring>> {
        Ok(Box::new(EskerStore::open(dir, options)?))
    }
}

fn open(dir: &Path, options: &OpenOptions) -> Result<Db> {
    let mut builder = Db::builder().memory(options.cache_bytes);
    if let Some(bytes) = options.write_buffer_bytes {
        let bytes = usize::try_from(bytes)?;
        builder = builder.tuning(|t| t.memtable_bytes(bytes));
    }
    builder.open(dir).map_err(Failure::engine)
}

fn durability(durability: Durability) -> EskerDurability {
    match durability {
        Durability::Sync => EskerDurability::Sync,
        Durability::Async => EskerDurability::Buffered,
        Durability::NoSync => EskerDurability::None,
    }
}

struct EskerStore {
    db: Db,
    map: Keyspace,
    durability: EskerDurability,
}

impl EskerStore {
    fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let db = open(dir, options)?;
        let map = db.default_keyspace();
        Ok(Self { db, map, durability: durability(options.durability) })
    }
}

impl Store for EskerStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.durability = self::durability(durability);
        // Earlier commits become durable.
        if durability == Durability::Sync { self.db.sync().map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        transact(&self.db, self.durability, |txn| work(&mut EskerWriter { txn, map: &self.map }))
    }

    fn begins_writes(&self) -> bool {
        true
    }

    fn begin_write(&self, work: Work<'_>) -> Result<Option<Committing>> {
        let mut txn = self.db.transaction().durability(self.durability).begin();
        work(&mut EskerWriter { txn: &mut txn, map: &self.map })?;
        let committing = txn.commit_async();
        Ok(Some(Box::pin(async move {
            match committing.await {
                Err(failed) if matches!(failed.error, esker::Error::Conflict { .. }) => Ok(false),
                done => done.map(|_| true).map_err(Failure::engine),
            }
        })))
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(EskerReader { snapshot: self.db.snapshot(), map: &self.map }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.map, key, visit)
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact().map_err(Failure::engine)
    }
}

/// Runs `work` in transactions until one has no conflict.
fn transact(
    db: &Db,
    durability: EskerDurability,
    mut work: impl FnMut(&mut Transaction) -> Result<()>,
) -> Result<()> {
    loop {
        let mut txn = db.begin();
        work(&mut txn)?;
        match txn.commit_with(durability) {
            Err(failed) if matches!(failed.error, esker::Error::Conflict { .. }) => {}
            done => return done.map(drop).map_err(Failure::engine),
        }
    }
}

fn get(map: &Keyspace, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    map_get(map.get(key), visit)
}

/// Passes the result of a get to `visit`.
fn map_get(got: esker::Result<Option<Value>>, visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let value = got?;
    Ok(value.map(|value| visit(&value)).is_some())
}

/// Passes up to `limit` items of a range to `visit`.
fn walk(mut range: esker::Range, limit: u64, visit: VisitItem<'_>) -> Result<u64> {
    let mut seen = 0;
    if limit > 0 {
        let shown = range.visit(|key, value| {
            visit(key, value);
            seen += 1;
            if seen < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        shown?;
    }
    Ok(seen)
}

struct EskerWriter<'txn> {
    txn: &'txn mut Transaction,
    map: &'txn Keyspace,
}

impl Writer for EskerWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.map, key, value).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.delete(self.map, key).map_err(Failure::engine)
    }
}

struct EskerReader<'store> {
    snapshot: Snapshot,
    map: &'store Keyspace,
}

impl Reader for EskerReader<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.snapshot.get(self.map, key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        walk(self.snapshot.range(self.map, from..), limit, visit)
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut cursor = self.snapshot.cursor(self.map)?;
        cursor.seek(from)?;
        let mut seen = 0;
        while seen < limit && cursor.valid() {
            visit(cursor.key());
            seen += 1;
            if seen < limit {
                cursor.next()?;
            }
        }
        Ok(seen)
    }

    fn len(&mut self) -> Result<u64> {
        self.snapshot.len(self.map).map_err(Failure::engine)
    }
}

struct EskerKeyspaces {
    db: Db,
    maps: Handles<Keyspace>,
    durability: EskerDurability,
}

impl Keyspaces for EskerKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let maps = &self.maps;
        transact(&self.db, self.durability, |txn| work(&mut EskerKeyspaceWriter { txn, maps }))
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.maps.get(keyspace).map_or(Ok(false), |map| get(map, key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let Some(map) = self.maps.get(keyspace) else { return Ok(0) };
        walk(map.range(from..), limit, visit)
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let mut batch = self.db.batch();
        let dropped = self.maps.take(keyspaces).try_for_each(|map| batch.drop_keyspace(&map.name()));
        dropped?;
        batch.commit_with(EskerDurability::Sync).map(drop).map_err(Failure::engine)
    }
}

struct EskerKeyspaceWriter<'txn> {
    txn: &'txn mut Transaction,
    maps: &'txn Handles<Keyspace>,
}

impl KeyspaceWriter for EskerKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.maps.of(keyspace)?, key, value).map_err(Failure::engine)
    }
}
