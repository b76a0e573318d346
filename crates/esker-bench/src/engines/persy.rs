//! persy, with the map in one of its indexes; where values are large, they are records of a segment, and the
//! index has their ids.
//!
//!   Store::write -> begin, put into the index, prepare (journal written and synced), commit
//!                   large: find the id in the index, update its record; or insert one and put its id
//!   Reader       -> one snapshot; keys and values are copied out
//!   Keyspaces    -> indexes: a transaction takes any of them by name; values are in them
//!
//! A record has one key. From the search for the id of a key to the commit, no other transaction may give
//! that key an id or remove its id. So writers of large values take turns.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use persy::{
    ByteVec, Config, IndexType, Persy as Db, PersyId, SegmentId, Snapshot, Transaction, TransactionConfig,
    ValueMode,
};

use esker_bench_api::{
    AsyncCommits, Durability, Engine, EngineOption, Failure, Feature, Handles, Isolation, KeyspaceWriter,
    Keyspaces, KeyspacesWork, OpenOptions, Reached, Reader, Result, Store, VisitItem, Writer, engine_options,
    store::Work,
};

const FILE: &str = "data.persy";
const INDEX: &str = "map";
const SEGMENT: &str = "values";

/// Size from which on values are records.
const LARGE_VALUE_BYTES: u64 = 1024;

const NO_COMPACTION: &str = "persy has no compaction; it reuses freed pages";

const NO_LARGE_TRANSACTIONS: &str = "persy keeps the changes of a transaction in a sorted array and moves its rest for each new key, so that the \
                                     time of a large one grows with the square of its random keys";

pub(crate) struct Persy;

impl Engine for Persy {
    fn name(&self) -> &'static str {
        "persy"
    }

    fn version(&self) -> String {
        env!("VERSION_PERSY").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "compression", "none", "persy has none", "its documentation names none";
            "Config::change_cache_size", "the suite's cache", "its one cache; the default is 32 MiB", "rust-storage-bench sets it so";
            "map", "an index from ByteVec to ByteVec, ValueMode::Replace", "its ordered map; a segment with an index over it, as rust-storage-bench has it, writes every small item twice", "docs of persy::ValueMode and persy::ByteVec";
            "map where the suite's values are of 1 KiB and more", "a segment with the values, and an index from ByteVec to PersyId; a record is updated in place", "a leaf holds up to 128 entries and is written as a whole: with the values in it, 2 MiB for each put of 16 KiB", "docs of Persy::open_or_create_with; src/index/config.rs, INDEX_PAGE_DEFAULT_MAX; rust-storage-bench";
            "writers of such values", "a mutex", "a put looks for the key's record before it writes one: of two at once for a new key, both would write theirs", "docs of Persy::begin: read committed";
            "TxStrategy", "LastWin", "the default; with it and read committed a transaction is an atomic batch, no more", "docs of Persy::begin and persy::TxStrategy";
            "sync commits", "prepare and commit", "the default", "docs of Transaction::prepare";
            "async and nosync commits", "set_background_sync(true)", "its only other mode: a background thread syncs; feature background_ops", "docs of TransactionConfig; rust-storage-bench";
            "large transactions", "1,000 items each; the row has no value and says how long they took", "one of 1,000,000 random keys does not end within a row's time", "persy, src/index/dynamic_entries_container.rs, TypedTxIndexChanges::put";
            "keyspaces", "indexes, all created in one transaction, and dropped in one", "its own: a tree each, over two segments; an index is found by its name with each call, and has no handle", "docs of Transaction::create_index and Transaction::drop_index";
        }
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        Some(AsyncCommits {
            reached: Reached::System,
            then: "synced by a thread as soon as it gets there",
            pointer: "docs of TransactionConfig::set_background_sync; persy, src/background.rs",
        })
    }

    fn syncs_unasked(&self) -> Option<&'static str> {
        Some(
            "a thread syncs in the background as soon as a commit is pending (persy, src/background.rs, sync_on_need); commits do not wait for it",
        )
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::LargeTransactions => Some(NO_LARGE_TRANSACTIONS),
            Feature::Compaction => Some(NO_COMPACTION),
            _ => None,
        }
    }

    /// Read committed, and the last writer wins: the reads of a transaction may see different states, and
    /// conflicts are not reported.
    fn isolation(&self) -> Isolation {
        Isolation::Batch
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        if options.value_bytes >= LARGE_VALUE_BYTES {
            let store = PersyStore::open(dir, options, |txn| {
                txn.create_segment(SEGMENT)?;
                Ok(txn.create_index::<ByteVec, PersyId>(INDEX, ValueMode::Replace)?)
            })?;
            let segment = store.db.solve_segment_id(SEGMENT)?;
            return Ok(Box::new(LargeStore { store, segment, turn: Mutex::new(()) }));
        }
        Ok(Box::new(PersyStore::open(dir, options, |txn| create_index(txn, INDEX))?))
    }

    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
        let all: Handles<String> = Handles::open(count, |name| Ok::<_, Failure>(Some(name.to_owned())))?;
        let indexes: Vec<String> = all.iter().cloned().collect();
        let store = PersyStore::open(dir, options, move |txn| {
            indexes.iter().try_for_each(|index| create_index(txn, index))
        })?;
        let names = Handles::open(count, |name| {
            store.db.exists_index(name).map(|there| there.then(|| name.to_owned())).map_err(Failure::engine)
        })?;
        Ok(Box::new(PersyKeyspaces { store, names }))
    }
}

type Created = Result<(), Box<dyn std::error::Error>>;

fn create_index(txn: &mut Transaction, name: &str) -> Created {
    Ok(txn.create_index::<ByteVec, ByteVec>(name, ValueMode::Replace)?)
}

struct PersyStore {
    db: Db,
    file: File,
    sync: bool,
}

impl PersyStore {
    /// Opens the file, or creates it with the content that `create` writes.
    fn open(
        dir: &Path,
        options: &OpenOptions,
        create: impl FnOnce(&mut Transaction) -> Created + 'static,
    ) -> Result<Self> {
        let mut config = Config::new();
        config.change_cache_size(options.cache_bytes);
        let path = dir.join(FILE);
        let db = Db::open_or_create_with(&path, config, move |db| {
            let mut txn = db.begin()?;
            create(&mut txn)?;
            txn.prepare()?.commit()?;
            Ok(())
        });
        let db = db?;
        let file = File::open(&path)?;
        Ok(Self { db, file, sync: options.durability == Durability::Sync })
    }

    fn begin(&self) -> Result<Transaction> {
        let config = TransactionConfig::new().set_background_sync(!self.sync);
        self.db.begin_with(config).map_err(Failure::engine)
    }

    fn get_from(&self, index: &str, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.one::<ByteVec, ByteVec>(index, &key.into())?;
        Ok(value.map(|value| visit(&value)).is_some())
    }
}

fn commit(txn: Transaction) -> Result<()> {
    txn.prepare()?.commit().map_err(Failure::engine)
}

/// Passes the entries of an index from `from` on to `visit`: values, or their ids.
fn walk<V: IndexType>(
    snapshot: &Snapshot,
    index: &str,
    from: &[u8],
    limit: u64,
    mut visit: impl FnMut(&[u8], V) -> Result<()>,
) -> Result<u64> {
    let from = ByteVec::from(from);
    let mut items = snapshot.range::<ByteVec, V, _>(index, from..)?;
    let mut seen = 0;
    while seen < limit {
        let Some((key, mut values)) = items.next() else { break };
        let value = values.next().ok_or_else(|| Failure::Wrong("a key without a value".to_owned()))?;
        visit(&key, value)?;
        seen += 1;
    }
    Ok(seen)
}

fn walk_values(
    snapshot: &Snapshot,
    index: &str,
    from: &[u8],
    limit: u64,
    visit: VisitItem<'_>,
) -> Result<u64> {
    walk::<ByteVec>(snapshot, index, from, limit, |key, value| {
        visit(key, &value);
        Ok(())
    })
}

fn count<V: IndexType>(snapshot: &Snapshot) -> Result<u64> {
    let items = snapshot.range::<ByteVec, V, _>(INDEX, ..)?;
    Ok(items.count() as u64)
}

impl Store for PersyStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.sync = durability == Durability::Sync;
        // Commits with a sync in the background have been written to the file.
        if self.sync { self.file.sync_data().map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let mut writer = PersyWriter { txn: self.begin()? };
        work(&mut writer)?;
        commit(writer.txn)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PersyReader { snapshot: self.db.snapshot()? }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.get_from(INDEX, key, visit)
    }
}

struct PersyWriter {
    txn: Transaction,
}

impl Writer for PersyWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put::<ByteVec, ByteVec>(INDEX, key.into(), value.into()).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.remove::<ByteVec, ByteVec>(INDEX, key.into(), None).map_err(Failure::engine)
    }
}

struct PersyReader {
    snapshot: Snapshot,
}

impl Reader for PersyReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.snapshot.one::<ByteVec, ByteVec>(INDEX, &key.into())?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        walk_values(&self.snapshot, INDEX, from, limit, visit)
    }

    fn len(&mut self) -> Result<u64> {
        count::<ByteVec>(&self.snapshot)
    }
}

/// A store of large values.
struct LargeStore {
    store: PersyStore,
    segment: SegmentId,
    /// Held by the one writer, from its search for the ids of keys to its commit.
    turn: Mutex<()>,
}

impl Store for LargeStore {
    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.store.set_durability(durability)
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        let _turn =
            self.turn.lock().map_err(|_| Failure::engine("a transaction before this one panicked"))?;
        let mut writer = LargeWriter { txn: self.store.begin()?, segment: self.segment };
        work(&mut writer)?;
        commit(writer.txn)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let snapshot = self.store.db.snapshot()?;
        Ok(Box::new(LargeReader { snapshot, segment: self.segment }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let db = &self.store.db;
        let id = db.one::<ByteVec, PersyId>(INDEX, &key.into())?;
        let Some(id) = id else { return Ok(false) };
        // `None` if it was removed meanwhile.
        let value = db.read(self.segment, &id)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }
}

struct LargeWriter {
    txn: Transaction,
    segment: SegmentId,
}

impl LargeWriter {
    fn id(&mut self, key: &[u8]) -> Result<Option<PersyId>> {
        self.txn.one::<ByteVec, PersyId>(INDEX, &key.into()).map_err(Failure::engine)
    }
}

impl Writer for LargeWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(id) = self.id(key)? {
            return self.txn.update(self.segment, &id, value).map_err(Failure::engine);
        }
        let id = self.txn.insert(self.segment, value)?;
        self.txn.put::<ByteVec, PersyId>(INDEX, key.into(), id).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        let Some(id) = self.id(key)? else { return Ok(()) };
        self.txn.delete(self.segment, &id)?;
        self.txn.remove::<ByteVec, PersyId>(INDEX, key.into(), None).map_err(Failure::engine)
    }
}

struct LargeReader {
    snapshot: Snapshot,
    segment: SegmentId,
}

impl LargeReader {
    fn read(&self, id: &PersyId) -> Result<Vec<u8>> {
        let value = self.snapshot.read(self.segment, id)?;
        value.ok_or_else(|| Failure::Wrong("an id without a record".to_owned()))
    }
}

impl Reader for LargeReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let id = self.snapshot.one::<ByteVec, PersyId>(INDEX, &key.into())?;
        let Some(id) = id else { return Ok(false) };
        visit(&self.read(&id)?);
        Ok(true)
    }

    fn range(&mut self, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        walk::<PersyId>(&self.snapshot, INDEX, from, limit, |key, id| {
            visit(key, &self.read(&id)?);
            Ok(())
        })
    }

    fn keys(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        walk::<PersyId>(&self.snapshot, INDEX, from, limit, |key, _| {
            visit(key);
            Ok(())
        })
    }

    fn len(&mut self) -> Result<u64> {
        count::<PersyId>(&self.snapshot)
    }
}

struct PersyKeyspaces {
    store: PersyStore,
    names: Handles<String>,
}

impl Keyspaces for PersyKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let mut writer = PersyKeyspaceWriter { txn: self.store.begin()?, names: &self.names };
        work(&mut writer)?;
        commit(writer.txn)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.names.get(keyspace).map_or(Ok(false), |name| self.store.get_from(name, key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let Some(name) = self.names.get(keyspace) else { return Ok(0) };
        walk_values(&self.store.db.snapshot()?, name, from, limit, visit)
    }

    /// Removes them in a synced transaction.
    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let mut txn = self.store.db.begin()?;
        for name in self.names.take(keyspaces) {
            txn.drop_index(&name)?;
        }
        commit(txn)
    }
}

struct PersyKeyspaceWriter<'store> {
    txn: Transaction,
    names: &'store Handles<String>,
}

impl KeyspaceWriter for PersyKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let name = self.names.of(keyspace)?;
        self.txn.put::<ByteVec, ByteVec>(name, key.into(), value.into()).map_err(Failure::engine)
    }
}
