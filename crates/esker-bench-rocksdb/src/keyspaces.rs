//! Keyspaces as RocksDB's column families: a tree and a memtable each, one log over all.
//!
//! ```text
//! write  -> one batch over all of them, as for a single one
//! remove -> DropColumnFamily of each, which syncs the manifest; the files go with its last handle
//! ```
//!
//! The memtables of all families share a limit, whose memory is part of the block cache. Otherwise each
//! family could fill a memtable of its own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rocksdb::{
    BoundColumnFamily, ColumnFamilyDescriptor, DEFAULT_COLUMN_FAMILY_NAME, WriteBatchWithTransaction,
    WriteBufferManager,
};

use super::{Db, RocksDbStore, db_options, walk};
use esker_bench_api::{Failure, Handles, KeyspaceWriter, Keyspaces, KeyspacesWork, OpenOptions, Store as _};

/// File that an existing database has.
const CURRENT: &str = "CURRENT";
/// Smallest and largest block that a memtable allocates with its first item.
const ARENA_BLOCK_BYTES: (usize, usize) = (4 << 10, 1 << 20);
/// Number of first blocks that fit into a family's share of the limit.
const ARENA_BLOCKS: usize = 8;

pub(crate) fn open(dir: &Path, options: &OpenOptions, count: u32) -> Result<Box<dyn Keyspaces>, Failure> {
    let (mut db_options, cache) = db_options(options)?;
    let memtable_bytes = usize::try_from(options.cache_bytes / 2).map_err(Failure::engine)?;
    let manager = WriteBufferManager::new_write_buffer_manager_with_cache(memtable_bytes, false, cache);
    db_options.set_write_buffer_manager(&manager);
    let (least, most) = ARENA_BLOCK_BYTES;
    let share = memtable_bytes / (count as usize).max(1);
    db_options.set_arena_block_size((share / ARENA_BLOCKS).clamp(least, most));
    db_options.set_max_write_buffer_size_to_maintain(1);
    db_options.create_missing_column_families(true);

    let is_new = !dir.join(CURRENT).try_exists().map_err(Failure::engine)?;
    let listed = if is_new { Ok(Vec::new()) } else { Db::list_cf(&db_options, dir) };
    let there: BTreeSet<String> = listed.map_err(Failure::engine)?.into_iter().collect();
    let names = Handles::open(count, |name| {
        Ok::<_, Failure>((is_new || there.contains(name)).then(|| name.to_owned()))
    })?;
    let families = names.iter().map(String::as_str).chain([DEFAULT_COLUMN_FAMILY_NAME]);
    let families = families.map(|name| ColumnFamilyDescriptor::new(name, db_options.clone()));
    let db = Db::open_cf_descriptors(&db_options, dir, families).map_err(Failure::engine)?;
    let store = RocksDbStore::new(options.durability, db);
    Ok(Box::new(RocksDbKeyspaces { store, names }))
}

struct RocksDbKeyspaces {
    store: RocksDbStore,
    names: Handles<String>,
}

/// Returns the handle of a column family, for as long as the database is borrowed.
fn family<'db>(db: &'db Db, name: &str) -> Result<Arc<BoundColumnFamily<'db>>, Failure> {
    db.cf_handle(name).ok_or_else(|| Failure::Engine(format!("the column family {name} is not there")))
}

impl Keyspaces for RocksDbKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<(), Failure> {
        let (db, names) = (&self.store.db, &self.names);
        self.store.commit(|batch| work(&mut RocksDbKeyspaceWriter { batch, db, names }))
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let Some(name) = self.names.get(keyspace) else { return Ok(false) };
        let db = &self.store.db;
        let value =
            db.get_pinned_cf_opt(&family(db, name)?, key, &self.store.read).map_err(Failure::engine)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn range(
        &self,
        keyspace: u32,
        from: &[u8],
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, Failure> {
        let Some(name) = self.names.get(keyspace) else { return Ok(0) };
        let db = &self.store.db;
        walk(db.raw_iterator_cf(&family(db, name)?), from, limit, visit)
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<(), Failure> {
        let db = &self.store.db;
        self.names.take(keyspaces).try_for_each(|name| db.drop_cf(&name)).map_err(Failure::engine)
    }

    /// The binding reports pending work of the default family only, and running work of all families.
    fn drain(&self, deadline: Instant) -> Result<(), Failure> {
        self.store.drain(deadline)
    }
}

struct RocksDbKeyspaceWriter<'txn> {
    batch: &'txn mut WriteBatchWithTransaction<true>,
    db: &'txn Db,
    names: &'txn Handles<String>,
}

impl KeyspaceWriter for RocksDbKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.batch.put_cf(&family(self.db, self.names.of(keyspace)?)?, key, value);
        Ok(())
    }
}
