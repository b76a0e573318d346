//! persy, with the map in one of its indexes.
//!
//!   Store::write -> begin, put into the index, prepare (journal written and synced), commit
//!   Reader       -> one snapshot; keys and values are copied out

use std::fs::File;
use std::path::Path;

use persy::{ByteVec, Config, Persy as Db, Snapshot, Transaction, TransactionConfig, ValueMode};

use esker_bench_api::{
    Durability, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Reader, Store, Writer,
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
        let mut config = Config::new();
        config.change_cache_size(options.cache_bytes);
        let path = dir.join(FILE);
        let db = Db::open_or_create_with(&path, config, |db| {
            let mut txn = db.begin()?;
            txn.create_index::<ByteVec, ByteVec>(INDEX, ValueMode::Replace)?;
            txn.prepare()?.commit()?;
            Ok(())
        });
        let db = db.map_err(Failure::engine)?;
        let file = File::open(&path).map_err(Failure::engine)?;
        Ok(Box::new(PersyStore { db, file, sync: options.durability == Durability::Sync }))
    }
}

struct PersyStore {
    db: Db,
    file: File,
    sync: bool,
}

impl Store for PersyStore {
    fn set_durability(&mut self, durability: Durability) -> Result<(), Failure> {
        self.sync = durability == Durability::Sync;
        // S4: commits with a sync in the background have been written to the file.
        if self.sync { self.file.sync_data().map_err(Failure::engine) } else { Ok(()) }
    }

    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<(), Failure>) -> Result<(), Failure> {
        let config = TransactionConfig::new().set_background_sync(!self.sync);
        let mut writer = PersyWriter { txn: self.db.begin_with(config).map_err(Failure::engine)? };
        work(&mut writer)?;
        writer.txn.prepare().map_err(Failure::engine)?.commit().map_err(Failure::engine)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure> {
        Ok(Box::new(PersyReader { snapshot: self.db.snapshot().map_err(Failure::engine)? }))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.db.one::<ByteVec, ByteVec>(INDEX, &key.into()).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
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
        let from = ByteVec::from(from);
        let mut items = self.snapshot.range::<ByteVec, ByteVec, _>(INDEX, from..).map_err(Failure::engine)?;
        let mut seen = 0;
        while seen < limit {
            let Some((key, mut values)) = items.next() else { break };
            let value = values.next().ok_or_else(|| Failure::Wrong("a key without a value".to_owned()))?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn len(&mut self) -> Result<u64, Failure> {
        let items = self.snapshot.range::<ByteVec, ByteVec, _>(INDEX, ..).map_err(Failure::engine)?;
        Ok(items.count() as u64)
    }
}
