//! redb's transactions that read what they write: one writer at a time.

use std::time::Instant;

use redb::ReadableTable;

use super::{RedbStore, RedbWriter, TABLE};
use esker_bench_api::{Failure, Reader as _, Store, Transaction, TransactionWork, Transactions, Writer};

impl Transactions for RedbStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        let txn = self.begin()?;
        let mut open = RedbWriter { table: txn.open_table(TABLE).map_err(Failure::engine)? };
        work(&mut open)?;
        drop(open);
        txn.commit().map(|()| 0).map_err(Failure::engine)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.reads(TABLE)?.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        Store::drain(self, deadline)
    }
}

impl Transaction for RedbWriter<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = ReadableTable::get(&self.table, key).map_err(Failure::engine)?;
        Ok(value.map(|guard| visit(guard.value())).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Writer::put(self, key, value)
    }
}
