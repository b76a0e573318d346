//! A file system whose changes to one directory stay in memory.
//!
//! ```text
//!   OverlayFs --name in the directory--> LayeredFile: changed pages, above the file below | the file below
//!        `------any other path---------> the file system below
//! ```
//!
//! overlay.1. Nothing in the directory below is changed: its files are opened for reading only.
//!
//! - A frozen directory consists of the files that it was given. They stay as readable as their
//!   descriptors are, whatever becomes of their names below.
//!
//! A handle that was opened for reading before the first change of its file does not show the change.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::file::LayeredFile;
use crate::{Entry, File, FileLock, Fs, FsRef, LockError, OpenOptions};

/// A directory with changes in memory, in another file system.
#[derive(Debug)]
pub struct OverlayFs {
    below: FsRef,
    dir: PathBuf,
    /// Whether names that are not in `names` are absent, although they may exist below.
    is_frozen: bool,
    names: Mutex<BTreeMap<PathBuf, Name>>,
}

/// What a name in the directory refers to.
#[derive(Clone, Debug)]
enum Name {
    /// An unchanged file.
    Below(Arc<dyn File>),
    /// A changed or new file.
    Changed(Arc<LayeredFile>),
    /// Nothing: the file was removed.
    Removed,
}

/// The lock of a directory that no other process sees.
#[derive(Debug)]
struct PrivateLock;

impl FileLock for PrivateLock {}

impl OverlayFs {
    /// Lays a directory in memory over `dir`.
    pub fn new(below: FsRef, dir: &Path) -> OverlayFs {
        OverlayFs { below, dir: dir.to_owned(), is_frozen: false, names: Mutex::default() }
    }

    /// Returns an empty directory in memory in place of `dir`.
    pub fn frozen(below: FsRef, dir: &Path) -> OverlayFs {
        OverlayFs { is_frozen: true, ..Self::new(below, dir) }
    }

    /// Adds an open file to the directory, which is to be read under this name.
    pub fn add(&self, name: &str, file: Arc<dyn File>) {
        self.names.lock().insert(name.into(), Name::Below(file));
    }

    /// Returns the path relative to the directory, if it lies in it.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.dir).ok().filter(|name| !name.as_os_str().is_empty())
    }

    fn is_dir(&self, path: &Path) -> bool {
        path == self.dir
    }

    /// Returns what a name refers to. `names` is locked.
    fn find(&self, names: &BTreeMap<PathBuf, Name>, name: &Path, direct: bool) -> io::Result<Option<Name>> {
        match names.get(name) {
            Some(Name::Removed) => return Ok(None),
            Some(found) => return Ok(Some(found.clone())),
            None if self.is_frozen => return Ok(None),
            None => {}
        }
        match self.below.open(&self.dir.join(name), OpenOptions { direct, ..OpenOptions::read() }) {
            Ok(file) => Ok(Some(Name::Below(file))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn move_name(&self, from: &Path, to: &Path, replaces: bool) -> io::Result<()> {
        let (Some(old), Some(new)) = (self.name(from), self.name(to)) else {
            return Err(io::ErrorKind::CrossesDevices.into());
        };
        let mut names = self.names.lock();
        let found = self.find(&names, old, false)?.ok_or(io::ErrorKind::NotFound)?;
        if !replaces && self.find(&names, new, false)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        names.insert(old.to_owned(), Name::Removed);
        names.insert(new.to_owned(), found);
        Ok(())
    }
}

impl Fs for OverlayFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let Some(name) = self.name(path) else { return self.below.open(path, options) };
        let is_reading = options == OpenOptions { direct: options.direct, ..OpenOptions::read() };
        let mut names = self.names.lock();
        let file = match self.find(&names, name, options.direct && is_reading)? {
            Some(_) if options.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(Name::Below(file)) if is_reading => return Ok(file),
            Some(Name::Below(file)) => Arc::new(LayeredFile::over(file)?),
            Some(Name::Changed(file)) => file,
            Some(Name::Removed) | None if !options.create => return Err(io::ErrorKind::NotFound.into()),
            Some(Name::Removed) | None => Arc::default(),
        };
        names.insert(name.to_owned(), Name::Changed(file.clone()));
        drop(names);
        if options.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) { Ok(()) } else { self.below.create_dir_all(path) }
    }

    fn create_dir_all_as(&self, path: &Path, mode: u32) -> io::Result<()> {
        if self.is_dir(path) { Ok(()) } else { self.below.create_dir_all_as(path, mode) }
    }

    fn create_dir(&self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        self.below.create_dir(path, mode)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        if !self.is_dir(path) {
            return self.below.list_dir(path);
        }
        let below = if self.is_frozen { Vec::new() } else { self.below.list_dir(path)? };
        let mut all: BTreeSet<String> = below.into_iter().collect();
        for (name, is) in &*self.names.lock() {
            let name = name.to_string_lossy().into_owned();
            match is {
                Name::Removed => drop(all.remove(&name)),
                Name::Below(_) | Name::Changed(_) => drop(all.insert(name)),
            }
        }
        Ok(all.into_iter().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.name(from), self.name(to)) {
            (None, None) => self.below.rename(from, to),
            _ => self.move_name(from, to, true),
        }
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.name(from), self.name(to)) {
            (None, None) => self.below.rename_new(from, to),
            _ => self.move_name(from, to, false),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Some(name) = self.name(path) else { return self.below.remove_file(path) };
        let mut names = self.names.lock();
        self.find(&names, name, false)?.ok_or(io::ErrorKind::NotFound)?;
        names.insert(name.to_owned(), Name::Removed);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.name(from), self.name(to)) {
            (None, None) => self.below.hard_link(from, to),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.is_dir(from) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.below.rename_dir(from, to)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.below.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) { Ok(()) } else { self.below.sync_dir(path) }
    }

    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) { Ok(()) } else { self.below.can_sync_dir(path) }
    }

    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        self.below.dir_above(path)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.below.absolute(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let Some(name) = self.name(path) else { return self.below.exists(path) };
        match self.names.lock().get(name) {
            Some(Name::Removed) => Ok(false),
            Some(_) => Ok(true),
            None => Ok(!self.is_frozen && self.below.exists(path)?),
        }
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let Some(name) = self.name(path) else { return self.below.entry(path) };
        let len = match self.names.lock().get(name) {
            Some(Name::Below(file)) => file.len()?,
            Some(Name::Changed(file)) => file.len()?,
            Some(Name::Removed) => return Ok(None),
            None if self.is_frozen => return Ok(None),
            None => return self.below.entry(path),
        };
        Ok(Some(Entry::File { len, names: 1 }))
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        if self.name(path).is_none() {
            return self.below.file_size(path);
        }
        match self.entry(path)? {
            Some(Entry::File { len, .. }) => Ok(len),
            Some(_) => self.below.file_size(path),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        self.below.mode(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        if self.is_dir(path) { Ok(u64::MAX) } else { self.below.free_bytes(path) }
    }

    fn page_cache_room(&self) -> Option<u64> {
        self.below.page_cache_room()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        match self.name(path) {
            Some(_) => Ok(Box::new(PrivateLock)),
            None => self.below.lock(path),
        }
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        if self.name(path).is_some() { Ok(None) } else { self.below.lock_to_read(path) }
    }
}
