//! An in-memory file system that simulates crashes: unsynced bytes and names may be lost.
//!
//! ```text
//!   MemFs --path--> names.rs --InodeRef--> inode.rs --bytes--> pages.rs
//!         --crash(seed)--> another MemFs: a possible disk state after power loss
//! ```
//!
//! - Operations and crashes are atomic: operations hold the state shared or exclusively, a crash holds it
//!   exclusively.
//! - A direct file accepts only aligned offsets, lengths and buffers. Anything else is a bug and panics.
//!
//! The result of a crash depends only on the operations and the seed. The total length of all reachable files
//! never exceeds the capacity.
//!
//! Lock order: the state, then one inode.

mod file;
mod inode;
mod lock;
mod names;
mod observer;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use parking_lot::{Mutex, RwLock};

use self::file::MemFile;
use self::inode::Inode;
use self::lock::MemLock;
use self::names::{InodeRef, Names};
use self::observer::Settings;
pub use self::observer::{Observer, Written};
use self::pages::Pages;
use crate::process::process_id;
use crate::{Entry, File, FileLock, Fs, LockError, OpenOptions};

/// Longer files are refused, because their page table alone would exhaust memory.
const LEN_MAX: u64 = 1 << 38;
/// The reported room of the page cache: enough for the tables of small databases with little memory.
const PAGE_CACHE_ROOM: u64 = (1 << 20) + (64 << 10);

/// A file system in memory. Clones share their files. Relative paths start at the root.
#[derive(Clone)]
pub struct MemFs(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    /// Bytes of all reachable files. Relaxed: the four counters are independent of other memory.
    used: AtomicU64,
    capacity: AtomicU64,
    ops: AtomicU64,
    refusals: AtomicU64,
    /// Syncs that do nothing, as bits of [`BrokenSync`].
    broken: AtomicU8,
    /// Whether a crash may replace lost bytes by noise.
    noisy: AtomicBool,
    /// Whether direct I/O, long reads, space reservation and hard links are unavailable.
    plain: AtomicBool,
    observer: OnceLock<Observer>,
}

/// A sync that is broken on purpose, to check that crash tests notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenSync {
    /// `File::sync_data` succeeds without effect.
    Data = 1,
    /// `Fs::sync_dir` succeeds without effect.
    Dir = 2,
}

#[derive(Default)]
struct State {
    names: Names,
    /// Locked paths. A number is that of the shared holders.
    locks: BTreeMap<PathBuf, Option<usize>>,
}

/// How much unsynced state a crash keeps.
enum Crash {
    Strict,
    KeepAll,
    /// Each change is kept or lost at random. Blocks never written contain zeros, or with `old` noise or
    /// bytes of these files.
    Random {
        rng: Rng,
        old: Option<Vec<Pages>>,
    },
}

impl MemFs {
    /// Returns an empty file system without a capacity limit.
    pub fn new() -> Self {
        Self::with_state(State::default(), 0, Settings::default())
    }

    fn with_state(state: State, used: u64, settings: Settings) -> Self {
        let Settings { capacity, broken, noisy, plain, observer } = settings;
        MemFs(Arc::new(Shared {
            state: RwLock::new(state),
            used: AtomicU64::new(used),
            capacity: AtomicU64::new(capacity),
            ops: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            broken: AtomicU8::new(broken),
            noisy: AtomicBool::new(noisy),
            plain: AtomicBool::new(plain),
            observer,
        }))
    }

    /// Returns a possible disk state after a power loss now, chosen by `seed`. This file system does not
    /// change.
    ///
    /// Everything synced is present. Each other write is kept, lost, or torn at sectors of 512 or 4096 bytes.
    /// A prefix of the length changes of a file survives. Operations on names survive as a prefix, or as a
    /// subset that respects the order on each name. No lock is held in the result.
    pub fn crash(&self, seed: u64) -> MemFs {
        let contents =
            || self.0.state.read().names.files().map(|inode| inode.lock().current().clone()).collect();
        let old = self.0.noisy.load(Ordering::Relaxed).then(contents);
        self.crash_as(Crash::Random { rng: Rng::with_seed(seed), old })
    }

    /// Returns the state that contains only what was synced.
    pub fn crash_strict(&self) -> MemFs {
        self.crash_as(Crash::Strict)
    }

    /// Returns the state that contains everything, all of it durable.
    pub fn crash_keep_all(&self) -> MemFs {
        self.crash_as(Crash::KeepAll)
    }

    fn crash_as(&self, mut crash: Crash) -> MemFs {
        let state = self.0.state.write();
        let (dirs, survivors) = state.names.crash(&mut crash);
        let mut used = 0;
        let mut files = BTreeMap::new();
        let mut left: HashMap<*const Mutex<Inode>, InodeRef> = HashMap::new();
        for (path, inode) in survivors {
            if let Some(linked) = left.get(&Arc::as_ptr(&inode)) {
                linked.lock().links += 1;
                files.insert(path, linked.clone());
                continue;
            }
            let bytes = inode.lock().crash(&mut crash);
            used += bytes.len();
            let file = Arc::new(Mutex::new(Inode::durable(bytes)));
            left.insert(Arc::as_ptr(&inode), file.clone());
            files.insert(path, file);
        }
        let names = Names::durable(dirs, files);
        Self::with_state(State { names, locks: BTreeMap::new() }, used, self.settings())
    }

    /// Creates a directory as another program would: until its parent is synced, a crash may lose it and
    /// everything below it.
    pub fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.0.count_op();
        self.0.state.write().names.make_dir(clean(path))
    }

    /// Makes these syncs do nothing, here and in copies made by crashes.
    pub fn break_syncs(&self, which: BrokenSync) {
        self.0.broken.fetch_or(which as u8, Ordering::Relaxed);
    }

    /// Makes lost bytes of a kept length, in one file of four, noise or bytes of another file instead of
    /// zeros. Applies here and in copies made by crashes.
    pub fn leave_noise(&self) {
        self.0.noisy.store(true, Ordering::Relaxed);
    }

    /// Makes this file system and copies made by crashes plain: no direct I/O, reads of at most a thousand
    /// bytes, no space reservation, no hard links.
    pub fn be_plain(&self) {
        self.0.plain.store(true, Ordering::Relaxed);
    }

    /// Returns what the next process finds if this one is killed now: everything, but unsynced state can
    /// still be lost to a power loss. The two file systems share nothing. No lock is held in the result.
    pub fn kill(&self) -> MemFs {
        let state = self.0.state.write();
        let mut copies = HashMap::new();
        let names = state.names.copy(|inode| {
            let copy = || Arc::new(Mutex::new(inode.lock().without_handles()));
            copies.entry(Arc::as_ptr(inode)).or_insert_with(copy).clone()
        });
        let used = names.files().map(|inode| inode.lock().current().len()).sum();
        Self::with_state(State { names, locks: BTreeMap::new() }, used, self.settings())
    }

    /// Kills as above, and then silently fails to write some unsynced bytes of half of the files. These bytes
    /// count as clean, so no later sync writes them. Readers still see them, or, with `evicted`, the state on
    /// disk; this includes bytes forgotten by an earlier failed sync.
    pub fn kill_unheard(&self, seed: u64, evicted: bool) -> MemFs {
        let killed = self.kill();
        let mut rng = Rng::with_seed(seed);
        // Ordered by name, so that the result is deterministic.
        for inode in killed.0.state.read().names.files() {
            let (fails, own) = (rng.bool(), rng.u64(..));
            if fails {
                inode.lock().fail_writeback(own, evicted);
            }
        }
        killed
    }

    /// Limits the total bytes of all files. A write beyond the limit writes what fits and fails with
    /// `StorageFull`. `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.capacity.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the bytes of all files that are reachable by name or by an open handle.
    pub fn used_bytes(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that failed for lack of space.
    pub fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Relaxed)
    }

    /// Returns the number of operations that could change the result of a crash: writes, length changes,
    /// syncs, and changes of names.
    pub fn ops(&self) -> u64 {
        self.0.ops.load(Ordering::Relaxed)
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemFs({} bytes, {} operations)", self.used_bytes(), self.ops())
    }
}

impl Shared {
    fn is_broken(&self, which: BrokenSync) -> bool {
        self.broken.load(Ordering::Relaxed) & which as u8 != 0
    }

    fn count_op(&self) {
        self.ops.fetch_add(1, Ordering::Relaxed);
    }

    /// Reserves space for a file to grow from `old` to `new`. Returns the length that fits.
    fn reserve(&self, old: u64, new: u64) -> u64 {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let mut taken = 0;
        let update = |used: u64| {
            taken = (new - old).min(capacity.saturating_sub(used));
            Some(used + taken)
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .expect("the update always answers");
        old + taken
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Fails for lack of space.
    fn refuse<T>(&self) -> io::Result<T> {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Releases a file's space once it is unreachable, although a crash may bring it back.
    fn release_if_unreachable(&self, inode: &Inode) {
        if inode.links == 0 && inode.handles == 0 {
            self.release(inode.current().len());
        }
    }

    fn unlink(&self, inode: Option<InodeRef>) {
        if let Some(inode) = inode {
            let mut inode = inode.lock();
            inode.links -= 1;
            self.release_if_unreachable(&inode);
        }
    }

    fn set_len(&self, inode: &mut Inode, len: u64) -> io::Result<()> {
        let old = inode.current().len();
        if len > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if len > old {
            let fits = self.reserve(old, len);
            if fits < len {
                self.release(fits - old);
                return self.refuse();
            }
        } else {
            self.release(old - len);
        }
        inode.set_len(len);
        Ok(())
    }
}

/// Removes a leading "."; paths compare by component.
fn clean(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

impl Fs for MemFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let path = clean(path);
        let create = options.create || options.create_new;
        let mut state = self.0.state.write();
        if state.names.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let inode = match state.names.get(path) {
            Some(_) if options.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(inode) => inode.clone(),
            None if create => {
                let inode = Arc::new(Mutex::new(Inode::durable(Pages::default())));
                state.names.create(path, inode.clone())?;
                self.0.count_op();
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut body = inode.lock();
        if options.truncate && body.current().len() > 0 {
            self.0.count_op();
            self.0.set_len(&mut body, 0)?;
        }
        body.handles += 1;
        drop(body);
        let writable = options.write || create || options.truncate;
        let direct = options.direct && !self.0.plain.load(Ordering::Relaxed);
        let path = self.0.observer.get().map(|_| path.into());
        Ok(Arc::new(MemFile { shared: self.0.clone(), inode, path, writable, direct }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.count_op();
        self.0.state.write().names.create_dir_all(clean(path))
    }

    fn create_dir(&self, path: &Path, _mode: Option<u32>) -> io::Result<()> {
        let path = clean(path);
        let mut state = self.0.state.write();
        self.0.count_op();
        state.names.check_free(path)?;
        state.names.create_dir_all(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.state.read().names.list(clean(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.state.write();
        self.0.count_op();
        self.0.unlink(state.names.rename(clean(from), clean(to))?);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.state.write();
        self.0.count_op();
        state.names.check_free(clean(to))?;
        state.names.rename(clean(from), clean(to)).map(drop)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.state.write();
        self.0.count_op();
        self.0.unlink(state.names.remove(clean(path))?);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.0.plain.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut state = self.0.state.write();
        self.0.count_op();
        state.names.link(clean(from), clean(to))?.lock().links += 1;
        Ok(())
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.state.write();
        self.0.count_op();
        state.names.rename_dir(clean(from), clean(to))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.state.write();
        self.0.count_op();
        state.names.remove_dir(clean(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.count_op();
        if self.0.is_broken(BrokenSync::Dir) {
            return Ok(());
        }
        self.0.state.write().names.sync_dir(clean(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = clean(path);
        let state = self.0.state.read();
        Ok(state.names.get(path).is_some() || state.names.is_dir(path))
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let path = clean(path);
        let state = self.0.state.read();
        let file = |inode: &InodeRef| {
            let inode = inode.lock();
            Entry::File { len: inode.current().len(), names: inode.links.into() }
        };
        Ok(state.names.get(path).map(file).or(state.names.is_dir(path).then_some(Entry::Dir)))
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        let state = self.0.state.read();
        let inode = state.names.get(clean(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(inode.lock().current().len())
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        let capacity = self.0.capacity.load(Ordering::Relaxed);
        Ok(if capacity == u64::MAX { u64::MAX } else { capacity.saturating_sub(self.used_bytes()) })
    }

    fn page_cache_room(&self) -> Option<u64> {
        Some(PAGE_CACHE_ROOM)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        let path = clean(path);
        let pid = process_id();
        let file = self.open(path, OpenOptions { create: true, ..OpenOptions::write() });
        let file = file.map_err(LockError::Io)?;
        match self.0.state.write().locks.entry(path.to_owned()) {
            Occupied(held) => {
                let pid = held.get().is_none().then_some(pid);
                return Err(LockError::Held { path: path.to_owned(), pid });
            }
            Vacant(free) => drop(free.insert(None)),
        }
        let lock = MemLock { shared: self.0.clone(), path: path.to_owned() };
        // As in the real file system, the id is optional: a full disk is no reason to refuse the lock.
        let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{pid}\n").as_bytes(), 0));
        Ok(Box::new(lock))
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        let path = clean(path);
        let mut state = self.0.state.write();
        if state.names.get(path).is_none() {
            return Ok(None);
        }
        match state.locks.entry(path.to_owned()).or_insert(Some(0)) {
            None => return Err(LockError::Held { path: path.to_owned(), pid: Some(process_id()) }),
            Some(holders) => *holders += 1,
        }
        Ok(Some(Box::new(MemLock { shared: self.0.clone(), path: path.to_owned() })))
    }
}
