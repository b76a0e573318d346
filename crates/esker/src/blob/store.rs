//! The current blob file, and the leases by which writers share it.
//!
//! ```text
//!   commit, BlobWriter --lease--> current file --full--> closed; the next file is added to the manifest
//!   each written file --> dirty --synced with each sync of the log--> durable
//! ```
//!
//! blob_store.1. A durable manifest edit adds a file before anything points to it.
//! blob_store.2. A writer marks a file dirty before any record points to its new values. The dirty files at a
//!     log sync therefore include all values that log records point to and that are not durable
//!     (wal/sync.rs).
//!
//! Values do not use the disk space reserved for removals, flushes and compactions (reserve.1
//! in engine/disk/reserve.rs).
//!
//! - The child of a fork writes nothing, because the parent uses the same leases.
//!
//! The values of failed commits and dropped transactions remain in the file as garbage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use esker_env::{AlignedBuf, Env};
use parking_lot::{Mutex, RwLock};

use super::cache::BlobCache;
use super::file::{BlobFile, Lease};
use super::rule::Blobs;
use crate::cache::MemoryBudget;
use crate::encryption;
use crate::types::outcomes::Outcomes;
use crate::types::{Error, KeyspaceId, Result};

/// Creates a blob file and adds it to the manifest and the view (blob_store.1).
pub(crate) type NewBlobFile = Box<dyn Fn() -> Result<Arc<BlobFile>> + Send + Sync>;

/// Free space is queried again after leases of this many bytes, or of this fraction of the free space, or
/// once the disk is shared in another way.
const CREDIT_BYTES_MAX: u64 = 1 << 20;
const CREDIT_PART: u64 = 16;

/// Maximum number of buffers kept for reuse.
const SPARES_MAX: usize = 4;

/// Options for writing blob files.
#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// Which values are stored in blob files.
    pub blobs: Blobs,
    /// Size at which a file is full.
    pub file_bytes_max: u64,
    /// Bytes buffered by a writer.
    pub buffer_bytes: usize,
    /// Whether values are compressed if they shrink enough.
    pub compress: bool,
    /// Whether threads may be started.
    pub threads: bool,
}

/// The current file.
#[derive(Default)]
struct Current {
    file: Option<Arc<BlobFile>>,
    /// Bytes that may be leased before free space is queried again.
    credit: u64,
}

/// What the store may take of disk and page cache. Relaxed: sizes that order nothing.
struct DiskShares {
    /// Bytes that leases leave free on the disk.
    held_back: AtomicU64,
    /// Whether the sizes have changed since the last lease. Then its credit is void.
    is_new: AtomicBool,
    file_bytes_max: AtomicU64,
    /// Bytes that may still be written through the page cache. Either way of writing is correct.
    page_cache_room: AtomicU64,
}

/// Allocates space in blob files; see the module documentation.
pub(crate) struct BlobStore {
    pub(super) env: Env,
    pub(super) options: StoreOptions,
    pub(super) budget: Arc<MemoryBudget>,
    /// Cache that written values are added to, if they fit.
    pub(crate) cache: Arc<BlobCache>,
    new_file: NewBlobFile,
    /// Id of the process that may write.
    process: u32,
    /// Locked while the next file is created.
    current: Mutex<Current>,
    shares: DiskShares,
    /// Files that may hold data that is not durable. An entry does not keep a file that nothing refers to
    /// any more.
    dirty: Mutex<Vec<Weak<BlobFile>>>,
    spares: Mutex<Vec<AlignedBuf>>,
    /// Bytes written by commits. Relaxed: a statistic.
    written_bytes: AtomicU64,
    /// Outcomes of space allocation and writes.
    pub(crate) outcomes: Outcomes,
    /// Settings of keyspaces with one of their own.
    limits: RwLock<BTreeMap<KeyspaceId, Blobs>>,
    /// The smallest of all minimum sizes; `usize::MAX` if there is none. Relaxed: a hint.
    smallest: AtomicUsize,
}

impl BlobStore {
    /// Creates a store without a file.
    pub(crate) fn new(
        env: Env,
        options: StoreOptions,
        budget: Arc<MemoryBudget>,
        cache: Arc<BlobCache>,
        new_file: NewBlobFile,
    ) -> Arc<BlobStore> {
        let smallest = AtomicUsize::new(options.blobs.limit().unwrap_or(usize::MAX));
        let shares = DiskShares {
            held_back: AtomicU64::new(0),
            is_new: AtomicBool::new(true),
            file_bytes_max: AtomicU64::new(options.file_bytes_max),
            page_cache_room: AtomicU64::new(0),
        };
        let process = env.threads.process_id();
        Arc::new(BlobStore {
            env,
            options,
            budget,
            cache,
            new_file,
            process,
            current: Mutex::default(),
            shares,
            dirty: Mutex::default(),
            spares: Mutex::default(),
            written_bytes: AtomicU64::new(0),
            outcomes: Outcomes::default(),
            limits: RwLock::default(),
            smallest,
        })
    }

    /// Whether values are compressed if they shrink enough.
    pub(crate) fn compresses(&self) -> bool {
        self.options.compress
    }

    /// Returns whether any keyspace stores values of this length in blob files.
    #[inline]
    pub(crate) fn may_take(&self, len: usize) -> bool {
        len >= self.smallest.load(Ordering::Relaxed)
    }

    /// Returns whether a value of this keyspace and length is stored in a blob file.
    pub(crate) fn takes(&self, keyspace: KeyspaceId, len: usize) -> bool {
        self.may_take(len)
            && keyspace != KeyspaceId::CATALOG
            && self.limit(keyspace).is_some_and(|limit| len >= limit)
    }

    /// Returns the minimum size of values of a keyspace stored in blob files. `None` if there are none.
    pub(crate) fn limit(&self, keyspace: KeyspaceId) -> Option<usize> {
        self.limits.read().get(&keyspace).unwrap_or(&self.options.blobs).limit()
    }

    /// Sets which values of a keyspace are stored in blob files, or removes the setting.
    pub(crate) fn set_blobs(&self, keyspace: KeyspaceId, blobs: Option<Blobs>) {
        let mut limits = self.limits.write();
        match blobs {
            Some(blobs) => drop(limits.insert(keyspace, blobs)),
            None => drop(limits.remove(&keyspace)),
        }
        let all = limits.values().chain([&self.options.blobs]);
        let smallest = all.filter_map(|blobs| blobs.limit()).min().unwrap_or(usize::MAX);
        self.smallest.store(smallest, Ordering::Relaxed);
    }

    /// Leases `bytes` bytes of the current file. If `alone`, the lease consists of whole blocks.
    pub(crate) fn lease(&self, bytes: u64, alone: bool) -> Result<(Lease, u64)> {
        self.try_lease(bytes, alone)
            .inspect_err(|error| self.outcomes.failed(error, self.env.clock.monotonic()))
    }

    /// Records the outcome of a write.
    pub(super) fn note(&self, written: Result<()>) -> Result<()> {
        self.outcomes.note(&written, self.env.clock.monotonic());
        written
    }

    fn try_lease(&self, bytes: u64, alone: bool) -> Result<(Lease, u64)> {
        let mut current = self.current.lock();
        let file_bytes_max = self.shares.file_bytes_max.load(Ordering::Relaxed);
        let has_room = |file: &Arc<BlobFile>| file.is_fresh() || file.len() + bytes <= file_bytes_max;
        let file = match current.file.take_if(|file| !has_room(file)) {
            None if current.file.is_some() => current.file.clone(),
            full => {
                full.inspect(|file| file.close());
                None
            }
        };
        let file = file.map_or_else(|| (self.new_file)(), Ok)?;
        current.file = Some(file.clone());
        self.check_room(&mut current.credit, &file, bytes)?;
        Ok(file.lease(bytes, alone))
    }

    /// Fails if the lease would use reserved disk space.
    fn check_room(&self, credit: &mut u64, file: &BlobFile, bytes: u64) -> Result<()> {
        if self.shares.is_new.swap(false, Ordering::Relaxed) {
            *credit = 0;
        }
        let held_back = self.shares.held_back.load(Ordering::Relaxed);
        if held_back > 0 && *credit < bytes {
            let dir = file.path().parent().unwrap_or(file.path());
            let free = self.env.fs.free_bytes(dir).unwrap_or(u64::MAX).saturating_sub(held_back);
            if free < bytes {
                *credit = 0;
                return Err(Error::NoSpace { op: "write", path: file.path().to_path_buf() });
            }
            *credit = bytes + (free / CREDIT_PART).min(CREDIT_BYTES_MAX);
        }
        *credit = credit.saturating_sub(bytes);
        Ok(())
    }

    /// Sets the bytes to leave free, and the size at which a file is full.
    pub(crate) fn hold_back(&self, bytes: u64, file_bytes_max: u64) {
        self.shares.held_back.store(bytes, Ordering::Relaxed);
        self.shares.is_new.store(true, Ordering::Relaxed);
        self.shares.file_bytes_max.store(file_bytes_max.min(self.options.file_bytes_max), Ordering::Relaxed);
    }

    /// Fails in the child of a fork.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Returns whether values are encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        encryption::is_on(&self.env)
    }

    /// Returns whether this process may write.
    pub(super) fn is_ours(&self) -> bool {
        self.env.threads.process_id() == self.process
    }

    /// Returns the unused end of a lease.
    pub(super) fn give_back(&self, file: &BlobFile, from: u64, to: u64) {
        let _current = self.current.lock();
        file.give_back(from, to);
    }

    /// Closes the current file if it is larger than `bytes`.
    pub(crate) fn close_over(&self, bytes: u64) {
        if let Some(file) = self.current.lock().file.take_if(|file| file.len() > bytes) {
            file.close();
        }
    }

    /// Closes the current file, so that it can be collected once its commits are in tables.
    pub(crate) fn close_current(&self) {
        if let Some(file) = self.current.lock().file.take() {
            file.close();
        }
    }

    /// Writes the bytes of a lease through the page cache.
    pub(crate) fn write(&self, file: &Arc<BlobFile>, at: u64, bytes: &[u8]) -> Result<()> {
        self.note(file.write(at, bytes))?;
        self.count(bytes.len() as u64);
        self.note_dirty(file);
        Ok(())
    }

    /// Sets the bytes that may be written through the page cache.
    pub(crate) fn set_page_cache_room(&self, bytes: u64) {
        self.shares.page_cache_room.store(bytes, Ordering::Relaxed);
    }

    /// Writes whole blocks of a lease, through the page cache or directly. See [`BlobFile::write_direct`].
    pub(super) fn write_blocks(&self, file: &BlobFile, at: u64, blocks: &[u8], small: bool) -> Result<()> {
        let less = |room: u64| room.checked_sub(blocks.len() as u64);
        let has_room =
            || self.shares.page_cache_room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if small && has_room() {
            file.write_behind(at, blocks)
        } else {
            file.write_direct(&self.env, at, blocks)
        }
    }

    /// Counts written bytes.
    pub(super) fn count(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes written by commits.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Marks a file that a record is about to point to as dirty (blob_store.2).
    pub(super) fn note_dirty(&self, file: &Arc<BlobFile>) {
        let mut dirty = self.dirty.lock();
        if !dirty.iter().any(|other| std::ptr::eq(other.as_ptr(), &raw const **file)) {
            dirty.push(Arc::downgrade(file));
        }
    }

    /// Returns the files that need a sync.
    pub(crate) fn dirty(&self) -> Vec<Arc<BlobFile>> {
        let mut dirty = self.dirty.lock();
        let files: Vec<_> = dirty.iter().filter_map(Weak::upgrade).filter(|file| file.is_dirty()).collect();
        *dirty = files.iter().map(Arc::downgrade).collect();
        files
    }

    pub(super) fn take_buffer(&self) -> AlignedBuf {
        let spare = self.spares.lock().pop();
        spare.unwrap_or_else(|| AlignedBuf::zeroed(self.options.buffer_bytes))
    }

    pub(super) fn give_buffer(&self, buffer: AlignedBuf) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARES_MAX {
            spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;
    use esker_env::{MemFs, OpenOptions};

    #[test]
    fn small_values_go_through_the_page_cache_as_long_as_it_has_room() {
        let env = Env::with_fs(Arc::new(MemFs::new()));
        let options = StoreOptions {
            blobs: Blobs::Never,
            file_bytes_max: 1 << 20,
            buffer_bytes: 4096,
            compress: false,
            threads: false,
        };
        let budget = MemoryBudget::new(1 << 20);
        let cache = BlobCache::new(&budget, Box::new(|| 0));
        let store = BlobStore::new(env.clone(), options, budget, cache, Box::new(|| unreachable!()));
        let file = BlobFile::create(&env, "file".as_ref(), FileId::new(1)).unwrap();
        let room = || store.shares.page_cache_room.load(Ordering::Relaxed);
        let mut blocks = AlignedBuf::zeroed(4096);
        blocks.fill(7);
        store.set_page_cache_room(10_000);
        for (small, left) in [(true, 5904), (false, 5904), (true, 1808), (true, 1808)] {
            store.write_blocks(&file, 4096, &blocks, small).unwrap();
            assert_eq!(room(), left);
        }
        let written = env.fs.open("file".as_ref(), OpenOptions::read()).unwrap();
        assert_eq!(esker_env::read_range(&*written, 4096, 4096).unwrap(), [7; 4096]);
    }
}
