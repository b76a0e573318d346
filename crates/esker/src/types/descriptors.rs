//! Descriptors of files that are read: no more than a part of what the process may have are open; others are opened by who reads.
//!
//! ```text
//!   ReadFile::get --open?--> File
//!                 `--no----> opened by its name, looked at --> more than [`max`](Descriptors::max): the one that was used longest ago is closed
//! ```
//!
//! descriptors.1. A file that is opened is the one that is meant: of a table that was open before its end is compared, of a blob file its header is
//!      looked at. Both keep their names until their last users are gone.
//! descriptors.2. Who reads has a handle of its own: a file that is closed here is open for as long as somebody reads it.
//! descriptors.3. Files that are none of the operating system's cost no descriptor, and stay open.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use esker_env::{File, FsRef, OpenOptions};
use parking_lot::{Mutex, RwLock};

use crate::types::{Error, Result};

/// They have this part of the process's descriptors.
const PART: u64 = 2;
/// So many they have in any case.
const MIN: u64 = 8;
/// Where the system names no limit.
const UNLIMITED: u64 = 1 << 20;

/// Those of this process.
static OF_PROCESS: LazyLock<Arc<Descriptors>> = LazyLock::new(|| {
    let max = esker_env::descriptors_max().map_or(UNLIMITED, |max| (max / PART).max(MIN));
    Descriptors::new(max.min(UNLIMITED) as usize)
});

/// The open files.
pub(crate) struct Descriptors {
    max: usize,
    /// In the order in which they were opened, or were found used.
    open: Mutex<VecDeque<Weak<ReadFile>>>,
}

impl Descriptors {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Descriptors { max, open: Mutex::default() })
    }

    /// Those of this process.
    pub(crate) fn of_process() -> Arc<Self> {
        OF_PROCESS.clone()
    }

    /// Counts a file that was opened, and closes others.
    fn note(&self, opened: &Arc<ReadFile>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(opened));
        // Each has a second chance.
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

/// Looks whether a file is the one that is meant (descriptors.1).
type Check = Box<dyn Fn(&dyn File) -> Result<()> + Send + Sync>;

/// A file to read.
pub(crate) struct ReadFile {
    fs: FsRef,
    path: PathBuf,
    open: RwLock<Option<Arc<dyn File>>>,
    /// Since it was looked at last. Relaxed: a hint.
    is_used: AtomicBool,
    check: Check,
    descriptors: Arc<Descriptors>,
}

impl ReadFile {
    /// A file that is open, and was looked at.
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

    /// A file that is opened by who reads it first.
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
        // descriptors.3
        if file.as_std().is_some() {
            self.descriptors.note(self);
        }
    }

    /// The file, open.
    pub(crate) fn get(self: &Arc<Self>) -> Result<Arc<dyn File>> {
        if let Some(file) = &*self.open.read() {
            self.is_used.store(true, Ordering::Relaxed);
            return Ok(file.clone());
        }
        let options = OpenOptions::read();
        let file = self.fs.open(&self.path, options).map_err(|e| Error::io("open", &self.path, e))?;
        // descriptors.1
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
    #[expect(clippy::disallowed_methods, reason = "real files, of which some go")]
    fn descriptors_1_files_beyond_the_limit_are_opened_again_and_are_the_same() {
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
            assert_eq!(open(), 3, "descriptors.1: {n}");
        }
        assert!(files[0].open.read().is_some(), "it is used again and again");
        let closed = files.iter().position(|file| file.open.read().is_none()).unwrap();
        let reader = files[8].get().unwrap();
        (0..4).for_each(|n| drop(files[n].get().unwrap()));
        assert!(read_range(&*reader, 0, 1).is_ok(), "descriptors.2");
        std::fs::write(path(closed as u8), [77; 50]).unwrap();
        (4..10).for_each(|n| drop(files[n].get()));
        if files[closed].open.read().is_none() {
            assert!(files[closed].get().unwrap_err().is_corrupt(), "descriptors.1");
        }
        std::fs::remove_file(path(9)).unwrap();
        (0..8).for_each(|n| drop(files[n].get()));
        assert!(files[9].open.read().is_some() || matches!(files[9].get(), Err(Error::Io { .. })));
    }
}
