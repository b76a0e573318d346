//! fjall's optimistic transactions that read what they write: OptimisticTxDatabase, serializable, again at
//! once after a conflict.

use std::path::Path;
use std::time::Instant;

use fjall::{Guard, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable};

use super::{KEYSPACE, create_options, is_busy, persist_mode, wait_until_quiet};
use esker_bench_api::{
    Durability, OpenOptions, Result, Transaction, TransactionWork, Transactions, VisitItem,
    until_no_conflict, visit_some,
};

pub(super) struct FjallOptimistic {
    db: OptimisticTxDatabase,
    map: OptimisticTxKeyspace,
    durability: Durability,
}

impl FjallOptimistic {
    pub(super) fn open(dir: &Path, options: &OpenOptions) -> Result<Self> {
        let builder = OptimisticTxDatabase::builder(dir).cache_size(options.cache_bytes);
        let db = builder.open()?;
        let map = db.keyspace(KEYSPACE, || create_options(options))?;
        Ok(Self { db, map, durability: options.durability })
    }

    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool> {
        let txn = self.db.write_tx()?.durability(persist_mode(self.durability));
        let mut open = Open { txn, map: &self.map };
        work(&mut open)?;
        Ok(open.txn.commit()?.is_ok())
    }
}

impl Transactions for FjallOptimistic {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        let items = self.db.read_tx().iter(&self.map).map(Guard::into_inner);
        visit_some(items, u64::MAX, |(key, value)| visit(&key, &value))
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        if self.durability == Durability::NoSync {
            self.db.persist(PersistMode::Buffer)?;
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
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.txn.get(self.map, key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(self.map, key, value);
        Ok(())
    }
}
