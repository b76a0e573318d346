//! The files of the running database: its directory and lock, the manifest, the log's segments, blob files,
//! and the cache of what they hold.

pub(in crate::engine) mod blobs;
pub(in crate::engine) mod dir_lock;
pub(in crate::engine) mod page_cache;
pub(in crate::engine) mod reserve;
pub(in crate::engine) mod tables;
pub(crate) mod unfinished;
pub(crate) mod unnamed;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use esker_env::Env;
use parking_lot::Mutex;

use self::dir_lock::DirLock;
use self::page_cache::PageCache;
use self::reserve::DiskReserve;
use self::tables::Tables;
use super::base::Base;
use crate::blob::BlobStore;
use crate::cache::Reservation;
use crate::sstable::BlockCache;
use crate::types::{Error, Result};
use crate::wal::WalPool;

/// The files, and the memory that caches them.
pub(crate) struct Disk {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) tables: Tables,
    pub(crate) wal_pool: Arc<WalPool>,
    /// Blob files, which hold large values.
    pub(crate) blobs: Arc<BlobStore>,
    pub(crate) cache: Arc<BlockCache>,
    /// The memtables' part of the memory budget.
    pub(crate) memtable_memory: Mutex<Reservation>,
    pub(crate) reserve: DiskReserve,
    pub(crate) page_cache: PageCache,
    /// Held as long as the database is open.
    pub(crate) lock: Arc<DirLock>,
    pub(in crate::engine) base: Base,
}

impl Deref for Disk {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Disk {
    /// Returns the free bytes of the disk, if the system knows them.
    pub(in crate::engine) fn free_bytes(&self) -> Option<u64> {
        self.env.fs.free_bytes(&self.dir).ok().filter(|free| *free < u64::MAX)
    }

    /// Fails if the database is closed, or in the child of a fork (handle.3).
    #[inline]
    pub(crate) fn check_ours(&self) -> Result<()> {
        self.check_open()?;
        self.check_process()
    }

    /// Fails as [`check_ours`](Self::check_ours) does, and if the database is open for reading only. Called
    /// before work that changes the directory.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_ours()?;
        if self.options.is_read_only() { Err(Error::ReadOnly(self.dir.clone())) } else { Ok(()) }
    }

    /// Fails in the child of a fork (handle.3).
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.lock.is_ours() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Fails if the database cannot be changed or a thread has panicked. Called before work that changes
    /// tables.
    pub(crate) fn check_able(&self) -> Result<()> {
        self.check_writable()?;
        self.signal.check_alive()
    }

    /// Starts a new manifest if an append to the current one has failed.
    pub(in crate::engine) fn heal_manifest(&self) -> Result<()> {
        let healed = self.tables.heal(&self.env, &self.dir);
        self.watch.manifest.note(&healed, self.env.clock.monotonic());
        healed
    }

    /// Runs work that writes. If it finds no space, the log removes its spare files and the work runs once
    /// more.
    pub(in crate::engine) fn giving_up_spares<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::NoSpace { .. }) if self.wal_pool.give_up_spares() => work(),
            done => done,
        }
    }
}
