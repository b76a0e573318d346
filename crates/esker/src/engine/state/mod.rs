//! What readers see of the running database: the view of memtables and tables, the catalog of keyspaces, the
//! newest visible commit, and the commit pipeline that moves all of them forward.

pub(crate) mod catalog;
pub(crate) mod feed;
pub(crate) mod history;
pub(crate) mod keyspace_options;
pub(crate) mod keyspace_stats;
mod lengths;
mod many;
pub(crate) mod reads;
mod seal;
pub(crate) mod table_info;

use std::ops::Deref;
use std::sync::Arc;

use self::catalog::Catalog;
use self::history::Histories;
use super::disk::Disk;
use crate::cache;
use crate::feed::Keeper;
use crate::manifest::version::Version;
use crate::read::cost::ReadCost;
use crate::read::operators::Operators;
use crate::read::time::Time;
use crate::read::view_cell::ViewCell;
use crate::txn::commit::Pipeline;
use crate::txn::snapshots::Published;

/// Part (1 / N) of the memory for indexes and filters that are loaded after opening.
const LOADED_PART: u64 = 4;

/// The state that readers share.
pub(crate) struct State {
    /// Memtables and tables.
    pub(crate) view: Arc<ViewCell>,
    /// The newest visible commit, and the number of live keys.
    pub(crate) published: Arc<Published>,
    pub(crate) pipeline: Pipeline,
    pub(crate) catalog: Catalog,
    /// The time by which versions expire. All views share it.
    pub(crate) time: Arc<Time>,
    /// The merge operators. All views share them.
    pub(crate) operators: Arc<Operators>,
    /// What keyspaces keep of older versions.
    pub(crate) histories: Histories,
    pub(crate) read_cost: ReadCost,
    /// What is kept for the change feed, if there is one.
    pub(crate) feed: Option<Keeper>,
    pub(in crate::engine) disk: Disk,
}

impl Deref for State {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.disk
    }
}

impl State {
    /// Returns the present version of the tables.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.view.get().version.clone()
    }

    /// Bytes of all tables.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.version().runs().iter().map(|run| run.bytes()).sum()
    }

    /// Bytes of all blob files.
    pub(crate) fn blob_bytes(&self) -> u64 {
        self.version().blobs().iter().map(|(_, source)| source.file.used()).sum()
    }

    /// Counts the memtables against the memory budget, and shrinks the cache to what is left.
    /// Without this the cache would shrink at the next miss only.
    pub(crate) fn account_memtables(&self) {
        let bytes = self.view.get().memtables().map(|m| m.bytes_used() as u64).sum();
        self.memtable_memory.lock().resize(bytes);
        self.cache.shrink(&cache::pin());
    }

    /// Loads the indexes and filters of tables that have not been read yet (table.6), within a part of the
    /// memory. With filters, commits know most new keys to be new.
    pub(in crate::engine) fn load_tables(&self) {
        let bytes_max = self.options.memory() / LOADED_PART;
        for (_, live) in self.version().tables() {
            if self.signal.stopping() || self.cache.finding_bytes() >= bytes_max {
                return;
            }
            // A reader of the table gets the error.
            let _ = live.table.load_all();
        }
        self.account_memtables();
    }

    /// Whether a thread waits for a commit (engine_background.9).
    pub(in crate::engine) fn is_writing(&self) -> bool {
        self.pipeline.is_committing() || self.signal.waiting() > 0
    }
}
