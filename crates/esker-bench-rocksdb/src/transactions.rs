//! RocksDB's transactions that read what they write.
//!
//! ```text
//! optimistic  OptimisticTransactionDB: the commit fails if a key that was read has been written since;
//!             then the transaction runs again at once
//! locks keys  TransactionDB: a read for update locks its key; it waits up to a second for another's lock
//! ```

use std::path::Path;
use std::time::Instant;

use esker_bench_api::{
    Durability, Failure, OpenOptions, Transaction, TransactionKind, TransactionWork, Transactions,
    until_no_conflict,
};
use rocksdb::{
    Error, ErrorKind, MultiThreaded, OptimisticTransactionOptions, TransactionDB, TransactionDBOptions,
    TransactionOptions, WriteOptions,
};

use super::{DEBTS, Db, commit_options, db_options, walk};

enum Kind {
    Optimistic(Db),
    Locks(TransactionDB<MultiThreaded>),
}

pub(crate) struct RocksDbTransactions {
    db: Kind,
    write: WriteOptions,
}

impl RocksDbTransactions {
    pub(crate) fn open(dir: &Path, options: &OpenOptions, kind: TransactionKind) -> Result<Self, Failure> {
        let (mut db_options, _) = db_options(options)?;
        db_options.set_manual_wal_flush(options.durability == Durability::NoSync);
        let db = match kind {
            TransactionKind::Locks => {
                let opened = TransactionDB::open(&db_options, &TransactionDBOptions::default(), dir);
                Kind::Locks(opened.map_err(Failure::engine)?)
            }
            _ => Kind::Optimistic(Db::open(&db_options, dir).map_err(Failure::engine)?),
        };
        Ok(Self { db, write: commit_options(options.durability) })
    }

    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool, Failure> {
        match &self.db {
            Kind::Optimistic(db) => {
                commit(db.transaction_opt(&self.write, &OptimisticTransactionOptions::default()), work)
            }
            Kind::Locks(db) => commit(db.transaction_opt(&self.write, &TransactionOptions::default()), work),
        }
    }

    fn debt(&self) -> Result<u64, Failure> {
        DEBTS.into_iter().try_fold(0, |debt, property| {
            let more = match &self.db {
                Kind::Optimistic(db) => db.property_int_value(property),
                Kind::Locks(db) => db.property_int_value(property),
            };
            Ok(debt + more.map_err(Failure::engine)?.unwrap_or(0))
        })
    }
}

/// Runs `work` in `txn` and commits it. Returns false after a conflict.
fn commit<D>(txn: rocksdb::Transaction<'_, D>, work: TransactionWork<'_>) -> Result<bool, Failure> {
    let mut open = Open { txn, is_conflict: false };
    let done = work(&mut open);
    if open.is_conflict {
        return Ok(false);
    }
    done?;
    match open.txn.commit() {
        Err(error) if is_conflict(&error) => Ok(false),
        done => done.map(|()| true).map_err(Failure::engine),
    }
}

/// Returns whether the transaction must run again.
fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain)
}

impl Transactions for RocksDbTransactions {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        match &self.db {
            Kind::Optimistic(db) => walk(db.raw_iterator(), &[], u64::MAX, visit),
            Kind::Locks(db) => walk(db.raw_iterator(), &[], u64::MAX, visit),
        }
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        super::wait_until_quiet(deadline, || self.debt())
    }
}

struct Open<'db, D> {
    txn: rocksdb::Transaction<'db, D>,
    is_conflict: bool,
}

impl<D> Open<'_, D> {
    fn failed(&mut self, error: Error) -> Failure {
        self.is_conflict |= is_conflict(&error);
        Failure::engine(error)
    }
}

impl<D> Transaction for Open<'_, D> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let error = match self.txn.get_pinned_for_update(key, true) {
            Ok(value) => return Ok(value.map(|value| visit(&value)).is_some()),
            Err(error) => error,
        };
        Err(self.failed(error))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.put(key, value).map_err(|error| self.failed(error))
    }
}
