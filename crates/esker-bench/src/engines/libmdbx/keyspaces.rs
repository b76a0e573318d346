//! Keyspaces as libmdbx's named tables: trees whose roots are values of the unnamed one.
//!
//!   write      -> one transaction over all of them, their handles opened before
//!   get, range -> a parked transaction, as for a single table
//!   remove     -> mdbx_drop of each in one transaction, then a sync
//!
//! Transactions end before a table is removed: removing takes `&mut self`.
#![expect(unsafe_code, reason = "the binding makes removing a table unsafe")]

use std::ops::Range;
use std::path::Path;

use signet_libmdbx::tx::aliases::RwTxUnsync;
use signet_libmdbx::{Database, DatabaseFlags, Environment, MdbxError, WriteFlags};

use super::Settings;
use super::parked::Parked;
use esker_bench_api::{
    Failure, Handles, KeyspaceWriter, Keyspaces, KeyspacesWork, OpenOptions, Result, VisitItem,
};

pub(super) fn open(dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
    let env = Settings::new(options).open(dir, count)?;
    let mut maps = there(&env, count)?;
    if maps.are_none() {
        maps = created(&env, count)?;
    }
    Ok(Box::new(LibmdbxKeyspaces { parked: Parked::new(env.clone()), env, maps }))
}

/// Handles of tables that exist outlive the transaction that opened them.
fn there(env: &Environment, count: u32) -> Result<Handles<Database>, MdbxError> {
    let txn = env.begin_ro_unsync()?;
    Handles::open(count, |name| match txn.open_db_no_cache(Some(name)) {
        Ok(map) => Ok(Some(map)),
        Err(MdbxError::NotFound) => Ok(None),
        Err(error) => Err(error),
    })
}

fn created(env: &Environment, count: u32) -> Result<Handles<Database>, MdbxError> {
    let txn = env.begin_rw_unsync()?;
    let maps = Handles::open(count, |name| txn.create_db(Some(name), DatabaseFlags::empty()).map(Some))?;
    txn.commit()?;
    Ok(maps)
}

struct LibmdbxKeyspaces {
    parked: Parked,
    env: Environment,
    maps: Handles<Database>,
}

impl Keyspaces for LibmdbxKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let txn = self.env.begin_rw_unsync()?;
        let mut writer = LibmdbxKeyspaceWriter { txn, maps: &self.maps };
        work(&mut writer)?;
        writer.txn.commit().map_err(Failure::engine)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.maps.get(keyspace).map_or(Ok(false), |map| self.parked.lend()?.get(map.dbi(), key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let Some(map) = self.maps.get(keyspace) else { return Ok(0) };
        self.parked.lend()?.range(map.dbi(), from, limit, visit)
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        self.parked.clear();
        let txn = self.env.begin_rw_unsync()?;
        for map in self.maps.take(keyspaces) {
            // SAFETY: this is the only copy of the handle, and it has no cursor. `&mut self` excludes other
            // transactions.
            unsafe { txn.drop_db(map) }?;
        }
        txn.commit()?;
        self.env.sync(true).map(drop).map_err(Failure::engine)
    }
}

struct LibmdbxKeyspaceWriter<'store> {
    txn: RwTxUnsync,
    maps: &'store Handles<Database>,
}

impl KeyspaceWriter for LibmdbxKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let map = *self.maps.of(keyspace)?;
        self.txn.put(map, key, value, WriteFlags::UPSERT).map_err(Failure::engine)
    }
}
