//! The running database: what its parts share. Each part has a file of its own, with its methods:
//!
//! ```text
//!   reads.rs      find, walk      : view, published, catalog
//!   admission.rs  submit          : throttle, signal --> pipeline
//!   flush.rs      memtables       : pipeline --> tables --> install.rs
//!   compact.rs    tables          : trouble.rs, picker --> tables --> install.rs
//!   decisions.rs  compaction filters: what they decide --> commits
//!   rest.rs       idle            : whether the memtable's removals are worth a flush
//!   room.rs         what puts leave free on the disk for removals, flush and compaction
//!   sweep.rs      what has expired : view --> admission.rs
//!   install.rs    version edits   : tables (manifest) --> view
//!   background.rs threads         : signal
//! ```
//!
//! Lock order: the right of way, the catalog's changes, `turns.compact`, `turns.flush`, then the pipeline's state, then the log pool's numbers, then the blob file in use, then the manifest (which
//! names a log segment before it is put to use), then the view's, then the published state's. No I/O under the last two. Under what the
//! pipeline has left to sync no other is taken.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_env::Env;
use parking_lot::Mutex;

use super::admission::Throttle;
use super::age::Age;
use super::catalog::Catalog;
use super::committer::Committer;
use super::decisions::Decisions;
use super::dir_lock::DirLock;
use super::health::Watch;
use super::history::Histories;
use super::install::Tables;
use super::locks::Locks;
use super::options::Options;
use super::pace::Pace;
use super::page_cache::PageCache;
use super::rest::Rest;
use super::right_of_way::RightOfWay;
use super::room::Room;
use super::signal::Signal;
use super::stats::Counters;
use super::sweep::Sweeper;
use super::trouble::Trouble;
use crate::blob::BlobStore;
use crate::cache::Reservation;
use crate::feed::Keeper;
use crate::manifest::version::Version;
use crate::read::cost::ReadCost;
use crate::read::operators::Operators;
use crate::read::time::Time;
use crate::read::view_cell::ViewCell;
use crate::sstable::BlockCache;
use crate::txn::commit::Pipeline;
use crate::txn::snapshots::Published;
use crate::types::{Error, Result};
use crate::wal::WalPool;

/// See the module's text.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// What readers read: memtables and tables.
    pub(crate) view: Arc<ViewCell>,
    /// Up to which commit, and how many live keys there are.
    pub(crate) published: Arc<Published>,
    pub(crate) pipeline: Pipeline,
    /// Where large values go.
    pub(crate) blobs: Arc<BlobStore>,
    pub(crate) catalog: Catalog,
    /// By which versions expire. That of all views.
    pub(crate) time: Arc<Time>,
    pub(crate) sweeper: Sweeper,
    /// What operands are merged with. All views have the same.
    pub(crate) operators: Arc<Operators>,
    /// What keyspaces keep of older versions.
    pub(crate) histories: Histories,
    pub(crate) tables: Tables,
    pub(crate) cache: Arc<BlockCache>,
    /// The memtables' part of the memory budget.
    pub(crate) memtable_memory: Mutex<Reservation>,
    pub(crate) wal_pool: Arc<WalPool>,
    pub(crate) turns: Turns,
    pub(crate) signal: Signal,
    pub(crate) throttle: Throttle,
    /// What compactions have failed on.
    pub(crate) trouble: Mutex<Trouble>,
    pub(crate) read_cost: ReadCost,
    pub(crate) rest: Rest,
    pub(crate) age: Age,
    pub(crate) room: Room,
    pub(crate) page_cache: PageCache,
    pub(crate) pace: Pace,
    pub(crate) counters: Counters,
    /// How the work that is tried again has ended.
    pub(crate) watch: Watch,
    /// Shared with all views (view.2).
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) right_of_way: RightOfWay,
    pub(crate) locks: Locks,
    pub(crate) committer: Committer,
    /// What is kept for the change feed, if there is one.
    pub(crate) feed: Option<Keeper>,
    /// What compaction filters have decided.
    pub(crate) decisions: Decisions,
    /// Of the directory, for as long as the database is open.
    pub(crate) lock: Arc<DirLock>,
    /// The last one, for what the others give up.
    pub(crate) _gone: Gone,
}

/// Gives memory to the system that databases have used, when one of them goes.
#[derive(Default)]
pub(crate) struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        esker_env::settle_page_bufs();
    }
}

/// Who may flush and who may compact: one at a time.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) flush: Mutex<()>,
    pub(crate) compact: Mutex<()>,
}

impl Core {
    /// The tables now.
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

    /// What is free on the disk, if that can be found out.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.env.fs.free_bytes(&self.dir).ok().filter(|free| *free < u64::MAX)
    }

    /// Refuses when closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// For what changes the directory: refuses when closed, and in a child of a fork (handle.3).
    #[inline]
    pub(crate) fn check_ours(&self) -> Result<()> {
        self.check_open()?;
        self.check_process()
    }

    /// Refuses in a child of a fork (handle.3).
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.lock.is_ours() { Ok(()) } else { Err(forked()) }
    }
}

#[cold]
fn forked() -> Error {
    let text = "this process was forked from the one that opened the database, which alone can use it: nothing was changed; close it before \
                the fork, or open it in the child when the parent has closed it";
    Error::Invalid(text.to_owned())
}
