//! Keyspaces as LMDB's named databases: trees whose roots are values of the unnamed one.
//!
//!   write  -> one transaction over all of them, their handles opened before
//!   remove -> mdb_drop of each in one transaction, then a sync
//!
//! Transactions end before a database is removed: removing takes `&mut self`.
#![expect(unsafe_code, reason = "heed makes removing a database unsafe")]

use std::ops::Range;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, CommitToken, Database, Env, OnCommit, RwTxn};

use super::{LmdbReader, Map, open_env, set_flags};
use esker_bench_api::{
    Failure, Handles, KeyspaceWriter, Keyspaces, KeyspacesWork, OpenOptions, Reader as _, Result, VisitItem,
};

pub(super) fn open(dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
    let env = open_env(dir, options.random_beyond_memory, count)?;
    let mut maps = there(&env, count)?;
    if maps.are_none() {
        maps = created(&env, count)?;
    }
    set_flags(&env, options.durability)?;
    Ok(Box::new(LmdbKeyspaces { env, maps }))
}

/// Handles that become valid when their transaction commits.
struct Uncommitted<'txn>(Handles<Database<'txn, Bytes, Bytes>>);

impl OnCommit for Uncommitted<'_> {
    type Committed = Handles<Map>;

    fn on_commit(self, token: &CommitToken) -> Self::Committed {
        self.0.map(|map| map.on_commit(token))
    }
}

fn there(env: &Env, count: u32) -> Result<Handles<Map>> {
    let txn = env.read_txn()?;
    let opened: heed::Result<CommitOrAbort<Handles<Map>, ()>> =
        env.open_databases_and_commit(txn, |opener, txn| {
            let maps = Handles::open(count, |name| opener.open_database::<Bytes, Bytes>(txn, Some(name)));
            maps.map(|maps| CommitOrAbort::Commit(Uncommitted(maps)))
        });
    opened?.commit().ok_or_else(not_committed)
}

fn created(env: &Env, count: u32) -> Result<Handles<Map>> {
    let txn = env.write_txn()?;
    let created: heed::Result<CommitOrAbort<Handles<Map>, ()>> =
        env.create_databases_and_commit(txn, |opener, txn| {
            let maps = Handles::open(count, |name| {
                opener.create_database::<Bytes, Bytes>(txn, Some(name)).map(Some)
            });
            maps.map(|maps| CommitOrAbort::Commit(Uncommitted(maps)))
        });
    created?.commit().ok_or_else(not_committed)
}

fn not_committed() -> Failure {
    Failure::engine("the named databases were not committed")
}

struct LmdbKeyspaces {
    env: Env,
    maps: Handles<Map>,
}

impl LmdbKeyspaces {
    fn reader(&self, keyspace: u32) -> Result<Option<LmdbReader<'_>>> {
        let Some(map) = self.maps.get(keyspace) else { return Ok(None) };
        Ok(Some(LmdbReader { txn: self.env.read_txn()?, map: *map }))
    }
}

impl Keyspaces for LmdbKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let txn = self.env.write_txn()?;
        let mut writer = LmdbKeyspaceWriter { txn, maps: &self.maps };
        work(&mut writer)?;
        writer.txn.commit().map_err(Failure::engine)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reader(keyspace)?.map_or(Ok(false), |mut reader| reader.get(key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        self.reader(keyspace)?.map_or(Ok(0), |mut reader| reader.range(from, limit, visit))
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for map in self.maps.take(keyspaces) {
            // SAFETY: this is the only copy of the handle, and `&mut self` excludes other transactions.
            unsafe { map.remove(&mut txn) }?;
        }
        txn.commit()?;
        self.env.force_sync().map_err(Failure::engine)
    }
}

struct LmdbKeyspaceWriter<'env> {
    txn: RwTxn<'env>,
    maps: &'env Handles<Map>,
}

impl KeyspaceWriter for LmdbKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.maps.of(keyspace)?.put(&mut self.txn, key, value).map_err(Failure::engine)
    }
}
