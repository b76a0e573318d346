//! libmdbx's transactions that read what they write: one writer at a time.

use std::borrow::Cow;

use super::{LibmdbxStore, LibmdbxWriter};
use esker_bench_api::{Failure, Reader as _, Transaction, TransactionWork, Transactions, Writer};

impl Transactions for LibmdbxStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64, Failure> {
        let open = self.open()?;
        let txn = open.env.begin_rw_unsync().map_err(Failure::engine)?;
        let mut writer = LibmdbxWriter { txn, map: open.map };
        work(&mut writer)?;
        writer.txn.commit().map(|()| 0).map_err(Failure::engine)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure> {
        self.open()?.reader()?.range(&[], u64::MAX, visit)
    }
}

impl Transaction for LibmdbxWriter {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let value: Option<Cow<'_, [u8]>> = self.txn.get(self.map.dbi(), key).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Writer::put(self, key, value)
    }
}
