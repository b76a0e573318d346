//! File descriptors: at most a part of the process's limit is used for files that are read. Others are opened
//! again by their next reader.
//!
//! ```text
//!   ReadFile::get --open?--> File
//!                 `--no----> opened by name, checked --> too many open: least recently used closed
//! ```
//!
//! - A file that is opened again is checked: the footer of a table that was open before, the
//!   header of a blob file. Both keep their names until their last users are gone.
//! - Each reader has its own handle. A file closed here stays open for its current readers.
//!
//! Files that do not belong to the operating system cost no descriptor, and stay open.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use esker_env::{File, FsRef, OpenOptions};
use parking_lot::{Mutex, RwLock};

use crate::types::{Error, Result, memory_only};

/// Part (1 / N) of the process's descriptors that may be used.
const PART: u64 = 2;
/// Number of descriptors that may be used in any case.
const MIN: u64 = 8;
/// Used if the system names no limit.
const UNLIMITED: u64 = 1 << 20;

/// The open files of this process.
static OF_PROCESS: LazyLock<Arc<Descriptors>> = LazyLock::new(|| {
    let max = esker_env::descriptors_max().map_or(UNLIMITED, |max| (max / PART).max(MIN));
    Descriptors::new(max.min(UNLIMITED) as usize)
});

/// The set of open files.
pub(crate) struct Descriptors {
    max: usize,
    /// In the order in which they were opened or last seen in use.
    open: Mutex<VecDeque<Weak<ReadFile>>>,
}

impl Descriptors {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Descriptors { max, open: Mutex::default() })
    }

    /// The set of this process.
    pub(crate) fn of_process() -> Arc<Self> {
        OF_PROCESS.clone()
    }

    /// Records an opened file, and closes others if there are too many.
    fn note(&self, opened: &Arc<ReadFile>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(opened));
        // Each file gets a second chance.
        let mut tries = 2 * open.len();
        while open.len() > self.max && tries > 0 {
            tries -= 1;
            let Some(oldest) = open.pop_front() else { break };
            let Some(file) = oldest.upgrade() else { continue };
            if file.is_used.swap(false, Ordering::Relaxed) {
                open.push_back(oldest);
            } else {
                *file.open.write() = None;
            }
        }
    }
}

/// Checks that a file is the right one.
type Check = Box<dyn Fn(&dyn File) -> Result<()> + Send + Sync>;

/// A file for reading, open or closed.
pub(crate) struct ReadFile {
    fs: FsRef,
    path: PathBuf,
    open: RwLock<Option<Arc<dyn File>>>,
    /// Used since the last check of the set. Relaxed: a hint.
    is_used: AtomicBool,
    check: Check,
    descriptors: Arc<Descriptors>,
}

impl ReadFile {
    /// Wraps a file that is open and has been checked.
    pub(crate) fn open(
        fs: &FsRef,
        path: &Path,
        file: Arc<dyn File>,
        check: Check,
        descriptors: Arc<Descriptors>,
    ) -> Arc<Self> {
        let read = Self::closed(fs, path, check, descriptors);
        *read.open.write() = Some(file.clone());
        read.note(&file);
        read
    }

    /// Wraps a file that its first reader opens.
    pub(crate) fn closed(fs: &FsRef, path: &Path, check: Check, descriptors: Arc<Descriptors>) -> Arc<Self> {
        Arc::new(ReadFile {
            fs: fs.clone(),
            path: path.to_owned(),
            open: RwLock::default(),
            is_used: AtomicBool::new(true),
            check,
            descriptors,
        })
    }

    fn note(self: &Arc<Self>, file: &Arc<dyn File>) {
        // Other files cost no descriptor.
        if file.as_std().is_some() {
            self.descriptors.note(self);
        }
    }

    /// Returns the open file, opening it if needed.
    pub(crate) fn get(self: &Arc<Self>) -> Result<Arc<dyn File>> {
        memory_only::check(&self.path)?;
        if let Some(file) = &*self.open.read() {
            self.is_used.store(true, Ordering::Relaxed);
            return Ok(file.clone());
        }
        let options = OpenOptions::read();
        let file = self.fs.open(&self.path, options).map_err(|e| Error::io("open", &self.path, e))?;
        (self.check)(&*file)?;
        {
            let mut open = self.open.write();
            if let Some(first) = &*open {
                return Ok(first.clone());
            }
            *open = Some(file.clone());
        }
        self.is_used.store(true, Ordering::Relaxed);
        self.note(&file);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use esker_env::{Env, read_range};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "real files, some of which are removed")]
    fn files_beyond_the_limit_are_opened_again_and_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (fs, pool) = (Env::real().fs, Descriptors::new(3));
        let path = |n: u8| dir.path().join(n.to_string());
        let files: Vec<_> = (0..10_u8)
            .map(|n| {
                let file = fs.open(&path(n), OpenOptions::create()).unwrap();
                file.write_all_at(&[n; 50], 0).unwrap();
                let check = move |file: &dyn File| match read_range(file, 10, 40) {
                    Ok(bytes) if bytes == [n; 40] => Ok(()),
                    _ => Err(Error::corrupt("file", "", 0, "another one")),
                };
                ReadFile::open(&fs, &path(n), file, Box::new(check), pool.clone())
            })
            .collect();
        let open = || files.iter().filter(|file| file.open.read().is_some()).count();
        assert_eq!(open(), 3);
        for n in (0..10).chain([0, 0, 5, 0, 6, 0, 7, 0, 8, 0]) {
            let file = files[n].get().unwrap();
            assert_eq!(read_range(&*file, 0, 1).unwrap(), [n as u8]);
            assert_eq!(open(), 3, "{n}");
        }
        assert!(files[0].open.read().is_some(), "it is used again and again");
        let closed = files.iter().position(|file| file.open.read().is_none()).unwrap();
        let reader = files[8].get().unwrap();
        (0..4).for_each(|n| drop(files[n].get().unwrap()));
        assert!(read_range(&*reader, 0, 1).is_ok());
        std::fs::write(path(closed as u8), [77; 50]).unwrap();
        (4..10).for_each(|n| drop(files[n].get()));
        if files[closed].open.read().is_none() {
            assert!(files[closed].get().unwrap_err().is_corrupt());
        }
        std::fs::remove_file(path(9)).unwrap();
        (0..8).for_each(|n| drop(files[n].get()));
        assert!(files[9].open.read().is_some() || matches!(files[9].get(), Err(Error::Io { .. })));
    }
}
