//! A file system that injects faults into another one.
//!
//! ```text
//!   caller --> FaultFs --no rule fires--> inner file system
//!                 `----a rule fires: fail, shorten a write, corrupt a read, delay
//! ```
//!
//! Every call is counted and matched against all rules in order. The first rule that fires decides; later
//! ones still count the call. Rules match an open file by its current name.
//!
//! After [`FaultFs::freeze`] every call fails and none reaches the inner file system, as if the process had
//! died. Locks are kept by the inner file system until their handles drop.

mod file;
mod rule;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use self::file::FaultFile;
pub use self::rule::{FaultAction, FaultRule, OpKind};
use crate::{Clock, Entry, File, FileLock, Fs, FsRef, LockError, OpenOptions, SystemClock};

/// A call on which a rule fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The kind of call.
    pub kind: OpKind,
    /// The file concerned: the new name of a rename; for the sync of a directory, the file whose name was
    /// created, changed or removed last.
    pub path: PathBuf,
    /// The injected fault.
    pub action: FaultAction,
}

/// A file system that injects faults into another. Clones share rules and counts.
#[derive(Clone, Debug)]
pub struct FaultFs {
    inner: FsRef,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    /// The names of recently opened files, updated by renames.
    open: Mutex<Vec<Weak<Mutex<PathBuf>>>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Each rule with the number of matching calls it has seen.
    rules: Vec<(FaultRule, u64)>,
    counts: [u64; OpKind::ALL.len()],
    read_bytes: u64,
    fired: Vec<Fired>,
    /// The file whose name was created, changed or removed last.
    named_last: PathBuf,
    frozen: bool,
    fingerprint: u64,
}

impl FaultFs {
    /// Wraps `inner`, without rules.
    pub fn new(inner: FsRef) -> Self {
        FaultFs { inner, shared: Arc::default() }
    }

    /// Adds a rule, which counts calls from now on.
    pub fn add(&self, rule: FaultRule) {
        self.shared.plan.lock().rules.push((rule, 0));
    }

    /// Returns whether there are rules.
    pub fn has_rules(&self) -> bool {
        !self.shared.plan.lock().rules.is_empty()
    }

    /// Removes all rules. Counts and a freeze stay.
    pub fn clear(&self) {
        self.shared.plan.lock().rules.clear();
    }

    /// Returns the number of calls of this kind, including failed ones.
    pub fn count(&self, kind: OpKind) -> u64 {
        self.shared.plan.lock().counts[kind as usize]
    }

    /// Returns the number of bytes returned by reads.
    pub fn read_bytes(&self) -> u64 {
        self.shared.plan.lock().read_bytes
    }

    /// Returns the number of calls on which a rule fired.
    pub fn fired(&self) -> u64 {
        self.shared.plan.lock().fired.len() as u64
    }

    /// Returns these calls without the first `n`, in order.
    pub fn fired_after(&self, n: u64) -> Vec<Fired> {
        self.shared.plan.lock().fired.iter().skip(n as usize).cloned().collect()
    }

    /// Returns a hash of all calls. Two runs with the same calls in the same order have the same hash.
    pub fn fingerprint(&self) -> u64 {
        self.shared.plan.lock().fingerprint
    }

    /// Makes every later call fail.
    pub fn freeze(&self) {
        self.shared.plan.lock().frozen = true;
    }

    /// Returns whether [`freeze`](Self::freeze) was called.
    pub fn is_frozen(&self) -> bool {
        self.shared.plan.lock().frozen
    }
}

/// A fault that the caller must complete.
enum Partial {
    DoneThenFail(io::ErrorKind),
    LostSync,
    ShortWrite { keep: usize },
    ShortRead { keep: usize },
    CorruptRead { xor: u8, at: usize },
}

impl Plan {
    /// Counts a call on these bytes and returns the fault of the first rule that fires.
    fn decide(&mut self, kind: OpKind, paths: &[&Path], bytes: &Range<u64>) -> Option<FaultAction> {
        self.counts[kind as usize] += 1;
        self.note(kind as u64);
        self.note(bytes.start);
        for path in paths {
            path.as_os_str().as_encoded_bytes().iter().for_each(|byte| self.note(u64::from(*byte)));
        }
        let mut action = None;
        for (rule, seen) in &mut self.rules {
            let text = rule.path_contains.as_deref();
            let on_path = text.is_none_or(|text| paths.iter().any(|path| with_slashes(path).contains(text)));
            let on_file = rule.file.as_ref().is_none_or(|file| paths.contains(&file.as_path()));
            let touches = |of: &Range<u64>| of.start < bytes.end && bytes.start < of.end;
            let on_bytes = rule.bytes.as_ref().is_none_or(touches);
            if !on_path || !on_file || !on_bytes || !rule.ops.contains(&kind) {
                continue;
            }
            *seen += 1;
            if *seen >= rule.nth && *seen - rule.nth < rule.times && action.is_none() {
                action = Some(rule.action);
            }
        }
        let path = || paths.last().map(|path| path.to_path_buf()).unwrap_or_default();
        if matches!(kind, OpKind::Create | OpKind::Link | OpKind::Rename | OpKind::Remove) {
            self.named_last = path();
        }
        if let Some(action) = action {
            let path = if kind == OpKind::SyncDir { self.named_last.clone() } else { path() };
            self.fired.push(Fired { kind, path, action });
        }
        self.frozen |= matches!(action, Some(FaultAction::Freeze { .. }));
        action
    }

    /// Adds a word to the fingerprint: one step of FNV-1a.
    fn note(&mut self, word: u64) {
        self.fingerprint = (self.fingerprint ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    }
}

impl Shared {
    /// Updates the names of open files after a rename.
    fn note_renamed(&self, from: &Path, to: &Path) {
        for path in self.open.lock().iter().filter_map(Weak::upgrade) {
            let mut path = path.lock();
            if *path == from {
                *path = to.to_owned();
            }
        }
    }

    fn check(&self, kind: OpKind, paths: &[&Path]) -> io::Result<Option<Partial>> {
        self.check_bytes(kind, paths, &(0..0))
    }

    /// `bytes` is the range of the file that the call concerns.
    fn check_bytes(&self, kind: OpKind, paths: &[&Path], bytes: &Range<u64>) -> io::Result<Option<Partial>> {
        let action = {
            let mut plan = self.plan.lock();
            if plan.frozen {
                return Err(fault(io::ErrorKind::Other, "frozen", kind, paths));
            }
            plan.decide(kind, paths, bytes)
        };
        match action {
            None => Ok(None),
            Some(FaultAction::Delay(pause)) => {
                SystemClock::new().sleep(pause);
                Ok(None)
            }
            Some(FaultAction::DoneThenFail(error)) if OpKind::CHANGES.contains(&kind) => {
                Ok(Some(Partial::DoneThenFail(error)))
            }
            Some(FaultAction::Fail(error) | FaultAction::DoneThenFail(error)) => {
                Err(fault(error, "injected", kind, paths))
            }
            Some(FaultAction::NoSpace) => Err(fault(io::ErrorKind::StorageFull, "injected", kind, paths)),
            Some(FaultAction::Panic) => panic!("injected panic: {kind:?} {paths:?}"),
            Some(FaultAction::LostSync) if kind == OpKind::SyncData => Ok(Some(Partial::LostSync)),
            Some(FaultAction::ShortWrite { keep } | FaultAction::Freeze { keep })
                if kind == OpKind::Write =>
            {
                Ok(Some(Partial::ShortWrite { keep }))
            }
            Some(FaultAction::LostSync | FaultAction::ShortWrite { .. } | FaultAction::Freeze { .. }) => {
                Err(fault(io::ErrorKind::Other, "injected", kind, paths))
            }
            Some(FaultAction::ShortRead { keep }) => Ok(Some(Partial::ShortRead { keep })),
            Some(FaultAction::CorruptRead { xor, at }) => Ok(Some(Partial::CorruptRead { xor, at })),
        }
    }
}

/// Returns the result of a call that was made.
fn answer<T>(done: T, partial: Option<Partial>, kind: OpKind, paths: &[&Path]) -> io::Result<T> {
    match partial {
        Some(Partial::DoneThenFail(error)) => Err(fault(error, "injected late", kind, paths)),
        _ => Ok(done),
    }
}

fn fault(error: io::ErrorKind, what: &str, kind: OpKind, paths: &[&Path]) -> io::Error {
    let path = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    io::Error::new(error, format!("{what} fault ({error}): {kind:?} {path}"))
}

impl Fs for FaultFs {
    fn hold(&self, dir: &Path, mode: Option<u32>) -> io::Result<Option<FsRef>> {
        self.shared.check(OpKind::Stat, &[dir])?;
        let held = self.inner.hold(dir, mode)?;
        Ok(held.map(|inner| Arc::new(FaultFs { inner, shared: self.shared.clone() }) as FsRef))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let create = options.create || options.create_new;
        let kind = if create { OpKind::Create } else { OpKind::Open };
        let partial = self.shared.check(kind, &[path])?;
        let inner = self.inner.open(path, options)?;
        let inner = answer(inner, partial, kind, &[path])?;
        let path = Arc::new(Mutex::new(path.to_owned()));
        let mut open = self.shared.open.lock();
        open.retain(|path| path.strong_count() > 0);
        open.push(Arc::downgrade(&path));
        Ok(Arc::new(FaultFile::over(inner, &self.shared, path)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::CreateDir, &[path])?;
        self.inner.create_dir_all(path)?;
        answer((), partial, OpKind::CreateDir, &[path])
    }

    fn create_dir_all_as(&self, path: &Path, mode: u32) -> io::Result<()> {
        let partial = self.shared.check(OpKind::CreateDir, &[path])?;
        self.inner.create_dir_all_as(path, mode)?;
        answer((), partial, OpKind::CreateDir, &[path])
    }

    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        let partial = self.shared.check(OpKind::CreateDir, &[path])?;
        self.inner.create_dir(path, mode)?;
        answer((), partial, OpKind::CreateDir, &[path])
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.shared.check(OpKind::List, &[path])?;
        self.inner.list_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Rename, &[from, to])?;
        self.inner.rename(from, to)?;
        self.shared.note_renamed(from, to);
        answer((), partial, OpKind::Rename, &[from, to])
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Rename, &[from, to])?;
        self.inner.rename_new(from, to)?;
        self.shared.note_renamed(from, to);
        answer((), partial, OpKind::Rename, &[from, to])
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Remove, &[path])?;
        self.inner.remove_file(path)?;
        answer((), partial, OpKind::Remove, &[path])
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Link, &[from, to])?;
        self.inner.hard_link(from, to)?;
        answer((), partial, OpKind::Link, &[from, to])
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Rename, &[from, to])?;
        self.inner.rename_dir(from, to)?;
        for path in self.shared.open.lock().iter().filter_map(Weak::upgrade) {
            let mut path = path.lock();
            let inside = path.strip_prefix(from).map(|name| to.join(name));
            if let Ok(inside) = inside {
                *path = inside;
            }
        }
        answer((), partial, OpKind::Rename, &[from, to])
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::Remove, &[path])?;
        self.inner.remove_dir(path)?;
        answer((), partial, OpKind::Remove, &[path])
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let partial = self.shared.check(OpKind::SyncDir, &[path])?;
        self.inner.sync_dir(path)?;
        answer((), partial, OpKind::SyncDir, &[path])
    }

    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.can_sync_dir(path)
    }

    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        self.inner.dir_above(path)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.exists(path)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.entry(path)
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.file_size(path)
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.mode(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.shared.check(OpKind::Stat, &[path])?;
        self.inner.free_bytes(path)
    }

    fn page_cache_room(&self) -> Option<u64> {
        self.inner.page_cache_room()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        self.shared.check(OpKind::Lock, &[path]).map_err(LockError::Io)?;
        self.inner.lock(path)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        self.shared.check(OpKind::Lock, &[path]).map_err(LockError::Io)?;
        self.inner.lock_to_read(path)
    }
}

/// Returns a path as the rules name it, on all systems.
fn with_slashes(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}
