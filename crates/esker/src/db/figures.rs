//! Health and per-keyspace figures of a database.

use super::Db;
use crate::engine::base::health::Health;
use crate::engine::state::keyspace_stats::KeyspaceStats;

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
}
