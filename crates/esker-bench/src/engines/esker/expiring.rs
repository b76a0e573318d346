//! Esker's entries that expire: a transaction with one put, with or without a time to live.

use std::time::Duration;

use super::{EskerStore, get, transact, walk};
use esker_bench_api::{Expiring, Failure, Result, VisitItem};

impl Expiring for EskerStore {
    fn put(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<()> {
        transact(&self.db, self.durability, |txn| {
            let put = match ttl {
                Some(ttl) => txn.put_with_ttl(&self.map, key, value, ttl),
                None => txn.put(&self.map, key, value),
            };
            put.map_err(Failure::engine)
        })
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.map, key, visit)
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        walk(self.map.iter(), u64::MAX, visit)
    }
}
