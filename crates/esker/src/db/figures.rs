//! What a database tells of itself beside its statistics.

use super::Db;
use crate::engine::base::health::Health;
use crate::engine::state::keyspace_stats::KeyspaceStats;

impl Db {
    /// Whether all work succeeds now, and if not, what fails, since when, and why. Cheap, waits for no commit and no disk, and answers also when the database
    /// was closed. What is tried again clears by itself; what has failed some time is in [`Stats::background_error`](crate::Stats::background_error).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = esker::Db::open(dir.path())?;
    /// match db.health() {
    ///     esker::Health::Ok => {}
    ///     esker::Health::NoSpace(failing) => println!("make room: {failing}"),
    ///     other => println!("{other}"),
    /// }
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn health(&self) -> Health {
        self.handle.core.health()
    }

    /// Figures of each keyspace, sorted by name. Apart from [`stats`](Self::stats), since it costs some searches in memory for each
    /// keyspace and run, and looks up what [`len`](crate::Keyspace::len) would.
    pub fn keyspace_stats(&self) -> Vec<KeyspaceStats> {
        self.handle.core.keyspace_stats()
    }
}
