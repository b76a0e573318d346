//! SurrealKV's transactions that read what they write: snapshot isolation, again at once after a conflict.

use std::time::Instant;

use surrealkv::{Error, Mode};

use super::{SurrealStore, SurrealWriter};
use esker_bench_api::{
    ByWriter, Failure, Result, Store, TransactionWork, Transactions, VisitItem, until_no_conflict,
};

impl SurrealStore {
    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool> {
        let txn = self.tree.begin_with_mode(Mode::ReadWrite)?;
        let mut writer = SurrealWriter { txn: txn.with_durability(self.persistence) };
        work(&mut ByWriter(&mut writer))?;
        match self.runtime.block_on(writer.txn.commit()) {
            Err(Error::TransactionWriteConflict | Error::TransactionRetry) => Ok(false),
            done => done.map(|()| true).map_err(Failure::engine),
        }
    }
}

impl Transactions for SurrealStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        self.reader()?.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        Store::drain(self, deadline)
    }
}
