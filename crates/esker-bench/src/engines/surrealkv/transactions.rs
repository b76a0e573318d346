//! SurrealKV's transactions that read what they write: snapshot isolation, again at once after a conflict.

use std::time::Instant;

use surrealkv::{Error, Mode};

use super::{SurrealStore, SurrealWriter};
use esker_bench_api::{ByWriter, Failure, Store, TransactionWork, Transactions, until_no_conflict};

impl SurrealStore {
    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool, Failure> {
        let txn = self.tree.begin_with_mode(Mode::ReadWrite).map_err(Failure::engine)?;
        let mut writer = SurrealWriter { txn: txn.with_durability(self.persistence) };
        work(&mut ByWriter(&mut writer))?;
        match self.runtime.block_on(writer.txn.commit()) {
            Err(Error::TransactionWriteConflict | Error::TransactionRetry) => Ok(false),
            done => done.map(|()| true).map_err(Failure::engine),
        }
    }
}

impl Transactions for SurrealStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.reader()?.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        Store::drain(self, deadline)
    }
}
