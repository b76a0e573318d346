//! The file system that backups in a store see: objects below the store's URL, other files elsewhere.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Entry, Env, File, FileLock, Fs, FsRef, LockError, OpenOptions};
use parking_lot::Mutex;

use super::BackupStore;
use super::lease::{Lease, LeaseGuard, put_new};
use super::names::{DIRS, Listing, RECORDS, object, split};
use super::pending::{Announced, Complete, Leased, Pending};
use super::reading::{StoredObject, unsupported};

/// Longer new files are put in parts, if they are not records.
const WHOLE_BYTES_MAX: u64 = 64 << 20;

/// Files in a store, and the files of another file system. Clones share their state.
#[derive(Clone, Debug)]
pub(in crate::backup) struct StoreFs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The files elsewhere, the clock and the threads.
    env: Env,
    store: Arc<dyn BackupStore>,
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Files being written.
    pending: HashMap<PathBuf, Arc<Pending>>,
    /// The names that they will get, as far as these are known.
    announced: HashMap<PathBuf, Announced>,
    /// The listings of directories since the call began.
    listings: HashMap<String, Listing>,
    lease: Option<Arc<Lease>>,
}

impl StoreFs {
    pub(in crate::backup) fn new(env: &Env, store: Arc<dyn BackupStore>) -> StoreFs {
        let root = PathBuf::from(store.url());
        StoreFs(Arc::new(Shared { env: env.clone(), store, root, state: Mutex::default() }))
    }

    pub(in crate::backup) fn root(&self) -> &Path {
        &self.0.root
    }

    /// Says which name, in place of another file, a new file of this length will get. It is then uploaded
    /// while it is written.
    pub(in crate::backup) fn announce(&self, file: &Path, name: &Path, len: u64) -> io::Result<()> {
        let (Some(name), Some(lease)) = (self.inside(name), self.0.state.lock().lease.clone()) else {
            return Err(unsupported());
        };
        let (dir, name) = split(&name);
        let announced = Announced { object: object(dir, name, lease.generation), len };
        self.0.state.lock().announced.insert(file.to_owned(), announced);
        Ok(())
    }

    /// Returns the names of void records.
    pub(in crate::backup) fn void_records(&self) -> io::Result<Vec<String>> {
        self.listed(RECORDS, |listing| listing.void.clone())
    }

    /// Removes the objects that newer ones of the same name have replaced.
    pub(in crate::backup) fn remove_replaced(&self, dir: &Path) -> io::Result<()> {
        let leased = self.leased()?;
        let Some(dir) = self.inside(dir) else { return Ok(()) };
        let replaced = self.listed(&dir, |listing| listing.replaced(leased.lease.generation))?;
        for (name, generation) in replaced {
            leased.lease.check()?;
            leased.store.delete(&object(&dir, &name, generation))?;
            self.change(&dir, |listing| listing.remove(&name, generation));
        }
        Ok(())
    }

    /// Ends the changes of a call. Files without a name are removed.
    pub(super) fn end_changes(&self) {
        let ended = std::mem::take(&mut *self.0.state.lock());
        drop(ended);
    }

    /// Returns the path in the store, which is empty for its root. `None` for files elsewhere.
    fn inside(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(&self.0.root).ok()?;
        let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
        Some(parts.join("/"))
    }

    fn elsewhere(&self) -> &dyn Fs {
        &*self.0.env.fs
    }

    fn leased(&self) -> io::Result<Leased> {
        let lease = self.0.state.lock().lease.clone();
        let lease = lease.ok_or_else(|| io::Error::other("the backups are not locked"))?;
        Ok(Leased { store: self.0.store.clone(), lease })
    }

    /// Looks into the listing of a directory.
    fn listed<T>(&self, dir: &str, look: impl FnOnce(&Listing) -> T) -> io::Result<T> {
        if let Some(listing) = self.0.state.lock().listings.get(dir) {
            return Ok(look(listing));
        }
        let listing = Listing::new(dir, self.0.store.list(dir)?);
        let found = look(&listing);
        self.0.state.lock().listings.insert(dir.to_owned(), listing);
        Ok(found)
    }

    fn change(&self, dir: &str, change: impl FnOnce(&mut Listing)) {
        if let Some(listing) = self.0.state.lock().listings.get_mut(dir) {
            change(listing);
        }
    }

    /// Returns the generation and the size of a file.
    fn find(&self, path: &str) -> io::Result<Option<(u64, u64)>> {
        let (dir, name) = split(path);
        self.listed(dir, |listing| listing.newest(name))
    }

    fn find_existing(&self, path: &str) -> io::Result<(String, u64)> {
        let (generation, size) = self.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let (dir, name) = split(path);
        Ok((object(dir, name, generation), size))
    }

    /// Gives a written file its name, durably. A new file gets the plain name.
    fn name(&self, from: &Path, to: &Path, is_new: bool) -> io::Result<()> {
        let to = self.inside(to).ok_or_else(unsupported)?;
        let leased = self.leased()?;
        leased.lease.check()?;
        let pending = self.0.state.lock().pending.remove(from).ok_or(io::ErrorKind::NotFound)?;
        let (dir, name) = split(&to);
        if is_new && self.find(&to)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let generation = if is_new { 0 } else { leased.lease.generation };
        let named = object(dir, name, generation);
        let len = pending.len()?;
        match pending.complete()? {
            Complete::Uploaded { mut upload, len } => upload.complete(len)?,
            Complete::Bytes(bytes) if is_new => self.put_new(&leased, dir, &named, bytes)?,
            Complete::Bytes(bytes) => leased.store.put(&named, bytes)?,
            Complete::Spooled { spool, len } if is_new && (dir == RECORDS || len <= WHOLE_BYTES_MAX) => {
                self.put_new(&leased, dir, &named, spool.read(0, len as usize)?)?;
            }
            // The listing has shown that there is none. A concurrent holder of an older lease could only put
            // the same commits.
            Complete::Spooled { spool, len } => spool.upload(&leased, &named, len)?,
        }
        self.change(dir, |listing| listing.insert(name, generation, len));
        Ok(())
    }

    /// Puts a new file. A record whose outcome stays unknown is voided (backup_store.2).
    fn put_new(&self, leased: &Leased, dir: &str, object: &str, bytes: Vec<u8>) -> io::Result<()> {
        let error = match put_new(&*leased.store, object, bytes.clone()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let text = "another process has put the object, or voided the record: begin again";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            Err(e) if dir == RECORDS => e,
            done => return done,
        };
        match leased.store.put_new(object, Vec::new()) {
            Ok(()) => Err(error),
            Err(_) => match leased.store.read(object, None) {
                Ok(found) if found == bytes => Ok(()),
                Ok(_) => Err(error),
                Err(_) => {
                    leased.lease.leave_unsettled();
                    Err(error)
                }
            },
        }
    }
}

impl Fs for StoreFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let Some(inside) = self.inside(path) else { return self.elsewhere().open(path, options) };
        if options.create_new || options.truncate {
            let announced = self.0.state.lock().announced.remove(path);
            let target = announced.map(|announced| Ok::<_, io::Error>((self.leased()?, announced)));
            let pending = Arc::new(Pending::new(&self.0.env, target.transpose()?));
            self.0.state.lock().pending.insert(path.to_owned(), pending.clone());
            return Ok(pending);
        }
        if options.write || options.create {
            return Err(unsupported());
        }
        let (object, size) = self.find_existing(&inside)?;
        Ok(Arc::new(StoredObject::new(self.0.store.clone(), object, size)))
    }

    fn hold(&self, dir: &Path, mode: Option<u32>) -> io::Result<Option<FsRef>> {
        if self.inside(dir).is_none() {
            return Ok(Some(self.elsewhere().hold(dir, mode)?.unwrap_or_else(|| self.0.env.fs.clone())));
        }
        // A call begins.
        self.0.state.lock().listings.clear();
        Ok(None)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if self.inside(path).is_some() { Ok(()) } else { self.elsewhere().create_dir_all(path) }
    }

    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        if self.inside(path).is_some() { Ok(()) } else { self.elsewhere().create_dir(path, mode) }
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let Some(dir) = self.inside(path) else { return self.elsewhere().list_dir(path) };
        self.listed(&dir, |listing| listing.names().chain(&listing.dirs).cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.inside(from).is_none() {
            return self.elsewhere().rename(from, to);
        }
        self.name(from, to, false)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.inside(from).is_none() {
            return self.elsewhere().rename_new(from, to);
        }
        self.name(from, to, true)
    }

    /// Removes the generations up to that of the lease (backup_store.1).
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some(inside) = self.inside(path) else { return self.elsewhere().remove_file(path) };
        if self.0.state.lock().pending.remove(path).is_some() {
            return Ok(());
        }
        let leased = self.leased()?;
        let (dir, name) = split(&inside);
        let generations = self.listed(dir, |listing| listing.generations(name, leased.lease.generation))?;
        for generation in generations {
            leased.lease.check()?;
            leased.store.delete(&object(dir, name, generation))?;
            self.change(dir, |listing| listing.remove(name, generation));
        }
        Ok(())
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.elsewhere().rename_dir(from, to)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.elsewhere().remove_dir(path)
    }

    /// Does nothing in the store: a named object is durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.inside(path).is_some() { Ok(()) } else { self.elsewhere().sync_dir(path) }
    }

    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        self.elsewhere().dir_above(path)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        if self.inside(path).is_some() { Ok(path.to_owned()) } else { self.elsewhere().absolute(path) }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.entry(path)?.is_some())
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let Some(inside) = self.inside(path) else { return self.elsewhere().entry(path) };
        if inside.is_empty() || DIRS.contains(&&*inside) {
            return Ok(Some(Entry::Dir));
        }
        Ok(self.find(&inside)?.map(|(_, len)| Entry::File { len, names: 1 }))
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        let Some(inside) = self.inside(path) else { return self.elsewhere().file_size(path) };
        Ok(self.find_existing(&inside)?.1)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        if self.inside(path).is_some() { Ok(u64::MAX) } else { self.elsewhere().free_bytes(path) }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        if self.inside(path).is_none() {
            return self.elsewhere().lock(path);
        }
        let lease = Arc::new(Lease::take(&self.0.env, &self.0.store, path)?);
        let guard = LeaseGuard::new(self.clone(), lease.clone()).map_err(LockError::Io)?;
        let mut state = self.0.state.lock();
        state.listings.clear();
        state.lease = Some(lease);
        Ok(Box::new(guard))
    }

    /// Readers take no lease: they need no right to write.
    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        if self.inside(path).is_some() { Ok(None) } else { self.elsewhere().lock_to_read(path) }
    }
}
