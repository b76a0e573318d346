//! persy, with the map in one of its indexes.
//!
//!   Store::write -> begin, put into the index, prepare (journal written and synced), commit
//!   Reader       -> one snapshot; keys and values are copied out
//!   Keyspaces    -> indexes: a transaction takes any of them by name

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use persy::{ByteVec, Config, Persy as Db, Snapshot, Transaction, TransactionConfig, ValueMode};

use esker_bench_api::{
    Durability, Engine, EngineOption, Failure, Feature, Handles, Isolation, KeyspaceWriter, Keyspaces,
    KeyspacesWork, OpenOptions, Reader, Store, Writer,
};

const FILE: &str = "data.persy";
const INDEX: &str = "map";

const NO_COMPACTION: &str = "persy has no compaction; it reuses freed pages";
const NO_LARGE_VALUES: &str = "persy keeps at most 512 KiB in a key or value of an index";

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
        &[
            EngineOption {
                option: "Config::change_cache_size",
                value: "the suite's cache",
                reason: "its one cache; the default is 32 MiB",
                pointer: "rust-storage-bench sets it so",
            },
            EngineOption {
                option: "map",
                value: "an index from ByteVec to ByteVec, ValueMode::Replace",
                reason: "its ordered map; a segment with an index over it, as rust-storage-bench has it, writes every item twice",
                pointer: "docs of persy::ValueMode and persy::ByteVec",
            },
            EngineOption {
                option: "sync commits",
                value: "prepare and commit",
                reason: "the default",
                pointer: "docs of Transaction::prepare",
            },
            EngineOption {
                option: "async and nosync commits",
                value: "set_background_sync(true)",
                reason: "its only other mode: a background thread syncs; feature background_ops",
                pointer: "docs of TransactionConfig; rust-storage-bench",
            },
            EngineOption {
                option: "large transactions",
                value: "1,000 items each; the row has no value and says how long they took",
                reason: "one of 1,000,000 random keys does not end within a row's time",
                pointer: "persy, src/index/dynamic_entries_container.rs, TypedTxIndexChanges::put",
            },
            EngineOption {
                option: "keyspaces",
                value: "indexes, all created in one transaction, and dropped in one",
                reason: "its own: a tree each, over two segments; an index is found by its name with each call, and has no handle",
                pointer: "docs of Transaction::create_index and Transaction::drop_index",
            },
        ]
    }

    fn syncs_unasked(&self) -> Option<&'static str> {
        Some(
            "a thread syncs in the background as soon as a commit is pending (persy, src/background.rs, sync_on_need); commits do not wait for it",
        )
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::LargeTransactions => Some(NO_LARGE_TRANSACTIONS),
            Feature::LargeValues => Some(NO_LARGE_VALUES),
            Feature::Compaction => Some(NO_COMPACTION),
            _ => None,
        }
    }

    fn isolation(&self) -> Isolation {
        Isolation::Snapshot
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>, Failure> {
        Ok(Box::new(PersyStore::open(dir, options, vec![INDEX.to_owned()])?))
    }

    fn open_keyspaces(
        &self,
        dir: &Path,
        options: &OpenOptions,
        count: u32,
    ) -> Result<Option<Box<dyn Keyspaces>>, Failure> {
        let all: Handles<String> = Handles::open(count, |name| Ok::<_, Failure>(Some(name.to_owned())))?;
        let store = PersyStore::open(dir, options, all.iter().cloned().collect())?;
        let names = Handles::open(count, |name| {
            store.db.exists_index(name).map(|there| there.then(|| name.to_owned())).map_err(Failure::engine)
        })?;
        Ok(Some(Box::new(PersyKeyspaces { store, names })))
    }
}

struct PersyStore {
    db: Db,
    file: File,
    sync: bool,
}

impl PersyStore {
    /// Opens the file, or creates it with these indexes in it.
    fn open(dir: &Path, options: &OpenOptions, indexes: Vec<String>) -> Result<Self, Failure> {
        let mut config = Config::new();
        config.change_cache_size(options.cache_bytes);
        let path = dir.join(FILE);
        let db = Db::open_or_create_with(&path, config, move |db| {
            let mut txn = db.begin()?;
            for index in &indexes {
                txn.create_index::<ByteVec, ByteVec>(index, ValueMode::Replace)?;
            }
            txn.prepare()?.commit()?;
            Ok(())
        });
        let db = db.map_err(Failure::engine)?;
        let file = File::open(&path).map_err(Failure::engine)?;
        Ok(Self { db, file, sync: options.durability == Durability::Sync })
    }

    fn begin(&self) -> Result<Transaction, Failure> {
        let config = TransactionConfig::new().set_background_sync(!self.sync);
        self.db.begin_with(config).map_err(Failure::engine)
    }

    fn get_from(&self, index: &str, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.db.one::<ByteVec, ByteVec>(index, &key.into()).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }
}

fn commit(txn: Transaction) -> Result<(), Failure> {
    txn.prepare().map_err(Failure::engine)?.commit().map_err(Failure::engine)
}

fn walk(
    snapshot: &Snapshot,
    index: &str,
    from: &[u8],
    limit: u64,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64, Failure> {
    let from = ByteVec::from(from);
    let mut items = snapshot.range::<ByteVec, ByteVec, _>(index, from..).map_err(Failure::engine)?;
    let mut seen = 0;
    while seen < limit {
        let Some((key, mut values)) = items.next() else { break };
        let value = values.next().ok_or_else(|| Failure::Wrong("a key without a value".to_owned()))?;
        visit(&key, &value);
        seen += 1;
    }
    Ok(seen)
}

impl Store for PersyStore {
    fn set_durability(&mut self, durability: Durability) -> Result<(), Failure> {
        self.sync = durability == Durability::Sync;
        // S4: commits with a sync in the background have been written to the file.
        if self.sync { self.file.sync_data().map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut writer = PersyWriter { txn: self.begin()? };
        work(&mut writer)?;
        commit(writer.txn)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure> {
        Ok(Box::new(PersyReader { snapshot: self.db.snapshot().map_err(Failure::engine)? }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        self.get_from(INDEX, key, visit)
    }

    fn compact(&mut self) -> Result<(), Failure> {
        Err(Failure::Unsupported(NO_COMPACTION.to_owned()))
    }
}

struct PersyWriter {
    txn: Transaction,
}

impl Writer for PersyWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.put::<ByteVec, ByteVec>(INDEX, key.into(), value.into()).map_err(Failure::engine)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.txn.remove::<ByteVec, ByteVec>(INDEX, key.into(), None).map_err(Failure::engine)
    }
}

struct PersyReader {
    snapshot: Snapshot,
}

impl Reader for PersyReader {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.snapshot.one::<ByteVec, ByteVec>(INDEX, &key.into()).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(
        &mut self,
        from: &[u8],
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, Failure> {
        walk(&self.snapshot, INDEX, from, limit, visit)
    }

    fn len(&mut self) -> Result<u64, Failure> {
        let items = self.snapshot.range::<ByteVec, ByteVec, _>(INDEX, ..).map_err(Failure::engine)?;
        Ok(items.count() as u64)
    }
}

struct PersyKeyspaces {
    store: PersyStore,
    names: Handles<String>,
}

impl Keyspaces for PersyKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<(), Failure> {
        let mut writer = PersyKeyspaceWriter { txn: self.store.begin()?, names: &self.names };
        work(&mut writer)?;
        commit(writer.txn)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        self.names.get(keyspace).map_or(Ok(false), |name| self.store.get_from(name, key, visit))
    }

    fn range(
        &self,
        keyspace: u32,
        from: &[u8],
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, Failure> {
        let Some(name) = self.names.get(keyspace) else { return Ok(0) };
        walk(&self.store.db.snapshot().map_err(Failure::engine)?, name, from, limit, visit)
    }

    /// In a transaction with a sync of its own.
    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<(), Failure> {
        let mut txn = self.store.db.begin().map_err(Failure::engine)?;
        for name in self.names.take(keyspaces) {
            txn.drop_index(&name).map_err(Failure::engine)?;
        }
        commit(txn)
    }
}

struct PersyKeyspaceWriter<'store> {
    txn: Transaction,
    names: &'store Handles<String>,
}

impl KeyspaceWriter for PersyKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let name = self.names.of(keyspace)?;
        self.txn.put::<ByteVec, ByteVec>(name, key.into(), value.into()).map_err(Failure::engine)
    }
}
