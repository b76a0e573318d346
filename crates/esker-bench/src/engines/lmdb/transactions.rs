//! LMDB's transactions that read what they write: one writer at a time.

use super::{LmdbStore, LmdbWriter};
use esker_bench_api::{Failure, Reader as _, Transaction, TransactionWork, Transactions, Writer};

impl Transactions for LmdbStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        let open = self.open()?;
        let mut writer = LmdbWriter { txn: open.env.write_txn().map_err(Failure::engine)?, map: open.map };
        work(&mut writer)?;
        writer.txn.commit().map(|()| 0).map_err(Failure::engine)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.open()?.reader()?.range(&[], u64::MAX, visit)
    }
}

impl Transaction for LmdbWriter<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value = self.map.get(&self.txn, key).map_err(Failure::engine)?;
        Ok(value.map(visit).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Writer::put(self, key, value)
    }
}
