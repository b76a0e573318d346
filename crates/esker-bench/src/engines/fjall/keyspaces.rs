//! Keyspaces as fjall's own: a tree each, one journal over all.
//!
//!   write  -> one write transaction over their handles
//!   remove -> delete_keyspace of each, which syncs; the files go with its last handle

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use fjall::{PersistMode, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx};

use super::{FjallReader, create_options, get, open_db, persist_mode, wait_for_background_work};
use esker_bench_api::{
    Durability, Failure, Handles, KeyspaceWriter, Keyspaces, KeyspacesWork, OpenOptions, Reader as _, Result,
    VisitItem,
};

pub(super) fn open(dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>> {
    let db = open_db(dir, options)?;
    let create = |name: &str| db.keyspace(name, || create_options(options)).map(Some);
    let there = |name: &str| if db.keyspace_exists(name) { create(name) } else { Ok(None) };
    let mut maps = Handles::open(count, there)?;
    if maps.are_none() {
        maps = Handles::open(count, create)?;
    }
    Ok(Box::new(FjallKeyspaces { db, maps, durability: options.durability }))
}

struct FjallKeyspaces {
    db: SingleWriterTxDatabase,
    maps: Handles<SingleWriterTxKeyspace>,
    durability: Durability,
}

impl Keyspaces for FjallKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let txn = self.db.write_tx().durability(persist_mode(self.durability));
        let mut writer = FjallKeyspaceWriter { txn, maps: &self.maps };
        work(&mut writer)?;
        writer.txn.commit().map_err(Failure::engine)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.maps.get(keyspace).map_or(Ok(false), |map| get(map, key, visit))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        let Some(map) = self.maps.get(keyspace) else { return Ok(0) };
        FjallReader { snapshot: self.db.read_tx(), map }.range(from, limit, visit)
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let db = self.db.inner();
        self.maps
            .take(keyspaces)
            .try_for_each(|map| db.delete_keyspace(map.inner().clone()))
            .map_err(Failure::engine)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        // Nosync commits may have left their log in the buffer of the journal.
        if self.durability == Durability::NoSync {
            self.db.persist(PersistMode::Buffer)?;
        }
        wait_for_background_work(&self.db, self.maps.iter(), Some(deadline));
        Ok(())
    }
}

struct FjallKeyspaceWriter<'store> {
    txn: SingleWriterWriteTx<'store>,
    maps: &'store Handles<SingleWriterTxKeyspace>,
}

impl KeyspaceWriter for FjallKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(self.maps.of(keyspace)?, key, value);
        Ok(())
    }
}
