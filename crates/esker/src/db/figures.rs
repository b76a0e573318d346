//! Health and per-keyspace figures of a database.

use super::Db;
use crate::cache;
use crate::engine::base::health::Health;
use crate::engine::base::options::check_memory;
use crate::engine::state::keyspace_stats::KeyspaceStats;
use crate::engine::state::table_info::TableInfo;
use crate::types::Result;

impl Db {
    /// Returns whether all work succeeds now, and if not, what fails, since when, and why. The call is cheap,
    /// waits for no commit and no disk, and also works after the database was closed. A failure that a retry
    /// resolves disappears. [`Stats::background_error`](crate::Stats::background_error) keeps a past failure.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = esker::Db::open(dir.path())?;
    /// match db.health() {
    ///     esker::Health::Ok => {}
    ///     esker::Health::NoSpace(failing) => println!("free some space: {failing}"),
    ///     other => println!("{other}"),
    /// }
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn health(&self) -> Health {
        self.handle.core.health()
    }

    /// Returns figures of each keyspace, sorted by name. This is separate from [`stats`](Self::stats),
    /// because it takes some searches in memory for each keyspace and run, and does the lookups that
    /// [`len`](crate::Keyspace::len) would do.
    pub fn keyspace_stats(&self) -> Vec<KeyspaceStats> {
        self.handle.core.keyspace_stats()
    }

    /// Changes the memory budget that [`Builder::memory`](crate::Builder::memory) has set, while the database
    /// is open. The cache of blocks grows or shrinks by the difference. Sizes that opening has derived from
    /// the memory stay: those of memtables, the cache of blob values, and how much data compactions take for
    /// cached.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) below 1 MiB; [`Error::Closed`](crate::Error::Closed).
    pub fn set_memory(&self, bytes: u64) -> Result<()> {
        let core = &self.handle.core;
        core.check_open()?;
        check_memory(bytes)?;
        core.cache.budget().set_capacity(bytes);
        core.cache.shrink(&cache::pin());
        Ok(())
    }

    /// Describes the tables: newest run first, and each run in the order of keys. Memtables, which hold the
    /// newest writes, are no tables yet. This reads no file.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let users = db.keyspace("users")?;
    /// users.put("ann", "1")?;
    /// users.put("bob", "2")?;
    /// db.flush()?;
    /// let tables = db.tables();
    /// assert!(tables.iter().any(|table| table.keyspaces.contains(&"users".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn tables(&self) -> Vec<TableInfo> {
        self.handle.core.tables()
    }
}
