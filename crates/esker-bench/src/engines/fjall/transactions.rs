//! fjall's optimistic transactions that read what they write: OptimisticTxDatabase, serializable, again at
//! once after a conflict.

use std::path::Path;
use std::time::Instant;

use fjall::{OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable};

use super::{KEYSPACE, create_options, is_busy, persist_mode, wait_until_quiet};
use esker_bench_api::{
    Durability, Failure, OpenOptions, Transaction, TransactionWork, Transactions, until_no_conflict,
};

pub(super) struct FjallOptimistic {
    db: OptimisticTxDatabase,
    map: OptimisticTxKeyspace,
    durability: Durability,
}

impl FjallOptimistic {
    pub(super) fn open(dir: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let builder = OptimisticTxDatabase::builder(dir).cache_size(options.cache_bytes);
        let db = builder.open().map_err(Failure::engine)?;
        let map = db.keyspace(KEYSPACE, || create_options(options)).map_err(Failure::engine)?;
        Ok(Self { db, map, durability: options.durability })
    }

    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool, Failure> {
        let txn = self.db.write_tx().map_err(Failure::engine)?.durability(persist_mode(self.durability));
        let mut open = Open { txn, map: &self.map };
        work(&mut open)?;
        Ok(open.txn.commit().map_err(Failure::engine)?.is_ok())
    }
}

impl Transactions for FjallOptimistic {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        let mut seen = 0;
        for item in self.db.read_tx().iter(&self.map) {
            let (key, value) = item.into_inner().map_err(Failure::engine)?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        if self.durability == Durability::NoSync {
            self.db.persist(PersistMode::Buffer).map_err(Failure::engine)?;
        }
        wait_until_quiet(|| is_busy(self.db.inner(), std::iter::once(self.map.inner())), Some(deadline));
        Ok(())
    }
}

struct Open<'a> {
    txn: OptimisticWriteTx,
    map: &'a OptimisticTxKeyspace,
}

impl Transaction for Open<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.txn.get(self.map, key).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.insert(self.map, key, value);
        Ok(())
    }
}
