//! A layer over the real file system that records all changes of one directory.
//!
//! ```text
//!   engine --Fs--> RecordFs --> real files
//!                     `-------> Trace
//! ```
//!
//! Changes of names and lengths happen under the lock of the trace, so their order in the trace is the real
//! one. Writes and syncs do not hold it. Only flat directories are supported; anything else panics.
//! A sync of the parent directory is not recorded, because only a sync of this directory makes its names
//! durable.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{File, FileLock, Fs, LockError, OpenOptions, RealFs};
use parking_lot::Mutex;

use super::Canary;
use super::disk::Disk;
use super::trace::{FileNo, Step};
use crate::writers::WriterEvent;

/// The layer. Clones share the trace.
#[derive(Clone, Debug)]
pub(crate) struct RecordFs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: RealFs,
    dir: PathBuf,
    canary: Option<Canary>,
    trace: Mutex<Trace>,
}

#[derive(Debug)]
struct Trace {
    /// Position of the first step.
    first: usize,
    steps: Vec<Step>,
    names: BTreeMap<String, FileNo>,
    next_file: FileNo,
}

impl Trace {
    fn position(&self) -> usize {
        self.first + self.steps.len()
    }
}

impl RecordFs {
    /// Records changes in `dir`, which contains the current files of `disk`.
    pub(crate) fn new(dir: &Path, disk: &Disk, canary: Option<Canary>) -> Self {
        let (names, next_file) = (disk.names().clone(), disk.next_file());
        let trace = Mutex::new(Trace { first: disk.at(), steps: Vec::new(), names, next_file });
        RecordFs(Arc::new(Shared { inner: RealFs::new(), dir: dir.to_owned(), canary, trace }))
    }

    /// Records a report of a writer.
    pub(crate) fn say(&self, said: WriterEvent) {
        self.0.trace.lock().steps.push(Step::WriterEvent(said));
    }

    /// Returns the steps since the last call.
    pub(crate) fn take(&self) -> Vec<Step> {
        let mut trace = self.0.trace.lock();
        let steps = std::mem::take(&mut trace.steps);
        trace.first += steps.len();
        steps
    }

    fn name(&self, path: &Path) -> String {
        let name = path.strip_prefix(&self.0.dir).ok().and_then(Path::to_str);
        let name = name.filter(|name| !name.is_empty() && !name.contains('/'));
        name.unwrap_or_else(|| panic!("{}", path.display())).to_owned()
    }

    /// Returns the file with a name, creating it if necessary.
    fn file(trace: &mut Trace, name: String) -> FileNo {
        if let Some(file) = trace.names.get(&name) {
            return *file;
        }
        let file = trace.next_file;
        trace.next_file += 1;
        trace.names.insert(name.clone(), file);
        trace.steps.push(Step::Create { file, name });
        file
    }
}

impl Fs for RecordFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let name = self.name(path);
        let mut trace = self.0.trace.lock();
        let inner = self.0.inner.open(path, options)?;
        let existed = trace.names.contains_key(&name);
        let file = Self::file(&mut trace, name);
        if options.truncate && existed {
            trace.steps.push(Step::SetLen { file, len: 0 });
        }
        drop(trace);
        Ok(Arc::new(RecordFile { shared: self.0.clone(), file, inner }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        assert!(path == self.0.dir, "{}", path.display());
        self.0.inner.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.inner.list_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut trace = self.0.trace.lock();
        self.0.inner.rename(from, to)?;
        let (from, to) = (self.name(from), self.name(to));
        if let Some(file) = trace.names.remove(&from) {
            trace.names.insert(to.clone(), file);
        }
        trace.steps.push(Step::Rename { from, to });
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut trace = self.0.trace.lock();
        self.0.inner.remove_file(path)?;
        let name = self.name(path);
        trace.names.remove(&name);
        trace.steps.push(Step::Remove { name });
        Ok(())
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let began = self.0.trace.lock().position();
        self.0.inner.sync_dir(path)?;
        if path == self.0.dir && self.0.canary != Some(Canary::SyncDir) {
            self.0.trace.lock().steps.push(Step::SyncDir { began });
        }
        Ok(())
    }
    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        self.0.inner.dir_above(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.inner.exists(path)
    }
    fn file_size(&self, path: &Path) -> io::Result<u64> {
        self.0.inner.file_size(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.inner.free_bytes(path)
    }
    /// The content of the lock file is not recorded.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        let mut trace = self.0.trace.lock();
        let lock = self.0.inner.lock(path)?;
        Self::file(&mut trace, self.name(path));
        Ok(lock)
    }
}

#[derive(Debug)]
struct RecordFile {
    shared: Arc<Shared>,
    file: FileNo,
    inner: Arc<dyn File>,
}

impl File for RecordFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)?;
        let step = Step::Write { file: self.file, offset, bytes: buf.to_vec() };
        self.shared.trace.lock().steps.push(step);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        let began = self.shared.trace.lock().position();
        self.inner.sync_data()?;
        if self.shared.canary != Some(Canary::SyncFile) {
            self.shared.trace.lock().steps.push(Step::SyncFile { file: self.file, began });
        }
        Ok(())
    }
    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.start_writeback(offset, len)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut trace = self.shared.trace.lock();
        self.inner.set_len(len)?;
        trace.steps.push(Step::SetLen { file: self.file, len });
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut trace = self.shared.trace.lock();
        self.inner.allocate(offset, len)?;
        trace.steps.push(Step::SetLen { file: self.file, len: self.inner.len()? });
        Ok(())
    }
    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.drop_cache(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sync_of_the_directory_itself_is_one() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("db");
        let fs = RecordFs::new(&dir, &Disk::default(), None);
        fs.create_dir_all(&dir).unwrap();
        fs.open(&dir.join("a"), OpenOptions::create_new()).unwrap();
        let is_synced = || fs.take().iter().any(|step| matches!(step, Step::SyncDir { .. }));
        fs.sync_dir(parent.path()).unwrap();
        assert!(!is_synced());
        fs.sync_dir(&dir).unwrap();
        assert!(is_synced());
    }
}
