//! Esker's transactions that read what they write.
//!
//! ```text
//! optimistic  Db::transact_with: serializable, again after a conflict, in the end with the exclusive turn
//! locks keys  Transaction::lock of all keys, in their order, before the first read
//! ```

use esker::{Error, Keyspace, LockMode, Transaction};

use super::{EskerStore, map_get, walk};
use esker_bench_api::{
    Failure, Result, Transaction as Asked, TransactionKind, TransactionWork, Transactions, VisitItem,
    until_no_conflict,
};

pub(super) struct EskerTransactions {
    pub(super) store: EskerStore,
    pub(super) kind: TransactionKind,
}

impl EskerTransactions {
    /// Runs one attempt. Returns false after a deadlock or a conflict.
    fn with_locks(&self, keys: &[&[u8]], work: TransactionWork<'_>) -> Result<bool> {
        let mut txn = self.store.db.begin();
        for key in keys {
            match txn.lock(&self.store.map, key, LockMode::Exclusive) {
                Err(Error::Deadlock { .. } | Error::Conflict { .. }) => return Ok(false),
                locked => locked?,
            }
        }
        work(&mut Open { txn: &mut txn, map: &self.store.map })?;
        match txn.commit_with(self.store.durability) {
            Err(failed) if matches!(failed.error, Error::Conflict { .. }) => Ok(false),
            done => done.map(|_| true).map_err(Failure::engine),
        }
    }
}

impl Transactions for EskerTransactions {
    fn transact(&self, keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        if self.kind == TransactionKind::Locks {
            return until_no_conflict(|| self.with_locks(keys, work));
        }
        let body =
            |txn: &mut Transaction| work(&mut Open { txn, map: &self.store.map }).map_err(Stopped::Work);
        match self.store.db.transaction().durability(self.store.durability).run(body) {
            Ok(done) => Ok(u64::from(done.attempts) - 1),
            Err(Stopped::Work(failure)) => Err(failure),
            Err(Stopped::Engine(error)) => Err(Failure::engine(error)),
        }
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        walk(self.store.map.iter(), u64::MAX, visit)
    }
}

/// Why `transact_with` gave up.
enum Stopped {
    Work(Failure),
    Engine(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

struct Open<'a> {
    txn: &'a mut Transaction,
    map: &'a Keyspace,
}

impl Asked for Open<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        map_get(self.txn.get(self.map, key), visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.map, key, value).map_err(Failure::engine)
    }
}
