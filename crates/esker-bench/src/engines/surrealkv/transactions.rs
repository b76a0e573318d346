//! SurrealKV's transactions that read what they write: snapshot isolation, again at once after a conflict.

use std::time::Instant;

use surrealkv::{Error, Mode};

use super::{SurrealStore, SurrealWriter, get};
use esker_bench_api::{Failure, Store, Transaction, TransactionWork, Transactions, Writer};

impl SurrealStore {
    /// One try; false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool, Failure> {
        let txn = self.tree.begin_with_mode(Mode::ReadWrite).map_err(Failure::engine)?;
        let mut writer = SurrealWriter { txn: txn.with_durability(self.persistence) };
        work(&mut writer)?;
        match self.runtime.block_on(writer.txn.commit()) {
            Err(Error::TransactionWriteConflict | Error::TransactionRetry) => Ok(false),
            done => done.map(|()| true).map_err(Failure::engine),
        }
    }
}

impl Transactions for SurrealStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        let mut conflicts = 0;
        while !self.once(work)? {
            conflicts += 1;
        }
        Ok(conflicts)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.reader()?.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        Store::drain(self, deadline)
    }
}

impl Transaction for SurrealWriter {
    /// The key is written too, and that is what the commit looks at.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        get(&self.txn, key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Writer::put(self, key, value)
    }
}
